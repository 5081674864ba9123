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

/// Segments that were sent again and are not acknowledged yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Repeated {
    /// The end of the last of them.
    end: u32,
    /// When the first of them was sent again, nanoseconds.
    since_ns: u64,
    count: u64,
}

impl Repeated {
    /// One more segment is sent again.
    pub(super) fn again(of: Option<Self>, end: u32, ns: u64) -> Self {
        let Self { since_ns, count, .. } = of.unwrap_or(Self { end, since_ns: ns, count: 0 });
        Self { end, since_ns, count: count + 1 }
    }

    /// How many of them were sent again for nothing, when `ack` has come; `None` while it does not acknowledge all. An
    /// acknowledgement that comes sooner than half of the shortest round trip to the receiver is that of the originals (the
    /// principle of RFC 3522, without its time stamps).
    pub(super) fn spurious(self, ack: u32, ns: u64, to_receiver_ns: u64) -> Option<u64> {
        let is_early = ns.saturating_sub(self.since_ns) < to_receiver_ns / 2;
        (super::distance(ack, self.end) >= 0).then_some(if is_early { self.count } else { 0 })
    }
}

/// Shortest wait that can be a retransmission time-out, nanoseconds, where the round trip is not longer (RFC 6298; Linux:
/// 200 ms).
pub(super) const TIMEOUT_NS: u64 = 150_000_000;

/// What made the sender send data again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Duplicate or partial acknowledgements, or a tail loss probe.
    Acknowledgement,
    /// A time-out.
    Timer,
}

/// Data that is sent again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Again {
    /// When, nanoseconds.
    pub(super) ns: u64,
    /// The end of what had been sent.
    pub(super) until: u32,
    /// When a capture point behind the loss saw later data, nanoseconds.
    pub(super) gap_ns: Option<u64>,
    /// From an acknowledgement that passes the point to the sender's reaction that passes it, nanoseconds.
    pub(super) reaction_ns: u64,
    /// The shortest wait that can be a time-out, nanoseconds.
    pub(super) timeout_ns: u64,
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

    /// Data is sent again: why, and since when it was waited for.
    pub(super) fn again(&mut self, again: Again) -> (Cause, u64) {
        let Again { ns, until, gap_ns, reaction_ns, timeout_ns } = again;
        let since_ns = gap_ns.unwrap_or(self.since_ns).max(self.again_ns).min(ns);
        let is_triggered = self.ack_ns > since_ns && ns.saturating_sub(self.ack_ns) <= reaction_ns;
        (self.again_ns, self.until) = (ns, Some(until));
        let is_timer = ns - since_ns >= timeout_ns && !is_triggered;
        (if is_timer { Cause::Timer } else { Cause::Acknowledgement }, since_ns)
    }

    /// When the peer's last acknowledgement without data passed, nanoseconds.
    pub(super) fn acked_ns(&self) -> u64 {
        self.ack_ns
    }

    /// Whether lost data was outstanding in some of the time since `from_ns`.
    #[inline]
    pub(super) fn is_within(&self, from_ns: u64) -> bool {
        self.until.is_some() || (self.over_ns > 0 && self.over_ns >= from_ns)
    }
}
