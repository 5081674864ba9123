//! One connection to an NBD server, kept up by a thread: it sends what is asked for, receives what is answered, and connects again
//! when the connection is lost. What was not answered by then is sent again.
//!
//! A connection that is up is never given up for being slow: the server may still carry out what it has received, and the
//! protocol has no way to stop it. So a request waits as long as the server does, and a lost connection is what TCP calls lost.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nbd::wire::{self, ChunkKind, Command, errno};
use nbd::{Export, Head, Protocol};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use parking_lot::Mutex;

use super::flight::{Ask, Flight};
use super::input::Input;
use super::link::{Link, NEGOTIATE_TIME, Server, Socket};
use super::output::{Output, Part};
use super::slots::Slots;
use crate::StoreError;

/// A payload of which so much is missing is received into its own memory.
const DIRECT_BYTES: u32 = 32 << 10;
/// Data that are longer are sent from their own memory.
const COPIED_BYTES: usize = 16 << 10;
/// Parts of a reply, beside one for each so many bytes.
const CHUNKS_MIN: u32 = 64;
const CHUNK_BYTES_MIN: u32 = 64;
/// Bytes that are received in a row before other work gets its turn.
const TURN_BYTES: usize = 4 << 20;
/// A connection that ends sooner is no success, and the next attempt waits.
const SHORT: Duration = Duration::from_secs(1);
/// Times between two attempts to connect: the first, and the longest.
const RETRY: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// A server that is silent for so long while requests wait is mentioned in the log.
const SILENCE: Duration = Duration::from_secs(10);

/// The handle of a connection for any thread. When it is dropped, the thread ends after the requests in flight.
pub(super) struct Line {
    shared: Arc<Shared>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    wake: EventFd,
    /// The thread waits in the kernel, and has to be woken, or its work done for it.
    is_asleep: AtomicBool,
    /// Held by the thread while it does not wait.
    state: Mutex<State>,
}

#[derive(Default)]
struct Inbox {
    new: Vec<Flight>,
    cancelled: Vec<u64>,
    next: u64,
    is_shut: bool,
}

impl Shared {
    fn post<R>(&self, change: impl FnOnce(&mut Inbox) -> R) -> R {
        let result = change(&mut self.inbox.lock());
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            self.wake();
        }
        result
    }

    fn wake(&self) {
        // Fails only when the counter is full, and then the thread wakes anyway.
        let _ = self.wake.write(1);
    }

    /// Hands a request over. While the thread waits, the request is sent from here: that saves a wake-up, which takes longer than all
    /// else when few are in flight.
    fn submit(&self, ask: Ask) -> u64 {
        let id = {
            let mut inbox = self.inbox.lock();
            let id = inbox.next;
            inbox.next += 1;
            inbox.new.push(Flight::new(id, ask));
            id
        };
        if !self.is_asleep.swap(false, Ordering::SeqCst) {
            return id;
        }
        // It has woken, or another one sends: either takes what is new, or is woken to do so.
        let Some(mut state) = self.state.try_lock() else {
            self.wake();
            return id;
        };
        let new = std::mem::take(&mut self.inbox.lock().new);
        state.admit(new);
        // Everything but a send that is complete is left to the thread, failures too: it comes upon them again.
        if state.link.is_some() && state.send_waiting().is_ok() && !state.has_output() {
            self.is_asleep.store(true, Ordering::SeqCst);
            // What came meanwhile found the thread awake.
            let inbox = self.inbox.lock();
            let is_idle = inbox.new.is_empty() && inbox.cancelled.is_empty() && !inbox.is_shut;
            drop(inbox);
            if is_idle {
                return id;
            }
            self.is_asleep.store(false, Ordering::SeqCst);
        }
        self.wake();
        id
    }
}

/// What all connections to an export have in common.
pub(super) struct Remote {
    pub(super) name: String,
    pub(super) server: Arc<Server>,
    /// What the server said of the export first; a different one later is not the same disk.
    pub(super) export: Export,
    /// How long requests are kept while there is no connection.
    pub(super) hold: Duration,
}

