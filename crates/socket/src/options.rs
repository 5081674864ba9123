//! Socket options by the names that users know.

use std::ffi::OsString;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};

/// Options that a study or a user sets on both ends of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpOptions {
    /// TCP_NODELAY: off means Nagle.
    pub nodelay: bool,
    /// TCP_CONGESTION; nothing keeps the system's default.
    pub congestion: Option<String>,
}

impl TcpOptions {
    /// Applies the options to a connected or listening socket.
    ///
    /// # Errors
    /// When the kernel refuses one, with its name.
    pub fn apply(&self, socket: &impl AsFd) -> io::Result<()> {
        if let Some(algorithm) = &self.congestion {
            setsockopt(socket, sockopt::TcpCongestion, &OsString::from(algorithm)).map_err(|error| {
                io::Error::new(
                    io::Error::from(error).kind(),
                    format!("TCP congestion control '{algorithm}': {error}; see net.ipv4.tcp_available_congestion_control"),
                )
            })?;
        }
        set_nodelay(socket, self.nodelay)
    }
}

/// Switches Nagle's algorithm off (true; this also sends what it held back) or on.
///
/// # Errors
/// When the socket is gone.
pub fn set_nodelay(socket: &impl AsFd, nodelay: bool) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::TcpNoDelay, &nodelay)?)
}

/// Sends what Nagle's algorithm holds back, and leaves it on: setting TCP_NODELAY pushes (tcp(7)).
///
/// # Errors
/// When the socket is gone.
pub fn flush_nagle(socket: &TcpStream) -> io::Result<()> {
    set_nodelay(socket, true)?;
    set_nodelay(socket, false)
}
