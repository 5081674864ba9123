//! Records that are not decrypted: which of them hold application data, as far as types and lengths tell.
//!
//! TLS 1.2 shows the type of each record. TLS 1.3 calls everything application data, so that what belongs to the handshake or closes the
//! connection is found by its place and length:
//! - the server's records before the client's Finished, and the client's up to it, whose length its hash tells;
//! - session tickets: two records of one length, the first that the server sends behind that. A request may pass between them, if the server
//!   had not seen it when it sent the second;
//! - alerts: a record as long as an alert, behind which nothing comes.

use record::Side;

use super::cutter::{APPLICATION_DATA, Header};
use super::piece::Piece;
use crate::http::Mark;

/// Bytes of a record of TLS 1.3 beyond its content: the type and the tag of AEAD suites.
const SEALED: u16 = 1 + 16;
/// Bytes of a Finished message's head, and of an alert.
const FINISHED_HEAD: u16 = 4;
const ALERT: u16 = 2;
/// Most records of the client before its Finished: its certificate, the proof of it, the end of early data.
const FLIGHT_MAX: usize = 4;
/// Lengths of session tickets.
const TICKET: std::ops::Range<u16> = 80..1500;

/// What is to be done with a record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    /// They are application data.
    Pass,
    /// They may be.
    Hold,
    /// They are none.
    Skip,
}

/// A record that may be application data: the first and the last of its pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) side: Side,
    length: u16,
    pub(super) pieces: [Option<Piece>; 2],
}

impl Held {
    fn add(&mut self, piece: Piece) {
        match &mut self.pieces {
            [first @ None, _] => *first = Some(piece),
            [_, Some(last)] => {
                // Its bytes are counted together, at the end.
                *last = Piece { bytes: last.bytes + piece.bytes, seq: last.seq, ..piece };
            }
            [_, last @ None] => *last = Some(piece),
        }
    }
}

/// What follows the client's Finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tickets {
    /// The server's first record is to come.
    Possible,
    /// It has the length of a ticket, and is held. Where the client's first application data come behind it, their sequence number.
    First {
        length: u16,
        request: Option<u32>,
    },
    Over,
}

/// A connection whose records are not decrypted.
#[derive(Debug)]
pub(super) struct Opaque {
    is_13: bool,
    finished: u16,
    is_client_done: bool,
    /// The client has sent application data.
    has_request: bool,
    tickets: Tickets,
    flight: Vec<Held>,
    ticket: Option<Held>,
    /// Records that may be alerts, by sender.
    closing: [Option<Held>; 2],
    /// What is released before the record at hand.
    pub(super) released: Vec<Held>,
}

impl Opaque {
    /// Behind a ServerHello of TLS 1.2, or of 1.3 with a hash of so many bytes.
    pub(super) fn new(hash_bytes_13: Option<usize>) -> Self {
        let hash = hash_bytes_13.and_then(|bytes| u16::try_from(bytes).ok());
        Self {
            is_13: hash.is_some(),
            finished: SEALED + FINISHED_HEAD + hash.unwrap_or(0),
            is_client_done: hash.is_none(),
            has_request: false,
            tickets: if hash.is_some() { Tickets::Possible } else { Tickets::Over },
            flight: Vec::new(),
            ticket: None,
            closing: [None; 2],
            released: Vec::new(),
        }
    }

    /// Where the handshake is over, or the place in it is not known.
    pub(super) fn without_handshake() -> Self {
        Self { is_13: true, is_client_done: true, tickets: Tickets::Over, ..Self::new(None) }
    }

    /// Whether application data may pass.
    pub(super) fn is_open(&self) -> bool {
        self.is_client_done
    }

