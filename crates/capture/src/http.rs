//! One HTTP/1.1 connection (RFC 9112): requests and responses, with or without pipelining.

mod first_line;
mod message;
pub(crate) mod path;
pub(crate) mod resume;

use std::collections::VecDeque;

use record::{Exchange, Key, Op, OpKind, Outcome, Passage, Side, Stall, Stamp, Status, Verb, Word};

use crate::decode::{self, Shown, Upgraded};
use crate::follow::MessageState;
use crate::http::first_line::Asked;
use crate::http::message::{Event, Messages, Start};
use crate::http::path::Path;
pub(crate) use crate::http::resume::Mark;
use crate::http::resume::{Begun, Match, Order, before_last_batch, distance};
use crate::in_flight::{Pace, continue_awaited, delay, is_of_all, slow_data};
use crate::observer::{Counted, Observer};
use crate::packet::At;
use crate::recovery::{Bursts, Moment, Recovery, Silence, Unseen};
use crate::stream::Absent;

/// Most requests in flight on one connection; a client that pipelines more gets no answers at all.
const IN_FLIGHT_MAX: usize = 65_536;
/// The status with which a server asks for a request's body.
const CONTINUE: u16 = 100;

/// An HTTP connection as a capture point sees it.
#[derive(Debug)]
pub(crate) struct Http {
    requests: Messages,
    responses: Messages,
    pairing: Pairing,
    /// Changes of direction since a message began, and the side that sent last.
    turns_without: u32,
    speaker: Option<Side>,
}

/// Changes of direction without a message's beginning after which a stream is not HTTP: each request and each response begins
/// with a line of its own, so that even a long hole hides few.
const TURNS_WITHOUT_MAX: u32 = 16;

/// Requests waiting for their responses.
#[derive(Debug, Default)]
struct Pairing {
    connection: u32,
    number: u32,
    /// The current request, whose head has passed.
    current: Option<Exchange>,
    waiting: VecDeque<Exchange>,
    /// The marks of the waiting requests and of the current one.
    marks: VecDeque<Mark>,
    current_mark: Mark,
    /// What its client had received when it sent the newest request.
    last_ack: Option<u32>,
    unseen: Unseen,
    silence: Silence,
    /// Answers are missing, and none has come since: those of requests that are missing, too, may be among them.
    has_lost_answers: bool,
    /// The mark of the packet with the last byte of the newest waiting request.
    last_mark: Mark,
    shown: Shown,
    /// The key that was named last.
    last_key: Key,
    /// The packet at hand of each side.
    packets: [Mark; 2],
    /// The next response may be that of another request than the oldest: something is not in the capture.
    is_resuming: bool,
    /// The current response has no request.
    is_orphan: bool,
    /// Sequence number behind the last response that was paired.
    known_end: Option<u32>,
    order: Order,
    /// Requests of the client are missing, and the next ones may have left together with them.
    has_lost_requests: bool,
    /// The acknowledgement number of requests that may have done so: they are left out.
    left_with_lost: Option<u32>,
    /// What the server had received when it began a response, since the last request, that answers none of those seen.
    unasked_ack: Option<u32>,
    /// Sequence number behind the client's bytes up to the hole at hand, once it is known.
    requests_end: Option<u32>,
    bursts: Bursts,
    /// Behind a hole: nothing is paired.
    recovery: Option<Recovery>,
    /// Whether the request of the response that begins has been found, once it has been looked for.
    is_found: Option<bool>,
    /// The current response: when it began, and its status.
    response: Option<(Passage, u16)>,
    /// When the server's last bytes passed.
    heard: Stamp,
    /// Messages that began.
    began: u64,
    has_ended_by_agreement: bool,
    /// Whether what follows is WebSocket, if that is visible.
    is_websocket: Option<bool>,
    /// Whether the newest request asks for it, if that is visible.
    asks_websocket: Option<bool>,
    /// The request that 101 answered.
    upgraded: Option<Upgraded>,
    responses_from: u32,
    /// The sequence number behind the server's bytes so far, when the client's packet at hand came.
    responses_end: u32,
    /// Sequence number of the client's first byte, once it has sent some.
    requests_from: Option<u32>,
    /// The server had received what is not in the capture, when it sent the packet at hand.
    is_behind_unseen: bool,
    /// A request was in a hole behind those that wait.
    has_unseen_request: bool,
    /// A snap length has cut a request within its head: the rest of the packet may hold further requests.
    has_cut_requests: bool,
    /// An answer has come that no request explains, so a cut packet held further ones: which answer is whose does not show any more.
    hides_requests: bool,
    /// Sequence number of the next byte of the responses, or of the TLS record that begins with it.
    response_seq: u32,
    /// Place of the first byte of the server's TLS record at hand, and the record's sequence number.
    record: Option<(u64, u32)>,
    pace: Pace,
    counted: Counted,
    /// The server has asked for the body (100 Continue), and none of it has come since.
    is_asked: bool,
    /// When the client's packet at hand passed.
    packet_at: Option<At>,
    /// The client waits for 100 Continue since its last bytes passed, and nothing has come since.
    awaits_continue: Option<At>,
}

