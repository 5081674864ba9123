//! Jobs of the client's side, performed by a thread here or by a process on another host.

use std::net::SocketAddr;

use capture::{Counters, Watch};
use load::initiator::{Bench, BenchSpec, IscsiUrl, Login, Phase, SessionOptions};
use load::{CopySpec, EndpointOptions, Exchanges, Load, copy, http, ring_of_messages};
use record::{Op, Side, Writes};
use serde::{Deserialize, Serialize};
use socket::options::TcpOptions;

use crate::capturing::{OPERATIONS_MAX, capture_of};
use crate::error::StudyError;
use crate::interface::Interface;

/// A job of the client's side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Posts or gets, one after another on one connection.
    Http {
        /// The server.
        server: SocketAddr,
        /// The request.
        request: http::Request,
        /// The socket's options.
        side: EndpointOptions,
        /// Duration.
        runtime: std::time::Duration,
    },
    /// A ring of messages.
    Messages {
        /// The server.
        server: SocketAddr,
        /// The load.
        load: Load,
        /// The socket's options.
        side: EndpointOptions,
        /// Duration.
        runtime: std::time::Duration,
    },
    /// A copy to the server.
    Copy {
        /// The receiver.
        server: SocketAddr,
        /// The copy.
        spec: CopySpec,
        /// The socket's options.
        side: EndpointOptions,
    },
    /// iSCSI.
    Iscsi(Box<IscsiJob>),
}

/// iSCSI against a target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IscsiJob {
    /// `iscsi://host[:port]/iqn/lun`.
    pub url: String,
    /// The session's socket.
    pub tcp: TcpOptions,
    /// How a PDU's header and data are written.
    pub writes: Writes,
    /// Authentication and digests, with the secrets.
    #[serde(default)]
    pub login: Login,
    /// The load.
    pub spec: BenchSpec,
    /// Keep the kernel's stamps of at most this many operations.
    pub stamp_operations: Option<usize>,
    /// Capture the packets of the interface towards the target.
    pub watch: bool,
}

/// The result of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Done {
    /// Of exchanges.
    Exchanges(Exchanges),
    /// A copy is complete.
    Copied,
    /// Of iSCSI.
    Bench(Box<BenchDone>),
}

/// The result of an iSCSI load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchDone {
    /// The load's result.
    pub bench: Bench,
    /// The client's capture point, if it was watched.
    pub watched: Option<Watched>,
}

impl Done {
    /// The exchanges.
    pub(crate) fn exchanges(self) -> Result<Exchanges, StudyError> {
        match self {
            Self::Exchanges(exchanges) => Ok(exchanges),
            _ => Err(StudyError::machine("a client", std::io::Error::other("it did something else"))),
        }
    }

    /// The run of iSCSI.
    pub(crate) fn bench(self) -> Result<BenchDone, StudyError> {
        match self {
            Self::Bench(bench) => Ok(*bench),
            _ => Err(StudyError::machine("a client", std::io::Error::other("it did something else"))),
        }
    }
}

/// The observations of the client's capture point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Watched {
    /// The operations.
    pub seen: Vec<Op>,
    /// Its counters.
    pub counters: Counters,
    /// Packets that found the ring full.
    pub drops: u64,
}

/// Performs a job on the calling thread, in its namespace and on its CPU.
///
/// # Errors
/// When the server cannot be reached, or the connection is lost.
pub fn perform(
    job: &Job,
    observe: &(dyn Fn(Phase) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Done, StudyError> {
    let failed = |what| move |source| StudyError::machine(what, source);
    match job {
        Job::Http { server, request, side, runtime } => {
            let asked = http::Client::connect(*server, request, side).and_then(|mut c| c.ask(*runtime));
            Ok(Done::Exchanges(asked.map_err(failed("HTTP over the wire"))?.0))
        }
        Job::Messages { server, load, side, runtime } => {
            let asked = ring_of_messages::ask(*server, load, side, *runtime);
            asked.map(Done::Exchanges).map_err(failed("messages over the wire"))
        }
        Job::Copy { server, spec, side } => {
            copy::send(*server, spec, side).map_err(failed("sending a copy"))?;
            Ok(Done::Copied)
        }
        Job::Iscsi(job) => iscsi(job, observe, stop),
    }
}

fn iscsi(
    job: &IscsiJob,
    observe: &(dyn Fn(Phase) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Done, StudyError> {
    let url: IscsiUrl = job.url.parse()?;
    let watch = if job.watch {
        let failed = |source| StudyError::machine("looking for the interface towards the target", source);
        let server =
            url.host.parse().map_err(|_| failed(std::io::Error::other("the host is not an address")))?;
        let interface = Interface::towards(server).map_err(failed)?;
        let (mtu_bytes, config) = (interface.mtu_bytes, capture_of(&interface.name, url.port));
        Some(Watch::start(config, &[Side::Client], mtu_bytes, OPERATIONS_MAX, || Ok(()))?)
    } else {
        None
    };
    let options = SessionOptions {
        tcp: job.tcp.clone(),
        writes: job.writes,
        stamp_operations: job.stamp_operations,
        ..SessionOptions::default()
    }
    .with_login(&job.login);
    let bench = Bench::run(&url, &options, &job.spec, observe, stop)?;
    let watched = match watch {
        None => None,
        Some(watch) => {
            let report = watch.stop()?;
            let side = report.sides.into_iter().next();
            side.map(|side| Watched { seen: side.ops, counters: side.counters, drops: report.drops })
        }
    };
    Ok(Done::Bench(Box::new(BenchDone { bench, watched })))
}
