//! `ram:`, a disk in memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use borrowed::{Borrowed, Source};

use crate::chunk::{Batch, CHUNK_BYTES, Chunk, Chunks};
use crate::{BORROWED_MEMORY_BYTES_MIN, Limits, Store, StoreError, check_range};

/// Chunks in one leaf of the table.
const LEAF_CHUNKS: usize = 1024;

/// Most bytes of a range that are fetched ahead. More made reads of 4 KiB no faster: the processor finds their pattern itself.
#[cfg(target_arch = "x86_64")]
const FORESEEN_BYTES: usize = 1 << 10;

/// The largest store: its table of leaves then takes 512 KiB before the first write.
pub const RAM_BYTES_MAX: u64 = 1 << 40;

/// The place of a chunk, which is taken when something in it is first written. While its bytes are borrowed, writes go to
/// a copy.
type Slot = RwLock<Option<Arc<Chunk>>>;
type Leaf = Vec<Slot>;

/// A sparse store: unwritten places read as zeros and take no memory. Gone with the process, and not for a
/// power failure to lose: it has no cache in front of it, so it reports none.
///
/// A write to one chunk is seen whole or not at all; one that crosses chunks is not atomic.
pub struct Ram {
    size_bytes: AtomicU64,
    /// For the largest size there is: a store can grow.
    leaves: Box<[OnceLock<Leaf>]>,
    chunks: Arc<Chunks>,
}

impl Ram {
    /// An empty store of `size_bytes`, at most [`RAM_BYTES_MAX`]; a larger wish is cut to that.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        let size_bytes = size_bytes.min(RAM_BYTES_MAX);
        let leaves = RAM_BYTES_MAX.div_ceil((CHUNK_BYTES * LEAF_CHUNKS) as u64) as usize;
        let size_bytes = AtomicU64::new(size_bytes);
        let leaves = (0..leaves).map(|_| OnceLock::new()).collect();
        Self { size_bytes, leaves, chunks: Arc::default() }
    }

    /// The slot at `index`, when its leaf exists.
    fn slot(&self, index: usize) -> Option<&Slot> {
        self.leaves.get(index / LEAF_CHUNKS)?.get()?.get(index % LEAF_CHUNKS)
    }

    /// The slot at `index`, whose leaf is made when needed; none outside the largest store.
    fn slot_for_write(&self, index: usize) -> Result<Option<&Slot>, StoreError> {
        let Some(place) = self.leaves.get(index / LEAF_CHUNKS) else { return Ok(None) };
        let leaf = match place.get() {
            Some(leaf) => leaf,
            None => {
                let mut leaf = Leaf::new();
                let bytes = LEAF_CHUNKS * size_of::<Slot>();
                leaf.try_reserve_exact(LEAF_CHUNKS).map_err(|_| StoreError::NoMemory(bytes))?;
                leaf.resize_with(LEAF_CHUNKS, Slot::default);
                // Another thread may have been first.
                place.get_or_init(|| leaf)
            }
        };
        Ok(leaf.get(index % LEAF_CHUNKS))
    }

    /// A chunk's bytes for writing: a copy while they are borrowed.
    #[inline]
    fn writable<'a>(&self, chunk: &'a mut Arc<Chunk>) -> Result<&'a mut [u8], StoreError> {
        if Arc::get_mut(chunk).is_none() {
            let mut copy = self.chunks.take()?;
            copy.copy_from_slice(chunk);
            *chunk = Arc::new(copy);
        }
        // Nobody else refers to it now.
        Arc::get_mut(chunk).map(|chunk| &mut **chunk).ok_or(StoreError::NoMemory(CHUNK_BYTES))
    }
}

