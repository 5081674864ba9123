//! Every operation takes processor time.

use std::time::{Duration, Instant};

use super::Hook;
use crate::StoreError;
use crate::operation::Operation;

/// Keeps the processor busy before each operation, as a store that compresses or looks things up would: the thread of
/// the connection does it, and nothing else meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Work(pub Duration);

impl Hook for Work {
    fn before(&self, _: Operation, _: u64, _: u64) -> Result<(), StoreError> {
        let begun = Instant::now();
        while begun.elapsed() < self.0 {
            std::hint::spin_loop();
        }
        Ok(())
    }
}
