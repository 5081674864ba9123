//! How a side's socket is set.

use std::io;
use std::net::TcpStream;

use ring::Writes;
use serde::{Deserialize, Serialize};
use socket::options::TcpOptions;

/// A side of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Side {
    /// Nagle's algorithm on.
    pub nagle: bool,
    /// How its messages leave.
    pub writes: Writes,
    /// SO_SNDBUF, bytes; nothing: the kernel chooses.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF, bytes.
    pub receive_buffer: Option<usize>,
    /// TCP_CONGESTION; nothing: the system's.
    pub congestion: Option<String>,
    /// TCP_QUICKACK again after each receive: acknowledgements are not delayed.
    pub quick_ack: bool,
}

impl Side {
    /// Sets a connected socket so. Buffers should be set before: see [`Side::buffers`].
    pub(crate) fn apply(&self, stream: &TcpStream) -> io::Result<()> {
        TcpOptions { nodelay: !self.nagle, congestion: self.congestion.clone() }.apply(stream)
    }

    /// Sets the buffers of a socket, connected or not.
    pub(crate) fn buffers(&self, socket: &impl std::os::fd::AsFd) -> io::Result<()> {
        if let Some(bytes) = self.send_buffer {
            rustix::net::sockopt::set_socket_send_buffer_size(socket, bytes)?;
        }
        if let Some(bytes) = self.receive_buffer {
            rustix::net::sockopt::set_socket_recv_buffer_size(socket, bytes)?;
        }
        Ok(())
    }

    /// After a receive.
    pub(crate) fn received(&self, stream: &TcpStream) -> io::Result<()> {
        if self.quick_ack {
            rustix::net::sockopt::set_tcp_quickack(stream, true)?;
        }
        Ok(())
    }
}
