//! What a study and its client on another host say to each other: a JSON text a line, over the standard input and output
//! of the process there.

use std::net::IpAddr;

use initiator::Phase;
use serde::{Deserialize, Serialize};

use crate::accounts::CpuUse;
use crate::client::{Done, Job};
use crate::interface::Interface;
use crate::machine::Machine;

/// What the study asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Who are you?
    Hello,
    /// Which interface leads to this address?
    Look(IpAddr),
    /// Do this.
    Do(Box<Job>),
}

/// What the client answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// To [`Request::Hello`].
    Hello(Box<Hello>),
    /// To [`Request::Look`].
    Look(Interface),
    /// A moment of a job.
    Phase(Phase),
    /// A job is done.
    Done(Box<Reply>),
    /// What was asked for cannot be done.
    Failed(String),
}

/// Who the client is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Its machine.
    pub(crate) machine: Machine,
    /// The CPUs that it may use.
    pub(crate) cpus: Vec<usize>,
    /// Where it was called from, as its own host sees it.
    pub(crate) caller: Option<IpAddr>,
    /// The congestion controls that it may choose.
    pub(crate) congestion: Vec<String>,
}

/// What came of a job, and what became of the client's CPU meanwhile.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Reply {
    pub(crate) done: Done,
    /// Of the measured time; of the whole job where it has none.
    pub(crate) account: Account,
}

/// What became of the client's CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Account {
    /// What it did.
    pub(crate) cpu: CpuUse,
    /// For how long, seconds.
    pub(crate) seconds: f64,
    /// Share of it that other programs used.
    pub(crate) others: f64,
}
