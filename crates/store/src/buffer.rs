//! Memory that data is read into and written from: aligned, so that a disk can fill it by itself.

use std::alloc::{Layout, alloc_zeroed};
use std::ops::{Deref, DerefMut};

use crate::StoreError;
use crate::arena::Piece;

/// Where every buffer begins, bytes: what O_DIRECT asks for everywhere.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Bytes that belong to one operation, from a boundary of [`ALIGNMENT_BYTES`] on.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    /// The first aligned byte is `skip` from the beginning.
    Own { bytes: Vec<u8>, skip: usize },
    /// Of memory that a ring has registered with the kernel.
    Registered(Piece),
}

/// `length` zeros, which the system provides without writing them where it can.
///
/// # Errors
/// [`StoreError::NoMemory`] when the system has no memory left.
#[allow(unsafe_code, reason = "the standard library has no allocation of zeros that may fail")]
pub(crate) fn try_zeros(length: usize) -> Result<Vec<u8>, StoreError> {
    if length == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(length).map_err(|_| StoreError::NoMemory(length))?;
    // SAFETY: the layout is not empty. The vector gets memory of its allocator, initialised, with its layout.
    unsafe {
        let start = alloc_zeroed(layout);
        if start.is_null() {
            return Err(StoreError::NoMemory(length));
        }
        Ok(Vec::from_raw_parts(start, length, length))
    }
}

impl Buffer {
    /// Zeros.
    ///
    /// # Panics
    /// When the system has no memory left, the process is aborted; see [`Buffer::try_new`].
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self::aligned(vec![0; length + ALIGNMENT_BYTES], length)
    }

    /// Zeros.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`] when the system has no memory left.
    pub fn try_new(length: usize) -> Result<Self, StoreError> {
        let with_rest = length.checked_add(ALIGNMENT_BYTES).ok_or(StoreError::NoMemory(length))?;
        let bytes = try_zeros(with_rest).map_err(|_| StoreError::NoMemory(length))?;
        Ok(Self::aligned(bytes, length))
    }

    /// The first `length` bytes of `bytes` from an aligned one on.
    fn aligned(bytes: Vec<u8>, length: usize) -> Self {
        let skip = bytes.as_ptr().align_offset(ALIGNMENT_BYTES);
        Self { memory: Memory::Own { bytes, skip }, length }
    }

    /// Memory that is registered with a ring; it holds what was in it before.
    pub(crate) fn registered(piece: Piece, length: usize) -> Self {
        Self { memory: Memory::Registered(piece), length }
    }

    /// Whether a ring knows it already.
    pub(crate) fn is_registered(&self) -> bool {
        matches!(self.memory, Memory::Registered(_))
    }
}

impl From<&[u8]> for Buffer {
    fn from(data: &[u8]) -> Self {
        let mut buffer = Self::new(data.len());
        buffer.copy_from_slice(data);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.memory {
            Memory::Own { bytes, skip } => &bytes[*skip..*skip + self.length],
            Memory::Registered(piece) => &piece[..self.length],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Own { bytes, skip } => &mut bytes[*skip..*skip + self.length],
            Memory::Registered(piece) => &mut piece[..self.length],
        }
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_begins_where_a_disk_can_fill_it() {
        for length in [0, 1, 512, 4096, 100_000] {
            let buffer = Buffer::from(&vec![7; length][..]);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT_BYTES, 0);
            assert!(buffer.len() == length && buffer.iter().all(|&byte| byte == 7));
            let buffer = Buffer::try_new(length).unwrap();
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT_BYTES, 0);
            assert!(buffer.len() == length && buffer.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri itself has no more memory then")]
    fn a_buffer_that_cannot_be_allocated_is_an_error() {
        for length in [usize::MAX, isize::MAX as usize, isize::MAX as usize / 2] {
            assert_eq!(Buffer::try_new(length).unwrap_err(), StoreError::NoMemory(length));
        }
    }
}
