//! The schedule of an open loop.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The scheduled start times of an open loop, independent of completions. All connections of a run share a schedule, and
/// each takes the next time. An exchange that finds no free connection starts late and is measured from its scheduled
/// time.
#[derive(Debug)]
pub struct Pace {
    start: Instant,
    runtime: Duration,
    per_second: f64,
    /// Number of times taken.
    taken: AtomicU64,
    /// Number of exchanges started.
    begun: AtomicU64,
}

impl Pace {
    /// Creates a schedule of `per_second` exchanges from `start` on, for `runtime`.
    #[must_use]
    pub fn new(per_second: f64, start: Instant, runtime: Duration) -> Self {
        Self { start, runtime, per_second, taken: AtomicU64::new(0), begun: AtomicU64::new(0) }
    }

    /// Takes the next scheduled time, at most the end of the run. The caller has a free connection for it, and calls
    /// [`Self::begin`] when it has come.
    #[must_use]
    pub fn take(&self) -> Instant {
        let due = self.taken.fetch_add(1, Ordering::Relaxed) as f64 / self.per_second;
        // A time that overflows is after the end, too.
        self.start + Duration::try_from_secs_f64(due).unwrap_or(Duration::MAX).min(self.runtime)
    }

    /// Counts an exchange that begins `now`; returns false instead when the run is over.
    #[must_use]
    pub fn begin(&self, now: Instant) -> bool {
        let is_in_time = now < self.end();
        if is_in_time {
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
        is_in_time
    }

    /// Returns the end of the run.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.start + self.runtime
    }

    /// Returns how many scheduled exchanges were not started within the run. Above a few, the rate was not achieved.
    #[must_use]
    pub fn behind(&self) -> u64 {
        let should = (self.runtime.as_secs_f64() * self.per_second) as u64;
        should.saturating_sub(self.begun.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_exchange_keeps_its_scheduled_time() {
        let start = Instant::now() - Duration::from_millis(50);
        let pace = Pace::new(1000.0, start, Duration::from_secs(3600));
        for late in 0..50 {
            assert_eq!(pace.take(), start + Duration::from_millis(late));
            assert!(pace.begin(Instant::now()));
        }
    }

    #[test]
    fn exchanges_not_started_by_the_end_are_counted() {
        let start = Instant::now() - Duration::from_secs(1);
        let pace = Pace::new(1000.0, start, Duration::from_millis(100));
        assert!(pace.begin(start) && !pace.begin(pace.end()) && !pace.begin(Instant::now()));
        assert_eq!(pace.behind(), 99);
    }

    #[test]
    fn no_time_is_after_the_end() {
        let pace = Pace::new(1e-300, Instant::now(), Duration::from_secs(1));
        assert_eq!([pace.take(), pace.take()], [pace.start, pace.end()]);
    }
}
