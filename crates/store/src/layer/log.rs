//! Every operation is written into the log.

use std::time::Duration;

use super::Hook;
use crate::StoreError;
use crate::operation::Operation;

/// Logs each operation with its place, its time and how it ended (level debug).
#[derive(Clone, Debug)]
pub struct Log {
    /// The name of the store in the log.
    pub name: String,
}

impl Hook for Log {
    fn after(
        &self,
        operation: Operation,
        offset: u64,
        bytes: u64,
        outcome: &Result<(), StoreError>,
        elapsed: Duration,
    ) {
        let us = elapsed.as_secs_f64() * 1e6;
        match outcome {
            Ok(()) => tracing::debug!(store = self.name, ?operation, offset, bytes, us, "done"),
            Err(error) => tracing::debug!(store = self.name, ?operation, offset, bytes, us, %error, "failed"),
        }
    }
}
