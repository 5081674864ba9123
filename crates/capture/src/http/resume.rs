//! Which request a response answers where the order alone does not tell: behind a hole, and where the capture begins.
//!
//! A request acknowledges what its client had received before, and a response acknowledges what its server had received. So a
//! response that begins at a sequence number is none of a request that acknowledges more than that, or of which it acknowledges
//! nothing. And a request whose successor acknowledges bytes behind the last known response was answered in the hole.

use std::collections::VecDeque;

/// The sequence and the acknowledgement number of the packet with a message's first byte.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mark {
    pub(crate) seq: u32,
    pub(crate) ack: u32,
}

/// Sequence number with which what stands at a place of a side's stream begins on the wire, where the stream has begun at `from`: in TLS
/// (`record`: the place of the record at hand and its sequence number) its first byte begins with its record.
pub(crate) fn begin_seq(place: u64, from: u32, record: Option<(u64, u32)>) -> u32 {
    let in_record = record.filter(|&(first, _)| first == place);
    in_record.map_or(from.wrapping_add(place as u32), |(_, seq)| seq)
}

/// What becomes of the requests when a response begins behind a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// So many of the oldest requests were answered in the hole; the next one is answered now.
    Behind(usize),
    /// The response is that of a request that was not seen.
    Orphan,
}

/// Signed distance from `b` to `a` in the circle of sequence numbers.
pub(crate) fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

/// Finds the request that a response answers: `requests` are those without a response, the oldest first, and `known_end` is the
/// sequence number behind the last response that was paired.
pub(crate) fn find(requests: &VecDeque<Mark>, known_end: Option<u32>, response: Mark) -> Match {
    let Some(first) = requests.front() else { return Match::Orphan };
    // What its client had received before it asked is of no request here.
    let mut known_end = known_end.filter(|&end| distance(end, first.ack) >= 0).unwrap_or(first.ack);
    let mut answered = 0;
    // Each request with a further acknowledgement shows at least one more response in the hole.
    for later in requests.iter().skip(1) {
        let is_before = distance(later.ack, known_end) > 0 && distance(response.seq, later.ack) >= 0;
        if is_before && answered + 1 < requests.len() {
            answered += 1;
            known_end = later.ack;
        }
    }
    let Some(request) = requests.get(answered) else { return Match::Orphan };
    let is_older = distance(request.ack, response.seq) > 0 && answered == 0;
    if is_older || is_unread(*request, response) { Match::Orphan } else { Match::Behind(answered) }
}

/// Whether the server had received nothing of a request when it sent a response, which is no answer to it then: a notice that it
/// closes the connection (408 behind a time without requests) may cross the next request.
pub(crate) fn is_unread(request: Mark, response: Mark) -> bool {
    distance(response.ack, request.seq) <= 0
}

/// Most requests in a row that left before anything further of the server had come to their client.
pub(crate) fn most_together(requests: impl Iterator<Item = Mark>) -> usize {
    let (mut most, mut run, mut ack) = (0, 0, None);
    for mark in requests {
        run = if ack == Some(mark.ack) { run + 1 } else { 1 };
        ack = Some(mark.ack);
        most = most.max(run);
    }
    most
}

/// How many of the oldest requests may be the one that a response behind a hole answers: all that left together with the oldest, or
/// only the oldest if nothing of the server is missing since that left.
pub(crate) fn candidates(requests: &VecDeque<Mark>, response: Mark) -> usize {
    let Some(first) = requests.front().filter(|first| first.ack != response.seq) else { return 1 };
    requests.iter().take_while(|mark| mark.ack == first.ack).count()
}

/// Requests before the last packet of requests that was sent before the answer at a sequence number. Where a packet has always been
/// answered before the next one left, these were answered in the hole, however many a packet holds.
pub(crate) fn before_last_batch(requests: &VecDeque<Mark>, seq: u32) -> usize {
    let is_sent = |mark: &&Mark| distance(seq, mark.ack) >= 0;
    let last = requests.iter().rev().find(is_sent).map(|mark| mark.ack);
    last.and_then(|ack| requests.iter().position(|mark| mark.ack == ack)).unwrap_or(0)
}

/// Requests in a row without another one in flight, behind which a client waits for its answers.
const ALONE: u32 = 16;

/// What the numbers of packets show of how a client sends its requests, and which answers are missing.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The client has asked when some of the answers had come and others had not, not long ago: it may always have requests in flight.
    pub(crate) is_overlapped: bool,
    /// Requests that were asked since then while none was in flight.
    alone: u32,
    /// There was a hole while the requests in flight were, so that some may have been answered in it.
    pub(crate) has_hole: bool,
    /// Answers that came while no request was in flight: where the first begins, and what of the client's bytes their server had.
    unasked: Option<Mark>,
}

/// What follows from the packet of a request that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Nothing.
    Plain,
    /// All requests in flight were answered in a hole.
    AllAnswered,
    /// It was answered before it was captured.
    Late,
    /// Its client sends on without waiting, as did not show before the hole.
    Unsure,
}

