//! Backing stores: where a disk's data is.

#![deny(unsafe_code)]

mod arena;
pub mod buffer;
mod chunk;
mod claim;
mod direct;
pub mod file;
pub mod layer;
mod memory;
pub mod nbd;
mod operation;
pub mod ram;
pub mod rbd;
pub mod request;
mod resident;
pub mod spec;
mod uring;
pub mod zero;

use borrowed::Borrowed;
use thiserror::Error;

use crate::layer::Passed;

pub use buffer::Buffer;
pub use claim::Owner;
pub use file::FileStore;
pub use nbd::NbdStore;
pub use operation::Operation;
pub use ram::Ram;
pub use rbd::RbdStore;
pub use request::{Done, Ended, Request, Ticket};
pub use spec::{SpecError, StoreSpec};
pub use zero::Zero;

/// The data of a disk. Offsets and lengths are bytes; a store knows nothing of logical blocks.
///
/// Every method may be called at any time on any thread, with one exception: [`Store::resize`] must not run during a
/// write. Concurrent reads and writes of the same range are not atomic: a read may return part of the old and part of the
/// new data.
///
/// The blocking methods ([`Store::read_at`] and so on) return when the operation is complete. [`Store::begin`] is the
/// other way to the same data:
///
/// - For a request that [`Store::takes`], `begin` returns without waiting. Otherwise it carries the request out before
///   it returns.
/// - `done` is called exactly once with the [`Ended`] request, on any thread, possibly before `begin` returns. It must
///   not block.
/// - Requests in flight end in any order, so the caller orders conflicting ones. [`Request::Flush`] covers the writes
///   that ended before it began.
/// - The request owns its memory until it ends. [`Ticket::cancel`] asks for an early end, with
///   [`StoreError::Cancelled`] if it succeeds; it may be called at any time, also after the end, and `done` is still
///   called once. Dropping the [`Ticket`] cancels nothing.
///
/// ```
/// use store::request::wait_for;
/// use store::{Buffer, Ram, Request, Store};
///
/// let disk = Ram::new(1 << 20);
/// disk.write_at(512, b"data")?;
/// let ended = wait_for(&disk, Request::Read { offset: 512, buffer: Buffer::new(4) });
/// ended.outcome?;
/// assert_eq!(&ended.buffer.expect("a read returns its memory")[..], b"data");
/// # Ok::<(), store::StoreError>(())
/// ```
pub trait Store: Send + Sync {
    /// Its kind, as on the command line: `ram`, `zero`.
    fn kind(&self) -> &'static str;

    /// Its size, bytes.
    fn size_bytes(&self) -> u64;

    /// Whether writes are rejected.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Whether written data may be lost by a power failure until [`Store::flush`] has returned. Reported to
    /// initiators as WCE of the caching mode page; it must be the truth.
    fn has_volatile_cache(&self) -> bool;

    /// Returns a name of its data that every process sees which opens the same ones, and that other data do not have; `None` where
    /// the data end with the process or may already be lost. Initiators may go on after a restart with a disk whose store has the same name.
    fn lasting_name(&self) -> Option<String> {
        None
    }

    /// Fills all of `buffer` from `offset` on.
    ///
    /// # Errors
    /// If the range is outside, or the medium fails; the buffer's contents are then undefined.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError>;

    /// Writes all of `data` from `offset` on.
    ///
    /// # Errors
    /// If the range is outside, the store is read only, or the medium fails.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError>;

