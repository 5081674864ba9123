//! Chunks of memory that are mapped from the system, and returned to it as soon as they are dropped.
//!
//! An allocator keeps freed memory for the next allocation. A disk whose blocks are unmapped must give it back instead:
//! its memory may not be needed again for days.

#![allow(unsafe_code, reason = "memory is mapped and unmapped, and each chunk is given to one owner")]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::StoreError;

/// Bytes of one chunk.
pub(crate) const CHUNK_BYTES: usize = 64 << 10;
/// Chunks of one mapping. A mapping per chunk would exceed the system's limit on mappings (vm.max_map_count) on large
/// disks.
const MAPPING_CHUNKS: usize = u64::BITS as usize;
const MAPPING_BYTES: usize = MAPPING_CHUNKS * CHUNK_BYTES;
/// Bytes of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE_BYTES: usize = 64;

/// All chunks of a disk. It lives as long as the last of them.
#[derive(Debug, Default)]
pub(crate) struct Chunks(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    places: Vec<Place>,
    /// Places with free chunks. Its capacity is at least the number of places.
    open: Vec<usize>,
}

/// A place for one mapping. The mapping exists while at least one of its chunks is in use.
#[derive(Debug)]
struct Place {
    mapping: Option<Mapping>,
    /// One bit for each free chunk.
    free: u64,
    /// The place is listed in `open`.
    is_open: bool,
}

/// Anonymous memory of [`MAPPING_BYTES`].
#[derive(Debug)]
struct Mapping(NonNull<u8>);

// SAFETY: the mapping belongs to no thread, and only chunks access its bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new() -> Option<Self> {
        // SAFETY: the kernel chooses an address that is not in use.
        let start = unsafe {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            mmap_anonymous(std::ptr::null_mut(), MAPPING_BYTES, access, flags)
        };
        NonNull::new(start.ok()?.cast()).map(Self)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and a place drops its mapping only when no chunk of it is in use.
        let unmapped = unsafe { munmap(self.0.as_ptr().cast(), MAPPING_BYTES) };
        if let Err(error) = unmapped {
            tracing::warn!("cannot return {MAPPING_BYTES} bytes of memory to the system: {error}");
        }
    }
}

impl Chunks {
    /// Takes a chunk of zeros.
    ///
    /// # Errors
    /// [`StoreError::NoMemory`] when the system has no memory left.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Chunk, StoreError> {
        let none = || StoreError::NoMemory(CHUNK_BYTES);
        let mut state = self.0.lock();
        let State { places, open } = &mut *state;
        let number = match open.last() {
            Some(&number) => number,
            None => {
                places.try_reserve(1).map_err(|_| none())?;
                open.try_reserve(places.len() + 1).map_err(|_| none())?;
                places.push(Place { mapping: None, free: u64::MAX, is_open: true });
                open.push(places.len() - 1);
                places.len() - 1
            }
        };
        let place = &mut places[number];
        let mapping = match &mut place.mapping {
            Some(mapping) => mapping,
            none_yet => none_yet.insert(Mapping::new().ok_or_else(none)?),
        };
        let index = place.free.trailing_zeros();
        place.free &= !(1 << index);
        if place.free == 0 {
            place.is_open = false;
            open.pop();
        }
        // SAFETY: an open place has a free chunk, so the index is below MAPPING_CHUNKS.
        let start = unsafe { mapping.0.add(index as usize * CHUNK_BYTES) };
        Ok(Chunk { start, number, index, is_returned: false, all: Arc::clone(self) })
    }
}

/// A chunk of memory, zeros at first. Its memory is returned to the system when it is dropped.
#[derive(Debug)]
pub(crate) struct Chunk {
    start: NonNull<u8>,
    /// The number of its place.
    number: usize,
    /// Its index in the mapping.
    index: u32,
    /// Its memory went back to the system already.
    is_returned: bool,
    all: Arc<Chunks>,
}

