//! Sending and receiving the PDUs of a session.

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use iscsi::initiator::{Completion, Direction, Event, InitiatorConnection, Request};
use iscsi::{Cut, TransmitBuffer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use record::{OpKind, Writes};
use socket::options::acknowledge_at_once;
use socket::stamps::Stamps;

use super::Session;
use crate::initiator::error::InitiatorError;

/// MSG_MORE (send(2)), which nix does not name.
const MSG_MORE: MsgFlags = MsgFlags::from_bits_retain(0x8000);

/// Unsent bytes above which no more responses are taken, so that R2Ts cannot make the buffer grow without bound.
const UNSENT_BYTES_MAX: usize = 64 << 20;

impl Session {
    /// Returns the length of the first PDU, once it is complete.
    pub(super) fn whole_frame(&self) -> Result<Option<usize>, InitiatorError> {
        match self.framer.next(self.incoming.unread()) {
            Ok(Cut::Frame(frame)) => Ok(Some(frame.total_bytes)),
            Ok(Cut::Needs(_)) => Ok(None),
            Err(source) => Err(self.fault(source)),
        }
    }

    /// Appends a command to the outgoing bytes; returns how many bytes it added.
    ///
    /// # Errors
    /// Returns the number of commands in flight when the command window is closed.
    #[inline]
    pub(crate) fn issue(
        &mut self,
        request: &Request,
        kind: OpKind,
        fill: impl FnMut(u32, &mut [u8]),
    ) -> Result<u32, usize> {
        let before = self.outgoing.position();
        let tag =
            self.connection.issue(request, &mut self.outgoing, fill).ok_or(self.connection.in_flight())?;
        let end = self.outgoing.position();
        if let Some(tape) = &mut self.tape {
            let data_bytes = match request.data {
                Direction::None => 0,
                Direction::In(bytes) | Direction::Out(bytes) => bytes,
            };
            tape.request(tag, kind, data_bytes, (end - before) as u32, end);
        }
        Ok((end - before) as u32)
    }

    /// Takes the next event from received bytes; `None` when no complete PDU is left. `consume` sees the event before its
    /// bytes are released, with the length of its PDU; PDUs that answer it are appended to the outgoing bytes.
    #[inline]
    pub(crate) fn next_event<T>(
        &mut self,
        consume: impl FnOnce(Event<'_>, u32, &mut InitiatorConnection, &mut TransmitBuffer) -> T,
    ) -> Result<Option<T>, InitiatorError> {
        if self.outgoing.pending().len() > UNSENT_BYTES_MAX {
            return Ok(None);
        }
        let frame = match self.framer.next(self.incoming.unread()) {
            Ok(Cut::Frame(frame)) => frame,
            Ok(Cut::Needs(_)) => return Ok(None),
            Err(source) => return Err(self.fault(source)),
        };
        let total = frame.total_bytes;
        let end = self.incoming.position() + total as u64;
        let event = self
            .connection
            .receive(&frame, &mut self.outgoing)
            .map_err(|source| InitiatorError::Fault { address: self.address.clone(), source })?;
        if let (Some(tape), Some(tag)) = (&mut self.tape, ended_tag(&event)) {
            // Only the last Data-In PDU of a command matters: the record needs its end.
            tape.response(tag, total as u32, end);
        }
        let value = consume(event, total as u32, &mut self.connection, &mut self.outgoing);
        self.incoming.take(total);
        Ok(Some(value))
    }

    /// Sends pending bytes until the socket would block.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), InitiatorError> {
        while !self.outgoing.is_empty() {
            let mut flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            let mut pending = self.outgoing.pending();
            if self.writes != Writes::One {
                let part = self.parts.next(pending, self.outgoing.digests());
                pending = &pending[..part.bytes];
                if part.is_header && self.writes == Writes::More {
                    flags |= MSG_MORE;
                }
            }
            match send(self.socket.as_raw_fd(), pending, flags) {
                Ok(count) => {
                    self.outgoing.sent(count);
                    self.parts.sent(count);
                }
                Err(nix::errno::Errno::EAGAIN) => break,
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(self.socket_error("sending", error.into())),
            }
        }
        Ok(())
    }

    /// Waits at most `time` for received bytes, or for room to send pending ones; returns whether bytes were received.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<bool, InitiatorError> {
        if !self.incoming.unread().is_empty() && self.whole_frame()?.is_some() {
            return Ok(false);
        }
        let mut wanted = PollFlags::POLLIN;
        if !self.outgoing.is_empty() {
            wanted |= PollFlags::POLLOUT;
        }
        let mut fds = [PollFd::new(self.socket.as_fd(), wanted)];
        // ppoll(2) rather than poll(2): scheduled operations need microsecond resolution.
        let time = nix::sys::time::TimeSpec::from_duration(time.min(self.patience));
        match nix::poll::ppoll(&mut fds, Some(time), None) {
            Ok(count) => Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(error) => Err(self.socket_error("waiting", error.into())),
        }
    }

    /// Waits until bytes arrive (or, with bytes pending, until the socket takes more), and receives them.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<(), InitiatorError> {
        let needed = match self.framer.next(self.incoming.unread()) {
            Ok(Cut::Needs(needed)) => needed,
            Ok(Cut::Frame(frame)) => frame.total_bytes,
            Err(source) => return Err(self.fault(source)),
        };
        if !self.outgoing.is_empty() || self.stamps.is_some() {
            return self.receive_polled(needed);
        }
        let room = self.incoming.room(needed);
        if room.is_empty() {
            return Ok(());
        }
        if !self.busy_poll.is_zero() {
            let begun = std::time::Instant::now();
            while begun.elapsed() < self.busy_poll {
                match recv(self.socket.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
                    // The receive below reports an end or an error again.
                    Ok(0) | Err(nix::errno::Errno::EINTR) => break,
                    Ok(count) => {
                        self.incoming.came(count);
                        return self.received();
                    }
                    Err(nix::errno::Errno::EAGAIN) => {}
                    Err(_) => break,
                }
            }
        }
        let mut stream = &self.socket;
        match io::Read::read(&mut stream, room) {
            Ok(0) => Err(self.closed()),
            Ok(count) => {
                self.incoming.came(count);
                self.received()
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(self.stalled()),
            Err(error) => Err(self.socket_error("receiving", error)),
        }
    }

    /// Acknowledges received data at once, if configured. Call after each receive.
    #[inline]
    fn received(&self) -> Result<(), InitiatorError> {
        if self.quick_ack {
            acknowledge_at_once(&self.socket)
                .map_err(|error| self.socket_error("setting TCP_QUICKACK", error))?;
        }
        Ok(())
    }

    /// Receives without blocking; between polls sends pending bytes and reads timestamps.
    fn receive_polled(&mut self, needed: usize) -> Result<(), InitiatorError> {
        let mut wanted = PollFlags::POLLIN;
        if !self.outgoing.is_empty() {
            wanted |= PollFlags::POLLOUT;
        }
        if self.outgoing.pending().len() > UNSENT_BYTES_MAX {
            wanted = PollFlags::POLLOUT;
        }
        let patience = PollTimeout::try_from(self.patience).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.socket.as_fd(), wanted)];
        match poll(&mut fds, patience) {
            Ok(0) => return Err(self.stalled()),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(self.socket_error("waiting", error.into())),
        }
        self.read_stamps()?;
        if !wanted.contains(PollFlags::POLLIN) {
            return self.flush();
        }
        let received = match Stamps::receive(&self.socket, self.incoming.room(needed)) {
            Ok(received) if received.bytes == 0 && needed > self.incoming.unread().len() => {
                return Err(self.closed());
            }
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return self.flush();
            }
            Err(error) => return Err(self.socket_error("receiving", error)),
        };
        self.incoming.came(received.bytes);
        self.received()?;
        if let (Some(tape), Some(ns)) = (&mut self.tape, received.ns) {
            tape.received(self.incoming.position() + self.incoming.unread().len() as u64, ns);
        }
        self.flush()
    }

    /// Reads the timestamps of sent bytes.
    pub(super) fn read_stamps(&mut self) -> Result<(), InitiatorError> {
        if let (Some(stamps), Some(tape)) = (&mut self.stamps, &mut self.tape) {
            stamps.sent(&self.socket, |end, ns| tape.sent(end, ns)).map_err(|source| {
                InitiatorError::Socket {
                    address: self.address.clone(),
                    what: "reading kernel timestamps",
                    source,
                }
            })?;
        }
        Ok(())
    }
}

/// Returns the tag of the command that an event ends.
fn ended_tag(event: &Event<'_>) -> Option<u32> {
    let end: Option<&Completion<'_>> = match event {
        Event::Data { end, .. } => end.as_ref(),
        Event::End(end) => Some(end),
        _ => None,
    };
    end.map(|end| end.tag)
}
