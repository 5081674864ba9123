//! The application of a connection with TLS: when it becomes one, and what is in its records, which is an application without TLS.

use record::{Key, Side};

use super::{Application, Choice, EXAMINED_TURNS, Protocol, ProtocolState};
use crate::decode::{Agreed, Frames, protocol_named};
use crate::http::Http;
use crate::in_flight::Pace;
use crate::observer::Observer;
use crate::packet::At;
use crate::tls::Tls;
use crate::tls::keys::Keys;
use crate::trial::Finding;
use crate::turns::Turns;

impl Application {
    /// What is known of its encryption.
    pub(crate) fn tls(&self) -> Option<record::Tls> {
        match &self.protocol {
            ProtocolState::Tls(tls) => Some(tls.facts()),
            _ if self.is_sealed => Some(record::Tls::default()),
            _ => None,
        }
    }

    /// The next bytes of the side have this sequence number, in a record that begins at another one: what is decrypted is shorter than what
    /// was sent.
    pub(crate) fn position(&mut self, side: Side, seq: u32, record: u32) {
        match &mut self.protocol {
            ProtocolState::Http(http) if side == Side::Server => http.record_begins_at(record),
            ProtocolState::Decoded(frames) => frames.record_begins_at(side, record),
            _ => {}
        }
        match (side, &mut self.protocol) {
            (Side::Server, _) => self.responses_begin_at(seq),
            (Side::Client, ProtocolState::Turns(turns)) => turns.requests_begin_at(seq),
            (Side::Client, ProtocolState::Http(http)) => http.requests_begin_at(seq),
            (Side::Client, ProtocolState::Decoded(frames)) => frames.requests_begin_at(seq),
            (Side::Client, _) => {}
        }
    }

    /// Something of the server has passed that is of no message, between these sequence numbers.
    pub(crate) fn passed_behind(&mut self, from: u32, to: u32) {
        match &mut self.protocol {
            ProtocolState::Http(http) => http.passed_behind(from, to),
            ProtocolState::Decoded(frames) => frames.passed_behind(from, to),
            _ => {}
        }
    }

    /// A record begins with these bytes, which come in pieces.
    pub(crate) fn front(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        if self.choice == Choice::Detected {
            self.decide(side, bytes, at, observer);
            self.follow_front(side, bytes, at, observer);
        }
        match &mut self.protocol {
            ProtocolState::Http(http) => http.front(side, bytes),
            ProtocolState::Decoded(frames) => frames.front(side, bytes),
            _ => {}
        }
    }

    /// An unknown number of bytes of the side is missing.
    pub(crate) fn lose(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        match &mut self.protocol {
            ProtocolState::Http(http) => http.lose(side, at, observer),
            ProtocolState::Decoded(frames) => frames.lose(side),
            _ => {}
        }
    }

    /// Processes bytes of turns that are not seen.
    pub(crate) fn pass(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        self.has_data = true;
        if let ProtocolState::Turns(turns) = &mut self.protocol {
            turns.in_records();
            turns.packet(side, self.packets[side as usize]);
            turns.pass_unread(side, count, at, observer);
        }
    }

    /// What is in the records of TLS begins: a protocol that was agreed on by name, or that agreed on TLS itself.
    pub(crate) fn speak(&mut self, alpn: Option<&str>, agreed: Option<Agreed>) {
        if self.choice == Choice::Given && agreed.is_none() {
            return;
        }
        let (connection, shown) = (self.connection, self.shown);
        let http2 = if alpn == Some("h2") { protocol_named("http2") } else { None };
        self.change(|now| match now {
            ProtocolState::Undecided { pace, in_the_middle } => match (agreed, http2, alpn) {
                (Some(agreed), ..) => {
                    ProtocolState::Decoded(Box::new(Frames::agreed(connection, agreed, *pace)))
                }
                (None, Some(entry), _) => ProtocolState::Decoded(Box::new(Frames::new(
                    connection,
                    entry,
                    shown,
                    *pace,
                    in_the_middle,
                ))),
                (None, None, Some("http/1.1")) => {
                    let mut http = Http::new(connection, in_the_middle).showing(shown);
                    *http.pace_mut() = *pace;
                    ProtocolState::Http(Box::new(http))
                }
                _ => ProtocolState::Undecided { in_the_middle, pace },
            },
            other => other,
        });
        if let Some(seq) = self.responses_from {
            self.responses_begin_at(seq);
        }
    }

    /// Follows turns of this key from here on.
    pub(crate) fn become_turns(
        &mut self,
        key: Key,
        is_pipelined: bool,
        at: At,
        observer: &mut impl Observer,
    ) {
        let connection = self.connection;
        self.choice = Choice::Given;
        self.leave_http(at, observer);
        self.leave_decoded(observer);
        self.end_trial(Finding::Turns, observer);
        self.earlier.mistaken = 0;
        self.change(|now| match now {
            ProtocolState::Undecided { pace, .. } => {
                ProtocolState::Turns(Box::new(Turns::after(connection, *pace)))
            }
            other => other,
        });
        if let ProtocolState::Turns(turns) = &mut self.protocol {
            turns.of_key(key);
            if is_pipelined {
                turns.is_pipelined();
            }
        }
    }

    /// Whether TLS may begin with the side's next bytes: at the front of a connection or of a turn, or where it was agreed on.
    pub(super) fn may_be_tls(&self, side: Side) -> bool {
        if self.keys.is_none() || side != Side::Client {
            return false;
        }
        match &self.protocol {
            ProtocolState::Undecided { .. } => true,
            // What was chosen is then in the records.
            ProtocolState::Http(_) | ProtocolState::Decoded(_) => {
                self.choice == Choice::Given && !self.has_data
            }
            ProtocolState::Turns(turns) => {
                let (speaker, number) = turns.speaker();
                let is_kept = self.front.as_ref().is_some_and(|front| front.side() == Side::Client);
                let is_front = (speaker != Some(Side::Client) || is_kept) && number < EXAMINED_TURNS;
                is_front && (self.choice == Choice::Detected || self.agreed.is_some())
            }
            ProtocolState::Trial(_) | ProtocolState::Iscsi(_) | ProtocolState::Tls(_) => false,
        }
    }

    /// Follows the connection as TLS from here on.
    pub(super) fn become_tls(&mut self, at: At, observer: &mut impl Observer) {
        let (connection, keys, agreed) = (self.connection, self.keys.clone(), self.agreed.take());
        let mut inner = Self::new(connection, self.port, Protocol::Auto, self.shown, false);
        inner.is_inner = true;
        let mut responses_from = self.responses_from;
        self.change(|now| {
            let pace = match now {
                ProtocolState::Turns(mut turns) => {
                    responses_from = Some(turns.responses_end());
                    // What agreed on TLS is complete.
                    turns.end(observer);
                    turns.into_pace(at)
                }
                ProtocolState::Undecided { pace, .. } => *pace,
                given => {
                    inner.choice = Choice::Given;
                    inner.protocol = given;
                    Pace::default()
                }
            };
            if inner.choice == Choice::Detected {
                *inner.pace_mut() = pace;
            }
            let mut tls = Tls::new(connection, keys.unwrap_or_default(), inner, agreed);
            if let Some(seq) = responses_from {
                tls.responses_begin_at(seq);
            }
            ProtocolState::Tls(Box::new(tls))
        });
    }

    /// The same, with secrets for what is encrypted.
    pub(crate) fn with_keys(mut self, keys: Keys) -> Self {
        self.keys = Some(keys);
        self
    }
}
