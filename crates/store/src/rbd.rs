//! `rbd:`, an image of a Ceph cluster, by Ceph's own library.

mod address;
mod flight;
mod library;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::operation::Operation;
use crate::request::{Done, Ended, Ticket, wait_for};
use crate::{Limits, Request, Store, StoreError, check_range};

use flight::Flight;
use library::{How, Opened};

pub use address::{ImageAddress, ImageAddressError};

/// Most bytes that librbd 16 compares and writes in one step, within a multiple of them.
const STEP_BYTES: u32 = 512;
/// What librbd frees at least (`rbd_discard_granularity_bytes`), bytes.
const GRANULARITY_BYTES: u32 = 64 << 10;
/// Bytes whose allocation is asked for at once: some hundred objects.
const MAPPED_BYTES: u64 = 1 << 30;

/// An image of a Ceph cluster. All requests are asynchronous, and none can be cancelled: an object store that stands still may carry
/// out later what it has received, so a request waits as long as the cluster does.
///
/// librbd's cache is off: what was acknowledged is on the object stores' disks, as often as the pool has replicas.
pub struct RbdStore {
    opened: Arc<Opened>,
    name: String,
    is_read_only: bool,
    is_shared: bool,
    identity: Option<String>,
}

impl fmt::Debug for RbdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RbdStore").field(&self.name).finish()
    }
}

/// How an image is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RbdOptions {
    /// The cluster's configuration file (`conf=`).
    pub conf: String,
    /// The user, without `client.` (`id=`).
    pub id: String,
    /// Other targets use it at the same time (`shared=yes`).
    pub shared: bool,
}

impl Default for RbdOptions {
    fn default() -> Self {
        Self { conf: "/etc/ceph/ceph.conf".to_owned(), id: "admin".to_owned(), shared: false }
    }
}

impl RbdStore {
    /// Connects to the cluster and opens an image.
    ///
    /// # Errors
    /// When the libraries are missing, the cluster does not answer, or the image cannot be opened.
    pub fn open(address: &ImageAddress, how: &RbdOptions, read_only: bool) -> Result<Self, StoreError> {
        let name = address.to_string();
        let failed = |error: String| StoreError::Io { name: name.clone(), error };
        let is_read_only = read_only || address.snapshot.is_some();
        let opened = Opened::new(&How {
            conf: &how.conf,
            id: &how.id,
            pool: &address.pool,
            namespace: &address.namespace,
            image: &address.image,
            snapshot: address.snapshot.as_deref(),
            read_only: is_read_only,
        })
        .map_err(failed)?;
        let opened = Arc::new(opened);
        opened.watch().map_err(failed)?;
        // A snapshot has the id of its image.
        let identity = opened.identity().map(|identity| match &address.snapshot {
            Some(snapshot) => format!("{identity}@{snapshot}"),
            None => identity,
        });
        let is_shared = how.shared;
        Ok(Self { opened, name, is_read_only, is_shared, identity })
    }

    fn ask(&self, request: Request) -> Result<Option<crate::Buffer>, StoreError> {
        let ended = wait_for(self, request);
        ended.outcome.map(|()| ended.buffer)
    }

    fn memory(&self, data: &[u8]) -> Result<crate::Buffer, StoreError> {
        let mut memory = self.try_buffer(data.len())?;
        memory.copy_from_slice(data);
        Ok(memory)
    }
}

impl Store for RbdStore {
    fn kind(&self) -> &'static str {
        "rbd"
    }

    fn size_bytes(&self) -> u64 {
        self.opened.size_bytes.load(Ordering::Relaxed)
    }

    fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn has_volatile_cache(&self) -> bool {
        false
    }

    fn lasting_name(&self) -> Option<String> {
        self.identity.clone()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        if let Some(data) = self.ask(Request::Read { offset, buffer: self.try_buffer(buffer.len())? })? {
            buffer.copy_from_slice(&data);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.ask(Request::Write { offset, data: self.memory(data)?, is_stable: false }).map(drop)
    }

    fn write_stable_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write_at(offset, data)
    }

    fn compare_and_write(&self, offset: u64, expected: &[u8], data: &[u8]) -> Result<(), StoreError> {
        let (expected, data) = (expected.to_vec(), self.memory(data)?);
        self.ask(Request::CompareAndWrite { offset, expected, data }).map(drop)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        self.ask(Request::Discard { offset, length }).map(drop)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        self.ask(Request::Zero { offset, length }).map(drop)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.ask(Request::Flush).map(drop)
    }

    fn may_wait(&self, _: Operation) -> bool {
        true
    }

    fn takes(&self, request: &Request) -> bool {
        match request {
            Request::CompareAndWrite { offset, expected, data } => {
                let (step, length) = (u64::from(STEP_BYTES), data.len() as u64);
                expected.len() == data.len() && length > 0 && offset / step == (offset + length - 1) / step
            }
            _ => true,
        }
    }

    fn begin(&self, request: Request, done: Done) -> Ticket {
        let (offset, length) = request.place();
        let refused = match check_range(offset, length as usize, self.size_bytes()) {
            Ok(()) if self.is_read_only && request.writes() => Err(StoreError::ReadOnly),
            Ok(()) if !self.takes(&request) => Err(StoreError::NoSteps(self.kind())),
            checked => checked,
        };
        let is_nothing = length == 0 && !matches!(request, Request::Flush);
        if refused.is_err() || is_nothing {
            done(Ended::new(refused, request));
            return Ticket::default();
        }
        Flight::begin(&self.opened, &self.name, request, done);
        // Nothing stops what an object store has received.
        Ticket::default()
    }

    fn limits(&self) -> Limits {
        Limits {
            granularity_bytes: Some(GRANULARITY_BYTES),
            step_bytes: self.is_shared.then_some(STEP_BYTES),
            best_bytes: Some(GRANULARITY_BYTES),
        }
    }

    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        let length = self.size_bytes().saturating_sub(offset).min(MAPPED_BYTES);
        match self.opened.first_extent(offset, length) {
            _ if length == 0 => (true, 0),
            Ok(None) => (false, length),
            Ok(Some((start, run))) if start <= offset => {
                (true, (start + run).saturating_sub(offset).clamp(1, length))
            }
            Ok(Some((start, _))) => (false, (start - offset).min(length)),
            // What is not known counts as data.
            Err(_) => (true, length),
        }
    }
}
