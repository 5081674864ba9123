//! A netlink socket and one request at a time on it.

use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr};
use nix::poll::{PollFd, PollFlags, PollTimeout};

use crate::error::Error;
use crate::message::{self, Meaning, Refusal};

/// The longest answer that is accepted, bytes: about 200 000 sockets.
pub const LIMIT: usize = 64 << 20;

/// How long an answer may take.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a datagram: the kernel fills at most 32 KiB of a dump at once.
const DATAGRAM: usize = 64 << 10;

/// How often a table is read that changes meanwhile.
const ATTEMPTS: usize = 8;

/// A netlink protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Links, addresses and routes.
    Route,
    /// Sockets of the host.
    SockDiag,
    /// Families with names, such as ethtool's.
    Generic,
}

impl Protocol {
    fn number(self) -> isize {
        match self {
            Self::Route => netlink_sys::protocols::NETLINK_ROUTE,
            Self::SockDiag => netlink_sys::protocols::NETLINK_SOCK_DIAG,
            Self::Generic => netlink_sys::protocols::NETLINK_GENERIC,
        }
    }
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The message's type.
    pub kind: u16,
    /// What follows the header.
    pub payload: Vec<u8>,
}

/// A netlink socket. Requests are sent one at a time; answers to requests that were given up are skipped.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    sequence: u32,
    limit: usize,
    timeout: Duration,
}

/// What ended an answer.
enum Ended {
    Consistent(Vec<Part>),
    Interrupted,
}

impl Connection {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the socket cannot be opened.
    pub fn open(protocol: Protocol) -> Result<Self, Error> {
        let failed = |doing| {
            move |source| Error::Socket { what: format!("opening netlink {protocol:?}"), doing, source }
        };
        let socket = Socket::new(protocol.number()).map_err(failed("creating"))?;
        socket.connect(&SocketAddr::new(0, 0)).map_err(failed("connecting"))?;
        // Both are absent from old kernels, which answer without a text.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self { socket, sequence: 0, limit: LIMIT, timeout: TIMEOUT })
    }

    /// Sets the longest answer that is accepted, bytes, and how long it may take.
    #[must_use]
    pub fn with_limits(mut self, limit: usize, timeout: Duration) -> Self {
        (self.limit, self.timeout) = (limit, timeout);
        self
    }

    /// Sends a request and returns the parts of its answer; none where the kernel only acknowledges it. `what` names the request in
    /// errors: `setting the MTU of eth0`.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn request(&mut self, what: &str, kind: u16, flags: u16, payload: &[u8]) -> Result<Vec<Part>, Error> {
        match self.exchange(what, kind, flags | NLM_F_ACK, payload)? {
            Ended::Consistent(parts) => Ok(parts),
            Ended::Interrupted => Err(Error::Changing { what: what.to_owned(), attempts: 1 }),
        }
    }

    /// Reads a table. One that changes meanwhile is read again.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn dump(&mut self, what: &str, kind: u16, payload: &[u8]) -> Result<Vec<Part>, Error> {
        for _ in 0..ATTEMPTS {
            if let Ended::Consistent(parts) = self.exchange(what, kind, NLM_F_DUMP, payload)? {
                return Ok(parts);
            }
        }
        Err(Error::Changing { what: what.to_owned(), attempts: ATTEMPTS })
    }

    fn exchange(&mut self, what: &str, kind: u16, flags: u16, payload: &[u8]) -> Result<Ended, Error> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = message::request(kind, NLM_F_REQUEST | flags, self.sequence, payload);
        let sent = self.socket.send(&request, 0);
        sent.map_err(|source| Error::Socket { what: what.to_owned(), doing: "sending on", source })?;
        let deadline = Instant::now() + self.timeout;
        let mut answer = Answer { sequence: self.sequence, limit: self.limit, ..Answer::default() };
        let mut datagram = Vec::with_capacity(DATAGRAM);
        loop {
            self.receive(what, deadline, &mut datagram)?;
            if let Some(ended) = answer.take(what, &datagram)? {
                return Ok(ended);
            }
        }
    }

    /// Waits for a datagram of the kernel.
    fn receive(&self, what: &str, deadline: Instant, datagram: &mut Vec<u8>) -> Result<(), Error> {
        let failed = |doing, source| Error::Socket { what: what.to_owned(), doing, source };
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Messages of other senders that keep arriving must not keep the request.
            if left.is_zero() {
                return Err(Error::TimedOut { what: what.to_owned(), seconds: self.timeout.as_secs() });
            }
            let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match nix::poll::poll(&mut polled, wait) {
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => return Err(failed("waiting on", errno.into())),
                Ok(0) => {
                    return Err(Error::TimedOut { what: what.to_owned(), seconds: self.timeout.as_secs() });
                }
                Ok(_) => {}
            }
            datagram.clear();
            let received = self.socket.recv_from(datagram, nix::libc::MSG_TRUNC);
            let (length, sender) = received.map_err(|source| failed("receiving on", source))?;
            if length > datagram.len() {
                return Err(Error::Malformed {
                    what: what.to_owned(),
                    why: format!("a datagram of {length} bytes"),
                });
            }
            // Only the kernel has port 0; any process may send to this socket.
            if sender.port_number() == 0 {
                return Ok(());
            }
        }
    }
}

