//! Reads, writes and flushes of files by io_uring: one thread hands them to the kernel, many at a time, and hears
//! how they end. All files of a process share it.

#![allow(unsafe_code, reason = "the kernel is given the addresses of buffers")]

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak, mpsc};

use io_uring::{IoUring, Probe, opcode, squeue, types};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;

use crate::arena::Arena;
use crate::{Buffer, Request};

/// Entries that are handed to the kernel at once; more are handed over in several calls.
const ENTRIES: u32 = 256;
/// Ends that the kernel keeps for us before it has to make room by other means.
const COMPLETIONS: u32 = 4096;
/// Memory that is registered, bytes. More in flight than that is looked up page by page.
const ARENA_BYTES: usize = 16 << 20;
/// Longest piece of one operation that the kernel is asked for at once, bytes.
const PIECE_BYTES: usize = 1 << 30;
/// The user data of the thread's own entries.
const WAKE: u64 = u64::MAX;
const CANCEL: u64 = u64::MAX - 1;

/// An operation on a file that is to be handed over.
pub(crate) struct Flight {
    pub(crate) file: Arc<File>,
    pub(crate) request: Request,
    /// Bytes that are done.
    pub(crate) done_bytes: usize,
    /// The data of a stable write is written, and the flush is in flight.
    pub(crate) is_syncing: bool,
    /// Told once how it ended, with the request and its memory.
    pub(crate) done: Box<dyn FnOnce(Landed, Request) + Send>,
}

/// How an operation has ended.
#[derive(Debug)]
pub(crate) struct Landed {
    pub(crate) outcome: io::Result<()>,
    /// It ended while data was brought to the disk: what fails then may have lost writes that were taken before.
    pub(crate) was_syncing: bool,
}

/// The handle of the ring for any thread. When the last handle is dropped, the thread ends after the requests in flight.
pub(crate) struct Uring {
    shared: Arc<Shared>,
    /// Memory that the ring knows; nothing where it may not be registered.
    arena: Option<Arc<Arena>>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: EventFd,
    /// The thread waits in the kernel, and has to be woken.
    is_asleep: AtomicBool,
}

#[derive(Default)]
struct Inbox {
    new: Vec<(u64, Flight)>,
    cancelled: Vec<u64>,
    next: u64,
    is_shut: bool,
}

impl Shared {
    fn post<R>(&self, change: impl FnOnce(&mut Inbox) -> R) -> R {
        let result = change(&mut self.inbox.lock());
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            // Fails only when the counter is full, and then the thread wakes anyway.
            let _ = self.wake.write(1);
        }
        result
    }
}

impl Uring {
    /// The process's ring, made when there is none.
    ///
    /// # Errors
    /// Where the kernel has none, or it is not allowed (containers commonly forbid it).
    pub(crate) fn shared() -> io::Result<Arc<Self>> {
        static RING: Mutex<Weak<Uring>> = Mutex::new(Weak::new());
        let mut ring = RING.lock();
        if let Some(ring) = ring.upgrade() {
            return Ok(ring);
        }
        let new = Arc::new(Self::new()?);
        *ring = Arc::downgrade(&new);
        Ok(new)
    }

    fn new() -> io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let shared = Arc::new(Shared { inbox: Mutex::default(), wake, is_asleep: AtomicBool::new(false) });
        let (started, start) = mpsc::sync_channel(1);
        let for_thread = Arc::clone(&shared);
        // The ring belongs to the thread that makes it: then the kernel needs no locks for it.
        std::thread::Builder::new().name("disk ring".to_owned()).spawn(move || match open() {
            Ok((ring, arena)) => {
                if started.send(Ok(arena)).is_ok() {
                    Thread { ring, shared: for_thread, flights: ManuallyDrop::default() }.run();
                }
            }
            Err(error) => {
                // Nobody is left to tell only when the process ends.
                let _ = started.send(Err(error));
            }
        })?;
        let arena = start.recv().map_err(|_| io::Error::other("its thread ended"))??;
        Ok(Self { shared, arena })
    }

    /// Hands an operation over; what it is called.
    pub(crate) fn submit(&self, flight: Flight) -> u64 {
        self.shared.post(|inbox| {
            let id = inbox.next;
            inbox.next += 1;
            inbox.new.push((id, flight));
            id
        })
    }

    /// How an operation is cancelled from anywhere, whether the ring is still there or not.
    pub(crate) fn canceller(&self, id: u64) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.post(|inbox| inbox.cancelled.push(id));
            }
        }
    }

    /// Memory for an operation, registered where there is some.
    pub(crate) fn buffer(&self, length: usize) -> Option<Buffer> {
        let piece = self.arena.as_ref()?.allocate(length)?;
        Some(Buffer::registered(piece, length))
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        self.shared.post(|inbox| inbox.is_shut = true);
    }
}

