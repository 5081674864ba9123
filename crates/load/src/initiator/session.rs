//! An iSCSI session over one TCP connection.

use std::io::{self, ErrorKind};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use iscsi::initiator::{Completion, Direction, Event, InitiatorConnection, Request};
use iscsi::login::SessionType;
use iscsi::login::initiator::{Identity, InitiatorLogin};
use iscsi::{Cut, Framer, ReceiveBuffer, TransmitBuffer, Wishes};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, recv, send};
use record::{OpKind, Side, Writes};
use socket::options::{TcpOptions, acknowledge_at_once};
use socket::stamps::Stamps;
use socket::tape::Tape;

use crate::initiator::commands;
use crate::initiator::error::InitiatorError;
use crate::initiator::login::Login;
use crate::initiator::parts::Parts;
use crate::initiator::url::{IscsiUrl, host_and_port};

/// MSG_MORE (send(2)), which nix does not name.
const MSG_MORE: MsgFlags = MsgFlags::from_bits_retain(0x8000);

/// Capacity of the request buffer that is kept between bursts: deep queues of large writes would otherwise reallocate it.
const KEPT_BYTES: usize = 256 << 20;

/// Options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// InitiatorName.
    pub initiator_name: String,
    /// Authentication and digests.
    pub login: Login,
    /// The values to offer in the login.
    pub wishes: Wishes,
    /// Socket options.
    pub tcp: TcpOptions,
    /// How PDUs are sent after the login: batched with all pending ones ([`Writes::One`]), or header and data in separate
    /// calls ([`Writes::Apart`], [`Writes::More`]). Other modes are rejected.
    pub writes: Writes,
    /// Longest wait for a connection or a response.
    pub patience: Duration,
    /// Record kernel timestamps of up to this many operations.
    pub stamp_operations: Option<usize>,
    /// How long to poll for a response before sleeping; zero sleeps at once. Polling uses a full core.
    pub busy_poll: Duration,
    /// Distinguishes the sessions of one initiator.
    pub session_number: u16,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            initiator_name: "iqn.2026-11.example.roundtrip:bench".to_owned(),
            login: Login::default(),
            wishes: Wishes::default(),
            tcp: TcpOptions { nodelay: true, ..TcpOptions::default() },
            writes: Writes::One,
            patience: Duration::from_secs(30),
            stamp_operations: None,
            busy_poll: Duration::ZERO,
            session_number: 0,
        }
    }
}

impl SessionOptions {
    /// Returns these options with a login, whose initiator name takes precedence if it has one.
    #[must_use]
    pub fn with_login(self, login: &Login) -> Self {
        let initiator_name = login.initiator_name.clone().unwrap_or(self.initiator_name);
        Self { initiator_name, login: login.clone(), ..self }
    }
}

/// The size of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Logical blocks.
    pub blocks: u64,
    /// Logical block length, bytes.
    pub block_bytes: u32,
}

/// Redirections that a login follows (RFC 7143 11.13.5): more are a loop.
const REDIRECTIONS_MAX: usize = 4;

/// The outcome of a login at one address.
enum Attempt {
    LoggedIn(Box<Session>),
    /// The target redirects to this TargetAddress.
    Moved(String),
}

/// Unsent bytes above which no more responses are taken, so that R2Ts cannot make the buffer grow without bound.
const UNSENT_BYTES_MAX: usize = 64 << 20;

/// A session in its full feature phase.
#[derive(Debug)]
pub struct Session {
    address: String,
    socket: TcpStream,
    /// The protocol state.
    pub(crate) connection: InitiatorConnection,
    /// Bytes to send.
    pub(crate) outgoing: TransmitBuffer,
    incoming: ReceiveBuffer,
    framer: Framer,
    patience: Duration,
    busy_poll: Duration,
    quick_ack: bool,
    writes: Writes,
    parts: Parts,
    stamps: Option<Stamps>,
    tape: Option<Tape>,
    /// The logical unit that commands address.
    pub(crate) lun: [u8; 8],
    /// The local TCP port: identifies the connection in records.
    pub port: u16,
}

impl Session {
    /// Connects and logs in.
    ///
    /// # Errors
    /// When the connection or the login fails.
    pub fn open(url: &IscsiUrl, options: &SessionOptions) -> Result<Self, InitiatorError> {
        if !matches!(options.writes, Writes::One | Writes::Apart | Writes::More) {
            return Err(InitiatorError::Spec(format!(
                "writes = {}: use one, apart or more for an iSCSI session",
                options.writes.name()
            )));
        }
        Self::log_in(&url.host, url.port, SessionType::Normal, &url.iqn, url.lun, options)
    }

