//! What a session's operations add up to.

use std::time::Duration;

use record::latency::Latency;

use crate::failure::{FailureClass, Failures};
use crate::result::{KindResult, Operation, Second};
use crate::series::{Live, Series};

/// A finished operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    pub(super) operation: Operation,
    pub(super) round_trip_ns: u64,
    /// Bytes transferred.
    pub(super) bytes: u64,
    pub(super) failure: Option<FailureClass>,
    /// Time since the measured time began, nanoseconds; `None` outside it.
    pub(super) at_ns: Option<u64>,
}

/// The sums of a session, of operations that ended within the measured time: rates, bytes and latencies count successes,
/// failures the others.
#[derive(Debug, Default)]
pub(super) struct Tally {
    kinds: Vec<Kind>,
    pub(super) failures: Failures,
    /// Operations that failed outside the measured time.
    pub(super) unmeasured_errors: u64,
    /// Sum of the times until a failure, and how many are known: an operation on a lost connection has no end.
    failed_ns: u128,
    failed_timed: u64,
    series: Series,
}

/// One kind of operation; made when it first occurs, as each has a histogram.
#[derive(Debug)]
struct Kind {
    kind: Operation,
    bytes: u64,
    errors: u64,
    short: u64,
    latency: Latency,
}

impl Tally {
    /// Sums whose seconds are published.
    pub(super) fn published(live: Live) -> Self {
        Self { series: Series::published(live), ..Self::default() }
    }

    /// Adds a finished operation.
    #[inline]
    pub(super) fn add(&mut self, finished: &Finished) {
        let Finished { operation, round_trip_ns, bytes, failure, at_ns } = *finished;
        let Some(at_ns) = at_ns else {
            self.unmeasured_errors += u64::from(failure.is_some());
            return;
        };
        let kind = self.kind(operation);
        // A short transfer fails, but its bytes were transferred.
        kind.bytes += bytes;
        if let Some(class) = failure {
            kind.errors += 1;
            kind.short += u64::from(class == FailureClass::Short);
            self.failures.add(class, 1);
            self.failed_ns += u128::from(round_trip_ns);
            self.failed_timed += 1;
        } else {
            kind.latency.record(round_trip_ns);
        }
        let after = Duration::from_nanos(at_ns);
        if failure.is_some() {
            self.series.fail(after, bytes);
        } else {
            self.series.succeed(after, bytes, round_trip_ns);
        }
    }

    /// Adds a failure without an end, `at_ns` since the measured time began, or outside it: of an operation in flight, or of a
    /// session that had none.
    pub(super) fn lose(&mut self, operation: Option<Operation>, class: FailureClass, at_ns: Option<u64>) {
        let Some(at_ns) = at_ns else {
            self.unmeasured_errors += 1;
            return;
        };
        if let Some(operation) = operation {
            self.kind(operation).errors += 1;
        }
        self.failures.add(class, 1);
        self.series.fail(Duration::from_nanos(at_ns), 0);
    }

    /// Adds the sums of another session.
    pub(super) fn merge(&mut self, other: &Self) {
        for theirs in &other.kinds {
            let ours = self.kind(theirs.kind);
            ours.bytes += theirs.bytes;
            ours.errors += theirs.errors;
            ours.short += theirs.short;
            ours.latency.add(&theirs.latency);
        }
        self.failures.merge(&other.failures);
        self.unmeasured_errors += other.unmeasured_errors;
        self.failed_ns += other.failed_ns;
        self.failed_timed += other.failed_timed;
        self.series.merge(&other.series);
    }

