//! What a connection tells of its handshake and of its end: the name of the server, and failures.

use record::{Exchange, Key, Op, OpKind, Outcome, Passage, Side, Stamp, Verb, Word};

use super::hello::ClientHello;
use super::{State, Tls, alert};
use crate::decode;
use crate::observer::Observer;
use crate::packet::At;

/// The names of what fails.
const FAILED_HANDSHAKE: &[u8] = b"HANDSHAKE";
const FAILED_LATER: &[u8] = b"ALERT";

/// The first hellos.
#[derive(Debug, Default)]
pub(super) struct Greeted {
    pub(super) client: Option<ClientHello>,
    /// When the first ClientHello began and ended, and its bytes.
    at: Option<[At; 2]>,
    bytes: u32,
    /// When the server first sent something.
    heard: Option<At>,
    pub(super) is_13: bool,
    /// The server's name and its protocols.
    pub(super) key: Key,
}

impl Greeted {
    /// A ClientHello has passed.
    pub(super) fn hello(
        &mut self,
        hello: ClientHello,
        at: [At; 2],
        bytes: usize,
        observer: &mut impl Observer,
    ) {
        if self.at.is_none() {
            (self.at, self.bytes) = (Some(at), bytes as u32);
        }
        let names: Vec<&str> = hello.offers.iter().filter_map(|alpn| alpn.name()).collect();
        let mut name = hello.server.clone();
        if !names.is_empty() {
            name = format!("{name} ({})", names.join(", ")).trim_start().to_owned();
        }
        if !name.is_empty() {
            self.key = decode::key_of(name.as_bytes());
            observer.named(self.key, &name);
        }
        self.client = Some(hello);
    }

    /// The server has sent something.
    pub(super) fn heard(&mut self, at: At) {
        self.heard.get_or_insert(at);
    }

    fn exchange(&self, connection: u32, operation: &[u8]) -> Option<Exchange> {
        let [began, ended] = self.at?;
        let op = Op {
            connection,
            verb: Verb::Command(Word::new(operation)),
            request_bytes: self.bytes,
            data_bytes: self.bytes,
            kind: OpKind::Other,
            ..Op::default()
        };
        let request = Passage {
            ended: Stamp::at(ended.ns),
            last_frame: ended.frame,
            ..Passage::begin(began.ns, began.frame)
        };
        Some(Exchange { op, request, key: self.key, ..Exchange::default() })
    }

    /// The ClientHello as a request.
    pub(super) fn unanswered(&self, connection: u32) -> Option<Exchange> {
        self.exchange(connection, FAILED_HANDSHAKE)
    }
}

impl Tls {
    /// An alert has passed: if it ends the connection with an error, it is told.
    pub(super) fn alert(&mut self, content: &[u8], at: At, observer: &mut impl Observer) {
        let is_13 = self.greeted.is_13 && !matches!(self.state, State::Hellos);
        let Some(status) = alert::error(content, is_13) else { return };
        let is_handshake = !self.sides[Side::Server as usize].has_data;
        // OpenSSL's servers say so where a client has closed the connection and not the session, behind all answers.
        if self.is_client_done && !is_handshake && self.inner.awaited(true) == 0 {
            return;
        }
        let operation = if is_handshake { FAILED_HANDSHAKE } else { FAILED_LATER };
        let Some(mut exchange) = self.greeted.exchange(self.connection, operation) else { return };
        let heard = self.greeted.heard.filter(|_| is_handshake).unwrap_or(at);
        if !is_handshake {
            let passage = Passage { ended: Stamp::at(at.ns), ..Passage::begin(at.ns, at.frame) };
            (exchange.request, exchange.op.request_bytes, exchange.op.data_bytes) = (passage, 0, 0);
        }
        exchange.response = Passage {
            ended: Stamp::at(at.ns),
            last_frame: at.frame,
            ..Passage::begin(heard.ns.min(at.ns), heard.frame.min(at.frame))
        };
        (exchange.status, exchange.error) = (status, status.error());
        exchange.op.outcome = Outcome::Failed;
        exchange.response_end_seq = self.sides[Side::Server as usize].seq.unwrap_or(0);
        let began =
            At { ns: exchange.request.began.ns().unwrap_or(at.ns), frame: exchange.request.first_frame };
        let pace = self.inner.pace_mut();
        pace.begin(&mut exchange, began, at);
        pace.end(at);
        observer.exchange(&exchange);
    }
}
