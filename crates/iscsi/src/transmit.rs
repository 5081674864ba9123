//! Bytes on their way out.

use crate::bhs::{Bhs, padding};
use crate::digest::{Digests, digest};

/// A buffer that responses are built in and that a socket empties, without clearing memory per response.
///
/// Memory that was used before is handed out again by [`TransmitBuffer::claim`]; the claimer must overwrite
/// all of it, or fragments of other responses would leave with it.
#[derive(Debug, Default)]
pub struct TransmitBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    sent: u64,
    digests: Digests,
}

impl TransmitBuffer {
    /// Memory is given back when the buffer runs empty above this size, bytes.
    const KEPT_BYTES: usize = 1 << 20;

    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What waits to be sent.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Offset in the stream of the byte that will be appended next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.sent + (self.end - self.start) as u64
    }

    /// Room for `count` more bytes at the end. Its contents are arbitrary and must all be overwritten.
    pub fn claim(&mut self, count: usize) -> &mut [u8] {
        if self.bytes.len() - self.end < count {
            self.make_room(count);
        }
        let from = self.end;
        self.end += count;
        &mut self.bytes[from..self.end]
    }

    /// The digests of the PDUs from here on.
    pub fn set_digests(&mut self, digests: Digests) {
        self.digests = digests;
    }

    /// The digests that PDUs carry.
    #[must_use]
    #[inline]
    pub fn digests(&self) -> Digests {
        self.digests
    }

    /// Appends a PDU with its padded data segment and its digests.
    pub fn pdu(&mut self, mut bhs: Bhs, data: &[u8]) {
        bhs.set_data_bytes(data.len());
        let pad = &[0; 3][..padding(data.len())];
        self.extend(&bhs.0);
        if self.digests.header {
            self.extend(&digest(&[&bhs.0]));
        }
        self.extend(data);
        self.extend(pad);
        if self.digests.data && !data.is_empty() {
            self.extend(&digest(&[data, pad]));
        }
    }

    /// Takes the last `count` bytes back.
    pub fn unclaim(&mut self, count: usize) {
        self.end -= count.min(self.end - self.start);
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.claim(bytes.len()).copy_from_slice(bytes);
    }

    /// Notes that the first `count` pending bytes are gone.
    pub fn sent(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.sent += count as u64;
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > Self::KEPT_BYTES {
                self.bytes = Vec::new();
            }
        }
    }

    #[cold]
    fn make_room(&mut self, count: usize) {
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let needed = self.end + count;
        if self.bytes.len() < needed {
            self.bytes.resize(needed.next_power_of_two().max(4096), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_appended_leaves_in_order_through_any_pattern_of_sends() {
        let mut buffer = TransmitBuffer::new();
        let (mut expected, mut got) = (Vec::new(), Vec::new());
        for n in 0..2000_usize {
            let bytes: Vec<u8> = (0..n % 97).map(|i| (n + i) as u8).collect();
            buffer.extend(&bytes);
            expected.extend_from_slice(&bytes);
            let take = (n * 31 % 113).min(buffer.pending().len());
            got.extend_from_slice(&buffer.pending()[..take]);
            buffer.sent(take);
            assert_eq!(buffer.position(), expected.len() as u64);
        }
        got.extend_from_slice(buffer.pending());
        assert_eq!(got, expected);
    }

    #[test]
    fn a_large_burst_does_not_keep_its_memory() {
        let mut buffer = TransmitBuffer::new();
        buffer.claim(4 << 20).fill(1);
        buffer.sent(4 << 20);
        assert!(buffer.bytes.is_empty());
    }
}
