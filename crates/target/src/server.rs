//! The portal: accepts connections and gives each a thread.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use iscsi::login::is_iscsi_name;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ring::Sighting;
use socket::options::TcpOptions;

use crate::config::TargetConfig;
use crate::connection::Connection;
use crate::error::TargetError;
use crate::execute::Disks;
use crate::sessions::{Mailbox, Notice, Sessions, lock};
use crate::statistics::{Board, ConnectionStatistics};

/// The tag of our one portal group.
pub(crate) const PORTAL_GROUP_TAG: u16 = 1;

/// How long a stop waits for connections to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// What all threads of a target share.
pub(crate) struct Shared {
    pub(crate) config: TargetConfig,
    pub(crate) disks: Disks,
    pub(crate) sessions: Sessions,
    pub(crate) board: Board,
    stopping: AtomicBool,
    sightings: Mutex<Vec<Sighting>>,
}

impl Shared {
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(crate) fn keep_sightings(&self, mut sightings: Vec<Sighting>) {
        lock(&self.sightings).append(&mut sightings);
    }
}

/// The statistics of a target, also after it has stopped.
#[derive(Clone, Debug)]
pub struct StatisticsHandle(Board);

impl StatisticsHandle {
    /// As [`RunningTarget::statistics`].
    #[must_use]
    pub fn statistics(&self) -> Vec<ConnectionStatistics> {
        self.0.all()
    }
}

/// A target that listens. Dropping it stops it.
pub struct RunningTarget {
    address: SocketAddr,
    shared: Arc<Shared>,
    wake: Arc<Mailbox>,
    listener: Option<JoinHandle<()>>,
}

impl RunningTarget {
    /// Starts to listen, in the network namespace and with the CPU affinity of the calling thread.
    ///
    /// # Errors
    /// When the configuration is impossible or the portal is not to be had.
    pub fn start(config: TargetConfig) -> Result<Self, TargetError> {
        if !is_iscsi_name(&config.iqn) {
            return Err(TargetError::Name(config.iqn));
        }
        let disks = Disks::new(&config.luns, &config.iqn, PORTAL_GROUP_TAG)?;
        let portal = config.portal;
        let listen = |source| TargetError::Listen { portal, source };
        let listener = TcpListener::bind(portal).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        // Accepted sockets inherit the congestion control.
        let tcp = TcpOptions { nodelay: true, congestion: config.congestion.clone() };
        tcp.apply(&listener)
            .map_err(|source| TargetError::Io { what: "socket options of the portal", source })?;
        let address = listener.local_addr().map_err(listen)?;
        let io = |what| move |source| TargetError::Io { what, source };
        let wake = Arc::new(Mailbox::new().map_err(io("a wake-up for the portal"))?);
        let shared = Arc::new(Shared {
            config,
            disks,
            sessions: Sessions::default(),
            board: Board::default(),
            stopping: AtomicBool::new(false),
            sightings: Mutex::default(),
        });
        let thread = {
            let (shared, wake) = (Arc::clone(&shared), Arc::clone(&wake));
            std::thread::Builder::new()
                .name("portal".to_owned())
                .spawn(move || accept(&listener, &shared, &wake))
                .map_err(io("a thread for the portal"))?
        };
        Ok(Self { address, shared, wake, listener: Some(thread) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The statistics of its connections: open ones, and those that ended.
    #[must_use]
    pub fn statistics(&self) -> Vec<ConnectionStatistics> {
        self.shared.board.all()
    }

    /// A view of the statistics that outlives the target.
    #[must_use]
    pub fn statistics_handle(&self) -> StatisticsHandle {
        StatisticsHandle(self.shared.board.clone())
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.sessions.connections()
    }

    /// Waits until all connections have ended, at most `patience`; whether they did.
    #[must_use]
    pub fn wait_until_idle(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while self.connections() > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }

    /// The server's sightings of all connections that have ended, where kernel stamps were kept.
    #[must_use]
    pub fn take_sightings(&self) -> Vec<Sighting> {
        std::mem::take(&mut *lock(&self.shared.sightings))
    }

    /// Tells every initiator, closes every connection, and waits (a bounded time) until they are gone.
    pub fn stop(mut self) {
        self.stop_now();
    }

    fn stop_now(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.wake.post(Notice::Stop);
        if let Some(listener) = self.listener.take() {
            // A panic of the portal's thread was reported when it happened.
            let _ = listener.join();
        }
        self.shared.sessions.post_to_all(Notice::Stop);
        if !self.wait_until_idle(STOP_PATIENCE) {
            tracing::warn!("{} connections did not end in time", self.connections());
        }
    }
}

impl Drop for RunningTarget {
    fn drop(&mut self) {
        if self.listener.is_some() {
            self.stop_now();
        }
    }
}

/// The portal's thread.
fn accept(listener: &TcpListener, shared: &Arc<Shared>, wake: &Mailbox) {
    let mut next_id = 0;
    while !shared.is_stopping() {
        let mut fds = [
            PollFd::new(listener.as_fd(), PollFlags::POLLIN),
            PollFd::new(wake.wake.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut fds, PollTimeout::NONE);
        match listener.accept() {
            Ok((socket, peer)) => {
                next_id += 1;
                begin(next_id, shared, socket, peer);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                // Out of descriptors, or a connection that died in the queue: the portal goes on.
                tracing::warn!("accepting a connection: {error}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

fn begin(id: u64, shared: &Arc<Shared>, socket: TcpStream, peer: SocketAddr) {
    let begun = (|| {
        socket.set_nonblocking(false)?;
        let mailbox = Arc::new(Mailbox::new()?);
        if !shared.sessions.enter(id, &mailbox, shared.config.limits.connections) {
            return Err(std::io::Error::other("the limit of connections is reached"));
        }
        let for_thread = Arc::clone(shared);
        let thread = std::thread::Builder::new()
            .name(format!("session {id}"))
            .spawn(move || Connection::new(id, for_thread, mailbox, socket, peer).run());
        thread.map(drop).inspect_err(|_| shared.sessions.leave(id))
    })();
    if let Err(error) = begun {
        tracing::warn!(%peer, "connection refused: {error}");
    }
}