// SAFETY: a chunk owns its bytes like a boxed slice does.
unsafe impl Send for Chunk {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Chunk {}

#[cfg(target_arch = "x86_64")]
impl Chunk {
    /// Asks the processor to fetch bytes of the chunk into its caches.
    #[inline]
    pub(crate) fn fetch(&self, from: usize, length: usize) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for line in self.get(from..).unwrap_or_default().iter().take(length).step_by(LINE_BYTES) {
            // SAFETY: a prefetch of any address is allowed.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(line).cast()) };
        }
    }
}

impl Deref for Chunk {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping exists and is initialised while one of its chunks is in use, and no other chunk has
        // these bytes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), CHUNK_BYTES) }
    }
}

impl DerefMut for Chunk {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the chunk is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), CHUNK_BYTES) }
    }
}

impl AsRef<[u8]> for Chunk {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if !self.is_returned {
            return_memory(std::slice::from_mut(self));
        }
        let mut state = self.all.0.lock();
        let State { places, open } = &mut *state;
        let place = &mut places[self.number];
        place.free |= 1 << self.index;
        if !place.is_open {
            place.is_open = true;
            open.push(self.number);
        }
        let unused = if place.free == u64::MAX { place.mapping.take() } else { None };
        drop(state);
        // Unmapping takes its time: without the lock.
        drop(unused);
    }
}

/// Chunks that are dropped together: the system takes neighbours back in one call.
#[derive(Debug, Default)]
pub(crate) struct Batch(Vec<Chunk>);

impl Batch {
    /// Drops a chunk, now or with later ones.
    pub(crate) fn push(&mut self, chunk: Chunk) {
        if self.0.len() == MAPPING_CHUNKS {
            self.drop_all();
        }
        // Without memory for the batch, each chunk is dropped on its own.
        if self.0.len() < self.0.capacity() || self.0.try_reserve_exact(MAPPING_CHUNKS).is_ok() {
            self.0.push(chunk);
        }
    }

    fn drop_all(&mut self) {
        self.0.sort_unstable_by_key(|chunk| chunk.start);
        let are_neighbours = |a: &Chunk, b: &Chunk| (a.number, a.index + 1) == (b.number, b.index);
        self.0.chunk_by_mut(are_neighbours).for_each(return_memory);
        self.0.clear();
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.drop_all();
    }
}

/// Returns the memory of chunks that lie next to each other to the system; they read as zeros afterwards.
fn return_memory(chunks: &mut [Chunk]) {
    let Some(first) = chunks.first() else { return };
    let (start, length) = (first.start.as_ptr().cast(), chunks.len() * CHUNK_BYTES);
    // SAFETY: the range consists of these chunks, which are borrowed mutably and about to be dropped.
    let is_returned = unsafe { madvise(start, length, Advice::LinuxDontNeed) }.is_ok();
    for chunk in chunks {
        if !is_returned {
            // Locked memory cannot be returned. The next owner still finds zeros.
            chunk.fill(0);
        }
        chunk.is_returned = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_do_not_overlap_and_unused_mappings_are_unmapped() {
        let all = Arc::new(Chunks::default());
        let mut random = fastrand::Rng::with_seed(7);
        let mut taken: Vec<(Chunk, u8)> = Vec::new();
        for round in 0..3000_u32 {
            let mark = round as u8 | 1;
            if taken.len() < 200 && random.u8(..) < 150 {
                let mut chunk = all.take().unwrap();
                assert!(chunk.iter().all(|&byte| byte == 0), "a chunk begins with zeros");
                chunk[random.usize(..CHUNK_BYTES)] = 1;
                chunk.fill(mark);
                taken.push((chunk, mark));
            } else if round % 100 == 0 {
                let mut batch = Batch::default();
                for (chunk, _) in taken.drain(taken.len() / 2..) {
                    batch.push(chunk);
                }
            } else if !taken.is_empty() {
                let (chunk, mark) = taken.swap_remove(random.usize(..taken.len()));
                assert!(chunk.iter().all(|&byte| byte == mark));
            }
        }
        assert!(taken.len() > MAPPING_CHUNKS, "several mappings were in use");
        taken.clear();
        let state = all.0.lock();
        assert!(state.places.iter().all(|place| place.mapping.is_none() && place.free == u64::MAX));
        assert_eq!(state.open.len(), state.places.len());
    }
}
