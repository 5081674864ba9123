//! Lost data of one sender: since when it is outstanding, and until when.

/// What is known about a sender's lost data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    /// Since when the oldest unacknowledged data waits for its acknowledgement, nanoseconds.
    since_ns: u64,
    /// When data was last sent again, nanoseconds; 0: never.
    pub(super) again_ns: u64,
    /// The end of what had been sent when data was sent again, while it is not acknowledged (RFC 6582's `recover`).
    until: Option<u32>,
    /// When it was acknowledged, nanoseconds.
    over_ns: u64,
    /// When the peer's last acknowledgement without data passed, nanoseconds.
    ack_ns: u64,
}

/// Shortest wait that can be a retransmission time-out, nanoseconds (RFC 6298; Linux: 200 ms).
pub(super) const TIMEOUT_NS: u64 = 150_000_000;

/// What made the sender send data again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Duplicate or partial acknowledgements, or a tail loss probe.
    Acknowledgement,
    /// A time-out.
    Timer,
}

impl Loss {
    /// New data left while nothing was unacknowledged.
    #[inline]
    pub(super) fn begins_to_wait(&mut self, ns: u64) {
        self.since_ns = ns;
    }

    /// An acknowledgement without data passed.
    #[inline]
    pub(super) fn pure_ack(&mut self, ns: u64) {
        self.ack_ns = ns;
    }

    /// The peer acknowledged more; `has_all` says whether that is all that had been sent when data was sent again.
    #[inline]
    pub(super) fn acknowledged(&mut self, ns: u64, has_all: impl Fn(u32) -> bool) {
        self.since_ns = ns;
        if self.until.is_some_and(has_all) {
            (self.until, self.over_ns) = (None, ns);
        }
    }

    /// Data is sent again at `ns`: why, and since when it was waited for. `gap_ns` is when a capture point behind the loss
    /// saw later data; an acknowledgement takes `reaction_ns` from the point to the sender's reaction.
    pub(super) fn again(
        &mut self,
        ns: u64,
        until: u32,
        gap_ns: Option<u64>,
        reaction_ns: u64,
    ) -> (Cause, u64) {
        let since_ns = gap_ns.unwrap_or(self.since_ns).max(self.again_ns).min(ns);
        let is_triggered = self.ack_ns > since_ns && ns.saturating_sub(self.ack_ns) <= reaction_ns;
        (self.again_ns, self.until) = (ns, Some(until));
        let is_timer = ns - since_ns >= TIMEOUT_NS && !is_triggered;
        (if is_timer { Cause::Timer } else { Cause::Acknowledgement }, since_ns)
    }

    /// Whether lost data was outstanding in some of the time since `from_ns`.
    #[inline]
    pub(super) fn is_within(&self, from_ns: u64) -> bool {
        self.until.is_some() || (self.over_ns > 0 && self.over_ns >= from_ns)
    }
}
