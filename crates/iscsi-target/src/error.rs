//! Errors of target start and reasons for the end of a connection.

use std::io;
use std::net::SocketAddr;

use thiserror::Error;

/// Why a target could not start.
#[derive(Debug, Error)]
pub enum TargetError {
    /// The portal cannot be bound.
    #[error("cannot listen on {portal}: {source}; choose another --portal, or port 0 for any free one")]
    Listen {
        /// The configured portal.
        portal: SocketAddr,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The name is not a valid iSCSI name.
    #[error("'{0}' is not an iSCSI name; write iqn.YYYY-MM.reversed.domain:disk, eui. or naa.")]
    Name(String),
    /// Two target nodes have the same name.
    #[error("target '{0}' is given twice")]
    DuplicateName(String),
    /// A target node has a portal group that no portal has.
    #[error("target '{iqn}': no portal has group {group}; add one, or choose another group")]
    NoGroup {
        /// The target.
        iqn: String,
        /// The group.
        group: u16,
    },
    /// A running target node would get other portal groups.
    #[error(
        "target '{0}': its portal groups cannot change while it is served; remove it and add it again, or restart"
    )]
    GroupsChanged(String),
    /// Hosts could not tell two disks apart.
    #[error("two disks, of '{first}' and '{second}', have the same {what}; hosts take them for one disk")]
    DuplicateIdentity {
        /// What they share: a serial number or an NAA identifier.
        what: String,
        /// The target of one.
        first: String,
        /// The target of the other.
        second: String,
    },
    /// Two disks have the same number.
    #[error("LUN {0} is given twice")]
    DuplicateLun(u16),
    /// A disk configuration is invalid.
    #[error("LUN {number}: {reason}")]
    Lun {
        /// Its number.
        number: u16,
        /// Why not.
        reason: String,
    },
    /// The state folder cannot be used.
    #[error("{}: {source}; choose a writable folder with --state", path.display())]
    State {
        /// The folder, or the file in it.
        path: std::path::PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A socket that was passed to the process is at the address of no portal.
    #[error(
        "the service manager passes a socket at {0}, where no portal is; add a portal with this address, or remove all of them"
    )]
    NoPortalAt(SocketAddr),
    /// The configuration has no portal.
    #[error("no portal is configured; add at least one address")]
    NoPortal,
    /// A socket option or a thread could not be set up.
    #[error("{what}: {source}")]
    Io {
        /// What failed.
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
    /// A ping was not answered.
    #[error("no answer to a ping within {0:?}")]
    Silent(std::time::Duration),
    /// Dropped by the target: reinstated by a later login, ended by a reset, or over a limit.
    #[error("dropped: {0}")]
    Dropped(&'static str),
    /// Closed so that its tasks can be reassigned to another connection.
    #[error("closed for recovery by another connection")]
    Recovered,
    /// The next process goes on with it.
    #[error("kept for the next process")]
    Suspended,
    /// The target is stopping.
    #[error("the target is stopping")]
    Stopping,
}