    /// Discovers the targets of a portal, with their addresses.
    ///
    /// # Errors
    /// When the connection or the discovery session fails.
    pub fn discover(
        host: &str,
        port: u16,
        options: &SessionOptions,
    ) -> Result<Vec<Discovered>, InitiatorError> {
        let mut session = Self::log_in(host, port, SessionType::Discovery, "", 0, options)?;
        session.connection.text(b"SendTargets=All\0", &mut session.outgoing);
        let mut answer = None;
        while answer.is_none() {
            session.exchange(&mut |_, _| (), |event| {
                if let Event::Text(text) = event {
                    answer = Some(text);
                }
                Ok(None)
            })?;
        }
        let mut found: Vec<Discovered> = Vec::new();
        let pairs = answer.unwrap_or_default();
        for (key, value) in iscsi::text::parse(&pairs).map_err(|e| session.fault(e.into()))? {
            match (key, found.last_mut()) {
                ("TargetName", _) => found.push(Discovered { iqn: value.to_owned(), portals: Vec::new() }),
                ("TargetAddress", Some(target)) => target.portals.push(value.to_owned()),
                _ => {}
            }
        }
        session.close()?;
        Ok(found)
    }

    fn log_in(
        host: &str,
        port: u16,
        session_type: SessionType,
        iqn: &str,
        lun: u16,
        options: &SessionOptions,
    ) -> Result<Self, InitiatorError> {
        let (mut host, mut port) = (host.to_owned(), port);
        for _ in 0..=REDIRECTIONS_MAX {
            let moved = match Self::attempt(&host, port, session_type, iqn, lun, options)? {
                Attempt::LoggedIn(session) => return Ok(*session),
                Attempt::Moved(address) => address,
            };
            // TargetAddress: host, port and portal group.
            let place = moved.rsplit_once(',').map_or(&*moved, |(place, _)| place);
            (host, port) = host_and_port(place).ok_or_else(|| InitiatorError::Redirection {
                address: format!("{host}:{port}"),
                to: moved.clone(),
            })?;
        }
        Err(InitiatorError::Redirection {
            address: format!("{host}:{port}"),
            to: "yet another address".into(),
        })
    }

