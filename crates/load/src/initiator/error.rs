//! Errors of the initiator.

use std::io;
use std::time::Duration;

use record::units::counted;
use thiserror::Error;

use crate::failure::FailureClass;

/// A number of commands in a message.
pub(crate) fn commands(count: usize) -> String {
    counted(count as u64, "command")
}

/// A failure of a session or a run.
#[derive(Debug, Error)]
pub enum InitiatorError {
    /// The URL is invalid.
    #[error("'{url}' is not an iSCSI URL: {reason}; write iscsi://[user@]host[:port]/iqn/lun")]
    Url {
        /// The URL.
        url: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The host name has no address.
    #[error(
        "cannot resolve the host name '{host}' of {address}: {source}; check its spelling and the name server, or write the \
         target's IP address"
    )]
    Unresolved {
        /// The name.
        host: String,
        /// The target's address as given.
        address: String,
        /// The resolver's reason.
        source: io::Error,
    },
    /// The connection was refused or timed out.
    #[error("cannot connect to {address}: {source}; is the target running, and is the port right?")]
    Connect {
        /// The target's address.
        address: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The target violated the protocol or refused the login.
    #[error("{address}: {source}")]
    Fault {
        /// The target's address.
        address: String,
        /// The protocol error.
        source: iscsi::Fault,
    },
    /// The socket failed.
    #[error("{address}: {what}: {source}")]
    Socket {
        /// The target's address.
        address: String,
        /// The failed operation.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The target closed the connection.
    #[error("{address}: the target closed the connection with {} unanswered", commands(*in_flight))]
    Closed {
        /// The target's address.
        address: String,
        /// Commands without a response.
        in_flight: usize,
    },
    /// The target did not respond in time.
    #[error("{address}: no response within {waited:?}, {} in flight", commands(*in_flight))]
    Stalled {
        /// The target's address.
        address: String,
        /// The waited time.
        waited: Duration,
        /// Commands without a response.
        in_flight: usize,
    },
    /// The target rejected a PDU.
    #[error("{address}: the target rejected a PDU with reason {reason:#04x}")]
    Rejected {
        /// The target's address.
        address: String,
        /// The reason code (RFC 7143 11.17.1).
        reason: u8,
    },
    /// The target redirected the login to an unusable address, or too often.
    #[error(
        "{address}: the target redirects the login to {to}, which is no host:port with an address, or redirects without end"
    )]
    Redirection {
        /// The target's address.
        address: String,
        /// TargetAddress.
        to: String,
    },
    /// A set-up command failed.
    #[error("{address}: {command} failed with status {status:#04x}, sense {sense}")]
    Command {
        /// The target's address.
        address: String,
        /// Its name.
        command: &'static str,
        /// SCSI status.
        status: u8,
        /// Sense key/ASC/ASCQ.
        sense: String,
    },
    /// The specification of the run is invalid.
    #[error("{0}")]
    Spec(String),
}

impl InitiatorError {
    /// Returns how operations in flight fail when this error ends their session; `None` if it is no loss of a session.
    #[must_use]
    pub fn loss(&self) -> Option<FailureClass> {
        match self {
            Self::Socket { .. } | Self::Closed { .. } | Self::Fault { .. } => {
                Some(FailureClass::ConnectionLost)
            }
            Self::Stalled { .. } => Some(FailureClass::Timeout),
            Self::Rejected { reason, .. } => Some(FailureClass::Rejected(*reason)),
            Self::Url { .. }
            | Self::Unresolved { .. }
            | Self::Connect { .. }
            | Self::Redirection { .. }
            | Self::Command { .. }
            | Self::Spec(_) => None,
        }
    }

    /// Returns whether the caller's arguments are at fault, not the target or the network.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Url { .. } | Self::Unresolved { .. } | Self::Spec(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_command_is_not_several() {
        let error = |in_flight| InitiatorError::Closed { address: "h:1".into(), in_flight }.to_string();
        assert!(
            error(1).ends_with("with 1 command unanswered") && error(2).ends_with("2 commands unanswered")
        );
    }
}
