//! Errors of captures.

use std::io;

use thiserror::Error;

/// A capture could not start or continue.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The process may not capture.
    #[error(
        "capturing on {interface} needs CAP_NET_RAW: run as root, or setcap cap_net_raw+ep on the program"
    )]
    NotPermitted {
        /// The interface.
        interface: String,
    },
    /// No such interface here.
    #[error("there is no interface '{interface}' in this network namespace")]
    NoInterface {
        /// The interface.
        interface: String,
    },
    /// A system call failed.
    #[error("capturing on {interface}: {what}: {source}")]
    Io {
        /// The interface.
        interface: String,
        /// The operation.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}