/// Makes the ring, as good as this kernel has it.
fn open() -> io::Result<(IoUring, Option<Arc<Arena>>)> {
    let plain = || IoUring::builder().setup_cqsize(COMPLETIONS).build(ENTRIES);
    let ring = IoUring::builder()
        .setup_cqsize(COMPLETIONS)
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(ENTRIES)
        .or_else(|error| if error.raw_os_error() == Some(libc::EINVAL) { plain() } else { Err(error) })?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [
        opcode::Read::CODE,
        opcode::Write::CODE,
        opcode::ReadFixed::CODE,
        opcode::WriteFixed::CODE,
        opcode::Fsync::CODE,
        opcode::Fallocate::CODE,
        opcode::PollAdd::CODE,
        opcode::AsyncCancel::CODE,
    ];
    if !needed.iter().all(|&code| probe.is_supported(code)) {
        return Err(io::Error::other(
            "this kernel's io_uring lacks required features (Linux 5.6 or later has them)",
        ));
    }
    let arena = Arena::new(ARENA_BYTES).map_err(io::Error::other)?;
    let (start, length) = arena.place();
    let memory = libc::iovec { iov_base: start.cast(), iov_len: length };
    // SAFETY: the kernel keeps the pages until the ring is closed, and touches them only for operations, whose buffers
    // keep the arena.
    let registered = unsafe { ring.submitter().register_buffers(&[memory]) };
    // Without, everything works and costs a little more (RLIMIT_MEMLOCK).
    let arena = registered
        .map(|()| arena)
        .inspect_err(|error| tracing::debug!("registered buffers for the disk ring: {error}"))
        .ok();
    Ok((ring, arena))
}

struct Thread {
    ring: IoUring,
    shared: Arc<Shared>,
    /// Memory that the kernel may still access: never dropped by an unwinding thread.
    flights: ManuallyDrop<HashMap<u64, Flight>>,
}

impl Thread {
    fn run(mut self) {
        let mut is_watched = false;
        loop {
            let (new, cancelled, is_shut) = {
                let mut inbox = self.shared.inbox.lock();
                (std::mem::take(&mut inbox.new), std::mem::take(&mut inbox.cancelled), inbox.is_shut)
            };
            for (id, flight) in new {
                self.flights.insert(id, flight);
                self.launch(id);
            }
            for id in cancelled {
                // One that has ended already is not found, and nothing happens.
                self.push(&opcode::AsyncCancel::new(id).build().user_data(CANCEL));
            }
            if is_shut && self.flights.is_empty() {
                // Nothing is in flight, so the kernel accesses no memory any more.
                drop(ManuallyDrop::into_inner(self.flights));
                return;
            }
            if !is_watched {
                let fd = types::Fd(self.shared.wake.as_fd().as_raw_fd());
                let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
                self.push(&poll.user_data(WAKE));
                is_watched = true;
            }
            self.shared.is_asleep.store(true, Ordering::SeqCst);
            let is_idle = {
                let inbox = self.shared.inbox.lock();
                inbox.new.is_empty() && inbox.cancelled.is_empty() && inbox.is_shut == is_shut
            };
            let waited = self.ring.submitter().submit_and_wait(usize::from(is_idle));
            self.shared.is_asleep.store(false, Ordering::SeqCst);
            match waited {
                // EBUSY: ends wait to be taken first.
                Err(error)
                    if !matches!(error.raw_os_error(), Some(libc::EINTR | libc::EBUSY | libc::EAGAIN)) =>
                {
                    tracing::error!("io_uring failed: {error}");
                }
                _ => {}
            }
            let ends: Vec<(u64, i32)> =
                self.ring.completion().map(|entry| (entry.user_data(), entry.result())).collect();
            for (id, result) in ends {
                match id {
                    WAKE => {
                        let _ = self.shared.wake.read();
                        is_watched = false;
                    }
                    CANCEL => {}
                    id => self.land(id, result),
                }
            }
        }
    }