    /// A record begins, at this sequence number and in a packet with this acknowledgement number.
    pub(super) fn header(&mut self, side: Side, header: Header, mark: Mark) -> Sink {
        if header.kind != APPLICATION_DATA {
            return Sink::Skip;
        }
        if !self.is_13 {
            return Sink::Pass;
        }
        if !self.is_client_done {
            return self.in_handshake(side, header, mark);
        }
        let held = Held { side, length: header.length, pieces: [None; 2] };
        if header.length == SEALED + ALERT && self.closing[side as usize].is_none() {
            self.closing[side as usize] = Some(held);
            return Sink::Hold;
        }
        let is_answer = |request: u32| mark.ack.wrapping_sub(request).cast_signed() > 0;
        match (side, &mut self.tickets) {
            (Side::Server, Tickets::Possible) if TICKET.contains(&header.length) => {
                self.tickets = Tickets::First { length: header.length, request: None };
                self.ticket = Some(held);
                return Sink::Hold;
            }
            (Side::Server, &mut Tickets::First { length, request })
                if header.length == length && !request.is_some_and(is_answer) =>
            {
                self.tickets = Tickets::Over;
                self.ticket = None;
                return Sink::Skip;
            }
            // The client's request may pass between the server's Finished and its tickets, or between these.
            (Side::Client, Tickets::Possible) => {}
            (Side::Client, Tickets::First { request, .. }) if !self.has_request => *request = Some(mark.seq),
            _ => self.release_ticket(),
        }
        self.has_request |= side == Side::Client;
        let closing = std::mem::take(&mut self.closing);
        self.released.extend(closing.into_iter().flatten());
        self.released.sort_by_key(Held::place);
        Sink::Pass
    }

    /// Something passes that is no record: what is held was no end.
    pub(super) fn release(&mut self) {
        if self.is_client_done {
            self.release_ticket();
            let closing = std::mem::take(&mut self.closing);
            self.released.extend(closing.into_iter().flatten());
            self.released.sort_by_key(Held::place);
        }
    }

    /// What is held was no ticket. Before the first request it was a greeting, which belongs to no turn.
    fn release_ticket(&mut self) {
        let is_greeting = matches!(self.tickets, Tickets::First { request: Some(_), .. });
        self.released.extend(self.ticket.take().filter(|_| !is_greeting));
        self.tickets = Tickets::Over;
    }

    fn in_handshake(&mut self, side: Side, header: Header, mark: Mark) -> Sink {
        match side {
            Side::Client if header.length == self.finished => {
                self.is_client_done = true;
                self.flight = Vec::new();
                Sink::Skip
            }
            Side::Client if self.flight.len() < FLIGHT_MAX => {
                self.flight.push(Held { side, length: header.length, pieces: [None; 2] });
                Sink::Hold
            }
            Side::Server if self.flight.is_empty() => Sink::Skip,
            _ => {
                // The Finished was in one record with the client's certificate.
                self.is_client_done = true;
                self.released.extend(self.flight.drain(..).skip(1));
                self.header(side, header, mark)
            }
        }
    }

    /// Bytes of the record that is held.
    pub(super) fn hold(&mut self, piece: Piece, side: Side) {
        let flight = if self.is_client_done { None } else { self.flight.last_mut() };
        let ticket = self.ticket.as_mut().filter(|_| side == Side::Server);
        let closing = self.closing[side as usize].as_mut().filter(|held| !held.is_whole());
        if let Some(held) = flight.or(closing).or(ticket) {
            held.add(piece);
        }
    }

    /// The connection ends: what is held and is no alert.
    pub(super) fn finish(&mut self) {
        self.release_ticket();
    }
}

impl Held {
    /// Where it is in the capture.
    fn place(&self) -> (u64, u64) {
        let [first, _] = self.pieces;
        first.map_or((u64::MAX, 0), |piece| (piece.at.ns, piece.at.frame))
    }

