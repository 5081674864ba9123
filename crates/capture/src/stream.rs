//! One direction of a TCP connection, reassembled in order.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::packet::At;

/// Why bytes of a stream are missing from the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissingReason {
    /// The peer acknowledged them, so they arrived: the capture lost them.
    Acknowledged,
    /// Too many later bytes were waiting for them.
    NoRoom,
    /// The capture or the connection ended before they came.
    EndOfCapture,
}

/// Bytes of a stream that are missing from the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Missing {
    /// Bytes of the stream before them, counted from the first byte seen (behind the SYN, if that was seen).
    pub offset: u64,
    /// Their number.
    pub bytes: u64,
    /// When the packet behind them passed, nanoseconds since the epoch.
    pub time_ns: u64,
    /// From the last packet before them until then, nanoseconds: the time in which they passed.
    #[serde(default)]
    pub within_ns: u64,
    /// The reason.
    pub reason: MissingReason,
}

/// Why bytes of a stream do not reach its reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// They are the rest of a segment that was captured in part.
    Uncaptured,
    /// They are in a hole.
    Lost,
}

/// Receives a stream in order.
pub trait Sink {
    /// The next bytes, and the time of their packet: one call for each segment.
    fn bytes(&mut self, bytes: &[u8], at: At);
    /// This many bytes follow that were on the wire but are not in the capture (snap length).
    fn uncaptured(&mut self, count: u64, at: At);
    /// Bytes follow that the capture lost.
    fn hole(&mut self, missing: Missing);
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Segments whose bytes had all arrived before.
    pub retransmitted: u64,
    /// Segments that arrived out of order.
    pub out_of_order: u64,
}

/// An out-of-order segment.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    uncaptured: u64,
    at: At,
}

impl Waiting {
    fn total(&self) -> u64 {
        self.bytes.len() as u64 + self.uncaptured
    }
}

/// The state of one direction.
#[derive(Debug, Default)]
pub struct Stream {
    /// Sequence number of the SYN, when it was seen.
    syn: Option<u32>,
    /// Sequence number of the next byte due, and its offset from the first byte seen.
    next: Option<(u32, u64)>,
    waiting: BTreeMap<u64, Waiting>,
    waiting_bytes: usize,
    /// When the last packet passed whose bytes were delivered.
    last_ns: u64,
    /// The first acknowledgement of bytes that have not passed, and when it came.
    proof: Option<(u32, At)>,
    /// Whether some of its bytes are unknown.
    has_unknown: bool,
    /// Counters.
    pub counters: StreamCounters,
}

/// How far before the next byte a segment may begin and still be a retransmission: no TCP window is larger
/// (RFC 7323 2.3). A segment further back in sequence space is ahead, after a long hole.
const BEHIND_MAX: u32 = 1 << 30;

/// Most bytes that one acknowledgement is believed to prove: more than any window in use.
const PROVED_MAX: u32 = 1 << 26;
/// A capture has a packet at most so long behind one that the packet caused, nanoseconds.
const OVERTAKEN_NS: u64 = 5_000_000;

/// Bytes from the next byte due to sequence number `seq`, or `None` if `seq` is before it.
fn ahead_of(due: u32, seq: u32) -> Option<u32> {
    let ahead = seq.wrapping_sub(due);
    (ahead <= u32::MAX - BEHIND_MAX).then_some(ahead)
}

impl Stream {
    /// Most out-of-order bytes; beyond that the missing bytes are declared lost.
    const WAITING_BYTES_MAX: usize = 4 << 20;
    /// Most out-of-order segments.
    const WAITING_MAX: usize = 4096;

