//! Flights of segments that the congestion window ends: while it limits a sender, one flight leaves in each round trip, and
//! each is larger than the one before (RFC 5681 3.1).
//!
//! Every capture point sees them: a flight begins a round trip after the one before began, wherever the point lies.

use record::{Conduct, StallKind};

use super::path::{NETWORK_NS, PROMPT_NS};

/// The idle time after which the window is small again is a time-out (RFC 5681 4.1): the least one of Linux, nanoseconds, to
/// which the round trip is added.
const TIMEOUT_MIN_NS: u64 = 200_000_000;

/// What came before a run of flights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// Nothing: it is the connection's first data.
    #[default]
    Start,
    /// An idle time longer than a time-out.
    Idle,
    /// Other data.
    Data,
}

/// The present flight of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    began_ns: u64,
    bytes: u64,
    /// Flights before it in its run, the bytes of the last of them, and those of the first.
    run: u32,
    previous_bytes: u64,
    first_bytes: u64,
    origin: Origin,
    /// The largest flight before the run.
    largest_bytes: u64,
    largest_before_bytes: u64,
}

/// A pause of a sender.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// When new data passed after it, and how long it was, nanoseconds.
    pub(super) ns: u64,
    pub(super) quiet_ns: u64,
    /// The round trip between the hosts, nanoseconds; 0: unknown.
    pub(super) round_trip_ns: u64,
    /// Payload of a full segment, bytes.
    pub(super) full: u32,
    /// The sender had more to send, its last segment was full, and the receiver's window had room.
    pub(super) has_more: bool,
    /// The segment behind it is the small end of a message: RFC 896 holds it until all before it is acknowledged.
    pub(super) is_tail: bool,
    /// Lost data has made the congestion window small: what it costs since then is the loss's.
    pub(super) is_reduced: bool,
    /// The receiver's window, bytes, or what it is at least.
    pub(super) window: u64,
    pub(super) window_known: bool,
}

/// Full segments that are fewer than half of the initial window (RFC 6928): ten.
const SMALL_FLIGHT: u64 = 5;

/// A flight of this share of the receiver's window, in tenths, filled it: senders leave room for less than a segment, or for less
/// than a packet of their device.
const FULL_WINDOW: u64 = 8;

impl Flight {
    /// Whether a small segment that left at this time is part of it, nanoseconds.
    pub(super) fn holds(&self, small_ns: Option<u64>) -> bool {
        small_ns.is_some_and(|ns| ns >= self.began_ns)
    }

    /// New data leaves.
    #[inline]
    pub(super) fn passed(&mut self, bytes: u32, ns: u64) {
        if self.began_ns == 0 {
            self.began_ns = ns;
        }
        self.bytes += u64::from(bytes);
    }

    /// A pause ends. Returns its cause if that was the congestion window.
    #[inline]
    pub(super) fn paused(&mut self, gap: Gap, conduct: &mut Conduct) -> Option<StallKind> {
        // Within a flight.
        if gap.quiet_ns < gap.round_trip_ns / 4 || gap.quiet_ns < PROMPT_NS / 4 {
            return None;
        }
        let cause = self.cause(gap, conduct);
        self.largest_bytes = self.largest_bytes.max(self.bytes);
        (self.began_ns, self.bytes) = (gap.ns, 0);
        cause
    }

    fn cause(&mut self, gap: Gap, conduct: &mut Conduct) -> Option<StallKind> {
        let round_trip_ns = gap.round_trip_ns;
        let spacing_ns = gap.ns.saturating_sub(self.began_ns);
        let most_ns = (round_trip_ns / 2 * 3).saturating_add(PROMPT_NS);
        let is_limited = gap.has_more
            && round_trip_ns >= NETWORK_NS
            && self.bytes >= 2 * u64::from(gap.full.max(1))
            && (round_trip_ns / 10 * 9..=most_ns).contains(&spacing_ns);
        if !is_limited {
            let is_idle = gap.quiet_ns >= TIMEOUT_MIN_NS.saturating_add(round_trip_ns);
            // What fits into the small window that an idle time leaves does not make it grow (RFC 7661 3).
            let is_small = self.bytes < SMALL_FLIGHT * u64::from(gap.full.max(1));
            let stays = self.run == 0 && self.origin == Origin::Idle && is_small;
            self.origin = if is_idle || stays { Origin::Idle } else { Origin::Data };
            self.largest_before_bytes = self.largest_bytes.max(self.bytes);
            (self.run, self.previous_bytes) = (0, 0);
            return None;
        }
        if gap.is_reduced && self.bytes < self.largest_before_bytes.max(self.largest_bytes) {
            return Some(StallKind::BehindLoss);
        }
        // Near the receiver, its window seems to have room: what it offers now reaches the sender later.
        if self.bytes * 10 >= gap.window * FULL_WINDOW {
            (self.run, self.previous_bytes, self.origin) = (0, 0, Origin::Data);
            return gap.window_known.then_some(StallKind::WindowFull);
        }
        // One flight and the end that Nagle's algorithm may have held is no limit.
        if self.run == 0 && gap.is_tail {
            self.origin = Origin::Data;
            return None;
        }
        if self.run == 0 {
            self.first_bytes = self.bytes;
        }
        // The window is halved for each time-out that has passed, down to the initial one (RFC 2861).
        let is_restart = self.origin == Origin::Idle && self.largest_before_bytes >= 2 * self.first_bytes;
        let flights = if is_restart { &mut conduct.flights_after_idle } else { &mut conduct.flights };
        if self.run == 0 {
            flights.begin(self.bytes, self.origin != Origin::Start);
        } else {
            flights.next += 1;
            flights.grown += u64::from(self.bytes >= self.previous_bytes + u64::from(gap.full));
        }
        (self.run, self.previous_bytes) = (self.run + 1, self.bytes);
        Some(if is_restart { StallKind::SlowStartAfterIdle } else { StallKind::CongestionWindow })
    }
}
