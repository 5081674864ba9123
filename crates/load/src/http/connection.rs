//! One connection of the event-driven client: connecting, the TLS handshake, and one request at a time. It decides nothing:
//! the [engine](super::engine) starts requests and processes their outcomes.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use record::Writes;

use super::certificate;
use super::failure::{Failed, HttpFailure};
use super::response::{Malformed, Response, ResponseReader};
use super::tls::Tls;
use super::transport::{Parts, Sent, Transport};
use crate::endpoint::EndpointOptions;

/// Receives in a row on one connection before the others have their turn.
const RECEIVES_MAX: usize = 8;

/// What all connections of a run have in common.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    pub(super) server: SocketAddr,
    pub(super) side: &'a EndpointOptions,
    pub(super) tls: Option<&'a Tls>,
    pub(super) head: &'a [u8],
    pub(super) body: &'a [u8],
    /// Longest time for a response, and to set up a connection.
    pub(super) patience: Duration,
    pub(super) epoll: Epoll,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// No connection; one can be made at once.
    Closed,
    /// No connection until then: the last attempt failed.
    Waiting { until: Instant },
    /// Connecting, since then.
    Connecting { begun: Instant },
    /// In the TLS handshake.
    Handshaking { begun: Instant, connected: Instant },
    /// Ready for a request, or with one in flight.
    Open,
}

/// A request of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    /// When it was due (open loop) or when its first send began; `None` before that.
    pub(super) begun: Option<Instant>,
    /// When its last send began.
    sent_at: Option<Instant>,
    /// Bytes handed to the kernel or to TLS.
    pub(super) position: usize,
    /// Bytes of responses received, interim ones included.
    pub(super) received_bytes: u64,
    /// Number of the request on its connection, from 0.
    pub(super) number: u32,
    is_sent: bool,
    /// Whether it has been sent before, on a connection that was closed.
    pub(super) is_retry: bool,
}

impl Flight {
    pub(super) fn new(due: Option<Instant>) -> Self {
        Self {
            begun: due,
            sent_at: None,
            position: 0,
            received_bytes: 0,
            number: 0,
            is_sent: false,
            is_retry: false,
        }
    }

    /// The same request on another connection.
    pub(super) fn again(self) -> Self {
        Self { is_retry: true, begun: self.begun, ..Self::new(None) }
    }
}

/// The times to set up a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SetUp {
    pub(super) connect: Duration,
    pub(super) handshake: Option<Duration>,
}

/// What events brought.
#[derive(Clone, Copy, Debug)]
pub(super) enum Progress {
    /// Nothing is complete.
    Pending,
    /// The connection is ready for a request.
    Ready(SetUp),
    /// The response and the time at which its last byte was read.
    Response(Response, Instant),
}

#[derive(Debug)]
pub(super) struct Connection {
    /// Distinguishes events of this connection from those of the ones before in its place.
    token: u64,
    transport: Option<Transport>,
    interest: EpollFlags,
    pub(super) phase: Phase,
    /// Its local TCP port, and the requests that were sent on it.
    pub(super) port: u16,
    requests: u32,
    reader: ResponseReader,
    pub(super) flight: Option<Flight>,
    /// Whether a response has been received on this connection.
    pub(super) is_proven: bool,
    /// Requests that have ended in the current stage.
    pub(super) attempts: u32,
    pub(super) has_failed: bool,
    /// Whether it has done what the stage demands.
    pub(super) is_counted: bool,
    pub(super) backoff: Duration,
}

impl Connection {
    pub(super) fn new(index: usize, is_bodyless: bool) -> Self {
        Self {
            token: index as u64,
            transport: None,
            interest: EpollFlags::empty(),
            phase: Phase::Closed,
            port: 0,
            requests: 0,
            reader: ResponseReader::new(is_bodyless),
            flight: None,
            is_proven: false,
            attempts: 0,
            has_failed: false,
            is_counted: false,
            backoff: Duration::ZERO,
        }
    }

    /// Returns the index of the connection of an event.
    pub(super) fn index(token: u64) -> usize {
        (token & u64::from(u32::MAX)) as usize
    }

    /// Whether an event is of this connection.
    pub(super) fn is_mine(&self, token: u64) -> bool {
        self.token == token && self.transport.is_some()
    }

