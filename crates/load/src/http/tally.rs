//! The figures of the requests of one thread.

use std::time::Duration;

use record::Op;
use record::latency::Latency;

use super::connection::SetUp;
use super::failure::Failed;
use crate::failure::Failures;
use crate::series::Series;

/// Counters and distributions of the measured time.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Requests that succeeded on the connection that completed the fewest.
    pub(super) slowest: u64,
    /// Bytes of their bodies: of responses to reads, of requests that write.
    pub(super) bytes: u64,
    /// Measured time.
    pub(super) measured: Duration,
    /// Latencies of the requests that succeeded.
    pub(super) latency: Latency,
    pub(super) failures: Failures,
    /// Requests that failed in the ramp, or after the measured time.
    pub(super) unmeasured_errors: u64,
    /// The first failure, measured or not.
    pub(super) first_failure: Option<Failed>,
    /// Times from the start of failed requests to their failure.
    pub(super) failed: Latency,
    /// Requests sent again on a new connection, because the server closed theirs without a response.
    pub(super) retries: u64,
    /// Times to set up connections, of every connection of the run.
    pub(super) set_ups: Latency,
    /// The parts of them that the TLS handshakes took.
    pub(super) handshakes: Latency,
    pub(super) series: Series,
    /// CPU time of the thread within the measured time.
    pub(super) cpu_ns: u64,
    /// Records of requests, ramp included, and the number of those beyond the limit.
    pub(super) ops: Vec<Op>,
    pub(super) ops_over_limit: u64,
}

impl Tally {
    /// Returns the requests that succeeded.
    pub(super) fn operations(&self) -> u64 {
        self.latency.count()
    }

    pub(super) fn set_up(&mut self, set_up: &SetUp) {
        self.set_ups.record((set_up.connect + set_up.handshake.unwrap_or_default()).as_nanos() as u64);
        if let Some(time) = set_up.handshake {
            self.handshakes.record(time.as_nanos() as u64);
        }
    }

    /// Counts a request that failed `after` it had begun, if it was sent.
    pub(super) fn fail(&mut self, failed: Failed, after: Option<Duration>) {
        self.failures.add(failed.class, 1);
        if let Some(after) = after {
            self.failed.record(after.as_nanos() as u64);
        }
        self.first_failure.get_or_insert(failed);
    }

    /// Counts a request that failed outside the measured time.
    pub(super) fn fail_unmeasured(&mut self, failed: Failed) {
        self.unmeasured_errors += 1;
        self.first_failure.get_or_insert(failed);
    }

    /// Adds the figures of another thread.
    pub(super) fn merge(&mut self, other: Self) {
        self.slowest = self.slowest.min(other.slowest);
        self.bytes += other.bytes;
        self.measured = self.measured.max(other.measured);
        self.latency.add(&other.latency);
        self.failures.merge(&other.failures);
        self.unmeasured_errors += other.unmeasured_errors;
        self.first_failure = self.first_failure.take().or(other.first_failure);
        self.failed.add(&other.failed);
        self.retries += other.retries;
        self.set_ups.add(&other.set_ups);
        self.series.merge(&other.series);
        self.handshakes.add(&other.handshakes);
        self.cpu_ns += other.cpu_ns;
        self.ops.extend(other.ops);
        self.ops_over_limit += other.ops_over_limit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_up_is_the_sum_of_its_parts() {
        let mut tally = Tally::default();
        let (connect, handshake) = (Duration::from_micros(100), Some(Duration::from_micros(900)));
        tally.set_up(&SetUp { connect, handshake });
        tally.set_up(&SetUp { connect, handshake: None });
        assert_eq!((tally.set_ups.count(), tally.handshakes.count()), (2, 1));
        assert!((tally.set_ups.figures().mean - 550.0).abs() < 1e-9);
        assert!((tally.handshakes.figures().mean - 900.0).abs() < 1e-9);
    }

    #[test]
    fn the_figures_of_threads_are_added() {
        let mut one = Tally { slowest: 5, bytes: 50, measured: Duration::from_secs(1), ..Tally::default() };
        let mut two = Tally { slowest: 2, bytes: 30, retries: 1, cpu_ns: 7, ..Tally::default() };
        one.fail(Failed::status(500), Some(Duration::from_micros(30)));
        one.fail_unmeasured(Failed::status(503));
        (0..5).for_each(|_| one.latency.record(1000));
        (0..3).for_each(|_| two.latency.record(1000));
        two.fail_unmeasured(Failed::status(503));
        one.merge(two);
        assert_eq!((one.unmeasured_errors, one.failed.figures().mean), (2, 30.0));
        assert_eq!((one.operations(), one.slowest, one.bytes, one.retries, one.cpu_ns), (8, 2, 80, 1, 7));
        assert_eq!((one.measured, one.failures.total()), (Duration::from_secs(1), 1));
    }
}
