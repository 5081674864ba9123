//! Why a netlink request failed.

use std::io;

/// Why a netlink request failed. `what` names the request and its object: `reading link modes of eth0`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The netlink socket cannot be opened or used.
    #[error("{what}: {doing} a netlink socket: {source}")]
    Socket {
        /// The request.
        what: String,
        /// What was done to the socket.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel refused the request.
    #[error("{what}: {source}{}", said.as_deref().map(|said| format!(": the kernel says: {said}")).unwrap_or_default())]
    Kernel {
        /// The request.
        what: String,
        /// The error.
        source: io::Error,
        /// The text of the extended acknowledgement.
        said: Option<String>,
    },
    /// The value is unusable, so that no request was sent.
    #[error("{what}: {why}")]
    Unusable {
        /// The request.
        what: String,
        /// Why, and what is usable.
        why: String,
    },
    /// The kernel accepted the request and did something else.
    #[error("{what}: accepted, but {outcome}")]
    Ignored {
        /// The request.
        what: String,
        /// What is in force instead.
        outcome: String,
    },
    /// The kernel has no such generic netlink family.
    #[error("{what}: this kernel has no generic netlink family {family}: {source}")]
    NoFamily {
        /// The request.
        what: String,
        /// The family's name.
        family: &'static str,
        /// What the kernel answered.
        source: Box<Error>,
    },
    /// The answer cannot be parsed.
    #[error("{what}: the kernel's answer cannot be parsed: {why}")]
    Malformed {
        /// The request.
        what: String,
        /// What is wrong with it.
        why: String,
    },
    /// The answer is longer than the limit.
    #[error("{what}: the answer exceeds {limit} bytes")]
    TooLong {
        /// The request.
        what: String,
        /// The limit, bytes.
        limit: usize,
    },
    /// The table changed each time it was read.
    #[error("{what}: the table changed during each of {attempts} readings")]
    Changing {
        /// The request.
        what: String,
        /// How often it was read.
        attempts: usize,
    },
    /// No answer came in time.
    #[error("{what}: no answer within {seconds} s")]
    TimedOut {
        /// The request.
        what: String,
        /// The limit, seconds.
        seconds: u64,
    },
}

impl Error {
    /// The error number that the kernel answered.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Kernel { source, .. } => source.raw_os_error(),
            Self::NoFamily { source, .. } => source.errno(),
            _ => None,
        }
    }

    /// Whether the driver or the kernel does not implement the request.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NoFamily { .. }) || self.errno() == Some(nix::errno::Errno::EOPNOTSUPP as i32)
    }

    /// Whether the caller lacks the right to the request.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        [nix::errno::Errno::EPERM, nix::errno::Errno::EACCES].iter().any(|e| self.errno() == Some(*e as i32))
    }

    /// Whether the request names what cannot exist, so that it was not sent.
    #[must_use]
    pub fn is_unusable(&self) -> bool {
        matches!(self, Self::Unusable { .. })
    }

    /// Whether there is no such interface, route or socket.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        [nix::errno::Errno::ENODEV, nix::errno::Errno::ENOENT].iter().any(|e| self.errno() == Some(*e as i32))
    }
}
