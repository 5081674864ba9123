//! Any protocol of requests and responses: all data of one side until the other side sends is one message.
//!
//! Pipelined requests count as one. Data without a response is one long request. Where the acknowledgement numbers show that a side
//! did not wait for the other, or its bytes show it, a turn may hold several requests, and says so.

mod several;

use record::{Exchange, Key, Op, OpKind, Passage, Side, Stall, StallKind, Stamp, Verb};

use crate::follow::MessageState;
use crate::http::Mark;
use crate::in_flight::{Pace, delay, is_of_all};
use crate::observer::{Counted, Observer};
use crate::packet::At;
use crate::settling::repair;
use crate::stream::Absent;

use several::Several;

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
    /// Sequence number behind the client's data.
    requests_end: Option<u32>,
    /// The packet at hand of each side.
    packets: [Option<Mark>; 2],
    /// Its protocol has several requests in flight, or in one message, by its design.
    is_pipelined: bool,
    /// They are in the records of TLS, between which others pass that are of no turn.
    is_in_records: bool,
    /// What the client had received when it began the turn at hand.
    received: Option<u32>,
    /// Turns of which a side's bytes are missing so that they have no times.
    abandoned: u64,
    /// What all of them are for.
    key: Key,
    /// What the turn at hand shows of several requests.
    several: Several,
}

/// Whether a wait began before a response did.
fn began_before(stall: &Stall, exchange: &Exchange) -> bool {
    let since_ns = stall.time_ns.saturating_sub(stall.wait_ns);
    exchange.response.began.ns().is_some_and(|ns| since_ns < ns)
}

impl Turns {
    pub(crate) fn new(connection: u32) -> Self {
        Self {
            connection,
            speaker: None,
            current: None,
            responses: (0, 0),
            number: 0,
            pace: Pace::default(),
            requests_end: None,
            packets: [None; 2],
            is_pipelined: false,
            is_in_records: false,
            received: None,
            abandoned: 0,
            key: Key::NONE,
            several: Several::default(),
        }
    }

    /// Turns after messages of another protocol on the same connection, which had this pace.
    pub(crate) fn after(connection: u32, pace: Pace) -> Self {
        Self { pace, ..Self::new(connection) }
    }

    /// The protocol may have several requests in a turn: every turn says so.
    pub(crate) fn is_pipelined(&mut self) {
        self.is_pipelined = true;
    }

    /// All turns have this key.
    pub(crate) fn of_key(&mut self, key: Key) {
        self.key = key;
    }

    /// The client's next bytes have this sequence number.
    pub(crate) fn requests_begin_at(&mut self, seq: u32) {
        self.requests_end = Some(seq);
    }

    /// They are in the records of TLS.
    pub(crate) fn in_records(&mut self) {
        self.is_in_records = true;
    }

    /// A packet with data is about to be processed.
    #[inline]
    pub(crate) fn packet(&mut self, side: Side, mark: Mark) {
        self.packets[side as usize] = Some(mark);
    }

    /// Notes whether the turn at hand, which has ended, holds several requests.
    fn note_several(&mut self) {
        let several = std::mem::take(&mut self.several);
        if let Some(exchange) = &mut self.current {
            exchange.has_several |= several.is_likely();
        }
    }

    /// Processes the bytes of a packet that were not captured.
    fn uncaptured(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        self.packets[side as usize] = None;
        self.pass_unread(side, count, at, observer);
        if let Some(exchange) = self.current.as_mut().filter(|_| side == Side::Client && !self.is_in_records)
        {
            exchange.is_unread = true;
        }
    }

    /// Processes bytes that were on the wire and are not in the capture: the rest of a packet, or those of a hole before the packet with
    /// these numbers.
    pub(crate) fn missing(
        &mut self,
        (side, absent): (Side, Absent),
        count: u64,
        packet: Mark,
        at: At,
        observer: &mut impl Observer,
    ) {
        if absent == Absent::Uncaptured {
            return self.uncaptured(side, count, at, observer);
        }
        self.packets[side as usize] = Some(packet);
        let begins = side == Side::Client && self.speaker != Some(side);
        // What the server had received beyond the turn at hand is of another one, of which the missing bytes may be.
        if side == Side::Server && self.speaker.is_some() && self.is_behind_unseen() {
            self.abandon(at);
        }
        let earlier = if side == Side::Server { self.before_the_turn(count) } else { 0 };
        self.responses.0 += earlier;
        if count > earlier {
            self.uncaptured(side, count - earlier, at, observer);
        }
        if begins {
            // When it began is not known.
            self.abandon(at);
        }
    }

    /// Whether the server had received what is not in the capture.
    fn is_behind_unseen(&self) -> bool {
        let packet = self.packets[Side::Server as usize].filter(|_| !self.is_in_records);
        let end = self.requests_end.zip(packet);
        end.is_some_and(|(end, packet)| packet.ack.wrapping_sub(end).cast_signed() > 0)
    }

    /// How many of the server's next bytes the client had received before it began the turn at hand: they answer earlier ones.
    fn before_the_turn(&self, count: u64) -> u64 {
        let received = self.received.map_or(0, |ack| ack.wrapping_sub(self.responses_end()).cast_signed());
        u64::try_from(received).unwrap_or(0).min(count)
    }

    /// Whether the answer of the turn at hand has begun.
    fn has_answer(&self) -> bool {
        self.current.as_ref().is_some_and(|exchange| exchange.response.began.is_known())
    }