    fn push(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: the entry points into `flights`, whose memory does not move until the kernel reports the completion; the
            // thread's own entries point at nothing.
            if unsafe { self.ring.submission().push(entry) }.is_ok() {
                return;
            }
            // The queue is full: submit its entries.
            if let Err(error) = self.ring.submit() {
                tracing::debug!("the disk ring is full: {error}");
                std::thread::yield_now();
            }
        }
    }

    /// Submits the rest of an operation.
    fn launch(&mut self, id: u64) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let fd = types::Fd(flight.file.as_raw_fd());
        let entry = match flight.is_syncing {
            true => sync(fd),
            false => entry(fd, &mut flight.request, flight.done_bytes),
        };
        self.push(&entry.user_data(id));
    }

    /// An operation has ended, or a part of it.
    fn land(&mut self, id: u64, result: i32) {
        let Some(flight) = self.flights.get_mut(&id) else { return };
        let outcome = match (u32::try_from(result), &flight.request) {
            (Err(_), _) if result == -libc::EINTR || result == -libc::EAGAIN => None,
            (Err(_), _) => Some(Err(io::Error::from_raw_os_error(-result))),
            (Ok(_), _) if flight.is_syncing => Some(Ok(())),
            (Ok(_), request) if !request.moves_data() => Some(Ok(())),
            (Ok(count), request) => {
                flight.done_bytes += count as usize;
                let (left, what) = (request.place().1 as usize - flight.done_bytes, request.operation());
                match (left, count, what) {
                    (0, ..) => Some(Ok(())),
                    // The file has become shorter.
                    (_, 0, crate::Operation::Read) => Some(Err(io::ErrorKind::UnexpectedEof.into())),
                    (_, 0, _) => Some(Err(io::ErrorKind::WriteZero.into())),
                    // A short read or write: continue with the rest.
                    _ => None,
                }
            }
        };
        let Some(outcome) = outcome else { return self.launch(id) };
        let is_stable = matches!(flight.request, Request::Write { is_stable: true, .. });
        if outcome.is_ok() && is_stable && !flight.is_syncing {
            // A separate operation: a full disk fails the write and loses nothing, but a failed flush loses data.
            flight.is_syncing = true;
            return self.launch(id);
        }
        if let Some(flight) = self.flights.remove(&id) {
            // A panicking callback must not drop the memory of other requests in flight.
            let was_syncing = flight.is_syncing || matches!(flight.request, Request::Flush);
            let landed = Landed { outcome, was_syncing };
            let called = std::panic::catch_unwind(AssertUnwindSafe(|| (flight.done)(landed, flight.request)));
            if called.is_err() {
                tracing::error!("the completion of a disk request panicked");
            }
        }
    }
}

/// The entry for the rest of a request.
fn entry(fd: types::Fd, request: &mut Request, done: usize) -> squeue::Entry {
    match request {
        Request::Read { offset, buffer } => {
            let (at, is_registered) = (*offset + done as u64, buffer.is_registered());
            let rest = &mut buffer[done..];
            let count = rest.len().min(PIECE_BYTES) as u32;
            if is_registered {
                opcode::ReadFixed::new(fd, rest.as_mut_ptr(), count, 0).offset(at).build()
            } else {
                opcode::Read::new(fd, rest.as_mut_ptr(), count).offset(at).build()
            }
        }
        Request::Write { offset, data, .. } => {
            let (at, is_registered) = (*offset + done as u64, data.is_registered());
            let rest = &data[done..];
            let count = rest.len().min(PIECE_BYTES) as u32;
            if is_registered {
                opcode::WriteFixed::new(fd, rest.as_ptr(), count, 0).offset(at).build()
            } else {
                opcode::Write::new(fd, rest.as_ptr(), count).offset(at).build()
            }
        }
        Request::Discard { offset, length } => {
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            opcode::Fallocate::new(fd, *length).offset(*offset).mode(mode).build()
        }
        // What no single call of the kernel does is not taken.
        Request::Flush | Request::Zero { .. } | Request::CompareAndWrite { .. } => sync(fd),
    }
}

