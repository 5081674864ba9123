//! State shared by the threads of a target.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use policy::SendPolicy;
use record::Op;

use crate::clock::Clock;
use crate::config::{Access, Portal, TargetConfig};
use crate::disks::Disks;
use crate::inbound::Inbound;
use crate::jobs::Pool;
use crate::lock::lock;
use crate::mailbox::Notice;
use crate::memory::Memory;
use crate::session::{Session, SessionKey};
use crate::sessions::{EndedConnection, Sessions};
use crate::sockets::Sockets;
use crate::statistics::Board;
use crate::table::Table;

/// Returns whether the initiator of a session may log in. Without discovery authentication, a discovery session is
/// judged by its name alone.
pub(crate) fn may_log_in(access: &Access, key: &SessionKey) -> bool {
    if key.target_name.starts_with("discovery ") && !access.discovery {
        return access.lists(&key.initiator_name);
    }
    access.admits(&key.initiator_name, key.user.as_deref())
}

/// Returns whether a session may continue under these rules. Discovery sessions always may: SendTargets shows them the
/// target only while they may use it.
pub(crate) fn may_stay(access: &Access, key: &SessionKey) -> bool {
    key.target_name.starts_with("discovery ") || may_log_in(access, key)
}

/// The state shared by all threads of a target.
pub(crate) struct Shared {
    pub(crate) config: TargetConfig,
    /// The configured portals with their actual ports.
    pub(crate) portals: Vec<Portal>,
    pub(crate) access: Mutex<Option<Arc<Access>>>,
    pub(crate) send: Mutex<SendPolicy>,
    pub(crate) disks: Disks,
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
    pub(crate) seen: Mutex<Vec<Op>>,
}

impl Shared {
    pub(crate) fn new(
        config: TargetConfig,
        portals: Vec<Portal>,
        disks: Disks,
        sessions: Arc<Sessions>,
        pool: Arc<Pool>,
        clock: Clock,
    ) -> std::io::Result<Self> {
        Ok(Self {
            access: Mutex::new(config.access.clone().map(Arc::new)),
            send: Mutex::new(config.send),
            portals,
            disks,
            sessions,
            sockets: Sockets::new()?,
            views: Mutex::default(),
            pool,
            memory: Memory::new(config.limits.memory_bytes),
            inbound: Inbound::new(config.limits.receive_bytes),
            clock,
            board: Board::default(),
            stopping: AtomicBool::new(false),
            seen: Mutex::default(),
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

    /// Returns the current access rules.
    pub(crate) fn access(&self) -> Option<Arc<Access>> {
        lock(&self.access).clone()
    }

    /// Returns the disks of a new session. Drops the session when the rules no longer admit its initiator: they may have
    /// changed since the login was admitted.
    pub(crate) fn begin_view(&self, session: &Session) -> Arc<Table> {
        let _views = lock(&self.views);
        if let Some(view) = session.view() {
            return view;
        }
        let access = self.access();
        if access.as_deref().is_some_and(|access| !may_stay(access, &session.key)) {
            session.post(Notice::Drop("the access rules no longer admit the initiator"));
        }
        let view = self.disks.table().view(access.as_deref(), &session.key.initiator_name);
        let _ = session.set_view(&view);
        view
    }

    /// Updates the disks that every session sees.
    pub(crate) fn refresh_views(&self) {
        let _views = lock(&self.views);
        let (access, table) = (self.access(), self.disks.table());
        for session in self.sessions.all() {
            if session.view().is_some() {
                let view = table.view(access.as_deref(), &session.key.initiator_name);
                let _ = session.set_view(&view);
            }
        }
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
            self.disks.table().luns.end(&lock(&session.nexus));
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
