//! Why a target could not start, or a connection ended.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// A target that could not start.
#[derive(Debug, Error)]
pub enum TargetError {
    /// The portal is not to be had.
    #[error("cannot listen on {portal}: {source}; choose another --portal, or port 0 for any free one")]
    Listen {
        /// The portal asked for.
        portal: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The name has not the form of an iSCSI name.
    #[error("'{0}' is not an iSCSI name; write iqn.YYYY-MM.reversed.domain:disk, eui. or naa.")]
    Name(String),
    /// Two disks with one number.
    #[error("LUN {0} is given twice")]
    DuplicateLun(u16),
    /// A disk that cannot be presented.
    #[error("LUN {number}: {reason}")]
    Lun {
        /// Which.
        number: u16,
        /// Why not.
        reason: String,
    },
    /// The folder for what is to be kept cannot be used.
    #[error("{}: {source}; --state names a folder that can be written", path.display())]
    State {
        /// The folder, or the file in it.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A target without a place to listen.
    #[error("no portal is given; name at least one address")]
    NoPortal,
    /// A socket option or a thread was refused.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}

/// Why a connection ended. Logged; never a reason for the target to end.
#[derive(Debug, Error)]
pub enum ConnectionEnd {
    /// The initiator logged out.
    #[error("logged out")]
    LoggedOut,
    /// The initiator closed the connection.
    #[error("closed by the initiator")]
    Closed,
    /// The initiator broke the protocol.
    #[error(transparent)]
    Fault(#[from] iscsi::Fault),
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// The login took too long.
    #[error("no login within {0:?}")]
    LoginTime(std::time::Duration),
    /// The login was refused.
    #[error("login refused: {0}")]
    Refused(iscsi::login::Status),
    /// No sign of life.
    #[error("no answer to a ping within {0:?}")]
    Silent(std::time::Duration),
    /// A later login of the same session took its place, or a reset ended it.
    #[error("dropped: {0}")]
    Dropped(&'static str),
    /// Given up so that its tasks can go on with others.
    #[error("given up for recovery")]
    Recovered,
    /// The target is stopping.
    #[error("the target is stopping")]
    Stopping,
}
