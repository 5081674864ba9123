//! TLS (RFC 8446, RFC 5246): a connection's set-up, its records, and with its secrets what is in them.
//!
//! The handshake is no request. Behind it the records are decrypted if their secrets are known, and their content is followed as that of
//! a connection without TLS, with the times and frames of the records. Otherwise the application data are turns. What a record says can be
//! read when it is complete, so its last byte has the time of its last segment. An alert that ends the connection is an exchange with
//! an error: `HANDSHAKE` from the ClientHello to the alert as long as the server has sent no application data, otherwise `ALERT`.
//!
//! A hole costs the records that it touches. If it has taken a boundary, the next record is searched for in what follows, and its tag
//! proves it ([`clear`]).

mod alert;
mod cipher;
mod clear;
mod cutter;
mod hello;
mod holes;
pub(crate) mod keys;
mod messages;
mod opaque;
mod piece;
mod sealed;
mod sender;
mod suite;
mod told;

use record::{Encryption, Side, Stall};

use crate::application::Application;
use crate::decode::Agreed;
use crate::follow::MessageState;
use crate::http::Mark;
use crate::in_flight::Pace;
use crate::observer::{Counted, Observer};
use crate::packet::At;
use clear::{Clear, NotClear};
pub(crate) use cutter::is_application_data;
use cutter::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE, Header, Part};
use hello::{Alpn, ServerHello};
use keys::Keys;
use messages::Message;
use opaque::{Held, Opaque, Sink};
use piece::Piece;
use sender::{Place, Sender};
use told::Greeted;

/// Records in a row that the secrets do not open, although nothing is missing, after which they are taken for others.
const REFUSED_MAX: u32 = 3;

/// How far the connection is.
#[derive(Debug)]
enum State {
    /// The server has not chosen yet.
    Hellos,
    Opaque(Box<Opaque>),
    Clear(Box<Clear>),
}

/// A connection with TLS.
#[derive(Debug)]
pub(crate) struct Tls {
    connection: u32,
    keys: Keys,
    state: State,
    sides: [Sender; 2],
    greeted: Greeted,
    encryption: Encryption,
    has_early_data: bool,
    alpn: Option<Alpn>,
    refused: u32,
    /// The protocol that agreed on TLS, which goes on in it.
    agreed: Option<Agreed>,
    /// What is in the records.
    inner: Box<Application>,
    has_begun: bool,
    /// The client has closed its stream.
    is_client_done: bool,
    counted: Counted,
    plain: Vec<u8>,
}

/// A handshake record with a ClientHello (RFC 8446 5.1, 4.1.2).
pub(crate) fn is_client_hello(bytes: &[u8]) -> bool {
    matches!(bytes, [HANDSHAKE, 3, 0..=4, _, _, messages::CLIENT_HELLO, 0, _, _, 3, 0..=3, ..])
}

impl Tls {
    /// A connection whose ClientHello comes next. What is in its records is for `inner`, which has seen nothing yet.
    pub(crate) fn new(connection: u32, keys: Keys, inner: Application, agreed: Option<Agreed>) -> Self {
        let encryption = if keys.count() > 0 { Encryption::NoHandshake } else { Encryption::NoKeyLog };
        Self {
            connection,
            keys,
            state: State::Hellos,
            sides: Default::default(),
            greeted: Greeted::default(),
            encryption,
            has_early_data: false,
            alpn: None,
            refused: 0,
            agreed,
            inner: Box::new(inner),
            has_begun: false,
            is_client_done: false,
            counted: Counted::default(),
            plain: Vec::new(),
        }
    }

    pub(crate) fn inner(&self) -> &Application {
        &self.inner
    }

    /// Whether what is in the records is seen.
    pub(crate) fn is_clear(&self) -> bool {
        matches!(self.state, State::Clear(_))
    }

