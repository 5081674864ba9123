//! Memory of requests: aligned, so that a disk can access it directly.

use std::ops::{Deref, DerefMut};

use crate::StoreError;
use crate::arena::Piece;
use crate::memory::try_zeros;

pub use crate::memory::ALIGNMENT_BYTES;

/// Bytes that belong to one operation, from a boundary of [`ALIGNMENT_BYTES`] on.
#[derive(Debug)]
pub struct Buffer {
    memory: Memory,
    length: usize,
}

#[derive(Debug)]
enum Memory {
    /// Memory of its own; its first aligned byte is `bytes[skip]`.
    Own { bytes: Vec<u8>, skip: usize },
    /// Part of an arena that a ring has registered with the kernel.
    Registered(Piece),
}

impl Buffer {
    /// A buffer of zeros.
    ///
    /// # Panics
    /// Aborts the process if the system has no memory left; see [`Buffer::try_new`].
    #[must_use]
    pub fn new(length: usize) -> Self {
        Self::aligned(vec![0; length + ALIGNMENT_BYTES], length)
    }

    /// A buffer of zeros.
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

    /// A buffer in memory that is registered with a ring; its contents are those of its last use.
    pub(crate) fn registered(piece: Piece, length: usize) -> Self {
        Self { memory: Memory::Registered(piece), length }
    }

    /// Whether its memory is registered with a ring.
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
    fn buffers_are_aligned_and_initialised() {
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
    #[cfg_attr(miri, ignore = "Miri itself runs out of memory")]
    fn a_failed_allocation_is_an_error() {
        for length in [usize::MAX, isize::MAX as usize, isize::MAX as usize / 2] {
            assert_eq!(Buffer::try_new(length).unwrap_err(), StoreError::NoMemory(length));
        }
    }
}