    /// Closes the connection, if there is one.
    pub(super) fn close(&mut self) {
        self.transport = None;
        self.reader.reset();
        self.is_proven = false;
        self.phase = Phase::Closed;
    }

    /// Returns when the current phase has taken too long, or the wait is over.
    pub(super) fn deadline(&self, patience: Duration) -> Option<Instant> {
        match self.phase {
            Phase::Closed => None,
            Phase::Waiting { until } => Some(until),
            Phase::Connecting { begun } | Phase::Handshaking { begun, .. } => Some(begun + patience),
            Phase::Open => Some(self.flight?.sent_at? + patience),
        }
    }

    /// Begins to connect.
    pub(super) fn connect(&mut self, shared: &Shared<'_>) -> Result<(), Failed> {
        let failed = |error: io::Error| cannot_connect(shared, &error);
        self.close();
        let begun = Instant::now();
        let transport = Transport::begin(&shared.server, shared.side, shared.tls).map_err(failed)?;
        self.token = self.token.wrapping_add(1 << 32);
        self.interest = EpollFlags::EPOLLOUT;
        shared
            .epoll
            .add(&transport, EpollEvent::new(self.interest, self.token))
            .map_err(|error| failed(error.into()))?;
        self.transport = Some(transport);
        self.phase = Phase::Connecting { begun };
        Ok(())
    }

    /// Begins to send the request in flight. An error of the socket shows when the response is received.
    #[inline]
    pub(super) fn send(&mut self, shared: &Shared<'_>) {
        let (Some(transport), Some(flight)) = (&mut self.transport, &mut self.flight) else { return };
        if flight.sent_at.is_none() {
            let now = Instant::now();
            flight.sent_at = Some(now);
            flight.number = self.requests;
            self.requests = self.requests.wrapping_add(1);
            flight.begun.get_or_insert(now);
        }
        let writes: Writes = shared.side.writes;
        let parts = Parts { head: shared.head, body: shared.body, writes };
        let outcome = transport.send(&parts, &mut flight.position);
        // After an error the response may still be readable, such as one that refuses a large body.
        flight.is_sent = !matches!(outcome, Ok(Sent::Part));
        let wanted =
            if flight.is_sent { EpollFlags::EPOLLIN } else { EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT };
        self.want(shared, wanted);
    }

    /// Continues with what the events allow.
    pub(super) fn progress(
        &mut self,
        shared: &Shared<'_>,
        events: EpollFlags,
        buffer: &mut [u8],
    ) -> Result<Progress, Failed> {
        match self.phase {
            Phase::Closed | Phase::Waiting { .. } => Ok(Progress::Pending),
            Phase::Connecting { begun } => {
                let outcome = self.transport.as_ref().map_or(Ok(()), Transport::outcome);
                outcome.map_err(|error| cannot_connect(shared, &error))?;
                let connected = Instant::now();
                if shared.tls.is_some() {
                    self.phase = Phase::Handshaking { begun, connected };
                    return self.handshake(shared, begun, connected);
                }
                Ok(self.ready(shared, SetUp { connect: connected - begun, handshake: None }))
            }
            Phase::Handshaking { begun, connected } => self.handshake(shared, begun, connected),
            Phase::Open => {
                if events.contains(EpollFlags::EPOLLOUT) && self.flight.is_some_and(|flight| !flight.is_sent)
                {
                    self.send(shared);
                }
                if events.intersects(!EpollFlags::EPOLLOUT) {
                    self.receive(shared, buffer)
                } else {
                    Ok(Progress::Pending)
                }
            }
        }
    }

    fn handshake(
        &mut self,
        shared: &Shared<'_>,
        begun: Instant,
        connected: Instant,
    ) -> Result<Progress, Failed> {
        let Some(transport) = &mut self.transport else { return Ok(Progress::Pending) };
        let is_complete =
            transport.handshake().map_err(|error| Failed::new(HttpFailure::Handshake, explain(&error)))?;
        if is_complete {
            let handshake = Some(connected.elapsed());
            return Ok(self.ready(shared, SetUp { connect: connected - begun, handshake }));
        }
        let writes = if transport.wants_write() { EpollFlags::EPOLLOUT } else { EpollFlags::empty() };
        self.want(shared, EpollFlags::EPOLLIN | writes);
        Ok(Progress::Pending)
    }