    fn attempt(
        host: &str,
        port: u16,
        session_type: SessionType,
        iqn: &str,
        lun: u16,
        options: &SessionOptions,
    ) -> Result<Attempt, InitiatorError> {
        let address = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let socket = connect(host, port, &address, options)?;
        let local_port = socket.local_addr().map_or(0, |a| a.port());
        socket.set_read_timeout(Some(options.patience)).map_err(|source| InitiatorError::Socket {
            address: address.clone(),
            what: "setting the time limit",
            source,
        })?;
        let [high, low] = options.session_number.to_be_bytes();
        let [_, p2, p3, p4] = std::process::id().to_be_bytes();
        let identity = Identity {
            initiator_name: options.initiator_name.clone(),
            target_name: iqn.to_owned(),
            session_type,
            // Type 10b, "random", qualified by process and session number, so that sessions do not reinstate
            // each other (RFC 7143 11.12.5).
            isid: [0x80 | (p2 & 0x3f), p3, p4, 0, high, low],
        };
        let mut framer = Framer::new(options.wishes.max_recv_bytes as usize);
        let (mut outgoing, mut incoming) = (TransmitBuffer::keeping(KEPT_BYTES), ReceiveBuffer::new());
        let mut request = Vec::new();
        let security = options.login.security()?;
        let mut login = InitiatorLogin::begin_secured(identity, security, &options.wishes, &mut request);
        let established = loop {
            outgoing.extend(&request);
            request.clear();
            let fault = |source| InitiatorError::Fault { address: address.clone(), source };
            let mut stream = &socket;
            let io = |what| move |source: io::Error| (what, source);
            let step = (|| {
                io::Write::write_all(&mut stream, outgoing.pending())
                    .map_err(io("sending the Login Request"))?;
                outgoing.sent(outgoing.pending().len());
                let whole = loop {
                    match framer.next(incoming.unread()) {
                        Ok(Cut::Frame(frame)) => break Ok(frame.total_bytes),
                        Ok(Cut::Needs(needed)) => {
                            let count = io::Read::read(&mut stream, incoming.room(needed))
                                .map_err(io("waiting for the Login Response"))?;
                            if count == 0 {
                                return Err((
                                    "waiting for the Login Response",
                                    ErrorKind::UnexpectedEof.into(),
                                ));
                            }
                            incoming.came(count);
                        }
                        Err(source) => break Err(source),
                    }
                };
                Ok(whole)
            })()
            .map_err(|(what, source)| InitiatorError::Socket {
                address: address.clone(),
                what,
                source,
            })?;
            step.map_err(fault)?;
            let done = match framer.next(incoming.unread()) {
                Ok(Cut::Frame(frame)) => {
                    let total = frame.total_bytes;
                    let received = login.receive(&frame, &mut request);
                    if let Some(moved) = login.moved_to() {
                        return Ok(Attempt::Moved(moved.to_owned()));
                    }
                    let done = received.map_err(fault)?;
                    incoming.take(total);
                    done
                }
                _ => None,
            };
            if let Some(established) = done {
                break established;
            }
        };
        options.tcp.apply(&socket).map_err(|source| InitiatorError::Socket {
            address: address.clone(),
            what: "setting socket options",
            source,
        })?;
        framer.digests = established.parameters.digests;
        outgoing.set_digests(established.parameters.digests);
        let (mut stamps, mut tape) = (None, None);
        if let Some(limit) = options.stamp_operations {
            // The Login Response acknowledged all sent bytes, so the kernel's byte count starts here.
            let enabled =
                Stamps::enable(&socket, outgoing.position()).map_err(|source| InitiatorError::Socket {
                    address: address.clone(),
                    what: "enabling kernel timestamps",
                    source,
                })?;
            stamps = Some(enabled);
            tape = Some(Tape::new(Side::Client, limit));
        }
        Ok(Attempt::LoggedIn(Box::new(Self {
            address,
            socket,
            connection: InitiatorConnection::new(&established),
            outgoing,
            incoming,
            framer,
            patience: options.patience,
            busy_poll: options.busy_poll,
            quick_ack: options.tcp.quick_ack,
            writes: options.writes,
            parts: Parts::default(),
            stamps,
            tape,
            lun: scsi::Lun(lun).encode(),
            port: local_port,
        })))
    }

    /// Reads the capacity of the disk.
    ///
    /// # Errors
    /// When the command or the session fails.
    pub fn capacity(&mut self) -> Result<Capacity, InitiatorError> {
        // The first command of a session may meet a unit attention (power on, reset): clear it.
        for _ in 0..8 {
            if self.command(commands::test_unit_ready(), Direction::None)?.status == 0 {
                break;
            }
        }
        let reply = self.command(commands::read_capacity_16(), Direction::In(32))?;
        let fields =
            (reply.data.first_chunk::<8>(), reply.data.get(8..12).and_then(|b| b.first_chunk::<4>()));
        match fields {
            (Some(last), Some(length)) if reply.status == 0 => Ok(Capacity {
                blocks: u64::from_be_bytes(*last).saturating_add(1),
                block_bytes: u32::from_be_bytes(*length),
            }),
            _ => Err(InitiatorError::Command {
                address: self.address.clone(),
                command: "READ CAPACITY (16)",
                status: reply.status,
                sense: commands::describe_sense(&reply.sense),
            }),
        }
    }

    /// Issues a command and waits for its end. It sends zeros as write data.
    ///
    /// # Errors
    /// When the session fails. A command that ends with a status other than GOOD is returned as a [`Reply`].
    pub fn command(&mut self, cdb: [u8; 16], data: Direction) -> Result<Reply, InitiatorError> {
        self.run(cdb, data, |_, piece| piece.fill(0))
    }

    /// Issues a command with write data and waits for its end.
    ///
    /// # Errors
    /// As for [`Self::command`].
    pub fn write(&mut self, cdb: [u8; 16], data: &[u8]) -> Result<Reply, InitiatorError> {
        self.run(cdb, Direction::Out(data.len() as u32), |at, piece| {
            piece.copy_from_slice(&data[at as usize..][..piece.len()]);
        })
    }

