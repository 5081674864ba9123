//! One direction of a TCP connection, put in order.

use std::collections::BTreeMap;

/// What a stream hands on, in order.
pub trait Sink {
    /// Bytes that follow on what came before, and when the packet that brought them passed.
    fn bytes(&mut self, bytes: &[u8], ns: u64);
    /// This many bytes follow that were on the wire but are not in the capture (snap length).
    fn uncaptured(&mut self, count: u64, ns: u64);
    /// This many bytes are missing: lost by the capture.
    fn hole(&mut self, count: u64, ns: u64);
}

/// Counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamCounters {
    /// Segments all of whose bytes had come before.
    pub retransmitted: u64,
    /// Segments that came before their turn.
    pub out_of_order: u64,
}

/// A segment that waits for its turn.
#[derive(Debug)]
struct Waiting {
    bytes: Vec<u8>,
    uncaptured: u64,
    ns: u64,
}

/// The state of one direction.
#[derive(Debug, Default)]
pub struct Stream {
    /// Sequence number of the next byte due, and its offset from the first byte seen.
    next: Option<(u32, u64)>,
    waiting: BTreeMap<u64, Waiting>,
    waiting_bytes: usize,
    /// What was counted.
    pub counters: StreamCounters,
}

impl Stream {
    /// Most bytes that wait for their turn; beyond that the missing ones are given up.
    const WAITING_BYTES_MAX: usize = 4 << 20;
    /// Most segments that wait.
    const WAITING_MAX: usize = 4096;

    /// Takes a segment with `total` payload bytes, of which `payload` was captured.
    #[inline]
    pub fn segment(
        &mut self,
        seq: u32,
        syn: bool,
        payload: &[u8],
        total: usize,
        ns: u64,
        sink: &mut impl Sink,
    ) {
        if syn {
            // A new connection, perhaps on a port used before.
            *self = Self { next: Some((seq.wrapping_add(1), 0)), counters: self.counters, ..Self::default() };
            return;
        }
        if total == 0 {
            return;
        }
        let (due, offset) = *self.next.get_or_insert((seq, 0));
        let ahead = seq.wrapping_sub(due).cast_signed();
        if ahead == 0 {
            sink.bytes(payload, ns);
            if payload.len() < total {
                sink.uncaptured((total - payload.len()) as u64, ns);
            }
            self.next = Some((seq.wrapping_add(total as u32), offset + total as u64));
            if !self.waiting.is_empty() {
                self.deliver_waiting(sink);
            }
            return;
        }
        if ahead < 0 {
            let old = ahead.unsigned_abs() as usize;
            if old >= total {
                self.counters.retransmitted += 1;
                return;
            }
            // Partly new: the part that is due.
            let rest = payload.get(old..).unwrap_or_default();
            self.segment(due, false, rest, total - old, ns, sink);
            return;
        }
        self.counters.out_of_order += 1;
        let place = offset + u64::from(ahead.unsigned_abs());
        let known = self.waiting.get(&place).map_or(0, |w| w.bytes.len() as u64 + w.uncaptured);
        if known >= total as u64 {
            return;
        }
        self.waiting_bytes += payload.len();
        let waiting = Waiting { bytes: payload.to_vec(), uncaptured: (total - payload.len()) as u64, ns };
        if let Some(shorter) = self.waiting.insert(place, waiting) {
            self.waiting_bytes -= shorter.bytes.len();
        }
        if self.waiting_bytes > Self::WAITING_BYTES_MAX || self.waiting.len() > Self::WAITING_MAX {
            self.give_up(sink);
        }
    }

