//! What can go wrong on the initiator's side: what, where, and what to do.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// A failure of a session or of a run.
#[derive(Debug, Error)]
pub enum InitiatorError {
    /// The URL cannot be read.
    #[error("'{url}' is no iSCSI URL: {reason}; write iscsi://host[:port]/iqn/lun")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Nobody answers there.
    #[error("cannot connect to {address}: {source}; is the target running, and is the port right?")]
    Connect {
        /// Where.
        address: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The target broke the protocol or refused.
    #[error("{address}: {source}")]
    Fault {
        /// Where.
        address: String,
        /// What.
        source: iscsi::Fault,
    },
    /// The socket failed.
    #[error("{address}: {what}: {source}")]
    Socket {
        /// Where.
        address: String,
        /// While doing what.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The target closed the connection.
    #[error("{address}: the target closed the connection with {in_flight} commands unanswered")]
    Closed {
        /// Where.
        address: String,
        /// How many commands had no answer.
        in_flight: usize,
    },
    /// Nothing came for too long.
    #[error("{address}: no answer within {waited:?}, {in_flight} commands in flight")]
    Stalled {
        /// Where.
        address: String,
        /// How long.
        waited: Duration,
        /// How many commands had no answer.
        in_flight: usize,
    },
    /// The target rejected a PDU.
    #[error("{address}: the target rejected a PDU with reason {reason:#04x}")]
    Rejected {
        /// Where.
        address: String,
        /// RFC 7143 11.17.1.
        reason: u8,
    },
    /// A command of the set-up failed.
    #[error("{address}: {command} failed with status {status:#04x}, sense {sense}")]
    Command {
        /// Where.
        address: String,
        /// Which.
        command: &'static str,
        /// SCSI status.
        status: u8,
        /// Sense key/ASC/ASCQ.
        sense: String,
    },
    /// The run cannot be done as asked.
    #[error("{0}")]
    Spec(String),
}

impl InitiatorError {
    /// Whether the caller's arguments are at fault rather than the target or the network.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, InitiatorError::Url { .. } | InitiatorError::Spec(_))
    }
}
