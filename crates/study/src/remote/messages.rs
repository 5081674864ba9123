//! The messages between a study and its client on another host: one JSON text per line, over the standard input and output
//! of the process there.

use std::net::IpAddr;

use load::initiator::Phase;
use serde::{Deserialize, Serialize};

use crate::accounts::CpuUse;
use crate::client::{Done, Job};
use crate::interface::Interface;
use crate::machine::Machine;

/// A request of the study.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Describe the host.
    Hello,
    /// Find the interface towards this address.
    Look(IpAddr),
    /// Perform this job.
    Do(Box<Job>),
}

/// An answer of the client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// To [`Request::Hello`].
    Hello(Box<Hello>),
    /// To [`Request::Look`].
    Look(Interface),
    /// A phase of a job began.
    Phase(Phase),
    /// A job is done.
    Done(Box<Reply>),
    /// The request failed.
    Failed(String),
}

/// The client's host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Its machine.
    pub(crate) machine: Machine,
    /// The CPUs that it may use.
    pub(crate) cpus: Vec<usize>,
    /// The address that it was called from.
    pub(crate) caller: Option<IpAddr>,
    /// The congestion controls that it may choose.
    pub(crate) congestion: Vec<String>,
}

/// The result of a job, and the use of the client's CPU meanwhile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) done: Done,
    /// During the measured time, or during the whole job if it has none.
    pub(crate) account: Account,
}

/// The use of the client's CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Its work.
    pub(crate) cpu: CpuUse,
    /// Duration, seconds.
    pub(crate) seconds: f64,
    /// Share of it used by other programs.
    pub(crate) others: f64,
}
