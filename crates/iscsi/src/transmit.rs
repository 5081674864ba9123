//! Bytes that wait to be sent.

use std::collections::VecDeque;
use std::io::IoSlice;

use borrowed::{Borrowed, Source};

use crate::bhs::{Bhs, padding};
use crate::digest::{Digests, digest};
use crate::spares::Spares;

/// A buffer that responses are built in and that a socket empties, without clearing memory per response.
///
/// Memory that was used before is handed out again by [`TransmitBuffer::claim`]; the claimer must overwrite
/// all of it, or fragments of other responses would leave with it.
///
/// It can refer to borrowed ranges ([`TransmitBuffer::push_borrowed`]): they have their place in the stream and are not
/// copied.
#[derive(Debug)]
pub struct TransmitBuffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    sent: u64,
    digests: Digests,
    /// Borrowed ranges, each with the number of own bytes before it, counted from `start`.
    borrowed: VecDeque<(usize, Borrowed)>,
    borrowed_bytes: usize,
    kept_bytes: usize,
}

impl Default for TransmitBuffer {
    fn default() -> Self {
        Self::keeping(Self::KEPT_BYTES)
    }
}

/// What to send next.
#[derive(Debug)]
pub enum Next<'a> {
    /// Nothing.
    Nothing,
    /// These bytes, and more follow at once when it says so.
    Bytes {
        /// In order.
        slices: &'a [IoSlice<'a>],
        /// There is more behind them.
        has_more: bool,
    },
    /// A piece of a file.
    File(&'a Borrowed),
}

/// From here on a buffer grows by as much at a time, bytes.
const LARGE_BYTES: usize = 128 << 10;

/// Most slices of memory that are sent at once.
pub const SLICES_MAX: usize = 64;

/// Appends what fits of some bytes; returns whether something did not.
fn push<'a>(slices: &mut Vec<IoSlice<'a>>, bytes: &'a [u8], left: &mut usize) -> bool {
    let count = bytes.len().min(*left);
    *left -= count;
    if count > 0 {
        slices.push(IoSlice::new(&bytes[..count]));
    }
    count < bytes.len()
}

impl TransmitBuffer {
    /// Default size above which memory is freed when the buffer is empty, bytes.
    const KEPT_BYTES: usize = 512 << 10;

