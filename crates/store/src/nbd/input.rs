//! What a connection has received.

use nbd::wire::{HEAD_BYTES_MAX, SMALL_BYTES_MAX};

/// Bytes that are received at once.
const INPUT_BYTES: usize = 256 << 10;

/// What was received and is not understood yet.
pub(super) struct Input {
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Input {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; INPUT_BYTES], start: 0, end: 0 }
    }

    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn take(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room for what is expected next, which is shorter than all the room.
    pub(super) fn compact(&mut self) {
        if self.start > 0 && self.bytes.len() - self.end < HEAD_BYTES_MAX + SMALL_BYTES_MAX as usize {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}
