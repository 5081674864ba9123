//! One connection: its two streams, cut into PDUs, and the operations that they make up.

use crate::follow::{Digests, Flow, Follower};
use crate::operations::Operations;
use crate::packet::Segment;
use crate::record::{Record, StreamHole};
use crate::stream::{Missing, MissingReason, Sink, Stream};

/// One direction.
#[derive(Debug)]
struct Direction {
    stream: Stream,
    follower: Follower,
    has_ended: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u32,
    requests: Direction,
    responses: Direction,
    operations: Operations,
    /// When its last packet passed, nanoseconds since the epoch.
    pub(crate) last_ns: u64,
}

impl Connection {
    /// A connection with this number, at its beginning or somewhere `in_the_middle`.
    pub(crate) fn new(number: u32, in_the_middle: bool, digests: Digests) -> Self {
        let direction = |flow| Direction {
            stream: Stream::default(),
            follower: Follower::new(flow, in_the_middle, digests),
            has_ended: false,
        };
        Self {
            number,
            requests: direction(Flow::Requests),
            responses: direction(Flow::Responses),
            operations: Operations::new(number),
            last_ns: 0,
        }
    }

    /// Whether a SYN with this sequence number belongs to this connection, rather than to a new one on the
    /// same ports.
    pub(crate) fn began_with(&self, flow: Flow, seq: u32) -> bool {
        let (own, other) = match flow {
            Flow::Requests => (&self.requests.stream, &self.responses.stream),
            Flow::Responses => (&self.responses.stream, &self.requests.stream),
        };
        match own.syn() {
            Some(syn) => syn == seq,
            None => !own.has_begun() && (!other.has_begun() || other.syn().is_some()),
        }
    }

    /// Whether it is over: reset, or both sides have sent their last.
    pub(crate) fn has_ended(&self) -> bool {
        self.requests.has_ended && self.responses.has_ended
    }

    /// Memory taken by segments that wait for their turn, bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.requests.stream.waiting_bytes() + self.responses.stream.waiting_bytes()
    }

    /// Takes a segment that flows this way.
    #[inline]
    pub(crate) fn segment(&mut self, segment: &Segment<'_>, flow: Flow, ns: u64, record: &mut Record) {
        self.last_ns = ns;
        if segment.flags & Segment::ACK != 0 {
            let other = if flow == Flow::Requests { Flow::Responses } else { Flow::Requests };
            let (stream, mut feed, _) = self.feed(other, record);
            stream.acknowledged(segment.ack, &mut feed);
        }
        let (stream, mut feed, has_ended) = self.feed(flow, record);
        let syn = segment.flags & Segment::SYN != 0;
        stream.segment(segment.seq, syn, segment.payload, segment.payload_bytes, ns, &mut feed);
        if segment.flags & Segment::FIN != 0 {
            *has_ended = true;
        }
        if segment.flags & Segment::RST != 0 {
            (self.requests.has_ended, self.responses.has_ended) = (true, true);
        }
    }

    /// Waits no longer for what is missing.
    pub(crate) fn give_up(&mut self, reason: MissingReason, record: &mut Record) {
        for flow in [Flow::Requests, Flow::Responses] {
            let (stream, mut feed, _) = self.feed(flow, record);
            stream.finish(reason, &mut feed);
        }
    }

    /// It is over: what waits is delivered, what was counted goes to the record.
    pub(crate) fn finish(mut self, record: &mut Record) {
        self.give_up(MissingReason::EndOfCapture, record);
        for flow in [Flow::Requests, Flow::Responses] {
            let (_, mut feed, _) = self.feed(flow, record);
            feed.finish();
        }
        let counters = &mut record.counters;
        for Direction { stream, follower, .. } in [&self.requests, &self.responses] {
            counters.retransmitted += stream.counters.retransmitted;
            counters.out_of_order += stream.counters.out_of_order;
            counters.boundaries_lost += follower.lost();
            counters.skipped_bytes += follower.skipped_bytes();
        }
        counters.unmatched += self.operations.unmatched;
        counters.abandoned += self.operations.abandoned;
        counters.unanswered += self.operations.in_flight() as u64;
    }

    /// One direction's stream, what it feeds, and whether it has ended.
    #[inline]
    fn feed<'a>(
        &'a mut self,
        flow: Flow,
        record: &'a mut Record,
    ) -> (&'a mut Stream, Feed<'a>, &'a mut bool) {
        let Self { number, requests, responses, operations, .. } = self;
        let direction = if flow == Flow::Requests { requests } else { responses };
        let Direction { stream, follower, has_ended } = direction;
        (stream, Feed { connection: *number, flow, follower, operations, record }, has_ended)
    }
}

/// What a stream feeds: the follower, and behind it the operations.
struct Feed<'a> {
    connection: u32,
    flow: Flow,
    follower: &'a mut Follower,
    operations: &'a mut Operations,
    record: &'a mut Record,
}

/// Calls a method of the feed's follower; its PDUs go to the operations.
macro_rules! follow {
    ($feed:expr, $method:ident($($argument:expr),*)) => {{
        let Feed { flow, follower, operations, record, .. } = $feed;
        match flow {
            Flow::Requests => follower.$method($($argument,)* |pdu| operations.request(pdu)),
            Flow::Responses => follower.$method($($argument,)* |pdu| {
                if let Some(sighting) = operations.response(pdu) {
                    record.keep(sighting);
                }
            }),
        }
    }};
}

impl Feed<'_> {
    fn finish(&mut self) {
        follow!(self, finish());
    }
}

impl Sink for Feed<'_> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8], ns: u64) {
        follow!(self, bytes(bytes, ns));
    }
    fn uncaptured(&mut self, count: u64, ns: u64) {
        follow!(self, missing(count, ns));
    }
    fn hole(&mut self, missing: Missing) {
        self.record.hole(StreamHole { connection: self.connection, flow: self.flow, missing });
        follow!(self, missing(missing.bytes, missing.time_ns));
    }
}
