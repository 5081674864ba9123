//! State shared by the threads of a target.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use policy::SendPolicy;
use record::Op;

use crate::clock::Clock;
use crate::config::{NodeConfig, Portal, TargetConfig};
use crate::error::TargetError;
use crate::inbound::Inbound;
use crate::jobs::Pool;
use crate::kept::Quiet;
use crate::lock::lock;
use crate::mailbox::Notice;
use crate::memory::Memory;
use crate::node::Nodes;
use crate::session::Session;
use crate::sessions::{EndedConnection, Sessions};
use crate::sockets::Sockets;
use crate::statistics::Board;
use crate::table::Table;

/// The state shared by all threads of a target.
pub(crate) struct Shared {
    pub(crate) config: TargetConfig,
    /// The configured portals with their actual ports.
    pub(crate) portals: Vec<Portal>,
    pub(crate) send: Mutex<SendPolicy>,
    pub(crate) nodes: Nodes,
    /// What a session sees that has no target.
    nothing: Arc<Table>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) sockets: Sockets,
    /// Held while views are created, so that no session's view is replaced by an older one.
    views: Mutex<()>,
    /// The thread pool for blocking disk operations.
    pub(crate) pool: Arc<Pool>,
    /// The memory budget for commands in flight.
    pub(crate) memory: Arc<Memory>,
    pub(crate) inbound: Inbound,
    pub(crate) clock: Clock,
    pub(crate) board: Board,
    pub(crate) stopping: AtomicBool,
    /// Logins are refused.
    pub(crate) draining: AtomicBool,
    pub(crate) seen: Mutex<Vec<Op>>,
    /// Sessions for the next process, whose connections are quiet.
    pub(crate) quiet: Mutex<Vec<Quiet>>,
}

impl Shared {
    pub(crate) fn new(
        config: TargetConfig,
        portals: Vec<Portal>,
        nodes: Nodes,
        nothing: Arc<Table>,
        sessions: Arc<Sessions>,
        pool: Arc<Pool>,
        clock: Clock,
    ) -> std::io::Result<Self> {
        Ok(Self {
            send: Mutex::new(config.send),
            portals,
            nodes,
            nothing,
            sessions,
            sockets: Sockets::new()?,
            views: Mutex::default(),
            pool,
            memory: Memory::new(config.limits.memory_bytes),
            inbound: Inbound::new(config.limits.receive_bytes),
            clock,
            board: Board::default(),
            stopping: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            seen: Mutex::default(),
            quiet: Mutex::default(),
            config,
        })
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Returns the current send policy.
    pub(crate) fn send(&self) -> SendPolicy {
        *lock(&self.send)
    }

    /// Returns the disks of a new session. Drops the session when the rules no longer admit its initiator: they may have
    /// changed since the login was admitted.
    pub(crate) fn begin_view(&self, session: &Session, address: IpAddr) -> Arc<Table> {
        let _views = lock(&self.views);
        if let Some(view) = session.view() {
            return view;
        }
        let view = self.view_of(session);
        if !self.may_stay(session, address) {
            session.post(Notice::Drop("the access rules no longer admit the initiator"));
        }
        let _ = session.set_view(&view);
        view
    }

    /// Returns whether a session may continue for an initiator at this address. Discovery sessions always may: SendTargets shows them
    /// a target only while they may use it.
    fn may_stay(&self, session: &Session, address: IpAddr) -> bool {
        session.node.as_ref().is_none_or(|node| {
            let is_served = self.nodes.all().iter().any(|served| Arc::ptr_eq(served, node));
            is_served && node.may_stay(&session.key, address)
        })
    }

    fn view_of(&self, session: &Session) -> Arc<Table> {
        match &session.node {
            Some(node) => node.disks.table().view(node.access().as_deref(), &session.key.initiator_name),
            None => Arc::clone(&self.nothing),
        }
    }

    /// Replaces the target nodes, and updates the disks that every session sees. Initiators that may no longer log in are asked to log
    /// out, and dropped when they have not within `patience`.
    ///
    /// # Errors
    /// When a node is invalid; nothing has changed then.
    pub(crate) fn set_nodes(&self, configs: &[NodeConfig], patience: Duration) -> Result<(), TargetError> {
        let _views = lock(&self.views);
        self.nodes.set(configs)?;
        for session in self.sessions.all() {
            if session.view().is_some() {
                let _ = session.set_view(&self.view_of(&session));
            }
        }
        self.sessions
            .post_to_chosen(|session, address| !self.may_stay(session, address), Notice::LogOut(patience));
        Ok(())
    }

    /// Removes a connection from its session, and releases the session's resources with the last one.
    pub(crate) fn connection_ended(&self, session: &Arc<Session>, gone: EndedConnection) {
        let limits = &self.config.limits;
        let ended = self.sessions.remove_connection(session, gone, limits, &self.memory, self.clock.now());
        self.sessions_ended(&ended);
    }

    /// Aborts the tasks of ended sessions and releases their resources.
    pub(crate) fn sessions_ended(&self, sessions: &[Arc<Session>]) {
        for session in sessions {
            drop(session.close_tasks());
            if let Some(node) = &session.node {
                node.disks.table().luns.end(&lock(&session.nexus));
            }
        }
    }

    /// Ends sessions whose lost connections were not recovered in time.
    pub(crate) fn expire(&self) {
        let ended = self.sessions.expire(self.clock.now());
        for session in &ended {
            tracing::info!(
                "session {} expired: no task of its lost connections was reassigned in time",
                session.tsih
            );
        }
        self.sessions_ended(&ended);
    }

    pub(crate) fn keep_ops(&self, mut seen: Vec<Op>) {
        lock(&self.seen).append(&mut seen);
    }
}
