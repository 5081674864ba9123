//! What is counted for each disk. Connections count for themselves and add their counts when they publish their statistics, so that no
//! command pays for a shared counter.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use scsi::Lun;
use scsi::log_sense::Processed;
use serde::Serialize;

use crate::lock::lock;
use crate::table::Table;

/// What a command does, as far as counters tell it apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// READ, of any length.
    Read,
    /// WRITE, WRITE AND VERIFY, WRITE ATOMIC, COMPARE AND WRITE, ORWRITE.
    Write,
    /// SYNCHRONIZE CACHE.
    Flush,
    /// UNMAP and WRITE SAME.
    Unmap,
    /// Everything else.
    Other,
}

impl Operation {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Flush, Self::Unmap, Self::Other];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Unmap => "unmap",
            Self::Other => "other",
        }
    }

    /// By operation code (SPC-4, SBC-3).
    #[inline]
    pub(crate) fn of(code: u8) -> Self {
        match code {
            0x08 | 0x28 | 0x88 | 0xa8 => Self::Read,
            0x0a | 0x2a | 0x2e | 0x89 | 0x8a | 0x8b | 0x8e | 0x9c | 0xaa | 0xae => Self::Write,
            0x35 | 0x91 => Self::Flush,
            0x41 | 0x42 | 0x93 => Self::Unmap,
            _ => Self::Other,
        }
    }
}

/// Bounds of the buckets of latencies, microseconds: 2.5 for each factor of ten that matters, from memory to a disk that is stuck.
pub const BOUNDS_US: [u64; 19] = [
    5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 10_000_000,
];

/// Latencies by bucket, the last one without a bound.
#[derive(Debug, Default)]
struct Latency {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// The counters of a disk.
#[derive(Debug, Default)]
pub(crate) struct DiskCounters {
    operations: [AtomicU64; 5],
    bytes: [AtomicU64; 5],
    latency: [Latency; 5],
    failed: Mutex<BTreeMap<(u8, u8), u64>>,
}

/// The counters of a disk at one time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DiskCounts {
    /// By [`Operation::ALL`].
    pub operations: [OperationCounts; 5],
    /// Responses other than GOOD: SCSI status, sense key (0 without sense data), and how many.
    pub failed: Vec<(u8, u8, u64)>,
}

/// The counters of one kind of operation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OperationCounts {
    /// Commands received.
    pub commands: u64,
    /// Bytes that they were to transfer.
    pub bytes: u64,
    /// Latencies by the bucket of [`BOUNDS_US`], with one more beyond the last bound: an estimate for as many operations as were
    /// answered at once (one in about 32 is measured), and a count of those that the disk ends later.
    pub latencies: Vec<u64>,
    /// All latencies, nanoseconds.
    pub latency_sum_ns: u64,
}

impl DiskCounters {
    /// An operation took this long, and so did `weight` - 1 others that were not measured.
    pub(crate) fn took(&self, operation: Operation, time: Duration, weight: u64) {
        let us = time.as_micros() as u64;
        let bucket = BOUNDS_US.partition_point(|&bound| bound < us);
        let latency = &self.latency[operation as usize];
        latency.buckets[bucket].fetch_add(weight, Ordering::Relaxed);
        latency.sum_ns.fetch_add(time.as_nanos() as u64 * weight, Ordering::Relaxed);
    }

    /// Returns what LOG SENSE calls bytes processed.
    pub(crate) fn processed(&self) -> Processed {
        let bytes = |operation: Operation| self.bytes[operation as usize].load(Ordering::Relaxed);
        Processed { read_bytes: bytes(Operation::Read), written_bytes: bytes(Operation::Write) }
    }

    /// Returns what has been counted.
    pub(crate) fn counts(&self) -> DiskCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let of = |index: usize| OperationCounts {
            commands: get(&self.operations[index]),
            bytes: get(&self.bytes[index]),
            latencies: self.latency[index].buckets.iter().map(get).collect(),
            latency_sum_ns: get(&self.latency[index].sum_ns),
        };
        let failed = lock(&self.failed).iter().map(|(&(status, key), &count)| (status, key, count)).collect();
        DiskCounts { operations: std::array::from_fn(of), failed }
    }
}

