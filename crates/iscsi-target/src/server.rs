//! The portals: accept connections and give each to an event loop, or to a thread of its own.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use policy::SendPolicy;
use record::Op;
use scsi::ports::AccessState;
use socket::options::TcpOptions;

use crate::admission::{Admission, Room};
use crate::clock::Clock;
use crate::config::{NodeConfig, Portal, TargetConfig};
use crate::connection::Connection;
use crate::core::Accepted;
use crate::effects::SharedEffects;
use crate::error::TargetError;
use crate::event_loop::{EventLoop, Handle, Newcomer};
use crate::gate::PortalGate;
use crate::jobs::Pool;
use crate::kept::{Kept, KeptSession, Quiet};
use crate::lock::lock;
use crate::mailbox::{Mailbox, Notice};
use crate::node::Nodes;
use crate::overview::{self, LimitUse, NodeOverview, ReservationsOverview, SessionOverview};
use crate::placement::{self, Place};
use crate::session::Session;
use crate::sessions::{EndedConnection, Sessions};
use crate::shared::Shared;
use crate::state::StateFolder;
use crate::statistics::{Board, ConnectionStatistics, Totals};
use crate::table::Table;
use crate::transport::Woken;

/// Longest time that a stop waits for connections to end.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// A handle on the statistics of a target, valid after it has stopped.
#[derive(Clone, Debug)]
pub struct StatisticsHandle(Board);

impl StatisticsHandle {
    /// Returns what [`RunningTarget::statistics`] returns.
    #[must_use]
    pub fn statistics(&self) -> Vec<ConnectionStatistics> {
        self.0.all()
    }
}

/// A target with bound portals and open disks, but no threads yet. Drop privileges before [`BoundTarget::start`]: its
/// threads inherit the privileges of the caller.
pub struct BoundTarget {
    listeners: Vec<TcpListener>,
    shared: Arc<Shared>,
}

impl BoundTarget {
    /// Binds the portals, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When the configuration is invalid or a portal cannot be bound.
    pub fn bind(config: TargetConfig) -> Result<Self, TargetError> {
        Self::bind_with(config, Vec::new())
    }

    /// As [`BoundTarget::bind`], with sockets that listen already: each is taken for the portal with its address.
    ///
    /// # Errors
    /// As [`BoundTarget::bind`], and when a socket is at the address of no portal.
    pub fn bind_with(config: TargetConfig, mut inherited: Vec<TcpListener>) -> Result<Self, TargetError> {
        if config.portals.is_empty() {
            return Err(TargetError::NoPortal);
        }
        let state = config.state.as_deref().map(StateFolder::open).transpose()?;
        let groups = config.portals.iter().map(|portal| portal.group).collect();
        let sessions = Arc::new(Sessions::default());
        let effects = Arc::new(SharedEffects::new(Arc::clone(&sessions) as _, state));
        let nothing = Arc::new(Table::empty(Arc::clone(&effects)));
        let nodes = Nodes::new(&config.nodes, groups, effects)?;
        let (mut listeners, mut portals) = (Vec::new(), config.portals.clone());
        for portal in &mut portals {
            let failed = |source| TargetError::Listen { portal: portal.listen, source };
            let own = inherited.iter().position(|one| one.local_addr().is_ok_and(|at| at == portal.listen));
            let listener = match own {
                Some(index) => prepared(inherited.swap_remove(index), portal.listen, &config.tcp)?,
                None => {
                    prepared(TcpListener::bind(portal.listen).map_err(failed)?, portal.listen, &config.tcp)?
                }
            };
            portal.listen = listener.local_addr().map_err(failed)?;
            listeners.push(listener);
        }
        if let Some(address) = inherited.first().and_then(|one| one.local_addr().ok()) {
            return Err(TargetError::NoPortalAt(address));
        }
        let pool = Pool::new(config.limits.disk_threads, config.limits.abandoned_bytes);
        let shared = Shared::new(config, portals, nodes, nothing, sessions, pool, Clock::System);
        let shared = shared
            .map_err(|source| TargetError::Io { what: "cannot watch connections for their end", source })?;
        Ok(Self { listeners, shared: Arc::new(shared) })
    }

