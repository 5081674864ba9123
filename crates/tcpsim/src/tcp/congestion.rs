//! The congestion window and its reaction to loss: slow start, congestion avoidance and NewReno (RFC 5681,
//! RFC 6582), the retransmission time-out (RFC 6298, with Linux's least deviation). Counts segments, sends none.

use crate::Ns;
use crate::profile::Profile;

/// Acknowledgements of the same byte that signal a loss (RFC 5681 3.2).
const DUPLICATES: u32 = 3;
/// Longest time-out with back-off (Linux `TCP_RTO_MAX`).
const RTO_MAX: Ns = 120_000_000_000;
/// Doublings of the time-out after which it no longer grows; `RTO_MAX` applies before. Keeps the shift in range.
const BACK_OFF_MAX: u32 = 16;

/// The congestion window and the round-trip estimate of one direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    /// Segments.
    window: u32,
    /// Slow start ends here, segments.
    threshold: u32,
    /// Segments acknowledged since the window last grew by one.
    counted: u32,
    /// The window kept a segment back since the last acknowledgement.
    is_limited: bool,
    most_in_flight: u32,
    duplicates: u32,
    /// In recovery until this offset is acknowledged.
    recover: Option<u64>,
    srtt: Option<Ns>,
    deviation: Ns,
    rto_min: Ns,
    back_off: u32,
}

/// What an acknowledgement or a time-out asks of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Nothing is known to be lost.
    Continue,
    /// The first unacknowledged segment is lost.
    Retransmit,
}

impl Congestion {
    pub(super) fn new(profile: &Profile, initial_window: u32) -> Self {
        Self {
            window: initial_window.max(1),
            threshold: u32::MAX,
            counted: 0,
            is_limited: false,
            most_in_flight: 0,
            duplicates: 0,
            recover: None,
            srtt: None,
            deviation: 0,
            rto_min: profile.rto_min_ns,
            back_off: 0,
        }
    }

    pub(super) fn window(&self) -> u32 {
        self.window
    }

    #[inline]
    pub(super) fn room(&self, in_flight: usize) -> u32 {
        self.window.saturating_sub(in_flight as u32)
    }

    /// The window keeps a segment back.
    pub(super) fn was_limited(&mut self) {
        self.is_limited = true;
    }

    /// So many segments are in flight after a send.
    #[inline]
    pub(super) fn sent(&mut self, in_flight: usize) {
        self.most_in_flight = self.most_in_flight.max(in_flight as u32);
    }

    pub(super) fn srtt_ns(&self) -> Option<Ns> {
        self.srtt
    }

    /// The time-out: smoothed round trip and four deviations, which Linux takes as `rto_min` at the least.
    #[inline]
    pub(super) fn rto_ns(&self) -> Ns {
        match self.srtt {
            Some(srtt) => srtt + (4 * self.deviation).max(self.rto_min),
            None => self.rto_min,
        }
    }

    /// The time-out, doubled once more (RFC 6298 5.5).
    pub(super) fn backed_off_ns(&mut self) -> Ns {
        self.back_off = (self.back_off + 1).min(BACK_OFF_MAX);
        (self.rto_ns() << self.back_off).min(RTO_MAX)
    }

    /// Adds a measured round trip (RFC 6298 2).
    pub(super) fn measured(&mut self, rtt: Ns) {
        match &mut self.srtt {
            None => (self.srtt, self.deviation) = (Some(rtt), rtt / 2),
            Some(srtt) => {
                self.deviation = (3 * self.deviation + srtt.abs_diff(rtt)) / 4;
                *srtt = (7 * *srtt + rtt) / 8;
            }
        }
    }

    /// New data is acknowledged up to `ack`: `segments` segments.
    #[inline]
    pub(super) fn acknowledged(&mut self, ack: u64, segments: u32) -> Reaction {
        (self.duplicates, self.back_off) = (0, 0);
        match self.recover {
            // A partial acknowledgement: more of the same window is lost (RFC 6582 3.2).
            Some(recover) if ack < recover => return Reaction::Retransmit,
            Some(_) => self.recover = None,
            None => self.grow(segments),
        }
        Reaction::Continue
    }

    /// The same offset is acknowledged again; `next` is the next one to be sent.
    pub(super) fn duplicate(&mut self, in_flight: usize, next: u64) -> Reaction {
        self.duplicates += 1;
        if self.duplicates != DUPLICATES || self.recover.is_some() {
            return Reaction::Continue;
        }
        self.halve(in_flight);
        self.recover = Some(next);
        Reaction::Retransmit
    }

    /// The retransmission timer ended; `next` is the next offset to be sent (RFC 5681 3.1).
    pub(super) fn timed_out(&mut self, in_flight: usize, next: u64) {
        self.halve(in_flight);
        self.window = 1;
        self.recover = Some(next);
    }

    /// Slow start begins again, up to three quarters of the window that was in use (Linux `tcp_current_ssthresh`).
    pub(super) fn restart(&mut self, initial_window: u32) {
        self.threshold = self.threshold.max(self.window / 4 * 3);
        self.window = self.window.min(initial_window.max(1));
    }

    fn grow(&mut self, segments: u32) {
        if self.window < self.threshold {
            // Linux `tcp_is_cwnd_limited`: no growth beyond twice what was used.
            if self.is_limited || self.window < 2 * self.most_in_flight {
                self.window = self.window.saturating_add(segments);
            }
        } else if self.is_limited {
            self.counted += segments;
            if self.counted >= self.window {
                (self.counted, self.window) = (0, self.window + 1);
            }
        }
        self.is_limited = false;
    }

    fn halve(&mut self, in_flight: usize) {
        self.threshold = (in_flight as u32 / 2).max(2);
        self.window = self.threshold;
    }
}