/// The answer to one request, as it arrives.
#[derive(Default)]
struct Answer {
    sequence: u32,
    limit: usize,
    size: usize,
    is_interrupted: bool,
    parts: Vec<Part>,
}

impl Answer {
    /// Takes the messages of a datagram; what ended the answer, if they did.
    fn take(&mut self, what: &str, datagram: &[u8]) -> Result<Option<Ended>, Error> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let Some((message, next)) = message::split_first(rest) else {
                let why = format!("{} bytes that are no message", rest.len());
                return Err(Error::Malformed { what: what.to_owned(), why });
            };
            rest = next;
            if message.sequence != self.sequence {
                continue;
            }
            self.is_interrupted |= message.is_interrupted();
            match message.meaning() {
                Meaning::Nothing => {}
                Meaning::Part => {
                    self.size += message::HEADER + message.payload.len();
                    if self.size > self.limit {
                        return Err(Error::TooLong { what: what.to_owned(), limit: self.limit });
                    }
                    self.parts.push(Part { kind: message.kind, payload: message.payload.to_vec() });
                }
                Meaning::End(Err(refusal)) => return Err(refused(what, refusal)),
                Meaning::End(Ok(())) if self.is_interrupted => return Ok(Some(Ended::Interrupted)),
                Meaning::End(Ok(())) => return Ok(Some(Ended::Consistent(std::mem::take(&mut self.parts)))),
            }
        }
        Ok(None)
    }
}

fn refused(what: &str, refusal: Refusal) -> Error {
    let source = io::Error::from_raw_os_error(refusal.errno);
    Error::Kernel { what: what.to_owned(), source, said: refusal.said }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(limit: usize) -> Answer {
        Answer { sequence: 5, limit, ..Answer::default() }
    }

    #[test]
    fn messages_of_an_earlier_request_are_skipped() {
        let mut datagram = message::request(16, 2, 4, &[1, 2, 3, 4]);
        datagram.extend(message::request(3, 2, 4, &0u32.to_ne_bytes()));
        datagram.extend(message::request(16, 2, 5, &[9, 9, 9, 9]));
        datagram.extend(message::request(3, 2, 5, &0u32.to_ne_bytes()));
        let Ok(Some(Ended::Consistent(parts))) = answer(1000).take("a test", &datagram) else {
            panic!("the answer did not end");
        };
        assert_eq!(parts, [Part { kind: 16, payload: vec![9; 4] }]);
    }

    #[test]
    fn an_answer_beyond_the_limit_is_an_error() {
        let datagram = message::request(16, 2, 5, &[0; 100]);
        let mut answer = answer(150);
        assert!(matches!(answer.take("a test", &datagram), Ok(None)));
        assert!(matches!(answer.take("a test", &datagram), Err(Error::TooLong { limit: 150, .. })));
    }

    #[test]
    fn a_table_that_changed_while_it_was_read_is_not_consistent() {
        let mut datagram = message::request(16, 2 | 16, 5, &[0; 8]);
        datagram.extend(message::request(3, 2, 5, &0u32.to_ne_bytes()));
        assert!(matches!(answer(1000).take("a test", &datagram), Ok(Some(Ended::Interrupted))));
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error_instead_of_a_wait() {
        assert!(matches!(answer(1000).take("a test", &[1, 2, 3]), Err(Error::Malformed { .. })));
    }

    #[test]
    fn a_silent_kernel_ends_in_a_time_limit() {
        // Nothing was asked.
        let connection = Connection::open(Protocol::Route).unwrap();
        let connection = connection.with_limits(LIMIT, Duration::from_millis(1));
        let mut datagram = Vec::with_capacity(DATAGRAM);
        let outcome = connection.receive("a test", Instant::now(), &mut datagram);
        assert!(matches!(outcome, Err(Error::TimedOut { .. })), "{outcome:?}");
    }

    #[test]
    fn the_kernels_error_names_the_request() {
        let mut connection = Connection::open(Protocol::Route).unwrap();
        // RTM_GETLINK of an index that cannot exist.
        let mut payload = vec![0u8; 16];
        payload[4..8].copy_from_slice(&i32::MAX.to_ne_bytes());
        let error = connection.request("reading a link", 18, 0, &payload).unwrap_err();
        assert!(error.is_missing(), "{error}");
        assert!(error.to_string().starts_with("reading a link: "), "{error}");
    }
}