    /// Returns the addresses of its portals, with the actual ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.shared.portals.iter().map(|portal| portal.listen).collect()
    }

    /// Starts to accept connections, with the CPU affinity and the privileges of the calling thread.
    ///
    /// # Errors
    /// When the portal's thread cannot be started.
    pub fn start(self) -> Result<RunningTarget, TargetError> {
        self.start_with(Kept::default())
    }

    /// As [`BoundTarget::start`], and goes on with the sessions that [`RunningTarget::suspend`] has taken out of another target. Those
    /// whose initiators could not log in now, or would see other disks, end: their initiators log in again.
    ///
    /// # Errors
    /// As [`BoundTarget::start`].
    pub fn start_with(self, kept: Kept) -> Result<RunningTarget, TargetError> {
        let io = |what| move |source| TargetError::Io { what, source };
        let wake =
            Arc::new(Mailbox::new().map_err(io("cannot create the wake-up descriptor of the portal"))?);
        let Self { listeners, shared } = self;
        for node in &*shared.nodes.all() {
            node.disks.carry(&kept.disks);
        }
        let loops = Loops::start(&shared).map_err(io("cannot start the threads that serve connections"))?;
        let last_id = go_on(kept.sessions, &shared, &loops.handles);
        let thread = {
            let (shared, wake) = (Arc::clone(&shared), Arc::clone(&wake));
            let handles = Arc::clone(&loops.handles);
            std::thread::Builder::new()
                .name("portal".to_owned())
                .spawn(move || accept(&listeners, &shared, &handles, &wake, last_id))
                .map_err(io("cannot start the portal thread"))?
        };
        Ok(RunningTarget { shared, wake, listener: Some(thread), loops })
    }
}

/// A running target. Dropping it stops it.
pub struct RunningTarget {
    shared: Arc<Shared>,
    wake: Arc<Mailbox>,
    listener: Option<JoinHandle<()>>,
    loops: Loops,
}

impl RunningTarget {
    /// Binds the portals and starts to accept connections, in the network namespace and with the CPU affinity of the
    /// calling thread.
    ///
    /// # Errors
    /// As [`BoundTarget::bind`] and [`BoundTarget::start`].
    pub fn start(config: TargetConfig) -> Result<Self, TargetError> {
        BoundTarget::bind(config)?.start()
    }

