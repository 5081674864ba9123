//! One segment that is sent again and again.

use crate::packet::At;

/// A segment without an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    pub(super) seq: u32,
    /// Payload of the first repetition, bytes: how much did not get through.
    pub(super) bytes: u32,
    /// The last frame before the first repetition, and that repetition.
    pub(super) original_frame: u64,
    pub(super) first_frame: u64,
    pub(super) last: At,
    /// Repetitions.
    count: u32,
    /// Since when its first repetition was waited for, nanoseconds since the epoch.
    pub(super) since_ns: u64,
    /// Whether a later repetition was shorter: the sender has found out.
    shrank: bool,
}

/// What it came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Large segments do not get through.
    BlackHole,
    /// A large segment, and nothing else of its sender, does not get through.
    Vanished,
    /// It was lost.
    Timeout,
}

/// So many repetitions of the same segment are no accident.
const BLACK_HOLE_REPETITIONS: u32 = 3;

/// Nothing shorter than this is too large for a path: IPv6 guarantees 1280 bytes, IPv4 hosts accept 576
/// (RFC 8200 5, RFC 1122 3.3.2); less 60 bytes of headers.
const BLACK_HOLE_BYTES_MIN: u32 = 516;

impl Retry {
    pub(super) fn new(seq: u32, bytes: u32, original_frame: u64, at: At, since_ns: u64) -> Self {
        Self {
            seq,
            bytes,
            original_frame,
            first_frame: at.frame,
            last: at,
            count: 1,
            since_ns,
            shrank: false,
        }
    }

    pub(super) fn again(&mut self, at: At, bytes: u32) {
        self.count += 1;
        self.last = at;
        self.shrank |= bytes < self.bytes;
    }

    /// What it came to, when it has `arrived` at last or nothing more came; `largest_acked` is the largest
    /// segment of this sender that is known to have arrived. Where none of its data has, only other connections can tell a
    /// path that passes nothing from a hole for large segments.
    pub(super) fn verdict(&self, arrived: bool, largest_acked: u32, some_arrived: bool) -> Verdict {
        let is_large = self.bytes >= BLACK_HOLE_BYTES_MIN && self.bytes > largest_acked;
        if !is_large || self.count < BLACK_HOLE_REPETITIONS || (arrived && !self.shrank) {
            Verdict::Timeout
        } else if some_arrived {
            Verdict::BlackHole
        } else {
            Verdict::Vanished
        }
    }
}
