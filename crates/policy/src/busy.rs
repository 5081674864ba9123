//! busy_count: how many requests a session thread serves between two idle moments (the paper, "Quantum
//! Mechanics").

use serde::{Deserialize, Serialize};

/// Cycles longer than this share one class.
pub const LONGEST_COUNTED: usize = 256;

/// Statistics of busy/idle cycles.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyCount {
    /// Requests served since the thread last went idle.
    pub busy: u64,
    /// The most requests served in one cycle.
    pub max_busy: u64,
    /// How often the thread went idle.
    pub idles: u64,
    /// Requests served in all cycles that have ended.
    pub served: u64,
    /// `ended[n]`: cycles that ended having served n requests, up to the longest one so far; class [`LONGEST_COUNTED`] holds all longer ones.
    pub ended: Vec<u64>,
}

impl BusyCount {
    /// A request was served.
    #[inline]
    pub fn request(&mut self) {
        self.busy += 1;
    }

    /// The thread found nothing more to do. A wake-up that served no request (a keep-alive, an ACK) is no
    /// cycle.
    #[inline]
    pub fn idle(&mut self) {
        if self.busy == 0 {
            return;
        }
        self.idles += 1;
        self.served += self.busy;
        self.max_busy = self.max_busy.max(self.busy);
        let class = usize::try_from(self.busy).unwrap_or(usize::MAX).min(LONGEST_COUNTED);
        match self.ended.get_mut(class) {
            Some(cycles) => *cycles += 1,
            None => self.first(class),
        }
        self.busy = 0;
    }

    /// The first cycle that is longer than all before.
    #[cold]
    fn first(&mut self, class: usize) {
        self.ended.resize(class, 0);
        self.ended.push(1);
    }

    /// Mean requests per cycle.
    #[must_use]
    pub fn avg_busy(&self) -> f64 {
        if self.idles == 0 { 0.0 } else { self.served as f64 / self.idles as f64 }
    }

    /// Share of the cycles that ended having served `n` requests, 0 to 1.
    #[must_use]
    pub fn share(&self, n: usize) -> f64 {
        let cycles = self.ended.get(n).copied().unwrap_or(0);
        if self.idles == 0 { 0.0 } else { cycles as f64 / self.idles as f64 }
    }

    /// Adds the cycles of another session.
    pub fn add(&mut self, other: &BusyCount) {
        self.max_busy = self.max_busy.max(other.max_busy);
        self.idles += other.idles;
        self.served += other.served;
        self.ended.resize(self.ended.len().max(other.ended.len()), 0);
        for (sum, n) in self.ended.iter_mut().zip(&other.ended) {
            *sum += n;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cycles_are_counted_by_requests_served() {
        let mut count = BusyCount::default();
        for cycle in [2, 2, 1, 0, 300] {
            (0..cycle).for_each(|_| count.request());
            count.idle();
        }
        assert_eq!((count.idles, count.max_busy, count.served), (4, 300, 305));
        assert_eq!((count.share(1), count.share(2), count.ended[LONGEST_COUNTED]), (0.25, 0.5, 1));
        assert!((count.avg_busy() - 76.25).abs() < 1e-9);
        assert_eq!(count.ended.len(), LONGEST_COUNTED + 1);
    }

    #[test]
    fn classes_reach_to_the_longest_cycle() {
        let mut count = BusyCount::default();
        for (cycle, classes) in [(0, 0), (3, 4), (1, 4), (9, 10)] {
            (0..cycle).for_each(|_| count.request());
            count.idle();
            assert_eq!(count.ended.len(), classes);
        }
        assert_eq!(count.ended, [0, 1, 0, 1, 0, 0, 0, 0, 0, 1]);
    }
}
