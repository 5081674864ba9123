//! `file:` and `dev:`, a disk in a file or on a block device.

use std::fs::File;
use std::io::{ErrorKind, IoSliceMut, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use borrowed::{Borrowed, Source};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::stat::{major, minor};
use nix::unistd::{Whence, lseek};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::claim::{Claim, Mode, Owner};
use crate::direct::Direct;
use crate::operation::Operation;
use crate::request::{Done, Ended, Ticket};
use crate::resident::is_resident;
use crate::uring::{Flight, Landed, Uring};
use crate::{
    BORROWED_FILE_BYTES_MIN, Buffer, Geometry, Limits, Request, Store, StoreError, check_range, write_zeros,
};

/// An alignment that every file system accepts for direct I/O, bytes.
const FILE_ALIGNMENT: u32 = 4096;
/// Bytes that a file system gives and takes back together; all common ones agree.
const GRANULARITY_BYTES: u32 = 4096;

/// A sparse file or a block device, read and written through the page cache or past it: what was written survives
/// the end of the target, and a power loss once [`Store::flush`] has returned.
pub struct FileStore {
    file: Arc<File>,
    size_bytes: AtomicU64,
    direct: Option<Direct>,
    /// What a device is; `None` for a file.
    device: Option<Device>,
    /// The file was opened for reading only.
    is_read_only: bool,
    state: Arc<State>,
    /// The ring for operations that wait for the disk; `None` leaves them to the caller's thread.
    ring: Option<Arc<Uring>>,
}

/// What the system says about a block device.
#[derive(Clone, Copy)]
struct Device {
    geometry: Geometry,
    /// The number of its attachment (`diskseq`, Linux 5.15), which other media under its device number do not have.
    sequence: Option<u64>,
}

/// The state that an operation on another thread needs too.
struct State {
    name: String,
    /// The kernel may have dropped what it could not write: nothing here is certain any more until the file is
    /// opened again.
    is_broken: AtomicBool,
    /// Held until the last operation has ended.
    _claim: Option<Claim>,
}

impl State {
    fn failed(&self, error: &std::io::Error) -> StoreError {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::NoSpace(self.name.clone()),
            _ if error.raw_os_error() == Some(libc::ECANCELED) => StoreError::Cancelled,
            _ => StoreError::Io { name: self.name.clone(), error: error.to_string() },
        }
    }

    /// Converts the error of a flush, after which earlier writes may be lost.
    fn lost(&self, error: &std::io::Error) -> StoreError {
        let error = self.failed(error);
        // The kernel reports a lost write only once: a second flush would seem to succeed.
        if error != StoreError::Cancelled {
            self.is_broken.store(true, Ordering::Relaxed);
        }
        error
    }

    fn check(&self) -> Result<(), StoreError> {
        if self.is_broken.load(Ordering::Relaxed) {
            let error = "an earlier flush failed, so writes may be lost; start the target again".to_owned();
            return Err(StoreError::Io { name: self.name.clone(), error });
        }
        Ok(())
    }
}

/// Which threads wait for the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// The ring where it is allowed, threads elsewhere.
    #[default]
    Auto,
    /// The kernel's ring (io_uring): many operations at a time, one thread.
    Ring,
    /// A thread for each operation, out of a bounded pool.
    Threads,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// With a size a file is made where it is missing, and grown where it is smaller; without one its own length
    /// is the size.
    pub size_bytes: Option<u64>,
    /// Nothing is to be written.
    pub read_only: bool,
    /// Past the page cache (O_DIRECT).
    pub direct: bool,
    /// It must be a block device, rather than a file.
    pub device: bool,
    /// Which threads wait for the disk.
    pub engine: Engine,
    /// Other disks and processes may use it at the same time, if they have this option too. Readers always share it.
    pub shared: bool,
}

impl FileStore {
    /// Opens a file or a block device.
    ///
    /// # Errors
    /// As [`FileStore::open_for`].
    pub fn open(path: &Path, how: OpenOptions) -> Result<Self, StoreError> {
        Self::open_for(path, how, &Owner::new("a disk"))
    }