    /// Writes like [`Store::write_at`], and makes the data as durable as a flush would.
    ///
    /// # Errors
    /// As [`Store::write_at`] and [`Store::flush`].
    fn write_stable_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write_at(offset, data)?;
        self.flush()
    }

    /// Compares a range with `expected` and writes `data` there if they are equal, in one step for all users of the data,
    /// other targets included. Only for a store with [`Limits::step_bytes`], and at most that many.
    ///
    /// # Errors
    /// [`StoreError::Miscompare`] if they are not equal; otherwise as [`Store::write_at`].
    fn compare_and_write(&self, _offset: u64, _expected: &[u8], _data: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::NoSteps(self.kind()))
    }

    /// Memory for a request of this store.
    fn buffer(&self, length: usize) -> Buffer {
        Buffer::new(length)
    }

    /// Memory for a request of this store, like [`Store::buffer`].
    ///
    /// # Errors
    /// [`StoreError::NoMemory`] when the system has no memory left.
    fn try_buffer(&self, length: usize) -> Result<Buffer, StoreError> {
        Buffer::try_new(length)
    }

    /// Whether [`Store::begin`] returns before the end of this request.
    fn takes(&self, _request: &Request) -> bool {
        false
    }

    /// Begins a request, and calls `done` at its end. Any number may be in flight. A request that the store does not take
    /// is carried out before this returns.
    fn begin(&self, request: Request, done: Done) -> Ticket {
        done(request.carry_out(self));
        Ticket::default()
    }

    /// Whether such an operation may wait for a medium, so that it should not run on a thread with other work.
    fn may_wait(&self, _operation: Operation) -> bool {
        false
    }

    /// Fills the buffer like [`Store::read_at`] if that needs no waiting; otherwise returns false.
    ///
    /// # Errors
    /// As [`Store::read_at`].
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, StoreError> {
        if self.may_wait(Operation::Read) {
            return Ok(false);
        }
        self.read_at(offset, buffer).map(|()| true)
    }

    /// Says that a range will be read or written soon, so that its bytes can be on their way already. A hint: a range outside is
    /// ignored, and nothing is waited for.
    fn foresee(&self, _offset: u64, _length: usize) {}

    /// Lends a range for as long as a socket needs it, in order, where nothing has to be waited for; nothing where
    /// this store, or the range, is better copied.
    ///
    /// # Errors
    /// As [`Store::read_at`].
    fn borrow(&self, _offset: u64, _length: usize) -> Result<Option<Vec<Borrowed>>, StoreError> {
        Ok(None)
    }

    /// The geometry of the underlying device, if there is one.
    fn geometry(&self) -> Option<Geometry> {
        None
    }

    /// The operations so far by kind, if a `stats` layer counts them.
    fn statistics(&self) -> Vec<Passed> {
        Vec::new()
    }

    /// What it does in one step, and what it does best: told to initiators.
    fn limits(&self) -> Limits {
        Limits::default()
    }
    /// Makes a range read as zeros, and keeps its memory.
    ///
    /// # Errors
    /// As [`Store::write_at`].
    fn zero(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        write_zeros(self, offset, length)
    }
    /// Makes a range read as zeros, and frees the memory of whole granules in it.
    ///
    /// # Errors
    /// As [`Store::write_at`].
    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        write_zeros(self, offset, length)
    }
    /// Whether a byte is allocated, and for how many bytes from it on the same holds.
    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        (true, self.size_bytes().saturating_sub(offset))
    }
    /// Checks whether [`Store::resize`] to this size is possible, and changes nothing.
    ///
    /// # Errors
    /// If this kind of store cannot be resized, or not to this size.
    fn can_resize(&self, _size_bytes: u64) -> Result<(), StoreError> {
        Err(StoreError::FixedSize(self.kind()))
    }
    /// Changes its size; data beyond the new end is lost. Must not run during a write.
    ///
    /// # Errors
    /// If this kind of store cannot be resized, or not to this size.
    fn resize(&self, _size_bytes: u64) -> Result<(), StoreError> {
        Err(StoreError::FixedSize(self.kind()))
    }
    /// Makes all earlier writes as durable as this store can.
    ///
    /// # Errors
    /// If the medium fails; data written since the last successful flush may be lost.
    fn flush(&self) -> Result<(), StoreError>;
}

