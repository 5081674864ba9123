//! One connection's socket: bytes in, bytes out, and waiting for either.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use borrowed::Source;
use iscsi::transmit::Next;
use iscsi::{ReceiveBuffer, TransmitBuffer};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{MsgFlags, recv, send, sendmsg};
use record::Side;
use socket::options::acknowledge_at_once;
use socket::stamps::Stamps;
use socket::tape::Tape;

/// What a receive found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes came.
    Bytes,
    /// Nothing is there now.
    Nothing,
    /// The peer has closed its side.
    End,
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The socket, or another thread.
    Ready,
    /// The time.
    TimedOut,
}

/// What a wait is for. Bytes that wait to be sent are always waited for too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Bytes from the peer, room for ours, and the mailbox.
    All,
    /// Room for ours, and the mailbox.
    Room,
    /// The mailbox alone.
    Mailbox,
    /// Room for ours alone.
    Socket,
}

/// A socket with its counters.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) socket: TcpStream,
    stamps: Option<Stamps>,
    pub(crate) sends: u64,
    pub(crate) receives: u64,
    /// Acknowledge what comes at once.
    quick_ack: bool,
}

impl Transport {
    pub(crate) fn new(socket: TcpStream, quick_ack: bool) -> Self {
        Self { socket, stamps: None, sends: 0, receives: 0, quick_ack }
    }

    /// Switches kernel stamps on, and keeps those of up to `operations` operations.
    pub(crate) fn stamp(&mut self, operations: usize, position: u64) -> io::Result<Tape> {
        self.stamps = Some(Stamps::enable(&self.socket, position)?);
        Ok(Tape::new(Side::Server, operations))
    }

    /// Sends what waits, as far as the socket takes it.
    #[inline]
    pub(crate) fn flush(&mut self, outgoing: &mut TransmitBuffer) -> io::Result<()> {
        while !outgoing.is_empty() {
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            let taken = if outgoing.has_borrowed() {
                self.send_borrowed(outgoing, flags)
            } else {
                send(self.socket.as_raw_fd(), outgoing.pending(), flags)
            };
            match taken {
                Ok(0) => return Err(io::Error::other("a file became shorter while it was sent")),
                Ok(count) => {
                    self.sends += 1;
                    outgoing.sent(count);
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Sends what comes next where some of it lies elsewhere.
    fn send_borrowed(&self, outgoing: &TransmitBuffer, flags: MsgFlags) -> Result<usize, Errno> {
        let mut slices = Vec::new();
        match outgoing.next(&mut slices) {
            Next::Nothing => Ok(0),
            Next::Bytes { slices, has_more } => {
                // The header of a piece of a file leaves with it.
                let more = MsgFlags::from_bits_retain(if has_more { nix::libc::MSG_MORE } else { 0 });
                sendmsg::<()>(self.socket.as_raw_fd(), slices, &[], flags | more, None)
            }
            Next::File(borrowed) => {
                let Source::File(file) = &borrowed.source else { return Ok(0) };
                let mut offset = i64::try_from(borrowed.offset).map_err(|_| Errno::EINVAL)?;
                sendfile(&self.socket, file, Some(&mut offset), borrowed.length)
            }
        }
    }

    /// Receives what is there, without waiting. `needed` bytes from the first unread one on make the next
    /// PDU whole.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        needed: usize,
        incoming: &mut ReceiveBuffer,
        mut tape: Option<&mut Tape>,
    ) -> io::Result<Received> {
        let room = incoming.try_room(needed).ok_or(ErrorKind::OutOfMemory)?;
        let (bytes, ns) = if self.stamps.is_some() {
            self.read_stamps(tape.as_deref_mut())?;
            match Stamps::receive(&self.socket, room) {
                Ok(received) => (received.bytes, received.ns),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    return Ok(Received::Nothing);
                }
                Err(e) => return Err(e),
            }
        } else {
            match recv(self.socket.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
                Ok(bytes) => (bytes, None),
                Err(Errno::EAGAIN | Errno::EINTR) => return Ok(Received::Nothing),
                Err(error) => return Err(error.into()),
            }
        };
        if bytes == 0 {
            return Ok(Received::End);
        }
        self.receives += 1;
        incoming.came(bytes);
        if self.quick_ack {
            acknowledge_at_once(&self.socket)?;
        }
        if let (Some(tape), Some(ns)) = (tape, ns) {
            tape.received(incoming.position() + incoming.unread().len() as u64, ns);
        }
        Ok(Received::Bytes)
    }

    /// Reads the stamps of bytes that have left.
    pub(crate) fn read_stamps(&mut self, tape: Option<&mut Tape>) -> io::Result<()> {
        if let (Some(stamps), Some(tape)) = (&mut self.stamps, tape) {
            stamps.sent(&self.socket, |end, ns| tape.sent(end, ns))?;
        }
        Ok(())
    }

    /// Waits until something of what is waited for is there, or the time is up.
    pub(crate) fn wait(
        &self,
        wake: &EventFd,
        what: Wait,
        limit: Duration,
        outgoing: &TransmitBuffer,
    ) -> io::Result<Woken> {
        let mut wanted = if what == Wait::All { PollFlags::POLLIN } else { PollFlags::empty() };
        if !outgoing.is_empty() {
            wanted |= PollFlags::POLLOUT;
        }
        let mut fds =
            [PollFd::new(wake.as_fd(), PollFlags::POLLIN), PollFd::new(self.socket.as_fd(), wanted)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let watched = match what {
            Wait::All | Wait::Room => &mut fds[..],
            Wait::Mailbox => &mut fds[..1],
            Wait::Socket => &mut fds[1..],
        };
        match poll(watched, limit) {
            Ok(0) => Ok(Woken::TimedOut),
            Ok(_) | Err(Errno::EINTR) => Ok(Woken::Ready),
            Err(error) => Err(error.into()),
        }
    }
}
