//! How a side's socket is set.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use record::Writes;
use serde::{Deserialize, Serialize};
use socket::options::{TcpOptions, acknowledge_at_once};

/// Longest wait for a connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// How one end of an experiment's connections sends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EndpointOptions {
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

impl EndpointOptions {
    /// A side whose messages leave so, over such a socket.
    #[must_use]
    pub fn new(writes: Writes, tcp: TcpOptions) -> Self {
        let TcpOptions { nodelay, congestion, send_buffer, receive_buffer, quick_ack } = tcp;
        Self { nagle: !nodelay, writes, send_buffer, receive_buffer, congestion, quick_ack }
    }

    /// As socket options.
    #[must_use]
    pub fn tcp(&self) -> TcpOptions {
        TcpOptions {
            nodelay: !self.nagle,
            congestion: self.congestion.clone(),
            send_buffer: self.send_buffer,
            receive_buffer: self.receive_buffer,
            quick_ack: self.quick_ack,
        }
    }

    /// A connection set so.
    pub(crate) fn connect(&self, to: &SocketAddr) -> io::Result<TcpStream> {
        self.tcp().connect(to, CONNECT_PATIENCE)
    }

    /// After a receive.
    pub(crate) fn received(&self, stream: &TcpStream) -> io::Result<()> {
        if self.quick_ack { acknowledge_at_once(stream) } else { Ok(()) }
    }
}