/// What a store does in one step, and what it does best.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that are allocated together, for a store that allocates on write; `None` for one that cannot free memory.
    pub granularity_bytes: Option<u32>,
    /// Longest range that the store compares and writes in one step, bytes; the range must not cross a multiple of this length. Set
    /// for data that others use at the same time. `None` if this target is their only user: it compares and writes any range
    /// under a lock of its own.
    pub step_bytes: Option<u32>,
    /// Preferred length and alignment of requests, bytes.
    pub best_bytes: Option<u32>,
}

/// The geometry that a block device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Logical block length, bytes.
    pub logical_bytes: u32,
    /// Physical block length, bytes.
    pub physical_bytes: u32,
    /// The medium rotates.
    pub is_rotational: bool,
}

/// The error of an operation on a store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum StoreError {
    /// The range is not inside the store.
    #[error(
        "{length} bytes at offset {offset} are outside the store of {size} bytes; ask for less, or make it larger"
    )]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// How many.
        length: u64,
        /// The store's size.
        size: u64,
    },
    /// Writing is not allowed.
    #[error("the store is read only; open it without 'readonly' to write")]
    ReadOnly,
    /// A layer injected this failure.
    #[error("injected failure ({0:?}), by the disk's 'error' option")]
    Injected(Fault),
    /// It was cancelled before its end; all, none or part of it may have been done.
    #[error("cancelled before it was complete")]
    Cancelled,
    /// The data are not what was expected; nothing was written.
    #[error("byte {0} is not as expected, so nothing was written")]
    Miscompare(u64),
    /// There is no operation that compares and writes.
    #[error("a {0} store does not compare and write in one step")]
    NoSteps(&'static str),
    /// It did not answer in time; all, none or part of what was asked may have been done, or may be done later.
    #[error("{name}: no answer for {time:?}: {reason}")]
    TimedOut {
        /// The store.
        name: String,
        /// How long was waited.
        time: std::time::Duration,
        /// What is known of it.
        reason: String,
    },
    /// Another gateway has taken the data over, and this one may not use them any more.
    #[error(
        "{0}: another gateway has taken it over, and fenced this one; serve it there, or restart this target"
    )]
    Fenced(String),
    /// The file system is full.
    #[error("{0}: no space is left for more data; free some")]
    NoSpace(String),
    /// The kernel reported an error.
    #[error("{name}: {error}")]
    Io {
        /// The file.
        name: String,
        /// The kernel's reason.
        error: String,
    },
    /// The size is fixed, or cannot be that.
    #[error("a {0} store cannot be resized to this size")]
    FixedSize(&'static str),
    /// The system has no memory left for this many bytes.
    #[error("no memory for {0} more bytes; free some, or serve smaller disks")]
    NoMemory(usize),
}

/// A failure that a layer injects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The range cannot be read or written.
    Medium,
    /// The device is faulty.
    Hardware,
    /// The device does not answer.
    NotReady,
    /// There is no space.
    NoSpace,
}

/// Memory that is shorter is copied: a piece of its own costs the kernel and the reference more than a short copy
/// (docs/durability.md has figures from here on).
pub(crate) const BORROWED_MEMORY_BYTES_MIN: usize = 16 << 10;
/// A piece of a file that is shorter is better read than borrowed: that takes fewer calls.
pub(crate) const BORROWED_FILE_BYTES_MIN: usize = 32 << 10;

/// Bytes of zeros per write in a store without a better way.
const ZEROS_BYTES: u64 = 64 << 10;

/// Writes zeros over a range.
pub(crate) fn write_zeros<S: Store + ?Sized>(store: &S, offset: u64, length: u64) -> Result<(), StoreError> {
    let zeros = memory::try_zeros(length.min(ZEROS_BYTES) as usize)?;
    let mut done = 0;
    while done < length {
        let count = (length - done).min(ZEROS_BYTES);
        store.write_at(offset + done, &zeros[..count as usize])?;
        done += count;
    }
    Ok(())
}

/// Whether `length` bytes at `offset` lie inside `size` bytes.
pub(crate) fn check_range(offset: u64, length: usize, size: u64) -> Result<(), StoreError> {
    let length = length as u64;
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(StoreError::OutOfRange { offset, length, size }),
    }
}
