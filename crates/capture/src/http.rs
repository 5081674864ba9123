//! One HTTP/1.1 connection (RFC 9112): requests and responses, with or without pipelining.

mod message;

use std::collections::VecDeque;

use record::{Exchange, Op, OpKind, Outcome, Passage, Side, Stall, Stamp, Verb};

use crate::follow::MessageState;
use crate::http::message::{Event, Messages, Start};
use crate::in_flight::{Pace, delay, is_of_all};
use crate::observer::{Counted, Observer};
use crate::packet::At;

/// Most requests in flight on one connection.
const IN_FLIGHT_MAX: usize = 4096;

/// An HTTP connection as a capture point sees it.
#[derive(Debug)]
pub(crate) struct Http {
    requests: Messages,
    responses: Messages,
    pairing: Pairing,
}

/// Requests waiting for their responses.
#[derive(Debug, Default)]
struct Pairing {
    connection: u32,
    number: u32,
    /// The current request, whose head has passed.
    current: Option<Exchange>,
    waiting: VecDeque<Exchange>,
    /// The current response: when it began, and its status.
    response: Option<(Passage, u16)>,
    responses_from: u32,
    pace: Pace,
    counted: Counted,
}

impl Http {
    pub(crate) fn new(connection: u32, in_the_middle: bool) -> Self {
        Self {
            requests: Messages::new(Side::Client, in_the_middle),
            responses: Messages::new(Side::Server, in_the_middle),
            pairing: Pairing { connection, ..Pairing::default() },
        }
    }

    /// Whether the bytes may begin a message of that side.
    pub(crate) fn is_spoken(side: Side, bytes: &[u8]) -> bool {
        message::may_begin(side, bytes)
    }

    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.pairing.responses_from = seq;
    }

    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        let Self { requests, responses, pairing } = self;
        match side {
            Side::Client => requests.bytes(bytes, at, None, |event| pairing.request(event)),
            Side::Server => {
                let mut rest = bytes;
                while !rest.is_empty() {
                    let without_body = pairing.next_has_no_body();
                    let taken =
                        responses.one(rest, at, without_body, |event| pairing.response(event, observer));
                    rest = rest.get(taken..).unwrap_or_default();
                }
            }
        }
    }

    pub(crate) fn missing(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        let Self { requests, responses, pairing } = self;
        match side {
            Side::Client => requests.missing(count, at, |event| pairing.request(event)),
            Side::Server => responses.missing(count, at, |event| pairing.response(event, observer)),
        }
    }

    /// A side has closed its stream: a response without a length ends here (RFC 9112 6.3).
    pub(crate) fn closed(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        let Self { responses, pairing, .. } = self;
        if side == Side::Server {
            responses.closed(at, |event| pairing.response(event, observer));
        }
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        self.pairing.waiting.iter().chain(&self.pairing.current).for_each(|e| observer.unanswered(e));
        Counted {
            boundaries_lost: self.requests.lost + self.responses.lost,
            skipped_bytes: self.requests.skipped_bytes + self.responses.skipped_bytes,
            unanswered: self.pairing.waiting.len() as u64 + u64::from(self.pairing.current.is_some()),
            ..self.pairing.counted
        }
    }

    pub(crate) fn message_state(&self, side: Side) -> MessageState {
        match side {
            Side::Client => self.requests.message_state(),
            Side::Server => self.responses.message_state(),
        }
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.pairing.pace
    }

    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        &mut self.pairing.pace
    }

    /// Adds a stall to the exchanges that it delayed.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        let Pairing { waiting, current, pace, .. } = &mut self.pairing;
        match (stall.sender, current) {
            (_, current) if is_of_all(stall) && (current.is_some() || !waiting.is_empty()) => {
                waiting.iter_mut().chain(current).for_each(|exchange| delay(exchange, stall));
            }
            (Side::Client, Some(exchange)) => delay(exchange, stall),
            (Side::Client, None) => pace.stalled(stall),
            // The response at hand is that of the first request.
            (Side::Server, current) => {
                if let Some(exchange) = waiting.front_mut().or(current.as_mut()) {
                    delay(exchange, stall);
                }
            }
        }
    }
}

