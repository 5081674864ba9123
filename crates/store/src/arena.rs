//! One piece of memory that the kernel has mapped for good (registered buffers), lent out in parts: reads and
//! writes past the page cache then need not look every page up.

#![allow(unsafe_code, reason = "parts of one allocation are lent out, each to one owner")]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::StoreError;
use crate::buffer::{ALIGNMENT_BYTES, try_zeros};

/// Memory in whole pages, and which of them are free.
#[derive(Debug)]
pub(crate) struct Arena {
    /// The allocation, and its length. It is not kept as a vector, which would claim its bytes for itself.
    allocation: (NonNull<u8>, usize),
    /// The first aligned byte, from the pointer to all of the allocation.
    start: NonNull<u8>,
    length: usize,
    /// Free pages, in order, no two next to each other.
    free: Mutex<Vec<Range<usize>>>,
}

// SAFETY: the memory behind `start` is only reached through pieces, which do not overlap: `free` gives each page to
// one piece at a time, under its lock.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// An arena of `length` bytes, rounded down to whole pages.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`] when the system has no memory left.
    pub(crate) fn new(length: usize) -> Result<Arc<Self>, StoreError> {
        let mut bytes = ManuallyDrop::new(try_zeros(length + ALIGNMENT_BYTES)?);
        let skip = bytes.as_ptr().align_offset(ALIGNMENT_BYTES);
        let pages = length / ALIGNMENT_BYTES;
        let allocation = NonNull::from(bytes.as_mut_slice());
        let (first, all) = (allocation.cast::<u8>(), allocation.len());
        // SAFETY: the allocation has ALIGNMENT_BYTES more than the pages need, so that the aligned byte lies in it.
        let start = unsafe { first.add(skip) };
        let length = pages * ALIGNMENT_BYTES;
        let arena = Self { allocation: (first, all), start, length, free: Mutex::default() };
        arena.take_back(0..pages);
        Ok(Arc::new(arena))
    }

    /// Where it is, for the kernel.
    pub(crate) fn place(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.length)
    }

    /// Lends a part of at least `length` bytes, with whatever was in it; nothing when there is none.
    pub(crate) fn lend(self: &Arc<Self>, length: usize) -> Option<Piece> {
        let pages = length.div_ceil(ALIGNMENT_BYTES).max(1);
        let mut free = self.free.lock();
        let index = free.iter().position(|range| range.len() >= pages)?;
        let start = free[index].start;
        if free[index].len() == pages {
            free.remove(index);
        } else {
            free[index].start += pages;
        }
        drop(free);
        Some(Piece { arena: Arc::clone(self), pages: start..start + pages })
    }

    fn take_back(&self, pages: Range<usize>) {
        let mut free = self.free.lock();
        let index = free.partition_point(|range| range.end <= pages.start);
        let joins_next = free.get(index).is_some_and(|next| next.start == pages.end);
        let joins_last = index > 0 && free[index - 1].end == pages.start;
        match (joins_last, joins_next) {
            (true, true) => {
                free[index - 1].end = free[index].end;
                free.remove(index);
            }
            (true, false) => free[index - 1].end = pages.end,
            (false, true) => free[index].start = pages.start,
            (false, false) => free.insert(index, pages),
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let (first, all) = self.allocation;
        // SAFETY: `new` took these from a vector whose length was its capacity, and gave up the vector. No piece is
        // left: each holds the arena.
        drop(unsafe { Vec::from_raw_parts(first.as_ptr(), all, all) });
    }
}

/// A part of an arena; it goes back when dropped.
#[derive(Debug)]
pub(crate) struct Piece {
    arena: Arc<Arena>,
    pages: Range<usize>,
}

impl Piece {
    fn place(&self) -> (*mut u8, usize) {
        let offset = self.pages.start * ALIGNMENT_BYTES;
        // SAFETY: the pages lie inside the arena's allocation.
        (unsafe { self.arena.start.as_ptr().add(offset) }, self.pages.len() * ALIGNMENT_BYTES)
    }
}

impl Deref for Piece {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let (start, length) = self.place();
        // SAFETY: initialised when the arena was made, alive while the piece holds the arena, and no other piece
        // has these pages.
        unsafe { std::slice::from_raw_parts(start, length) }
    }
}

impl DerefMut for Piece {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, length) = self.place();
        // SAFETY: as above; the piece itself is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(start, length) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.arena.take_back(self.pages.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_do_not_overlap_and_all_of_it_comes_back() {
        let arena = Arena::new(64 * ALIGNMENT_BYTES).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut lent: Vec<(Piece, u8)> = Vec::new();
        // Miri takes a thousand times as long.
        for mark in 0..if cfg!(miri) { 24 } else { 2000_u32 } {
            let mark = mark as u8;
            if random.bool() && !lent.is_empty() {
                let (piece, mark) = lent.swap_remove(random.usize(..lent.len()));
                assert!(piece.iter().all(|&byte| byte == mark));
            } else if let Some(mut piece) =
                arena.lend(random.usize(1..if cfg!(miri) { 2 } else { 9 } * ALIGNMENT_BYTES))
            {
                piece.fill(mark);
                lent.push((piece, mark));
            }
        }
        assert!(arena.lend(65 * ALIGNMENT_BYTES).is_none());
        lent.clear();
        assert!(arena.free.lock().iter().eq([&(0..64)]));
        assert!(arena.lend(64 * ALIGNMENT_BYTES).is_some());
    }
}
