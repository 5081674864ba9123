//! Errors of studies.

use thiserror::Error;

/// The reason for which a study could not start or continue.
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
    Load(#[from] load::initiator::InitiatorError),
    /// The capture.
    #[error("the capture: {0}")]
    Capture(#[from] capture::CaptureError),
    /// The machine.
    #[error("{what}: {source}")]
    Machine {
        /// The operation that failed.
        what: &'static str,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A CPU that this process may not use.
    #[error("CPU {cpu}: this process may use {may}")]
    Placement {
        /// Its number.
        cpu: usize,
        /// Those that it may use.
        may: String,
    },
    /// The client's host.
    #[error("the client on {host}: {message}")]
    Remote {
        /// Which.
        host: String,
        /// What failed there.
        message: String,
    },
    /// The watcher ended it.
    #[error("interrupted; the wire and everything on it is gone")]
    Interrupted,
}

impl StudyError {
    pub(crate) fn machine(what: &'static str, source: std::io::Error) -> Self {
        Self::Machine { what, source }
    }
}