impl Http {
    pub(crate) fn new(connection: u32, in_the_middle: bool) -> Self {
        Self {
            requests: Messages::new(Side::Client, in_the_middle),
            responses: Messages::new(Side::Server, in_the_middle),
            pairing: Pairing { connection, is_resuming: in_the_middle, ..Pairing::default() },
            turns_without: 0,
            speaker: None,
        }
    }

    /// The same, with paths shown so.
    pub(crate) fn showing(mut self, shown: Shown) -> Self {
        self.pairing.shown = shown;
        self
    }

    /// HTTP after turns on the same connection, which had this pace.
    pub(crate) fn after(connection: u32, pace: Pace) -> Self {
        let http = Self::new(connection, true);
        Self { pairing: Pairing { pace, ..http.pairing }, ..http }
    }

    /// Whether both sides have agreed to speak something else (RFC 9110 7.8, 9.3.6): a tunnel, or another protocol.
    pub(crate) fn has_ended_by_agreement(&self) -> bool {
        self.pairing.has_ended_by_agreement
    }

    /// Whether they have agreed on WebSocket, if that is visible.
    pub(crate) fn becomes_websocket(&self) -> Option<bool> {
        self.pairing.is_websocket
    }

    /// The request whose answer has the protocol that follows (RFC 9110 7.8).
    pub(crate) fn upgraded(&self) -> Option<Upgraded> {
        self.pairing.upgraded
    }

    /// Whether the stream shows that it is not HTTP.
    pub(crate) fn is_contradicted(&self) -> bool {
        // While a body is being sent, the server may answer in as many pieces as it likes.
        self.turns_without > TURNS_WITHOUT_MAX && !self.requests.is_in_body()
    }

    /// The pace for the protocol that follows, and the sequence number behind the server's bytes.
    pub(crate) fn into_pace(mut self, at: At) -> (Pace, u32) {
        let open = self.pairing.waiting.len() + usize::from(self.pairing.current.is_some());
        self.pairing.pace.forget(open, at);
        self.pairing.pace.interrupted();
        (self.pairing.pace, self.pairing.responses_from.wrapping_add(self.responses.offset() as u32))
    }