    /// Opens a file or a block device for the disk that owns it.
    ///
    /// # Errors
    /// When it cannot be opened, is not what it should be, is in use, or is larger than the size that was given; when
    /// io_uring is asked for and unavailable.
    pub fn open_for(path: &Path, how: OpenOptions, owner: &Arc<Owner>) -> Result<Self, StoreError> {
        let name = path.display().to_string();
        let failed = |error: std::io::Error| StoreError::Io { name: name.clone(), error: error.to_string() };
        let wrong = |reason: &str| failed(std::io::Error::other(reason.to_owned()));
        let mut options = std::fs::OpenOptions::new();
        options
            .read(true)
            .write(!how.read_only)
            .create(how.size_bytes.is_some() && !how.read_only && !how.device);
        if how.direct {
            options.custom_flags(OFlag::O_DIRECT.bits());
        }
        let file = Arc::new(options.open(path).map_err(failed)?);
        let metadata = file.metadata().map_err(failed)?;
        let (is_file, is_device) = (metadata.is_file(), metadata.file_type().is_block_device());
        match how.device {
            false if !is_file => return Err(wrong("not a regular file; a block device is dev:PATH")),
            true if !is_device => return Err(wrong("not a block device; a file is file:PATH")),
            _ => {}
        }
        let mode = if how.read_only || how.shared { Mode::Shared } else { Mode::Exclusive };
        // Before anything about the file changes.
        let claim = Claim::new(&file, &metadata, &name, mode, owner).map_err(|reason| wrong(&reason))?;
        let device = is_device.then(|| Device::of(metadata.rdev()));
        let length =
            if is_device { (&*file).seek(SeekFrom::End(0)).map_err(failed)? } else { metadata.len() };
        let size = how.size_bytes.unwrap_or(length);
        if length > size {
            return Err(wrong(&format!("it has {length} bytes, more than the requested {size}")));
        }
        let alignment = device.map_or(FILE_ALIGNMENT, |device| device.geometry.logical_bytes);
        if how.direct && !size.is_multiple_of(alignment.into()) {
            return Err(wrong(&format!("{size} bytes are not a multiple of {alignment}, as 'direct' needs")));
        }
        let ring = match how.engine {
            Engine::Threads => None,
            Engine::Ring => Some(Uring::shared().map_err(|error| {
                wrong(&format!(
                    "io_uring is not available ({error}); leave out 'engine=ring', or allow io_uring"
                ))
            })?),
            Engine::Auto => Uring::shared()
                .inspect_err(|error| {
                    tracing::warn!("{name}: io_uring is not available ({error}); using threads instead");
                })
                .ok(),
        };
        if length < size {
            file.set_len(size).map_err(failed)?;
        }
        Ok(Self {
            file,
            size_bytes: AtomicU64::new(size),
            direct: how.direct.then(|| Direct::new(alignment)),
            device,
            is_read_only: how.read_only,
            state: Arc::new(State { name, is_broken: AtomicBool::new(false), _claim: Some(claim) }),
            ring,
        })
    }

    fn failed(&self, error: &std::io::Error) -> StoreError {
        self.state.failed(error)
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        match &self.direct {
            None => self.file.write_all_at(data, offset),
            Some(direct) => direct.write_at(&self.file, offset, data),
        }
    }

    /// The next place that holds data, or is a hole; the end if there is none. `None` if that is unknown: on devices, and on
    /// some file systems.
    fn seek(&self, offset: u64, whence: Whence) -> Option<u64> {
        match lseek(self.file.as_fd(), i64::try_from(offset).ok()?, whence) {
            Ok(at) => u64::try_from(at).ok(),
            Err(Errno::ENXIO) => Some(u64::MAX),
            Err(_) => None,
        }
    }
}

impl Store for FileStore {
    fn kind(&self) -> &'static str {
        if self.device.is_some() { "dev" } else { "file" }
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn has_volatile_cache(&self) -> bool {
        true
    }

    fn lasting_name(&self) -> Option<String> {
        // Another process would not know that writes may be lost.
        self.state.check().ok()?;
        let metadata = self.file.metadata().ok()?;
        if let Some(device) = self.device {
            return Some(format!("device {}:{}", metadata.rdev(), device.sequence?));
        }
        // A file that replaces this one may have its number, but not its time of birth, where the file system tells it.
        let born = metadata.created().ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
        let born = born.map_or(0, |since| since.as_nanos());
        Some(format!("file {}:{}:{born}", metadata.dev(), metadata.ino()))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        check_range(offset, buffer.len(), self.size_bytes())?;
        let read = match &self.direct {
            None => self.file.read_exact_at(buffer, offset),
            Some(direct) => direct.read_at(&self.file, offset, buffer),
        };
        read.map_err(|error| self.failed(&error))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        check_range(offset, data.len(), self.size_bytes())?;
        self.write(offset, data).map_err(|error| self.failed(&error))
    }

    fn buffer(&self, length: usize) -> Buffer {
        let registered = self.ring.as_ref().filter(|_| self.direct.is_some());
        registered.and_then(|ring| ring.buffer(length)).unwrap_or_else(|| Buffer::new(length))
    }