    fn ready(&mut self, shared: &Shared<'_>, set_up: SetUp) -> Progress {
        self.phase = Phase::Open;
        self.requests = 0;
        let local = self.transport.as_ref().and_then(|transport| transport.stream().local_addr().ok());
        self.port = local.map_or(0, |address| address.port());
        self.want(shared, EpollFlags::EPOLLIN);
        Progress::Ready(set_up)
    }

    /// Receives the response, or notices that the server has closed an idle connection.
    fn receive(&mut self, shared: &Shared<'_>, buffer: &mut [u8]) -> Result<Progress, Failed> {
        for _ in 0..RECEIVES_MAX {
            let Some(transport) = &mut self.transport else { break };
            let outcome = transport.receive(buffer);
            if self.flight.is_none() {
                // Between requests, a server can only close the connection; what it may say before that answers none.
                if !matches!(&outcome, Err(error) if is_temporary(error)) {
                    self.close();
                }
                break;
            }
            match outcome {
                Ok(0) => return self.ended(shared),
                Ok(count) => {
                    // Not setting the option again changes the experiment, not the response.
                    let _ = shared.side.received(transport.stream());
                    if let Some(flight) = &mut self.flight {
                        flight.received_bytes += count as u64;
                    }
                    let fed = self.reader.feed(&buffer[..count]).map_err(malformed)?;
                    if let Some(response) = fed.response {
                        return self.answered(shared, response, count - fed.used);
                    }
                    if count < buffer.len() {
                        break;
                    }
                }
                Err(error) if is_temporary(&error) => break,
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(Progress::Pending)
    }

    /// Ends the request with a response that `excess` bytes follow.
    #[inline]
    fn answered(
        &mut self,
        shared: &Shared<'_>,
        response: Response,
        excess: usize,
    ) -> Result<Progress, Failed> {
        let now = Instant::now();
        if excess > 0 {
            return Err(malformed(Malformed::Excess));
        }
        self.is_proven = true;
        // The server may answer before it has received the request; its rest must not begin the next one.
        let bytes = shared.head.len() + shared.body.len();
        let is_whole = self.flight.is_some_and(|flight| flight.is_sent && flight.position == bytes);
        if !(is_whole && response.is_reusable) {
            self.close();
        }
        Ok(Progress::Response(response, now))
    }

    /// Processes the end of the connection.
    fn ended(&mut self, shared: &Shared<'_>) -> Result<Progress, Failed> {
        if !self.reader.has_begun() {
            return Err(Failed::plain(HttpFailure::ClosedBefore));
        }
        let response = self.reader.close().ok_or_else(|| Failed::plain(HttpFailure::ClosedWithin))?;
        self.answered(shared, response, 0)
    }

    fn lost(&self, error: &io::Error) -> Failed {
        match (error.kind(), self.reader.has_begun()) {
            (io::ErrorKind::InvalidData, _) => Failed::new(HttpFailure::Malformed, explain(error)),
            (_, true) => Failed::new(HttpFailure::ClosedWithin, error),
            (io::ErrorKind::UnexpectedEof, false) => Failed::plain(HttpFailure::ClosedBefore),
            (_, false) => Failed::new(HttpFailure::Reset, error),
        }
    }

    fn want(&mut self, shared: &Shared<'_>, interest: EpollFlags) {
        let Some(transport) = &self.transport else { return };
        if interest != self.interest {
            self.interest = interest;
            // It fails only for descriptors that are not registered.
            let _ = shared.epoll.modify(transport, &mut EpollEvent::new(interest, self.token));
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn malformed(reason: Malformed) -> Failed {
    Failed::new(HttpFailure::Malformed, reason)
}

fn cannot_connect(shared: &Shared<'_>, error: &io::Error) -> Failed {
    Failed::new(HttpFailure::CannotConnect, format_args!("{}: {error}", shared.server))
}

/// Describes an error of TLS, and what to do about it.
fn explain(error: &io::Error) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(rustls::Error::InvalidCertificate(reason)) => certificate::explain(reason),
        Some(rustls::Error::InvalidMessage(_)) => format!("{error}; does the server use TLS on this port?"),
        _ => error.to_string(),
    }
}
