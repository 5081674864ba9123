//! One run of one case.

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iscsi_target::{LunConfig, RunningTarget, SendPolicy, TargetConfig, Threads};
use load::Pattern;
use load::initiator::{BenchSpec, Login};
use load::{CopySpec, EndpointOptions, HttpServer, Limits, copy, http, ring_of_messages};

use super::{Case, Found, Work};
use crate::client::{IscsiJob, Job};
use crate::error::StudyError;
use crate::place::{Performed, Place};
use crate::remote::Account;

/// The name of the experiments' target.
const IQN: &str = "iqn.2026-11.example.roundtrip:experiment";

/// The disk that is read and written.
const DISK_BYTES: u64 = 256 << 20;

/// How often a load that waits for its time looks whether the run has ended.
const STEP: Duration = Duration::from_millis(20);

/// The place and duration of a run.
pub(super) struct Run<'a> {
    pub(super) place: &'a Place,
    pub(super) runtime: Duration,
    /// Packets are kept in this file.
    pub(super) trace: Option<&'a Path>,
    pub(super) stop: &'a (dyn Fn() -> bool + Sync),
}

/// An iSCSI load.
#[derive(Clone, Copy, Debug)]
struct IscsiLoad {
    pattern: Pattern,
    block_bytes: u64,
    queue_depth: u32,
}

/// The result of a run.
pub(super) struct Made {
    pub(super) found: Found,
    /// The use of the client's CPU, if it is another host's.
    pub(super) client: Option<Account>,
}

type Outcome = Result<Made, StudyError>;

/// A side's options, with the study's congestion control where the plan gives none.
fn side(own: &EndpointOptions, place: &Place) -> EndpointOptions {
    EndpointOptions { congestion: own.congestion.clone().or_else(|| place.congestion.clone()), ..own.clone() }
}

