//! Layers over any store: they delay, fail, slow down or log what passes, and change nothing else. For tests, and
//! for people who study how initiators behave.

pub mod crash;
pub mod delay;
pub mod error;
pub mod log;
pub mod spec;
pub mod throttle;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{Store, StoreError};

pub use crash::Crash;
pub use delay::Delay;
pub use error::ErrorAt;
pub use log::Log;
pub use spec::LayerSpec;
pub use throttle::Throttle;

/// What is asked of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// Bytes need not be kept.
    Discard,
    /// Everything written is brought to stable storage.
    Flush,
}

/// Looks at every operation on its way to a store.
pub trait Hook: Send + Sync {
    /// Before the operation: it may take time, or fail.
    ///
    /// # Errors
    /// What the operation ends with, in place of being done.
    fn before(&self, _operation: Operation, _offset: u64, _bytes: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether it lets such an operation wait.
    fn may_wait(&self, _operation: Operation) -> bool {
        false
    }

    /// After the operation, which took `elapsed`.
    fn after(
        &self,
        _operation: Operation,
        _offset: u64,
        _bytes: u64,
        _outcome: &Result<(), StoreError>,
        _elapsed: Duration,
    ) {
    }
}

/// A store with a hook before it.
pub struct Layered<H> {
    hook: H,
    inner: Arc<dyn Store>,
}

impl<H: Hook> Layered<H> {
    /// Puts a hook before a store.
    #[must_use]
    pub fn new(hook: H, inner: Arc<dyn Store>) -> Self {
        Self { hook, inner }
    }

    fn pass(
        &self,
        operation: Operation,
        offset: u64,
        bytes: u64,
        go_on: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let begun = Instant::now();
        let outcome = self.hook.before(operation, offset, bytes).and_then(|()| go_on());
        self.hook.after(operation, offset, bytes, &outcome, begun.elapsed());
        outcome
    }
}

impl<H: Hook> Store for Layered<H> {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
    fn has_volatile_cache(&self) -> bool {
        self.inner.has_volatile_cache()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let bytes = buffer.len() as u64;
        self.pass(Operation::Read, offset, bytes, || self.inner.read_at(offset, buffer))
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.pass(Operation::Write, offset, data.len() as u64, || self.inner.write_at(offset, data))
    }
    fn may_wait(&self, operation: Operation) -> bool {
        self.hook.may_wait(operation) || self.inner.may_wait(operation)
    }
    fn geometry(&self) -> Option<crate::Geometry> {
        self.inner.geometry()
    }
    fn granularity_bytes(&self) -> Option<u32> {
        self.inner.granularity_bytes()
    }
    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        self.pass(Operation::Discard, offset, length, || self.inner.discard(offset, length))
    }
    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        self.inner.is_mapped(offset)
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.inner.resize(size_bytes)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.pass(Operation::Flush, 0, 0, || self.inner.flush())
    }
}
