//! Every operation takes longer.

use std::time::Duration;

use super::Hook;
use crate::StoreError;
use crate::operation::Operation;

/// Waits before each operation.
#[derive(Clone, Copy, Debug)]
pub struct Delay(pub Duration);

impl Hook for Delay {
    fn before(&self, _: Operation, _: u64, _: u64) -> Result<(), StoreError> {
        std::thread::sleep(self.0);
        Ok(())
    }

    fn may_wait(&self, _: Operation) -> bool {
        true
    }
}
