//! Bytes that a store lends to a socket, so that nobody copies them on the way.

use std::fs::File;
use std::sync::{Arc, LazyLock};

/// A range of bytes that stays as it is while it is lent, or changes as the file does.
#[derive(Clone)]
pub struct Lent {
    /// Where they are.
    pub source: Source,
    /// First byte in it.
    pub offset: u64,
    /// How many.
    pub length: usize,
}

/// Where lent bytes are.
#[derive(Clone)]
pub enum Source {
    /// In memory that nobody changes.
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
    /// In a file whose pages are in memory.
    File(Arc<File>),
}

/// Memory that is shorter is better copied: next to the header it is in the processor's cache when the kernel copies
/// it (docs/durability.md has the figures).
pub(crate) const MEMORY_BYTES_MIN: usize = 1 << 20;
/// A piece of a file that is shorter is better read: that takes fewer calls.
pub(crate) const FILE_BYTES_MIN: usize = 32 << 10;

/// Memory for zeros: pages that are never written are all the same page.
const ZEROS_BYTES: usize = 1 << 20;

/// Zeros, so many.
pub(crate) fn zeros(length: usize, lent: &mut Vec<Lent>) {
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
