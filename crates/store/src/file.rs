//! `file:`, a disk in a file.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::unistd::{Whence, lseek};

use crate::{Store, StoreError, check_range};

/// Bytes that a file system gives and takes back together; all common ones agree.
const GRANULARITY_BYTES: u32 = 4096;

/// A sparse file, read and written through the page cache: what was written survives the end of the target, and
/// a power loss once [`Store::flush`] has returned.
pub struct FileStore {
    file: File,
    name: String,
    size_bytes: AtomicU64,
    /// The kernel may have dropped what it could not write: nothing here is certain any more until the file is
    /// opened again.
    is_broken: AtomicBool,
}

impl FileStore {
    /// Opens a file. With a size it is made where it is missing, and grown where it is smaller; without one its
    /// own length is the size.
    ///
    /// # Errors
    /// When it cannot be opened, or is larger than the size that was given.
    pub fn open(path: &Path, size_bytes: Option<u64>, read_only: bool) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let failed = |error: std::io::Error| StoreError::Io { name: name.clone(), error: error.to_string() };
        let mut options = OpenOptions::new();
        options.read(true).write(!read_only).create(size_bytes.is_some() && !read_only);
        let file = options.open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if !metadata.is_file() {
            return Err(failed(std::io::Error::other("it is no regular file")));
        }
        let length = metadata.len();
        let size = size_bytes.unwrap_or(length);
        if length > size {
            let reason = format!("it has {length} bytes, more than the {size} that are asked for");
            return Err(failed(std::io::Error::other(reason)));
        }
        if length < size {
            file.set_len(size).map_err(failed)?;
        }
        Ok(Self { file, name, size_bytes: AtomicU64::new(size), is_broken: AtomicBool::new(false) })
    }

    fn failed(&self, error: &std::io::Error) -> StoreError {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::NoSpace(self.name.clone()),
            _ => StoreError::Io { name: self.name.clone(), error: error.to_string() },
        }
    }

    /// The next place that holds data, or is a hole; nothing behind it.
    fn seek(&self, offset: u64, whence: Whence) -> Option<u64> {
        let offset = i64::try_from(offset).ok()?;
        lseek(self.file.as_fd(), offset, whence).ok().and_then(|at| u64::try_from(at).ok())
    }
}

impl Store for FileStore {
    fn kind(&self) -> &'static str {
        "file"
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn has_volatile_cache(&self) -> bool {
        true
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        check_range(offset, buffer.len(), self.size_bytes())?;
        self.file.read_exact_at(buffer, offset).map_err(|error| self.failed(&error))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        check_range(offset, data.len(), self.size_bytes())?;
        self.file.write_all_at(data, offset).map_err(|error| self.failed(&error))
    }

    fn granularity_bytes(&self) -> Option<u32> {
        Some(GRANULARITY_BYTES)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        if offset.checked_add(length).is_none_or(|end| end > self.size_bytes()) {
            return Err(StoreError::OutOfRange { offset, length, size: self.size_bytes() });
        }
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let (Ok(from), Ok(count)) = (i64::try_from(offset), i64::try_from(length)) else {
            return Err(StoreError::OutOfRange { offset, length, size: self.size_bytes() });
        };
        if count == 0 {
            return Ok(());
        }
        match fallocate(self.file.as_fd(), flags, from, count) {
            Ok(()) => Ok(()),
            // A file system without holes is written over.
            Err(Errno::EOPNOTSUPP) => crate::write_zeros(self, offset, length),
            Err(error) => Err(self.failed(&error.into())),
        }
    }

    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        let size = self.size_bytes();
        let data = self.seek(offset, Whence::SeekData).unwrap_or(size).min(size);
        if data > offset {
            return (false, data - offset);
        }
        let hole = self.seek(offset, Whence::SeekHole).unwrap_or(size).min(size);
        (true, hole.saturating_sub(offset))
    }

    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.file.set_len(size_bytes).map_err(|error| self.failed(&error))?;
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        if self.is_broken.load(Ordering::Relaxed) {
            let error = "an earlier flush failed, so writes may be lost; start the target again".to_owned();
            return Err(StoreError::Io { name: self.name.clone(), error });
        }
        self.file.sync_data().map_err(|error| {
            // The kernel reports a lost write once: asking again would seem to succeed.
            self.is_broken.store(true, Ordering::Relaxed);
            self.failed(&error)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_there_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let open = |size| FileStore::open(&path, size, false);
        assert!(open(None).is_err(), "without a size nothing is made");
        let store = open(Some(1 << 20)).unwrap();
        store.write_at(700_000, b"kept").unwrap();
        store.flush().unwrap();
        drop(store);
        let store = open(None).unwrap();
        let mut there = [0; 4];
        store.read_at(700_000, &mut there).unwrap();
        assert_eq!((&there, store.size_bytes()), (b"kept", 1 << 20));
        assert!(store.read_at((1 << 20) - 2, &mut there).is_err());
        assert!(open(Some(1 << 19)).is_err(), "a larger file is not cut");
        let read_only = FileStore::open(&path, None, true).unwrap();
        assert!(read_only.write_at(0, b"x").is_err());
    }

    #[test]
    fn holes_are_punched_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(&folder.path().join("disk"), Some(4 << 20), false).unwrap();
        store.write_at(1 << 20, &vec![7; 1 << 20]).unwrap();
        assert_eq!(store.is_mapped(0), (false, 1 << 20));
        assert_eq!(store.is_mapped(1 << 20), (true, 1 << 20));
        assert_eq!(store.is_mapped(2 << 20), (false, 2 << 20));
        store.discard(1 << 20, 1 << 20).unwrap();
        let mut there = [9; 4096];
        store.read_at(1 << 20, &mut there).unwrap();
        assert_eq!(there, [0; 4096]);
        assert!(!store.is_mapped(1 << 20).0);
        store.resize(8 << 20).unwrap();
        assert_eq!(store.size_bytes(), 8 << 20);
        assert!(store.discard(8 << 20, 1).is_err());
    }
}
