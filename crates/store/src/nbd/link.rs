//! A connection to an NBD server that has been negotiated: plain or with TLS, over TCP or a Unix socket.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nbd::negotiate::{self, Query};
use nbd::{Address, Export, NegotiateError, Place};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, setsockopt, socket, sockopt};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use thiserror::Error;

/// Longest time for a connection to be established.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// Longest time for the negotiation: some servers open what is behind an export only then.
pub(super) const NEGOTIATE_TIME: Duration = Duration::from_secs(10);
/// After this long without an acknowledgement of what was sent, or of a probe, TCP gives a connection up.
const USER_TIME: Duration = Duration::from_secs(15);

/// Where the server is, resolved: a target that has dropped its privileges can resolve no names.
pub(super) struct Server {
    address: Address,
    /// Addresses of a TCP server, in the order of the resolver.
    places: Vec<SocketAddr>,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub(super) enum LinkError {
    #[error("{0}")]
    Connect(io::Error),
    #[error("cannot find the address of '{0}': {1}")]
    Resolve(String, io::Error),
    #[error(transparent)]
    Negotiate(#[from] NegotiateError),
    #[error("TLS: {0}")]
    Tls(String),
}

impl Server {
    /// Resolves the name, and reads the certificates.
    pub(super) fn new(address: &Address) -> Result<Self, LinkError> {
        let (places, host) = match &address.place {
            Place::Unix(_) => (Vec::new(), "localhost".to_owned()),
            Place::Tcp(host, port) => {
                let found = (&**host, *port).to_socket_addrs();
                let found = found.map_err(|error| LinkError::Resolve(host.clone(), error))?;
                (found.collect(), host.clone())
            }
        };
        let tls = address.tls.then(|| tls(address.certificates.as_deref(), &host)).transpose();
        Ok(Self { address: address.clone(), places, tls: tls.map_err(LinkError::Tls)? })
    }

    /// Connects and negotiates, within a time for each.
    pub(super) fn connect(&self, time: Duration) -> Result<(Link, Export), LinkError> {
        let socket = match &self.address.place {
            Place::Unix(path) => Socket::Unix(unix(path).map_err(LinkError::Connect)?),
            Place::Tcp(..) => Socket::Tcp(tcp(&self.places, time).map_err(LinkError::Connect)?),
        };
        let time = time.min(NEGOTIATE_TIME);
        let query = Query { export: &self.address.export };
        let mut stream = Timed { socket: &socket, time, until: Instant::now() + time };
        negotiate::greet(&mut stream)?;
        let (link, export) = match &self.tls {
            None => {
                let export = negotiate::choose(&mut stream, &query)?;
                (Link { socket: Arc::new(socket), tls: None }, export)
            }
            Some((config, name)) => {
                negotiate::start_tls(&mut stream)?;
                let mut tls = ClientConnection::new(Arc::clone(config), name.clone())
                    .map_err(|error| LinkError::Tls(error.to_string()))?;
                let export = negotiate::choose(&mut rustls::Stream::new(&mut tls, &mut stream), &query)
                    .map_err(explained)?;
                (Link { socket: Arc::new(socket), tls: Some(Box::new(tls)) }, export)
            }
        };
        link.socket.set_blocking(None).map_err(LinkError::Connect)?;
        Ok((link, export))
    }
}

/// Says what a failed verification means.
fn explained(error: NegotiateError) -> LinkError {
    if let NegotiateError::Io(io) = &error
        && let Some(reason) = io.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>())
    {
        return LinkError::Tls(format!(
            "{reason}; tls-certificates=FOLDER names a folder with the server's authority (ca-cert.pem)"
        ));
    }
    error.into()
}

fn tcp(places: &[SocketAddr], time: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for place in places {
        match TcpStream::connect_timeout(place, time.min(CONNECT_TIME)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                setsockopt(&stream, sockopt::TcpUserTimeout, &(USER_TIME.as_millis() as u32))?;
                setsockopt(&stream, sockopt::KeepAlive, &true)?;
                setsockopt(&stream, sockopt::TcpKeepIdle, &5)?;
                setsockopt(&stream, sockopt::TcpKeepInterval, &5)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to a Unix socket without waiting: that of a server that takes no connections may be full.
fn unix(path: &Path) -> io::Result<UnixStream> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let fd = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(fd.as_raw_fd(), &UnixAddr::new(path)?)?;
    Ok(UnixStream::from(fd))
}

/// Verifies the server by the folder's authority, or the system's, and proves who we are where the folder has a certificate.
fn tls(folder: Option<&Path>, host: &str) -> Result<(Arc<ClientConfig>, ServerName<'static>), String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|_| format!("'{host}' is not a name"))?;
    let mut roots = RootCertStore::empty();
    let certificates = |path: &Path| -> Result<Vec<CertificateDer<'static>>, String> {
        let wrong = |reason: String| format!("{}: {reason}", path.display());
        let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(error.to_string()))?;
        let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| wrong(error.to_string()))?;
        if found.is_empty() { Err(wrong("no certificate found".to_owned())) } else { Ok(found) }
    };
    match folder {
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(
                    "the system has no certificates; name a folder: tls-certificates=FOLDER".to_owned()
                );
            }
        }
        Some(folder) => {
            for certificate in certificates(&folder.join("ca-cert.pem"))? {
                roots.add(certificate).map_err(|error| format!("ca-cert.pem: {error}"))?;
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let own = folder.map(|folder| (folder.join("client-cert.pem"), folder.join("client-key.pem")));
    let config = match own.filter(|(certificate, _)| certificate.exists()) {
        None => builder.with_no_client_auth(),
        Some((certificate, key)) => {
            let secret =
                PrivateKeyDer::from_pem_file(&key).map_err(|error| format!("{}: {error}", key.display()))?;
            builder
                .with_client_auth_cert(certificates(&certificate)?, secret)
                .map_err(|error| format!("{}: {error}", certificate.display()))?
        }
    };
    Ok((Arc::new(config), name))
}

/// The socket of a connection.
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Lets calls wait for so long; or not at all.
    fn set_blocking(&self, time: Option<Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => {
                stream.set_read_timeout(time)?;
                stream.set_write_timeout(time)?;
                stream.set_nonblocking(time.is_none())
            }
            Self::Unix(stream) => {
                stream.set_read_timeout(time)?;
                stream.set_write_timeout(time)?;
                stream.set_nonblocking(time.is_none())
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(stream) => stream.as_fd(),
            Self::Unix(stream) => stream.as_fd(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).read(buffer),
            Socket::Unix(stream) => (&*stream).read(buffer),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&*stream).write(bytes),
            Socket::Unix(stream) => (&*stream).write(bytes),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A socket whose calls wait until a time, all together: a server may not gain time by an answer in pieces.
struct Timed<'a> {
    socket: &'a Socket,
    time: Duration,
    until: Instant,
}

impl Timed<'_> {
    fn wait<T>(&self, call: impl FnOnce(&Socket) -> io::Result<T>) -> io::Result<T> {
        let late = || {
            let seconds = self.time.as_secs_f64();
            let reason =
                format!("no answer within {seconds:.1} s; does the server run, and is it one of NBD?");
            io::Error::new(ErrorKind::TimedOut, reason)
        };
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(late());
        }
        self.socket.set_blocking(Some(left))?;
        call(self.socket).map_err(|error| if error.kind() == ErrorKind::WouldBlock { late() } else { error })
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(|mut socket| socket.read(buffer))
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|mut socket| socket.write(bytes))
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A negotiated connection, whose calls do not wait.
pub(super) struct Link {
    socket: Arc<Socket>,
    tls: Option<Box<ClientConnection>>,
}

impl Link {
    /// The socket, for others to wait for.
    pub(super) fn socket(&self) -> Arc<Socket> {
        Arc::clone(&self.socket)
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether bytes that were written wait for the socket.
    pub(super) fn wants_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    /// Reads what is there; `WouldBlock` if nothing is, 0 at the end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return (&*self.socket).read(buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            if tls.read_tls(&mut &*self.socket)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            tls.process_new_packets().map_err(io::Error::other)?;
        }
    }

    /// Writes as much as goes; `WouldBlock` if nothing does.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.tls.is_none() {
            return (&*self.socket).write(bytes);
        }
        self.flush()?;
        let written = self.tls.as_mut().map_or(Ok(0), |tls| tls.writer().write(bytes))?;
        match self.flush() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            // It has the bytes, whether the socket has them or not.
            _ => Ok(written),
        }
    }

    /// Brings what was written to the socket; `WouldBlock` if it does not take all.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            tls.write_tls(&mut &*self.socket)?;
        }
        Ok(())
    }
}
