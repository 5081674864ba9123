//! Bytes on their way out that stay where they are until the socket has taken them.

use std::fmt;
use std::fs::File;
use std::sync::Arc;

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
    /// In memory; whoever reads past its end gets less.
    Memory(Arc<dyn AsRef<[u8]> + Send + Sync>),
    /// In a file's page cache, which the kernel sends by itself.
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
