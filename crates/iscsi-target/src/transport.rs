//! The socket of a connection: send, receive and wait.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use borrowed::Source;
use iscsi::transmit::Next;
use iscsi::{ReceiveBuffer, TransmitBuffer};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::sendfile::sendfile;
use nix::sys::socket::{MsgFlags, recv, send, sendmsg};
use record::Side;
use socket::options::acknowledge_at_once;
use socket::stamps::Stamps;
use socket::tape::Tape;

use crate::budget::Budget;

/// The outcome of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Bytes were received.
    Bytes,
    /// No bytes are available.
    Nothing,
    /// The peer has closed its side.
    End,
}

/// The outcome of a send of pending bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flushed {
    /// All that the socket takes was sent.
    All,
    /// The turn was over before.
    Cut,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    /// The socket is ready, or the mailbox has mail.
    Ready,
    /// The time limit has passed.
    TimedOut,
}

/// The events that a wait is for. Waits on the socket include room to send while bytes are unsent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Received bytes, room to send, and the mailbox.
    All,
    /// Room to send, and the mailbox.
    Room,
    /// The mailbox only.
    Mailbox,
    /// Room to send only.
    Socket,
    /// Nothing but time.
    Nothing,
}

/// The flag of a send behind which more follows at once: no segment ends where it ends.
fn more(follows: bool) -> MsgFlags {
    MsgFlags::from_bits_retain(if follows { nix::libc::MSG_MORE } else { 0 })
}

/// A socket with its counters.
#[derive(Debug)]
pub(crate) struct Transport {
    pub(crate) socket: Arc<TcpStream>,
    stamps: Option<Stamps>,
    pub(crate) sends: u64,
    pub(crate) receives: u64,
    /// Whether to acknowledge received data at once (TCP_QUICKACK).
    quick_ack: bool,
}

impl Transport {
    pub(crate) fn new(socket: Arc<TcpStream>, quick_ack: bool) -> Self {
        Self { socket, stamps: None, sends: 0, receives: 0, quick_ack }
    }

    /// Enables kernel timestamps, and keeps those of up to `operations` operations.
    pub(crate) fn stamp(&mut self, operations: usize, position: u64) -> io::Result<Tape> {
        self.stamps = Some(Stamps::enable(&self.socket, position)?);
        Ok(Tape::new(Side::Server, operations))
    }

    /// Sends pending bytes until the socket would block, or the turn is over.
    #[inline]
    pub(crate) fn flush(
        &mut self,
        outgoing: &mut TransmitBuffer,
        budget: &mut Budget,
    ) -> io::Result<Flushed> {
        while !outgoing.is_empty() {
            let most = budget.at_once_bytes();
            let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            let taken = if outgoing.has_borrowed() {
                self.send_borrowed(outgoing, flags, most)
            } else {
                let pending = outgoing.pending();
                let now = &pending[..pending.len().min(most)];
                send(self.socket.as_raw_fd(), now, flags | more(now.len() < pending.len()))
            };
            match taken {
                Ok(0) => return Err(io::Error::other("a file was truncated while it was sent")),
                Ok(count) => {
                    self.sends += 1;
                    outgoing.sent(count);
                }
                Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !outgoing.is_empty() {
                budget.look();
                if budget.is_over() {
                    return Ok(Flushed::Cut);
                }
            }
        }
        Ok(Flushed::All)
    }

    /// Sends the next pending bytes when some are borrowed.
    fn send_borrowed(&self, outgoing: &TransmitBuffer, flags: MsgFlags, most: usize) -> Result<usize, Errno> {
        let mut slices = Vec::new();
        match outgoing.next(&mut slices, most) {
            Next::Nothing => Ok(0),
            Next::Bytes { slices, has_more } => {
                sendmsg::<()>(self.socket.as_raw_fd(), slices, &[], flags | more(has_more), None)
            }
            Next::File(borrowed) => {
                let Source::File(file) = &borrowed.source else { return Ok(0) };
                let mut offset = i64::try_from(borrowed.offset).map_err(|_| Errno::EINVAL)?;
                let count = borrowed.length.min(most);
                sendfile(&self.socket, file, Some(&mut offset), count)
            }
        }
    }

    /// Receives available bytes without blocking. `needed` bytes from the first unread one complete the next PDU.
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

    /// Reads the timestamps of sent bytes.
    pub(crate) fn read_stamps(&mut self, tape: Option<&mut Tape>) -> io::Result<()> {
        if let (Some(stamps), Some(tape)) = (&mut self.stamps, tape) {
            stamps.sent(&self.socket, |end, ns| tape.sent(end, ns))?;
        }
        Ok(())
    }

    /// Waits for one of the events, at most `limit`.
    pub(crate) fn wait(
        &self,
        wake: BorrowedFd<'_>,
        what: Wait,
        limit: Duration,
        outgoing: &TransmitBuffer,
    ) -> io::Result<Woken> {
        let mut wanted = if what == Wait::All { PollFlags::POLLIN } else { PollFlags::empty() };
        if !outgoing.is_empty() {
            wanted |= PollFlags::POLLOUT;
        }
        let mut fds = [PollFd::new(wake, PollFlags::POLLIN), PollFd::new(self.socket.as_fd(), wanted)];
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        let watched = match what {
            Wait::All | Wait::Room => &mut fds[..],
            Wait::Mailbox => &mut fds[..1],
            Wait::Socket => &mut fds[1..],
            Wait::Nothing => &mut [],
        };
        match poll(watched, limit) {
            Ok(0) => Ok(Woken::TimedOut),
            Ok(_) | Err(Errno::EINTR) => Ok(Woken::Ready),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use policy::Turn;

    use super::*;

    /// A turn whose time is over sends what is under way, and no further piece: the others of its loop wait.
    #[test]
    fn an_expired_turn_sends_one_piece() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            peer.read_to_end(&mut all).map(|_| all)
        });
        let mut transport = Transport::new(Arc::new(socket), false);
        let (mut outgoing, piece) = (TransmitBuffer::new(), Turn::SHORT.send_bytes);
        let all: Vec<u8> = (0..5 * piece).map(|at| (at / 7) as u8).collect();
        outgoing.extend(&all);
        let turn = Turn { time: Duration::ZERO, ..Turn::SHORT };
        let mut turns = 0;
        while !outgoing.is_empty() {
            let before = outgoing.waiting_bytes();
            let flushed = transport.flush(&mut outgoing, &mut Budget::new(turn)).unwrap();
            let sent = before - outgoing.waiting_bytes();
            assert!(sent <= piece, "{sent} bytes in a turn without time");
            assert_eq!(flushed == Flushed::Cut, !outgoing.is_empty() && sent > 0, "{sent}");
            turns += usize::from(sent > 0);
        }
        assert!(turns >= 5, "{turns}");
        drop(transport);
        assert!(reader.join().unwrap().unwrap() == all);
    }
}
