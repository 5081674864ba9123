//! The application protocol of a connection, and its follower.

use record::{Side, Stall};

use crate::follow::{Digests, Flow, MessageState};
use crate::http::Http;
use crate::in_flight::Pace;
use crate::iscsi::Iscsi;
use crate::observer::{Counted, Observer};
use crate::packet::At;
use crate::plausible;
use crate::turns::Turns;

/// The expected protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Detected from the first bytes.
    #[default]
    Auto,
    /// iSCSI (RFC 7143), with these digests until a login negotiates others.
    Iscsi(Digests),
    /// HTTP/1.1 (RFC 9112).
    Http,
    /// Requests and responses, by change of direction.
    Turns,
}

/// Calls a method of the connection's protocol.
macro_rules! each {
    ($self:expr, $protocol:ident => $call:expr, $undecided:expr) => {
        match $self {
            ProtocolState::Iscsi($protocol) => $call,
            ProtocolState::Http($protocol) => $call,
            ProtocolState::Turns($protocol) => $call,
            ProtocolState::Undecided { .. } => $undecided,
        }
    };
}

/// The application's side of a connection.
#[derive(Debug)]
enum ProtocolState {
    /// Not yet detected; the number of segments so far.
    Undecided {
        segments: u32,
        in_the_middle: bool,
    },
    Iscsi(Box<Iscsi>),
    Http(Box<Http>),
    Turns(Box<Turns>),
}

/// See [`Protocol`].
#[derive(Debug)]
pub(crate) struct Application {
    connection: u32,
    /// The server's port: 3260 is iSCSI's.
    port: u16,
    responses_from: Option<u32>,
    protocol: ProtocolState,
}

/// iSCSI's port (RFC 7143 2.1).
pub(crate) const ISCSI_PORT: u16 = 3260;
/// Segments after which a connection of unknown protocol is followed as requests and responses.
const UNDECIDED_MAX: u32 = 64;

static NOBODY: std::sync::LazyLock<Pace> = std::sync::LazyLock::new(Pace::default);

impl Application {
    pub(crate) fn new(connection: u32, port: u16, protocol: Protocol, in_the_middle: bool) -> Self {
        let protocol = match protocol {
            Protocol::Auto => ProtocolState::Undecided { segments: 0, in_the_middle },
            Protocol::Iscsi(digests) => {
                ProtocolState::Iscsi(Box::new(Iscsi::new(connection, in_the_middle, digests)))
            }
            Protocol::Http => ProtocolState::Http(Box::new(Http::new(connection, in_the_middle))),
            Protocol::Turns => ProtocolState::Turns(Box::new(Turns::new(connection))),
        };
        Self { connection, port, responses_from: None, protocol }
    }

    /// The protocol's name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match self.protocol {
            ProtocolState::Undecided { .. } => "unknown",
            ProtocolState::Iscsi(_) => "iscsi",
            ProtocolState::Http(_) => "http",
            ProtocolState::Turns(_) => "turns",
        }
    }

    /// Sequence number of the first byte of the server's stream.
    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.responses_from = Some(seq);
        each!(&mut self.protocol, s => s.responses_begin_at(seq), ());
    }

    #[inline]
    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        // The common case first.
        if let ProtocolState::Iscsi(iscsi) = &mut self.protocol {
            iscsi.bytes(side, bytes, at, observer);
            return;
        }
        if let ProtocolState::Undecided { .. } = self.protocol {
            self.decide(side, bytes);
        }
        match &mut self.protocol {
            ProtocolState::Iscsi(iscsi) => iscsi.bytes(side, bytes, at, observer),
            ProtocolState::Http(http) => http.bytes(side, bytes, at, observer),
            ProtocolState::Turns(turns) => turns.pass(side, bytes.len() as u64, at, observer),
            ProtocolState::Undecided { .. } => {}
        }
    }

    pub(crate) fn missing(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        match &mut self.protocol {
            ProtocolState::Iscsi(iscsi) => iscsi.missing(side, count, at, observer),
            ProtocolState::Http(http) => http.missing(side, count, at, observer),
            ProtocolState::Turns(turns) => turns.pass(side, count, at, observer),
            ProtocolState::Undecided { in_the_middle, .. } => *in_the_middle = true,
        }
    }

    /// A side has closed its stream.
    pub(crate) fn closed(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        if let ProtocolState::Http(http) = &mut self.protocol {
            http.closed(side, at, observer);
        }
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        each!(&mut self.protocol, s => s.finish(observer), Counted::default())
    }

    /// The state of a side's current message.
    #[inline]
    pub(crate) fn message_state(&self, side: Side) -> MessageState {
        each!(&self.protocol, s => s.message_state(side), MessageState::Unknown)
    }

    #[inline]
    pub(crate) fn pace(&self) -> &Pace {
        each!(&self.protocol, s => s.pace(), &NOBODY)
    }

    /// Adds a stall to the exchanges that it delayed.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        each!(&mut self.protocol, s => {
            s.stalled(stall);
            s.pace_mut().released(stall);
        }, ());
    }

    /// Detects the protocol from the first bytes of a segment.
    fn decide(&mut self, side: Side, bytes: &[u8]) {
        let ProtocolState::Undecided { segments, in_the_middle } = &mut self.protocol else { return };
        *segments += 1;
        let (in_the_middle, connection) = (*in_the_middle || *segments > 1, self.connection);
        let flow = if side == Side::Client { Flow::Requests } else { Flow::Responses };
        let protocol = if Http::is_spoken(side, bytes) {
            Protocol::Http
        } else if self.port == ISCSI_PORT || plausible::holds_a_header(flow, bytes) {
            Protocol::Iscsi(Digests::default())
        } else if !in_the_middle || *segments >= UNDECIDED_MAX {
            Protocol::Turns
        } else {
            return;
        };
        let mut decided = Self::new(connection, self.port, protocol, in_the_middle);
        if let Some(seq) = self.responses_from {
            decided.responses_begin_at(seq);
        }
        *self = decided;
    }
}
