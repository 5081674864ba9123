//! A connection that does not block, with or without TLS, and the sending of requests over it.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, sendmsg};
use record::Writes;
use rustls::ClientConnection;

use super::tls::Tls;
use crate::endpoint::EndpointOptions;
use crate::writes::MSG_MORE;

/// A connection to the server.
#[derive(Debug)]
pub(super) struct Transport {
    stream: TcpStream,
    session: Option<Box<ClientConnection>>,
}

/// Whether a request has been handed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// All of it.
    Whole,
    /// The socket buffer is full.
    Part,
}

/// The parts of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) head: &'a [u8],
    pub(super) body: &'a [u8],
    pub(super) writes: Writes,
}

impl Transport {
    /// Begins to connect. The socket is writable when the outcome is known ([`Self::outcome`]).
    pub(super) fn begin(to: &SocketAddr, side: &EndpointOptions, tls: Option<&Tls>) -> io::Result<Self> {
        let stream = side.tcp().begin_connect(to)?;
        let session = tls.map(|tls| tls.connection().map(Box::new)).transpose()?;
        Ok(Self { stream, session })
    }

    /// Returns the outcome of connecting.
    pub(super) fn outcome(&self) -> io::Result<()> {
        self.stream.take_error()?.map_or(Ok(()), Err)
    }

    pub(super) fn is_tls(&self) -> bool {
        self.session.is_some()
    }

    pub(super) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Continues the TLS handshake; returns whether it is complete.
    pub(super) fn handshake(&mut self) -> io::Result<bool> {
        let Some(session) = &mut self.session else { return Ok(true) };
        while session.is_handshaking() {
            if session.wants_write() {
                match session.write_tls(&mut self.stream) {
                    Ok(_) => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return Err(error),
                }
            }
            match session.read_tls(&mut self.stream) {
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the server closed the connection",
                    ));
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if let Err(error) = session.process_new_packets() {
                // The alert states the reason to the server; it is sent as far as it can be.
                let _ = session.write_tls(&mut self.stream);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
        self.flush()?;
        Ok(true)
    }

    /// Whether the handshake waits for room in the socket buffer.
    pub(super) fn wants_write(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.wants_write())
    }

    /// Receives; `WouldBlock` when nothing is there. After TLS has filled `bytes`, more may be buffered, which the kernel
    /// does not report: call until fewer bytes are returned.
    pub(super) fn receive(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return self.stream.read(bytes) };
        match session.reader().read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
        session.read_tls(&mut self.stream)?;
        session.process_new_packets().map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        // A part that was decrypted before an error of the socket is returned first.
        let outcome = session.reader().read(bytes);
        self.flush()?;
        outcome
    }

    /// Sends what TLS has encrypted.
    fn flush(&mut self) -> io::Result<Sent> {
        let Some(session) = &mut self.session else { return Ok(Sent::Whole) };
        while session.wants_write() {
            match session.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Part),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Sent::Whole)
    }

    /// Sends a request from `position` on, and advances it.
    #[inline]
    pub(super) fn send(&mut self, parts: &Parts<'_>, position: &mut usize) -> io::Result<Sent> {
        if self.is_tls() { self.send_encrypted(parts, position) } else { self.send_plain(parts, position) }
    }

    fn send_encrypted(&mut self, parts: &Parts<'_>, position: &mut usize) -> io::Result<Sent> {
        loop {
            // TLS has a bounded buffer: it takes only a part of a large body.
            if self.flush()? == Sent::Part {
                return Ok(Sent::Part);
            }
            if *position == parts.head.len() + parts.body.len() {
                return Ok(Sent::Whole);
            }
            let Some(session) = &mut self.session else { return Ok(Sent::Part) };
            let head = parts.head.get(*position..).unwrap_or_default();
            let body = &parts.body[position.saturating_sub(parts.head.len())..];
            *position += session.writer().write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?;
        }
    }

    fn send_plain(&mut self, parts: &Parts<'_>, position: &mut usize) -> io::Result<Sent> {
        let Parts { head, body, writes } = *parts;
        let (whole, is_split) = (head.len() + body.len(), writes != Writes::One && !body.is_empty());
        let is_corked = is_split && matches!(writes, Writes::Cork | Writes::CorkUnfinished);
        if is_corked && *position == 0 {
            rustix::net::sockopt::set_tcp_cork(&self.stream, true)?;
        }
        while *position < whole {
            let is_head = *position < head.len();
            let rest_of_head = head.get(*position..).unwrap_or_default();
            let rest_of_body = &body[position.saturating_sub(head.len())..];
            let follows = match writes {
                Writes::More => is_head,
                Writes::MoreUnfinished => true,
                _ => false,
            };
            let flags = if is_split && follows { MSG_MORE } else { 0 };
            let vectors = [IoSlice::new(rest_of_head), IoSlice::new(rest_of_body)];
            let vectors = match (is_split, is_head) {
                (true, true) => &vectors[..1],
                (_, false) => &vectors[1..],
                (false, true) if body.is_empty() => &vectors[..1],
                (false, true) => &vectors[..],
            };
            match self.send_once(vectors, flags) {
                Ok(count) => *position += count,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(Sent::Part),
                Err(error) => return Err(error.into()),
            }
        }
        if is_corked && writes == Writes::Cork {
            rustix::net::sockopt::set_tcp_cork(&self.stream, false)?;
        }
        Ok(Sent::Whole)
    }

    fn send_once(&self, vectors: &[IoSlice<'_>], flags: i32) -> nix::Result<usize> {
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::from_bits_retain(flags);
        if let [one] = vectors {
            return nix::sys::socket::send(self.stream.as_raw_fd(), one, flags);
        }
        sendmsg::<SockaddrStorage>(self.stream.as_raw_fd(), vectors, &[], flags, None)
    }
}

impl AsFd for Transport {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
