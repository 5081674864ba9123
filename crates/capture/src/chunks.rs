//! The pieces in which a response comes.

use record::Chunks;

use crate::packet::{At, Segment};

/// Follows the server's data of the current response.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    chunks: Chunks,
    /// When the last segment passed, the sequence number behind it, and whether it was full.
    last_ns: u64,
    next: u32,
    was_full: bool,
}

impl Pieces {
    /// Begins a new response.
    pub(crate) fn take(&mut self) -> Chunks {
        std::mem::take(&mut self.chunks)
    }

    /// Adds a segment with data; `full_bytes` is the payload of a full one, and data that comes within `together_ns` of the
    /// data before it belongs to the same piece.
    #[inline]
    pub(crate) fn segment(&mut self, segment: &Segment<'_>, at: At, full_bytes: u32, together_ns: u64) {
        let bytes = segment.payload_bytes as u32;
        let ahead = segment.seq.wrapping_sub(self.next).cast_signed();
        let is_first = self.chunks.count == 0;
        if !is_first && ahead < 0 {
            // Sent again, or overtaken.
            return;
        }
        let gap_ns = at.ns.saturating_sub(self.last_ns);
        if is_first {
            self.chunks.count = 1;
        } else if ahead == 0 && !self.was_full && gap_ns > together_ns {
            self.chunks.count = self.chunks.count.saturating_add(1);
            self.chunks.gaps_ns = self.chunks.gaps_ns.saturating_add(gap_ns);
            self.chunks.gap_max_ns = self.chunks.gap_max_ns.max(gap_ns);
        }
        (self.last_ns, self.next) = (at.ns, segment.seq.wrapping_add(bytes));
        // Segmentation offload makes packets of several full segments.
        self.was_full = full_bytes > 0 && bytes.is_multiple_of(full_bytes);
    }
}

/// Limits of [`together_ns`], nanoseconds: below the lower one a packet costs its hosts as much as the wait would, and no user
/// notices the upper one.
const TOGETHER_NS: (u64, u64) = (200_000, 1_000_000);

/// Data that a program writes within this time could have been gathered in one segment, nanoseconds: much less than the
/// round trip, so that the first part would not arrive noticeably later. Data that comes later was not there before.
pub(crate) fn together_ns(round_trip_ns: u64) -> u64 {
    if round_trip_ns == 0 { TOGETHER_NS.1 } else { (round_trip_ns / 4).clamp(TOGETHER_NS.0, TOGETHER_NS.1) }
}
