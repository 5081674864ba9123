//! The requests of a decoded connection: paired with their answers, by order or by number.

mod beginning;
mod doubt;
mod given_up;
mod holes;
mod in_order;
mod turn;
mod undecided;
mod unpaired;

use std::collections::{HashMap, HashSet, VecDeque};

use record::{
    Exchange, Key, Op, OpKind, Outcome, Passage, Side, Stall, StallKind, Stamp, Status, Verb, Word,
};

use super::Upgraded;
use crate::http::Mark;
use crate::http::resume::{self, Match, Order, before_last_batch};
use crate::in_flight::{Pace, delay, is_of_all};
use crate::observer::{Counted, Observer};
use crate::packet::At;
use crate::recovery::{Bursts, Recovery, Silence, Unseen};
use beginning::Beginning;
use undecided::Undecided;
use unpaired::{Answer, Fits, Unpaired};

/// Most requests in flight on one connection whose details are kept.
const IN_FLIGHT_MAX: usize = 65_536;
/// Most keys that are known to have been named.
const NAMED_MAX: usize = 256;

/// Shorter waits of a protocol's own are too many to be reported one by one, nanoseconds.
const HELD_NS: u64 = 1_000_000;

/// Which request a message belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Requests are answered in their order: a request's message belongs to the newest one, an answer's to the oldest.
    Order,
    /// The number that request and answer carry.
    Id(u64),
}

/// What a request asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// Its operation.
    pub(crate) operation: Word,
    /// What it is for, as far as it may be shown; empty: unknown.
    pub(crate) key: &'a str,
    /// Its stream, if its connection carries several.
    pub(crate) stream: u32,
}

impl Asked<'_> {
    /// An operation without a key.
    pub(crate) fn only(operation: Word) -> Self {
        Self { operation, key: "", stream: 0 }
    }
}

