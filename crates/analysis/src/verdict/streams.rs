//! Responses that come in pieces: sums of bounded size.

use record::{Observed, StallKind};

/// What Nagle's algorithm held: responses, and the time, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Held {
    pub(super) operations: u64,
    pub(super) ns: u128,
}

impl Held {
    fn add(&mut self, ns: u64) {
        self.operations += u64::from(ns > 0);
        self.ns += u128::from(ns);
    }
}

/// All streamed responses.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) operations: u64,
    pub(super) pieces: u64,
    /// From the first byte of the request to the first byte behind the response's head, nanoseconds.
    pub(super) first_ns: u128,
    pub(super) first_held: Held,
    /// Time between pieces, nanoseconds.
    pub(super) gaps_ns: u128,
    pub(super) gaps_held: Held,
}

impl Streams {
    /// Adds an operation if its response is a stream.
    #[inline]
    pub(super) fn add(&mut self, observed: &Observed) {
        let seen = &observed.detail;
        if !seen.chunks.is_written_as_stream() || observed.is_partial {
            return;
        }
        let first_held = seen.stalls.wait_ns(StallKind::NagleHeaderThenBody);
        let first = seen.response.began.since(seen.request.began).and_then(|ns| u64::try_from(ns).ok());
        self.operations += 1;
        self.pieces += u64::from(seen.chunks.count.max(seen.chunks.written));
        self.first_ns += u128::from(first.unwrap_or(0)) + u128::from(first_held);
        self.first_held.add(first_held);
        self.gaps_ns += u128::from(seen.chunks.gaps_ns);
        self.gaps_held.add(seen.stalls.wait_ns(StallKind::NagleWithinMessage));
    }
}
