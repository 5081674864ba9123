//! The login phase of a connection.

use std::sync::Arc;
use std::time::Instant;

use iscsi::login::SessionType;
use iscsi::login::target::{LoggedIn, Step, TargetLogin};
use iscsi::target::TargetConnection;
use iscsi::{Cut, Framer, Parameters};
use scsi::UnitAttention;

use super::{Core, Serving, Taken};
use crate::error::ConnectionEnd;
use crate::gate::PortalGate;
use crate::jobs::Jobs;
use crate::lock::lock;
use crate::mailbox::Notice;
use crate::session::Session;
use crate::shared::Shared;
use crate::table::Table;
use crate::tasks::Tasks;

/// A login in progress.
pub(super) struct LoginPhase {
    login: TargetLogin,
    framer: Framer,
    portal: usize,
    pub(super) deadline: Instant,
    answer: Vec<u8>,
}

impl LoginPhase {
    pub(super) fn new(shared: &Shared, portal: usize) -> Self {
        let limits = &shared.config.limits;
        let mut login = TargetLogin::new(shared.config.wishes.clone(), limits.window);
        login.limit_text(limits.text_bytes);
        Self {
            login,
            framer: Framer::new(Parameters::default().max_recv_bytes as usize),
            portal,
            deadline: shared.clock.now() + limits.login_time,
            answer: Vec::new(),
        }
    }
}

impl Core {
    /// Takes and answers the next Login Request.
    pub(super) fn login_frame(&mut self) -> Result<Taken, ConnectionEnd> {
        let Some(phase) = &mut self.login else { return Ok(Taken::Blocked) };
        let frame = match phase.framer.next(self.incoming.unread())? {
            Cut::Frame(frame) => frame,
            Cut::Needs(needed) => return Ok(Taken::Needs(needed)),
        };
        let portal = &self.shared.portals[phase.portal];
        let gate = PortalGate::new(&self.shared, portal, self.id, self.statistics.peer.ip(), &self.mailbox);
        let total = frame.total_bytes;
        phase.answer.clear();
        let step = phase.login.receive(&frame, &gate, &mut phase.answer);
        self.outgoing.extend(&phase.answer);
        self.is_due = true;
        let session = gate.session.take();
        self.incoming.take(total);
        match step? {
            Step::Continue => {}
            Step::FullFeature(login) => {
                let session = session.ok_or(ConnectionEnd::Dropped("the login established no session"))?;
                self.begin(&login, session);
            }
            Step::Refused(status) => {
                self.shared.board.refused(status);
                let (initiator, target_name) = phase.login.names();
                let reason = status.to_string();
                tracing::warn!(target: "audit", peer = %self.statistics.peer, initiator, target_name, reason, "login refused");
                return Err(ConnectionEnd::Refused(status));
            }
        }
        Ok(Taken::Frame)
    }

    /// Handles notices and the deadline of a login.
    pub(super) fn login_notices(&mut self) -> Result<(), ConnectionEnd> {
        for notice in self.mailbox.take() {
            match notice {
                Notice::Stop | Notice::Suspend => return Err(ConnectionEnd::Stopping),
                Notice::Drop(reason) => return Err(ConnectionEnd::Dropped(reason)),
                _ => {}
            }
        }
        let limits = &self.shared.config.limits;
        match &self.login {
            Some(phase) if self.shared.clock.now() >= phase.deadline => {
                Err(ConnectionEnd::LoginTime(limits.login_time))
            }
            _ => Ok(()),
        }
    }

    /// Enters the full feature phase.
    fn begin(&mut self, login: &LoggedIn, session: Arc<Session>) {
        self.statistics.initiator_name.clone_from(&login.initiator_name);
        self.statistics.target = session.node.as_ref().map(|node| node.iqn.clone()).unwrap_or_default();
        self.shared.board.logged_in();
        let user = login.user.as_deref().unwrap_or_default();
        let target_name = &self.statistics.target;
        tracing::info!(target: "audit", peer = %self.statistics.peer, initiator = login.initiator_name, user, target_name, "logged in");
        let view = self.shared.begin_view(&session, self.statistics.peer.ip());
        if login.session_type == SessionType::Normal && session.begin_once() {
            let mut nexus = lock(&session.nexus);
            if let Some(node) = &session.node {
                node.disks.table().luns.begin(&nexus);
            }
            for &lun in view.luns.0.keys() {
                nexus.raise(lun, UnitAttention::PowerOn);
            }
        }
        self.serve(login, session, view);
    }

    /// Goes on with a session of the process before, with the bytes that it has received.
    ///
    /// # Errors
    /// When there is no memory for them.
    pub(crate) fn go_on(
        &mut self,
        login: &LoggedIn,
        session: Arc<Session>,
        received: &[u8],
    ) -> Result<(), &'static str> {
        let room = self.incoming.try_room(received.len());
        let room =
            room.and_then(|room| room.get_mut(..received.len())).ok_or("no memory for what has come")?;
        room.copy_from_slice(received);
        self.incoming.came(received.len());
        self.statistics.initiator_name.clone_from(&login.initiator_name);
        self.statistics.target.clone_from(&login.target_name);
        let (initiator, target_name) = (&login.initiator_name, &login.target_name);
        self.shared.board.continued();
        tracing::info!(target: "audit", peer = %self.statistics.peer, initiator, target_name, "session goes on");
        let view = self.shared.begin_view(&session, self.statistics.peer.ip());
        self.serve(login, session, view);
        Ok(())
    }

    /// Enters the full feature phase of a session.
    fn serve(&mut self, login: &LoggedIn, session: Arc<Session>, view: Arc<Table>) {
        let (shared, limits) = (&self.shared, &self.shared.config.limits);
        let mut protocol = TargetConnection::join(login, Arc::clone(&session.commands));
        protocol.limit(limits.text_bytes, limits.replay_bytes);
        let jobs = Jobs::new(
            Arc::clone(&shared.pool),
            Arc::clone(&shared.memory),
            Arc::clone(&self.mailbox),
            Arc::clone(&session.commands),
            limits.job_bytes,
        );
        let framer = Framer {
            max_data_bytes: login.parameters.max_recv_bytes as usize,
            digests: login.parameters.digests,
            passes_damage: login.parameters.error_recovery_level > 0,
        };
        self.outgoing.set_digests(login.parameters.digests);
        self.serving = Some(Box::new(Serving {
            protocol,
            session,
            cid: login.cid,
            view,
            recorded: self.outgoing.position(),
            log_out_by: None,
            tasks: Tasks::new(jobs, limits.gathered_bytes, limits.unsent_bytes),
            held: shared.memory.share(),
            closing: None,
            session_type: login.session_type,
            framer,
            suspending: None,
        }));
        self.login = None;
    }
}