    /// Returns the address of its first portal.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.portals[0].listen
    }

    /// Returns the addresses of its portals, with the actual ports.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.shared.portals.iter().map(|portal| portal.listen).collect()
    }

    /// Returns the number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.shared.sessions.sessions()
    }

    /// Replaces the target nodes: their disks and access rules change, nodes come and go. Initiators are notified of added, removed
    /// and resized disks; a disk with the same number and store keeps its reservations. Initiators that may no longer log in are
    /// asked to log out, and dropped when they have not within `patience`.
    ///
    /// # Errors
    /// When a node or a disk is invalid; nothing has changed then.
    pub fn set_nodes(&self, nodes: &[NodeConfig], patience: Duration) -> Result<(), TargetError> {
        self.shared.set_nodes(nodes, patience)
    }

    /// Sets the send policy of all connections.
    pub fn set_send(&self, send: SendPolicy) {
        *lock(&self.shared.send) = send;
        self.shared.sessions.post_to_all(Notice::Send(send));
    }

    /// Asks an initiator to log out, and drops its connections when it has not within `patience`. Returns how many
    /// connections were asked.
    pub fn ask_to_log_out(&self, initiator: &str, patience: Duration) -> usize {
        let notice = Notice::LogOut(patience);
        self.shared
            .sessions
            .post_to_chosen(|session, _| session.key.initiator_name.eq_ignore_ascii_case(initiator), notice)
    }

    /// Returns its target nodes with their disks.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeOverview> {
        overview::nodes(&self.shared)
    }

    /// Returns its sessions.
    #[must_use]
    pub fn session_list(&self) -> Vec<SessionOverview> {
        overview::sessions(&self.shared)
    }

    /// Drops the sessions that `chosen` selects; returns how many. Their initiators may log in again.
    pub fn drop_sessions(&self, chosen: impl Fn(&SessionOverview) -> bool) -> usize {
        overview::drop_sessions(&self.shared, chosen)
    }

    /// Returns the reservations of its disks.
    #[must_use]
    pub fn reservations(&self) -> Vec<ReservationsOverview> {
        overview::reservations(&self.shared)
    }

    /// Ends all reservations of a disk, whoever holds them; the initiators receive a unit attention. Returns how many had one, or
    /// `None` if there is no such disk.
    ///
    /// # Errors
    /// When the durable state cannot be saved; nothing has changed then.
    pub fn clear_reservations(&self, iqn: &str, lun: u16) -> Result<Option<usize>, TargetError> {
        overview::clear_reservations(&self.shared, iqn, lun)
    }

    /// Refuses logins from now on, and asks the initiators to log out within `patience`.
    pub fn drain(&self, patience: Duration) {
        overview::drain(&self.shared, patience);
    }

    /// Returns whether logins are refused because of [`RunningTarget::drain`].
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Ordering::Relaxed)
    }

    /// Returns the current send policy.
    #[must_use]
    pub fn send(&self) -> SendPolicy {
        self.shared.send()
    }

    /// Sets the access state of the disks through a portal group (implicit ALUA); returns false when there is no such
    /// group.
    pub fn set_access_state(&self, group: u16, state: AccessState) -> bool {
        // Each has to hear of it.
        self.shared.nodes.all().iter().filter(|node| node.set_access_state(group, state)).count() > 0
    }

    /// Returns the statistics of its connections, open and ended.
    #[must_use]
    pub fn statistics(&self) -> Vec<ConnectionStatistics> {
        self.shared.board.all()
    }

    /// Has every connection publish what it has counted, which otherwise waits for its next commands. They do so within moments; this
    /// waits for those that are idle now.
    pub fn refresh(&self) {
        self.shared.sessions.post_to_all(Notice::Publish);
        std::thread::sleep(REFRESH_TIME);
    }

    /// Returns sums over all connections since the start.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.shared.board.totals()
    }

    /// Returns how much of the limits that all initiators share is in use.
    #[must_use]
    pub fn limits(&self) -> Vec<LimitUse> {
        overview::limits(&self.shared)
    }

    /// Returns a handle on the statistics that outlives the target.
    #[must_use]
    pub fn statistics_handle(&self) -> StatisticsHandle {
        StatisticsHandle(self.shared.board.clone())
    }

    /// Returns the number of open connections.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.sessions.connections()
    }

    /// Waits until all connections have ended, at most `patience`; returns whether they did.
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

    /// Takes the recorded operations of all connections that have ended (see [`TargetConfig::stamp_operations`]).
    #[must_use]
    pub fn take_ops(&self) -> Vec<Op> {
        std::mem::take(&mut *lock(&self.shared.seen))
    }

    /// Notifies every initiator, closes every connection, and waits for them to end, for a bounded time.
    pub fn stop(mut self) {
        self.stop_now();
    }

    /// Ends as [`RunningTarget::stop`] does, but takes the sessions out that can go on in the next process, once none of their requests
    /// is in progress. Those that are not quiet within `patience` end.
    pub fn suspend(mut self, patience: Duration) -> Kept {
        self.stop_accepting();
        self.shared.sessions.post_to_all(Notice::Suspend);
        let _ = self.wait_until_idle(patience);
        self.end_connections();
        let disks = self.shared.nodes.all().iter().flat_map(|node| node.disks.carried()).collect();
        let quiet = std::mem::take(&mut *lock(&self.shared.quiet));
        let sessions = quiet.into_iter().filter_map(Quiet::finish).collect();
        // Only now: what their ends change is for nobody else of this target.
        self.shared.sessions_ended(&self.shared.sessions.remove_all());
        Kept { sessions, disks }
    }

    fn stop_now(&mut self) {
        self.stop_accepting();
        self.end_connections();
    }

    fn stop_accepting(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.wake.post(Notice::Stop);
        if let Some(listener) = self.listener.take() {
            // The panic hook has reported a panic of the portal thread already.
            let _ = listener.join();
        }
    }

    fn end_connections(&mut self) {
        self.shared.sessions.post_to_all(Notice::Stop);
        let is_idle = self.wait_until_idle(STOP_PATIENCE);
        if !is_idle {
            tracing::warn!("{} connections did not end within {STOP_PATIENCE:?}", self.connections());
        }
        self.loops.stop(is_idle);
    }
}

impl Drop for RunningTarget {
    fn drop(&mut self) {
        if self.listener.is_some() {
            self.stop_now();
        }
    }
}

/// How long a look at the counters waits for idle connections.
const REFRESH_TIME: Duration = Duration::from_millis(3);