    /// Whether the bytes may begin a message of that side.
    pub(crate) fn is_spoken(side: Side, bytes: &[u8]) -> bool {
        message::may_begin(side, bytes)
    }

    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.pairing.responses_from = seq.wrapping_sub(self.responses.offset() as u32);
    }

    /// The server's next bytes are the first of a TLS record that begins at this sequence number.
    pub(crate) fn record_begins_at(&mut self, seq: u32) {
        self.pairing.record = Some((self.responses.offset(), seq));
    }

    /// The client's next bytes have this sequence number.
    pub(crate) fn requests_begin_at(&mut self, seq: u32) {
        self.pairing.requests_from = Some(seq.wrapping_sub(self.requests.offset() as u32));
    }

    /// Bytes come whose front is that of a segment, even if they do not come at once.
    pub(crate) fn front(&mut self, side: Side, bytes: &[u8]) {
        match side {
            Side::Client => self.requests.front(bytes),
            Side::Server => self.responses.front(bytes),
        }
    }

    /// An unknown number of bytes of the side is missing.
    pub(crate) fn lose(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        let Self { requests, responses, pairing, .. } = self;
        match side {
            Side::Client => requests.lose(at, &mut |event| pairing.request(event, observer)),
            Side::Server => responses.lose(at, &mut |event| pairing.response(event, observer)),
        }
    }

    /// Something of the server has passed that is of no response.
    pub(crate) fn passed_behind(&mut self, from: u32, to: u32) {
        if self.pairing.known_end == Some(from) {
            self.pairing.known_end = Some(to);
        }
    }

    /// A packet with data is about to be processed.
    pub(crate) fn packet(&mut self, side: Side, mark: Mark) {
        self.pairing.packets[side as usize] = mark;
    }

    /// Processes the next bytes of a side, the payload of one segment, and returns how many of them were HTTP: all, unless the
    /// protocol ends.
    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) -> usize {
        self.turn(side);
        let began = self.pairing.began;
        let Self { requests, responses, pairing, .. } = self;
        let mut taken = 0;
        match side {
            Side::Client => {
                if message::may_begin(side, bytes) {
                    responses.end_cut(|event| pairing.response(event, observer));
                } else if requests.message_state() == MessageState::Nothing
                    && pairing.asks_websocket == Some(true)
                    && decode::begins_a_websocket_frame(side, bytes)
                {
                    pairing.upgrade_unseen(at);
                    return 0;
                }
                pairing.solicited(bytes.len(), at, observer);
                let offset = requests.offset() as u32;
                let seq = pairing.packets[Side::Client as usize].seq;
                pairing.requests_from.get_or_insert(seq.wrapping_sub(offset));
                pairing.responses_end = pairing.responses_from.wrapping_add(responses.offset() as u32);
                requests.bytes(bytes, at, |event| pairing.request(event, observer));
                pairing.silence.sent(at.ns);
                if requests.message_state() != MessageState::Header {
                    pairing.awaits_continue = None;
                }
                taken = bytes.len();
            }
            Side::Server => {
                pairing.heard = Stamp::at(at.ns);
                pairing.silence.sent(at.ns);
                pairing.note_unseen(requests.offset());
                requests.end_cut(|event| pairing.request(event, observer));
                while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
                    pairing.response_seq =
                        resume::begin_seq(responses.offset(), pairing.responses_from, pairing.record);
                    if responses.begins(rest) {
                        // Whether it has a body depends on its request.
                        pairing.is_found = Some(pairing.find(at));
                    }
                    let asked = pairing.next_asked();
                    taken += responses.one(rest, at, asked, |event| pairing.response(event, observer));
                    if pairing.has_ended_by_agreement {
                        break;
                    }
                }
            }
        }
        if self.pairing.began != began {
            self.turns_without = 0;
        }
        taken
    }

    /// Counts a change of direction.
    fn turn(&mut self, side: Side) {
        if self.speaker.replace(side) != Some(side) {
            self.turns_without += 1;
        }
    }

    pub(crate) fn missing(
        &mut self,
        side: Side,
        absent: Absent,
        count: u64,
        at: At,
        observer: &mut impl Observer,
    ) {
        self.turn(side);
        let Self { requests, responses, pairing, .. } = self;
        pairing.silence.missing();
        match side {
            Side::Client => {
                let end = requests.offset().wrapping_add(count) as u32;
                pairing.requests_end = pairing.requests_from.map(|from| from.wrapping_add(end));
                requests.missing(absent, count, at, |event| pairing.request(event, observer));
                pairing.has_cut_requests |= requests.is_cut();
            }
            Side::Server => {
                responses.missing(absent, count, at, |event| pairing.response(event, observer));
            }
        }
    }

    /// A side has closed its stream: a response without a length ends here (RFC 9112 6.3).
    pub(crate) fn closed(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        let Self { requests, responses, pairing, .. } = self;
        if side == Side::Server {
            requests.end_cut(|event| pairing.request(event, observer));
            responses.closed(at, |event| pairing.response(event, observer));
        }
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        let Self { requests, responses, pairing, .. } = self;
        requests.end_cut(|event| pairing.request(event, observer));
        responses.end_cut(|event| pairing.response(event, observer));
        pairing.begin_answer();
        if self.pairing.is_resuming {
            // Their responses may be what is missing.
            self.pairing.counted.abandoned += self.pairing.waiting.len() as u64;
            self.pairing.waiting.clear();
        }
        self.pairing.waiting.iter().chain(&self.pairing.current).for_each(|e| observer.unanswered(e));
        Counted {
            boundaries_lost: self.requests.lost + self.responses.lost,
            skipped_bytes: self.requests.skipped_bytes + self.responses.skipped_bytes,
            unanswered: self.pairing.waiting.len() as u64 + u64::from(self.pairing.current.is_some()),
            ..self.pairing.counted
        }
    }

    /// Whether a side is in a body whose length is known.
    pub(crate) fn has_rest(&self, side: Side) -> bool {
        match side {
            Side::Client => self.requests.has_rest(),
            Side::Server => self.responses.has_rest(),
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
    fn request(&mut self, event: Event<'_>, observer: &mut impl Observer) {
        match event {
            Event::Began(at) => {
                self.began += 1;
                self.unasked_ack = None;
                self.has_unseen_request &= !self.waiting.is_empty();
                self.current_mark = self.packets[Side::Client as usize];
                let is_paired = self.is_paired(at);
                self.unseen.asked();
                if !is_paired {
                    self.counted.abandoned += 1;
                    return;
                }
                let passage = Passage::begin(at.ns, at.frame);
                self.number = self.number.wrapping_add(1);
                let op = Op { connection: self.connection, tag: self.number, ..Op::default() };
                let mut exchange = Exchange { op, request: passage, ..Exchange::default() };
                self.pace.begin(&mut exchange, at, at);
                self.current = Some(exchange);
            }
            Event::Head(Start::Request { method, awaits_continue, asks_websocket }) => {
                self.asks_websocket = asks_websocket;
                if let Some(exchange) = &mut self.current {
                    exchange.op.verb = Verb::Http(method);
                }
                // Behind earlier requests, their answers are what comes first.
                let is_alone = awaits_continue && self.waiting.is_empty();
                self.awaits_continue = self.packet_at.filter(|_| is_alone);
            }
            Event::Target(target) => {
                let path = if self.shown.verbatim { Path::verbatim(target) } else { Path::of(target) };
                if std::mem::replace(&mut self.last_key, path.key()) != path.key() {
                    observer.named(path.key(), path.text());
                }
                if let Some(exchange) = &mut self.current {
                    exchange.key = path.key();
                }
            }
            Event::Head(Start::Response { .. }) => {}
            Event::Ended { at, bytes, body_bytes, .. } => {
                self.pace.message(Side::Client);
                if let Some(recovery) = &mut self.recovery {
                    recovery.asked();
                }
                let Some(mut exchange) = self.current.take() else { return };
                (exchange.request.ended, exchange.request.last_frame) = (Stamp::at(at.ns), at.frame);
                exchange.op.request_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                exchange.op.data_bytes = u32::try_from(body_bytes).unwrap_or(u32::MAX);
                if exchange.asked_for_data.is_known() {
                    exchange.data_ended = Stamp::at(at.ns);
                }
                exchange.op.kind = if body_bytes > 0 { OpKind::Write } else { OpKind::Read };
                if self.waiting.len() >= IN_FLIGHT_MAX || !self.pace.room.has_place(self.waiting.len()) {
                    self.forget_waiting(at);
                }
                if self.waiting.is_empty() && self.waiting.capacity() > SHRUNK_FROM {
                    self.waiting.shrink_to(0);
                }
                self.waiting.push_back(exchange);
                self.marks.push_back(self.current_mark);
                // What a snap length cut is found to have ended when something else comes.
                let is_at_hand = self.packet_at.is_some_and(|packet| packet.ns == at.ns);
                self.last_mark =
                    if is_at_hand { self.packets[Side::Client as usize] } else { self.current_mark };
            }
            Event::Lost(at) => {
                // From here on an answer may be that of a request in a hole.
                self.has_cut_requests = false;
                self.is_resuming = true;
                self.has_unseen_request |= !self.waiting.is_empty();
                let is_certain = !self.order.has_hole && self.recovery.is_none() && !self.has_lost_answers;
                self.forget_request(at);
                // A hole shows late: what it held may have been answered already, as far as the server had it.
                let has_had = |ack| self.requests_end.is_none_or(|end| distance(ack, end) >= 0);
                let are_answered = self.unasked_ack.is_some_and(has_had);
                self.has_lost_requests = !self.bursts.are_single() && !are_answered;
                if is_certain && !are_answered {
                    // At least one is in the hole.
                    self.unseen.missing(self.waiting.len() + 1);
                }
                self.lost_order(at);
            }
        }
    }

    /// Whether the request that begins is paired with its answer.
    fn is_paired(&mut self, at: At) -> bool {
        let is_silent = self.silence.sent(at.ns);
        if let Some(recovery) = &mut self.recovery {
            if recovery.begins(is_silent) != Moment::Idle {
                return false;
            }
            self.recovery = None;
            (self.order.has_hole, self.is_resuming, self.known_end) = (false, false, None);
        }
        let is_asking_again = self.last_ack.replace(self.current_mark.ack) != Some(self.current_mark.ack);
        if self.hides_requests {
            return false;
        }
        if std::mem::take(&mut self.has_lost_requests) {
            self.left_with_lost = Some(self.current_mark.ack);
        }
        if self.left_with_lost == Some(self.current_mark.ack) {
            // Which of the next answers are those of the missing ones does not show.
            return false;
        }
        self.left_with_lost = None;
        let has_received_unseen = distance(self.current_mark.ack, self.responses_end) > 0;
        if is_asking_again && self.unseen.is_asked_before_all_answers(has_received_unseen) {
            self.order.is_overlapped = true;
            self.recover(at);
            return false;
        }
        let newest = self.marks.back().map(|&mark| [mark, self.last_mark]);
        let marks = self.marks.iter().copied();
        let waits = || self.bursts.have_ended(resume::most_together(marks));
        match self.order.begins(self.current_mark, newest, self.known_end, waits) {
            Begun::Plain => true,
            Begun::AllAnswered => {
                self.forget_waiting(at);
                self.known_end = Some(self.current_mark.ack);
                self.is_resuming = true;
                true
            }
            Begun::Late => false,
            Begun::Unsure => {
                self.recover(at);
                false
            }
        }
    }

    /// Something is missing: a client that sends on without waiting does not show how many answers or requests.
    fn lost_order(&mut self, at: At) {
        self.order.has_hole |= !self.waiting.is_empty();
        if self.order.is_overlapped {
            self.recover(at);
        }
    }

    fn recover(&mut self, at: At) {
        let in_flight = self.waiting.len().max(self.unseen.take());
        let marks = self.marks.iter().copied();
        let together = resume::most_together(marks);
        self.forget_request(at);
        self.forget_waiting(at);
        self.recovery = Some(Recovery::new(&self.bursts, self.order.is_overlapped, in_flight, together));
    }

    fn forget_waiting(&mut self, at: At) {
        self.counted.abandoned += self.waiting.len() as u64;
        self.pace.forget(self.waiting.len(), at);
        self.waiting.clear();
        self.marks.clear();
    }

    /// Notes in its request how far the current response has come, which does not end any more.
    fn begin_answer(&mut self) {
        let Some((passage, _)) = self.response.take().filter(|_| !self.is_orphan) else { return };
        if let Some(exchange) = self.waiting.front_mut().or(self.current.as_mut()) {
            exchange.response = Passage { ended: self.heard, ..passage };
        }
    }

    /// Bytes of the client have come: the first ones that the server asked for may be late.
    fn solicited(&mut self, bytes: usize, at: At, observer: &mut impl Observer) {
        self.packet_at = Some(at);
        if let (Some(since), Some(exchange)) = (self.awaits_continue.take(), &mut self.current)
            && let Some(stall) = continue_awaited(exchange, since, at, bytes as u32)
        {
            delay(exchange, &stall);
            observer.stall(&stall);
        }
        if !std::mem::take(&mut self.is_asked) {
            return;
        }
        let Some(exchange) = &mut self.current else { return };
        if let Some(stall) = slow_data(exchange, at.ns, at.frame, bytes as u32) {
            delay(exchange, &stall);
            observer.stall(&stall);
        }
    }

    /// Drops the current request, which cannot be followed.
    fn forget_request(&mut self, at: At) {
        if self.current.take().is_some() {
            self.counted.abandoned += 1;
            self.pace.forget(1, at);
        }
    }

    fn response(&mut self, event: Event<'_>, observer: &mut impl Observer) {
        match event {
            Event::Began(at) => {
                self.began += 1;
                self.awaits_continue = None;
                self.has_lost_answers = false;
                // The missing ones are answered: the next requests do not leave with them.
                self.has_lost_requests = false;
                let response = self.response_mark();
                // Those of requests that were left out tell nothing of holes to come.
                if self.waiting.is_empty() && self.current.is_none() && self.left_with_lost.is_none() {
                    self.unasked_ack = Some(response.ack);
                }
                let passage = Passage::begin(at.ns, at.frame);
                self.response = Some((passage, 0));
                if self.waiting.is_empty()
                    && self.current.is_none()
                    && !self.is_resuming
                    && self.recovery.is_none()
                {
                    self.order.unasked(response);
                }
                let is_found = self.is_found.take().unwrap_or_else(|| self.find(at));
                self.is_orphan = !is_found || self.is_unread();
            }
            Event::Head(Start::Response { status, is_websocket }) => {
                if status == 101 {
                    // Where its head was cut, the request shows what it is for.
                    self.is_websocket = is_websocket.or(self.asks_websocket);
                }
                if let Some((_, known)) = &mut self.response {
                    *known = status;
                }
            }
            Event::Head(Start::Request { .. }) | Event::Target(_) => {}
            Event::Ended { at, bytes, body_bytes, offset, chunks } => {
                let Some((passage, status)) = self.response.take() else { return };
                let next = self.waiting.front().or(self.current.as_ref());
                let is_tunnel =
                    (200..300).contains(&status) && next.is_some_and(|e| e.op.verb == Verb::Http(CONNECT));
                // 101 is the answer of the new protocol's request.
                self.has_ended_by_agreement |= status == 101 || is_tunnel;
                if (100..200).contains(&status) && status != 101 {
                    // Not the final response: 100 Continue solicits the body.
                    // A body that is on its way already was not waited for.
                    self.is_asked = status == CONTINUE && self.waiting.is_empty();
                    if let Some(exchange) = self.waiting.front_mut().or(self.current.as_mut()) {
                        exchange.asked_for_data = Stamp::at(at.ns);
                    }
                    return;
                }
                self.pace.message(Side::Server);
                self.unseen.answered();
                if let Some(recovery) = &mut self.recovery {
                    recovery.answered();
                    return;
                }
                if std::mem::take(&mut self.is_orphan) {
                    self.counted.unmatched += 1;
                    return;
                }
                self.marks.pop_front();
                // A response (an error) may come before the end of the request.
                let Some(mut exchange) = self.waiting.pop_front().or_else(|| self.current.take()) else {
                    self.counted.unmatched += 1;
                    self.hides_requests |= self.has_cut_requests && !self.is_behind_unseen;
                    return;
                };
                let ended = Stamp::at(at.ns);
                let took_ns = ended.since(exchange.request.began).unwrap_or(0);
                self.silence.answered(u64::try_from(took_ns).unwrap_or(0));
                exchange.response = Passage { ended, last_frame: at.frame, ..passage };
                exchange.op.response_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                exchange.op.data_bytes =
                    exchange.op.data_bytes.max(u32::try_from(body_bytes).unwrap_or(u32::MAX));
                exchange.op.outcome = if status >= 400 { Outcome::Failed } else { Outcome::Good };
                exchange.chunks.written = chunks;
                exchange.status = Status::Http(status);
                exchange.error = exchange.status.error();
                exchange.response_end_seq = self.responses_from.wrapping_add(offset as u32);
                self.known_end = Some(exchange.response_end_seq);
                let in_flight = self.waiting.len() + usize::from(self.current.is_some());
                self.bursts.answered(in_flight + usize::from(self.is_behind_unseen || self.unseen.are_any()));
                self.order.has_hole &= !self.waiting.is_empty();
                self.pace.end(at);
                if status == 101 {
                    self.upgraded = Some(Self::upgrade(&exchange));
                }
                observer.exchange(&exchange);
            }
            Event::Lost(at) => {
                // Which responses are missing shows the next one.
                self.response = None;
                self.has_lost_answers = true;
                self.is_orphan = false;
                self.is_resuming = true;
                self.unseen.forget();
                self.pace.interrupted();
                self.lost_order(at);
            }
        }
    }

    /// Where the response at hand begins, and what its server had received.
    fn response_mark(&self) -> Mark {
        Mark { seq: self.response_seq, ack: self.packets[Side::Server as usize].ack }
    }

    /// Whether the server had nothing of the oldest request when it sent the response at hand.
    fn is_unread(&self) -> bool {
        let oldest = self.marks.front().copied().or(self.current.is_some().then_some(self.current_mark));
        oldest.is_some_and(|oldest| resume::is_unread(oldest, self.response_mark()))
    }

    /// The request that the next response answers.
    fn next_asked(&self) -> Asked {
        if self.is_unread() || self.is_found == Some(false) {
            return Asked::Other;
        }
        match self.waiting.front().or(self.current.as_ref()).map(|next| next.op.verb) {
            Some(Verb::Http(HEAD)) => Asked::Head,
            Some(Verb::Http(CONNECT)) => Asked::Connect,
            _ => Asked::Other,
        }
    }

    /// Notes whether the server had received what is not in the capture, when it sent the packet at hand; `offset` is the number of bytes
    /// of the client so far.
    fn note_unseen(&mut self, offset: u64) {
        let end = self.requests_from.map(|from| from.wrapping_add(offset as u32));
        let ack = self.packets[Side::Server as usize].ack;
        self.is_behind_unseen = end.is_some_and(|end| distance(ack, end) > 0);
    }

    /// The client goes on in WebSocket, which it has asked for: the answer is in a hole.
    fn upgrade_unseen(&mut self, at: At) {
        self.upgraded = self.waiting.back().map(Self::upgrade);
        self.forget_waiting(at);
        (self.is_websocket, self.has_ended_by_agreement) = (Some(true), true);
    }

    fn upgrade(exchange: &Exchange) -> Upgraded {
        Upgraded { operation: Word::new(exchange.op.verb.name().as_bytes()), key: exchange.key }
    }

    /// Finds the request of a response that begins. False if it answers none of those seen.
    fn find(&mut self, at: At) -> bool {
        self.recovery.is_some() || !self.is_resuming || self.resume(at)
    }

    /// Drops the requests that were answered where nothing was captured, before a response that begins. False if it answers
    /// none of those seen.
    fn resume(&mut self, at: At) -> bool {
        let response = self.response_mark();
        let is_current = self.waiting.is_empty() && self.current.is_some();
        match resume::find(&self.marks, self.known_end, response) {
            Match::Behind(answered) => {
                let is_batched = !self.order.is_overlapped;
                let batch = if is_batched { before_last_batch(&self.marks, response.seq) } else { 0 };
                let answered = answered.max(batch).min(self.waiting.len());
                self.counted.abandoned += answered as u64;
                self.pace.forget(answered, at);
                self.waiting.drain(..answered);
                self.marks.drain(..answered);
                let is_next = self.marks.front().is_none_or(|first| first.ack == response.seq);
                let is_anyones = !is_next && (self.is_behind_unseen || self.has_unseen_request);
                let candidates = resume::candidates(&self.marks, response);
                if candidates > 1 || is_anyones {
                    // Which of the requests that left together it answers does not show, or whether it is that of one in a hole: all of
                    // them are left out.
                    let candidates = if is_anyones { usize::MAX } else { candidates };
                    let waiting = candidates.min(self.waiting.len());
                    self.counted.abandoned += waiting as u64;
                    self.pace.forget(waiting, at);
                    self.waiting.drain(..waiting);
                    self.marks.drain(..waiting.min(self.marks.len()));
                    return false;
                }
                self.is_resuming = false;
                true
            }
            Match::Orphan => is_current,
        }
    }
}

/// Requests beyond which a burst does not keep its memory.
const SHRUNK_FROM: usize = 1024;

const HEAD: Word = Word::new(b"HEAD");
const CONNECT: Word = Word::new(b"CONNECT");

#[cfg(test)]
mod tests;
