//! Disks that record every write and complete operations when the simulation decides.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use store::Operation;
use store::{Done, Ended, Request, Store, StoreError, Ticket};

use crate::lock::lock;

pub(super) const BLOCK: u64 = 512;

/// How a disk executes operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Immediately.
    Memory,
    /// Blocking, on the pool.
    Pool,
    /// Asynchronously.
    Asynchronous,
}

/// Written blocks in order: LUN and stamp.
pub(super) type Log = Arc<Mutex<Vec<(u8, u64)>>>;

/// A simulated disk. It stores no data, only the order of writes.
pub(super) struct SimStore {
    lun: u8,
    kind: Kind,
    size: AtomicU64,
    log: Log,
    pending: Mutex<Vec<Pending>>,
}

struct Pending {
    request: Request,
    done: Done,
    is_cancelled: Arc<AtomicBool>,
}

impl SimStore {
    pub(super) fn new(lun: u8, kind: Kind, size: u64, log: &Log) -> Self {
        Self { lun, kind, size: AtomicU64::new(size), log: Arc::clone(log), pending: Mutex::default() }
    }

    /// Completes a pending request; returns whether there was one. A cancelled request may still write, unless
    /// `honours_cancel` is set.
    pub(super) fn end_one(&self, choice: usize, honours_cancel: bool) -> bool {
        let pending = {
            let mut all = lock(&self.pending);
            if all.is_empty() {
                return false;
            }
            // `usize::MAX` selects the newest, so that older requests stay pending for long.
            let place = if choice == usize::MAX { all.len() - 1 } else { choice % all.len() };
            all.remove(place)
        };
        let ended = if honours_cancel && pending.is_cancelled.load(Ordering::Relaxed) {
            Ended::new(Err(StoreError::Cancelled), pending.request)
        } else {
            pending.request.carry_out(self)
        };
        (pending.done)(ended);
        true
    }
}

impl Store for SimStore {
    fn kind(&self) -> &'static str {
        "simulated"
    }
    fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }
    fn has_volatile_cache(&self) -> bool {
        false
    }
    fn read_at(&self, _offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        buffer.fill(0);
        Ok(())
    }
    fn write_at(&self, _offset: u64, data: &[u8]) -> Result<(), StoreError> {
        let mut log = lock(&self.log);
        for block in data.chunks(BLOCK as usize) {
            if let Some(stamp) = block.first_chunk() {
                log.push((self.lun, u64::from_le_bytes(*stamp)));
            }
        }
        Ok(())
    }
    fn may_wait(&self, _operation: Operation) -> bool {
        self.kind != Kind::Memory
    }
    fn takes(&self, _request: &Request) -> bool {
        self.kind == Kind::Asynchronous
    }
    fn begin(&self, request: Request, done: Done) -> Ticket {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let ticket = Arc::clone(&is_cancelled);
        lock(&self.pending).push(Pending { request, done, is_cancelled });
        Ticket::new(move || ticket.store(true, Ordering::Relaxed))
    }
    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.size.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }
}
