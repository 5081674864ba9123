//! A logical unit: its store and the nexuses with tasks at it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{ArcRwLockReadGuard, RawRwLock, RwLock};
use store::Store;

use crate::counters::DiskCounters;
use crate::fence::Nexuses;

/// The store of a disk, its lock for atomic operations, and the nexuses that use it.
pub(crate) struct Unit {
    /// Unique in the process.
    pub(crate) id: u64,
    pub(crate) store: Arc<dyn Store>,
    /// Held shared by reads and writes, exclusively by atomic operations.
    pub(crate) atomic_lock: Arc<RwLock<()>>,
    /// The I_T nexuses that use it, and the epochs of their tasks.
    pub(crate) nexuses: Nexuses,
    pub(crate) counters: DiskCounters,
}

impl fmt::Debug for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unit")
            .field("id", &self.id)
            .field("store", &self.store.kind())
            .finish_non_exhaustive()
    }
}

/// A guard: while it is held, no atomic operation changes the disk.
pub(crate) type Shared = ArcRwLockReadGuard<RawRwLock, ()>;

impl Unit {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            id,
            store,
            atomic_lock: Arc::default(),
            nexuses: Nexuses::default(),
            counters: DiskCounters::default(),
        }
    }

    /// Locks out atomic operations until the guard is dropped, on any thread; `None` while one runs.
    pub(crate) fn try_share(&self) -> Option<Shared> {
        self.atomic_lock.try_read_arc()
    }
}