    fn try_buffer(&self, length: usize) -> Result<Buffer, StoreError> {
        let registered = self.ring.as_ref().filter(|_| self.direct.is_some());
        registered.and_then(|ring| ring.buffer(length)).map_or_else(|| Buffer::try_new(length), Ok)
    }

    fn takes(&self, request: &Request) -> bool {
        let is_aligned = |offset: u64, bytes: &[u8]| {
            self.direct.as_ref().is_none_or(|direct| direct.is_aligned(offset, bytes))
        };
        self.ring.is_some()
            && match request {
                Request::Read { offset, buffer } => is_aligned(*offset, buffer),
                Request::Write { offset, data, .. } => {
                    is_aligned(*offset, data)
                        && self.direct.as_ref().is_none_or(|direct| direct.try_keep_parts_away().is_some())
                }
                Request::Flush => true,
                // A file system without holes is written over, and that is more than one operation.
                Request::Discard { .. } | Request::Zero { .. } | Request::CompareAndWrite { .. } => false,
            }
    }

    fn begin(&self, request: Request, done: Done) -> Ticket {
        let Some(ring) = self.ring.as_ref().filter(|_| self.takes(&request)) else {
            done(request.carry_out(self));
            return Ticket::default();
        };
        let (offset, length) = request.place();
        let is_stable = matches!(request, Request::Flush | Request::Write { is_stable: true, .. });
        let refused = check_range(offset, length as usize, self.size_bytes())
            .and_then(|()| if is_stable { self.state.check() } else { Ok(()) });
        if let Err(error) = refused {
            done(Ended::new(Err(error), request));
            return Ticket::default();
        }
        let is_whole_write = matches!(request, Request::Write { .. });
        let whole = match self.direct.as_ref().filter(|_| is_whole_write).map(Direct::try_keep_parts_away) {
            None => None,
            Some(Some(whole)) => Some(whole),
            Some(None) => {
                // A partial write is in flight: wait for it, on this thread.
                done(request.carry_out(self));
                return Ticket::default();
            }
        };
        let state = Arc::clone(&self.state);
        let finish = move |landed: Landed, request: Request| {
            drop(whole);
            let failed = |error| if landed.was_syncing { state.lost(&error) } else { state.failed(&error) };
            let outcome = landed.outcome.map_err(failed);
            done(Ended::new(outcome, request));
        };
        let file = Arc::clone(&self.file);
        let id =
            ring.submit(Flight { file, request, done_bytes: 0, is_syncing: false, done: Box::new(finish) });
        Ticket::new(ring.canceller(id))
    }

    fn may_wait(&self, operation: Operation) -> bool {
        // The page cache takes a write at once, as a rule; everything else may have to wait for the medium.
        operation != Operation::Write || self.direct.is_some()
    }