/// Everything written is brought to the disk.
fn sync(fd: types::Fd) -> squeue::Entry {
    opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::FileExt;
    use std::time::Duration;

    use super::*;

    type Heard = (io::Result<()>, Request);

    /// The ring; `None` where io_uring is forbidden, which is printed.
    fn ring() -> Option<Uring> {
        let ring = Uring::new();
        let why = ring.as_ref().err().map(ToString::to_string).unwrap_or_default();
        testing::require(&format!("io_uring ({why})"), ring.is_ok()).then_some(ring).and_then(Result::ok)
    }

    fn begin(ring: &Uring, file: &Arc<File>, request: Request) -> (u64, mpsc::Receiver<Heard>) {
        let (tell, hear) = mpsc::channel();
        let done = Box::new(move |landed: Landed, request| tell.send((landed.outcome, request)).unwrap());
        let id =
            ring.submit(Flight { file: Arc::clone(file), request, done_bytes: 0, is_syncing: false, done });
        (id, hear)
    }

    fn read(offset: u64, length: usize) -> Request {
        Request::Read { offset, buffer: Buffer::new(length) }
    }

    #[test]
    fn concurrent_requests_end_with_their_own_memory() {
        let Some(ring) = ring() else { return };
        let file = Arc::new(tempfile::tempfile().unwrap());
        let writes: Vec<_> = (0..600_u64)
            .map(|n| {
                let mut data = ring.buffer(4096).unwrap_or_else(|| Buffer::new(4096));
                data.fill(n as u8);
                let is_stable = n % 50 == 0;
                begin(&ring, &file, Request::Write { offset: n * 4096, data, is_stable })
            })
            .collect();
        for (_, write) in writes {
            write.recv_timeout(Duration::from_secs(20)).unwrap().0.unwrap();
        }
        let (_, flush) = begin(&ring, &file, Request::Flush);
        flush.recv_timeout(Duration::from_secs(20)).unwrap().0.unwrap();
        let reads: Vec<_> = (0..600_u64).map(|n| begin(&ring, &file, read(n * 4096, 4096))).collect();
        for (n, (_, hear)) in (0_u64..).zip(reads) {
            let (outcome, request) = hear.recv_timeout(Duration::from_secs(20)).unwrap();
            outcome.unwrap();
            let Request::Read { buffer, .. } = request else { panic!("another request") };
            assert!(buffer.iter().all(|&byte| byte == n as u8));
        }
    }

    /// A pipe returns short reads.
    #[test]
    fn short_reads_are_continued_and_an_early_end_is_an_error() {
        let Some(ring) = ring() else { return };
        let (from, to) = nix::unistd::pipe().unwrap();
        let (from, mut to) = (Arc::new(File::from(from)), File::from(to));
        let (_, hear) = begin(&ring, &from, read(0, 3000));
        for n in 0..3 {
            to.write_all(&[n; 1000]).unwrap();
            std::thread::sleep(Duration::from_millis(20));
        }
        let (outcome, request) = hear.recv_timeout(Duration::from_secs(20)).unwrap();
        outcome.unwrap();
        let Request::Read { buffer, .. } = request else { panic!("another request") };
        assert!(buffer.chunks(1000).zip(0..).all(|(part, n)| part.iter().all(|&byte| byte == n)));
        let short = Arc::new(tempfile::tempfile().unwrap());
        short.write_all_at(&[1; 5000], 0).unwrap();
        let (_, hear) = begin(&ring, &short, read(4096, 4096));
        let outcome = hear.recv_timeout(Duration::from_secs(20)).unwrap().0;
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_hanging_request_can_be_cancelled() {
        let Some(ring) = ring() else { return };
        let (from, _to) = nix::unistd::pipe().unwrap();
        let from = Arc::new(File::from(from));
        let (kept, other) = (begin(&ring, &from, read(0, 1)), begin(&ring, &from, read(0, 1)));
        ring.canceller(other.0)();
        let outcome = other.1.recv_timeout(Duration::from_secs(20)).unwrap().0;
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
        assert!(kept.1.recv_timeout(Duration::from_millis(50)).is_err(), "and no other");
        ring.canceller(kept.0)();
        kept.1.recv_timeout(Duration::from_secs(20)).unwrap().0.unwrap_err();
        // Again, and after the ring is gone: nothing.
        let cancel = ring.canceller(kept.0);
        cancel();
        drop(ring);
        cancel();
    }

    #[test]
    fn a_panicking_callback_does_not_stop_the_ring() {
        let Some(ring) = ring() else { return };
        let file = Arc::new(tempfile::tempfile().unwrap());
        let done = Box::new(|_: Landed, _| panic!("on purpose"));
        ring.submit(Flight {
            file: Arc::clone(&file),
            request: Request::Flush,
            done_bytes: 0,
            is_syncing: false,
            done,
        });
        let (_, flush) = begin(&ring, &file, Request::Flush);
        flush.recv_timeout(Duration::from_secs(20)).unwrap().0.unwrap();
    }
}
