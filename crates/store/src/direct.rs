//! Reads and writes past the page cache: whole, aligned pieces through an aligned buffer.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use parking_lot::{ArcRwLockReadGuard, RawRwLock, RwLock};

use crate::memory::try_zeros;

/// Bytes that pass the buffer at once.
const PIECE_BYTES: usize = 1 << 20;
/// An alignment that every file system and device accepts.
const BUFFER_ALIGNMENT: usize = 4096;

thread_local! {
    /// Kept from one operation to the next, for each thread that does any.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// While it is held, no write of a part reads what it will write back.
pub(crate) type Whole = ArcRwLockReadGuard<RawRwLock, ()>;

/// How a file is read and written without the page cache.
#[derive(Debug)]
pub(crate) struct Direct {
    alignment: u64,
    /// Held exclusively during a read-modify-write of partial blocks.
    part: Arc<RwLock<()>>,
}

impl Direct {
    /// Pieces of `alignment` bytes, a power of two from 512 to 4096.
    pub(crate) fn new(alignment: u32) -> Self {
        Self {
            alignment: alignment.clamp(512, BUFFER_ALIGNMENT as u32).next_power_of_two().into(),
            part: Arc::default(),
        }
    }

    /// Excludes writes of partial blocks during a write of whole ones. `None` while a partial write is in flight: it has to
    /// be waited for.
    pub(crate) fn try_keep_parts_away(&self) -> Option<Whole> {
        self.part.try_read_arc()
    }

    /// The piece that holds a range: where it begins, and how long it is.
    fn around(&self, offset: u64, length: usize) -> (u64, usize) {
        let begin = offset / self.alignment * self.alignment;
        let end = (offset + length as u64).next_multiple_of(self.alignment);
        (begin, (end - begin) as usize)
    }

    /// Whether a range of memory can be read into or written from as it is.
    pub(crate) fn is_aligned(&self, offset: u64, bytes: &[u8]) -> bool {
        offset.is_multiple_of(self.alignment)
            && (bytes.len() as u64).is_multiple_of(self.alignment)
            && (bytes.as_ptr() as u64).is_multiple_of(self.alignment)
    }

    pub(crate) fn read_at(&self, file: &File, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if self.is_aligned(offset, buffer) {
            return file.read_exact_at(buffer, offset);
        }
        for (index, piece) in buffer.chunks_mut(PIECE_BYTES).enumerate() {
            let at = offset + (index * PIECE_BYTES) as u64;
            let (begin, length) = self.around(at, piece.len());
            with_buffer(length, |aligned| {
                file.read_exact_at(aligned, begin)?;
                piece.copy_from_slice(&aligned[(at - begin) as usize..][..piece.len()]);
                Ok(())
            })?;
        }
        Ok(())
    }

    pub(crate) fn write_at(&self, file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.is_aligned(offset, data) {
            let _shared = self.part.read();
            return file.write_all_at(data, offset);
        }
        for (index, piece) in data.chunks(PIECE_BYTES).enumerate() {
            let at = offset + (index * PIECE_BYTES) as u64;
            let (begin, length) = self.around(at, piece.len());
            let is_whole = begin == at && length == piece.len();
            with_buffer(length, |aligned| {
                if is_whole {
                    let _shared = self.part.read();
                    aligned.copy_from_slice(piece);
                    return file.write_all_at(aligned, begin);
                }
                let _alone = self.part.write();
                file.read_exact_at(aligned, begin)?;
                aligned[(at - begin) as usize..][..piece.len()].copy_from_slice(piece);
                file.write_all_at(aligned, begin)
            })?;
        }
        Ok(())
    }
}

/// Lends this thread's buffer, from its first aligned byte on.
fn with_buffer(length: usize, work: impl FnOnce(&mut [u8]) -> io::Result<()>) -> io::Result<()> {
    BUFFER.with_borrow_mut(|buffer| {
        if buffer.len() < length + BUFFER_ALIGNMENT {
            let no_memory = |_| io::Error::from(io::ErrorKind::OutOfMemory);
            *buffer = try_zeros(length + BUFFER_ALIGNMENT).map_err(no_memory)?;
        }
        let skip = buffer.as_ptr().align_offset(BUFFER_ALIGNMENT);
        work(&mut buffer[skip..skip + length])
    })
}
