//! Memory that is registered with the kernel (`IORING_REGISTER_BUFFERS`) and allocated in pieces: direct reads and
//! writes need not look up its pages.

#![allow(unsafe_code, reason = "pieces of one allocation have one owner each")]

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::StoreError;
use crate::memory::{ALIGNMENT_BYTES, try_zeros};

/// A vector of `u8` in parts. A `Vec` would claim exclusive access to its bytes, which the pieces have.
#[derive(Clone, Copy, Debug)]
struct Allocation {
    start: NonNull<u8>,
    /// Its length, and its capacity.
    bytes: usize,
}

/// Memory in whole pages, and which of them are free.
#[derive(Debug)]
pub(crate) struct Arena {
    allocation: Allocation,
    /// The first aligned byte, derived from the pointer to all of the allocation.
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
        let all = NonNull::from(bytes.as_mut_slice());
        let allocation = Allocation { start: all.cast(), bytes: all.len() };
        // SAFETY: the allocation has ALIGNMENT_BYTES more than the pages need, so that the aligned byte lies in it.
        let start = unsafe { allocation.start.add(skip) };
        let length = pages * ALIGNMENT_BYTES;
        let arena = Self { allocation, start, length, free: Mutex::default() };
        arena.take_back(0..pages);
        Ok(Arc::new(arena))
    }

    /// Its address and length, for registration with the kernel.
    pub(crate) fn place(&self) -> (*mut u8, usize) {
        (self.start.as_ptr(), self.length)
    }

    /// Allocates a piece of at least `length` bytes with undefined contents; `None` if there is no free range of that
    /// size.
    pub(crate) fn allocate(self: &Arc<Self>, length: usize) -> Option<Piece> {
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
        let Allocation { start, bytes } = self.allocation;
        // SAFETY: `new` took these from a vector whose length was its capacity, and gave up the vector. No piece is
        // left: each holds the arena.
        drop(unsafe { Vec::from_raw_parts(start.as_ptr(), bytes, bytes) });
    }
}

/// A part of an arena, which is free again when it is dropped.
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
    fn pieces_do_not_overlap_and_are_freed() {
        let arena = Arena::new(64 * ALIGNMENT_BYTES).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut allocated: Vec<(Piece, u8)> = Vec::new();
        // Miri takes a thousand times as long.
        for mark in 0..if cfg!(miri) { 24 } else { 2000_u32 } {
            let mark = mark as u8;
            if random.bool() && !allocated.is_empty() {
                let (piece, mark) = allocated.swap_remove(random.usize(..allocated.len()));
                assert!(piece.iter().all(|&byte| byte == mark));
            } else if let Some(mut piece) =
                arena.allocate(random.usize(1..if cfg!(miri) { 2 } else { 9 } * ALIGNMENT_BYTES))
            {
                piece.fill(mark);
                allocated.push((piece, mark));
            }
        }
        assert!(arena.allocate(65 * ALIGNMENT_BYTES).is_none());
        allocated.clear();
        assert!(arena.free.lock().iter().eq([&(0..64)]));
        assert!(arena.allocate(64 * ALIGNMENT_BYTES).is_some());
    }
}
