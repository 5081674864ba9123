//! The memory budget for data that peers can make the target hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A budget shared by all connections of a target. Large allocations are claimed first, so that the bound holds for any
/// number of peers.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicUsize,
    limit: usize,
}

/// A part of the budget, released when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    memory: Arc<Memory>,
    bytes: usize,
}

impl Memory {
    /// Creates a budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), limit })
    }

    /// Returns an empty share, which can grow.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        Share { memory: Arc::clone(self), bytes: 0 }
    }

    /// Claims bytes; `None` when the budget has too few left.
    pub(crate) fn claim(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        self.claim_below(bytes, self.limit)
    }

    /// Claims bytes while no more than half of the budget is in use then.
    pub(crate) fn claim_dispensable(self: &Arc<Self>, bytes: usize) -> Option<Share> {
        self.claim_below(bytes, self.limit / 2)
    }

    fn claim_below(self: &Arc<Self>, bytes: usize, limit: usize) -> Option<Share> {
        let claimed = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&sum| sum <= limit)
        });
        claimed.is_ok().then(|| Share { memory: Arc::clone(self), bytes })
    }

    /// Returns the claimed bytes.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
}

impl Share {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Resizes the share to `bytes`; returns false, without a change, when the budget has too few left.
    pub(crate) fn resize(&mut self, bytes: usize) -> bool {
        if bytes < self.bytes {
            self.memory.used.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        } else if let Some(mut more) = self.memory.claim(bytes - self.bytes) {
            // Moved into this share: dropping `more` must not release them.
            more.bytes = 0;
        } else {
            return false;
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.memory.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_respect_the_limit_and_are_released() {
        let memory = Memory::new(100);
        let first = memory.claim(60).expect("60 of 100");
        assert!(memory.claim(41).is_none() && memory.claim(usize::MAX).is_none());
        let second = memory.claim(40).expect("the rest");
        assert_eq!(memory.used(), 100);
        drop((first, second));
        assert_eq!(memory.used(), 0);
        let mut share = memory.share();
        assert!(share.resize(90) && !share.resize(101) && share.resize(30));
        assert_eq!((memory.used(), share.bytes()), (30, 30));
        drop(share);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn what_is_dispensable_leaves_half_of_the_budget() {
        let memory = Memory::new(100);
        let lent = memory.claim_dispensable(50).unwrap();
        assert!(memory.claim_dispensable(1).is_none());
        let needed = memory.claim(50).unwrap();
        assert!(memory.claim(1).is_none());
        drop(lent);
        assert!(memory.claim_dispensable(1).is_none(), "half is in use");
        drop(needed);
        assert!(memory.claim_dispensable(51).is_none() && memory.claim_dispensable(50).is_some());
    }
}
