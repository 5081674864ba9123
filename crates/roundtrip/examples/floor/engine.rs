//! Ways for a server to wait for requests and send responses, compared without a protocol: a blocking thread for each
//! connection, one that polls as the target does, one with an io_uring of its own (multishot receive from
//! a ring of buffers, sends submitted together with the next wait), and one thread for all connections.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;

use io_uring::types::{BufRingEntry, Fd};
use io_uring::{IoUring, cqueue, opcode, squeue};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::os::fd::AsFd;

/// How a server handles its connections.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// A thread for each connection, which blocks (or spins) in its receive.
    Threads,
    /// A thread for each connection, which receives until no data is available, and then polls, as the target does.
    Poll,
    /// A thread and an io_uring for each connection.
    Uring,
    /// One thread and one epoll for all connections.
    Reactor,
}

/// A disk's memory, without a disk: where the data of reads comes from and the data of writes goes to. A floor without it sends
/// the same bytes again and again, which stay in the CPU's cache.
pub(crate) struct Memory {
    bytes: Vec<u8>,
    random: u64,
}

impl Memory {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes: (0..bytes).map(|i| i as u8).collect(), random: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Where a random block of this length begins.
    fn place(&mut self, length: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random as usize % (self.bytes.len() / length)) * length
    }
}

/// Bytes of iSCSI's basic header segment.
const HEADER: usize = 48;
/// Data of this length and more is sent from where it lies, shorter data is copied first: what is faster on loopback.
const LENT: usize = 4096;
/// Messages of one send: two pieces each, of at most IOV_MAX (1024).
const PIECES: usize = 512;

/// Received and not yet answered bytes of one connection.
struct Debt {
    request: usize,
    response: usize,
    left: usize,
    answers: Vec<u8>,
    batches: bool,
}

impl Debt {
    /// Reads the lengths of requests and responses from the first 16 bytes.
    fn read(socket: &mut TcpStream, batches: bool) -> Option<Self> {
        let mut lengths = [0; 16];
        socket.read_exact(&mut lengths).ok()?;
        let length = |at: usize| u64::from_le_bytes(lengths[at..at + 8].try_into().unwrap()) as usize;
        let (request, response) = (length(0), length(8));
        let answers = vec![1; response * (1 + (1 << 20) / response)];
        Some(Self { request, response, left: 0, answers, batches })
    }

    fn buffer_bytes(&self) -> usize {
        (256 << 10).max(2 * self.request)
    }

    /// Bytes of the sends that are due now that `count` bytes came.
    fn sends(&mut self, count: usize) -> Vec<usize> {
        self.left += count;
        let mut due = self.left / self.request;
        self.left %= self.request;
        let most = if self.batches { self.answers.len() / self.response } else { 1 };
        let mut sends = Vec::with_capacity(due.div_ceil(most));
        while due > 0 {
            sends.push(due.min(most) * self.response);
            due -= due.min(most);
        }
        sends
    }

    fn answer(&mut self, socket: &mut TcpStream, count: usize) -> bool {
        self.sends(count).into_iter().all(|bytes| send(socket, &self.answers[..bytes]))
    }

    /// As [`Self::answer`], with data from and to `memory`. `received` is what came.
    fn answer_from(&mut self, socket: &mut TcpStream, received: &[u8], memory: &mut Memory) -> bool {
        let (read, written) = (self.response - HEADER, self.request - HEADER);
        for bytes in self.sends(received.len()) {
            let count = bytes / self.response;
            if written > 0 {
                for _ in 0..count {
                    let (at, length) = (memory.place(written), written.min(received.len()));
                    memory.bytes[at..at + length].copy_from_slice(&received[..length]);
                }
            }
            let is_sent = if read >= LENT {
                let places: Vec<usize> = (0..count).map(|_| memory.place(read)).collect();
                let header = &self.answers[..HEADER];
                places.chunks(PIECES).all(|places| {
                    let data =
                        |&at: &usize| [IoSlice::new(header), IoSlice::new(&memory.bytes[at..at + read])];
                    send_all(socket, &mut places.iter().flat_map(data).collect::<Vec<_>>())
                })
            } else {
                for answer in self.answers[..bytes].chunks_mut(self.response).filter(|_| read > 0) {
                    let at = memory.place(read);
                    answer[HEADER..].copy_from_slice(&memory.bytes[at..at + read]);
                }
                send(socket, &self.answers[..bytes])
            };
            if !is_sent {
                return false;
            }
        }
        true
    }
}