impl Store for Ram {
    fn kind(&self) -> &'static str {
        "ram"
    }

    #[inline]
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn can_resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        if size_bytes == 0 || size_bytes > RAM_BYTES_MAX {
            return Err(StoreError::FixedSize(self.kind()));
        }
        Ok(())
    }

    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.can_resize(size_bytes)?;
        let before = self.size_bytes();
        if size_bytes < before {
            // Truncated data must not reappear when the store grows again. The rest of the last chunk is cleared first: that is
            // all that can fail, and then nothing behind it is lost.
            let whole = size_bytes.next_multiple_of(CHUNK_BYTES as u64).min(before);
            self.discard(size_bytes, whole - size_bytes)?;
            self.discard(whole, before - whole)?;
        }
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn has_volatile_cache(&self) -> bool {
        false
    }

    #[inline]
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        check_range(offset, buffer.len(), self.size_bytes())?;
        let (mut at, mut rest) = (offset, buffer);
        while !rest.is_empty() {
            let (index, within) = ((at / CHUNK_BYTES as u64) as usize, (at % CHUNK_BYTES as u64) as usize);
            let count = rest.len().min(CHUNK_BYTES - within);
            let (piece, behind) = rest.split_at_mut(count);
            let chunk = self.slot(index).map(|c| c.read().unwrap_or_else(PoisonError::into_inner));
            match chunk.as_ref().and_then(|c| c.as_ref()) {
                Some(bytes) => piece.copy_from_slice(&bytes[within..within + count]),
                None => piece.fill(0),
            }
            rest = behind;
            at += count as u64;
        }
        Ok(())
    }

    #[cfg(target_arch = "x86_64")]
    #[inline]
    fn foresee(&self, offset: u64, length: usize) {
        if length >= BORROWED_MEMORY_BYTES_MIN {
            return;
        }
        let (index, within) =
            ((offset / CHUNK_BYTES as u64) as usize, (offset % CHUNK_BYTES as u64) as usize);
        if let Some(slot) = self.slot(index)
            && let Ok(chunk) = slot.try_read()
            && let Some(chunk) = chunk.as_ref()
        {
            chunk.fetch(within, length.min(FORESEEN_BYTES));
        }
    }

    #[inline]
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        check_range(offset, data.len(), self.size_bytes())?;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let (index, within) = ((at / CHUNK_BYTES as u64) as usize, (at % CHUNK_BYTES as u64) as usize);
            let count = rest.len().min(CHUNK_BYTES - within);
            // Every chunk inside the size has its place. Were one missing, the data must not pass as written.
            let Some(slot) = self.slot_for_write(index)? else {
                let (length, size) = (count as u64, self.size_bytes());
                return Err(StoreError::OutOfRange { offset: at, length, size });
            };
            let mut slot = slot.write().unwrap_or_else(PoisonError::into_inner);
            let chunk = match slot.as_mut() {
                Some(chunk) => chunk,
                None => slot.insert(Arc::new(self.chunks.take()?)),
            };
            self.writable(chunk)?[within..within + count].copy_from_slice(&rest[..count]);
            rest = &rest[count..];
            at += count as u64;
        }
        Ok(())
    }

    fn borrow(&self, offset: u64, length: usize) -> Result<Option<Vec<Borrowed>>, StoreError> {
        check_range(offset, length, self.size_bytes())?;
        if length < BORROWED_MEMORY_BYTES_MIN {
            return Ok(None);
        }
        let (mut at, mut left, mut borrowed) = (offset, length, Vec::new());
        while left > 0 {
            let (index, within) = ((at / CHUNK_BYTES as u64) as usize, (at % CHUNK_BYTES as u64) as usize);
            let length = left.min(CHUNK_BYTES - within);
            let chunk = self.slot(index).map(|c| c.read().unwrap_or_else(PoisonError::into_inner));
            match chunk.as_ref().and_then(|c| c.as_ref()) {
                Some(bytes) => {
                    let (source, offset) = (Source::Memory(Arc::clone(bytes) as _), within as u64);
                    borrowed.push(Borrowed { source, offset, length });
                }
                None => borrowed::zeros(length, &mut borrowed),
            }
            at += length as u64;
            left -= length;
        }
        Ok(Some(borrowed))
    }

    fn limits(&self) -> Limits {
        Limits { granularity_bytes: Some(CHUNK_BYTES as u32), ..Limits::default() }
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        match offset.checked_add(length) {
            Some(end) if end <= self.size_bytes() => {}
            _ => return Err(StoreError::OutOfRange { offset, length, size: self.size_bytes() }),
        }
        let (mut at, mut left, mut dropped) = (offset, length, Batch::default());
        while left > 0 {
            let (index, within) = ((at / CHUNK_BYTES as u64) as usize, (at % CHUNK_BYTES as u64) as usize);
            let count = left.min((CHUNK_BYTES - within) as u64) as usize;
            if let Some(chunk) = self.slot(index) {
                let mut chunk = chunk.write().unwrap_or_else(PoisonError::into_inner);
                if count == CHUNK_BYTES {
                    // One that is borrowed is dropped by the last reader.
                    if let Some(chunk) = chunk.take().and_then(Arc::into_inner) {
                        dropped.push(chunk);
                    }
                } else if let Some(bytes) = chunk.as_mut() {
                    self.writable(bytes)?[within..within + count].fill(0);
                }
                at += count as u64;
                left -= count as u64;
            } else {
                // A leaf that was never made holds nothing: on to the next one.
                let leaf_bytes = (CHUNK_BYTES * LEAF_CHUNKS) as u64;
                let skip = (leaf_bytes - at % leaf_bytes).min(left);
                at += skip;
                left -= skip;
            }
        }
        Ok(())
    }

    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        let mapped = |index: usize| {
            self.slot(index).is_some_and(|c| c.read().unwrap_or_else(PoisonError::into_inner).is_some())
        };
        let first = (offset / CHUNK_BYTES as u64) as usize;
        let is = mapped(first);
        // A limit of one answer; the caller continues from its end.
        let same = (first + 1..first + LEAF_CHUNKS).take_while(|&index| mapped(index) == is).count();
        let end = (((first + 1 + same) * CHUNK_BYTES) as u64).min(self.size_bytes());
        (is, end.saturating_sub(offset))
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_an_array_of_bytes(
            operations in prop::collection::vec((0_u64..300_000, 0_usize..100_000, any::<u8>(), any::<bool>()), 1..40)
        ) {
            let size = 300_000;
            let ram = Ram::new(size);
            let mut plain = vec![0_u8; size as usize];
            for (offset, length, value, write) in operations {
                let inside = offset as usize + length <= plain.len();
                if write {
                    let data: Vec<u8> = (0..length).map(|i| value.wrapping_add(i as u8)).collect();
                    prop_assert_eq!(ram.write_at(offset, &data).is_ok(), inside);
                    if inside { plain[offset as usize..][..length].copy_from_slice(&data); }
                } else {
                    let mut data = vec![0xaa; length];
                    prop_assert_eq!(ram.read_at(offset, &mut data).is_ok(), inside);
                    if inside { prop_assert_eq!(&data[..], &plain[offset as usize..][..length]); }
                }
            }
        }
    }

    #[test]
    fn a_huge_store_uses_memory_for_written_chunks_only() {
        let ram = Ram::new(RAM_BYTES_MAX);
        ram.write_at(RAM_BYTES_MAX - 3, &[1, 2, 3]).unwrap();
        let mut last = [0; 4];
        ram.read_at(RAM_BYTES_MAX - 4, &mut last).unwrap();
        assert_eq!(last, [0, 1, 2, 3]);
        let leaves = ram.leaves.iter().filter(|l| l.get().is_some()).count();
        assert_eq!(leaves, 1);
    }

    #[test]
    fn discarded_ranges_read_as_zeros_and_free_memory() {
        let ram = Ram::new(10 << 20);
        let chunk = CHUNK_BYTES as u64;
        ram.write_at(0, &vec![7; 4 * CHUNK_BYTES]).unwrap();
        assert_eq!(ram.is_mapped(0), (true, 4 * chunk));
        ram.discard(chunk - 10, 2 * chunk + 20).unwrap();
        let mut all = vec![1; 4 * CHUNK_BYTES];
        ram.read_at(0, &mut all).unwrap();
        let zeros = CHUNK_BYTES - 10..3 * CHUNK_BYTES + 10;
        assert!(all.iter().enumerate().all(|(i, &b)| b == if zeros.contains(&i) { 0 } else { 7 }));
        assert_eq!(ram.is_mapped(chunk), (false, 2 * chunk));
        assert_eq!(ram.is_mapped(4 * chunk), (false, (10 << 20) - 4 * chunk));
        assert!(ram.discard(10 << 20, 1).is_err());
    }

    #[test]
    fn borrowed_data_is_unchanged_by_a_later_write() {
        let ram = Ram::new(10 << 20);
        let chunk = CHUNK_BYTES as u64;
        ram.write_at(chunk, &vec![7; CHUNK_BYTES]).unwrap();
        // A hole, a chunk, and a hole again, the last chunk of it in part.
        let length = 3 * CHUNK_BYTES + 10;
        let borrowed = ram.borrow(10, length).unwrap().unwrap();
        ram.write_at(0, &vec![9; 2 * length]).unwrap();
        ram.discard(chunk, chunk).unwrap();
        let mut all = Vec::new();
        for piece in &borrowed {
            let Source::Memory(memory) = &piece.source else { panic!("in a file") };
            all.extend_from_slice(&(**memory).as_ref()[piece.offset as usize..][..piece.length]);
        }
        let sevens = CHUNK_BYTES - 10..2 * CHUNK_BYTES - 10;
        assert_eq!(all.len(), length);
        assert!(all.iter().enumerate().all(|(i, &b)| b == if sevens.contains(&i) { 7 } else { 0 }));
        assert!(ram.borrow(10 << 20, 1).is_err());
    }

    #[test]
    fn concurrent_writers_of_one_chunk_do_not_tear_blocks() {
        let ram = Arc::new(Ram::new(1 << 20));
        std::thread::scope(|scope| {
            for value in 1..=4_u8 {
                let ram = Arc::clone(&ram);
                scope.spawn(move || {
                    for _ in 0..500 {
                        ram.write_at(4096, &[value; 4096]).unwrap();
                        let mut back = [0; 4096];
                        ram.read_at(4096, &mut back).unwrap();
                        assert!(back.iter().all(|&b| b == back[0]));
                    }
                });
            }
        });
    }

    #[test]
    fn resizing_keeps_data_and_truncated_data_is_lost() {
        let store = Ram::new(1 << 20);
        store.write_at((1 << 20) - 512, &[7; 512]).unwrap();
        store.resize(2 << 20).unwrap();
        store.write_at((2 << 20) - 512, &[8; 512]).unwrap();
        let mut there = [0; 512];
        store.read_at((1 << 20) - 512, &mut there).unwrap();
        assert_eq!(there, [7; 512]);
        store.resize(1 << 19).unwrap();
        assert!(store.read_at(1 << 19, &mut there).is_err());
        store.resize(1 << 20).unwrap();
        store.read_at((1 << 20) - 512, &mut there).unwrap();
        assert_eq!(there, [0; 512]);
        assert!(store.resize(RAM_BYTES_MAX + 1).is_err() && store.resize(0).is_err());
    }

    #[test]
    fn a_foreseen_range_may_lie_anywhere() {
        let ram = Ram::new(1 << 20);
        ram.write_at(CHUNK_BYTES as u64, &[7]).unwrap();
        let last = CHUNK_BYTES as u64 * 2 - 1;
        for offset in [0, CHUNK_BYTES as u64, last, 1 << 20, RAM_BYTES_MAX, u64::MAX - 1, u64::MAX] {
            for length in [0, 1, 512, usize::MAX] {
                ram.foresee(offset, length);
            }
        }
        assert!(!ram.is_mapped(0).0, "nothing is allocated");
    }
}