/// Connections that may wait to be accepted, at each portal.
const BACKLOG: i32 = 4096;

/// Prepares a bound socket.
fn prepared(listener: TcpListener, portal: SocketAddr, tcp: &TcpOptions) -> Result<TcpListener, TargetError> {
    let failed = |source| TargetError::Listen { portal, source };
    listener.set_nonblocking(true).map_err(failed)?;
    // The standard library asks for 128: initiators that all log in at once, as after the reboot of a switch, would be sent away by
    // the kernel, and try again after a second. The kernel's own limit is net.core.somaxconn.
    // Not nix's, which refuses more than the C library's SOMAXCONN: 128 with musl.
    rustix::net::listen(&listener, BACKLOG).map_err(|error| failed(error.into()))?;
    // Accepted sockets inherit the options.
    tcp.apply(&listener)
        .map_err(|source| TargetError::Io { what: "cannot set socket options of the portal", source })?;
    Ok(listener)
}

/// Interval of the check for expired sessions.
const EXPIRE_EVERY: Duration = Duration::from_secs(1);

/// An accepted connection: the index of its portal, its socket, its peer.
type Queued = (usize, TcpStream, SocketAddr);

/// Runs the portal thread: accepts, admits and starts connections.
fn accept(
    listeners: &[TcpListener],
    shared: &Arc<Shared>,
    loops: &[Arc<Handle>],
    wake: &Mailbox,
    last_id: u64,
) {
    let (mut next_id, limits) = (last_id, &shared.config.limits);
    let room = Room::beside(limits.connections);
    let mut admission: Admission<Queued> =
        Admission::new(limits.accepts_per_second, limits.accepts_per_address, room, Instant::now());
    let mut admit = |admission: &mut Admission<Queued>| {
        while let Some((portal, socket, peer)) = admission.next(Instant::now(), is_closed) {
            next_id += 1;
            let local = socket.local_addr().ok();
            begin(Accepted { id: next_id, portal, peer, local }, shared, loops, socket);
        }
    };
    let mut expires_at = Instant::now();
    while !shared.is_stopping() {
        let mut fds: Vec<PollFd> =
            listeners.iter().map(|listener| PollFd::new(listener.as_fd(), PollFlags::POLLIN)).collect();
        fds.extend(wake.descriptor().map(|wake| PollFd::new(wake, PollFlags::POLLIN)));
        let wait = admission.wait(Instant::now()).unwrap_or(EXPIRE_EVERY).min(EXPIRE_EVERY);
        // Rounded up: poll(2) has a resolution of 1 ms, and a wait that ends too early would spin until the time is due.
        let wait = wait + Duration::from_micros(999);
        let _ = poll(&mut fds, PollTimeout::try_from(wait).unwrap_or(PollTimeout::MAX));
        let now = Instant::now();
        if now >= expires_at {
            expires_at = now + EXPIRE_EVERY;
            shared.expire();
        }
        for (portal, listener) in listeners.iter().enumerate() {
            for _ in 0..ACCEPTS_AT_ONCE {
                match listener.accept() {
                    Ok((socket, peer)) => {
                        if let Err((_, _, peer)) =
                            admission.enqueue(peer.ip(), (portal, socket, peer), Instant::now(), is_closed)
                        {
                            tracing::debug!(%peer, "connection closed: the admission queue is full");
                        }
                        // Only what exceeds the rates waits in the queue.
                        admit(&mut admission);
                    }
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                    Err(error) => {
                        // Out of descriptors, or the peer reset the connection in the backlog: the portal continues.
                        tracing::warn!("cannot accept a connection: {error}");
                        std::thread::sleep(Duration::from_millis(10));
                        break;
                    }
                }
            }
        }
        admit(&mut admission);
    }
}

