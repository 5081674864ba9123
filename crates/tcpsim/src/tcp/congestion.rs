//! How much may be in flight, and what happens when something is lost: slow start, congestion avoidance and NewReno
//! (RFC 5681, RFC 6582), the retransmission time-out (RFC 6298, with Linux's least deviation).

use super::Segment;
use super::endpoint::{Endpoint, NEVER};
use crate::Ns;
use crate::profile::Profile;

/// Acknowledgements of the same byte that tell of a loss (RFC 5681 3.2).
const DUPLICATES: u32 = 3;
const RTO_MAX: Ns = 120_000_000_000;

#[derive(Clone, Copy, Debug)]
pub(super) struct Congestion {
    window: u32,
    threshold: u32,
    /// Acknowledged since the window last grew by one.
    counted: u32,
    is_limited: bool,
    most_flying: u32,
    duplicates: u32,
    /// In recovery until this is acknowledged.
    recover: Option<u64>,
    srtt: Option<Ns>,
    deviation: Ns,
    rto_min: Ns,
    back_off: u32,
}

impl Congestion {
    pub(super) fn new(profile: &Profile, initial_window: u32) -> Self {
        Self {
            window: initial_window.max(1),
            threshold: u32::MAX,
            counted: 0,
            is_limited: false,
            most_flying: 0,
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
    pub(super) fn room(&self, flying: usize) -> u32 {
        self.window.saturating_sub(flying as u32)
    }

    pub(super) fn was_limited(&mut self) {
        self.is_limited = true;
    }

    #[inline]
    pub(super) fn flies(&mut self, flying: usize) {
        self.most_flying = self.most_flying.max(flying as u32);
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

    pub(super) fn backed_off_ns(&mut self) -> Ns {
        self.back_off = (self.back_off + 1).min(16);
        (self.rto_ns() << self.back_off).min(RTO_MAX)
    }

    fn measured(&mut self, rtt: Ns) {
        match &mut self.srtt {
            None => (self.srtt, self.deviation) = (Some(rtt), rtt / 2),
            Some(srtt) => {
                self.deviation = (3 * self.deviation + srtt.abs_diff(rtt)) / 4;
                *srtt = (7 * *srtt + rtt) / 8;
            }
        }
    }

    fn grow(&mut self, segments: u32) {
        if self.window < self.threshold {
            // Linux `tcp_is_cwnd_limited`: no growth beyond twice what was used.
            if self.is_limited || self.window < 2 * self.most_flying {
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

    fn halve(&mut self, flying: usize) {
        self.threshold = (flying as u32 / 2).max(2);
        self.window = self.threshold;
    }
}

impl Endpoint {
    /// What a segment acknowledges (Linux `tcp_ack`).
    #[inline]
    pub(super) fn take_ack(&mut self, now: Ns, segment: &Segment, out: &mut Vec<Segment>) {
        let edge = self.peer_edge.max(segment.edge);
        let is_update = edge > self.peer_edge;
        self.peer_edge = edge;
        let ack = segment.ack.min(self.nxt);
        if ack > self.una {
            self.una = ack;
            let (mut segments, mut rtt) = (0, None);
            while let Some(first) = self.flying.front()
                && first.end <= ack
            {
                // What was sent twice tells no round trip (RFC 6298 3).
                rtt = (!first.again).then(|| now - first.sent_at);
                segments += 1;
                self.flying.pop_front();
            }
            if let Some(rtt) = rtt {
                self.congestion.measured(rtt);
            }
            let congestion = &mut self.congestion;
            (congestion.duplicates, congestion.back_off) = (0, 0);
            match congestion.recover {
                Some(recover) if ack < recover => {
                    // More of the same window is lost (RFC 6582 3.2).
                    self.send_again(now, out);
                }
                Some(_) => congestion.recover = None,
                None => congestion.grow(segments),
            }
            self.rto_at = if self.flying.is_empty() {
                NEVER
            } else {
                self.profile.timer(now, self.congestion.rto_ns())
            };
        } else if segment.bytes == 0 && !is_update && ack == self.una && !self.flying.is_empty() {
            self.congestion.duplicates += 1;
            if self.congestion.duplicates == DUPLICATES && self.congestion.recover.is_none() {
                self.congestion.halve(self.flying.len());
                self.congestion.recover = Some(self.nxt);
                self.send_again(now, out);
            }
        }
    }

    /// Nothing was acknowledged for too long (RFC 6298 5).
    pub(super) fn time_out(&mut self, now: Ns, out: &mut Vec<Segment>) {
        self.congestion.halve(self.flying.len());
        self.congestion.window = 1;
        self.congestion.recover = Some(self.nxt);
        self.send_again(now, out);
        self.rto_at = self.profile.timer(now, self.congestion.backed_off_ns());
    }
}