impl Line {
    /// Starts the thread, with a connection or without.
    pub(super) fn new(remote: &Arc<Remote>, link: Option<Link>) -> io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        let state = State {
            remote: Arc::clone(remote),
            link,
            flights: Slots::default(),
            waiting: Vec::new(),
            output: Output::default(),
            input: Input::new(),
            expects: Expects::Head,
            down: None,
            retry_at: Instant::now(),
            retry_after: RETRY.0,
            heard_at: Instant::now(),
            is_silent: false,
            linked_at: Instant::now(),
            has_more: false,
            shut_at: None,
        };
        let (inbox, is_asleep) = (Mutex::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { inbox, wake, is_asleep, state: Mutex::new(state) });
        let for_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("nbd".to_owned()).spawn(move || for_thread.run())?;
        Ok(Self { shared })
    }

    /// Hands a request over; its number.
    pub(super) fn submit(&self, ask: Ask) -> u64 {
        self.shared.submit(ask)
    }

    /// What the thread has as long as it runs.
    #[cfg(test)]
    pub(super) fn watch(&self) -> std::sync::Weak<impl Sized + use<>> {
        Arc::downgrade(&self.shared)
    }

    /// How a request is cancelled from anywhere, whether the connection is still there or not.
    pub(super) fn canceller(&self, id: u64) -> impl Fn() + Send + Sync + 'static {
        let shared = Arc::downgrade(&self.shared);
        move || {
            if let Some(shared) = shared.upgrade() {
                shared.post(|inbox| inbox.cancelled.push(id));
            }
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.post(|inbox| inbox.is_shut = true);
    }
}

/// What the next bytes are.
#[derive(Clone, Copy)]
enum Expects {
    Head,
    /// The offset of a chunk of data.
    Offset {
        slot: u32,
        length: u32,
        is_last: bool,
    },
    /// Data of the piece in this slot, `at` its beginning on.
    Data {
        slot: u32,
        at: u32,
        left: u32,
        is_last: bool,
    },
    /// A chunk that is understood as a whole.
    Small {
        slot: u32,
        kind: ChunkKind,
        length: u32,
        is_last: bool,
    },
}

/// Why a connection ends.
enum Lost {
    Io(io::Error),
    Protocol(Protocol),
    Closing,
}

impl From<io::Error> for Lost {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Protocol> for Lost {
    fn from(error: Protocol) -> Self {
        Self::Protocol(error)
    }
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(error) if error.kind() == ErrorKind::UnexpectedEof => {
                write!(f, "the server closed the connection")
            }
            Self::Io(error) => write!(f, "{error}"),
            Self::Protocol(error) => write!(f, "the server broke the protocol: {error}"),
            Self::Closing => write!(f, "the server is shutting down"),
        }
    }
}

/// Since when there is no connection that was of use, and why.
struct Down {
    since: Instant,
    reason: String,
    /// Requests are no longer kept.
    is_over: bool,
}

struct State {
    remote: Arc<Remote>,
    link: Option<Link>,
    flights: Slots,
    /// Slots that are to be sent, in the order of their requests.
    waiting: Vec<u32>,
    output: Output,
    input: Input,
    expects: Expects,
    down: Option<Down>,
    retry_at: Instant,
    retry_after: Duration,
    /// When the server was heard last, or had nothing to say.
    heard_at: Instant,
    is_silent: bool,
    /// Since when the connection is there.
    linked_at: Instant,
    /// Receiving was interrupted for other work.
    has_more: bool,
    /// When the disk was closed.
    shut_at: Option<Instant>,
}

/// What the thread waits for.
enum Wait {
    /// The socket, for so much, and no longer than this.
    Socket(Arc<Socket>, PollFlags, Duration),
    /// A time.
    Time(Duration),
    /// Nothing: it ends.
    End,
}

impl Shared {
    /// The thread.
    fn run(&self) {
        let mut is_ready = false;
        loop {
            let mut state = self.state.lock();
            self.is_asleep.store(false, Ordering::SeqCst);
            let (new, cancelled, is_shut) = {
                let mut inbox = self.inbox.lock();
                (std::mem::take(&mut inbox.new), std::mem::take(&mut inbox.cancelled), inbox.is_shut)
            };
            state.admit(new);
            for id in cancelled {
                state.cancel(id);
            }
            let wait = state.turn(is_ready, is_shut);
            // What is posted from here on finds the thread asleep, and wakes it.
            self.is_asleep.store(true, Ordering::SeqCst);
            let is_idle = {
                let inbox = self.inbox.lock();
                inbox.new.is_empty() && inbox.cancelled.is_empty() && inbox.is_shut == is_shut
            };
            drop(state);
            is_ready = match wait {
                Wait::End => return,
                Wait::Socket(socket, flags, time) => {
                    self.poll(Some((&socket, flags)), if is_idle { time } else { Duration::ZERO })
                }
                Wait::Time(time) => self.poll(None, if is_idle { time } else { Duration::ZERO }),
            };
        }
    }

