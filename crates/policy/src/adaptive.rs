//! The paper's adaptive policy: Nagle's algorithm on while a session is busy.

/// Its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Adaptive {
    /// Requests served between two idle moments from which on Nagle may help; 0 has it always on and never flushed.
    pub threshold: u32,
    /// How far the switch off lies above the switch on.
    pub margin: u32,
}

impl Adaptive {
    /// The paper's settings.
    pub const DEFAULT: Self = Self { threshold: 96, margin: 40 };
    /// Nagle's algorithm, always on and never flushed: the paper's runs with Nagle.
    pub const NAGLE_UNFLUSHED: Self = Self { threshold: 0, margin: 0 };
}

/// The last counts of requests served between two idle moments, and the mode that follows from them.
#[derive(Clone, Copy, Debug)]
pub struct AdaptiveState {
    settings: Adaptive,
    nagle: bool,
    /// This cycle first, then the three before it.
    counts: [u32; 4],
}

impl AdaptiveState {
    /// Begins without Nagle, unless it is always on.
    #[must_use]
    pub fn new(settings: Adaptive) -> Self {
        Self { settings, nagle: settings.threshold == 0, counts: [0; 4] }
    }

    /// Whether Nagle is on.
    #[must_use]
    pub fn is_nagle(&self) -> bool {
        self.nagle
    }

    /// A request was served.
    #[inline]
    pub fn served(&mut self) {
        self.counts[0] = self.counts[0].saturating_add(1);
        let Adaptive { threshold, margin } = self.settings;
        if self.nagle || self.counts[0] < threshold {
            return;
        }
        let sum: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        // sum / 4 >= (threshold + margin) / 2, in whole numbers.
        self.nagle = sum >= 2 * (u64::from(threshold) + u64::from(margin));
    }

    /// The thread went idle; whether what Nagle holds back is to be flushed.
    pub fn idle(&mut self) -> bool {
        let Adaptive { threshold, margin } = self.settings;
        if threshold == 0 {
            self.counts = [0; 4];
            return false;
        }
        let flushes = self.nagle;
        if self.nagle {
            let stays = threshold.saturating_add(margin);
            // This cycle and the two before it.
            self.nagle = self.counts[..3].iter().any(|&count| count >= stays);
        }
        self.counts.rotate_right(1);
        self.counts[0] = 0;
        flushes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cycle(state: &mut AdaptiveState, requests: u32) -> bool {
        (0..requests).for_each(|_| state.served());
        let nagle = state.is_nagle();
        state.idle();
        nagle
    }

    #[test]
    fn nagle_is_on_for_long_cycles_and_off_for_short_ones() {
        let mut state = AdaptiveState::new(Adaptive::DEFAULT);
        assert!(!cycle(&mut state, 95) && !cycle(&mut state, 95) && !cycle(&mut state, 95));
        // 96 served, and the mean of the four is (96 + 3 * 95) / 4, above (96 + 40) / 2.
        assert!(cycle(&mut state, 96));
        assert!(!state.is_nagle(), "no cycle of the last three reached 136");
        assert!(cycle(&mut state, 200));
        assert!(state.is_nagle() && cycle(&mut state, 1) && cycle(&mut state, 1));
        assert!(state.is_nagle() && cycle(&mut state, 1));
        assert!(!state.is_nagle(), "the long cycle is not one of the last three");
    }

    #[test]
    fn one_long_cycle_after_short_ones_must_be_longer() {
        let mut state = AdaptiveState::new(Adaptive::DEFAULT);
        (0..271).for_each(|_| state.served());
        assert!(!state.is_nagle(), "271 / 4 is below 68");
        state.served();
        assert!(state.is_nagle());
    }

    #[test]
    fn thresholds_at_both_limits() {
        let mut always = AdaptiveState::new(Adaptive { threshold: 0, margin: 0 });
        assert!(cycle(&mut always, 1) && !always.idle() && always.is_nagle());
        let mut never = AdaptiveState::new(Adaptive { threshold: u32::MAX, margin: 0 });
        assert!(!cycle(&mut never, 10_000));
        let mut flushed = AdaptiveState::new(Adaptive { threshold: 1, margin: 0 });
        (0..2).for_each(|_| flushed.served());
        assert!(flushed.is_nagle() && flushed.idle() && flushed.is_nagle());
    }
}