    pub(crate) fn facts(&self) -> record::Tls {
        let encryption = match self.state {
            // Nothing was hidden.
            State::Hellos => Encryption::Decrypted,
            _ => self.encryption,
        };
        record::Tls { encryption, name: self.greeted.key, has_early_data: self.has_early_data }
    }

    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.sides[Side::Server as usize].seq = Some(seq);
        self.inner.responses_begin_at(seq);
    }

    /// A packet with data is about to be processed.
    pub(crate) fn packet(&mut self, side: Side, mark: Mark) {
        self.sides[side as usize].mark = mark;
    }

    /// Processes the next bytes of a side, the payload of one segment.
    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        let sender = &mut self.sides[side as usize];
        sender.has_spoken = true;
        let mark = sender.mark;
        sender.seq.get_or_insert(mark.seq);
        if side == Side::Server {
            self.greeted.heard(at);
        }
        self.part(side, bytes, (at, mark), observer);
    }

    fn part(&mut self, side: Side, bytes: &[u8], (at, mark): (At, Mark), observer: &mut impl Observer) {
        let mut rest = bytes;
        self.sides[side as usize].find_front(bytes);
        while !rest.is_empty() {
            let sender = &mut self.sides[side as usize];
            let before = rest;
            let seq = sender.seq.unwrap_or(mark.seq);
            let piece = |bytes: usize| Piece { bytes: bytes as u32, at, mark, seq };
            match sender.place {
                Place::Lost { .. } => {
                    sender.keep(rest, piece(rest.len()));
                    sender.advance(rest.len());
                    return self.search(side, observer);
                }
                Place::Raw => {
                    sender.advance(rest.len());
                    if let State::Opaque(opaque) = &mut self.state {
                        opaque.release();
                        self.release(observer);
                    }
                    return self.pass(side, piece(rest.len()), observer);
                }
                Place::Records => {}
            }
            let part = sender.cutter.next(&mut rest);
            let taken = before.len() - rest.len();
            sender.advance(taken);
            match part {
                Part::More => {}
                Part::Invalid => self.lose(side, cutter::HEADER as u64, at, observer),
                Part::Header(header) => self.header(side, header, observer),
                Part::Body { bytes, is_end } => {
                    match self.sides[side as usize].sink {
                        None => self.sides[side as usize].keep(bytes, piece(taken)),
                        Some(Sink::Pass) => self.pass(side, piece(taken), observer),
                        Some(Sink::Hold) => {
                            if let State::Opaque(opaque) = &mut self.state {
                                opaque.hold(piece(taken), side);
                            }
                        }
                        Some(Sink::Skip) => {}
                    }
                    if is_end {
                        self.end(side, at, observer);
                    }
                }
            }
        }
    }

    /// A record begins.
    fn header(&mut self, side: Side, header: Header, observer: &mut impl Observer) {
        let is_data = header.kind == APPLICATION_DATA;
        let sink = match &mut self.state {
            State::Hellos if is_data => {
                self.has_early_data = true;
                Some(Sink::Skip)
            }
            State::Hellos => None,
            State::Opaque(opaque) => {
                let Sender { seq, mark, .. } = &self.sides[side as usize];
                let mark = Mark { seq: seq.unwrap_or(mark.seq), ..*mark };
                let sink = opaque.header(side, header, mark);
                self.release(observer);
                // Not only its length tells what an alert is.
                if header.kind == ALERT && header.length == 2 { None } else { Some(sink) }
            }
            State::Clear(clear) => {
                if header.kind == CHANGE_CIPHER_SPEC {
                    clear.change_cipher(side);
                }
                (header.kind == CHANGE_CIPHER_SPEC).then_some(Sink::Skip)
            }
        };
        let sender = &mut self.sides[side as usize];
        sender.has_changed |= header.kind == CHANGE_CIPHER_SPEC;
        sender.begin(header, sink);
    }

    /// A record is complete, or the rest of it is missing.
    fn end(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        let sender = &mut self.sides[side as usize];
        let is_broken = std::mem::take(&mut sender.is_broken);
        let header = sender.header;
        if is_broken {
            sender.drop_kept();
            if sender.sink.is_none() {
                sender.messages.lose();
                if let State::Clear(clear) = &mut self.state {
                    clear.miss_record(side);
                }
            }
            return;
        }
        if sender.sink.is_some() {
            return;
        }
        let (record, pieces) = sender.take_kept();
        let is_sealed = matches!(&self.state, State::Clear(clear) if clear.is_sealed(side))
            && (self.is_12() || header.kind == APPLICATION_DATA);
        if is_sealed {
            self.decrypt(side, header.kind, &record, &pieces, observer);
        } else {
            self.plain(side, header.kind, &record, at, observer);
        }
        self.sides[side as usize].give_back(record, pieces);
    }

    fn is_12(&self) -> bool {
        matches!(&self.state, State::Clear(clear) if !clear.suite.is_13)
    }

    /// A record without protection, or what was in one, which is none of the application's.
    fn plain(&mut self, side: Side, kind: u8, content: &[u8], at: At, observer: &mut impl Observer) {
        match kind {
            HANDSHAKE => {
                for message in self.sides[side as usize].messages.add(content) {
                    self.message(side, &message, at, observer);
                }
            }
            ALERT => self.alert(content, at, observer),
            _ => {}
        }
    }

    fn message(&mut self, side: Side, message: &Message, at: At, observer: &mut impl Observer) {
        match (message.kind, side) {
            (messages::CLIENT_HELLO, Side::Client) => {
                if let Some(hello) = hello::client(&message.body) {
                    let began = self.sides[side as usize].began.unwrap_or(at);
                    self.greeted.hello(hello, [began, at], message.length, observer);
                }
            }
            (messages::SERVER_HELLO, Side::Server) => {
                if let Some(hello) = hello::server(&message.body).filter(|hello| !hello.is_retry) {
                    self.agree(&hello, at, observer);
                }
            }
            (messages::ENCRYPTED_EXTENSIONS, Side::Server) => {
                self.alpn = hello::encrypted_extensions(&message.body);
            }
            (messages::FINISHED, _) => {
                if let State::Clear(clear) = &mut self.state
                    && clear.suite.is_13
                {
                    clear.finished(side);
                }
            }
            (messages::NEW_SESSION_TICKET, Side::Server) => {
                if let State::Clear(clear) = &self.state
                    && let Some(ticket) = hello::new_ticket(&message.body)
                {
                    clear.issued(ticket, &self.keys);
                }
            }
            (messages::KEY_UPDATE, _) if message.length == 1 => {
                if let State::Clear(clear) = &mut self.state
                    && clear.suite.is_13
                {
                    clear.update(side);
                }
            }
            _ => {}
        }
    }

    /// The server has chosen.
    fn agree(&mut self, server: &ServerHello, at: At, observer: &mut impl Observer) {
        self.alpn = server.alpn.or(self.alpn);
        let client = self.greeted.client.clone();
        if let (State::Clear(clear), Some(client)) = (&mut self.state, &client) {
            // TLS 1.2 may agree anew, with new keys.
            if !server.is_13 && clear.agree(&self.keys, client, server).is_none() {
                self.give_up(Encryption::NoSecret, Opaque::without_handshake(), at, observer);
            }
            return;
        }
        if !matches!(self.state, State::Hellos) {
            return;
        }
        let hash_bytes = server.is_13.then(|| suite::hash_bytes_13(server.suite));
        self.greeted.is_13 = server.is_13;
        let clear = match &client {
            _ if self.keys.count() == 0 => Err(Encryption::NoKeyLog),
            None => Err(Encryption::NoHandshake),
            Some(client) => Clear::new(&self.keys, client, server).map_err(|why| match why {
                NotClear::NoSecret => Encryption::NoSecret,
                NotClear::Suite(number) => Encryption::Suite(number),
            }),
        };
        match clear {
            Ok(clear) => {
                self.state = State::Clear(Box::new(clear));
                self.encryption = Encryption::Decrypted;
            }
            Err(why) => self.give_up(why, Opaque::new(hash_bytes), at, observer),
        }
    }

    /// The records are not decrypted from here on: their content is turns.
    fn give_up(&mut self, why: Encryption, opaque: Opaque, at: At, observer: &mut impl Observer) {
        self.encryption = why;
        self.state = State::Opaque(Box::new(opaque));
        self.agreed = None;
        self.inner.become_turns(self.greeted.key, self.may_pipeline(), at, observer);
        for sender in &mut self.sides {
            sender.give_up();
        }
    }

    /// Whether a turn may hold several requests: unless only HTTP/1.1 can be spoken.
    fn may_pipeline(&self) -> bool {
        let offers = self.greeted.client.as_ref().map(|client| client.offers.as_slice()).unwrap_or_default();
        let is_http1 = |alpn: &Alpn| *alpn == Alpn::Http1;
        match &self.alpn {
            Some(chosen) => !is_http1(chosen),
            None => offers.is_empty() || !offers.iter().all(is_http1),
        }
    }

    /// Passes bytes of application data that are not decrypted.
    fn pass(&mut self, side: Side, piece: Piece, observer: &mut impl Observer) {
        self.has_begun = true;
        self.sides[side as usize].has_data = true;
        self.inner.position(side, piece.seq, piece.seq);
        self.inner.packet(side, piece.mark.seq, piece.mark.ack);
        self.inner.pass(side, piece.bytes.into(), piece.at, observer);
    }

    /// Passes what was held and is application data.
    fn release(&mut self, observer: &mut impl Observer) {
        let State::Opaque(opaque) = &mut self.state else { return };
        for Held { side, pieces, .. } in std::mem::take(&mut opaque.released) {
            pieces.into_iter().flatten().for_each(|piece| self.pass(side, piece, observer));
        }
    }

    /// A side has closed its stream.
    pub(crate) fn closed(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        self.is_client_done |= side == Side::Client;
        self.inner.closed(side, at, observer);
    }

    /// Whether the records have something of an application.
    pub(crate) fn has_data(&self) -> bool {
        self.has_begun
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        if let State::Opaque(opaque) = &mut self.state {
            opaque.finish();
            self.release(observer);
        }
        let unanswered = self.greeted.unanswered(self.connection).filter(|_| self.is_unanswered());
        unanswered.iter().for_each(|exchange| observer.unanswered(exchange));
        let own = Counted { unanswered: u64::from(unanswered.is_some()), ..self.counted };
        own.then(self.inner.finish(observer))
    }

    /// Whether the server has not said anything.
    fn is_unanswered(&self) -> bool {
        matches!(self.state, State::Hellos) && !self.sides[Side::Server as usize].has_spoken
    }

    /// Requests without a response, among them the first hello.
    pub(crate) fn awaited(&self, is_closed: bool) -> u32 {
        self.inner.awaited(is_closed) + u32::from(self.is_unanswered())
    }

    /// Requests without a whole response when the server has closed.
    pub(crate) fn cut_off(&self) -> u32 {
        self.inner.cut_off() + u32::from(self.is_unanswered())
    }

    pub(crate) fn has_rest(&self, side: Side) -> bool {
        !self.sides[side as usize].cutter.is_between()
    }

    pub(crate) fn message_state(&self, side: Side) -> MessageState {
        let sender = &self.sides[side as usize];
        match self.inner.message_state(side) {
            _ if sender.place != Place::Records => MessageState::Unknown,
            MessageState::Nothing if !sender.cutter.is_between() => MessageState::Part,
            _ if matches!(self.state, State::Hellos) => MessageState::Nothing,
            state => state,
        }
    }

    pub(crate) fn pace(&self) -> &Pace {
        self.inner.pace()
    }

    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        self.inner.pace_mut()
    }

    /// Adds a stall to the exchanges that it delayed, or to the first one. What delayed the handshake is a part of the set-up.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        if self.has_begun {
            self.inner.stalled(stall);
        } else if self.is_open() {
            self.inner.pace_mut().stalled(stall);
        }
    }

    /// Whether the handshake is over.
    fn is_open(&self) -> bool {
        match &self.state {
            State::Hellos => false,
            State::Opaque(opaque) if self.greeted.is_13 => opaque.is_open(),
            State::Opaque(_) => self.sides.iter().all(|sender| sender.has_changed),
            State::Clear(clear) => clear.is_open(Side::Client) && clear.is_open(Side::Server),
        }
    }
}

#[cfg(test)]
mod tests;