impl Run<'_> {
    pub(super) fn make(&self, case: &Case) -> Outcome {
        let (place, runtime) = (self.place, self.runtime);
        let (client, server) = (side(&case.client, place), side(&case.server, place));
        let listen = || TcpListener::bind((place.server_address(), 0));
        let failed = |what| move |source| StudyError::machine(what, source);
        match &case.work {
            Work::Post(bytes) | Work::Get(bytes) => {
                let bytes = *bytes;
                let server = place
                    .on_server(|| HttpServer::start(listen()?, server, bytes, Limits::default()))?
                    .map_err(failed("an HTTP server"))?;
                let request = http::Request {
                    is_post: matches!(case.work, Work::Post(_)),
                    path: "/".into(),
                    host: place.server_address().to_string(),
                    body_bytes: bytes,
                };
                let job = Job::Http { server: server.address(), request, side: client, runtime };
                exchanges(self.perform(&job, server.address().port())?)
            }
            Work::Messages(load) => {
                let listener = place.on_server(listen)?.map_err(failed("listening"))?;
                let to = listener.local_addr().map_err(failed("listening"))?;
                let job = Job::Messages { server: to, load: *load, side: client, runtime };
                let Served { performed, .. } = self
                    .served(&listener, &job, |listener| ring_of_messages::answer(listener, load, &server))?;
                exchanges(performed)
            }
            Work::Copy { bytes, block } => {
                let spec = CopySpec { bytes: *bytes, block_bytes: *block as usize };
                let listener = place.on_server(listen)?.map_err(failed("listening"))?;
                let to = listener.local_addr().map_err(failed("listening"))?;
                let job = Job::Copy { server: to, spec, side: client };
                let Served { performed, result: received } =
                    self.served(&listener, &job, |listener| copy::receive(listener, &server))?;
                let received = received.map_err(failed("receiving a copy"))?;
                let found =
                    Found { figure: received.megabytes_per_second, p50_us: None, samples: Vec::new() };
                Ok(Made { found, client: account(&performed) })
            }
            Work::Iscsi { .. } => self.iscsi(case),
            Work::Url { url, rw, block, depth } => {
                let load = IscsiLoad { pattern: *rw, block_bytes: *block, queue_depth: *depth };
                let job = Job::Iscsi(Box::new(self.job(url.clone(), case.log_in()?, &client, load)));
                bench(place.perform_from_here(&job, self.stop)?)
            }
        }
    }

    /// Performs the client's job and keeps its packets if there is a file for them.
    fn perform(&self, job: &Job, port: u16) -> Result<Performed, StudyError> {
        let perform = || self.place.perform(job, &|_| (), self.stop);
        match self.trace {
            Some(file) => self.place.traced(port, file, perform),
            None => perform(),
        }
    }

    /// Performs the client's job against a server of one connection.
    fn served<T: Send>(
        &self,
        listener: &TcpListener,
        job: &Job,
        serve: impl FnOnce(&TcpListener) -> io::Result<T> + Send,
    ) -> Result<Served<T>, StudyError> {
        let port = listener.local_addr().map_err(|source| StudyError::machine("listening", source))?.port();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| self.place.on_server(|| serve(listener)));
            let performed = self.perform(job, port);
            if performed.is_err() {
                // Without a connection the server would block in accept for ever.
                let _ = nix::sys::socket::shutdown(
                    std::os::fd::AsRawFd::as_raw_fd(listener),
                    nix::sys::socket::Shutdown::Both,
                );
            }
            let lost = |_| StudyError::machine("a server", io::Error::other("the thread panicked"));
            let served = served.join().map_err(lost)?;
            Ok(Served { performed: performed?, result: served? })
        })
    }

    fn iscsi(&self, case: &Case) -> Outcome {
        let target = self.target(case, None)?;
        let job = Job::Iscsi(Box::new(self.iscsi_job(case, &target)?));
        bench(self.beside(case, || self.perform(&job, target.address().port()))?)
    }

    /// The target of an iSCSI case; it keeps the kernel's stamps of this many operations.
    pub(super) fn target(&self, case: &Case, stamped: Option<usize>) -> Result<RunningTarget, StudyError> {
        let invalid = |why| StudyError::machine("the disk of a case", io::Error::other(why));
        let mut disk: std::sync::Arc<dyn store::Store> = std::sync::Arc::new(store::Ram::new(DISK_BYTES));
        for layer in case.parsed_layers().map_err(invalid)? {
            disk = layer.over(disk, &case.label);
        }
        let config = TargetConfig {
            threads: Threads::Loops(1),
            send: send_policy(&case.server),
            tcp: side(&case.server, self.place).tcp(),
            stamp_operations: stamped,
            ..TargetConfig::new((self.place.server_address(), 0).into(), IQN, vec![LunConfig::new(0, disk)])
        };
        Ok(self.place.on_server(|| RunningTarget::start(config))??)
    }

    /// The client's job of an iSCSI case. What a layer plants counts from the first operation, so nothing comes before it.
    pub(super) fn iscsi_job(&self, case: &Case, target: &RunningTarget) -> Result<IscsiJob, StudyError> {
        let Work::Iscsi { rw, block, depth } = case.work else {
            return Err(StudyError::machine("an iSCSI case", io::Error::other("it has another work")));
        };
        let load = IscsiLoad { pattern: rw, block_bytes: block, queue_depth: depth };
        let url = format!("iscsi://{}/{IQN}/0", target.address());
        let mut job = self.job(url, case.log_in()?, &side(&case.client, self.place), load);
        if case.structure {
            job.spec.ramp = Duration::ZERO;
        }
        Ok(job)
    }

    /// Calls `work` while the case's second load runs, if it has one.
    pub(super) fn beside<T>(
        &self,
        case: &Case,
        work: impl FnOnce() -> Result<T, StudyError>,
    ) -> Result<T, StudyError> {
        let Some(second) = &case.second else { return work() };
        if self.place.is_remote() {
            let why = "it needs the client on this host: choose cases without `second`";
            return Err(StudyError::machine("a second load", io::Error::other(why)));
        }
        let plain = Case { layers: Vec::new(), ..case.clone() };
        let target = self.target(&plain, None)?;
        let load = IscsiLoad { pattern: second.rw, block_bytes: second.block, queue_depth: second.depth };
        let url = format!("iscsi://{}/{IQN}/0", target.address());
        let mut job = self.job(url, case.log_in()?, &side(&case.client, self.place), load);
        (job.spec.ramp, job.spec.runtime) = (Duration::ZERO, second.to - second.from);
        let job = Job::Iscsi(Box::new(job));
        let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
        let stop = || is_over.load(Ordering::Relaxed) || (self.stop)();
        std::thread::scope(|scope| {
            let loading = scope.spawn(|| {
                while begun.elapsed() < second.from && !stop() {
                    std::thread::sleep(second.from.saturating_sub(begun.elapsed()).min(STEP));
                }
                if stop() { Ok(()) } else { self.place.perform(&job, &|_| (), &stop).map(drop) }
            });
            let outcome = work();
            is_over.store(true, Ordering::Relaxed);
            let lost = |_| StudyError::machine("a second load", io::Error::other("the thread panicked"));
            let loaded = loading.join().map_err(lost)?;
            let outcome = outcome?;
            loaded.map(|()| outcome)
        })
    }

    /// The client's job of an iSCSI load.
    fn job(&self, url: String, login: Login, side: &EndpointOptions, load: IscsiLoad) -> IscsiJob {
        let IscsiLoad { pattern, block_bytes, queue_depth } = load;
        let spec = BenchSpec {
            pattern,
            block_bytes,
            queue_depth,
            runtime: self.runtime,
            ramp: Duration::from_millis(200),
            ..BenchSpec::default()
        };
        IscsiJob {
            url,
            tcp: side.tcp(),
            writes: side.writes,
            login,
            spec,
            stamp_operations: None,
            watch: false,
        }
    }
}

