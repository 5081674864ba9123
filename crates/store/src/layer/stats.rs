//! Operations are counted and timed.

use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;

use super::Hook;
use crate::StoreError;
use crate::operation::Operation;

/// Counts and times what passes, kind by kind.
#[derive(Debug)]
pub struct Stats(Mutex<[Row; 4]>);

/// Counts of one kind of operation.
#[derive(Clone, Debug)]
struct Row {
    bytes: u64,
    errors: u64,
    /// Times from 1 us to an hour, in ns, to three digits.
    ns: Histogram<u64>,
}

/// The summary of one kind of operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Passed {
    /// Which kind.
    pub operation: Operation,
    /// How many, those that failed among them.
    pub count: u64,
    /// Bytes that they were for.
    pub bytes: u64,
    /// How many failed.
    pub errors: u64,
    /// Mean time, us.
    pub mean_us: f64,
    /// Half took no longer, us.
    pub p50_us: f64,
    /// 99 of 100 took no longer, us.
    pub p99_us: f64,
    /// The longest, us.
    pub max_us: f64,
}

const OPERATIONS: [Operation; 4] = [Operation::Read, Operation::Write, Operation::Discard, Operation::Flush];
const LONGEST_NS: u64 = 3_600_000_000_000;

impl Default for Stats {
    fn default() -> Self {
        Self(Mutex::new(std::array::from_fn(|_| Row { bytes: 0, errors: 0, ns: histogram() })))
    }
}

fn histogram() -> Histogram<u64> {
    match Histogram::new_with_max(LONGEST_NS, 3) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("three digits of an hour are a histogram: {error}"),
    }
}

impl Stats {
    /// The operations so far, without kinds that did not occur.
    #[must_use]
    pub fn passed(&self) -> Vec<Passed> {
        let rows = self.0.lock();
        let rows = OPERATIONS.into_iter().zip(rows.iter()).filter(|(_, row)| !row.ns.is_empty());
        rows.map(|(operation, row)| Passed {
            operation,
            count: row.ns.len(),
            bytes: row.bytes,
            errors: row.errors,
            mean_us: row.ns.mean() / 1e3,
            p50_us: row.ns.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: row.ns.value_at_quantile(0.99) as f64 / 1e3,
            max_us: row.ns.max() as f64 / 1e3,
        })
        .collect()
    }
}

impl Hook for Stats {
    fn after(
        &self,
        operation: Operation,
        _: u64,
        bytes: u64,
        outcome: &Result<(), StoreError>,
        elapsed: Duration,
    ) {
        let mut rows = self.0.lock();
        let index = OPERATIONS.iter().position(|&counted| counted == operation);
        let Some(row) = index.and_then(|index| rows.get_mut(index)) else { return };
        row.bytes += bytes;
        row.errors += u64::from(outcome.is_err());
        row.ns.saturating_record(elapsed.as_nanos() as u64);
    }

    fn passed(&self) -> Vec<Passed> {
        self.passed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::Layered;
    use crate::{Ram, Store};
    use std::sync::Arc;

    #[test]
    fn operations_are_counted_by_kind() {
        let store = Layered::new(Stats::default(), Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>);
        for _ in 0..3 {
            store.write_at(0, &[1; 512]).unwrap();
        }
        assert!(store.read_at(1 << 20, &mut [0; 512]).is_err());
        store.write_stable_at(0, &[1; 1024]).unwrap();
        let passed = store.statistics();
        let counts: Vec<_> = passed.iter().map(|p| (p.operation, p.count, p.bytes, p.errors)).collect();
        assert_eq!(
            counts,
            [(Operation::Read, 1, 512, 1), (Operation::Write, 4, 2560, 0), (Operation::Flush, 1, 0, 0)]
        );
        assert!(passed.iter().all(|p| p.p50_us <= p.p99_us && p.p99_us <= p.max_us));
    }

    #[test]
    fn times_are_those_of_the_operations() {
        let stats = Stats::default();
        let mut after = |us| stats.after(Operation::Write, 0, 512, &Ok(()), Duration::from_micros(us));
        (0..97).for_each(|_| after(10));
        [30, 30, 950].into_iter().for_each(&mut after);
        let [row] = &stats.passed()[..] else { panic!() };
        // The histogram keeps three digits.
        for (found, expected) in
            [(row.mean_us, 19.8), (row.p50_us, 10.0), (row.p99_us, 30.0), (row.max_us, 950.0)]
        {
            assert!((found / expected - 1.0).abs() < 2e-3, "{found} for {expected}: {row:?}");
        }
    }
}
