//! Memory of buffers that have nothing in them, for those that have: a thread with many connections needs little of it for those that
//! are idle, and what it used last is still in the cache.

/// See the module.
#[derive(Debug)]
pub struct Spares {
    kept: Vec<Vec<u8>>,
    most: usize,
}

impl Spares {
    /// Keeps the memory of at most so many buffers.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { kept: Vec::new(), most }
    }

    /// The memory that was kept last. Its contents are another buffer's.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.kept.pop().unwrap_or_default()
    }

    /// Keeps memory, or frees it if there is enough.
    pub(crate) fn keep(&mut self, memory: Vec<u8>) {
        if !memory.is_empty() && self.kept.len() < self.most {
            self.kept.push(memory);
        }
    }
}
