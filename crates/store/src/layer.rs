//! Layers over any store: they delay, fail, slow down or log what passes, and change nothing else. For tests, and
//! for studies of initiators.

pub mod crash;
pub mod delay;
pub mod error;
pub mod extra;
pub mod log;
pub mod spec;
pub mod stats;
pub mod throttle;
pub mod work;

use std::sync::Arc;
use std::time::{Duration, Instant};

use borrowed::Borrowed;

use crate::{Buffer, Done, Ended, Operation, Request, Store, StoreError, Ticket};

pub use crash::Crash;
pub use delay::Delay;
pub use error::ErrorAt;
pub use extra::{Extra, ExtraSpec};
pub use log::Log;
pub use spec::LayerSpec;
pub use stats::{Passed, Stats};
pub use throttle::Throttle;
pub use work::Work;

/// Looks at every operation on its way to a store.
pub trait Hook: Send + Sync {
    /// Before the operation: it may take time, or fail.
    ///
    /// # Errors
    /// The error with which the operation ends without being carried out.
    fn before(&self, _operation: Operation, _offset: u64, _bytes: u64) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whether it may delay such an operation.
    fn may_wait(&self, _operation: Operation) -> bool {
        false
    }

    /// The operations so far, if this hook counts them.
    fn passed(&self) -> Vec<Passed> {
        Vec::new()
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
    hook: Arc<H>,
    inner: Arc<dyn Store>,
}

impl<H: Hook + 'static> Layered<H> {
    /// Puts a hook before a store.
    #[must_use]
    pub fn new(hook: H, inner: Arc<dyn Store>) -> Self {
        Self { hook: Arc::new(hook), inner }
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

impl<H: Hook + 'static> Store for Layered<H> {
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
    fn lasting_name(&self) -> Option<String> {
        self.inner.lasting_name()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let bytes = buffer.len() as u64;
        self.pass(Operation::Read, offset, bytes, || self.inner.read_at(offset, buffer))
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.pass(Operation::Write, offset, data.len() as u64, || self.inner.write_at(offset, data))
    }
    fn write_stable_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        // The hook sees a write and a flush, which are one step beneath.
        self.pass(Operation::Write, offset, data.len() as u64, || {
            self.pass(Operation::Flush, 0, 0, || self.inner.write_stable_at(offset, data))
        })
    }
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, StoreError> {
        if self.hook.may_wait(Operation::Read) {
            return Ok(false);
        }
        let (begun, bytes) = (Instant::now(), buffer.len() as u64);
        // A read that has to wait passes the hook later, when it is carried out.
        if !self.inner.read_now(offset, buffer)? {
            return Ok(false);
        }
        let outcome = self.hook.before(Operation::Read, offset, bytes);
        self.hook.after(Operation::Read, offset, bytes, &outcome, begun.elapsed());
        outcome.map(|()| true)
    }
    fn foresee(&self, offset: u64, length: usize) {
        self.inner.foresee(offset, length);
    }
    fn compare_and_write(&self, offset: u64, expected: &[u8], data: &[u8]) -> Result<(), StoreError> {
        self.pass(Operation::Write, offset, data.len() as u64, || {
            self.inner.compare_and_write(offset, expected, data)
        })
    }
    fn may_wait(&self, operation: Operation) -> bool {
        self.hook.may_wait(operation) || self.inner.may_wait(operation)
    }
    fn buffer(&self, length: usize) -> Buffer {
        self.inner.buffer(length)
    }
    fn try_buffer(&self, length: usize) -> Result<Buffer, StoreError> {
        self.inner.try_buffer(length)
    }
    fn takes(&self, request: &Request) -> bool {
        let is_stable = matches!(request, Request::Write { is_stable: true, .. });
        let waits =
            self.hook.may_wait(request.operation()) || (is_stable && self.hook.may_wait(Operation::Flush));
        !waits && self.inner.takes(request)
    }
    fn begin(&self, request: Request, done: Done) -> Ticket {
        if !self.takes(&request) {
            done(request.carry_out(self));
            return Ticket::default();
        }
        let is_stable = matches!(request, Request::Write { is_stable: true, .. });
        let (begun, operation, (offset, bytes)) = (Instant::now(), request.operation(), request.place());
        let hook = Arc::clone(&self.hook);
        let mut passed = hook.before(operation, offset, bytes);
        if is_stable {
            passed = passed.and_then(|()| hook.before(Operation::Flush, 0, 0));
        }
        let hooked: Done = Box::new(move |ended: Ended| {
            if is_stable {
                hook.after(Operation::Flush, 0, 0, &ended.outcome, begun.elapsed());
            }
            hook.after(operation, offset, bytes, &ended.outcome, begun.elapsed());
            done(ended);
        });
        match passed {
            Ok(()) => self.inner.begin(request, hooked),
            Err(error) => {
                hooked(Ended::new(Err(error), request));
                Ticket::default()
            }
        }
    }
    fn borrow(&self, offset: u64, length: usize) -> Result<Option<Vec<Borrowed>>, StoreError> {
        if self.hook.may_wait(Operation::Read) {
            return Ok(None);
        }
        let begun = Instant::now();
        let Some(borrowed) = self.inner.borrow(offset, length)? else { return Ok(None) };
        let outcome = self.hook.before(Operation::Read, offset, length as u64);
        self.hook.after(Operation::Read, offset, length as u64, &outcome, begun.elapsed());
        outcome.map(|()| Some(borrowed))
    }
    fn geometry(&self) -> Option<crate::Geometry> {
        self.inner.geometry()
    }
    fn statistics(&self) -> Vec<Passed> {
        let own = self.hook.passed();
        if own.is_empty() { self.inner.statistics() } else { own }
    }
    fn limits(&self) -> crate::Limits {
        self.inner.limits()
    }
    fn zero(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        self.pass(Operation::Discard, offset, length, || self.inner.zero(offset, length))
    }
    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        self.pass(Operation::Discard, offset, length, || self.inner.discard(offset, length))
    }
    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        self.inner.is_mapped(offset)
    }
    fn can_resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.inner.can_resize(size_bytes)
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.inner.resize(size_bytes)
    }
    fn flush(&self) -> Result<(), StoreError> {
        self.pass(Operation::Flush, 0, 0, || self.inner.flush())
    }
}