/// The message at hand, as it passed.
#[derive(Clone, Copy, Debug, Default)]
struct Passing {
    began: At,
    ended: At,
    bytes: u64,
    /// Sequence numbers of its first byte, or of the TLS record that begins with it, and behind it.
    begin_seq: u32,
    end_seq: u32,
    /// Numbers of the packet with its first byte.
    mark: Mark,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Open {
    exchange: Exchange,
    mark: Mark,
    /// Of the packet with its last bytes so far: the server cannot have answered it before it had that.
    last_mark: Mark,
    bytes: [u64; 2],
    is_complete: bool,
    /// Whether no answer needs to be seen.
    is_excused: bool,
    /// Whether its answer may be in a hole.
    is_doubtful: bool,
    /// Whether the first part of its answer may be in a hole, and not the last one.
    may_lack_part: bool,
}

/// Requests in flight.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    connection: u32,
    number: u32,
    /// The end of the handshake.
    pub(super) connected: Option<(At, Mark)>,
    passing: Passing,
    /// The client's packet at hand, or its last one.
    pub(super) last_packet: Mark,
    pub(super) silence: Silence,
    /// The message at hand follows a silence.
    is_silent: bool,
    /// The server's last packet.
    answering: Option<Mark>,
    /// The same, if the server had received all missing requests when it sent that packet.
    received_lost: Option<Mark>,
    /// The newest request in order has begun and is not complete.
    is_asking: bool,
    queue: VecDeque<Open>,
    /// The oldest requests whose details were given up because they are too many: their answers are still to come.
    given_up: u64,
    by_id: HashMap<u64, Open, foldhash::fast::RandomState>,
    /// Those that were answered in a hole, most likely.
    set_aside: HashMap<u64, Open, foldhash::fast::RandomState>,
    /// Some of them are in doubt.
    has_doubtful: bool,
    /// Answers of theirs may be missing, and none has been seen since.
    is_missing_answers: bool,
    /// How many of these have been answered in holes, at most.
    answered_unseen: usize,
    /// Requests were in a hole while some of them were in flight.
    has_unseen: bool,
    /// One that is answered in order was in a hole behind those in flight.
    has_unseen_request: bool,
    /// The acknowledgement number of the last request in order, how many left with it, and the most that left with one.
    last_ack: u32,
    together: usize,
    most_together: usize,
    /// Its client had received more than the one before.
    is_asking_again: bool,
    unseen: Unseen,
    /// Answers are missing, and none has come since: those of requests that are missing, too, may be among them.
    has_lost_answers: bool,
    /// Requests that are answered in order are missing, and the next ones may have left together with them.
    has_lost_requests: bool,
    /// The acknowledgement number of requests that may have done so: they are left out.
    left_with_lost: Option<u32>,
    /// The newest request in order is not paired: what follows is not of the one before it.
    is_left_out: bool,
    /// What the server had received when it sent an answer, since the last request, that is of none of those seen.
    unasked_ack: Option<u32>,
    /// The next answer may be that of another request than the oldest.
    is_resuming: bool,
    /// The answer at hand has no request.
    is_orphan: bool,
    /// Sequence number behind the last answer that was paired.
    known_end: Option<u32>,
    order: Order,
    /// Behind a hole: nothing is paired by its order.
    recovery: Option<Recovery>,
    /// Requests and answers since then, which are told once it is certain which belong together.
    undecided: Option<Undecided>,
    /// The newest request in order is one of these.
    is_undecided: bool,
    /// What has one answer, where several requests may have one together: those in flight, and how many answers there are from one
    /// moment without any to the next.
    units: usize,
    unit_bursts: Bursts,
    /// Its decoder tells them.
    has_units: bool,
    /// One has begun and is not complete.
    is_within_unit: bool,
    /// A hole has cut it, and may have taken requests of it.
    is_unit_cut: bool,
    /// The sender of the packet at hand had received what is not in the capture: a hole that shows itself later.
    pub(super) is_behind_unseen: bool,
    /// Requests were taken as answered in a hole since it was asked.
    has_skipped: bool,
    bursts: Bursts,
    /// The answers to the first requests of the queue, where it is not certain that they are.
    unpaired: Option<Unpaired>,
    /// How answers show what their requests may be.
    fits: Option<Fits>,
    /// Where the capture begins in the middle: what is not told yet.
    beginning: Option<Beginning>,
    pub(crate) pace: Pace,
    pub(crate) counted: Counted,
    done: Vec<Exchange>,
    /// Requests that their client has given up.
    given_up_on: Vec<Exchange>,
    /// The last turn of messages, whose answer may go on.
    latest: Option<Exchange>,
    held: Vec<Stall>,
    names: Vec<(Key, Box<str>)>,
    named: HashSet<Key, foldhash::fast::RandomState>,
    last_key: Key,
}