    /// An empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty buffer that keeps up to so much memory between bursts: for one with large bursts again and again.
    #[must_use]
    pub fn keeping(kept_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            start: 0,
            end: 0,
            sent: 0,
            digests: Digests::default(),
            borrowed: VecDeque::new(),
            borrowed_bytes: 0,
            kept_bytes,
        }
    }

    /// Its own unsent bytes: all unsent bytes, if none are borrowed.
    #[must_use]
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Whether everything was sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end && self.borrowed.is_empty()
    }

    /// How many bytes wait, own and borrowed.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.end - self.start + self.borrowed_bytes
    }

    /// How many bytes wait that are its own.
    #[must_use]
    #[inline]
    pub fn own_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Whether any unsent bytes are borrowed.
    #[must_use]
    pub fn has_borrowed(&self) -> bool {
        !self.borrowed.is_empty()
    }

    /// Appends bytes that lie elsewhere.
    pub fn push_borrowed(&mut self, borrowed: Borrowed) {
        debug_assert!(
            matches!(borrowed.source, Source::File(_)) || borrowed.memory().is_some(),
            "{borrowed:?}"
        );
        if borrowed.length > 0 {
            self.borrowed_bytes += borrowed.length;
            self.borrowed.push_back((self.end - self.start, borrowed));
        }
    }

    /// Returns what to send next: memory up to the next file, or a range of a file. `slices` is scratch space. Of memory it is
    /// `most_bytes` at most.
    pub fn next<'a>(&'a self, slices: &'a mut Vec<IoSlice<'a>>, most_bytes: usize) -> Next<'a> {
        slices.clear();
        let own = self.pending();
        let (mut from, mut left) = (0, most_bytes);
        for (before, borrowed) in &self.borrowed {
            if *before > from {
                if push(slices, &own[from..*before], &mut left) {
                    return Next::Bytes { slices, has_more: true };
                }
                from = *before;
            }
            match (borrowed.memory(), slices.is_empty()) {
                (Some(memory), _) if slices.len() < SLICES_MAX && !push(slices, memory, &mut left) => {}
                (None, true) => return Next::File(borrowed),
                _ => return Next::Bytes { slices, has_more: true },
            }
        }
        let has_more = from < own.len() && push(slices, &own[from..], &mut left);
        if slices.is_empty() { Next::Nothing } else { Next::Bytes { slices, has_more } }
    }

    /// Offset in the stream of the byte that will be appended next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.sent + self.waiting_bytes() as u64
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

    /// Takes memory that another buffer used before, if it has none.
    pub fn borrow(&mut self, spares: &mut Spares) {
        if self.bytes.is_empty() {
            self.bytes = spares.take();
        }
    }

    /// Gives its memory away, unless bytes wait to be sent.
    pub fn give_back(&mut self, spares: &mut Spares) {
        if self.is_empty() {
            spares.keep(std::mem::take(&mut self.bytes));
        }
    }

    /// Records that the first `count` pending bytes were sent.
    pub fn sent(&mut self, count: usize) {
        let count = count.min(self.waiting_bytes());
        self.sent += count as u64;
        self.start += if self.borrowed.is_empty() { count } else { self.own_of(count) };
        if self.is_empty() {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > self.kept_bytes {
                self.bytes = Vec::new();
            }
        }
    }

    /// Returns how many of the next `count` bytes are its own, and drops the borrowed ones.
    fn own_of(&mut self, count: usize) -> usize {
        let (mut left, mut own) = (count, 0);
        while let Some((before, borrowed)) = self.borrowed.front_mut() {
            let first = (*before - own).min(left);
            own += first;
            left -= first;
            if left == 0 {
                break;
            }
            let taken = borrowed.length.min(left);
            left -= taken;
            self.borrowed_bytes -= taken;
            if taken < borrowed.length {
                borrowed.offset += taken as u64;
                borrowed.length -= taken;
                break;
            }
            self.borrowed.pop_front();
        }
        if self.borrowed.is_empty() {
            own += left;
        }
        for (before, _) in &mut self.borrowed {
            *before -= own;
        }
        own
    }

    /// A piece of a file could not be sent: its bytes are, from now on, these.
    pub fn replace_next(&mut self, bytes: Vec<u8>) {
        if let Some((_, borrowed)) = self.borrowed.front_mut() {
            self.borrowed_bytes = self.borrowed_bytes - borrowed.length + bytes.len();
            borrowed.length = bytes.len();
            borrowed.offset = 0;
            borrowed.source = Source::Memory(std::sync::Arc::new(bytes));
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
            // Doubling saves copies while it is small; beyond that it would hold memory that is never used.
            let rounded = if needed <= LARGE_BYTES {
                needed.next_power_of_two().max(4096)
            } else {
                needed.next_multiple_of(LARGE_BYTES)
            };
            self.bytes.resize(rounded, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_through_any_pattern_of_sends() {
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
    fn borrowed_data_keeps_its_place_in_the_stream_without_a_copy() {
        let mut random = fastrand::Rng::with_seed(4);
        let memory: std::sync::Arc<Vec<u8>> =
            std::sync::Arc::new((0..5000_u32).map(|i| (i % 251) as u8).collect());
        let (mut buffer, mut expected, mut got) = (TransmitBuffer::new(), Vec::new(), Vec::new());
        for round in 0..3000_usize {
            if random.bool() {
                let bytes: Vec<u8> = (0..random.usize(..60)).map(|i| (round + i) as u8).collect();
                buffer.extend(&bytes);
                expected.extend_from_slice(&bytes);
            }
            if random.u8(..3) == 0 {
                let from = random.usize(..4000);
                let length = random.usize(..900);
                let source = Source::Memory(memory.clone());
                buffer.push_borrowed(Borrowed { source, offset: from as u64, length });
                expected.extend_from_slice(&memory[from..from + length]);
            }
            assert_eq!(buffer.position(), expected.len() as u64);
            let most = random.usize(1..3000);
            if random.bool() {
                let mut slices = Vec::new();
                if let Next::Bytes { slices, has_more } = buffer.next(&mut slices, most) {
                    let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                    assert!((1..=most).contains(&all.len()));
                    assert_eq!(has_more, all.len() < buffer.waiting_bytes(), "{most}");
                    let take = random.usize(..=all.len());
                    got.extend_from_slice(&all[..take]);
                    buffer.sent(take);
                }
            }
        }
        let most = usize::MAX;
        while !buffer.is_empty() {
            let mut slices = Vec::new();
            let Next::Bytes { slices, .. } = buffer.next(&mut slices, most) else { break };
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            got.extend_from_slice(&all);
            buffer.sent(all.len());
        }
        assert!(got == expected && buffer.waiting_bytes() == 0);
    }

    #[test]
    fn memory_goes_from_buffer_to_buffer_when_all_is_sent() {
        let mut spares = Spares::new(1);
        let [mut first, mut second] = [TransmitBuffer::new(), TransmitBuffer::new()];
        first.extend(b"abc");
        first.give_back(&mut spares);
        second.borrow(&mut spares);
        assert_eq!((first.pending(), second.bytes.len()), (&b"abc"[..], 0));
        first.sent(3);
        let source = Source::Memory(std::sync::Arc::new(vec![7; 9]));
        first.push_borrowed(Borrowed { source, offset: 0, length: 9 });
        first.give_back(&mut spares);
        assert!(!first.bytes.is_empty(), "borrowed bytes have their place among its own");
        first.sent(9);
        first.give_back(&mut spares);
        second.borrow(&mut spares);
        assert!(first.bytes.is_empty() && !second.bytes.is_empty());
        second.extend(b"de");
        first.extend(b"f");
        assert_eq!((first.pending(), second.pending()), (&b"f"[..], &b"de"[..]));
        assert_eq!((first.position(), second.position()), (13, 2));
    }

    #[test]
    fn memory_of_a_large_burst_is_released() {
        let mut buffer = TransmitBuffer::new();
        buffer.claim(4 << 20).fill(1);
        buffer.sent(4 << 20);
        assert!(buffer.bytes.is_empty());
    }
}