    /// The other side has acknowledged everything before `ack`: what is still missing of it will not come
    /// again, because it did arrive and the capture lost it.
    #[inline]
    pub fn acknowledged(&mut self, ack: u32, sink: &mut impl Sink) {
        if self.waiting.is_empty() {
            return;
        }
        let Some((due, offset)) = self.next else { return };
        let ahead = ack.wrapping_sub(due).cast_signed();
        // Acknowledged beyond the hole: at least the byte due is known to have arrived.
        if ahead > 0
            && self
                .waiting
                .keys()
                .next()
                .is_some_and(|&first| offset + u64::from(ahead.unsigned_abs()) >= first)
        {
            self.give_up(sink);
        }
    }

    /// Declares the bytes before the first waiting segment missing.
    fn give_up(&mut self, sink: &mut impl Sink) {
        let (Some((seq, offset)), Some((&first, waiting))) = (self.next, self.waiting.iter().next()) else {
            return;
        };
        let count = first.saturating_sub(offset);
        sink.hole(count, waiting.ns);
        self.next = Some((seq.wrapping_add(count as u32), offset + count));
        self.deliver_waiting(sink);
    }

    fn deliver_waiting(&mut self, sink: &mut impl Sink) {
        while let (Some((seq, offset)), Some(entry)) = (self.next, self.waiting.first_entry()) {
            let place = *entry.key();
            if place > offset {
                return;
            }
            let waiting = entry.remove();
            self.waiting_bytes -= waiting.bytes.len();
            let total = waiting.bytes.len() as u64 + waiting.uncaptured;
            let old = offset - place;
            if old >= total {
                continue;
            }
            let captured = waiting.bytes.get(old as usize..).unwrap_or_default();
            sink.bytes(captured, waiting.ns);
            let uncaptured = total - old - captured.len() as u64;
            if uncaptured > 0 {
                sink.uncaptured(uncaptured, waiting.ns);
            }
            self.next = Some((seq.wrapping_add((total - old) as u32), offset + total - old));
        }
    }

    /// At the end of a capture: what waits is delivered, with what is missing before it as holes.
    pub fn finish(&mut self, sink: &mut impl Sink) {
        while !self.waiting.is_empty() {
            self.give_up(sink);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Collect {
        bytes: Vec<u8>,
        holes: Vec<(usize, u64)>,
    }

    impl Sink for Collect {
        fn bytes(&mut self, bytes: &[u8], _: u64) {
            self.bytes.extend_from_slice(bytes);
        }
        fn uncaptured(&mut self, count: u64, _: u64) {
            self.bytes.resize(self.bytes.len() + count as usize, 0xee);
        }
        fn hole(&mut self, count: u64, _: u64) {
            self.holes.push((self.bytes.len(), count));
        }
    }

    #[test]
    fn a_hole_is_declared_when_the_peer_acknowledged_past_it() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(99, true, b"", 0, 0, &mut sink);
        stream.segment(100, false, b"aaa", 3, 1, &mut sink);
        stream.segment(106, false, b"ccc", 3, 2, &mut sink);
        stream.acknowledged(103, &mut sink);
        assert!(sink.holes.is_empty(), "still possibly on its way");
        stream.acknowledged(109, &mut sink);
        assert_eq!((sink.bytes.as_slice(), sink.holes.as_slice()), (&b"aaaccc"[..], &[(3, 3)][..]));
    }

    #[test]
    fn what_was_not_captured_keeps_its_place() {
        let (mut stream, mut sink) = (Stream::default(), Collect::default());
        stream.segment(u32::MAX - 1, false, b"ab", 5, 1, &mut sink);
        stream.segment(3, false, b"cd", 2, 2, &mut sink);
        assert_eq!(sink.bytes, b"ab\xee\xee\xeecd");
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
            stream.segment(start.wrapping_sub(1), true, b"", 0, 0, &mut sink);
            for (at, len) in order {
                stream.segment(start.wrapping_add(at as u32), false, &data[at..at + len], len, 1, &mut sink);
            }
            prop_assert_eq!(sink.bytes, data);
            prop_assert!(sink.holes.is_empty() && stream.waiting_bytes == 0);
        }
    }
}