    fn run(
        &mut self,
        cdb: [u8; 16],
        data: Direction,
        mut fill: impl FnMut(u32, &mut [u8]),
    ) -> Result<Reply, InitiatorError> {
        let request = Request { lun: self.lun, cdb, data, user: u32::MAX };
        self.connection.issue(&request, &mut self.outgoing, &mut fill);
        let (mut got, mut reply) = (Vec::new(), None);
        while reply.is_none() {
            self.exchange(&mut fill, |event| {
                let end = match event {
                    Event::Data { data, end, .. } => {
                        got.extend_from_slice(data);
                        end
                    }
                    Event::End(end) => Some(end),
                    Event::Wanted { r2t, .. } => return Ok(Some(r2t)),
                    _ => None,
                };
                if let Some(end) = end {
                    reply = Some((end.status, end.sense.to_vec()));
                }
                Ok(None)
            })?;
        }
        let (status, sense) = reply.unwrap_or_default();
        Ok(Reply { status, data: got, sense })
    }

    /// Sends pending bytes, receives (waiting if nothing is available), and passes events to `on_event`. An R2T that
    /// `on_event` returns is answered with data from `fill`.
    fn exchange(
        &mut self,
        fill: &mut dyn FnMut(u32, &mut [u8]),
        mut on_event: impl FnMut(Event<'_>) -> Result<Option<iscsi::pdu::R2t>, InitiatorError>,
    ) -> Result<(), InitiatorError> {
        self.flush()?;
        self.receive()?;
        while let Some(total) = self.whole_frame()? {
            let Ok(Cut::Frame(frame)) = self.framer.next(self.incoming.unread()) else { break };
            let event = self
                .connection
                .receive(&frame, &mut self.outgoing)
                .map_err(|source| InitiatorError::Fault { address: self.address.clone(), source })?;
            if let Event::Rejected(reason) = event {
                return Err(InitiatorError::Rejected { address: self.address.clone(), reason });
            }
            if let Some(r2t) = on_event(event)? {
                self.connection.send_data(&r2t, &mut self.outgoing, &mut *fill);
            }
            self.incoming.take(total);
        }
        Ok(())
    }

    /// Returns the length of the first PDU, once it is complete.
    fn whole_frame(&self) -> Result<Option<usize>, InitiatorError> {
        match self.framer.next(self.incoming.unread()) {
            Ok(Cut::Frame(frame)) => Ok(Some(frame.total_bytes)),
            Ok(Cut::Needs(_)) => Ok(None),
            Err(source) => Err(self.fault(source)),
        }
    }

    /// Appends a command to the outgoing bytes; returns how many bytes it added.
    ///
    /// # Errors
    /// Returns the number of commands in flight when the command window is closed.
    #[inline]
    pub(crate) fn issue(
        &mut self,
        request: &Request,
        kind: OpKind,
        fill: impl FnMut(u32, &mut [u8]),
    ) -> Result<u32, usize> {
        let before = self.outgoing.position();
        let tag =
            self.connection.issue(request, &mut self.outgoing, fill).ok_or(self.connection.in_flight())?;
        let end = self.outgoing.position();
        if let Some(tape) = &mut self.tape {
            let data_bytes = match request.data {
                Direction::None => 0,
                Direction::In(bytes) | Direction::Out(bytes) => bytes,
            };
            tape.request(tag, kind, data_bytes, (end - before) as u32, end);
        }
        Ok((end - before) as u32)
    }

    /// Takes the next event from received bytes; `None` when no complete PDU is left. `consume` sees the event before its
    /// bytes are released, with the length of its PDU; PDUs that answer it are appended to the outgoing bytes.
    #[inline]
    pub(crate) fn next_event<T>(
        &mut self,
        consume: impl FnOnce(Event<'_>, u32, &mut InitiatorConnection, &mut TransmitBuffer) -> T,
    ) -> Result<Option<T>, InitiatorError> {
        if self.outgoing.pending().len() > UNSENT_BYTES_MAX {
            return Ok(None);
        }
        let frame = match self.framer.next(self.incoming.unread()) {
            Ok(Cut::Frame(frame)) => frame,
            Ok(Cut::Needs(_)) => return Ok(None),
            Err(source) => return Err(self.fault(source)),
        };
        let total = frame.total_bytes;
        let end = self.incoming.position() + total as u64;
        let event = self
            .connection
            .receive(&frame, &mut self.outgoing)
            .map_err(|source| InitiatorError::Fault { address: self.address.clone(), source })?;
        if let (Some(tape), Some(tag)) = (&mut self.tape, ended_tag(&event)) {
            // Only the last Data-In PDU of a command matters: the record needs its end.
            tape.response(tag, total as u32, end);
        }
        let value = consume(event, total as u32, &mut self.connection, &mut self.outgoing);
        self.incoming.take(total);
        Ok(Some(value))
    }

    /// Sends pending bytes until the socket would block.
    #[inline]
    pub(crate) fn flush(&mut self) -> Result<(), InitiatorError> {
        while !self.outgoing.is_empty() {
            let mut flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
            let mut pending = self.outgoing.pending();
            if self.writes != Writes::One {
                let part = self.parts.next(pending, self.outgoing.digests());
                pending = &pending[..part.bytes];
                if part.is_header && self.writes == Writes::More {
                    flags |= MSG_MORE;
                }
            }
            match send(self.socket.as_raw_fd(), pending, flags) {
                Ok(count) => {
                    self.outgoing.sent(count);
                    self.parts.sent(count);
                }
                Err(nix::errno::Errno::EAGAIN) => break,
                Err(nix::errno::Errno::EINTR) => {}
                Err(error) => return Err(self.socket_error("sending", error.into())),
            }
        }
        Ok(())
    }

    /// Waits at most `time` for received bytes, or for room to send pending ones; returns whether bytes were received.
    pub(crate) fn wait(&mut self, time: Duration) -> Result<bool, InitiatorError> {
        if !self.incoming.unread().is_empty() && self.whole_frame()?.is_some() {
            return Ok(false);
        }
        let mut wanted = PollFlags::POLLIN;
        if !self.outgoing.is_empty() {
            wanted |= PollFlags::POLLOUT;
        }
        let mut fds = [PollFd::new(self.socket.as_fd(), wanted)];
        // ppoll(2) rather than poll(2): scheduled operations need microsecond resolution.
        let time = nix::sys::time::TimeSpec::from_duration(time.min(self.patience));
        match nix::poll::ppoll(&mut fds, Some(time), None) {
            Ok(count) => Ok(count > 0),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(error) => Err(self.socket_error("waiting", error.into())),
        }
    }

    /// Waits until bytes arrive (or, with bytes pending, until the socket takes more), and receives them.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<(), InitiatorError> {
        let needed = match self.framer.next(self.incoming.unread()) {
            Ok(Cut::Needs(needed)) => needed,
            Ok(Cut::Frame(frame)) => frame.total_bytes,
            Err(source) => return Err(self.fault(source)),
        };
        if !self.outgoing.is_empty() || self.stamps.is_some() {
            return self.receive_polled(needed);
        }
        let room = self.incoming.room(needed);
        if room.is_empty() {
            return Ok(());
        }
        if !self.busy_poll.is_zero() {
            let begun = std::time::Instant::now();
            while begun.elapsed() < self.busy_poll {
                match recv(self.socket.as_raw_fd(), room, MsgFlags::MSG_DONTWAIT) {
                    // The receive below reports an end or an error again.
                    Ok(0) | Err(nix::errno::Errno::EINTR) => break,
                    Ok(count) => {
                        self.incoming.came(count);
                        return self.received();
                    }
                    Err(nix::errno::Errno::EAGAIN) => {}
                    Err(_) => break,
                }
            }
        }
        let mut stream = &self.socket;
        match io::Read::read(&mut stream, room) {
            Ok(0) => Err(self.closed()),
            Ok(count) => {
                self.incoming.came(count);
                self.received()
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(self.stalled()),
            Err(error) => Err(self.socket_error("receiving", error)),
        }
    }

    /// Acknowledges received data at once, if configured. Call after each receive.
    #[inline]
    fn received(&self) -> Result<(), InitiatorError> {
        if self.quick_ack {
            acknowledge_at_once(&self.socket)
                .map_err(|error| self.socket_error("setting TCP_QUICKACK", error))?;
        }
        Ok(())
    }

    /// Receives without blocking; between polls sends pending bytes and reads timestamps.
    fn receive_polled(&mut self, needed: usize) -> Result<(), InitiatorError> {
        let mut wanted = PollFlags::POLLIN;
        if !self.outgoing.is_empty() {
            wanted |= PollFlags::POLLOUT;
        }
        if self.outgoing.pending().len() > UNSENT_BYTES_MAX {
            wanted = PollFlags::POLLOUT;
        }
        let patience = PollTimeout::try_from(self.patience).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.socket.as_fd(), wanted)];
        match poll(&mut fds, patience) {
            Ok(0) => return Err(self.stalled()),
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(error) => return Err(self.socket_error("waiting", error.into())),
        }
        self.read_stamps()?;
        if !wanted.contains(PollFlags::POLLIN) {
            return self.flush();
        }
        let received = match Stamps::receive(&self.socket, self.incoming.room(needed)) {
            Ok(received) if received.bytes == 0 && needed > self.incoming.unread().len() => {
                return Err(self.closed());
            }
            Ok(received) => received,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return self.flush();
            }
            Err(error) => return Err(self.socket_error("receiving", error)),
        };
        self.incoming.came(received.bytes);
        self.received()?;
        if let (Some(tape), Some(ns)) = (&mut self.tape, received.ns) {
            tape.received(self.incoming.position() + self.incoming.unread().len() as u64, ns);
        }
        self.flush()
    }

    /// Reads the timestamps of sent bytes.
    fn read_stamps(&mut self) -> Result<(), InitiatorError> {
        if let (Some(stamps), Some(tape)) = (&mut self.stamps, &mut self.tape) {
            stamps.sent(&self.socket, |end, ns| tape.sent(end, ns)).map_err(|source| {
                InitiatorError::Socket {
                    address: self.address.clone(),
                    what: "reading kernel timestamps",
                    source,
                }
            })?;
        }
        Ok(())
    }

    /// Logs out and waits for the response; returns the operations with kernel timestamps, if recorded.
    ///
    /// # Errors
    /// When the session fails before the response arrives.
    pub fn close(mut self) -> Result<Vec<record::Op>, InitiatorError> {
        self.connection.logout(&mut self.outgoing);
        let mut out = false;
        while !out {
            match self.exchange(&mut |_, _| (), |event| {
                out = out || event == Event::LoggedOut;
                Ok(None)
            }) {
                // A target may close right after its Logout Response, or instead of it.
                Err(InitiatorError::Closed { in_flight: 0, .. }) => break,
                other => other?,
            }
        }
        self.read_stamps()?;
        Ok(self.tape.as_ref().map(|tape| tape.ops(self.port.into())).unwrap_or_default())
    }

    pub(crate) fn fault(&self, source: iscsi::Fault) -> InitiatorError {
        InitiatorError::Fault { address: self.address.clone(), source }
    }

    pub(crate) fn rejected(&self, reason: u8) -> InitiatorError {
        InitiatorError::Rejected { address: self.address.clone(), reason }
    }

    fn closed(&self) -> InitiatorError {
        InitiatorError::Closed { address: self.address.clone(), in_flight: self.connection.in_flight() }
    }

    fn stalled(&self) -> InitiatorError {
        InitiatorError::Stalled {
            address: self.address.clone(),
            waited: self.patience,
            in_flight: self.connection.in_flight(),
        }
    }

    fn socket_error(&self, what: &'static str, source: io::Error) -> InitiatorError {
        InitiatorError::Socket { address: self.address.clone(), what, source }
    }
}

/// A target reported by a portal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovered {
    /// TargetName.
    pub iqn: String,
    /// TargetAddress, each as `address:port,group`.
    pub portals: Vec<String>,
}

/// The result of a single command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// SCSI status.
    pub status: u8,
    /// Data from the target.
    pub data: Vec<u8>,
    /// Sense data.
    pub sense: Vec<u8>,
}

/// Returns the tag of the command that an event ends.
fn ended_tag(event: &Event<'_>) -> Option<u32> {
    let end: Option<&Completion<'_>> = match event {
        Event::Data { end, .. } => end.as_ref(),
        Event::End(end) => Some(end),
        _ => None,
    };
    end.map(|end| end.tag)
}

fn connect(
    host: &str,
    port: u16,
    address: &str,
    options: &SessionOptions,
) -> Result<TcpStream, InitiatorError> {
    let failed = |source| InitiatorError::Connect { address: address.to_owned(), source };
    // Nagle's algorithm would delay small Login Requests, too.
    let login = TcpOptions { nodelay: true, ..options.tcp.clone() };
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for candidate in (host, port).to_socket_addrs().map_err(failed)? {
        match login.connect(&candidate, options.patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}
