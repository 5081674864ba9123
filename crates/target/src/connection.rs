//! One connection, from accept to close, on one thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iscsi::login::SessionType;
use iscsi::login::target::{LoggedIn, Step, TargetLogin};
use iscsi::pdu::TaskManagementRequest;
use iscsi::target::{Incoming, TargetConnection};
use iscsi::task_management::{Function, Response};
use iscsi::{Framer, text};
use ring::OpKind;
use scsi::{Lun, Nexus, UnitAttention};
use socket::options;

use crate::error::ConnectionEnd;
use crate::execute::Gathering;
use crate::gate::PortalGate;
use crate::policy::SendPolicy;
use crate::server::Shared;
use crate::sessions::{Mailbox, Notice};
use crate::statistics::ConnectionStatistics;
use crate::transport::{Received, Transport, Woken};

/// Shortest time between two publications of a connection's statistics.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// Longest time that the last bytes of a connection may take to leave.
const LINGER: Duration = Duration::from_secs(2);

/// One connection's thread.
pub(crate) struct Connection {
    id: u64,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    transport: Transport,
    statistics: ConnectionStatistics,
    published: Instant,
}

/// A session in its full feature phase.
struct Serving {
    protocol: TargetConnection,
    nexus: Nexus,
    scratch: Vec<u8>,
    gathering: Gathering,
    session_type: SessionType,
    framer: Framer,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        socket: std::net::TcpStream,
        peer: SocketAddr,
    ) -> Self {
        let statistics = ConnectionStatistics {
            peer,
            initiator_name: String::new(),
            send: shared.config.send,
            thread: socket::cpu::thread_id(),
            open: true,
            commands: 0,
            received_bytes: 0,
            sent_bytes: 0,
            sends: 0,
            receives: 0,
            busy_count: crate::busy::BusyCount::default(),
        };
        Self { id, shared, mailbox, transport: Transport::new(socket), statistics, published: Instant::now() }
    }

    /// Serves until the end, which is logged.
    pub(crate) fn run(mut self) {
        let end = match self.log_in() {
            Ok(login) => self.serve(&login),
            Err(end) => end,
        };
        // What was answered last (a Reject, a refusal, a logout) should still reach the initiator.
        self.linger();
        let peer = self.statistics.peer;
        match &end {
            ConnectionEnd::LoggedOut | ConnectionEnd::Closed | ConnectionEnd::Stopping => {
                tracing::debug!(%peer, "connection ended: {end}");
            }
            _ => tracing::warn!(%peer, "connection ended: {end}"),
        }
        if let Some(tape) = self.transport.tape.take() {
            self.shared.keep_sightings(tape.sightings(peer.port().into()));
        }
        self.statistics.open = false;
        // The last cycle ends with the connection.
        self.statistics.busy_count.idle();
        self.publish();
        self.shared.sessions.leave(self.id);
    }

    /// The login phase.
    fn log_in(&mut self) -> Result<LoggedIn, ConnectionEnd> {
        let shared = Arc::clone(&self.shared);
        let config = &shared.config;
        // Answers to a login must not wait for each other.
        options::set_nodelay(&self.transport.socket, true)?;
        let deadline = Instant::now() + config.limits.login_time;
        let framer = Framer::new(iscsi::Parameters::default().max_recv_bytes as usize);
        let mut login = TargetLogin::new(config.wishes.clone(), config.limits.window);
        let gate = PortalGate {
            iqn: &config.iqn,
            access: config.access.as_ref(),
            portal_group_tag: crate::server::PORTAL_GROUP_TAG,
            sessions: &shared.sessions,
            connection: self.id,
            established: std::cell::Cell::new(false),
        };
        let mut answer = Vec::new();
        loop {
            let needed = match framer.next(self.transport.incoming.unread())? {
                Ok(frame) => {
                    let total = frame.total_bytes;
                    answer.clear();
                    let step = login.receive(&frame, &gate, &mut answer);
                    self.transport.outgoing.extend(&answer);
                    self.transport.incoming.take(total);
                    self.transport.flush()?;
                    match step? {
                        Step::Continue => continue,
                        Step::FullFeature(logged_in) => return Ok(*logged_in),
                        Step::Refused(status) => return Err(ConnectionEnd::Refused(status)),
                    }
                }
                Err(needed) => needed,
            };
            match self.transport.receive(needed)? {
                Received::Bytes => continue,
                Received::End => return Err(ConnectionEnd::Closed),
                Received::Nothing => {}
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.transport.wait(&self.mailbox.wake, false, left)? == Woken::TimedOut {
                return Err(ConnectionEnd::LoginTime(config.limits.login_time));
            }
            for notice in self.mailbox.take() {
                match notice {
                    Notice::Stop => return Err(ConnectionEnd::Stopping),
                    Notice::Drop(reason) => return Err(ConnectionEnd::Dropped(reason)),
                    Notice::Reset { .. } | Notice::Cleared { .. } | Notice::Changed { .. } => {}
                }
            }
        }
    }

    /// The full feature phase.
    fn serve(&mut self, login: &LoggedIn) -> ConnectionEnd {
        self.statistics.initiator_name.clone_from(&login.initiator_name);
        tracing::info!(peer = %self.statistics.peer, initiator = login.initiator_name, "logged in");
        let isid = login.isid.iter().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
        let mut nexus = Nexus::new(format!("{},i,{isid:#014x}", login.initiator_name));
        for &lun in self.shared.disks.luns.0.keys() {
            nexus.raise(lun, UnitAttention::PowerOn);
        }
        let mut serving = Serving {
            protocol: TargetConnection::new(login, self.shared.config.limits.window),
            nexus,
            scratch: Vec::new(),
            gathering: Gathering::default(),
            session_type: login.session_type,
            framer: Framer {
                max_data_bytes: login.parameters.max_recv_bytes as usize,
                digests: login.parameters.digests,
            },
        };
        self.transport.outgoing.set_digests(login.parameters.digests);
        let begun = self.begin_serving().and_then(|()| self.serve_on(&mut serving));
        // What RESERVE took ends with the session.
        self.shared.disks.forget_reservations(None, Some(serving.nexus.port()));
        begun.unwrap_or_else(|end| end)
    }

    fn begin_serving(&mut self) -> Result<(), ConnectionEnd> {
        if let Some(operations) = self.shared.config.stamp_operations {
            self.transport.stamp(operations)?;
        }
        let nodelay = self.shared.config.send != SendPolicy::Nagle;
        options::set_nodelay(&self.transport.socket, nodelay)?;
        self.publish();
        Ok(())
    }

    fn serve_on(&mut self, serving: &mut Serving) -> Result<ConnectionEnd, ConnectionEnd> {
        let limits = self.shared.config.limits.clone();
        let mut pinged = false;
        loop {
            let needed = loop {
                if self.transport.outgoing.pending().len() > limits.unsent_bytes {
                    // The initiator does not read: take nothing more until it does.
                    self.wait_for_room(&limits)?;
                }
                match self.next_frame(serving)? {
                    Ok(None) => {}
                    Ok(Some(end)) => return Ok(end),
                    Err(needed) => break needed,
                }
            };
            match self.transport.receive(needed)? {
                Received::Bytes => {
                    pinged = false;
                    continue;
                }
                Received::End => return Ok(ConnectionEnd::Closed),
                Received::Nothing => {}
            }
            self.idle()?;
            let limit = if pinged { limits.ping_answer } else { limits.ping_after };
            if self.transport.wait(&self.mailbox.wake, false, limit)? == Woken::TimedOut {
                if pinged {
                    return Ok(ConnectionEnd::Silent(limits.ping_answer));
                }
                pinged = true;
                serving.protocol.ping(&mut self.transport.outgoing);
            }
            self.transport.flush()?;
            if let Some(end) = self.notices(serving) {
                return Ok(end);
            }
        }
    }

    /// Takes and answers the next PDU; the inner error is how many bytes it still needs, the inner value
    /// the end of the connection when it asks for one.
    #[inline]
    fn next_frame(
        &mut self,
        serving: &mut Serving,
    ) -> Result<Result<Option<ConnectionEnd>, usize>, ConnectionEnd> {
        let frame = match serving.framer.next(self.transport.incoming.unread()) {
            Ok(Ok(frame)) => frame,
            Ok(Err(needed)) => return Ok(Err(needed)),
            Err(fault) => {
                if let Some(header) = self.transport.incoming.unread().first_chunk() {
                    let reason = iscsi::fault::RejectReason::ProtocolError;
                    serving.protocol.reject(reason, &iscsi::Bhs(*header), &mut self.transport.outgoing);
                }
                return Err(fault.into());
            }
        };
        let total = frame.total_bytes;
        let end_of_frame = self.transport.incoming.position() + total as u64;
        let before = self.transport.outgoing.position();
        let out = &mut self.transport.outgoing;
        let disks = &self.shared.disks;
        let mut request = None;
        let mut end = None;
        let over = match serving.protocol.receive(&frame, out)? {
            Incoming::Nothing => None,
            Incoming::Command { command, data } => {
                self.statistics.commands += 1;
                self.statistics.busy_count.request();
                if let Some(tape) = &mut self.transport.tape {
                    let kind = match (command.read, command.write_data) {
                        (true, false) if scsi::cdb::reads_the_medium(&command.cdb) => OpKind::Read,
                        (false, true) => OpKind::Write,
                        _ => OpKind::Other,
                    };
                    tape.request(command.tag, kind, command.expected_bytes, total as u32, end_of_frame);
                }
                let Serving { protocol, nexus, scratch, gathering, .. } = serving;
                let over = disks.execute(&command, data, protocol, nexus, (scratch, gathering), out);
                over.then_some(command.tag)
            }
            Incoming::Data { tag, store_offset, data, lun } => {
                let Serving { protocol, nexus, gathering, .. } = serving;
                disks
                    .write_data((tag, lun, store_offset), data, (protocol, nexus), gathering, out)
                    .then_some(tag)
            }
            Incoming::TaskManagement(task_management) => {
                request = Some(task_management);
                None
            }
            Incoming::Text { request, text } => {
                let answer = self.shared.answer_text(&text, serving.session_type, &self.transport.socket)?;
                serving.protocol.respond_text(&request, answer, out);
                None
            }
            Incoming::LoggedOut => {
                end = Some(ConnectionEnd::LoggedOut);
                None
            }
        };
        if let (Some(tape), Some(tag)) = (&mut self.transport.tape, over) {
            let after = self.transport.outgoing.position();
            tape.response(tag, (after - before) as u32, after);
        }
        self.transport.incoming.take(total);
        if let Some(request) = request {
            end = self.task_management(serving, &request);
        }
        for (lun, attention) in self.shared.disks.take_announcements() {
            self.shared.sessions.post_to_others(self.id, Notice::Changed { lun: lun.0, attention });
        }
        // Both policies send each response by itself: with Nagle the kernel decides when it leaves.
        self.transport.flush()?;
        Ok(Ok(end))
    }

    /// Nothing more to do: the end of a busy cycle.
    fn idle(&mut self) -> Result<(), ConnectionEnd> {
        let served = self.statistics.busy_count.busy > 0;
        self.statistics.busy_count.idle();
        if self.shared.config.send == SendPolicy::Nagle && served {
            options::flush_nagle(&self.transport.socket)?;
        }
        if self.published.elapsed() >= PUBLISH_EVERY {
            self.publish();
        }
        Ok(())
    }

    fn publish(&mut self) {
        let s = &mut self.statistics;
        s.sent_bytes = self.transport.outgoing.position() - self.transport.outgoing.pending().len() as u64;
        s.received_bytes = self.transport.incoming.position() + self.transport.incoming.unread().len() as u64;
        s.sends = self.transport.sends;
        s.receives = self.transport.receives;
        self.shared.board.publish(self.id, s);
        self.published = Instant::now();
    }

    fn wait_for_room(&mut self, limits: &crate::config::Limits) -> Result<(), ConnectionEnd> {
        let patience = limits.ping_after + limits.ping_answer;
        let deadline = Instant::now() + patience;
        while self.transport.outgoing.pending().len() > limits.unsent_bytes / 2 {
            if Instant::now() >= deadline {
                return Err(ConnectionEnd::Silent(patience));
            }
            if self.shared.is_stopping() {
                return Err(ConnectionEnd::Stopping);
            }
            self.transport.wait(&self.mailbox.wake, true, Duration::from_millis(200))?;
            self.transport.flush()?;
        }
        Ok(())
    }

    /// What other sessions, or the target, want this one to know.
    fn notices(&mut self, serving: &mut Serving) -> Option<ConnectionEnd> {
        for notice in self.mailbox.take() {
            match notice {
                Notice::Reset { lun } => {
                    let hit = |l: Lun| lun.is_none_or(|reset| reset == u64::from(l.0));
                    serving.protocol.abort(|_, field| Lun::decode(field).is_some_and(hit));
                    for &l in self.shared.disks.luns.0.keys().filter(|&&l| hit(l)) {
                        serving.nexus.raise(l, UnitAttention::Reset);
                    }
                }
                Notice::Cleared { lun } => {
                    let hit = |l: Lun| u64::from(l.0) == lun;
                    if serving.protocol.abort(|_, field| Lun::decode(field).is_some_and(hit)) > 0 {
                        serving.nexus.raise(Lun(lun as u16), UnitAttention::CommandsCleared);
                    }
                }
                Notice::Changed { lun, attention } => serving.nexus.raise(Lun(lun), attention),
                Notice::Drop(reason) => return Some(ConnectionEnd::Dropped(reason)),
                Notice::Stop => {
                    serving.protocol.announce_drop(&mut self.transport.outgoing);
                    return Some(ConnectionEnd::Stopping);
                }
            }
        }
        None
    }

    /// Carries out a task management function. Commands are executed as they arrive, so the only tasks that
    /// can still be aborted are writes that wait for data: every function ends at once.
    fn task_management(
        &mut self,
        serving: &mut Serving,
        request: &TaskManagementRequest,
    ) -> Option<ConnectionEnd> {
        let lun = Lun::decode(request.lun).filter(|lun| self.shared.disks.luns.0.contains_key(lun));
        let same_lun = |field: [u8; 8]| Lun::decode(field) == lun;
        let sessions = &self.shared.sessions;
        let mut end = None;
        let response = match (request.function(), lun) {
            (Function::AbortTask, _) => {
                let found = serving.protocol.abort(|tag, _| tag == request.referenced_tag) > 0;
                if found { Response::Complete } else { Response::NoSuchTask }
            }
            (Function::TaskReassign, _) => Response::ReassignNotSupported,
            (Function::ClearAca | Function::Unknown(_), _) => Response::NotSupported,
            (Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset, None) => {
                Response::NoSuchLun
            }
            (Function::AbortTaskSet, Some(_)) => {
                serving.protocol.abort(|_, field| same_lun(field));
                Response::Complete
            }
            (Function::ClearTaskSet, Some(lun)) => {
                serving.protocol.abort(|_, field| same_lun(field));
                sessions.post_to_others(self.id, Notice::Cleared { lun: lun.0.into() });
                Response::Complete
            }
            (Function::LogicalUnitReset, Some(lun)) => {
                serving.protocol.abort(|_, field| same_lun(field));
                self.shared.disks.forget_reservations(Some(lun), None);
                sessions.post_to_others(self.id, Notice::Reset { lun: Some(lun.0.into()) });
                serving.nexus.raise(lun, UnitAttention::Reset);
                Response::Complete
            }
            (Function::TargetWarmReset, _) => {
                serving.protocol.abort(|_, _| true);
                self.shared.disks.forget_reservations(None, None);
                sessions.post_to_others(self.id, Notice::Reset { lun: None });
                for &lun in self.shared.disks.luns.0.keys() {
                    serving.nexus.raise(lun, UnitAttention::Reset);
                }
                Response::Complete
            }
            (Function::TargetColdReset, _) => {
                serving.protocol.abort(|_, _| true);
                sessions.post_to_others(self.id, Notice::Drop("cold reset by another session"));
                end = Some(ConnectionEnd::Dropped("cold reset by this session"));
                Response::Complete
            }
        };
        serving.protocol.respond_task_management(request, response, &mut self.transport.outgoing);
        end
    }

    /// Gives the last bytes a bounded time to leave.
    fn linger(&mut self) {
        let deadline = Instant::now() + LINGER;
        while self.transport.flush().is_ok() && !self.transport.outgoing.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.transport.wait(&self.mailbox.wake, true, left).is_err() {
                break;
            }
        }
        // The stamps of the last bytes come when the device took them.
        let _ = self.transport.read_stamps();
        let _ = self.transport.socket.shutdown(std::net::Shutdown::Both);
    }
}

