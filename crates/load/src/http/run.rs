//! A run of requests over many connections, on one or several threads.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags};
use record::{Op, OpKind};

use super::connection::Shared;
use super::engine::{Engine, Job};
use super::records::RecordSpec;
use super::request::HttpRequest;
use super::tally::Tally;
use super::tls::Tls;
use crate::arrivals::Arrival;
use crate::endpoint::EndpointOptions;
use crate::pace::{Pace, PaceSpec};
use crate::pattern::{Pattern, Submit};
use crate::result::{Connections, KindResult, Operation, RunResult};
use crate::series::Live;

/// A run of one request, repeated.
#[derive(Clone, Debug)]
pub struct HttpRun {
    /// The request.
    pub request: HttpRequest,
    /// TLS, or none.
    pub tls: Option<Tls>,
    /// Socket options and write mode of each connection. TLS ignores the write mode.
    pub side: EndpointOptions,
    /// Reported as reads or writes. Bytes of responses to reads count as transferred, and those of requests that write.
    pub pattern: Pattern,
    /// Bytes of a body, if they are known; otherwise the mean of the bodies is reported.
    pub block_bytes: Option<u64>,
    /// Connections, each with one request in flight.
    pub connections: u32,
    /// Threads, at most one for each connection.
    pub threads: u32,
    /// Scheduled requests per second (open loop); `None` for a closed loop.
    pub rate: Option<f64>,
    /// Arrivals of the open loop.
    pub arrival: Arrival,
    /// Seed of random arrivals.
    pub seed: u64,
    /// Time to run before the measured time.
    pub ramp: Duration,
    /// Measured time.
    pub runtime: Duration,
    /// Keep a record of every request, at most this many per thread.
    pub record_ops: usize,
    /// Shows how far the run is.
    pub live: Live,
    /// Longest wait for a response, and for a connection.
    pub patience: Duration,
}

