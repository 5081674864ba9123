//! The lock that all state of the target is behind.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A thread that panicked while it held the lock left nothing half done: every critical section here is a
/// few map operations that cannot fail between each other.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