/// What a connection has counted since it last published, by the LUN that its initiator sees.
#[derive(Debug, Default)]
pub(crate) struct Local {
    luns: Vec<[(u64, u64); 5]>,
    /// The last command, until the next PDU.
    last: Option<(Lun, Operation)>,
}

impl Local {
    /// A command has been received.
    #[inline]
    pub(crate) fn command(&mut self, lun: [u8; 8], code: u8, bytes: u32) {
        let Some(lun) = Lun::decode(lun).filter(|lun| lun.0 <= Lun::MAX) else { return };
        let index = usize::from(lun.0);
        if index >= self.luns.len() {
            self.luns.resize(index + 1, [(0, 0); 5]);
        }
        let operation = Operation::of(code);
        let (commands, moved) = &mut self.luns[index][operation as usize];
        *commands += 1;
        *moved += u64::from(bytes);
        self.last = Some((lun, operation));
    }

    /// The last command was answered at once, and measured.
    #[cold]
    pub(crate) fn took(&mut self, view: &Table, time: Duration, weight: u64) {
        if let Some((lun, operation)) = self.last.take()
            && let Some(unit) = view.unit(lun)
        {
            unit.counters.took(operation, time, weight);
        }
    }

    /// The next PDU begins.
    #[inline]
    pub(crate) fn next(&mut self) {
        self.last = None;
    }

    /// Adds everything to the disks of a view. What was for LUNs that are none is forgotten.
    pub(crate) fn publish(
        &mut self,
        view: &Table,
        failed: impl IntoIterator<Item = (([u8; 8], u8, u8), u64)>,
    ) {
        let add = |counter: &AtomicU64, count: u64| counter.fetch_add(count, Ordering::Relaxed);
        for (counts, lun) in self.luns.iter_mut().zip(0..) {
            let Some(unit) = view.unit(Lun(lun)) else {
                *counts = [(0, 0); 5];
                continue;
            };
            for (index, (commands, bytes)) in
                counts.iter_mut().enumerate().filter(|(_, (commands, _))| *commands > 0)
            {
                add(&unit.counters.operations[index], std::mem::take(commands));
                add(&unit.counters.bytes[index], std::mem::take(bytes));
            }
        }
        for ((lun, status, key), count) in failed {
            if let Some(unit) = Lun::decode(lun).and_then(|lun| view.unit(lun)) {
                *lock(&unit.counters.failed).entry((status, key)).or_default() += count;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_the_bucket_of_their_bound() {
        let counters = DiskCounters::default();
        for (us, weight) in [(0, 1), (5, 1), (6, 32), (10_000_000, 1), (10_000_001, 2)] {
            counters.took(Operation::Write, Duration::from_micros(us), weight);
        }
        let counts = counters.counts();
        let write = &counts.operations[Operation::Write as usize];
        assert_eq!(
            (write.latencies[0], write.latencies[1], write.latencies[18], write.latencies[19]),
            (2, 32, 1, 2)
        );
        assert_eq!(write.latencies.iter().sum::<u64>(), 37);
        assert_eq!(write.latency_sum_ns, (5 + 6 * 32 + 10_000_000 + 2 * 10_000_001) * 1000);
        assert_eq!(counts.operations[Operation::Read as usize].latency_sum_ns, 0);
    }

    #[test]
    fn codes_are_told_apart() {
        for (code, operation) in [
            (0x28, Operation::Read),
            (0x2a, Operation::Write),
            (0x35, Operation::Flush),
            (0x42, Operation::Unmap),
            (0x12, Operation::Other),
        ] {
            assert_eq!(Operation::of(code), operation);
        }
        assert!(Operation::ALL.iter().enumerate().all(|(index, operation)| *operation as usize == index));
    }
}
