//! The buffer between a reader and its parser.

use std::io::{self, Read};

/// Bytes per read: fits into the second-level cache of common CPUs.
const READ_BYTES: usize = 256 << 10;

/// A reader with look-ahead.
pub(super) struct Buffer {
    reader: Box<dyn Read + Send>,
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// Bytes consumed.
    offset: u64,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer").field("offset", &self.offset).finish_non_exhaustive()
    }
}

impl Buffer {
    pub(super) fn new(reader: Box<dyn Read + Send>) -> Self {
        Self { reader, bytes: vec![0; 2 * READ_BYTES], from: 0, to: 0, offset: 0 }
    }

    /// Bytes consumed so far.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// At least the next `count` bytes, or all that remain.
    #[inline]
    pub(super) fn peek(&mut self, count: usize) -> io::Result<&[u8]> {
        if self.to - self.from < count {
            self.fill(count)?;
        }
        Ok(&self.bytes[self.from..self.to])
    }

    #[cold]
    fn fill(&mut self, count: usize) -> io::Result<()> {
        self.bytes.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        let wanted = count.next_multiple_of(READ_BYTES) + READ_BYTES;
        if self.bytes.len() < wanted {
            self.bytes.resize(wanted, 0);
        }
        while self.to < count {
            let room = (self.to + READ_BYTES).min(self.bytes.len());
            match self.reader.read(&mut self.bytes[self.to..room]) {
                Ok(0) => break,
                Ok(read) => self.to += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Skips peeked bytes.
    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        let count = count.min(self.to - self.from);
        self.from += count;
        self.offset += count as u64;
    }

    /// Of peeked bytes: skips `before`, returns `count`, and skips `behind`.
    #[inline]
    pub(super) fn hand_out(&mut self, before: usize, count: usize, behind: usize) -> &[u8] {
        let at = self.from + before;
        self.consume(before + count + behind);
        &self.bytes[at..at + count]
    }

    /// A reader of all bytes that were not consumed.
    pub(super) fn into_reader(self) -> Box<dyn Read + Send> {
        let ahead = self.bytes[self.from..self.to].to_vec();
        Box::new(io::Cursor::new(ahead).chain(self.reader))
    }
}
