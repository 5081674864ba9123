//! Copies of a packet that the capture holds, as a mirror port or a capture of several interfaces makes them: the same
//! segment again, that no sender sent again.

use super::options::Stamps;
use crate::packet::Segment;

/// Copies without an identification are this close, nanoseconds: a sender that sends again waits for a round trip or a timer.
const COPY_NS: u64 = 5_000_000;
/// Copies with the same identification, nanoseconds: less than any retransmission time-out, for senders whose identification is
/// constant.
const NUMBERED_COPY_NS: u64 = 100_000_000;
/// Segments that are remembered at most: a second interface sees each some 50 us later, in which 10 Gb/s carry 40.
const SEGMENTS: usize = 64;

/// What of a segment its copy has too. Time to live and tags differ behind a router.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Print {
    seq: u32,
    bytes: u32,
    ack: u32,
    window: u16,
    ip_id: u16,
    stamps: Option<Stamps>,
}

/// The last segments with data of one sender.
#[derive(Debug, Default)]
pub(super) struct Recent {
    segments: Vec<(Print, u64)>,
    /// The place of the oldest one.
    oldest: usize,
}

/// When a segment passed whose bytes had passed before, and what its sender knew then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeat {
    pub(super) ns: u64,
    /// The sender cannot send a segment again sooner, nanoseconds; 0: unknown.
    pub(super) round_trip_ns: u64,
    /// When the receiver last reported a gap: before a time-out the sender sends again only after such a report.
    pub(super) reported_ns: u64,
}

impl Recent {
    /// Remembers a segment.
    #[inline]
    pub(super) fn passed(&mut self, segment: &Segment<'_>, stamps: Option<Stamps>, ns: u64) {
        let seen = (Print::of(segment, stamps), ns);
        if self.segments.len() < SEGMENTS {
            self.segments.push(seen);
        } else {
            self.segments[self.oldest] = seen;
            self.oldest = (self.oldest + 1) % SEGMENTS;
        }
    }

    /// Whether a segment is a copy of a remembered one.
    pub(super) fn has_copy(&self, segment: &Segment<'_>, stamps: Option<Stamps>, repeat: Repeat) -> bool {
        let Repeat { ns, round_trip_ns, reported_ns } = repeat;
        let print = Print::of(segment, stamps);
        self.segments.iter().any(|&(seen, seen_ns)| {
            let age_ns = ns.saturating_sub(seen_ns);
            let is_close = match print.ip_id {
                0 => age_ns < round_trip_ns / 4 * 3 || (age_ns < COPY_NS && reported_ns < seen_ns),
                _ => age_ns < NUMBERED_COPY_NS,
            };
            seen_ns > 0 && seen == print && is_close
        })
    }
}

impl Print {
    #[inline]
    fn of(segment: &Segment<'_>, stamps: Option<Stamps>) -> Self {
        let Segment { seq, ack, window, ip_id, payload_bytes, .. } = *segment;
        Self { seq, bytes: payload_bytes as u32, ack, window, ip_id, stamps }
    }
}
