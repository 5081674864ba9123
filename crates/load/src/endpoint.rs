//! Socket options of one end of a connection.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use record::Writes;
use serde::{Deserialize, Serialize};
use socket::options::{TcpOptions, acknowledge_at_once};

/// Longest time to connect.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Socket options and write mode of one end of an experiment's connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct EndpointOptions {
    /// Whether Nagle's algorithm is on.
    pub nagle: bool,
    /// An iSCSI target with Nagle's algorithm does not flush when it goes idle.
    pub unflushed: bool,
    /// How messages are written.
    pub writes: Writes,
    /// SO_SNDBUF, bytes; `None` leaves it to the kernel.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF, bytes; `None` leaves it to the kernel.
    pub receive_buffer: Option<usize>,
    /// TCP_CONGESTION; `None` for the system's default.
    pub congestion: Option<String>,
    /// Whether to set TCP_QUICKACK after each receive, so that acknowledgements are not delayed.
    pub quick_ack: bool,
}

impl EndpointOptions {
    /// Returns an end with this write mode and these socket options.
    #[must_use]
    pub fn new(writes: Writes, tcp: TcpOptions) -> Self {
        let TcpOptions { nodelay, congestion, send_buffer, receive_buffer, quick_ack } = tcp;
        Self { nagle: !nodelay, unflushed: false, writes, send_buffer, receive_buffer, congestion, quick_ack }
    }

    /// Returns the socket options.
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

    /// Connects with these options.
    pub(crate) fn connect(&self, to: &SocketAddr) -> io::Result<TcpStream> {
        self.tcp().connect(to, CONNECT_PATIENCE)
    }

    /// Re-applies options that the kernel resets on a receive; call after each.
    pub(crate) fn received(&self, stream: &TcpStream) -> io::Result<()> {
        if self.quick_ack { acknowledge_at_once(stream) } else { Ok(()) }
    }
}