impl Pairing {
    fn request(&mut self, event: Event) {
        match event {
            Event::Began(at) => {
                let passage = Passage::begin(at.ns, at.frame);
                self.number = self.number.wrapping_add(1);
                let op = Op { connection: self.connection, tag: self.number, ..Op::default() };
                let mut exchange = Exchange { op, request: passage, ..Exchange::default() };
                self.pace.begin(&mut exchange, at, at);
                self.current = Some(exchange);
            }
            Event::Head(Start::Request { method }) => {
                if let Some(exchange) = &mut self.current {
                    exchange.op.verb = Verb::Http(method);
                }
            }
            Event::Head(Start::Response { .. }) => {}
            Event::Ended { at, bytes, body_bytes, .. } => {
                self.pace.message(Side::Client);
                let Some(mut exchange) = self.current.take() else { return };
                (exchange.request.ended, exchange.request.last_frame) = (Stamp::at(at.ns), at.frame);
                exchange.op.request_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                exchange.op.data_bytes = u32::try_from(body_bytes).unwrap_or(u32::MAX);
                if exchange.asked_for_data.is_known() {
                    exchange.data_ended = Stamp::at(at.ns);
                }
                exchange.op.kind = if body_bytes > 0 { OpKind::Write } else { OpKind::Read };
                if self.waiting.len() >= IN_FLIGHT_MAX {
                    self.counted.abandoned += self.waiting.len() as u64;
                    self.pace.forget(self.waiting.len(), at);
                    self.waiting.clear();
                }
                self.waiting.push_back(exchange);
            }
            Event::Lost(at) => self.forget_request(at),
        }
    }

    /// Drops the current request, which cannot be followed.
    fn forget_request(&mut self, at: At) {
        if self.current.take().is_some() {
            self.counted.abandoned += 1;
            self.pace.forget(1, at);
        }
    }

    fn response(&mut self, event: Event, observer: &mut impl Observer) {
        match event {
            Event::Began(at) => {
                let passage = Passage::begin(at.ns, at.frame);
                self.response = Some((passage, 0));
            }
            Event::Head(Start::Response { status }) => {
                if let Some((_, known)) = &mut self.response {
                    *known = status;
                }
            }
            Event::Head(Start::Request { .. }) => {}
            Event::Ended { at, bytes, body_bytes, offset } => {
                let Some((passage, status)) = self.response.take() else { return };
                if (100..200).contains(&status) {
                    // Not the final response: 100 Continue solicits the body.
                    if let Some(exchange) = self.waiting.front_mut().or(self.current.as_mut()) {
                        exchange.asked_for_data = Stamp::at(at.ns);
                    }
                    return;
                }
                self.pace.message(Side::Server);
                // A response (an error) may come before the end of the request.
                let Some(mut exchange) = self.waiting.pop_front().or_else(|| self.current.take()) else {
                    self.counted.unmatched += 1;
                    return;
                };
                let ended = Stamp::at(at.ns);
                exchange.response = Passage { ended, last_frame: at.frame, ..passage };
                exchange.op.response_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                exchange.op.data_bytes =
                    exchange.op.data_bytes.max(u32::try_from(body_bytes).unwrap_or(u32::MAX));
                exchange.op.outcome = if status >= 400 { Outcome::Failed } else { Outcome::Good };
                exchange.response_end_seq = self.responses_from.wrapping_add(offset as u32);
                self.pace.end(at);
                observer.exchange(&exchange);
            }
            Event::Lost(at) => {
                // Responses can no longer be matched to requests.
                self.response = None;
                self.counted.abandoned += self.waiting.len() as u64;
                self.pace.forget(self.waiting.len(), at);
                self.pace.interrupted();
                self.waiting.clear();
            }
        }
    }

    /// Whether the next response has no body regardless of its head (RFC 9110 9.3.2).
    fn next_has_no_body(&self) -> Option<bool> {
        let next = self.waiting.front().or(self.current.as_ref())?;
        Some(next.op.verb == Verb::Http(*b"HEAD\0\0\0"))
    }
}

#[cfg(test)]
mod tests;
