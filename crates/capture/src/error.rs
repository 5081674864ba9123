//! Why a capture could not be made.

use std::io;

use thiserror::Error;

/// A capture that could not start or go on.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The process may not capture.
    #[error(
        "capturing on {interface} needs CAP_NET_RAW: run as root, or setcap cap_net_raw+ep on the program"
    )]
    NotPermitted {
        /// Where.
        interface: String,
    },
    /// No such interface here.
    #[error("there is no interface '{interface}' in this network namespace")]
    NoInterface {
        /// Which.
        interface: String,
    },
    /// Another refusal of the kernel.
    #[error("capturing on {interface}: {what}: {source}")]
    Io {
        /// Where.
        interface: String,
        /// While doing what.
        what: &'static str,
        /// The kernel's reason.
        source: io::Error,
    },
}
