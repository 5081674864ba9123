//! What is spoken on a connection, and how it is followed.

use record::{Side, StallKind};

use crate::follow::{Digests, Flow, Under};
use crate::http::Http;
use crate::in_flight::Pace;
use crate::iscsi::Iscsi;
use crate::observer::{Counted, Observer};
use crate::packet::At;
use crate::plausible;
use crate::turns::Turns;

/// What a connection is expected to speak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// What its first bytes look like.
    #[default]
    Auto,
    /// iSCSI (RFC 7143), with these digests until a login says otherwise.
    Iscsi(Digests),
    /// HTTP/1.1 (RFC 9112).
    Http,
    /// Questions and answers, by change of direction.
    Turns,
}

/// Calls a method of whatever is spoken.
macro_rules! each {
    ($self:expr, $spoken:ident => $call:expr, $undecided:expr) => {
        match $self {
            Spoken::Iscsi($spoken) => $call,
            Spoken::Http($spoken) => $call,
            Spoken::Turns($spoken) => $call,
            Spoken::Undecided { .. } => $undecided,
        }
    };
}

/// The application's side of a connection.
#[derive(Debug)]
enum Spoken {
    /// Nothing that tells has passed; how many segments have.
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
    spoken: Spoken,
}

/// iSCSI's port (RFC 7143 2.1).
pub(crate) const ISCSI_PORT: u16 = 3260;
/// Segments after which a connection without any sign of a protocol is taken for questions and answers.
const UNDECIDED_MAX: u32 = 64;

static NOBODY: std::sync::LazyLock<Pace> = std::sync::LazyLock::new(Pace::default);

impl Application {
    pub(crate) fn new(connection: u32, port: u16, protocol: Protocol, in_the_middle: bool) -> Self {
        let spoken = match protocol {
            Protocol::Auto => Spoken::Undecided { segments: 0, in_the_middle },
            Protocol::Iscsi(digests) => {
                Spoken::Iscsi(Box::new(Iscsi::new(connection, in_the_middle, digests)))
            }
            Protocol::Http => Spoken::Http(Box::new(Http::new(connection, in_the_middle))),
            Protocol::Turns => Spoken::Turns(Box::new(Turns::new(connection))),
        };
        Self { connection, port, responses_from: None, spoken }
    }

    /// What is spoken, for a person.
    pub(crate) fn name(&self) -> &'static str {
        match self.spoken {
            Spoken::Undecided { .. } => "unknown",
            Spoken::Iscsi(_) => "iscsi",
            Spoken::Http(_) => "http",
            Spoken::Turns(_) => "turns",
        }
    }

    /// Sequence number of the first byte of the server's stream.
    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.responses_from = Some(seq);
        each!(&mut self.spoken, s => s.responses_begin_at(seq), ());
    }

    #[inline]
    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        // The common case first.
        if let Spoken::Iscsi(iscsi) = &mut self.spoken {
            iscsi.bytes(side, bytes, at, observer);
            return;
        }
        if let Spoken::Undecided { .. } = self.spoken {
            self.decide(side, bytes);
        }
        match &mut self.spoken {
            Spoken::Iscsi(iscsi) => iscsi.bytes(side, bytes, at, observer),
            Spoken::Http(http) => http.bytes(side, bytes, at, observer),
            Spoken::Turns(turns) => turns.pass(side, bytes.len() as u64, at, observer),
            Spoken::Undecided { .. } => {}
        }
    }

    pub(crate) fn missing(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        match &mut self.spoken {
            Spoken::Iscsi(iscsi) => iscsi.missing(side, count, at, observer),
            Spoken::Http(http) => http.missing(side, count, at, observer),
            Spoken::Turns(turns) => turns.pass(side, count, at, observer),
            Spoken::Undecided { in_the_middle, .. } => *in_the_middle = true,
        }
    }

    /// A side will send no more.
    pub(crate) fn closed(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        if let Spoken::Http(http) = &mut self.spoken {
            http.closed(side, at, observer);
        }
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        each!(&mut self.spoken, s => s.finish(observer), Counted::default())
    }

    /// How far a side is in a message.
    #[inline]
    pub(crate) fn under(&self, side: Side) -> Under {
        each!(&self.spoken, s => s.under(side), Under::Unknown)
    }

    #[inline]
    pub(crate) fn pace(&self) -> &Pace {
        each!(&self.spoken, s => s.pace(), &NOBODY)
    }

    /// Data of `sender` was kept back: the exchanges that suffer are marked.
    pub(crate) fn stalled(&mut self, kind: StallKind, sender: Side) {
        each!(&mut self.spoken, s => s.stalled(kind, sender), ());
    }

    /// Looks at the first bytes of a segment.
    fn decide(&mut self, side: Side, bytes: &[u8]) {
        let Spoken::Undecided { segments, in_the_middle } = &mut self.spoken else { return };
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