    /// Waits for the socket, for other threads, or until a time. Returns whether the socket is ready.
    fn poll(&self, socket: Option<(&Socket, PollFlags)>, time: Duration) -> bool {
        // Rounded up: a wait that is cut short would be repeated without end.
        let time = if time.is_zero() { 0 } else { time.as_millis() as u64 + 1 };
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        let wake = self.wake.as_fd();
        // Without a socket the second place is the first one again.
        let (fd, flags) =
            socket.map_or((wake, PollFlags::empty()), |(socket, flags)| (socket.as_fd(), flags));
        let mut all = [PollFd::new(wake, PollFlags::POLLIN), PollFd::new(fd, flags)];
        // An interrupted wait is a short one.
        let _ = poll(&mut all, timeout);
        let [woken, is_ready] = all.map(|one| one.any().unwrap_or(false));
        if woken {
            let _ = self.wake.read();
        }
        is_ready
    }
}

impl State {
    /// Takes new requests.
    fn admit(&mut self, new: Vec<Flight>) {
        if self.flights.is_empty() {
            self.heard_at = Instant::now();
        }
        for flight in new {
            let slot = self.flights.insert(flight);
            self.waiting.push(slot);
        }
    }

    /// Receives what has come if the socket is ready, sends what is waiting, and connects where there is no connection.
    fn turn(&mut self, is_ready: bool, is_shut: bool) -> Wait {
        let has_more = std::mem::take(&mut self.has_more);
        if (is_ready || has_more)
            && let Err(lost) = self.receive()
        {
            self.lose(&lost);
        }
        // Of a closed disk nobody hears the answers; what the server still does ends in its own time.
        let shut_at = is_shut.then(|| *self.shut_at.get_or_insert_with(Instant::now));
        if shut_at.is_some_and(|at| self.link.is_none() || at.elapsed() >= self.remote.hold) {
            self.give_up("the disk is closed");
        }
        if is_shut && self.flights.is_empty() {
            self.leave();
            return Wait::End;
        }
        if self.link.is_none() {
            self.connect();
        }
        if self.link.is_some()
            && let Err(error) = self.send_waiting()
        {
            self.lose(&Lost::Io(error));
        }
        let Some(link) = &self.link else {
            self.expire();
            return Wait::Time(
                self.retry_at.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)),
            );
        };
        let socket = link.socket();
        if self.has_more {
            return Wait::Socket(socket, PollFlags::POLLIN, Duration::ZERO);
        }
        let flags =
            if self.has_output() { PollFlags::POLLIN | PollFlags::POLLOUT } else { PollFlags::POLLIN };
        if !self.flights.is_empty() && !self.is_silent && self.heard_at.elapsed() >= SILENCE {
            self.is_silent = true;
            let (name, count) = (&self.remote.name, self.flights.used().len());
            tracing::warn!("{name}: no answer for {} s; {count} requests wait for it", SILENCE.as_secs());
        }
        // Requests may be sent while this thread waits: the silence of the server is looked for in any case.
        let left = SILENCE.saturating_sub(self.heard_at.elapsed());
        let shut = shut_at.map_or(SILENCE, |at| self.remote.hold.saturating_sub(at.elapsed()));
        let time = if self.is_silent || self.flights.is_empty() { SILENCE } else { left };
        let time = time.min(shut).max(Duration::from_millis(1));
        Wait::Socket(socket, flags, time)
    }

    fn has_output(&self) -> bool {
        !self.output.parts.is_empty() || self.link.as_ref().is_some_and(Link::wants_write)
    }

    /// Sends what is waiting, as far as it goes.
    fn send_waiting(&mut self) -> io::Result<()> {
        if self.link.is_none() {
            return Ok(());
        }
        for slot in std::mem::take(&mut self.waiting) {
            self.enqueue(slot);
        }
        self.send()
    }

    /// Puts the next piece of a request into the output.
    fn enqueue(&mut self, slot: u32) {
        let cookie = self.flights.cookie(slot);
        let export = &self.remote.export;
        let Some(flight) = self.flights.get(slot) else { return };
        flight.was_sent = true;
        let piece = flight.piece(export);
        let tail = self.output.tail();
        wire::request(piece.command, cookie, piece.offset, piece.length, tail);
        match flight.data(export) {
            Some(data) if data.len() <= COPIED_BYTES => tail.extend_from_slice(data),
            Some(_) => self.output.parts.push_back(Part::Data(slot)),
            None => {}
        }
    }

    fn send(&mut self) -> io::Result<()> {
        let Some(link) = &mut self.link else { return Ok(()) };
        while let Some(part) = self.output.parts.front() {
            let bytes = match part {
                Part::Bytes(bytes) => &bytes[..],
                // It cannot have ended: it is not sent.
                Part::Data(slot) => {
                    let flight = self.flights.get(*slot);
                    flight.and_then(|flight| flight.data(&self.remote.export)).unwrap_or_default()
                }
            };
            let rest = bytes.get(self.output.sent..).unwrap_or_default();
            if rest.is_empty() {
                self.output.parts.pop_front();
                self.output.sent = 0;
                continue;
            }
            match link.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.output.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        match link.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            flushed => flushed,
        }
    }

    fn receive(&mut self) -> Result<(), Lost> {
        let mut received = 0;
        loop {
            if received >= TURN_BYTES {
                // TLS may hold the rest, of which the socket tells nothing.
                self.has_more = true;
                return Ok(());
            }
            let Some(link) = &mut self.link else { return Ok(()) };
            let (asked, read) = match self.expects {
                Expects::Data { slot, at, left, is_last }
                    if left >= DIRECT_BYTES && self.input.rest().is_empty() =>
                {
                    match self.flights.get(slot).and_then(|flight| flight.memory(at, left)) {
                        Some(memory) => {
                            let read = link.read(memory);
                            if let Ok(count @ 1..) = read {
                                let count = count as u32;
                                let (at, left) = (at + count, left - count);
                                self.expects = Expects::Data { slot, at, left, is_last };
                                if left == 0 {
                                    self.data_ended(slot, is_last)?;
                                }
                            }
                            (left as usize, read)
                        }
                        None => {
                            let room = &mut self.input.bytes[..];
                            let asked = room.len().min(left as usize);
                            let read = link.read(&mut room[..asked]);
                            self.input.end = *read.as_ref().unwrap_or(&0);
                            (asked, read)
                        }
                    }
                }
                _ => {
                    self.input.compact();
                    let end = self.input.end;
                    let room = &mut self.input.bytes[end..];
                    let (asked, read) = (room.len(), link.read(room));
                    self.input.end += *read.as_ref().unwrap_or(&0);
                    (asked, read)
                }
            };
            match read {
                Ok(0) => return Err(Lost::Io(ErrorKind::UnexpectedEof.into())),
                Ok(count) => {
                    received += count;
                    self.understand()?;
                    // What has come meanwhile is told by the next poll. TLS may hold more than the socket tells.
                    if count < asked && !self.link.as_ref().is_some_and(Link::is_tls) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Understands what was received, as far as it is complete.
    fn understand(&mut self) -> Result<(), Lost> {
        loop {
            match self.expects {
                Expects::Head => {
                    let Some((head, count)) = Head::read(self.input.rest())? else { return Ok(()) };
                    self.input.take(count);
                    self.begin(head)?;
                }
                Expects::Offset { slot, length, is_last } => {
                    let Some(bytes) = self.input.rest().first_chunk::<8>() else { return Ok(()) };
                    let offset = u64::from_be_bytes(*bytes);
                    self.input.take(8);
                    let at = self.place(slot, offset, length)?;
                    self.expects = Expects::Data { slot, at, left: length, is_last };
                }
                Expects::Data { slot, at, left, is_last } => {
                    let there = self.input.rest();
                    let count = there.len().min(left as usize);
                    if count == 0 && left > 0 {
                        return Ok(());
                    }
                    let memory = self.flights.get(slot).and_then(|flight| flight.memory(at, count as u32));
                    if let Some(memory) = memory {
                        memory.copy_from_slice(&there[..count]);
                    }
                    self.input.take(count);
                    let (at, left) = (at + count as u32, left - count as u32);
                    self.expects = Expects::Data { slot, at, left, is_last };
                    if left == 0 {
                        self.data_ended(slot, is_last)?;
                    }
                }
                Expects::Small { slot, kind, length, is_last } => {
                    let Some(chunk) = self.input.rest().get(..length as usize) else { return Ok(()) };
                    let chunk = chunk.to_vec();
                    self.input.take(chunk.len());
                    self.expects = Expects::Head;
                    self.small(slot, kind, &chunk)?;
                    if is_last {
                        self.ended(slot)?;
                    }
                }
            }
        }
    }

    /// A header was received.
    fn begin(&mut self, head: Head) -> Result<(), Lost> {
        let slot = self.flights.slot(head.cookie()).ok_or(Protocol::Cookie(head.cookie()))?;
        let export = self.remote.export;
        let Some(flight) = self.flights.get(slot) else { return Ok(()) };
        let piece = flight.piece(&export);
        let reads = piece.command == Command::Read;
        // A server may cut its reply into parts, but not for ever.
        flight.chunks += 1;
        if flight.chunks > CHUNKS_MIN + piece.length / CHUNK_BYTES_MIN {
            return Err(Protocol::Unfit("too many parts").into());
        }
        match head {
            Head::Simple { error: 0, .. } if reads && export.is_structured => {
                Err(Protocol::Unfit("a simple reply with data after structured ones were agreed").into())
            }
            Head::Simple { error: 0, .. } if reads => {
                flight.covered.insert(0, piece.length);
                self.expects = Expects::Data { slot, at: 0, left: piece.length, is_last: true };
                Ok(())
            }
            Head::Simple { error, .. } => {
                if error != 0 {
                    flight.error = Some((error, String::new()));
                }
                self.ended(slot)
            }
            Head::Chunk { .. } if !export.is_structured => {
                Err(Protocol::Unfit("a structured reply that was not agreed").into())
            }
            Head::Chunk { is_last, kind: ChunkKind::None, .. } => {
                if is_last {
                    self.ended(slot)
                } else {
                    Ok(())
                }
            }
            Head::Chunk { is_last, kind: ChunkKind::Data, length, .. } if reads => {
                self.expects = Expects::Offset { slot, length: length - 8, is_last };
                Ok(())
            }
            Head::Chunk { kind: ChunkKind::Data | ChunkKind::Hole, .. } if !reads => {
                Err(Protocol::Unfit("data for a request that is no read").into())
            }
            Head::Chunk { kind: ChunkKind::BlockStatus, .. } if piece.command != Command::BlockStatus => {
                Err(Protocol::Unfit("a status of blocks that was not asked for").into())
            }
            Head::Chunk { is_last, kind, length, .. } => {
                self.expects = Expects::Small { slot, kind, length, is_last };
                Ok(())
            }
        }
    }

    /// Where in its piece a chunk belongs.
    fn place(&mut self, slot: u32, offset: u64, length: u32) -> Result<u32, Protocol> {
        let export = self.remote.export;
        let Some(flight) = self.flights.get(slot) else { return Ok(0) };
        let piece = flight.piece(&export);
        let at = offset.checked_sub(piece.offset).filter(|at| *at <= piece.length.into());
        let at = at.ok_or(Protocol::Unfit("data outside the range that was asked for"))? as u32;
        if piece.length - at < length {
            return Err(Protocol::Unfit("data outside the range that was asked for"));
        }
        if !flight.cover(at, length) {
            return Err(Protocol::Unfit("the same bytes twice"));
        }
        Ok(at)
    }

    fn data_ended(&mut self, slot: u32, is_last: bool) -> Result<(), Lost> {
        self.expects = Expects::Head;
        if is_last { self.ended(slot) } else { Ok(()) }
    }

    /// A chunk that is understood as a whole.
    fn small(&mut self, slot: u32, kind: ChunkKind, chunk: &[u8]) -> Result<(), Lost> {
        match kind {
            ChunkKind::Hole => {
                let (Some(offset), Some(length)) = (chunk.first_chunk(), chunk.last_chunk()) else {
                    return Ok(());
                };
                let (offset, length) = (u64::from_be_bytes(*offset), u32::from_be_bytes(*length));
                let at = self.place(slot, offset, length)?;
                if let Some(memory) = self.flights.get(slot).and_then(|flight| flight.memory(at, length)) {
                    memory.fill(0);
                }
            }
            ChunkKind::BlockStatus => {
                let extent = wire::extent(chunk)?;
                if let Some(flight) = self.flights.get(slot) {
                    // What is unmapped has to read as zeros.
                    let is_mapped = !(extent.is_hole && extent.is_zero);
                    flight.mapped = Some((is_mapped, extent.length.into()));
                }
            }
            ChunkKind::Error | ChunkKind::ErrorAt => {
                if let Some(flight) = self.flights.get(slot) {
                    flight.error.get_or_insert_with(|| wire::error(chunk));
                }
            }
            ChunkKind::None | ChunkKind::Data => {}
        }
        Ok(())
    }

    /// The reply to a piece is complete.
    fn ended(&mut self, slot: u32) -> Result<(), Lost> {
        let remote = Arc::clone(&self.remote);
        let Some(flight) = self.flights.get(slot) else { return Ok(()) };
        let piece = flight.piece(&remote.export);
        if self.output.parts.iter().any(|part| matches!(part, Part::Data(sending) if *sending == slot)) {
            return Err(Protocol::Unfit("an answer before the data was sent").into());
        }
        match &flight.error {
            Some((errno::ESHUTDOWN, _)) => return Err(Lost::Closing),
            None if piece.command == Command::Read && !flight.is_covered(piece.length) => {
                return Err(Protocol::Unfit("another number of bytes than were asked for").into());
            }
            _ => {}
        }
        if let Some(down) = self.down.take() {
            let seconds = down.since.elapsed().as_secs_f64();
            tracing::warn!("{}: the connection is back after {seconds:.1} s", remote.name);
        }
        self.heard_at = Instant::now();
        if std::mem::take(&mut self.is_silent) {
            tracing::warn!("{}: it answers again", remote.name);
        }
        let Some(flight) = self.flights.get(slot) else { return Ok(()) };
        if flight.advance(&remote.export) {
            self.waiting.push(slot);
            return Ok(());
        }
        let Some(flight) = self.flights.remove(slot) else { return Ok(()) };
        let outcome = match &flight.error {
            None => Ok(()),
            Some((number, text)) => Err(failed(&remote.name, *number, text)),
        };
        flight.end(outcome);
        Ok(())
    }

    /// Ends a request that was cancelled, if the server cannot have carried it out or changes nothing by it.
    fn cancel(&mut self, id: u64) {
        let export = self.remote.export;
        let found =
            self.flights.used().into_iter().find(|&slot| self.flights.get(slot).is_some_and(|f| f.id == id));
        let Some(slot) = found else { return };
        let Some(flight) = self.flights.get(slot) else { return };
        if !flight.was_sent {
            self.waiting.retain(|&waiting| waiting != slot);
            if let Some(flight) = self.flights.remove(slot) {
                flight.end(Err(StoreError::Cancelled));
            }
        } else if flight.piece(&export).command == Command::Read {
            flight.cancel(&export);
        }
    }

    /// The connection is lost: everything that is not answered is sent again on the next one.
    fn lose(&mut self, lost: &Lost) {
        let name = &self.remote.name;
        self.link = None;
        self.output.clear();
        (self.input.start, self.input.end, self.expects) = (0, 0, Expects::Head);
        // What was cancelled needs no second answer.
        for slot in self.flights.used() {
            if self.flights.get(slot).is_some_and(|flight| matches!(flight.ask, Ask::Cancelled(_))) {
                self.flights.remove(slot);
            }
        }
        let mut again = self.flights.used();
        again.sort_by_key(|&slot| self.flights.get(slot).map(|flight| flight.id));
        for &slot in &again {
            if let Some(flight) = self.flights.get(slot) {
                flight.rewind();
            }
        }
        let count = again.len();
        self.waiting = again;
        let hold = self.remote.hold.as_secs_f64();
        tracing::warn!(
            "{name}: {lost}; connecting again, and {count} requests wait for it for up to {hold} s"
        );
        let reason = lost.to_string();
        let down =
            self.down.get_or_insert(Down { since: Instant::now(), reason: String::new(), is_over: false });
        down.reason = reason;
        // A server that ends each connection at once would be asked without a pause.
        let now = Instant::now();
        if self.linked_at.elapsed() < SHORT {
            self.retry_at = now + self.retry_after;
            self.retry_after = (self.retry_after * 2).min(RETRY.1);
        } else {
            (self.retry_at, self.retry_after) = (now, RETRY.0);
        }
    }

    /// Tries to connect, if it is time.
    fn connect(&mut self) {
        if Instant::now() < self.retry_at {
            return;
        }
        // Requests that are held end in time, whatever the server does meanwhile. When none is held any more, a server that needs
        // long for its negotiation gets its time.
        let hold = self.remote.hold;
        let time = match &self.down {
            Some(down) if !down.is_over => hold.saturating_sub(down.since.elapsed()).max(RETRY.1),
            _ => NEGOTIATE_TIME,
        };
        let outcome = self.remote.server.connect(time).map_err(|error| error.to_string());
        let outcome = outcome.and_then(|(link, export)| {
            if export == self.remote.export { Ok(link) } else { Err(changed(&self.remote.export, &export)) }
        });
        match outcome {
            Ok(link) => {
                self.link = Some(link);
                self.linked_at = Instant::now();
                self.heard_at = Instant::now();
                self.is_silent = false;
                // With requests to send, their answers say whether the connection is of use.
                if self.flights.is_empty()
                    && let Some(down) = self.down.take()
                {
                    let seconds = down.since.elapsed().as_secs_f64();
                    tracing::warn!("{}: the connection is back after {seconds:.1} s", self.remote.name);
                }
            }
            Err(reason) => {
                tracing::debug!("{}: {reason}", self.remote.name);
                self.retry_at = Instant::now() + self.retry_after;
                self.retry_after = (self.retry_after * 2).min(RETRY.1);
                let since = Instant::now();
                let down = self.down.get_or_insert(Down { since, reason: String::new(), is_over: false });
                down.reason = reason;
            }
        }
    }

    /// Ends the requests that have waited too long for a connection.
    fn expire(&mut self) {
        let Some(down) = &mut self.down else { return };
        if down.since.elapsed() < self.remote.hold {
            return;
        }
        if !std::mem::replace(&mut down.is_over, true) {
            let seconds = self.remote.hold.as_secs_f64();
            tracing::error!(
                "{}: away for {seconds} s: {}; requests fail until it is back",
                self.remote.name,
                down.reason
            );
        }
        let reason = down.reason.clone();
        self.give_up(&reason);
    }

    fn give_up(&mut self, reason: &str) {
        let time = self.remote.hold;
        self.waiting.clear();
        for slot in self.flights.used() {
            let Some(flight) = self.flights.remove(slot) else { continue };
            let (name, reason) = (self.remote.name.clone(), reason.to_owned());
            flight.end(Err(StoreError::TimedOut { name, time, reason }));
        }
    }

    /// Ends the connection.
    fn leave(&mut self) {
        // Behind data of which a part is sent it would be taken for the rest.
        if self.link.is_some() && self.output.parts.is_empty() {
            wire::request(Command::Disconnect, 0, 0, 0, self.output.tail());
            // The server takes an end without it for a failure; nothing depends on it.
            let _ = self.send();
        }
    }
}

/// The error of an answer.
fn failed(name: &str, number: u32, text: &str) -> StoreError {
    match number {
        errno::ENOSPC => StoreError::NoSpace(name.to_owned()),
        errno::EPERM => StoreError::ReadOnly,
        number => {
            let meaning = wire::error_name(number);
            let error = if text.is_empty() { meaning.to_owned() } else { format!("{meaning} ({text})") };
            StoreError::Io { name: name.to_owned(), error: format!("the server answered: {error}") }
        }
    }
}

/// Says how an export differs from what it was.
fn changed(before: &Export, now: &Export) -> String {
    if before.size_bytes == now.size_bytes {
        return "the server offers the export with other features than before; restart the target to use it so".to_owned();
    }
    let (before, now) = (before.size_bytes, now.size_bytes);
    format!("the export had {before} B and has {now} B now; restart the target to use it so")
}
