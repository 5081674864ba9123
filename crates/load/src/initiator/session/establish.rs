//! Connecting to a target and logging in, with the redirections that it asks for.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};

use iscsi::initiator::InitiatorConnection;
use iscsi::login::SessionType;
use iscsi::login::initiator::{Established, Identity, InitiatorLogin};
use iscsi::{Cut, Framer, ReceiveBuffer, TransmitBuffer};
use record::Side;
use socket::options::TcpOptions;
use socket::stamps::Stamps;
use socket::tape::Tape;

use super::{Session, SessionOptions};
use crate::initiator::error::InitiatorError;
use crate::initiator::parts::Parts;
use crate::initiator::url::host_and_port;

/// Capacity of the request buffer that is kept between bursts: deep queues of large writes would otherwise reallocate it.
const KEPT_BYTES: usize = 256 << 20;

/// Redirections that a login follows (RFC 7143 11.13.5): more are a loop.
const REDIRECTIONS_MAX: usize = 4;

/// Where a target listens.
#[derive(Debug)]
pub(super) struct Portal {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Portal {
    /// The portal in messages.
    fn address(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Connects to the first address of the host that accepts.
    fn connect(&self, options: &SessionOptions) -> Result<TcpStream, InitiatorError> {
        let (host, address) = (self.host.clone(), self.address());
        let addresses = (&*self.host, self.port)
            .to_socket_addrs()
            .map_err(|source| InitiatorError::Unresolved { host, address: address.clone(), source })?;
        // Nagle's algorithm would delay small Login Requests, too.
        let login = TcpOptions { nodelay: true, ..options.tcp.clone() };
        let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
        for candidate in addresses {
            match login.connect(&candidate, options.patience) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = error,
            }
        }
        Err(InitiatorError::Connect { address, source: last })
    }
}

/// The outcome of a login at one address.
enum Attempt {
    LoggedIn(Box<Session>),
    /// The target redirects to this TargetAddress.
    Moved(String),
}

/// The outcome of the login phase.
enum Answer {
    Established(Established),
    Moved(String),
}

/// A connection in its login phase.
struct Dialogue<'a> {
    address: &'a str,
    socket: &'a TcpStream,
    framer: Framer,
    outgoing: TransmitBuffer,
    incoming: ReceiveBuffer,
}

impl Dialogue<'_> {
    fn failed(&self, what: &'static str) -> impl Fn(io::Error) -> InitiatorError + use<> {
        let address = self.address.to_owned();
        move |source| InitiatorError::Socket { address: address.clone(), what, source }
    }

    fn fault(&self, source: iscsi::Fault) -> InitiatorError {
        InitiatorError::Fault { address: self.address.to_owned(), source }
    }

    /// Sends a Login Request.
    fn send(&mut self, request: &[u8]) -> Result<(), InitiatorError> {
        self.outgoing.extend(request);
        let mut socket = self.socket;
        socket.write_all(self.outgoing.pending()).map_err(self.failed("sending the Login Request"))?;
        self.outgoing.sent(self.outgoing.pending().len());
        Ok(())
    }

    /// Receives until a whole PDU is there.
    fn receive(&mut self) -> Result<(), InitiatorError> {
        const WHAT: &str = "waiting for the Login Response";
        let failed = self.failed(WHAT);
        loop {
            let needed = match self.framer.next(self.incoming.unread()) {
                Ok(Cut::Frame(_)) => return Ok(()),
                Ok(Cut::Needs(needed)) => needed,
                Err(source) => return Err(self.fault(source)),
            };
            let mut socket = self.socket;
            match socket.read(self.incoming.room(needed)).map_err(&failed)? {
                0 => return Err(failed(ErrorKind::UnexpectedEof.into())),
                count => self.incoming.came(count),
            }
        }
    }

    /// Exchanges PDUs until the login is complete.
    fn run(&mut self, login: &mut InitiatorLogin, mut request: Vec<u8>) -> Result<Answer, InitiatorError> {
        loop {
            self.send(&request)?;
            request.clear();
            self.receive()?;
            let Ok(Cut::Frame(frame)) = self.framer.next(self.incoming.unread()) else { continue };
            let total = frame.total_bytes;
            let received = login.receive(&frame, &mut request);
            if let Some(moved) = login.moved_to() {
                return Ok(Answer::Moved(moved.to_owned()));
            }
            let done = received.map_err(|source| self.fault(source))?;
            self.incoming.take(total);
            if let Some(established) = done {
                return Ok(Answer::Established(established));
            }
        }
    }
}

impl Session {
    /// Connects and logs in, wherever the target redirects to.
    pub(super) fn log_in(
        mut portal: Portal,
        session_type: SessionType,
        iqn: &str,
        lun: u16,
        options: &SessionOptions,
    ) -> Result<Self, InitiatorError> {
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
        let mut from = None;
        for _ in 0..=REDIRECTIONS_MAX {
            let to = portal.address();
            let moved = match Self::attempt(&portal, &identity, lun, options) {
                Ok(Attempt::LoggedIn(session)) => return Ok(*session),
                Ok(Attempt::Moved(address)) => address,
                // The caller's own name would be the caller's fault.
                Err(InitiatorError::Unresolved { .. }) if from.is_some() => {
                    return Err(InitiatorError::Redirection { address: from.unwrap_or_default(), to });
                }
                Err(error) => return Err(error),
            };
            // TargetAddress: host, port and portal group.
            let place = moved.rsplit_once(',').map_or(&*moved, |(place, _)| place);
            let Some((host, port)) = host_and_port(place) else {
                return Err(InitiatorError::Redirection { address: to, to: moved });
            };
            (portal, from) = (Portal { host, port }, Some(to));
        }
        Err(InitiatorError::Redirection { address: portal.address(), to: "yet another address".into() })
    }

    fn attempt(
        portal: &Portal,
        identity: &Identity,
        lun: u16,
        options: &SessionOptions,
    ) -> Result<Attempt, InitiatorError> {
        let (address, socket) = (portal.address(), portal.connect(options)?);
        let local_port = socket.local_addr().map_or(0, |a| a.port());
        let security = options.login.security()?;
        let mut request = Vec::new();
        let mut login =
            InitiatorLogin::begin_secured(identity.clone(), security, &options.wishes, &mut request);
        let mut dialogue = Dialogue {
            address: &address,
            socket: &socket,
            framer: Framer::new(options.wishes.max_recv_bytes as usize),
            outgoing: TransmitBuffer::keeping(KEPT_BYTES),
            incoming: ReceiveBuffer::new(),
        };
        let failed = |what| dialogue.failed(what);
        socket.set_read_timeout(Some(options.patience)).map_err(failed("setting the time limit"))?;
        let established = match dialogue.run(&mut login, request)? {
            Answer::Established(established) => established,
            Answer::Moved(to) => return Ok(Attempt::Moved(to)),
        };
        let failed = |what| dialogue.failed(what);
        options.tcp.apply(&socket).map_err(failed("setting socket options"))?;
        let (mut stamps, mut tape) = (None, None);
        if let Some(limit) = options.stamp_operations {
            // The Login Response acknowledged all sent bytes, so the kernel's byte count starts here.
            let enabled = Stamps::enable(&socket, dialogue.outgoing.position());
            stamps = Some(enabled.map_err(failed("enabling kernel timestamps"))?);
            tape = Some(Tape::new(Side::Client, limit));
        }
        let Dialogue { mut framer, mut outgoing, incoming, .. } = dialogue;
        framer.digests = established.parameters.digests;
        outgoing.set_digests(established.parameters.digests);
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
}