/// The result of a run with its records.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The figures.
    pub result: RunResult,
    /// Every request, ramp included, if recording was requested. A request without a complete response has no finish.
    pub ops: Vec<Op>,
    /// Requests that were not recorded because the record was full.
    pub ops_over_limit: u64,
}

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum HttpRunError {
    /// No request was answered, on any connection.
    #[error("no response on any connection; the first failure: {0}")]
    Unanswered(String),
    /// The system refuses something that the client needs.
    #[error("the client cannot wait for its connections: {0}")]
    System(#[from] io::Error),
}

/// What the threads of a run share.
struct Common {
    ready: Barrier,
    pace: OnceLock<Pace>,
    is_reached: AtomicBool,
}

impl HttpRun {
    /// Returns the first of these addresses that accepts a connection, which is closed at once.
    ///
    /// # Errors
    /// The error of the last address, if none does.
    pub fn reachable(
        addresses: &[SocketAddr],
        side: &EndpointOptions,
        patience: Duration,
    ) -> io::Result<SocketAddr> {
        let mut outcome = Err(io::Error::new(io::ErrorKind::NotFound, "the host has no address"));
        for address in addresses {
            outcome = side.tcp().connect(address, patience).map(|_: TcpStream| *address);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Runs the requests. Failed requests are part of the result.
    ///
    /// # Errors
    /// When the server answers no request of the warm-up.
    pub fn run(&self, server: SocketAddr) -> Result<Recorded, HttpRunError> {
        let threads = self.threads.clamp(1, self.connections.max(1));
        let common = Common {
            ready: Barrier::new(threads as usize),
            pace: OnceLock::new(),
            is_reached: AtomicBool::new(false),
        };
        let common = &common;
        let parts: Vec<Result<Tally, HttpRunError>> = std::thread::scope(|scope| {
            let share =
                |thread: u32| self.connections / threads + u32::from(thread < self.connections % threads);
            let spawn = |thread| scope.spawn(move || self.part(server, share(thread), common));
            let started: Vec<_> = (0..threads).map(spawn).collect();
            let lost = || Err(io::Error::other("the thread panicked").into());
            started.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
        });
        let mut whole: Option<Tally> = None;
        for part in parts {
            let part = part?;
            match &mut whole {
                None => whole = Some(part),
                Some(whole) => whole.merge(part),
            }
        }
        let mut whole = whole.unwrap_or_default();
        let (ops, ops_over_limit) = (std::mem::take(&mut whole.ops), whole.ops_over_limit);
        let result = self.result(&whole, common.pace.get().map(Pace::behind));
        Ok(Recorded { result, ops, ops_over_limit })
    }

    /// Runs the connections of one thread.
    fn part(&self, server: SocketAddr, connections: u32, common: &Common) -> Result<Tally, HttpRunError> {
        let head = self.request.head();
        let job = || -> io::Result<Job<'_>> {
            let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
            let shared = Shared {
                server,
                side: &self.side,
                tls: self.tls.as_ref(),
                head: &head,
                body: self.request.body.bytes(),
                patience: self.patience,
                epoll,
            };
            Ok(Job {
                live: self.live.clone(),
                shared,
                connections: connections as usize,
                is_bodyless: self.request.method.name() == "HEAD",
                is_idempotent: self.request.method.is_idempotent(),
                is_write: self.pattern.writes(),
                record: RecordSpec {
                    limit: self.record_ops,
                    queue_depth: self.connections,
                    verb: RecordSpec::verb(&self.request.method),
                    kind: if self.pattern.writes() { OpKind::Write } else { OpKind::Read },
                },
            })
        };
        let engine = job().and_then(Engine::warmed_up);
        if engine.as_ref().is_ok_and(|engine| engine.reached().is_ok()) {
            common.is_reached.store(true, Ordering::SeqCst);
        }
        // Every thread must reach the barrier, even after a failure, or the others would block forever.
        common.ready.wait();
        let engine = engine?;
        if !common.is_reached.load(Ordering::SeqCst) {
            let failure = engine.reached().err().flatten();
            return Err(HttpRunError::Unanswered(
                failure.map(|failed| failed.to_string()).unwrap_or_default(),
            ));
        }
        let pace = self.rate.map(|per_second| {
            let spec = PaceSpec { per_second, arrival: self.arrival, seed: self.seed };
            common.pace.get_or_init(|| Pace::new(spec, Instant::now(), self.ramp + self.runtime))
        });
        Ok(engine.run(self.ramp, self.runtime, pace)?)
    }

    /// Returns the figures; `behind` counts requests of an open loop that had not begun at its end.
    fn result(&self, all: &Tally, behind: Option<u64>) -> RunResult {
        let seconds = all.measured.as_secs_f64();
        let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let mean_bytes = all.bytes.checked_div(all.operations()).unwrap_or(0);
        RunResult {
            rw: self.pattern,
            block_size_bytes: self.block_bytes.unwrap_or(mean_bytes),
            queue_depth: self.connections,
            sessions: self.connections,
            submit: Submit::Each,
            seconds,
            operations: all.operations(),
            iops: per_second(all.operations()),
            slowest_session_iops: per_second(all.slowest),
            rate: self.rate,
            arrival: self.rate.map(|_| self.arrival),
            behind,
            transferred_bytes: all.bytes,
            bytes_per_second: per_second(all.bytes),
            errors: all.failures.total(),
            unmeasured_errors: all.unmeasured_errors,
            failures: all.failures.list(),
            failed_mean_us: (all.failed.count() > 0).then(|| all.failed.figures().mean),
            first_error: all.first_failure.as_ref().map(ToString::to_string),
            client_cpu_us: all.cpu_ns as f64 / 1000.0 / all.operations().max(1) as f64,
            latency_us: all.latency.figures(),
            histogram: all.latency.bins(),
            kinds: vec![self.kind(all)],
            series: all.series.seconds(),
            connections: Some(Connections {
                opened: all.set_ups.count(),
                setup_us: all.set_ups.figures(),
                tls_us: self.tls.as_ref().map(|_| all.handshakes.figures()),
                retried: all.retries,
            }),
            ..RunResult::default()
        }
    }

    /// Returns the figures of the only kind of operation.
    fn kind(&self, all: &Tally) -> KindResult {
        let per_second = |count: u64| count as f64 / all.measured.as_secs_f64().max(1e-9);
        KindResult {
            kind: if self.pattern.writes() { Operation::Write } else { Operation::Read },
            operations: all.operations(),
            iops: per_second(all.operations()),
            transferred_bytes: all.bytes,
            bytes_per_second: per_second(all.bytes),
            errors: all.failures.total(),
            // A response that is cut off is an error of its own.
            short: 0,
            latency_us: all.latency.figures(),
            latency: all.latency.clone(),
        }
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "run_stage_tests.rs"]
mod stage_tests;