/// Receives at least one byte; `None` when the peer has closed.
pub(crate) fn receive(socket: &mut TcpStream, buffer: &mut [u8], spins: bool) -> usize {
    loop {
        match socket.read(buffer) {
            Ok(count) => return count,
            Err(error) if spins && error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return 0,
        }
    }
}

/// Sends all bytes; false when the peer has closed.
pub(crate) fn send(socket: &mut TcpStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Sends all pieces; false when the peer has closed.
fn send_all(socket: &mut TcpStream, mut pieces: &mut [IoSlice]) -> bool {
    while !pieces.is_empty() {
        match socket.write_vectored(pieces) {
            Ok(count) => IoSlice::advance_slices(&mut pieces, count),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Serves indefinitely; the reactor with `memory` as its disk.
pub(crate) fn serve(
    listener: &TcpListener,
    engine: Engine,
    batches: bool,
    spins: bool,
    memory: Option<Memory>,
) {
    if engine == Engine::Reactor {
        return react(listener, batches, memory);
    }
    for mut socket in listener.incoming().flatten() {
        socket.set_nodelay(true).unwrap();
        std::thread::spawn(move || {
            let Some(debt) = Debt::read(&mut socket, batches) else { return };
            match engine {
                Engine::Uring => ring(&socket, debt),
                Engine::Poll => drain_and_poll(socket, debt),
                Engine::Threads | Engine::Reactor => block(socket, debt, spins),
            }
        });
    }
}

fn block(mut socket: TcpStream, mut debt: Debt, spins: bool) {
    socket.set_nonblocking(spins).unwrap();
    let mut buffer = vec![0; debt.buffer_bytes()];
    loop {
        let count = receive(&mut socket, &mut buffer, spins);
        if count == 0 || !debt.answer(&mut socket, count) {
            return;
        }
    }
}

/// Answers all available requests; false when the peer has closed.
fn drain(socket: &mut TcpStream, debt: &mut Debt, buffer: &mut [u8], memory: Option<&mut Memory>) -> bool {
    let mut memory = memory;
    let mut answer = |socket: &mut TcpStream, received: &[u8]| match &mut memory {
        Some(memory) => debt.answer_from(socket, received, memory),
        None => debt.answer(socket, received.len()),
    };
    loop {
        match socket.read(buffer) {
            Ok(0) => return false,
            Ok(count) if answer(socket, &buffer[..count]) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            _ => return false,
        }
    }
}

fn drain_and_poll(mut socket: TcpStream, mut debt: Debt) {
    socket.set_nonblocking(true).unwrap();
    let mut buffer = vec![0; debt.buffer_bytes()];
    while drain(&mut socket, &mut debt, &mut buffer, None) {
        let _ = poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
    }
}

/// Epoll's name for the listener; connections have theirs from 1 on.
const LISTENER: u64 = 0;

fn react(listener: &TcpListener, batches: bool, mut memory: Option<Memory>) {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
    epoll.add(listener, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER)).unwrap();
    let mut connections: Vec<Option<(TcpStream, Debt)>> = Vec::new();
    let (mut buffer, mut events) = (vec![0; 4 << 20], vec![EpollEvent::empty(); 256]);
    loop {
        let ready = epoll.wait(&mut events, EpollTimeout::NONE).unwrap_or(0);
        for event in &events[..ready] {
            if event.data() == LISTENER {
                let (mut socket, _) = listener.accept().unwrap();
                socket.set_nodelay(true).unwrap();
                let Some(debt) = Debt::read(&mut socket, batches) else { continue };
                socket.set_nonblocking(true).unwrap();
                connections.push(Some((socket, debt)));
                let (socket, _) = connections.last().unwrap().as_ref().unwrap();
                epoll.add(socket, EpollEvent::new(EpollFlags::EPOLLIN, connections.len() as u64)).unwrap();
                continue;
            }
            let place = &mut connections[event.data() as usize - 1];
            let is_alive =
                place.as_mut().is_none_or(|(socket, debt)| drain(socket, debt, &mut buffer, memory.as_mut()));
            if !is_alive {
                *place = None;
            }
        }
    }
}

/// Buffers of a ring, and the bytes of each.
const BUFFERS: u16 = 64;
const BUFFER_BYTES: usize = 64 << 10;
const RECEIVED: u64 = 1;

/// The buffers that the kernel receives into: a ring of entries, one page, whose first holds the tail.
#[repr(align(4096))]
struct BufferRing([BufRingEntry; BUFFERS as usize]);

#[allow(unsafe_code, reason = "io_uring takes addresses: the buffers and answers live as long as the ring")]
fn ring(socket: &TcpStream, mut debt: Debt) {
    let mut ring: IoUring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(4096)
        .build(1024)
        .unwrap();
    let mut memory = vec![0_u8; BUFFER_BYTES * usize::from(BUFFERS)];
    // SAFETY: an entry is three integers.
    let mut entries: Box<BufferRing> = unsafe { Box::new(std::mem::zeroed()) };
    let base = entries.0.as_mut_ptr();
    // SAFETY: the entries and the memory outlive the ring, which ends with this function, before them.
    unsafe { ring.submitter().register_buf_ring_with_flags(base as u64, BUFFERS, 0, 0).unwrap() };
    let mut tail = 0_u16;
    let mut provide = |id: u16| {
        // SAFETY: the place is within the ring, and the kernel reads it after the tail says so.
        let entry = unsafe { &mut *base.add(usize::from(tail % BUFFERS)) };
        entry.set_addr(memory[usize::from(id) * BUFFER_BYTES..].as_mut_ptr() as u64);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(id);
        tail = tail.wrapping_add(1);
        // SAFETY: the first entry holds the tail.
        let place = unsafe { &*BufRingEntry::tail(base).cast::<std::sync::atomic::AtomicU16>() };
        place.store(tail, std::sync::atomic::Ordering::Release);
    };
    (0..BUFFERS).for_each(&mut provide);
    let fd = Fd(socket.as_raw_fd());
    let mut is_armed = false;
    loop {
        if !is_armed {
            let receive = opcode::RecvMulti::new(fd, 0).build().user_data(RECEIVED);
            // SAFETY: the buffers live as long as the ring.
            unsafe { ring.submission().push(&receive).unwrap() };
            is_armed = true;
        }
        ring.submit_and_wait(1).unwrap();
        let mut came = 0;
        while let Some(entry) = ring.completion().next() {
            if entry.user_data() != RECEIVED {
                if entry.result() < 0 {
                    return;
                }
                continue;
            }
            is_armed = cqueue::more(entry.flags());
            if let Some(id) = cqueue::buffer_select(entry.flags()) {
                provide(id);
            }
            match entry.result() {
                0 => return,
                count if count > 0 => came += count as usize,
                error if error == -nix::libc::ENOBUFS => {}
                _ => return,
            }
        }
        let sends = debt.sends(came);
        let last = sends.len().saturating_sub(1);
        for (index, bytes) in sends.into_iter().enumerate() {
            // In order: each waits for the one before.
            let flags = if index < last { squeue::Flags::IO_LINK } else { squeue::Flags::empty() };
            let send = opcode::Send::new(fd, debt.answers.as_ptr(), bytes as u32)
                .flags(nix::libc::MSG_WAITALL)
                .build()
                .flags(flags);
            // SAFETY: the answers live as long as the ring, and never change.
            unsafe {
                if ring.submission().push(&send).is_err() {
                    ring.submit().unwrap();
                    ring.submission().push(&send).unwrap();
                }
            }
        }
    }
}