    /// Whether the client had received what is not in the capture.
    fn has_unseen_answer(&self) -> bool {
        let packet = self.packets[Side::Client as usize];
        let is_ahead = |packet: Mark| packet.ack.wrapping_sub(self.responses_end()).cast_signed() > 0;
        !self.is_in_records && packet.is_some_and(is_ahead)
    }

    /// Drops the turn at hand, which cannot be followed.
    fn abandon(&mut self, at: At) {
        if self.current.take().is_some() {
            self.abandoned += 1;
            self.pace.forget(1, at);
            self.pace.interrupted();
        }
    }

    /// Whether the packet at hand left before its sender had all that the other side has sent so far.
    fn is_early(&self, side: Side) -> bool {
        let others_end = match side {
            Side::Client => Some(self.responses_end()),
            Side::Server => self.requests_end,
        };
        let packet = self.packets[side as usize];
        others_end.zip(packet).is_some_and(|(end, packet)| packet.ack.wrapping_sub(end).cast_signed() < 0)
    }

    /// Drops the turn at hand, which was a part of another protocol's message, and returns the pace.
    pub(crate) fn into_pace(mut self, at: At) -> Pace {
        if self.current.take().is_some() {
            self.pace.forget(1, at);
            self.pace.interrupted();
        }
        self.pace
    }

    /// Sequence number behind the server's bytes so far.
    pub(crate) fn responses_end(&self) -> u32 {
        let (bytes, from) = self.responses;
        from.wrapping_add(bytes as u32)
    }

    /// The side that is sending, and the number of turns so far.
    #[inline]
    pub(crate) fn speaker(&self) -> (Option<Side>, u32) {
        (self.speaker, self.number)
    }

    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.responses = (0, seq);
    }

    /// Processes the next bytes of a side, the payload of one segment.
    pub(crate) fn pass(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        self.advance(side, bytes.len() as u64, at, observer);
        self.several.pass(side, bytes);
    }

    /// Processes bytes whose content is not known.
    pub(crate) fn pass_unread(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        self.advance(side, count, at, observer);
        self.several.absent(side, count);
    }

    /// Counts bytes regardless of their content.
    fn advance(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        if side == Side::Server {
            self.responses.0 += count;
        }
        let bytes = u32::try_from(count).unwrap_or(u32::MAX);
        let stamp = Stamp::at(at.ns);
        if side == Side::Server && self.has_answer() && self.is_behind_unseen() {
            // The server goes on with the answer to a request in a hole, which shows later.
            self.end(observer);
        }
        if side == Side::Client && self.speaker == Some(side) && self.has_unseen_answer() {
            // The turn at hand was answered in a hole, which shows later.
            self.abandon(at);
            self.several = Several::default();
            self.speaker = Some(Side::Server);
        }
        let is_early = self.is_early(side);
        let request_begin_seq = if side == Side::Client {
            let began = self.requests_end.or(self.packets[Side::Client as usize].map(|packet| packet.seq));
            self.requests_end = began.map(|began| began.wrapping_add(count as u32));
            began
        } else {
            None
        };
        match (side, self.speaker) {
            (Side::Client, Some(Side::Client)) => {
                if let Some(e) = &mut self.current {
                    e.op.request_bytes = e.op.request_bytes.saturating_add(bytes);
                    (e.request.ended, e.request.last_frame) = (stamp, at.frame);
                }
            }
            (Side::Client, _) => {
                // The client did not wait for all of the answer.
                let overlaps = self.is_pipelined || is_early && self.current.is_some();
                if let Some(e) = &mut self.current {
                    e.overlaps |= overlaps;
                }
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
                let (request, key) = (passage, self.key);
                let mut exchange =
                    Exchange { op, request, request_begin_seq, overlaps, key, ..Exchange::default() };
                self.pace.begin(&mut exchange, at, at);
                self.current = Some(exchange);
                self.received = self.packets[Side::Client as usize].map(|packet| packet.ack);
            }
            (Side::Server, _) => {
                // A server's greeting, before any request, is not a response.
                let Some(e) = &mut self.current else {
                    self.speaker = self.speaker.and(Some(side));
                    return;
                };
                // The server did not wait for all of the request.
                e.overlaps |= is_early;
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

    /// Ends the turn at hand: the response, if any, is complete.
    pub(crate) fn end(&mut self, observer: &mut impl Observer) {
        self.note_several();
        let Some(mut exchange) = self.current.take() else { return };
        let Some(read_ns) = exchange.read_ns() else { return };
        exchange.op.kind = match (exchange.op.request_bytes, exchange.op.response_bytes) {
            (request, response) if response > request => OpKind::Read,
            (request, response) if request > response => OpKind::Write,
            _ => OpKind::Other,
        };
        exchange.op.data_bytes = exchange.op.request_bytes.max(exchange.op.response_bytes);
        self.pace.message(Side::Server);
        self.pace.end(At { ns: read_ns, frame: exchange.response.last_frame });
        observer.exchange(&exchange);
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        self.note_several();
        let unanswered = self.current.filter(|e| !e.response.ended.is_known());
        unanswered.iter().for_each(|exchange| observer.unanswered(exchange));
        self.end(observer);
        Counted {
            unanswered: u64::from(unanswered.is_some()),
            abandoned: self.abandoned,
            ..Counted::default()
        }
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
            // Several requests may be one turn: the others were there before the first one's answer.
            Some(exchange) if stall.kind == StallKind::AckClocked && began_before(stall, exchange) => {
                self.pace.batched(stall);
            }
            _ => self.pace.stalled(stall),
        }
    }
}
