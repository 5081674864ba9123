//! Borrowed data: ranges of a store's memory or file that a response refers to until a socket has sent them, without a
//! copy.

#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::sync::{Arc, LazyLock};

/// A range of bytes that a response refers to and does not own.
#[derive(Clone)]
pub struct Borrowed {
    /// The memory or file.
    pub source: Source,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: usize,
}

/// The owner of borrowed bytes.
#[derive(Clone)]
pub enum Source {
    /// Memory that is not changed while it is borrowed.
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
    /// The page cache of a file, which the kernel sends directly, with the contents at that time.
    File(Arc<File>),
}

impl Borrowed {
    /// The bytes, if they are in memory.
    #[must_use]
    pub fn memory(&self) -> Option<&[u8]> {
        let Source::Memory(memory) = &self.source else { return None };
        let from = usize::try_from(self.offset).ok()?;
        (**memory).as_ref().get(from..from.checked_add(self.length)?)
    }

    /// A part of it.
    #[must_use]
    pub fn part(&self, from: u64, length: usize) -> Self {
        Self { source: self.source.clone(), offset: self.offset + from, length }
    }
}

impl fmt::Debug for Borrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.source {
            Source::Memory(_) => "memory",
            Source::File(_) => "file",
        };
        write!(f, "{} bytes at {} of {place}", self.length, self.offset)
    }
}

/// Length of the memory for zeros. It is never written, so all its pages are one page of the system.
const ZEROS_BYTES: usize = 1 << 20;

/// Appends `length` zero bytes.
pub fn zeros(length: usize, borrowed: &mut Vec<Borrowed>) {
    static ZEROS: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| Arc::new(vec![0; ZEROS_BYTES]));
    let mut left = length;
    while left > 0 {
        let length = left.min(ZEROS_BYTES);
        borrowed.push(Borrowed { source: Source::Memory(ZEROS.clone()), offset: 0, length });
        left -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_have_the_requested_length() {
        let mut borrowed = Vec::new();
        zeros(3 * ZEROS_BYTES + 5, &mut borrowed);
        let bytes: usize = borrowed.iter().map(|borrowed| borrowed.length).sum();
        assert_eq!((borrowed.len(), bytes), (4, 3 * ZEROS_BYTES + 5));
    }
}
