//! Bytes on their way out that stay where they are until a socket has taken them: a store lends them, a response
//! refers to them, and nobody copies them in between.

#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::sync::{Arc, LazyLock};

/// A range of somebody else's bytes, that a response only refers to.
#[derive(Clone)]
pub struct Lent {
    /// Where they are.
    pub source: Source,
    /// First byte.
    pub offset: u64,
    /// How many.
    pub length: usize,
}

/// Where lent bytes are.
#[derive(Clone)]
pub enum Source {
    /// In memory that nobody changes while it is lent.
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
    /// In the page cache of a file, which the kernel sends by itself, as they are then.
    File(Arc<File>),
}

impl Lent {
    /// The bytes, where they are in memory.
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

impl fmt::Debug for Lent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match &self.source {
            Source::Memory(_) => "memory",
            Source::File(_) => "file",
        };
        write!(f, "{} bytes at {} of {place}", self.length, self.offset)
    }
}

/// Memory for zeros: pages that are never written are all the same page.
const ZEROS_BYTES: usize = 1 << 20;

/// Zeros, so many.
pub fn zeros(length: usize, lent: &mut Vec<Lent>) {
    static ZEROS: LazyLock<Arc<Vec<u8>>> = LazyLock::new(|| Arc::new(vec![0; ZEROS_BYTES]));
    let mut left = length;
    while left > 0 {
        let length = left.min(ZEROS_BYTES);
        lent.push(Lent { source: Source::Memory(ZEROS.clone()), offset: 0, length });
        left -= length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_as_many_as_are_wanted() {
        let mut lent = Vec::new();
        zeros(3 * ZEROS_BYTES + 5, &mut lent);
        let bytes: usize = lent.iter().map(|lent| lent.length).sum();
        assert_eq!((lent.len(), bytes), (4, 3 * ZEROS_BYTES + 5));
    }
}
