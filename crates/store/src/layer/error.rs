//! Some operations fail.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use super::Hook;
use crate::operation::Operation;
use crate::{Fault, StoreError};

/// Lets operations of one kind fail at a rate, where they touch a range.
#[derive(Debug)]
pub struct ErrorAt {
    operation: Operation,
    fault: Fault,
    /// Share of the operations that fail, 0 to 1.
    rate: f64,
    bytes: Range<u64>,
    random: Mutex<fastrand::Rng>,
}

impl ErrorAt {
    /// Operations of this kind that touch `bytes` fail with `fault`, a share of `rate` of them. The same seed
    /// gives the same failures.
    #[must_use]
    pub fn new(operation: Operation, fault: Fault, rate: f64, bytes: Range<u64>, seed: u64) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        Self { operation, fault, rate, bytes, random }
    }
}

impl Hook for ErrorAt {
    fn before(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), StoreError> {
        // A flush touches all of it.
        let touches = operation == Operation::Flush
            || (offset < self.bytes.end && offset.saturating_add(bytes) > self.bytes.start);
        if operation != self.operation || !touches {
            return Ok(());
        }
        let drawn = self.random.lock().unwrap_or_else(PoisonError::into_inner).f64();
        if drawn < self.rate { Err(StoreError::Injected(self.fault)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::layer::Layered;
    use crate::{Ram, Store};

    #[test]
    fn errors_are_injected_at_their_place_and_count() {
        let run = |rate: f64| {
            let hook = ErrorAt::new(Operation::Read, Fault::Medium, rate, 4096..8192, 7);
            let store = Layered::new(hook, Arc::new(Ram::new(1 << 20)));
            assert_eq!(store.write_at(4096, &[1; 512]), Ok(()), "only reads fail");
            assert_eq!(store.read_at(0, &mut [0; 4096]), Ok(()), "before the range");
            assert_eq!(store.read_at(8192, &mut [0; 512]), Ok(()), "behind it");
            (0..1000).map(|_| store.read_at(4000, &mut [0; 512]).is_err()).collect::<Vec<_>>()
        };
        assert!(run(1.0).iter().all(|failed| *failed) && !run(0.0).contains(&true));
        let some = run(0.25).iter().filter(|failed| **failed).count();
        assert!((180..320).contains(&some), "{some}");
        assert_eq!(run(0.25), run(0.25), "a seed repeats itself");
    }
}