/// Returns whether the peer has closed a queued connection.
fn is_closed((_, socket, _): &Queued) -> bool {
    let ended = socket.set_nonblocking(true).and_then(|()| socket.peek(&mut [0]));
    match ended {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// Connections accepted from one portal before the others have a turn.
const ACCEPTS_AT_ONCE: usize = 64;

/// Chooses an event loop for a connection, and takes a slot for it.
fn admit<'a>(
    id: u64,
    peer: SocketAddr,
    shared: &Shared,
    loops: &'a [Arc<Handle>],
    socket: &TcpStream,
) -> std::io::Result<(Option<&'a Arc<Handle>>, Arc<Mailbox>)> {
    let places: Vec<Place> = loops.iter().map(|handle| handle.place()).collect();
    let chosen = placement::choose(&places, socket::cpu::incoming(socket), id as usize);
    let chosen = chosen.and_then(|index| loops.get(index));
    let mailbox = Arc::new(match chosen {
        Some(handle) => Mailbox::of_loop(Arc::clone(&handle.bell), id),
        None => Mailbox::new()?,
    });
    let entered = shared.sessions.enter(id, &mailbox, peer.ip(), &shared.config.limits);
    entered.map_err(std::io::Error::other)?;
    Ok((chosen, mailbox))
}

/// A connection that goes on, and the event loop for it; none where it has a thread of its own.
struct GoingOn<'a> {
    id: u64,
    cid: u16,
    session: Arc<Session>,
    connection: Connection,
    chosen: Option<&'a Arc<Handle>>,
}

/// Goes on with the sessions of the process before; returns the number of the last connection.
fn go_on(sessions: Vec<(KeptSession, TcpStream)>, shared: &Arc<Shared>, loops: &[Arc<Handle>]) -> u64 {
    let (mut last_id, mut going_on) = (0, Vec::new());
    for (kept, socket) in sessions {
        last_id += 1;
        match go_on_with(last_id, &kept, socket, shared, loops) {
            Ok(one) => going_on.push(one),
            Err(reason) => {
                let KeptSession { peer, initiator, target, .. } = kept;
                tracing::warn!(%peer, initiator, target, "a session of the process before ends: {reason}");
            }
        }
    }
    // Only now, when each can be told what another one does.
    for GoingOn { id, cid, session, mut connection, chosen } in going_on {
        if let Some(handle) = chosen {
            handle.bell.welcome(Newcomer::Moved(Box::new(connection), Woken::Ready));
            continue;
        }
        let arrive = move |cpu| {
            connection.arrive(cpu);
            connection
        };
        if let Err(error) = serve_alone(id, shared, arrive) {
            tracing::warn!(
                initiator = session.key.initiator_name,
                "a session of the process before ends: {error}"
            );
            ended(id, cid, &session, shared);
        }
    }
    last_id
}

/// A connection ends that no thread serves.
fn ended(id: u64, cid: u16, session: &Arc<Session>, shared: &Shared) {
    shared.sockets.end(id);
    shared.connection_ended(session, EndedConnection { cid, id, recoverable: None });
    shared.sessions.leave(id);
}

fn go_on_with<'a>(
    id: u64,
    kept: &KeptSession,
    socket: TcpStream,
    shared: &Arc<Shared>,
    loops: &'a [Arc<Handle>],
) -> Result<GoingOn<'a>, String> {
    let local = kept.local;
    let is_its = |portal: &Portal| {
        let (ip, port) = (portal.listen.ip(), portal.listen.port());
        port == local.port() && (ip == local.ip() || ip.is_unspecified())
    };
    // A portal that is the address itself is asked before one of all addresses.
    let portals = || shared.portals.iter().enumerate().filter(|(_, portal)| is_its(portal));
    let index = portals().find(|(_, portal)| portal.listen == local).or_else(|| portals().next());
    let (index, portal) = index.ok_or_else(|| format!("no portal is at {local}"))?;
    if portal.group != kept.portal_group {
        return Err(format!("the portal at {local} has another group"));
    }
    if portal.moved.is_some() {
        return Err(format!("the portal at {local} sends its initiators elsewhere"));
    }
    let failed = |error: std::io::Error| error.to_string();
    socket.set_nonblocking(true).map_err(failed)?;
    let (chosen, mailbox) = admit(id, kept.peer, shared, loops, &socket).map_err(failed)?;
    let gate = PortalGate::new(shared, portal, id, kept.peer.ip(), &mailbox);
    let (login, session) = gate.go_on(kept).inspect_err(|_| shared.sessions.leave(id))?;
    let accepted = Accepted { id, portal: index, peer: kept.peer, local: Some(local) };
    let state = (&login, Arc::clone(&session), &kept.received[..]);
    let (shared_too, mailbox) = (Arc::clone(shared), Arc::clone(&mailbox));
    let connection = Connection::going_on(accepted, shared_too, mailbox, socket, chosen.is_none(), state);
    let connection = connection.inspect_err(|_| ended(id, kept.cid, &session, shared))?;
    if let Some(handle) = chosen {
        handle.load.fetch_add(1, Ordering::Relaxed);
    }
    Ok(GoingOn { id, cid: kept.cid, session, connection, chosen })
}

