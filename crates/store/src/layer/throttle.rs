//! A limit of operations and bytes per second.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Hook;
use crate::StoreError;
use crate::operation::Operation;

/// Keeps a disk to a rate: operations wait until they are due. Flushes pass.
#[derive(Debug)]
pub struct Throttle {
    /// Time that each operation takes of the rate.
    per_operation: Duration,
    /// Time that each byte takes, ns.
    per_byte_ns: f64,
    due: Mutex<Option<Instant>>,
}

impl Throttle {
    /// Limits operations and bytes per second; `None` is no limit.
    #[must_use]
    pub fn new(operations: Option<u64>, bytes: Option<u64>) -> Self {
        Self {
            per_operation: operations
                .map_or(Duration::ZERO, |n| Duration::from_secs(1) / n.clamp(1, 1 << 30) as u32),
            per_byte_ns: bytes.map_or(0.0, |n| 1e9 / n.max(1) as f64),
            due: Mutex::new(None),
        }
    }

    /// How long an operation that begins `now` is to wait; it takes its part of the rate.
    fn wait(&self, now: Instant, bytes: u64) -> Duration {
        let takes = self.per_operation + Duration::from_nanos((self.per_byte_ns * bytes as f64) as u64);
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = due.map_or(now, |due| due.max(now));
        *due = Some(begins + takes);
        begins - now
    }
}

impl Hook for Throttle {
    fn before(&self, operation: Operation, _: u64, bytes: u64) -> Result<(), StoreError> {
        if operation != Operation::Flush {
            std::thread::sleep(self.wait(Instant::now(), bytes));
        }
        Ok(())
    }

    fn may_wait(&self, operation: Operation) -> bool {
        operation != Operation::Flush
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttled_operations_are_spaced_without_credit_for_idle_time() {
        let throttle = Throttle::new(Some(100), Some(1 << 20));
        let now = Instant::now();
        assert_eq!(throttle.wait(now, 0), Duration::ZERO);
        assert_eq!(throttle.wait(now, 1 << 20), Duration::from_millis(10));
        assert_eq!(throttle.wait(now, 0), Duration::from_millis(1020));
        assert_eq!(throttle.wait(now + Duration::from_secs(60), 0), Duration::ZERO);
        assert_eq!(throttle.wait(now + Duration::from_secs(60), 0), Duration::from_millis(10));
    }
}