    /// Whether anything of this direction was seen.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.next.is_some()
    }

    /// Sequence number of its SYN, if that was seen.
    #[must_use]
    pub fn syn(&self) -> Option<u32> {
        self.syn
    }

    /// Sequence number of the next byte due, once anything was seen.
    #[must_use]
    pub fn due(&self) -> Option<u32> {
        self.next.map(|(due, _)| due)
    }

    /// When the last packet passed whose bytes were delivered, nanoseconds since the epoch; 0: none.
    pub(crate) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Signed distance from the next byte due to a sequence number; `None` before the stream has begun.
    #[inline]
    #[must_use]
    pub(crate) fn distance_to(&self, seq: u32) -> Option<i32> {
        self.next.map(|(due, _)| seq.wrapping_sub(due).cast_signed())
    }

    /// Whether all bytes before this sequence number have passed, and are known.
    pub(crate) fn is_whole_before(&self, seq: u32) -> bool {
        self.due() == Some(seq) && !self.has_unknown
    }

    /// Memory of out-of-order segments, bytes.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Processes a segment with `total` payload bytes, of which `payload` was captured.
    #[inline]
    pub fn segment(
        &mut self,
        mut seq: u32,
        syn: bool,
        payload: &[u8],
        total: usize,
        at: At,
        sink: &mut impl Sink,
    ) {
        if syn {
            if self.syn == Some(seq) {
                self.counters.retransmitted += 1;
                return;
            }
            // Data may come with it (RFC 7413), behind the sequence number that the SYN takes.
            let first = seq.wrapping_add(1);
            *self =
                Self { syn: Some(seq), next: Some((first, 0)), counters: self.counters, ..Self::default() };
            seq = first;
        }
        let payload = payload.get(..total).unwrap_or(payload);
        if total == 0 {
            return;
        }
        let (due, offset) = *self.next.get_or_insert((seq, 0));
        if seq == due {
            self.last_ns = at.ns;
            self.proof = None;
            sink.bytes(payload, at);
            if payload.len() < total {
                self.has_unknown = true;
                sink.uncaptured((total - payload.len()) as u64, at);
            }
            self.next = Some((seq.wrapping_add(total as u32), offset + total as u64));
            if !self.waiting.is_empty() {
                self.deliver_waiting(Some(at), sink);
            }
            return;
        }
        let Some(ahead) = ahead_of(due, seq) else {
            let old = due.wrapping_sub(seq) as usize;
            if old >= total {
                self.counters.retransmitted += 1;
                return;
            }
            // Partly new: the part that is due.
            let rest = payload.get(old..).unwrap_or_default();
            self.segment(due, false, rest, total - old, at, sink);
            return;
        };
        self.counters.out_of_order += 1;
        let place = offset + u64::from(ahead);
        if self.waiting.get(&place).is_some_and(|w| w.total() >= total as u64) {
            return;
        }
        self.waiting_bytes += payload.len();
        let waiting = Waiting { bytes: payload.to_vec(), uncaptured: (total - payload.len()) as u64, at };
        if let Some(shorter) = self.waiting.insert(place, waiting) {
            self.waiting_bytes -= shorter.bytes.len();
        }
        while self.waiting_bytes > Self::WAITING_BYTES_MAX || self.waiting.len() > Self::WAITING_MAX {
            self.give_up(MissingReason::NoRoom, sink);
        }
    }

    /// The other side has acknowledged everything before `ack`: bytes that are still missing will not be sent
    /// again, because they arrived and the capture lost them.
    #[inline]
    pub fn acknowledged(&mut self, ack: u32, at: At, sink: &mut impl Sink) {
        self.prove(ack, at, sink);
        // There may be several holes before it.
        while let (Some((due, offset)), Some((&first, _))) = (self.next, self.waiting.first_key_value()) {
            match ahead_of(due, ack) {
                Some(ahead) if offset + u64::from(ahead) >= first => {
                    self.give_up(MissingReason::Acknowledged, sink);
                }
                _ => return,
            }
        }
    }

    /// Notes an acknowledgement of bytes that have not passed. They are missing if they do not follow soon: a capture can have
    /// an acknowledgement before what it acknowledges.
    #[inline]
    fn prove(&mut self, ack: u32, at: At, sink: &mut impl Sink) {
        let Some((due, _)) = self.next else { return };
        // A FIN takes one sequence number (RFC 9293 3.4).
        match ahead_of(due, ack) {
            Some(ahead) if ahead > 1 && ahead <= PROVED_MAX => {}
            _ => return,
        }
        match self.proof {
            None => self.proof = Some((ack, at)),
            Some((proved, since)) if at.ns.saturating_sub(since.ns) > OVERTAKEN_NS => {
                self.miss_proved(sink);
                if proved != ack {
                    self.proof = Some((ack, at));
                }
            }
            Some(_) => {}
        }
    }

    /// Declares the bytes that an acknowledgement proved to have arrived missing, as far as nothing waits behind them. They
    /// had arrived when it came.
    fn miss_proved(&mut self, sink: &mut impl Sink) {
        let (Some((ack, at)), Some((seq, offset))) = (self.proof.take(), self.next) else { return };
        let Some(ahead) = ahead_of(seq, ack) else { return };
        let until = offset + u64::from(ahead);
        let (mut until, mut time_ns) = (until, at.ns);
        if let Some((&first, waiting)) = self.waiting.first_key_value() {
            // What passed behind them tells no later than its acknowledgement.
            (until, time_ns) = (until.min(first), time_ns.min(waiting.at.ns));
        }
        let bytes = until.saturating_sub(offset);
        if bytes == 0 {
            return;
        }
        let within_ns = time_ns.saturating_sub(self.last_ns);
        self.has_unknown = true;
        sink.hole(Missing { offset, bytes, time_ns, within_ns, reason: MissingReason::Acknowledged });
        self.next = Some((seq.wrapping_add(bytes as u32), until));
        self.deliver_waiting(None, sink);
    }

    /// Declares the bytes before the first waiting segment missing, and delivers that segment.
    fn give_up(&mut self, reason: MissingReason, sink: &mut impl Sink) {
        if self.proof.is_some() {
            self.miss_proved(sink);
        }
        let (Some((seq, offset)), Some((&first, waiting))) = (self.next, self.waiting.first_key_value())
        else {
            return;
        };
        let bytes = first.saturating_sub(offset);
        if bytes == 0 {
            self.deliver_waiting(None, sink);
            return;
        }
        let time_ns = waiting.at.ns;
        let within_ns = time_ns.saturating_sub(self.last_ns);
        self.has_unknown = true;
        sink.hole(Missing { offset, bytes, time_ns, within_ns, reason });
        self.next = Some((seq.wrapping_add(bytes as u32), offset + bytes));
        self.deliver_waiting(None, sink);
    }

    /// Delivers the segments that follow the delivered bytes. Those behind a gap that has just been `filled` pass when it is:
    /// their receiver could not read them before.
    fn deliver_waiting(&mut self, filled: Option<At>, sink: &mut impl Sink) {
        while let (Some((seq, offset)), Some(entry)) = (self.next, self.waiting.first_entry()) {
            let place = *entry.key();
            if place > offset {
                return;
            }
            let waiting = entry.remove();
            self.waiting_bytes -= waiting.bytes.len();
            let (total, old) = (waiting.total(), offset - place);
            if old >= total {
                continue;
            }
            let captured = waiting.bytes.get(old as usize..).unwrap_or_default();
            let ns = filled.map_or(0, |at| at.ns).max(waiting.at.ns);
            let at = At { ns, ..waiting.at };
            self.last_ns = ns;
            sink.bytes(captured, at);
            let uncaptured = total - old - captured.len() as u64;
            if uncaptured > 0 {
                self.has_unknown = true;
                sink.uncaptured(uncaptured, at);
            }
            self.next = Some((seq.wrapping_add((total - old) as u32), offset + total - old));
        }
    }

    /// Delivers the waiting segments, with holes of the given reason before them.
    pub fn finish(&mut self, reason: MissingReason, sink: &mut impl Sink) {
        while !self.waiting.is_empty() {
            self.give_up(reason, sink);
        }
        self.miss_proved(sink);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::MissingReason::{Acknowledged, EndOfCapture};
    use super::*;

    fn when(ns: u64) -> At {
        At { ns, frame: 0 }
    }

    #[derive(Default)]
    struct Collect {
        bytes: Vec<u8>,
        holes: Vec<(usize, u64, MissingReason)>,
        hole_times_ns: Vec<u64>,
        missing: u64,
    }

    impl Sink for Collect {
        fn bytes(&mut self, bytes: &[u8], _: At) {
            self.bytes.extend_from_slice(bytes);
        }
        fn uncaptured(&mut self, count: u64, _: At) {
            self.bytes.resize(self.bytes.len() + count as usize, 0xee);
        }
        fn hole(&mut self, missing: Missing) {
            assert_eq!(missing.offset, self.bytes.len() as u64 + self.missing);
            self.missing += missing.bytes;
            self.holes.push((self.bytes.len(), missing.bytes, missing.reason));
            self.hole_times_ns.push(missing.time_ns);
        }
    }

    #[test]
    fn a_hole_is_declared_when_the_peer_acknowledged_past_it() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(99, true, b"", 0, when(0), &mut sink);
        stream.segment(100, false, b"aaa", 3, when(1), &mut sink);
        stream.segment(106, false, b"ccc", 3, when(2), &mut sink);
        stream.acknowledged(103, when(9), &mut sink);
        assert!(sink.holes.is_empty(), "still possibly on its way");
        stream.acknowledged(109, when(9), &mut sink);
        assert_eq!(
            (sink.bytes.as_slice(), sink.holes.as_slice()),
            (&b"aaaccc"[..], &[(3, 3, Acknowledged)][..])
        );
    }

    #[test]
    fn bytes_that_were_not_captured_end_with_the_first_acknowledgement_of_them() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(99, true, b"", 0, when(0), &mut sink);
        stream.segment(100, false, b"abc", 3, when(1), &mut sink);
        stream.acknowledged(110, when(20), &mut sink);
        assert!(sink.holes.is_empty(), "the capture may have them behind it");
        stream.acknowledged(110, when(20 + 2 * OVERTAKEN_NS), &mut sink);
        assert_eq!(sink.holes, [(3, 7, Acknowledged)]);
        // What was sent behind them later is a hole of its own.
        stream.acknowledged(120, when(3 * OVERTAKEN_NS), &mut sink);
        stream.segment(125, false, b"xyz", 3, when(4 * OVERTAKEN_NS), &mut sink);
        stream.acknowledged(128, when(4 * OVERTAKEN_NS + 1), &mut sink);
        assert_eq!(sink.holes[1..], [(3, 10, Acknowledged), (3, 5, Acknowledged)]);
        assert_eq!(sink.hole_times_ns, [20, 3 * OVERTAKEN_NS, 4 * OVERTAKEN_NS]);
        // The capture ends.
        stream.acknowledged(150, when(9 * OVERTAKEN_NS), &mut sink);
        stream.finish(EndOfCapture, &mut sink);
        assert_eq!((sink.holes[3], sink.hole_times_ns[3]), ((6, 22, Acknowledged), 9 * OVERTAKEN_NS));
        assert_eq!(sink.bytes, b"abcxyz");
    }

    #[test]
    fn an_acknowledgement_that_the_capture_has_too_early_or_of_a_fin_proves_nothing() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(100, false, b"abc", 3, when(1), &mut sink);
        stream.acknowledged(106, when(2), &mut sink);
        stream.segment(103, false, b"def", 3, when(3), &mut sink);
        // The FIN behind it.
        stream.acknowledged(107, when(4), &mut sink);
        stream.acknowledged(107, when(9 * OVERTAKEN_NS), &mut sink);
        // Nonsense.
        stream.acknowledged(0x7000_0000, when(10 * OVERTAKEN_NS), &mut sink);
        stream.acknowledged(0x7000_0000, when(20 * OVERTAKEN_NS), &mut sink);
        stream.finish(EndOfCapture, &mut sink);
        assert_eq!((sink.bytes.as_slice(), sink.holes.len()), (&b"abcdef"[..], 0));
    }

    #[test]
    fn uncaptured_bytes_keep_their_position() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(u32::MAX - 1, false, b"ab", 5, when(1), &mut sink);
        stream.segment(3, false, b"cd", 2, when(2), &mut sink);
        assert_eq!(sink.bytes, b"ab\xee\xee\xeecd");
    }

    #[test]
    fn one_acknowledgement_may_pass_several_holes() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(100, false, b"a", 1, when(1), &mut sink);
        stream.segment(102, false, b"b", 1, when(2), &mut sink);
        stream.segment(104, false, b"c", 1, when(3), &mut sink);
        stream.acknowledged(105, when(9), &mut sink);
        assert_eq!(sink.bytes, b"abc");
        assert_eq!(sink.holes, [(1, 1, Acknowledged), (2, 1, Acknowledged)]);
    }

    #[test]
    fn repeated_syn_does_not_restart_the_stream() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(9, true, b"", 0, when(0), &mut sink);
        stream.segment(10, false, b"abc", 3, when(0), &mut sink);
        stream.segment(9, true, b"", 0, when(0), &mut sink);
        stream.segment(13, false, b"def", 3, when(0), &mut sink);
        stream.finish(EndOfCapture, &mut sink);
        assert_eq!((sink.bytes.as_slice(), sink.holes.len()), (&b"abcdef"[..], 0));
        assert_eq!(stream.counters.retransmitted, 1);
    }

    #[test]
    fn delivers_data_of_the_syn() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(9, true, b"abc", 3, when(0), &mut sink);
        stream.segment(13, false, b"def", 3, when(0), &mut sink);
        assert_eq!(sink.bytes, b"abcdef");
    }

    #[test]
    fn distinguishes_a_hole_of_more_than_two_gigabytes_from_a_retransmission() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(10, false, b"abc", 3, when(0), &mut sink);
        let far = 13_u32.wrapping_add(2_500_000_000);
        stream.segment(far, false, b"def", 3, when(0), &mut sink);
        stream.acknowledged(far.wrapping_add(3), when(9), &mut sink);
        stream.segment(far.wrapping_add(3), false, b"ghi", 3, when(0), &mut sink);
        assert_eq!(sink.bytes, b"abcdefghi");
        assert_eq!(sink.holes, [(3, 2_500_000_000, Acknowledged)]);
    }

    #[test]
    fn bounds_out_of_order_segments_and_declares_a_hole_beyond() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(0, false, b"a", 1, when(0), &mut sink);
        let segment = vec![7; 60_000];
        for i in 0..200_u32 {
            stream.segment(100 + i * 60_001, false, &segment, segment.len(), when(1), &mut sink);
            assert!(stream.waiting_bytes() <= Stream::WAITING_BYTES_MAX);
        }
        assert!(sink.holes.iter().all(|h| h.2 == MissingReason::NoRoom) && sink.holes.len() > 100);
    }

    #[test]
    fn truncates_a_payload_longer_than_its_length() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(5, false, b"abcxyz", 3, when(0), &mut sink);
        stream.segment(11, false, b"ghixyz", 3, when(0), &mut sink);
        stream.segment(8, false, b"defxyz", 3, when(0), &mut sink);
        assert_eq!(sink.bytes, b"abcdefghi");
    }

    proptest! {
        /// Any order, any repetition, any cut: the same bytes come out.
        #[test]
        fn order_and_repetition_do_not_matter(
            cuts in prop::collection::vec(1_usize..400, 1..40), start: u32, moves in prop::collection::vec((0_usize..40, 0_usize..4), 0..60)
        ) {
            let total: usize = cuts.iter().sum();
            let data: Vec<u8> = (0..total).map(|i| (i * 131 % 251) as u8).collect();
            let mut pieces = Vec::new();
            let mut at = 0;
            for cut in cuts { pieces.push((at, cut)); at += cut; }
            let mut order = pieces.clone();
            for (from, by) in moves {
                let from = from % order.len();
                let to = (from + by).min(order.len() - 1);
                order.swap(from, to);
                // An exact repetition, and one that overlaps its successor.
                order.push(order[from]);
                let (at, len) = order[to];
                order.push((at, (len + 7).min(total - at)));
            }
            let (mut stream, mut sink) = (Stream::default(), Collect::default());
            stream.segment(start.wrapping_sub(1), true, b"", 0, when(0), &mut sink);
            for (at, len) in order {
                stream.segment(start.wrapping_add(at as u32), false, &data[at..at + len], len, when(1), &mut sink);
            }
            prop_assert_eq!(sink.bytes, data);
            prop_assert!(sink.holes.is_empty() && stream.waiting_bytes == 0);
        }

        /// For any input, every byte of the stream is accounted for once, and nothing panics.
        #[test]
        fn no_segments_can_panic(
            segments in prop::collection::vec((any::<u32>(), any::<bool>(), 0_usize..200, 0_usize..200, any::<bool>()), 0..60)
        ) {
            let (mut stream, mut sink) = (Stream::default(), Collect::default());
            let data = [1; 200];
            for (seq, near, kept, total, syn) in segments {
                let seq = if near { seq % 2000 } else { seq };
                if syn { sink = Collect::default(); stream = Stream::default(); }
                stream.segment(seq, syn, &data[..kept], total, when(1), &mut sink);
                stream.acknowledged(seq ^ 0x55, when(9), &mut sink);
            }
            stream.finish(EndOfCapture, &mut sink);
            prop_assert_eq!(stream.waiting_bytes, 0);
            prop_assert_eq!(stream.next.map_or(0, |n| n.1), sink.bytes.len() as u64 + sink.missing);
        }
    }
}
