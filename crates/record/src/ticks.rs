//! Whether events come at the ticks of a kernel's timers.
//!
//! Linux's timers end at ticks (`jiffies`): whatever the time at which they were set, the times at which they end have one
//! phase. A program's own pause ends by a clock of nanoseconds, so its ends have the phases of its beginnings.

/// Lengths of a tick, nanoseconds: Linux with `HZ` 1000, 250 and 100, and the coarser steps of its timer wheel above 64 ticks
/// (`HZ` 1000: 8 ms).
const TICKS_NS: [u64; 4] = [1_000_000, 4_000_000, 8_000_000, 10_000_000];

/// Phases of events in the ticks of each length, as sums of unit vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Ticks {
    count: u32,
    sums: [(f32, f32); TICKS_NS.len()],
}

/// Events from which on phases say something. Of five random phases one length in 3000 is that concentrated (Rayleigh:
/// (1 - R^2)^(n - 1)), for four lengths one in 700.
const COUNT_MIN: u32 = 5;
/// Length of the mean vector from which on the phases are one: a spread of a twelfth of a tick.
const CONCENTRATED: f32 = 0.87;

impl Ticks {
    /// Adds an event, nanoseconds since the epoch.
    pub fn add(&mut self, time_ns: u64) {
        self.count = self.count.saturating_add(1);
        for (sum, tick_ns) in self.sums.iter_mut().zip(TICKS_NS) {
            let angle = (time_ns % tick_ns) as f32 / tick_ns as f32 * std::f32::consts::TAU;
            (sum.0, sum.1) = (sum.0 + angle.cos(), sum.1 + angle.sin());
        }
    }

    /// Whether there are enough events, and they have one phase.
    #[must_use]
    pub fn are_aligned(&self) -> bool {
        self.count >= COUNT_MIN && self.is_concentrated()
    }

    /// Whether there are enough events, and they have several phases.
    #[must_use]
    pub fn are_scattered(&self) -> bool {
        self.count >= COUNT_MIN && !self.is_concentrated()
    }

    fn is_concentrated(&self) -> bool {
        self.concentrated().next().is_some()
    }

    /// The lengths of the ticks at which the events come, if there are enough, nanoseconds.
    pub fn aligned_ns(&self) -> impl Iterator<Item = u64> {
        self.concentrated().filter(|_| self.count >= COUNT_MIN)
    }

    fn concentrated(&self) -> impl Iterator<Item = u64> {
        let least = CONCENTRATED * self.count as f32;
        let is_one = move |(cosine, sine): (f32, f32)| cosine.hypot(sine) >= least;
        self.sums.iter().zip(TICKS_NS).filter(move |(sum, _)| is_one(**sum)).map(|(_, tick_ns)| tick_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_of_every_tick_are_aligned_and_pauses_are_not() {
        for tick_ns in TICKS_NS {
            let (mut timer, mut pause) = (Ticks::default(), Ticks::default());
            let mut now = 1_700_000_000_123_456_789_u64;
            for step in 0..40_u64 {
                now += 3_000_000 + step * step * 77_773;
                let set = now;
                // The timer rounds up to its tick, and the packet passes up to 20 us later.
                timer.add(set.next_multiple_of(tick_ns) + step % 20_000);
                pause.add(set + 200_100_000);
                assert!(step < 4 || timer.are_aligned(), "{tick_ns} {step}");
                assert!(step >= 4 || !(timer.are_aligned() || timer.are_scattered()), "{step}");
            }
            assert!(pause.are_scattered() && !pause.are_aligned(), "{tick_ns}");
        }
    }
}
