//! Backing stores: where a disk's blocks are.

#![deny(unsafe_code)]

mod arena;
pub mod buffer;
mod chunk;
mod claim;
mod direct;
pub mod file;
pub mod layer;
mod memory;
mod operation;
pub mod ram;
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
pub use operation::Operation;
pub use ram::Ram;
pub use request::{Done, Ended, Request, Ticket};
pub use spec::{SpecError, StoreSpec};
pub use zero::Zero;

/// Bytes that outlive a command. Offsets and lengths are bytes; a store knows nothing of logical blocks.
///
/// Reads and writes of different places may run at the same time on any thread.
pub trait Store: Send + Sync {
    /// What it is, as on the command line: `ram`, `zero`.
    fn kind(&self) -> &'static str;

    /// Its size, bytes.
    fn size_bytes(&self) -> u64;

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Whether written data may be lost by a power failure until [`Store::flush`] has returned. Reported to
    /// initiators as WCE of the caching mode page; it must be the truth.
    fn has_volatile_cache(&self) -> bool;

    /// Fills all of `buffer` from `offset` on.
    ///
    /// # Errors
    /// When the range is outside, or the medium fails; the buffer's contents are then undefined.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError>;

    /// Writes all of `data` from `offset` on.
    ///
    /// # Errors
    /// When the range is outside, the store is read only, or the medium fails.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError>;

    /// Writes like [`Store::write_at`], and brings what it wrote to where a flush would bring it.
    ///
    /// # Errors
    /// As [`Store::write_at`] and [`Store::flush`].
    fn write_stable_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write_at(offset, data)?;
        self.flush()
    }

    /// Compares a range with `expected` and writes `data` there when it is the same, as one step for all that use
    /// the bytes behind this store, other targets among them: how many bytes from the first on were the same.
    /// Nothing where the store has no such step and its only user, this target, keeps others away meanwhile.
    ///
    /// # Errors
    /// As [`Store::write_at`].
    fn compare_and_write(
        &self,
        _offset: u64,
        _expected: &[u8],
        _data: &[u8],
    ) -> Result<Option<usize>, StoreError> {
        Ok(None)
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

    /// Whether [`Store::begin`] begins this request and goes on without waiting for its end.
    fn takes(&self, _request: &Request) -> bool {
        false
    }

    /// Begins a request, of which `done` is told the end. Any number may be under way; they end in any order. One
    /// that the store does not take is done here and now, however long that takes.
    fn begin(&self, request: Request, done: Done) -> Ticket {
        done(request.carry_out(self));
        Ticket::default()
    }

    /// Whether such an operation may have to wait for a medium, so that it is better done beside other work.
    fn may_wait(&self, _operation: Operation) -> bool {
        false
    }

    /// Fills the buffer like [`Store::read_at`] where that can be done without waiting; false where it cannot.
    ///
    /// # Errors
    /// As [`Store::read_at`].
    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, StoreError> {
        if self.may_wait(Operation::Read) {
            return Ok(false);
        }
        self.read_at(offset, buffer).map(|()| true)
    }

    /// Lends a range for as long as a socket needs it, in order, where nothing has to be waited for; nothing where
    /// this store, or the range, is better copied.
    ///
    /// # Errors
    /// As [`Store::read_at`].
    fn borrow(&self, _offset: u64, _length: usize) -> Result<Option<Vec<Borrowed>>, StoreError> {
        Ok(None)
    }

    /// What the device beneath says of itself, where there is one.
    fn geometry(&self) -> Option<Geometry> {
        None
    }

    /// What has passed, kind by kind, where a `stats` layer counts it.
    fn statistics(&self) -> Vec<Passed> {
        Vec::new()
    }

    /// Bytes that are given memory together, where unwritten places take none; nothing for a store that cannot
    /// give memory back.
    fn granularity_bytes(&self) -> Option<u32> {
        None
    }
    /// Makes a range read as zeros, giving its memory back where whole pieces of it can be.
    ///
    /// # Errors
    /// As [`Store::write_at`].
    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        write_zeros(self, offset, length)
    }
    /// Whether memory is given to a place, and for how many bytes from there on that stays so.
    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        (true, self.size_bytes().saturating_sub(offset))
    }
    /// Checks whether [`Store::resize`] to this size is possible, and changes nothing.
    ///
    /// # Errors
    /// When this kind of store, or one of this size, cannot be.
    fn can_resize(&self, _size_bytes: u64) -> Result<(), StoreError> {
        Err(StoreError::FixedSize(self.kind()))
    }
    /// Makes it larger or smaller; what lies behind the new end is gone. Not while it is written to.
    ///
    /// # Errors
    /// When this kind of store, or one of this size, cannot be.
    fn resize(&self, _size_bytes: u64) -> Result<(), StoreError> {
        Err(StoreError::FixedSize(self.kind()))
    }
    /// Brings everything written before to where it survives what the store promises to survive.
    ///
    /// # Errors
    /// When the medium fails; data written since the last successful flush may be lost.
    fn flush(&self) -> Result<(), StoreError>;
}

/// A block device, as it describes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Logical block length, bytes.
    pub logical_bytes: u32,
    /// Physical block length, bytes.
    pub physical_bytes: u32,
    /// It has heads that must move.
    pub is_rotational: bool,
}

/// Why a store did not do what was asked.
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
    /// A layer was asked to let it fail.
    #[error("failed on purpose ({0:?}), as the disk's 'error' option asks")]
    Injected(Fault),
    /// It was given up before it was done; all, none or a part of it may have been.
    #[error("given up before it was done")]
    Cancelled,
    /// The file system is full.
    #[error("{0}: no space is left for more data; free some")]
    NoSpace(String),
    /// The kernel could not do it.
    #[error("{name}: {error}")]
    Io {
        /// The file.
        name: String,
        /// The kernel's reason.
        error: String,
    },
    /// The size is fixed, or cannot be that.
    #[error("a {0} store cannot have another size, or not that one")]
    FixedSize(&'static str),
    /// The system has no memory left for this many bytes.
    #[error("no memory for {0} more bytes; free some, or serve smaller disks")]
    NoMemory(usize),
}

/// How an operation can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A place that cannot be read or written.
    Medium,
    /// The device is broken.
    Hardware,
    /// The device does not answer.
    NotReady,
    /// There is no space.
    NoSpace,
}

/// Memory that is shorter is better copied than borrowed: next to the header it is in the processor's cache when the
/// kernel copies it (docs/durability.md has the figures).
pub(crate) const BORROWED_MEMORY_BYTES_MIN: usize = 1 << 20;
/// A piece of a file that is shorter is better read than borrowed: that takes fewer calls.
pub(crate) const BORROWED_FILE_BYTES_MIN: usize = 32 << 10;

/// Zeros that are written at once where a store knows no better.
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