/// The target's send policy.
fn send_policy(server: &EndpointOptions) -> SendPolicy {
    match (server.nagle, server.unflushed) {
        (true, true) => SendPolicy::NAGLE_UNFLUSHED,
        (true, false) => SendPolicy::Nagle,
        (false, _) => SendPolicy::Nodelay,
    }
}

/// The results of both ends of a job.
struct Served<T> {
    performed: Performed,
    /// The server's result.
    result: io::Result<T>,
}

fn account(performed: &Performed) -> Option<Account> {
    performed.is_remote.then_some(performed.reply.account)
}

fn exchanges(performed: Performed) -> Outcome {
    let account = account(&performed);
    let found = performed.reply.done.exchanges()?;
    let p50_us = Some(found.latency_us.p50);
    let found = Found { figure: found.per_second, p50_us, samples: found.samples };
    Ok(Made { found, client: account })
}

fn bench(performed: Performed) -> Outcome {
    let account = account(&performed);
    let bench = performed.reply.done.bench()?.bench;
    if bench.result.operations == 0 {
        let first = bench.result.first_error.unwrap_or_else(|| "no operation ended in time".to_owned());
        let none = io::Error::other(format!("no operation succeeded; the first error: {first}"));
        return Err(StudyError::machine("an iSCSI load", none));
    }
    let (figure, p50_us) = (bench.result.bytes_per_second / 1e6, Some(bench.result.latency_us.p50));
    Ok(Made { found: Found { figure, p50_us, samples: Vec::new() }, client: account })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_s_nagle_is_a_send_policy() {
        let of = |nagle, unflushed| {
            send_policy(&EndpointOptions { nagle, unflushed, ..EndpointOptions::default() })
        };
        assert_eq!(of(false, false), SendPolicy::Nodelay);
        assert_eq!(of(true, false), SendPolicy::Nagle);
        assert_eq!(of(true, true), SendPolicy::NAGLE_UNFLUSHED);
    }
}
