//! Why a study could not be done.

use thiserror::Error;

/// A study that could not start or go on.
#[derive(Debug, Error)]
pub enum StudyError {
    /// The wire.
    #[error("the wire: {0}")]
    Wire(#[from] testbed::WireError),
    /// The target.
    #[error("the target: {0}")]
    Target(#[from] iscsi_target::TargetError),
    /// The load.
    #[error("the load: {0}")]
    Load(#[from] initiator::InitiatorError),
    /// The capture.
    #[error("the capture: {0}")]
    Capture(#[from] capture::CaptureError),
    /// The machine.
    #[error("{what}: {source}")]
    Machine {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A CPU that is not there.
    #[error("CPU {cpu}: this process may use {may}")]
    Placement {
        /// Its number.
        cpu: usize,
        /// Those that there are.
        may: String,
    },
    /// The client's host.
    #[error("the client on {host}: {message}")]
    Remote {
        /// Which.
        host: String,
        /// What it said, or what became of it.
        message: String,
    },
    /// Somebody asked it to stop.
    #[error("interrupted; the wire and everything on it is gone")]
    Interrupted,
}

impl StudyError {
    pub(crate) fn machine(what: &'static str, source: std::io::Error) -> Self {
        Self::Machine { what, source }
    }
}
