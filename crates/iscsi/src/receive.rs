//! Bytes on their way in.

use crate::spares::Spares;

/// A buffer that a socket fills and PDUs are cut from. It grows to hold one whole PDU, which the framer
/// bounds, and shrinks back when empty.
#[derive(Debug, Default)]
pub struct ReceiveBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    taken: u64,
}

impl ReceiveBuffer {
    /// Usual size, bytes: several hundred commands, or most of a large write.
    pub const USUAL_BYTES: usize = 64 << 10;

    /// An empty buffer; its memory is claimed with the first room.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes received and not taken.
    #[must_use]
    pub fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Offset in the stream of the first unread byte.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.taken
    }

    /// Takes `count` bytes off the front.
    pub fn take(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.taken += count as u64;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Makes room for a PDU of `whole` bytes. Returns the free space behind the unread bytes.
    pub fn room(&mut self, whole: usize) -> &mut [u8] {
        self.try_room(whole).unwrap_or_default()
    }

    /// As [`Self::room`]; `None` if the allocation fails.
    pub fn try_room(&mut self, whole: usize) -> Option<&mut [u8]> {
        self.shrink(whole);
        let crowded = self.bytes.len() - self.start < whole || self.end == self.bytes.len();
        if crowded && self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let wanted = whole.max(Self::USUAL_BYTES);
        if self.bytes.len() < wanted {
            self.bytes.try_reserve_exact(wanted - self.bytes.len()).ok()?;
            self.bytes.resize(wanted, 0);
        }
        Some(&mut self.bytes[self.end..])
    }

    /// Whether it has no more than its usual size for a PDU of `whole` bytes; where it is empty it shrinks to it.
    pub fn shrink(&mut self, whole: usize) -> bool {
        if whole > Self::USUAL_BYTES {
            return false;
        }
        if self.start == self.end && self.bytes.len() > Self::USUAL_BYTES {
            self.bytes = vec![0; Self::USUAL_BYTES];
        }
        self.bytes.len() <= Self::USUAL_BYTES
    }

    /// Takes memory that another buffer used before, if it has none. What that buffer received is overwritten before it can be read.
    pub fn borrow(&mut self, spares: &mut Spares) {
        if self.bytes.is_empty() {
            self.bytes = spares.take();
        }
    }

    /// Gives its memory away, unless it has unread bytes.
    pub fn give_back(&mut self, spares: &mut Spares) {
        if self.start == self.end {
            let memory = std::mem::take(&mut self.bytes);
            if memory.len() <= Self::USUAL_BYTES {
                spares.keep(memory);
            }
        }
    }

    /// Records that `count` bytes were received into the room.
    pub fn came(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read_in_order() {
        let mut buffer = ReceiveBuffer::new();
        let stream: Vec<u8> = (0..400_000_u32).map(|i| (i % 251) as u8).collect();
        let (mut fed, mut got) = (0, Vec::new());
        for whole in [48, 70_000, 200_000, 48, 1000].into_iter().cycle() {
            let room = buffer.room(whole);
            assert!(!room.is_empty());
            let n = room.len().min(stream.len() - fed).min(33_333);
            room[..n].copy_from_slice(&stream[fed..fed + n]);
            buffer.came(n);
            fed += n;
            if buffer.unread().len() >= whole || fed == stream.len() {
                let n = buffer.unread().len().min(whole);
                got.extend_from_slice(&buffer.unread()[..n]);
                buffer.take(n);
                assert_eq!(buffer.position(), got.len() as u64);
            }
            if got.len() == stream.len() {
                break;
            }
        }
        assert_eq!(got, stream);
    }

    #[test]
    fn memory_goes_from_buffer_to_buffer_without_what_was_in_it() {
        let mut spares = Spares::new(1);
        let [mut first, mut second] = [ReceiveBuffer::new(), ReceiveBuffer::new()];
        first.borrow(&mut spares);
        first.room(200_000);
        first.give_back(&mut spares);
        second.borrow(&mut spares);
        assert!(first.bytes.is_empty() && second.bytes.is_empty(), "only the usual size is kept");
        first.room(48)[..3].copy_from_slice(b"abc");
        first.came(3);
        first.give_back(&mut spares);
        assert_eq!(first.unread(), b"abc", "they are still to be read");
        first.take(3);
        first.give_back(&mut spares);
        assert!(first.bytes.is_empty());
        second.borrow(&mut spares);
        assert_eq!(second.bytes.len(), ReceiveBuffer::USUAL_BYTES);
        assert!(second.unread().is_empty());
        second.room(48)[..2].copy_from_slice(b"de");
        second.came(2);
        first.borrow(&mut spares);
        assert_eq!(second.unread(), b"de");
        assert_eq!((first.position(), second.position()), (3, 0));
        assert_eq!(first.room(48).len(), ReceiveBuffer::USUAL_BYTES, "no spare was left");
    }
}