    fn is_whole(&self) -> bool {
        let bytes: u32 = self.pieces.iter().flatten().map(|piece| piece.bytes).sum();
        bytes >= u32::from(self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FINISHED: u16 = 53;

    fn app(length: u16) -> Header {
        Header { kind: APPLICATION_DATA, length }
    }

    fn after_finished() -> Opaque {
        let mut opaque = Opaque::new(Some(32));
        assert_eq!(opaque.header(Side::Server, app(900), Mark::default()), Sink::Skip);
        assert_eq!(opaque.header(Side::Client, app(FINISHED), Mark::default()), Sink::Skip);
        opaque
    }

    #[test]
    fn the_handshake_ends_with_the_clients_finished() {
        let mut opaque = after_finished();
        assert_eq!(opaque.header(Side::Client, app(100), Mark::default()), Sink::Pass);
        let mut opaque = Opaque::new(Some(48));
        assert_eq!(opaque.header(Side::Client, app(700), Mark::default()), Sink::Hold, "a certificate");
        assert_eq!(opaque.header(Side::Client, app(69), Mark::default()), Sink::Skip);
        assert_eq!(opaque.header(Side::Client, app(69), Mark::default()), Sink::Pass);
        assert!(opaque.released.is_empty());
        // All in one record, and a request behind it.
        let mut opaque = Opaque::new(Some(32));
        opaque.header(Side::Client, app(900), Mark::default());
        opaque.header(Side::Client, app(120), Mark::default());
        assert_eq!(opaque.header(Side::Server, app(3000), Mark::default()), Sink::Pass);
        assert_eq!(opaque.released.iter().map(|held| held.length).collect::<Vec<_>>(), [120]);
    }

    #[test]
    fn two_records_of_one_length_are_tickets() {
        let mut opaque = after_finished();
        opaque.header(Side::Client, app(100), Mark::default());
        assert_eq!(opaque.header(Side::Server, app(250), Mark::default()), Sink::Hold);
        assert_eq!(opaque.header(Side::Server, app(250), Mark::default()), Sink::Skip);
        assert_eq!(opaque.header(Side::Server, app(250), Mark::default()), Sink::Pass, "only two");
        assert!(opaque.released.is_empty());
        let mut opaque = after_finished();
        opaque.header(Side::Server, app(250), Mark::default());
        assert_eq!(opaque.header(Side::Server, app(300), Mark::default()), Sink::Pass);
        assert_eq!(opaque.released.len(), 1, "a response of its own");
    }

    #[test]
    fn a_request_may_pass_between_the_tickets() {
        let at = |seq, ack| Mark { seq, ack };
        let crossed = || {
            let mut opaque = after_finished();
            assert_eq!(opaque.header(Side::Server, app(250), at(1000, 500)), Sink::Hold);
            assert_eq!(opaque.header(Side::Client, app(100), at(500, 1255)), Sink::Pass);
            opaque
        };
        let mut opaque = crossed();
        assert_eq!(opaque.header(Side::Server, app(250), at(1255, 500)), Sink::Skip);
        assert_eq!(opaque.header(Side::Server, app(250), at(1510, 605)), Sink::Pass);
        assert!(opaque.released.is_empty());
        // An answer as long as the server's greeting.
        let mut opaque = crossed();
        assert_eq!(opaque.header(Side::Server, app(250), at(1255, 605)), Sink::Pass);
        assert!(opaque.released.is_empty(), "it would be a part of the answer");
        // A server without tickets: the first record is an answer.
        let mut opaque = after_finished();
        opaque.header(Side::Client, app(100), at(500, 1000));
        opaque.header(Side::Server, app(250), at(1000, 605));
        assert_eq!(opaque.header(Side::Client, app(100), at(605, 1255)), Sink::Pass);
        assert_eq!(opaque.released.len(), 1);
    }

    #[test]
    fn an_alert_is_one_only_at_the_end() {
        let mut opaque = after_finished();
        opaque.header(Side::Client, app(100), Mark::default());
        opaque.header(Side::Server, app(5000), Mark::default());
        assert_eq!(opaque.header(Side::Client, app(19), Mark::default()), Sink::Hold);
        assert_eq!(opaque.header(Side::Server, app(19), Mark::default()), Sink::Hold);
        opaque.finish();
        assert!(opaque.released.is_empty());
        assert_eq!(opaque.header(Side::Client, app(40), Mark::default()), Sink::Pass);
        assert_eq!(opaque.released.len(), 2, "the connection goes on");
    }

    #[test]
    fn tls_12_shows_its_types() {
        let mut opaque = Opaque::new(None);
        assert_eq!(opaque.header(Side::Client, Header { kind: 22, length: 40 }, Mark::default()), Sink::Skip);
        assert_eq!(opaque.header(Side::Client, app(19), Mark::default()), Sink::Pass);
        assert_eq!(opaque.header(Side::Server, Header { kind: 21, length: 26 }, Mark::default()), Sink::Skip);
    }
}