impl Order {
    /// A packet with this mark asks behind the requests in flight; `newest` has the marks of the packets with the first and the last byte
    /// of the newest of them. A client that has received more than the answers that are known may have received all. One that has always waited for all answers (`waits`: it has done so,
    /// with as many requests) has done so behind a hole, too, if it has received what is known: so the answers that are still missing
    /// were in the hole, and shift none of the next ones.
    pub(crate) fn begins(
        &mut self,
        mark: Mark,
        newest: Option<[Mark; 2]>,
        known_end: Option<u32>,
        waits: impl FnOnce() -> bool,
    ) -> Begun {
        let Some([newest, last]) = newest else {
            return self.begins_alone(mark);
        };
        if newest.seq == mark.seq {
            return Begun::Plain;
        }
        self.alone = 0;
        if newest.ack == mark.ack {
            return Begun::Plain;
        }
        let was_overlapped = self.is_overlapped;
        // A request that is complete with this packet has no answer yet, though the client has received others since that began.
        let is_open = last.ack == mark.ack;
        let has_received = |end| distance(mark.ack, end) >= i32::from(!self.has_hole);
        self.is_overlapped |= is_open || !known_end.is_none_or(has_received);
        if known_end.is_none() && !is_open {
            return Begun::Plain;
        }
        match (self.has_hole, self.is_overlapped) {
            (true, false) if waits() => {
                self.has_hole = false;
                Begun::AllAnswered
            }
            (true, false) => Begun::Unsure,
            (true, true) if !was_overlapped => Begun::Unsure,
            _ => Begun::Plain,
        }
    }

    /// No request is in flight. What the server had acknowledged when it answered was sent before that, and was captured too late.
    fn begins_alone(&mut self, mark: Mark) -> Begun {
        self.has_hole = false;
        self.alone = self.alone.saturating_add(1);
        self.is_overlapped &= self.alone < ALONE;
        let is_late =
            |unasked: Mark| distance(unasked.ack, mark.seq) > 0 && distance(unasked.seq, mark.ack) >= 0;
        match self.unasked {
            Some(unasked) if is_late(unasked) => Begun::Late,
            _ => {
                self.unasked = None;
                Begun::Plain
            }
        }
    }

    /// The server has sent something while no request was in flight: `packet` has the sequence number of its first byte.
    pub(crate) fn unasked(&mut self, packet: Mark) {
        // What it said before it had more of the client was no answer to that.
        let seq =
            self.unasked.filter(|before| before.ack == packet.ack).map_or(packet.seq, |before| before.seq);
        self.unasked = Some(Mark { seq, ack: packet.ack });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(all: &[(u32, u32)]) -> VecDeque<Mark> {
        all.iter().map(|&(seq, ack)| Mark { seq, ack }).collect()
    }

    #[test]
    fn a_hole_ends_with_the_requests_that_were_in_flight() {
        let mut order = Order { has_hole: true, ..Order::default() };
        let [first, second] = [Mark { seq: 0, ack: 1000 }, Mark { seq: 10, ack: 1100 }];
        assert_eq!(order.begins(first, None, Some(1000), || true), Begun::Plain);
        // The next one is asked when the answer has come, or not all of it: none of its predecessors was answered in the hole.
        assert_eq!(order.begins(second, Some([first; 2]), Some(1000), || true), Begun::Plain);
    }

    #[test]
    fn a_request_that_acknowledges_more_shows_that_the_one_before_was_answered() {
        // Requests of 10 bytes, responses of 100 from 1000 on; the response to the first is in a hole.
        let closed = marks(&[(0, 1000), (10, 1100)]);
        assert_eq!(find(&closed, Some(1000), Mark { seq: 1100, ack: 20 }), Match::Behind(1));
        // It is not: the response begins where the first request's does.
        assert_eq!(find(&closed, Some(1000), Mark { seq: 1000, ack: 20 }), Match::Behind(0));
        // Two in flight: the third request replaces the response before.
        let two = marks(&[(10, 1000), (20, 1100)]);
        assert_eq!(find(&two, Some(1100), Mark { seq: 1100, ack: 30 }), Match::Behind(0));
        let lost = marks(&[(10, 1000), (20, 1100), (30, 1200)]);
        assert_eq!(find(&lost, Some(1100), Mark { seq: 1200, ack: 40 }), Match::Behind(1));
        // Two in a packet, behind the end of an answer that is in the hole.
        let batch = marks(&[(10, 1100), (10, 1100)]);
        assert_eq!(find(&batch, Some(1000), Mark { seq: 1100, ack: 30 }), Match::Behind(0));
    }

    #[test]
    fn a_response_to_a_request_before_the_capture_is_an_orphan() {
        let seen = marks(&[(100, 5000)]);
        assert_eq!(find(&seen, None, Mark { seq: 4000, ack: 110 }), Match::Orphan, "it had been received");
        assert_eq!(find(&seen, None, Mark { seq: 5000, ack: 100 }), Match::Orphan, "the request had not");
        assert_eq!(find(&seen, None, Mark { seq: 5000, ack: 110 }), Match::Behind(0));
        assert_eq!(find(&VecDeque::new(), None, Mark { seq: 1, ack: 1 }), Match::Orphan);
        // Around the end of the circle.
        let end = marks(&[(u32::MAX, u32::MAX - 5)]);
        assert_eq!(find(&end, None, Mark { seq: 10, ack: 9 }), Match::Behind(0));
    }
}
