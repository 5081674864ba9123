//! The measured time second by second.

use std::time::Duration;

use crate::result::Second;

/// Seconds that are kept; later ones are counted in the last one.
const SECONDS_MAX: usize = 1 << 17;

/// Requests by the second in which they ended.
#[derive(Debug, Default)]
pub(super) struct Series(Vec<Sums>);

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    operations: u64,
    bytes: u64,
    errors: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Series {
    fn at(&mut self, after: Duration) -> &mut Sums {
        let second = (after.as_secs() as usize).min(SECONDS_MAX - 1);
        if self.0.len() <= second {
            self.0.resize(second + 1, Sums::default());
        }
        &mut self.0[second]
    }

    /// Adds a request that succeeded, `after` the measured time began.
    #[inline]
    pub(super) fn succeed(&mut self, after: Duration, bytes: u64, latency_ns: u64) {
        let sums = self.at(after);
        sums.operations += 1;
        sums.bytes += bytes;
        sums.sum_ns += latency_ns;
        sums.max_ns = sums.max_ns.max(latency_ns);
    }

    /// Adds a request that failed.
    pub(super) fn fail(&mut self, after: Duration) {
        self.at(after).errors += 1;
    }

    /// Adds the requests of another thread.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), Sums::default());
        }
        for (sums, more) in self.0.iter_mut().zip(&other.0) {
            sums.operations += more.operations;
            sums.bytes += more.bytes;
            sums.errors += more.errors;
            sums.sum_ns += more.sum_ns;
            sums.max_ns = sums.max_ns.max(more.max_ns);
        }
    }

    /// Returns the seconds.
    pub(super) fn seconds(&self) -> Vec<Second> {
        let second = |(at, sums): (usize, &Sums)| Second {
            at_seconds: at as u32,
            operations: sums.operations,
            transferred_bytes: sums.bytes,
            errors: sums.errors,
            mean_us: sums.sum_ns as f64 / sums.operations.max(1) as f64 / 1000.0,
            max_us: sums.max_ns as f64 / 1000.0,
        };
        self.0.iter().enumerate().map(second).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_in_the_second_in_which_they_end() {
        let (mut series, mut other) = (Series::default(), Series::default());
        series.succeed(Duration::from_millis(999), 10, 1000);
        series.succeed(Duration::from_millis(999), 10, 3000);
        series.fail(Duration::from_millis(2000));
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
        series.fail(Duration::MAX);
        assert_eq!(series.seconds().len(), SECONDS_MAX);
    }
}