    fn read_now(&self, offset: u64, buffer: &mut [u8]) -> Result<bool, StoreError> {
        if self.direct.is_some() {
            return Ok(false);
        }
        check_range(offset, buffer.len(), self.size_bytes())?;
        // Only a read that is entirely in the page cache succeeds without waiting.
        let read = preadv2(&*self.file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
        Ok(read.is_ok_and(|count| count == buffer.len()))
    }

    fn borrow(&self, offset: u64, length: usize) -> Result<Option<Vec<Borrowed>>, StoreError> {
        check_range(offset, length, self.size_bytes())?;
        if length < BORROWED_FILE_BYTES_MIN
            || self.direct.is_some()
            || !is_resident(&self.file, offset, length as u64)
        {
            return Ok(None);
        }
        Ok(Some(vec![Borrowed { source: Source::File(Arc::clone(&self.file)), offset, length }]))
    }

    fn geometry(&self) -> Option<Geometry> {
        self.device.map(|device| device.geometry)
    }

    fn limits(&self) -> Limits {
        Limits { granularity_bytes: Some(GRANULARITY_BYTES), ..Limits::default() }
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        check_range(offset, length as usize, self.size_bytes())?;
        let mode = FallocateFlags::FALLOC_FL_ZERO_RANGE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let zeroed = match (i64::try_from(offset), i64::try_from(length)) {
            (Ok(offset), Ok(1..)) => fallocate(&*self.file, mode, offset, length as i64),
            _ => return Ok(()),
        };
        // Not every file system and device has it.
        zeroed.or_else(|_| write_zeros(self, offset, length))
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
        // An unknown place counts as data.
        let data = self.seek(offset, Whence::SeekData).unwrap_or(offset).min(size);
        if data > offset {
            return (false, data - offset);
        }
        let hole = self.seek(offset, Whence::SeekHole).unwrap_or(size).min(size);
        (true, hole.saturating_sub(offset))
    }

    fn can_resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        if self.is_read_only {
            return Err(StoreError::ReadOnly);
        }
        let is_whole = self.direct.is_none() || size_bytes.is_multiple_of(FILE_ALIGNMENT.into());
        if self.device.is_some() || size_bytes == 0 || i64::try_from(size_bytes).is_err() || !is_whole {
            return Err(StoreError::FixedSize(self.kind()));
        }
        if size_bytes < self.size_bytes.load(Ordering::Relaxed) {
            // Whether it may be cut at all (an append-only file may not): the same length again changes nothing.
            let same = self.file.metadata().and_then(|metadata| self.file.set_len(metadata.len()));
            same.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.can_resize(size_bytes)?;
        self.file.set_len(size_bytes).map_err(|error| self.failed(&error))?;
        self.size_bytes.store(size_bytes, Ordering::Relaxed);
        Ok(())
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.state.check()?;
        self.file.sync_data().map_err(|error| self.state.lost(&error))
    }
}

/// The geometry of a device in sysfs; a partition has its disk's queue.
impl Device {
    fn of(number: u64) -> Self {
        // What a partition lacks its disk has.
        let folder = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        let read = |name: &str| {
            let paths = [format!("{folder}/{name}"), format!("{folder}/../{name}")];
            paths.iter().find_map(|path| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
        };
        let bytes = |name: &str| u32::try_from(read(name)?).ok();
        let logical_bytes = bytes("queue/logical_block_size").unwrap_or(512);
        let geometry = Geometry {
            logical_bytes,
            physical_bytes: bytes("queue/physical_block_size").unwrap_or(logical_bytes),
            is_rotational: read("queue/rotational") == Some(1),
        };
        Self { geometry, sequence: read("diskseq") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_data_survives_a_reopen() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let open = |size_bytes| FileStore::open(&path, OpenOptions { size_bytes, ..OpenOptions::default() });
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
        drop(store);
        assert!(open(Some(1 << 19)).is_err(), "a larger file is not cut");
        let read_only =
            FileStore::open(&path, OpenOptions { read_only: true, ..OpenOptions::default() }).unwrap();
        assert!(read_only.write_at(0, b"x").is_err());
    }

    #[test]
    fn any_flush_error_but_a_cancellation_marks_the_file_broken() {
        for (errno, is_lost) in
            [(libc::EIO, true), (libc::ENOSPC, true), (libc::EDQUOT, true), (libc::ECANCELED, false)]
        {
            let state = State { name: "disk".into(), is_broken: AtomicBool::new(false), _claim: None };
            let _ = state.lost(&std::io::Error::from_raw_os_error(errno));
            assert_eq!(state.check().is_err(), is_lost, "{errno}");
        }
    }

    #[test]
    fn what_may_be_lost_has_no_lasting_name() {
        let folder = tempfile::tempdir().unwrap();
        let how = OpenOptions { size_bytes: Some(1 << 20), ..OpenOptions::default() };
        let store = FileStore::open(&folder.path().join("disk"), how).unwrap();
        let name = store.lasting_name().unwrap();
        let _ = store.state.lost(&std::io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(store.lasting_name(), None);
        drop(store);
        let store = FileStore::open(&folder.path().join("disk"), how).unwrap();
        assert_eq!(store.lasting_name(), Some(name));
    }

    #[test]
    fn holes_are_punched_and_reported() {
        let folder = tempfile::tempdir().unwrap();
        let how = OpenOptions { size_bytes: Some(4 << 20), ..OpenOptions::default() };
        let store = FileStore::open(&folder.path().join("disk"), how).unwrap();
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

    #[test]
    fn direct_io_reads_and_writes_any_range() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk");
        let how = OpenOptions { size_bytes: Some(4 << 20), direct: true, ..OpenOptions::default() };
        let store = FileStore::open(&path, how).unwrap();
        let mut plain = vec![0; 4 << 20];
        for (step, (at, length)) in
            [(0, 4096), (512, 512), (5000, 100), (4096, 3 << 20), (1, 2_000_001), (4_194_303, 1)]
                .into_iter()
                .enumerate()
        {
            let data: Vec<u8> = (0..length).map(|i| (i * 7 + step * 31) as u8).collect();
            store.write_at(at as u64, &data).unwrap();
            plain[at..at + length].copy_from_slice(&data);
            let mut there = vec![0; length];
            store.read_at(at as u64, &mut there).unwrap();
            assert!(there == data, "{at} {length}");
        }
        store.flush().unwrap();
        assert!(std::fs::read(&path).unwrap() == plain);
        drop(store);
        let how = OpenOptions { size_bytes: Some((4 << 20) + 512), direct: true, ..OpenOptions::default() };
        assert!(FileStore::open(&path, how).is_err(), "a size that cannot be read past the cache");
    }
}
