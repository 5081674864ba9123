//! The measured time second by second.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::result::Second;

/// Operations that have succeeded in a run under way, for a display: each thread adds those of a second when the next one begins, so
/// that the measured path is free of it.
#[derive(Clone, Debug, Default)]
pub struct Live(Arc<AtomicU64>);

impl Live {
    /// Operations of the seconds that are complete.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Seconds that are kept; later ones are counted in the last one.
const SECONDS_MAX: usize = 1 << 17;

/// Operations by the second in which they ended.
#[derive(Debug, Default)]
pub(crate) struct Series {
    seconds: Vec<Sums>,
    live: Live,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    operations: u64,
    bytes: u64,
    errors: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Series {
    /// A series whose complete seconds are published.
    pub(crate) fn published(live: Live) -> Self {
        Self { live, ..Self::default() }
    }

    #[inline]
    fn at(&mut self, after: Duration) -> &mut Sums {
        let second = (after.as_secs() as usize).min(SECONDS_MAX - 1);
        if self.seconds.len() <= second {
            self.extend(second);
        }
        &mut self.seconds[second]
    }

    #[cold]
    fn extend(&mut self, second: usize) {
        let complete = self.seconds.last().map_or(0, |last| last.operations);
        self.live.0.fetch_add(complete, Ordering::Relaxed);
        self.seconds.resize(second + 1, Sums::default());
    }

    /// Adds an operation that succeeded, `after` the measured time began.
    #[inline]
    pub(crate) fn succeed(&mut self, after: Duration, bytes: u64, latency_ns: u64) {
        let sums = self.at(after);
        sums.operations += 1;
        sums.bytes += bytes;
        sums.sum_ns += u128::from(latency_ns);
        sums.max_ns = sums.max_ns.max(latency_ns);
    }

    /// Adds an operation that failed, and the bytes that were transferred nevertheless.
    pub(crate) fn fail(&mut self, after: Duration, bytes: u64) {
        let sums = self.at(after);
        sums.errors += 1;
        sums.bytes += bytes;
    }

    /// Adds the operations of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        if self.seconds.len() < other.seconds.len() {
            self.seconds.resize(other.seconds.len(), Sums::default());
        }
        for (sums, more) in self.seconds.iter_mut().zip(&other.seconds) {
            sums.operations += more.operations;
            sums.bytes += more.bytes;
            sums.errors += more.errors;
            sums.sum_ns += more.sum_ns;
            sums.max_ns = sums.max_ns.max(more.max_ns);
        }
    }

    /// Returns the seconds.
    pub(crate) fn seconds(&self) -> Vec<Second> {
        let second = |(at, sums): (usize, &Sums)| Second {
            at_seconds: at as u32,
            operations: sums.operations,
            transferred_bytes: sums.bytes,
            errors: sums.errors,
            mean_us: sums.sum_ns as f64 / sums.operations.max(1) as f64 / 1000.0,
            max_us: sums.max_ns as f64 / 1000.0,
        };
        self.seconds.iter().enumerate().map(second).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_in_the_second_in_which_they_end() {
        let (mut series, mut other) = (Series::default(), Series::default());
        series.succeed(Duration::from_millis(999), 10, 1000);
        series.succeed(Duration::from_millis(999), 10, 3000);
        series.fail(Duration::from_millis(2000), 0);
        other.succeed(Duration::from_millis(3500), 7, 5000);
        series.merge(&other);
        let second = |at_seconds, operations, transferred_bytes, errors, mean_us, max_us| Second {
            at_seconds,
            operations,
            transferred_bytes,
            errors,
            mean_us,
            max_us,
        };
        let expected = [
            second(0, 2, 20, 0, 2.0, 3.0),
            second(1, 0, 0, 0, 0.0, 0.0),
            second(2, 0, 0, 1, 0.0, 0.0),
            second(3, 1, 7, 0, 5.0, 5.0),
        ];
        assert_eq!(series.seconds(), expected);
        series.fail(Duration::MAX, 3);
        let last = series.seconds().pop().unwrap();
        assert_eq!((series.seconds().len(), last.errors, last.transferred_bytes), (SECONDS_MAX, 1, 3));
    }

    #[test]
    fn a_second_is_published_when_it_is_complete() {
        let live = Live::default();
        let mut threads = [Series::published(live.clone()), Series::published(live.clone())];
        for (thread, millis, published) in
            [(0, 10, 0), (1, 20, 0), (0, 990, 0), (0, 1500, 2), (1, 1600, 3), (1, 4000, 4), (0, 4100, 5)]
        {
            threads[thread].succeed(Duration::from_millis(millis), 1, 1);
            assert_eq!(live.operations(), published, "after {millis} ms");
        }
        assert_eq!(threads[0].seconds().iter().map(|second| second.operations).sum::<u64>(), 4);
    }
}
