//! Socket options, by their names for users.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, setsockopt, socket, sockopt,
};
use serde::{Deserialize, Serialize};

/// Options that a study or a user sets on both ends of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpOptions {
    /// TCP_NODELAY; off enables Nagle's algorithm.
    pub nodelay: bool,
    /// TCP_CONGESTION; `None` keeps the system's default.
    pub congestion: Option<String>,
    /// SO_SNDBUF, bytes; `None`: the kernel chooses and adapts it.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF, bytes.
    pub receive_buffer: Option<usize>,
    /// TCP_QUICKACK again after each receive ([`acknowledge_at_once`]): acknowledgements are not delayed.
    pub quick_ack: bool,
}

impl TcpOptions {
    /// Applies the options to a socket, preferably before it connects or listens, because the handshake fixes the window scale.
    /// An accepted socket inherits the options of its listener.
    ///
    /// # Errors
    /// When the kernel rejects an option, with its name.
    pub fn apply(&self, socket: &impl AsFd) -> io::Result<()> {
        if let Some(algorithm) = &self.congestion {
            setsockopt(socket, sockopt::TcpCongestion, &OsString::from(algorithm)).map_err(|error| {
                io::Error::new(
                    io::Error::from(error).kind(),
                    format!("TCP congestion control '{algorithm}': {error}; see net.ipv4.tcp_available_congestion_control"),
                )
            })?;
        }
        if let Some(bytes) = self.send_buffer {
            setsockopt(socket, sockopt::SndBuf, &bytes)?;
        }
        if let Some(bytes) = self.receive_buffer {
            setsockopt(socket, sockopt::RcvBuf, &bytes)?;
        }
        set_nodelay(socket, self.nodelay)
    }

    /// Connects a socket with the options set before its first segment.
    ///
    /// # Errors
    /// When an option is rejected, or the peer does not respond in time.
    pub fn connect(&self, to: &SocketAddr, patience: Duration) -> io::Result<TcpStream> {
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let stream = TcpStream::from(socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?);
        self.apply(&stream)?;
        // connect(2) waits for the send timeout (socket(7), SO_SNDTIMEO), and then returns EINPROGRESS.
        stream.set_write_timeout(Some(patience))?;
        match connect(stream.as_raw_fd(), &SockaddrStorage::from(*to)) {
            Ok(()) => {}
            Err(Errno::EINPROGRESS) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
            // A signal: the connection is still in progress (connect(2)).
            Err(Errno::EINTR) => wait_until_connected(&stream, patience)?,
            Err(error) => return Err(error.into()),
        }
        stream.set_write_timeout(None)?;
        Ok(stream)
    }

    /// Begins to connect a socket that does not block, with the options set before its first segment. It becomes writable
    /// when the outcome is known, which [`TcpStream::take_error`] returns.
    ///
    /// # Errors
    /// When an option is rejected, or connecting fails at once.
    pub fn begin_connect(&self, to: &SocketAddr) -> io::Result<TcpStream> {
        let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let stream = TcpStream::from(socket(family, SockType::Stream, flags, None)?);
        self.apply(&stream)?;
        match connect(stream.as_raw_fd(), &SockaddrStorage::from(*to)) {
            Ok(()) | Err(Errno::EINPROGRESS | Errno::EINTR) => Ok(stream),
            Err(error) => Err(error.into()),
        }
    }

    /// Call after a receive: acknowledges at once, if the option is set.
    ///
    /// # Errors
    /// When the socket fails.
    #[inline]
    pub fn received(&self, socket: &impl AsFd) -> io::Result<()> {
        if self.quick_ack { acknowledge_at_once(socket) } else { Ok(()) }
    }
}

/// Waits for a connection in progress.
fn wait_until_connected(stream: &TcpStream, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        let left =
            PollTimeout::try_from(patience.saturating_sub(begun.elapsed())).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)];
        match poll(&mut fds, left) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")),
            Ok(_) => return stream.take_error()?.map_or(Ok(()), Err),
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends a pending acknowledgement, and disables delayed ones until the kernel leaves this mode (tcp(7), TCP_QUICKACK).
///
/// # Errors
/// When the socket fails.
pub fn acknowledge_at_once(socket: &impl AsFd) -> io::Result<()> {
    // nix lacks this option.
    Ok(rustix::net::sockopt::set_tcp_quickack(socket, true)?)
}

/// Disables Nagle's algorithm (true; this also sends data that it held back) or enables it.
///
/// # Errors
/// When the socket fails.
pub fn set_nodelay(socket: &impl AsFd, nodelay: bool) -> io::Result<()> {
    Ok(setsockopt(socket, sockopt::TcpNoDelay, &nodelay)?)
}

/// Sends data that Nagle's algorithm holds back, and leaves the algorithm enabled: setting TCP_NODELAY flushes (tcp(7)).
///
/// # Errors
/// When the socket fails.
pub fn flush_nagle(socket: &TcpStream) -> io::Result<()> {
    set_nodelay(socket, true)?;
    set_nodelay(socket, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::socket::getsockopt;

    #[test]
    fn connections_inherit_the_options_of_their_listener() {
        let of = |bytes| TcpOptions {
            send_buffer: Some(bytes),
            receive_buffer: Some(2 * bytes),
            ..TcpOptions::default()
        };
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        of(20_000).apply(&listener).unwrap();
        let to = listener.local_addr().unwrap();
        let client = of(40_000).connect(&to, Duration::from_secs(5)).unwrap();
        let (server, _) = listener.accept().unwrap();
        // The kernel doubles buffer sizes for its own overhead (socket(7)).
        for (socket, bytes) in [(&client, 80_000), (&server, 40_000)] {
            assert_eq!(getsockopt(socket, sockopt::SndBuf), Ok(bytes));
            assert_eq!(getsockopt(socket, sockopt::RcvBuf), Ok(2 * bytes));
        }
        assert!(!client.nodelay().unwrap());
        drop((client, server, listener));
        let refused = TcpOptions::default().connect(&to, Duration::from_secs(5));
        assert_eq!(refused.map(drop).map_err(|error| error.kind()), Err(io::ErrorKind::ConnectionRefused));
    }
}
