//! Memory that data is read into and written from: aligned, so that a disk can fill it by itself.

use std::ops::{Deref, DerefMut};

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

impl Buffer {
    /// Zeros.
    #[must_use]
    pub fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGNMENT_BYTES];
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
        }
    }
}
