//! The schedule of an open loop that several connections share.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::arrivals::{Arrival, Arrivals};

/// The scheduled start times of an open loop, independent of completions. All connections of a run share a schedule, and
/// each takes the next time. An exchange that finds no free connection starts late and is measured from its scheduled
/// time.
#[derive(Debug)]
pub struct Pace {
    start: Instant,
    runtime: Duration,
    schedule: Mutex<Schedule>,
}

#[derive(Debug)]
struct Schedule {
    arrivals: Arrivals,
    /// Times within the run that were taken.
    taken: u64,
    /// Exchanges started.
    begun: u64,
}

/// What an open loop is asked for.
#[derive(Clone, Copy, Debug)]
pub struct PaceSpec {
    /// Scheduled exchanges per second, on average.
    pub per_second: f64,
    /// Their process.
    pub arrival: Arrival,
    /// The seed of a random process.
    pub seed: u64,
}

impl Pace {
    /// Creates a schedule from `start` on, for `runtime`.
    #[must_use]
    pub fn new(spec: PaceSpec, start: Instant, runtime: Duration) -> Self {
        let arrivals = Arrivals::new(spec.arrival, spec.per_second, spec.seed);
        Self { start, runtime, schedule: Mutex::new(Schedule { arrivals, taken: 0, begun: 0 }) }
    }

    /// Takes the next scheduled time, at most the end of the run. The caller has a free connection for it, and calls
    /// [`Self::begin`] when it has come.
    #[must_use]
    pub fn take(&self) -> Instant {
        let mut schedule = self.schedule();
        let due = Duration::from_nanos(schedule.arrivals.take());
        schedule.taken += u64::from(due < self.runtime);
        // A time that overflows is after the end, too.
        self.start + due.min(self.runtime)
    }

    /// Counts an exchange that begins `now`; returns false instead when the run is over.
    #[must_use]
    pub fn begin(&self, now: Instant) -> bool {
        let is_in_time = now < self.end();
        if is_in_time {
            self.schedule().begun += 1;
        }
        is_in_time
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the end of the run.
    #[must_use]
    pub fn end(&self) -> Instant {
        self.start + self.runtime
    }

    /// Returns how many scheduled exchanges were not started within the run: of equal intervals exactly; of a Poisson
    /// process, the expected number of the times that were not taken. Above a few, the rate was not achieved.
    #[must_use]
    pub fn behind(&self) -> u64 {
        let schedule = self.schedule();
        let last_ns = (self.runtime.as_nanos() as u64).saturating_sub(1);
        (schedule.taken + schedule.arrivals.overdue(last_ns)).saturating_sub(schedule.begun)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(per_second: f64) -> PaceSpec {
        PaceSpec { per_second, arrival: Arrival::Constant, seed: 1 }
    }

    #[test]
    fn late_exchange_keeps_its_scheduled_time() {
        let start = Instant::now() - Duration::from_millis(50);
        let pace = Pace::new(constant(1000.0), start, Duration::from_secs(3600));
        for late in 0..50 {
            assert_eq!(pace.take(), start + Duration::from_millis(late));
            assert!(pace.begin(Instant::now()));
        }
    }

    #[test]
    fn exchanges_not_started_by_the_end_are_counted() {
        let start = Instant::now() - Duration::from_secs(1);
        let pace = Pace::new(constant(1000.0), start, Duration::from_millis(100));
        assert_eq!(pace.behind(), 100);
        let taken = [pace.take(), pace.take()];
        assert!(pace.begin(taken[0]) && !pace.begin(pace.end()) && !pace.begin(Instant::now()));
        assert_eq!(pace.behind(), 99, "one that was taken and did not begin is behind, too");
    }

    #[test]
    fn random_times_keep_the_mean_rate_and_none_is_lost() {
        let spec = PaceSpec { per_second: 10_000.0, arrival: Arrival::Poisson, seed: 3 };
        let pace = Pace::new(spec, Instant::now(), Duration::from_secs(1));
        let expected = pace.behind();
        assert!(expected.abs_diff(10_000) <= 2, "{expected}");
        let mut intervals = Vec::new();
        let mut before = pace.start;
        loop {
            let due = pace.take();
            if due == pace.end() {
                break;
            }
            assert!(due >= before && pace.begin(due));
            intervals.push(due - before);
            before = due;
        }
        // Three standard deviations of a Poisson count.
        assert!((9_700..10_300).contains(&intervals.len()), "{}", intervals.len());
        assert_eq!(pace.behind(), 0);
        assert!(intervals[1..].iter().any(|interval| *interval != intervals[1]), "they are random");
    }

    #[test]
    fn no_time_is_after_the_end() {
        let pace = Pace::new(constant(1e-300), Instant::now(), Duration::from_secs(1));
        assert_eq!([pace.take(), pace.take()], [pace.start, pace.end()]);
    }
}
