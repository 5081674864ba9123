//! Any protocol of requests and responses: all data of one side until the other side sends is one message.
//!
//! Pipelined requests count as one. Data without a response is one long request.

use record::{Exchange, Op, OpKind, Passage, Side, Stall, Stamp, Verb};

use crate::follow::MessageState;
use crate::in_flight::{Pace, delay, is_of_all};
use crate::observer::{Counted, Observer};
use crate::packet::At;
use crate::settling::repair;

/// A connection of unknown protocol.
#[derive(Debug)]
pub(crate) struct Turns {
    connection: u32,
    /// The side that is sending.
    speaker: Option<Side>,
    current: Option<Exchange>,
    /// The server's bytes so far, and where its stream began.
    responses: (u64, u32),
    number: u32,
    pace: Pace,
}

impl Turns {
    pub(crate) fn new(connection: u32) -> Self {
        Self { connection, speaker: None, current: None, responses: (0, 0), number: 0, pace: Pace::default() }
    }

    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.responses = (0, seq);
    }

    /// Processes bytes, captured or not, regardless of their content.
    pub(crate) fn pass(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        if side == Side::Server {
            self.responses.0 += count;
        }
        let bytes = u32::try_from(count).unwrap_or(u32::MAX);
        let stamp = Stamp::at(at.ns);
        match (side, self.speaker) {
            (Side::Client, Some(Side::Client)) => {
                if let Some(e) = &mut self.current {
                    e.op.request_bytes = e.op.request_bytes.saturating_add(bytes);
                    (e.request.ended, e.request.last_frame) = (stamp, at.frame);
                }
            }
            (Side::Client, _) => {
                self.end(observer);
                self.number = self.number.wrapping_add(1);
                let passage = Passage::begin(at.ns, at.frame);
                let op = Op {
                    connection: self.connection,
                    tag: self.number,
                    verb: Verb::Turn,
                    request_bytes: bytes,
                    ..Op::default()
                };
                let mut exchange = Exchange { op, request: passage, ..Exchange::default() };
                self.pace.begin(&mut exchange, at, at);
                self.current = Some(exchange);
            }
            (Side::Server, _) => {
                // A server's greeting, before any request, is not a response.
                let Some(e) = &mut self.current else { return };
                if !e.response.began.is_known() {
                    (e.response.began, e.response.first_frame) = (stamp, at.frame);
                    self.pace.message(Side::Client);
                }
                e.op.response_bytes = e.op.response_bytes.saturating_add(bytes);
                (e.response.ended, e.response.last_frame) = (stamp, at.frame);
                // What was sent again before is now part of the response's time.
                e.repaired_ns = 0;
                e.response_end_seq = self.responses.1.wrapping_add(self.responses.0 as u32);
            }
        }
        self.speaker = Some(side);
    }

    /// Ends a turn: the response, if any, is complete.
    fn end(&mut self, observer: &mut impl Observer) {
        let Some(mut exchange) = self.current.take() else { return };
        let Some(ended) = exchange.response.ended.ns() else { return };
        exchange.op.kind = match (exchange.op.request_bytes, exchange.op.response_bytes) {
            (request, response) if response > request => OpKind::Read,
            (request, response) if request > response => OpKind::Write,
            _ => OpKind::Other,
        };
        exchange.op.data_bytes = exchange.op.request_bytes.max(exchange.op.response_bytes);
        self.pace.message(Side::Server);
        self.pace.end(At { ns: ended, frame: exchange.response.last_frame });
        observer.exchange(&exchange);
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        let unanswered = self.current.filter(|e| !e.response.ended.is_known());
        unanswered.iter().for_each(|exchange| observer.unanswered(exchange));
        self.end(observer);
        Counted { unanswered: u64::from(unanswered.is_some()), ..Counted::default() }
    }

    pub(crate) fn message_state(&self, side: Side) -> MessageState {
        if self.speaker == Some(side) { MessageState::Unknown } else { MessageState::Nothing }
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.pace
    }

    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        &mut self.pace
    }

    /// Adds a stall to the exchange that it delayed: the current one, or the next one if the client has not begun it.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        let is_held_request = stall.sender == Side::Client && self.speaker != Some(Side::Client);
        match &mut self.current {
            // The response may be complete.
            Some(exchange) if exchange.response.ended.is_known() && stall.kind.is_loss() => {
                if stall.sender == Side::Server {
                    repair(exchange, stall);
                } else {
                    self.pace.stalled(stall);
                }
            }
            Some(exchange) if !is_held_request || is_of_all(stall) => delay(exchange, stall),
            _ => self.pace.stalled(stall),
        }
    }
}