fn saturated(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// What moves more data.
fn kind_of(request: u32, response: u32) -> OpKind {
    match request.cmp(&response) {
        std::cmp::Ordering::Less => OpKind::Read,
        std::cmp::Ordering::Greater => OpKind::Write,
        std::cmp::Ordering::Equal => OpKind::Other,
    }
}

impl Requests {
    pub(super) fn new(connection: u32, pace: Pace, in_the_middle: bool) -> Self {
        let beginning = in_the_middle.then(Beginning::default);
        Self { connection, pace, is_resuming: in_the_middle, beginning, ..Self::default() }
    }

    /// The message at hand answers the connection itself, of which the handshake's end is the request. False if that was not seen.
    pub(crate) fn connect_is_answered(&mut self, operation: Word, status: Status) -> bool {
        let Some((at, mark)) = self.connected.take() else { return false };
        let answer = self.passing;
        self.passing = Passing { began: at, ended: at, bytes: 0, mark, ..answer };
        self.ask(Of::Order, &Asked::only(operation));
        self.asked(Of::Order);
        if let Some(asked) = self.queue.back_mut() {
            // It asked with its SYN, which the server had.
            asked.mark.seq = mark.seq.wrapping_sub(1);
        }
        self.passing = answer;
        self.answer(Of::Order);
        self.answered(Of::Order, status);
        true
    }

    /// The message at hand.
    pub(super) fn pass(
        &mut self,
        [began, ended]: [At; 2],
        bytes: u64,
        [begin_seq, end_seq]: [u32; 2],
        mark: Mark,
    ) {
        self.passing = Passing { began, ended, bytes, begin_seq, end_seq, mark };
        self.is_silent = self.silence.sent(began.ns);
        self.silence.sent(ended.ns);
    }

    /// Requests so far.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// When the message at hand ended.
    pub(crate) fn now(&self) -> At {
        self.passing.ended
    }

    /// When the message at hand began and ended.
    pub(crate) fn times(&self) -> [At; 2] {
        [self.passing.began, self.passing.ended]
    }

    /// The message at hand is a request, or the first of its messages. Returns the request's number.
    pub(crate) fn ask(&mut self, of: Of, asked: &Asked<'_>) -> u32 {
        let Passing { began, ended, bytes, mark, .. } = self.passing;
        let key = self.name(asked.key);
        self.number = self.number.wrapping_add(1);
        if of == Of::Order {
            self.is_asking = true;
            self.leaves(mark);
            self.is_left_out = !self.is_paired(mark);
            self.is_undecided = self.is_left_out && self.recovery.is_some() && self.undecided.is_some();
            if !self.has_units {
                self.unseen.asked();
            }
            if self.is_left_out {
                self.unit_of(Recovery::asked);
            }
            if self.is_left_out && !self.is_undecided {
                self.counted.abandoned += 1;
                return self.number;
            }
        }
        self.unasked_ack = None;
        let op = Op {
            connection: self.connection,
            tag: self.number,
            verb: Verb::Command(asked.operation),
            ..Op::default()
        };
        let request = Passage {
            ended: Stamp::at(ended.ns),
            last_frame: ended.frame,
            ..Passage::begin(began.ns, began.frame)
        };
        let request_begin_seq = Some(self.place().seq);
        let stream = asked.stream;
        let mut exchange = Exchange { op, request, request_begin_seq, key, stream, ..Exchange::default() };
        self.pace.begin(&mut exchange, began, ended);
        let open = Open {
            exchange,
            mark,
            last_mark: self.last_packet,
            bytes: [bytes, 0],
            is_complete: false,
            is_excused: false,
            is_doubtful: false,
            may_lack_part: false,
        };
        match of {
            Of::Order if self.is_undecided => self.is_undecided = self.keep_undecided(open),
            Of::Order => {
                self.has_unseen_request &= !self.queue.is_empty();
                let is_full = self.is_full();
                if is_full {
                    self.abandon_unpaired();
                }
                if is_full && self.queue.pop_front().is_some() {
                    self.given_up += 1;
                    self.counted.abandoned += 1;
                }
                self.queue.push_back(open);
            }
            Of::Id(id) => {
                if self.is_full() {
                    self.forget_all();
                }
                self.has_unseen &= !self.by_id.is_empty();
                if !self.set_aside.is_empty() && self.set_aside.remove(&id).is_some() {
                    self.counted.abandoned += 1;
                }
                if self.by_id.insert(id, open).is_some() {
                    // The number is used again: the one before has ended unseen.
                    self.counted.abandoned += 1;
                    self.pace.forget(1, ended);
                }
            }
        }
        self.number
    }

    /// Whether there is no room for one more request.
    fn is_full(&mut self) -> bool {
        let open = self.queue.len() + self.by_id.len();
        if open == 0 && self.queue.capacity() > IN_FLIGHT_MAX / 4 {
            // A burst does not keep its memory.
            self.queue.shrink_to(0);
        }
        open >= IN_FLIGHT_MAX || !self.pace.room.has_place(open)
    }

    /// Whether a decoder has room to remember what one more request awaits, beside so many.
    pub(crate) fn has_place(&mut self, beside: usize) -> bool {
        self.pace.room.has_place(beside.max(self.queue.len() + self.by_id.len()))
    }

    /// The message at hand is a request of another protocol, which is complete and whose key has been named.
    pub(crate) fn adopt(&mut self, of: Of, upgraded: Upgraded) {
        self.ask_for(of, upgraded.operation, upgraded.key);
        self.asked(of);
    }

    /// The key of a name, which is told to the observer.
    fn name(&mut self, name: &str) -> Key {
        if name.is_empty() {
            return Key::NONE;
        }
        let key = super::key_of(name.as_bytes());
        if key != self.last_key {
            self.last_key = key;
            if !self.named.contains(&key) {
                if self.named.len() >= NAMED_MAX {
                    self.named.clear();
                }
                self.named.insert(key);
                self.names.push((key, name.into()));
            }
        }
        key
    }

    fn newest(&mut self, of: Of) -> Option<&mut Open> {
        match of {
            Of::Order if self.is_undecided => self.undecided.as_mut()?.requests.back_mut(),
            Of::Order if self.is_left_out => None,
            Of::Order => self.queue.back_mut(),
            Of::Id(id) => self.by_id.get_mut(&id),
        }
    }

    fn oldest(&mut self, of: Of) -> Option<&mut Open> {
        match of {
            Of::Order => self.queue.get_mut(self.kept()),
            Of::Id(id) => self.by_id.get_mut(&id),
        }
    }

    /// Whether a request of this number is in flight, or any if they are in order.
    pub(crate) fn is_open(&self, of: Of) -> bool {
        match of {
            Of::Order => self.given_up > 0 || self.in_flight() > 0,
            Of::Id(id) => self.by_id.contains_key(&id),
        }
    }

    /// The operation of the oldest request in order.
    pub(crate) fn next_answered(&self) -> Option<Word> {
        self.operation(Of::Order)
    }

    /// The number of the newest request in order.
    pub(crate) fn newest_number(&self) -> Option<u32> {
        self.queue.back().filter(|_| !self.is_left_out).map(|open| open.exchange.op.tag)
    }

    /// The operation of the request that is answered next in order, or of the one with this number.
    pub(crate) fn operation(&self, of: Of) -> Option<Word> {
        let open = match of {
            Of::Order => self.queue.get(self.kept()),
            Of::Id(id) => self.by_id.get(&id),
        };
        match open?.exchange.op.verb {
            Verb::Command(name) => Some(name),
            _ => None,
        }
    }

    /// Drops the oldest requests in order up to the first that the answer at hand may be of, by its operation and number: the others
    /// have no answer. False, and nothing is dropped, if it can be of none.
    pub(crate) fn skip_to(&mut self, may_be_of: impl Fn(&str, u32) -> bool) -> bool {
        if self.is_resuming && !self.is_orphan {
            self.resume();
        }
        if self.is_orphan || self.given_up > 0 || self.recovery.is_some() || self.unpaired.is_some() {
            return true;
        }
        let is_answered = |open: &Open| match open.exchange.op {
            Op { verb: Verb::Command(name), tag, .. } => may_be_of(name.as_str(), tag),
            _ => false,
        };
        let Some(skipped) = self.queue.iter().position(is_answered) else {
            self.counted.unmatched += 1;
            return false;
        };
        if skipped > 0 {
            self.pace.forget(skipped, self.passing.ended);
            self.queue.drain(..skipped);
        }
        true
    }

    /// The message at hand is a further one of a request.
    pub(crate) fn ask_more(&mut self, of: Of) {
        let (Passing { ended, bytes, .. }, last_mark) = (self.passing, self.last_packet);
        if let Some(open) = self.newest(of) {
            open.bytes[0] += bytes;
            open.last_mark = last_mark;
            if open.exchange.response.began.is_known() {
                // The server has not waited for what comes behind its answer.
                return;
            }
            (open.exchange.request.ended, open.exchange.request.last_frame) =
                (Stamp::at(ended.ns), ended.frame);
            if open.exchange.asked_for_data.is_known() {
                open.exchange.data_ended = Stamp::at(ended.ns);
            }
        }
    }

    /// The message at hand asks for data of a request.
    pub(crate) fn asks_for_data(&mut self, of: Of) {
        let now = Stamp::at(self.passing.ended.ns);
        if let Some(open) = self.oldest(of)
            && !open.exchange.asked_for_data.is_known()
        {
            open.exchange.asked_for_data = now;
        }
    }

    /// Names what the newest request, or the one of this number, asks for.
    pub(crate) fn rename(&mut self, of: Of, asked: &Asked<'_>) {
        let key = self.name(asked.key);
        if let Some(open) = self.newest(of) {
            (open.exchange.op.verb, open.exchange.key) = (Verb::Command(asked.operation), key);
        }
    }

    /// Whether the newest request, or the one of this number, is held until an event comes, by its protocol: no work of the server.
    pub(crate) fn awaits_event(&mut self, of: Of, does: bool) {
        if let Some(open) = self.newest(of) {
            open.exchange.awaits_event = does;
        }
    }

    /// The request is complete with the message at hand.
    pub(crate) fn asked(&mut self, of: Of) {
        self.is_asking &= of != Of::Order;
        if let Some(open) = self.newest(of)
            && !std::mem::replace(&mut open.is_complete, true)
        {
            self.pace.message(Side::Client);
        }
    }

    /// The number of the request in order that the message at hand answers, found by the acknowledgements behind a hole.
    pub(crate) fn answering(&mut self) -> Option<u32> {
        if self.is_resuming && !self.is_orphan {
            self.resume();
        }
        self.queue.front().filter(|_| !self.is_orphan).map(|open| open.exchange.op.tag)
    }

    /// Whether requests have been taken as answered in a hole since this was asked: a decoder that remembers what each of them awaits
    /// finds the next one by [`Requests::answering`].
    pub(crate) fn has_skipped(&mut self) -> bool {
        std::mem::take(&mut self.has_skipped)
    }

    /// Whether the answer in order at hand is that of a request that was not seen.
    pub(crate) fn is_orphan(&self) -> bool {
        self.is_orphan
    }

    /// The message at hand follows the last answer, and belongs to none.
    pub(crate) fn passed_behind(&mut self) {
        self.known_end = Some(self.passing.end_seq);
    }

    /// Something of the server has passed that is of no message.
    pub(super) fn passed_between(&mut self, from: u32, to: u32) {
        if self.known_end == Some(from) {
            self.known_end = Some(to);
        }
    }

    /// How many of the oldest requests may not be paired with an answer behind a hole: it may be that of another one which left with
    /// them, or of one that was in a hole itself.
    fn doubtful(&self, response: Mark) -> usize {
        let marks: VecDeque<Mark> = self.queue.iter().map(|open| open.mark).collect();
        let is_next = marks.front().is_none_or(|first| first.ack == response.seq);
        if !is_next && (self.is_behind_unseen || self.has_unseen_request) {
            return marks.len();
        }
        // Answers that are kept tell it by their number.
        let candidates = if self.unpaired.is_some() { 1 } else { resume::candidates(&marks, response) };
        if candidates > 1 { candidates } else { 0 }
    }

    /// The message at hand is of an answer. False if its request was not seen.
    pub(crate) fn answer(&mut self, of: Of) -> bool {
        if of == Of::Order && self.is_resuming && !self.is_orphan {
            self.resume();
        }
        let Passing { began, ended, bytes, .. } = self.passing;
        if let (Of::Order, Some(undecided)) = (of, &mut self.undecided) {
            undecided.answers.part([began, ended], bytes);
            return false;
        }
        if of == Of::Order && self.kept() == 0 && self.recovery.is_none() && self.given_up == 0 {
            // What the server said before it had anything of the oldest request is no answer to it.
            self.is_orphan |= self.is_open(of) && !self.is_received(of);
        }
        if of == Of::Order && (self.is_orphan || self.given_up > 0) {
            return false;
        }
        if let (Of::Order, Some(unpaired)) = (of, &mut self.unpaired) {
            unpaired.answers.part([began, ended], bytes);
            return self.in_flight() > 0;
        }
        if let Of::Id(id) = of {
            if !self.set_aside.is_empty() {
                self.take_back(id);
            }
            if self.has_doubtful {
                self.settle_doubt(id);
            }
        }
        let Some(open) = self.oldest(of) else { return false };
        if !open.exchange.response.began.is_known() {
            open.exchange.response = Passage::begin(began.ns, began.frame);
        }
        open.bytes[1] += bytes;
        (open.exchange.response.ended, open.exchange.response.last_frame) =
            (Stamp::at(ended.ns), ended.frame);
        true
    }

    /// The answer is complete, with the messages so far.
    pub(crate) fn answered(&mut self, of: Of, status: Status) {
        let Passing { end_seq, ended, .. } = self.passing;
        self.has_lost_answers = false;
        if of == Of::Order && !self.has_units {
            self.unseen.answered();
        }
        let open = match of {
            Of::Order if self.recovery.is_some() => {
                self.keep_undecided_answer(status);
                return self.unit_of(Recovery::answered);
            }
            Of::Order if std::mem::take(&mut self.is_orphan) => None,
            Of::Order if self.given_up > 0 => {
                self.given_up -= 1;
                self.pace.ended_unseen(ended);
                return;
            }
            Of::Order if self.unpaired.is_some() => return self.keep(status),
            Of::Order => self.queue.pop_front(),
            Of::Id(id) => self.by_id.remove(&id),
        };
        self.pace.message(Side::Server);
        let Some(open) = open else {
            self.counted.unmatched += 1;
            if of == Of::Order {
                self.unasked();
            }
            return;
        };
        if !open.is_complete {
            self.pace.message(Side::Client);
        }
        if of == Of::Order {
            self.known_end = Some(end_seq);
            self.order.has_hole &= !self.queue.is_empty();
            self.bursts.answered(self.queue.len() + self.more_in_flight());
        }
        let Open { exchange: Exchange { response, .. }, bytes: [_, bytes], .. } = open;
        self.pace.end(At { ns: response.ended.ns().unwrap_or(ended.ns), ..ended });
        self.complete(
            open,
            Answer { response, bytes, status, end_seq, ..Answer::default() },
            of == Of::Order,
        );
    }

    /// A request has been answered.
    fn complete(&mut self, open: Open, answer: Answer, is_in_order: bool) {
        let Answer { response, status, end_seq, .. } = answer;
        let mut exchange = Exchange { response, status, error: status.error(), ..open.exchange };
        let [request, response] = [open.bytes[0], answer.bytes].map(saturated);
        let op = &mut exchange.op;
        (op.request_bytes, op.response_bytes, op.data_bytes) = (request, response, request.max(response));
        op.kind = kind_of(request, response);
        op.outcome = if is_failure(status) { Outcome::Failed } else { Outcome::Good };
        exchange.response_end_seq = end_seq;
        let took_ns = exchange.response.ended.since(exchange.request.began).unwrap_or(0);
        self.silence.answered(u64::try_from(took_ns).unwrap_or(0));
        match &mut self.beginning {
            Some(beginning) if is_in_order || beginning.has_numbers() => {
                beginning.keep(exchange, &mut self.done);
            }
            _ => self.done.push(exchange),
        }
    }

    /// The request has no answer, by its protocol, or was withdrawn.
    pub(crate) fn forget(&mut self, of: Of) {
        let open = match of {
            Of::Order if self.is_left_out => {
                self.unit_of(Recovery::withdrawn);
                match &mut self.undecided {
                    Some(undecided) if std::mem::take(&mut self.is_undecided) => {
                        undecided.requests.pop_back()
                    }
                    _ => None,
                }
            }
            Of::Order => self.queue.pop_back(),
            Of::Id(id) => self.by_id.remove(&id),
        };
        if open.is_some() {
            self.pace.forget(1, self.passing.ended);
        }
    }

    /// The request was answered in a hole.
    pub(crate) fn abandon(&mut self, of: Of) {
        if self.is_open(of) {
            self.counted.abandoned += 1;
            self.forget(of);
        }
    }

    /// The request may stay open: its answer may have passed unseen, or have no end.
    pub(crate) fn excuse(&mut self, of: Of) {
        if let Some(open) = self.newest(of) {
            open.is_excused = true;
        }
    }

    /// As [`Requests::excuse`], of all requests with numbers.
    pub(crate) fn excuse_all(&mut self) {
        self.by_id.values_mut().for_each(|open| open.is_excused = true);
    }

    fn stall(&self, kind: StallKind, sender: Side, wait_ns: u64, frames: [u64; 3]) -> Stall {
        let Passing { began, bytes, mark, .. } = self.passing;
        let (segment_bytes, connection) = (saturated(bytes), self.connection);
        Stall { connection, kind, sender, wait_ns, time_ns: began.ns, frames, segment_bytes, seq: mark.seq }
    }

    /// The message at hand was held back by its protocol, for all its requests together.
    pub(crate) fn held(&mut self, kind: StallKind, sender: Side, wait_ns: u64, frames: [u64; 3]) {
        if wait_ns >= HELD_NS {
            self.held.push(self.stall(kind, sender, wait_ns, frames));
        }
    }

    /// A request's part of such a wait.
    pub(crate) fn waited(&mut self, of: Of, kind: StallKind, sender: Side, wait_ns: u64) {
        let stall = self.stall(kind, sender, wait_ns, [0; 3]);
        if let Some(open) = self.newest(of) {
            delay(&mut open.exchange, &stall);
        }
    }

    /// Drops the requests with numbers, whose answers may be in a hole or have no end that is seen.
    pub(crate) fn forget_all(&mut self) {
        self.counted.abandoned += self.by_id.len() as u64;
        self.pace.forget(self.by_id.len(), self.passing.ended);
        self.by_id.clear();
    }

    /// Finds the request that an answer behind a hole belongs to.
    fn resume(&mut self) {
        if self.recovery.is_some() {
            return;
        }
        let marks: VecDeque<Mark> = self.queue.iter().map(|open| open.mark).collect();
        let (response, ended) = (self.place(), self.passing.ended);
        match resume::find(&marks, self.known_end, response) {
            Match::Behind(answered) => {
                let batch =
                    if self.order.is_overlapped { 0 } else { before_last_batch(&marks, response.seq) };
                let answered = answered.max(batch);
                self.counted.abandoned += answered as u64;
                self.pace.forget(answered, ended);
                self.queue.drain(..answered);
                let doubtful = if self.beginning.is_some() { 0 } else { self.doubtful(response) };
                if doubtful > 0 {
                    self.abandon_unpaired();
                    let doubtful = doubtful.min(self.queue.len());
                    self.counted.abandoned += doubtful as u64;
                    self.pace.forget(doubtful, ended);
                    self.queue.drain(..doubtful);
                    (self.has_skipped, self.is_orphan) = (true, true);
                } else {
                    self.is_resuming = false;
                }
            }
            Match::Orphan => self.is_orphan = true,
        }
    }

    /// Tells the observer what has ended.
    pub(super) fn deliver(&mut self, observer: &mut impl Observer) {
        self.names.drain(..).for_each(|(key, name)| observer.named(key, &name));
        self.done.drain(..).for_each(|exchange| observer.exchange(&exchange));
        self.given_up_on.drain(..).for_each(|exchange| observer.unanswered(&exchange));
        self.held.drain(..).for_each(|stall| observer.stall(&stall));
    }

    /// Requests in flight, the oldest first.
    fn open(&mut self) -> impl Iterator<Item = &mut Exchange> {
        let undecided = self.undecided.as_mut().map(|undecided| {
            let answered = undecided.answers.len();
            undecided.requests.iter_mut().skip(answered)
        });
        let queue = self.queue.iter_mut().chain(undecided.into_iter().flatten());
        queue.chain(self.by_id.values_mut()).map(|open| &mut open.exchange)
    }

    pub(super) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        self.abandon_unpaired();
        self.drop_undecided();
        self.settle();
        self.end_beginning();
        self.deliver(observer);
        self.forget_set_aside();
        let excused = self.by_id.len();
        self.by_id.retain(|_, open| !open.is_excused && !open.is_doubtful);
        self.counted.abandoned += (excused - self.by_id.len()) as u64;
        let mut open: Vec<Exchange> = if self.is_resuming {
            // Their answers may be what is missing.
            self.counted.abandoned += self.queue.len() as u64;
            self.by_id.values().map(|open| open.exchange).collect()
        } else {
            self.open().map(|exchange| *exchange).collect()
        };
        open.sort_by_key(|exchange| (exchange.request.began, exchange.op.tag));
        open.iter().for_each(|exchange| observer.unanswered(exchange));
        Counted { unanswered: self.counted.unanswered + open.len() as u64, ..self.counted }
    }

    /// Requests that await a response, and not an event.
    pub(super) fn cut_off(&self) -> u32 {
        let all = self.queue.iter().chain(self.by_id.values());
        all.filter(|open| !open.is_excused && !open.exchange.awaits_event).count() as u32
    }

    /// The pace for the protocol that follows.
    pub(super) fn into_pace(mut self) -> Pace {
        self.drop_undecided();
        let open = self.queue.len() + self.by_id.len();
        self.pace.forget(open, self.passing.ended);
        self.pace.interrupted();
        self.pace
    }

    /// Adds a stall to the requests that it delayed.
    pub(super) fn stalled(&mut self, stall: &Stall) {
        let is_empty = self.queue.is_empty() && self.by_id.is_empty() && self.undecided.is_none();
        match stall.sender {
            _ if is_of_all(stall) && !is_empty => self.open().for_each(|exchange| delay(exchange, stall)),
            Side::Client => {
                let newest = self.newest(Of::Order).filter(|open| !open.is_complete);
                match newest {
                    Some(open) => delay(&mut open.exchange, stall),
                    None => self.pace.stalled(stall),
                }
            }
            Side::Server => {
                // The answer at hand is that of the oldest request, or of the one whose answer has begun.
                let begun = |open: &&mut Open| open.exchange.response.began.is_known();
                let kept = self.kept();
                let (by_id, undecided) = (&mut self.by_id, &mut self.undecided);
                let at_hand = self.queue.get_mut(kept).or_else(|| undecided.as_mut()?.at_hand());
                let at_hand = at_hand.or_else(|| by_id.values_mut().find(begun));
                if let Some(open) = at_hand {
                    delay(&mut open.exchange, stall);
                }
            }
        }
    }
}

/// Whether a request was not carried out.
fn is_failure(status: Status) -> bool {
    match status {
        Status::Unknown | Status::Good | Status::Answer(_) => false,
        Status::Http(code) => code >= 400,
        Status::Grpc(code) => code != 0,
        Status::Code(code) => code != 0,
        Status::Reset(_) | Status::Sql(_) | Status::Error(_) | Status::Alert(_) => true,
    }
}