fn begin(accepted: Accepted, shared: &Arc<Shared>, loops: &[Arc<Handle>], socket: TcpStream) {
    let Accepted { id, peer, .. } = accepted;
    let begun = (|| {
        // sendfile(2) has no MSG_DONTWAIT: only O_NONBLOCK keeps it from blocking.
        socket.set_nonblocking(true)?;
        let (chosen, mailbox) = admit(id, peer, shared, loops, &socket)?;
        match chosen {
            Some(handle) => {
                handle.load.fetch_add(1, Ordering::Relaxed);
                handle.bell.welcome(Newcomer::Accepted { accepted, mailbox, socket });
                Ok(())
            }
            None => {
                let of = Arc::clone(shared);
                let begin = move |cpu| Connection::new(accepted, of, mailbox, socket, cpu, true);
                serve_alone(id, shared, begin).inspect_err(|_| shared.sessions.leave(id))
            }
        }
    })();
    if let Err(error) = begun {
        tracing::warn!(%peer, "connection refused: {error}");
    }
}

/// Serves a connection, which `begin` makes for the CPU of the thread, on a thread of its own.
fn serve_alone(
    id: u64,
    shared: &Arc<Shared>,
    begin: impl FnOnce(Option<usize>) -> Connection + Send + 'static,
) -> std::io::Result<()> {
    let shared = Arc::clone(shared);
    let serve = move || {
        let cpus = &shared.config.cpus;
        let cpu = (!cpus.is_empty()).then(|| cpus[id as usize % cpus.len()]);
        let cpu = cpu.filter(|&cpu| {
            socket::cpu::pin(cpu)
                .inspect_err(|error| tracing::warn!("cannot pin the connection thread to CPU {cpu}: {error}"))
                .is_ok()
        });
        begin(cpu).run();
    };
    std::thread::Builder::new().name(format!("session {id}")).spawn(serve).map(drop)
}

/// The event loops of a target.
struct Loops {
    handles: Arc<[Arc<Handle>]>,
    threads: Vec<JoinHandle<()>>,
}

impl Loops {
    fn start(shared: &Arc<Shared>) -> std::io::Result<Self> {
        let cpus = &shared.config.cpus;
        let count = shared.config.threads.loops(cpus.len());
        let cpu = |number: usize| (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
        let handles: Arc<[Arc<Handle>]> =
            (0..count).map(|number| Handle::new(cpu(number)).map(Arc::new)).collect::<Result<_, _>>()?;
        let mut loops = Self { handles: Arc::clone(&handles), threads: Vec::new() };
        for number in 0..count {
            let event_loop = EventLoop::new(Arc::clone(shared), &handles, number)?;
            let thread = std::thread::Builder::new().name(format!("loop {number}"));
            loops.threads.push(thread.spawn(move || event_loop.run())?);
        }
        Ok(loops)
    }

    /// Tells the loops to end; waits for them if their connections have ended.
    fn stop(&mut self, is_idle: bool) {
        self.handles.iter().for_each(|handle| handle.bell.stop());
        for thread in self.threads.drain(..).filter(|_| is_idle) {
            // The panic hook has reported a panic already.
            let _ = thread.join();
        }
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        self.stop(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel keeps those that all come at once until they are accepted.
    #[test]
    fn many_connections_wait_to_be_accepted() {
        let most: i32 =
            std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap().trim().parse().unwrap();
        let disk: Arc<dyn store::Store> = Arc::new(store::Zero::new(1 << 20));
        let config = TargetConfig::new(
            "127.0.0.1:0".parse().unwrap(),
            "iqn.a.b:c",
            vec![crate::LunConfig::new(0, disk)],
        );
        // Bound and not started: nobody accepts.
        let target = BoundTarget::bind(config).unwrap();
        let connect = |_| TcpStream::connect_timeout(&target.addresses()[0], Duration::from_millis(300));
        let waiting: Vec<_> = (0..400.min(most)).map(connect).collect();
        assert!(waiting.iter().all(Result::is_ok), "of {}", waiting.len());
    }
}
