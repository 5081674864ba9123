//! The receiver's window as its sender knew it: what an acknowledgement offers here reaches the sender later, and data that passes
//! here left before. Near the receiver a full window seems to have room.

use std::collections::VecDeque;

use super::distance;

/// Most offers on their way; of more, the oldest count as known.
const OFFERS_MAX: usize = 64;

/// The right edge of a receiver's window (RFC 9293 3.8.6).
#[derive(Debug, Default)]
pub(super) struct Edge {
    /// What the sender of the data that passes now knows.
    known: Option<u32>,
    /// Later edges, and when they passed, nanoseconds.
    offers: VecDeque<(u64, u32)>,
    /// Room behind the last data when it left, bytes.
    room: Option<i32>,
}

impl Edge {
    /// An acknowledgement offers room up to `edge`.
    #[inline]
    pub(super) fn offered(&mut self, edge: u32, ns: u64) {
        let newest = self.offers.back().map(|&(_, edge)| edge).or(self.known);
        if newest.is_some_and(|newest| distance(edge, newest) <= 0) {
            return;
        }
        if self.offers.len() >= OFFERS_MAX
            && let Some((_, oldest)) = self.offers.pop_front()
        {
            self.known = Some(oldest);
        }
        self.offers.push_back((ns, edge));
    }

    /// Data up to `end` passes, whose sender is this round trip away, nanoseconds: a tenth less than the shortest one allows for a
    /// capture's stamps. A queue on the path makes the sender know less, never more.
    #[inline]
    pub(super) fn passed(&mut self, end: u32, ns: u64, to_sender_ns: u64) {
        let until_ns = ns.saturating_sub(to_sender_ns / 10 * 9);
        while let Some(&(_, edge)) = self.offers.front().filter(|(offered_ns, _)| *offered_ns <= until_ns) {
            self.known = Some(edge);
            self.offers.pop_front();
        }
        self.room = self.known.map(|known| distance(known, end));
    }

    /// Whether the sender of the last data had no room for so many bytes behind it.
    pub(super) fn lacks_room(&self, bytes: u32) -> bool {
        self.room.is_some_and(|room| i64::from(room) < i64::from(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_counts_from_when_it_can_have_reached_the_sender() {
        let mut edge = Edge::default();
        edge.offered(8000, 1_000);
        edge.passed(8000, 1_500, 1_000);
        assert!(!edge.lacks_room(1), "nothing is known yet");
        edge.passed(7000, 2_000, 1_000);
        assert!(!edge.lacks_room(1000) && edge.lacks_room(1001));
        edge.offered(10_000, 2_500);
        edge.passed(8000, 3_000, 1_000);
        assert!(edge.lacks_room(1), "the next offer is on its way");
        edge.passed(8500, 3_600, 1_000);
        assert!(!edge.lacks_room(1500));
        // An older offer takes nothing back.
        edge.offered(9000, 4_000);
        edge.passed(8500, 6_000, 1_000);
        assert!(!edge.lacks_room(1500));
    }

    #[test]
    fn offers_beyond_the_limit_count_as_known() {
        let mut edge = Edge::default();
        for number in 1..=100 {
            edge.offered(number * 1000, u64::from(number));
        }
        assert_eq!(edge.offers.len(), OFFERS_MAX);
        edge.passed(36_000, 101, 1_000_000);
        assert!(edge.lacks_room(1) && !edge.lacks_room(0));
    }
}