impl Shared {
    /// Answers the keys of a text request: SendTargets, and NotUnderstood to all others.
    fn answer_text(
        &self,
        keys: &[u8],
        session_type: SessionType,
        socket: &std::net::TcpStream,
    ) -> Result<Vec<u8>, ConnectionEnd> {
        let mut answer = Vec::new();
        for (key, value) in text::parse(keys).map_err(iscsi::Fault::from)? {
            match (key, value) {
                // "All" is for discovery; a normal session may ask about its own target (RFC 7143 C).
                ("SendTargets", "All") if session_type == SessionType::Discovery => {
                    self.describe(socket, &mut answer);
                }
                ("SendTargets", "All") => text::push(&mut answer, key, "Reject"),
                ("SendTargets", name) if name.is_empty() && session_type == SessionType::Normal => {
                    self.describe(socket, &mut answer);
                }
                ("SendTargets", name) if name.eq_ignore_ascii_case(&self.config.iqn) => {
                    self.describe(socket, &mut answer);
                }
                ("SendTargets", _) => {}
                _ => text::push(&mut answer, key, "NotUnderstood"),
            }
        }
        Ok(answer)
    }

    /// Name and portal of the target, the portal as this initiator reached it.
    fn describe(&self, socket: &std::net::TcpStream, answer: &mut Vec<u8>) {
        text::push(answer, "TargetName", &self.config.iqn);
        if let Ok(address) = socket.local_addr() {
            text::push(answer, "TargetAddress", format!("{address},{}", crate::server::PORTAL_GROUP_TAG));
        }
    }
}
