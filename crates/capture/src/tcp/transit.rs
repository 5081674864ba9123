//! Queues on the path in front of a capture point: a sender's time stamps (RFC 7323) say when each packet left, so packets that
//! take longer than the fastest ones waited on their way. The server's own time is not in it, nor are delayed
//! acknowledgements.

use super::options::Stamps;

/// Lengths of a tick, nanoseconds: nearly all systems count milliseconds; old Linux kernels counted their own ticks.
const TICKS_NS: [u64; 3] = [1_000_000, 4_000_000, 10_000_000];
/// From this age on the length of a connection's tick is known even if a queue delayed some of its packets, nanoseconds.
const KNOWN_NS: u64 = 1_000_000_000;
/// The fastest packet is forgotten after one to two of these spans, nanoseconds: two clocks drift apart by up to 100 us in a second.
const SPAN_NS: u64 = 10_000_000_000;
/// Two clocks drift apart by less than this in two spans, nanoseconds.
const RISE_NS: i64 = 3_000_000;
/// No queue is longer, nanoseconds: the clock was set.
const LONGEST_NS: i64 = 10_000_000_000;

/// A sender's first time stamp, and its fastest packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Transit {
    first: Option<(u64, u32)>,
    tick_ns: u64,
    is_known: bool,
    /// The least lead of the capture's clock over the sender's in this span and in the one before, and when this one began,
    /// nanoseconds.
    least_ns: [i64; 2],
    since_ns: u64,
    /// Waits after which no packet has been as fast as before yet. A clock of another rate than the assumed one looks like a
    /// queue that never ends.
    pending: record::Transit,
}

impl Transit {
    /// A packet passes. Returns how much longer it took than the fastest one, nanoseconds; `None` while that is not known.
    #[inline]
    pub(super) fn passed(&mut self, ns: u64, stamps: Stamps) -> Option<u64> {
        let Some((first_ns, first_ticks)) = self.first else {
            *self = Self {
                first: Some((ns, stamps.value)),
                tick_ns: TICKS_NS[0],
                since_ns: ns,
                ..Self::default()
            };
            return None;
        };
        let age_ns = ns.checked_sub(first_ns)?;
        let ticks = stamps.value.wrapping_sub(first_ticks).cast_signed();
        let ticks = u64::try_from(ticks).ok()?;
        if !self.is_known && age_ns >= KNOWN_NS {
            self.learn(ns, age_ns, ticks)?;
        }
        let lead_ns = i64::try_from(age_ns).ok()? - i64::try_from(ticks.checked_mul(self.tick_ns)?).ok()?;
        if ns.saturating_sub(self.since_ns) >= SPAN_NS {
            let before_ns = self.least_ns[0].min(self.least_ns[1]);
            (self.least_ns, self.since_ns) = ([lead_ns, self.least_ns[0]], ns);
            if self.least_ns[0].min(self.least_ns[1]) - before_ns > RISE_NS + self.tick_ns.cast_signed() {
                *self = Self::default();
                return None;
            }
        }
        self.least_ns[0] = self.least_ns[0].min(lead_ns);
        let waited_ns = lead_ns - self.least_ns[0].min(self.least_ns[1]);
        if waited_ns > LONGEST_NS {
            *self = Self::default();
            return None;
        }
        if self.is_known { u64::try_from(waited_ns).ok() } else { None }
    }

    /// Adds the wait of a packet to those that are certain, once a later packet is as fast as the fastest one.
    pub(super) fn note(&mut self, certain: &mut record::Transit, wait_ns: u64, is_long: bool, frame: u64) {
        self.pending.add(wait_ns, is_long, frame);
        if !is_long {
            *certain = certain.and(std::mem::take(&mut self.pending));
        }
    }

    /// Finds the length of a tick: the nearest to what passed. With another one the fastest packets begin anew.
    #[cold]
    fn learn(&mut self, ns: u64, age_ns: u64, ticks: u64) -> Option<()> {
        let near = |tick_ns: &u64| {
            let expected_ns = ticks.saturating_mul(*tick_ns);
            age_ns < expected_ns / 2 * 3 && expected_ns < age_ns / 2 * 3
        };
        let tick_ns = TICKS_NS.into_iter().find(near)?;
        if tick_ns != self.tick_ns {
            let lead_ns = i64::try_from(age_ns).ok()? - i64::try_from(ticks * tick_ns).ok()?;
            (self.tick_ns, self.least_ns, self.since_ns) = (tick_ns, [lead_ns; 2], ns);
        }
        self.is_known = true;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The waits of packets each 20 ms, of which those for which `queued_ms` is not 0 waited; the sender counts ticks.
    fn waits(tick_ns: u64, drift: f64, queued_ms: impl Fn(u64) -> u64) -> Vec<Option<u64>> {
        let mut transit = Transit::default();
        let packet = |number: u64| {
            let left_ns = number * 20 * MS;
            let ns = 1_000_000 * MS + (left_ns as f64 * (1.0 + drift)) as u64 + queued_ms(number) * MS;
            let value = 0xffff_ff00_u32.wrapping_add((left_ns / tick_ns) as u32);
            transit.passed(ns, Stamps { value, echo: 0 })
        };
        (0..3000).map(packet).collect()
    }

    #[test]
    fn packets_that_waited_are_told_from_fast_ones() {
        for tick_ns in TICKS_NS {
            let queue = |number: u64| if (200..260).contains(&number) { 80 } else { 0 };
            let all = waits(tick_ns, 0.0, queue);
            for (number, wait) in all.iter().enumerate().skip(60) {
                let expected = queue(number as u64) * MS;
                assert!(
                    wait.is_some_and(|ns| ns.abs_diff(expected) <= tick_ns),
                    "{tick_ns} {number} {wait:?}"
                );
            }
        }
    }

    #[test]
    fn clocks_that_drift_and_unknown_ticks_show_no_queue() {
        for drift in [100e-6, -100e-6] {
            assert!(waits(MS, drift, |_| 0).iter().all(|wait| wait.is_none_or(|ns| ns < 4 * MS)), "{drift}");
        }
        assert!(waits(100 * MS, 0.0, |_| 0).iter().all(Option::is_none));
        assert!(waits(MS, 0.0, |number| number / 500 * 20_000).iter().all(|w| w.is_none_or(|ns| ns < MS)));
    }

    /// What is certain of packets each 20 ms from a sender whose ticks are longer than assumed, and which may wait in a queue.
    fn certain(tick_ns: u64, queued_ms: impl Fn(u64) -> u64) -> record::Transit {
        let (mut transit, mut certain) = (Transit::default(), record::Transit::default());
        for number in 0..3000_u64 {
            let left_ns = number * 20 * MS;
            let stamps = Stamps { value: (left_ns / tick_ns) as u32, echo: 0 };
            let passed = transit.passed(1_000_000 * MS + left_ns + queued_ms(number) * MS, stamps);
            if let Some(wait_ns) = passed {
                transit.note(&mut certain, wait_ns, wait_ns > 5 * MS, number);
            }
        }
        certain
    }

    #[test]
    fn a_clock_of_another_rate_is_no_queue() {
        // A queue of 80 ms in one of ten seconds is one.
        let queue = |number: u64| if number / 50 % 10 == 9 { 80 } else { 0 };
        assert!((200..=300).contains(&certain(MS, queue).waits), "{:?}", certain(MS, queue));
        for per_mille in [1002, 1010, 1100, 1400] {
            let waits = certain(MS * per_mille / 1000, |_| 0).waits;
            assert_eq!(waits, 0, "{per_mille}");
        }
    }
}
