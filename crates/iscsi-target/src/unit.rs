//! A logical unit's bytes, and who has tasks there.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{ArcRwLockReadGuard, RawRwLock, RwLock};
use store::Store;

use crate::fence::Nexuses;

/// A disk's bytes, what keeps its writes apart from atomic operations, and who has tasks there.
pub(crate) struct Unit {
    /// Tells it from every other of the process.
    pub(crate) id: u64,
    pub(crate) store: Arc<dyn Store>,
    /// Held shared while data is read or written, and alone while it is changed atomically.
    pub(crate) atomic_lock: Arc<RwLock<()>>,
    /// The I_T nexuses that use it, and the epochs of their tasks.
    pub(crate) nexuses: Nexuses,
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit")
            .field("id", &self.id)
            .field("store", &self.store.kind())
            .finish_non_exhaustive()
    }
}

/// While it is held no atomic operation changes the disk.
pub(crate) type Shared = ArcRwLockReadGuard<RawRwLock, ()>;

impl Unit {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { id, store, atomic_lock: Arc::default(), nexuses: Nexuses::default() }
    }

    /// Keeps atomic operations away until it is dropped, on whatever thread; nothing while there is one.
    pub(crate) fn try_share(&self) -> Option<Shared> {
        self.atomic_lock.try_read_arc()
    }
}