    /// Returns the operations that succeeded within the measured time.
    pub(super) fn operations(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.latency.count()).sum()
    }

    /// Returns the bytes that were transferred within the measured time.
    pub(super) fn bytes(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.bytes).sum()
    }

    /// Returns the mean time until a failure, microseconds.
    pub(super) fn failed_mean_us(&self) -> Option<f64> {
        let mean = |count| self.failed_ns as f64 / count as f64 / 1000.0;
        (self.failed_timed > 0).then(|| mean(self.failed_timed))
    }

    /// Returns the round trips of all kinds.
    pub(super) fn latency(&self) -> Latency {
        let mut all = Latency::new();
        self.kinds.iter().for_each(|kind| all.add(&kind.latency));
        all
    }

    /// Returns the figures of each kind over this time.
    pub(super) fn kinds(&self, seconds: f64) -> Vec<KindResult> {
        let per_second = |value: u64| value as f64 / seconds.max(1e-9);
        let figures = |kind: &Kind| KindResult {
            kind: kind.kind,
            operations: kind.latency.count(),
            iops: per_second(kind.latency.count()),
            transferred_bytes: kind.bytes,
            bytes_per_second: per_second(kind.bytes),
            errors: kind.errors,
            short: kind.short,
            latency_us: kind.latency.figures(),
            latency: kind.latency.clone(),
        };
        let mut kinds: Vec<KindResult> = self.kinds.iter().map(figures).collect();
        kinds.sort_by_key(|kind| kind.kind);
        kinds
    }

    /// Returns the seconds of the measured time.
    pub(super) fn series(&self) -> Vec<Second> {
        self.series.seconds()
    }

    #[inline]
    fn kind(&mut self, kind: Operation) -> &mut Kind {
        let index = match self.kinds.iter().position(|known| known.kind == kind) {
            Some(index) => index,
            None => {
                self.kinds.push(Kind { kind, bytes: 0, errors: 0, short: 0, latency: Latency::new() });
                self.kinds.len() - 1
            }
        };
        &mut self.kinds[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn good(operation: Operation, round_trip_ns: u64, at_ns: Option<u64>) -> Finished {
        Finished { operation, round_trip_ns, bytes: 4096, failure: None, at_ns }
    }

    #[test]
    fn only_success_within_the_measured_time_counts_as_throughput() {
        let mut tally = Tally::default();
        tally.add(&good(Operation::Read, 1000, None));
        tally.add(&good(Operation::Read, 2000, Some(0)));
        tally.add(&good(Operation::Write, 4000, Some(SECOND * 2 + 5)));
        let failed = Finished {
            bytes: 0,
            failure: Some(FailureClass::Timeout),
            ..good(Operation::Write, 90_000, None)
        };
        tally.add(&failed);
        tally.add(&Finished { at_ns: Some(1), ..failed });
        let short = Finished {
            bytes: 100,
            failure: Some(FailureClass::Short),
            ..good(Operation::Read, 30_000, Some(2))
        };
        tally.add(&short);
        tally.lose(Some(Operation::Read), FailureClass::ConnectionLost, Some(3));
        tally.lose(Some(Operation::Read), FailureClass::ConnectionLost, None);
        tally.lose(None, FailureClass::ConnectionLost, None);
        assert_eq!((tally.operations(), tally.bytes(), tally.failures.total()), (2, 8292, 3));
        assert_eq!(tally.unmeasured_errors, 3, "failures of the ramp and the drain are apart");
        assert_eq!(tally.failed_mean_us(), Some(60.0));
        assert!(tally.latency().figures().max < 5.0, "of successful operations only");
        let kinds = tally.kinds(2.0);
        let read = &kinds[0];
        assert_eq!((read.kind, read.operations, read.errors, read.short), (Operation::Read, 1, 2, 1));
        assert_eq!((read.iops, read.bytes_per_second), (0.5, 2098.0));
        let series = tally.series();
        let rows: Vec<(u64, u64, u64)> =
            series.iter().map(|s| (s.operations, s.transferred_bytes, s.errors)).collect();
        assert_eq!(rows, [(1, 4196, 3), (0, 0, 0), (1, 4096, 0)]);
        assert_eq!((series[2].mean_us, series[2].max_us, series[1].mean_us), (4.0, 4.0, 0.0));
    }

    #[test]
    fn sessions_add_up() {
        let (mut a, mut b) = (Tally::default(), Tally::default());
        a.add(&good(Operation::Read, 1000, Some(0)));
        b.add(&good(Operation::Read, 3000, Some(SECOND)));
        b.add(&good(Operation::Read, 5000, Some(1)));
        b.add(&Finished {
            bytes: 0,
            failure: Some(FailureClass::Timeout),
            ..good(Operation::Trim, 10_000, Some(1))
        });
        b.lose(None, FailureClass::Timeout, None);
        a.merge(&b);
        assert_eq!((a.operations(), a.bytes(), a.failures.total()), (3, 3 * 4096, 1));
        assert_eq!(a.unmeasured_errors, 1);
        let series = a.series();
        assert_eq!((series[0].operations, series[0].errors, series[0].mean_us), (2, 1, 3.0));
        assert_eq!((series[0].max_us, series[1].operations), (5.0, 1));
        assert_eq!(a.kinds(1.0).len(), 2);
    }
}
