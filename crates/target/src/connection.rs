//! One connection, from accept to close, on one thread.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iscsi::login::SessionType;
use iscsi::login::target::{LoggedIn, Step, TargetLogin};
use iscsi::opcode::initiator as opcode;
use iscsi::pdu::{LogoutRequest, ScsiCommand, TaskManagementRequest};
use iscsi::target::{Incoming, LogoutOutcome, TargetConnection};
use iscsi::task_management::{Function, Response};
use iscsi::{Frame, Framer, text};
use policy::{BusyCount, SendControl};
use ring::OpKind;
use scsi::{Lun, UnitAttention};
use socket::options;

use crate::disks::Table;
use crate::error::ConnectionEnd;
use crate::execute::{Desktop, Gathering};
use crate::gate::PortalGate;
use crate::jobs::Jobs;
use crate::server::Shared;
use crate::sessions::{Mailbox, Notice, Session, lock};
use crate::statistics::ConnectionStatistics;
use crate::transport::{Received, Transport, Woken};

/// Shortest time between two publications of a connection's statistics.
const PUBLISH_EVERY: Duration = Duration::from_millis(50);

/// Longest time that a task management function or a logout waits for commands under way.
const SETTLE: Duration = Duration::from_secs(5);

/// Longest time that the last bytes of a connection may take to leave.
const LINGER: Duration = Duration::from_secs(2);

/// One connection's thread.
pub(crate) struct Connection {
    id: u64,
    /// Which of the target's portals it came in on.
    portal: usize,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    transport: Transport,
    statistics: ConnectionStatistics,
    control: SendControl,
    /// Nagle's algorithm is on at the socket.
    has_nagle: bool,
    begun: Instant,
    published: Instant,
}

/// A session in its full feature phase.
struct Serving {
    protocol: TargetConnection,
    session: Arc<Session>,
    cid: u16,
    /// The disks that this initiator sees.
    view: Arc<Table>,
    /// Up to where in the stream what was sent has been noted.
    noted: u64,
    log_out_by: Option<Instant>,
    desktop: Desktop,
    /// Something was answered since the connection was last idle.
    has_answered: bool,
    /// What waits is to be sent now.
    is_due: bool,
    session_type: SessionType,
    framer: Framer,
}

impl Connection {
    pub(crate) fn new(
        (id, portal): (u64, usize),
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        socket: std::net::TcpStream,
        peer: SocketAddr,
    ) -> Self {
        let cpus = &shared.config.cpus;
        let cpu = (!cpus.is_empty()).then(|| cpus[id as usize % cpus.len()]);
        let cpu = cpu.filter(|&cpu| {
            socket::cpu::pin(cpu).inspect_err(|error| tracing::warn!("CPU {cpu}: {error}")).is_ok()
        });
        let send = shared.send();
        let statistics = ConnectionStatistics {
            peer,
            initiator_name: String::new(),
            send,
            thread: socket::cpu::thread_id(),
            cpu,
            open: true,
            commands: 0,
            received_bytes: 0,
            sent_bytes: 0,
            sends: 0,
            receives: 0,
            modes: policy::control::Shares::default(),
            busy_count: BusyCount::default(),
        };
        let (transport, now) = (Transport::new(socket, shared.config.tcp.quick_ack), Instant::now());
        Self {
            id,
            portal,
            shared,
            mailbox,
            transport,
            statistics,
            control: SendControl::new(send),
            has_nagle: false,
            begun: now,
            published: now,
        }
    }

    /// Serves until the end, which is logged.
    pub(crate) fn run(mut self) {
        let end = match self.log_in() {
            Ok((login, session)) => self.serve(&login, session),
            Err(end) => end,
        };
        // What was answered last (a Reject, a refusal, a logout) should still reach the initiator.
        self.linger();
        let peer = self.statistics.peer;
        match &end {
            ConnectionEnd::LoggedOut
            | ConnectionEnd::Closed
            | ConnectionEnd::Recovered
            | ConnectionEnd::Stopping => {
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
    fn log_in(&mut self) -> Result<(LoggedIn, Arc<Session>), ConnectionEnd> {
        let shared = Arc::clone(&self.shared);
        let config = &shared.config;
        // Answers to a login must not wait for each other.
        options::set_nodelay(&self.transport.socket, true)?;
        let deadline = Instant::now() + config.limits.login_time;
        let framer = Framer::new(iscsi::Parameters::default().max_recv_bytes as usize);
        let mut login = TargetLogin::new(config.wishes.clone(), config.limits.window);
        login.limit_text(config.limits.text_bytes);
        let gate = PortalGate {
            iqn: &config.iqn,
            access: shared.access(),
            portal: &shared.portals[self.portal],
            sessions: &shared.sessions,
            limits: &config.limits,
            connection: self.id,
            session: std::cell::RefCell::new(None),
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
                    let flushed = self.transport.flush();
                    match step? {
                        Step::Continue => {
                            flushed?;
                            continue;
                        }
                        Step::FullFeature(logged_in) => {
                            let session = gate.session.take();
                            let session =
                                session.ok_or(ConnectionEnd::Dropped("the login has no session"))?;
                            if let Err(error) = flushed {
                                // A session that was begun ends with its connection.
                                shared.end(&session, logged_in.cid, self.id, None);
                                return Err(error.into());
                            }
                            return Ok((*logged_in, session));
                        }
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
                    _ => {}
                }
            }
        }
    }

    /// The full feature phase.
    fn serve(&mut self, login: &LoggedIn, session: Arc<Session>) -> ConnectionEnd {
        self.statistics.initiator_name.clone_from(&login.initiator_name);
        tracing::info!(peer = %self.statistics.peer, initiator = login.initiator_name, "logged in");
        let view = self.shared.view(&login.initiator_name);
        if login.session_type == SessionType::Normal && session.begins() {
            let mut nexus = lock(&session.nexus);
            self.shared.disks.table().luns.begin(&nexus);
            for &lun in view.luns.0.keys() {
                nexus.raise(lun, UnitAttention::PowerOn);
            }
        }
        let limits = &self.shared.config.limits;
        let mut protocol = TargetConnection::join(login, Arc::clone(&session.commands));
        protocol.limit(self.shared.config.limits.text_bytes, self.shared.config.limits.replay_bytes);
        let jobs = Jobs::new(
            Arc::clone(&self.shared.pool),
            Arc::clone(&self.mailbox),
            Arc::clone(&session.commands),
            limits.job_bytes,
        );
        let mut serving = Serving {
            protocol,
            session,
            cid: login.cid,
            view,
            noted: self.transport.outgoing.position(),
            log_out_by: None,
            desktop: Desktop { scratch: Vec::new(), gathering: Gathering::new(limits.gathered_bytes), jobs },
            has_answered: false,
            is_due: false,
            session_type: login.session_type,
            framer: Framer {
                max_data_bytes: login.parameters.max_recv_bytes as usize,
                digests: login.parameters.digests,
                passes_damage: login.parameters.error_recovery_level > 0,
            },
        };
        self.transport.outgoing.set_digests(login.parameters.digests);
        let end = self.begin_serving().and_then(|()| self.serve_on(&mut serving)).unwrap_or_else(|end| end);
        // Where connections are recovered, what one leaves when it is lost waits for another.
        let is_lost = matches!(
            end,
            ConnectionEnd::Closed
                | ConnectionEnd::Socket(_)
                | ConnectionEnd::Silent(_)
                | ConnectionEnd::Fault(_)
                | ConnectionEnd::Recovered
        );
        let lost = (is_lost && login.parameters.error_recovery_level == 2).then(|| {
            // Also what still ends now is there to be sent again.
            self.settle(&mut serving);
            self.note(&mut serving);
            (serving.protocol.park(), std::mem::take(&mut serving.desktop.gathering))
        });
        drop(serving.protocol);
        self.shared.end(&serving.session, serving.cid, self.id, lost);
        end
    }

    fn begin_serving(&mut self) -> Result<(), ConnectionEnd> {
        if let Some(operations) = self.shared.config.stamp_operations {
            self.transport.stamp(operations)?;
        }
        self.take_manner()?;
        self.publish();
        Ok(())
    }

    /// The socket sends as the policy has it now.
    #[inline]
    fn take_manner(&mut self) -> Result<(), ConnectionEnd> {
        let wanted = self.control.manner().nagle;
        if wanted != self.has_nagle {
            // Switching it off flushes.
            options::set_nodelay(&self.transport.socket, !wanted)?;
            self.has_nagle = wanted;
        }
        Ok(())
    }

    fn serve_on(&mut self, serving: &mut Serving) -> Result<ConnectionEnd, ConnectionEnd> {
        let limits = self.shared.config.limits.clone();
        let mut pinged = false;
        loop {
            let needed = loop {
                if self.transport.outgoing.waiting_bytes() > limits.unsent_bytes {
                    // The initiator does not read: take nothing more until it does.
                    self.flush(serving)?;
                    self.wait_for_room(&limits)?;
                }
                match self.next_frame(serving)? {
                    Ok(None) => {}
                    Ok(Some(end)) => return Ok(end),
                    Err(needed) => break needed,
                }
            };
            if self.control.chunk_ended() {
                self.flush(serving)?;
            }
            if self.control.wants_time() {
                self.control.clock(self.begun.elapsed().as_nanos() as u64);
                self.take_manner()?;
            }
            match self.receive(serving, needed)? {
                Received::Bytes => {
                    pinged = false;
                    // Also a session that is never idle learns what others have to tell.
                    match self.notices(serving)? {
                        Some(end) => return Ok(end),
                        None => continue,
                    }
                }
                Received::End => return Ok(ConnectionEnd::Closed),
                Received::Nothing => {}
            }
            self.idle(std::mem::take(&mut serving.has_answered))?;
            let limit = if pinged { limits.ping_answer } else { limits.ping_after };
            let asked = serving.log_out_by.map(|by| by.saturating_duration_since(Instant::now()));
            let woken = self.transport.wait(&self.mailbox.wake, false, asked.unwrap_or(limit).min(limit))?;
            if woken == Woken::TimedOut && asked.is_none() {
                if pinged {
                    return Ok(ConnectionEnd::Silent(limits.ping_answer));
                }
                pinged = true;
                serving.protocol.ping(&mut self.transport.outgoing);
            }
            if let Some(end) = self.notices(serving)? {
                return Ok(end);
            }
        }
    }

    /// Receives what is there. Where nothing is, what waited is sent, and as long as the configuration has it more is
    /// looked for.
    #[inline]
    fn receive(&mut self, serving: &mut Serving, needed: usize) -> Result<Received, ConnectionEnd> {
        let received = self.transport.receive(needed)?;
        if received != Received::Nothing {
            return Ok(received);
        }
        self.flush(serving)?;
        let budget = self.shared.config.busy_poll;
        if budget.is_zero() {
            return Ok(received);
        }
        let begun = Instant::now();
        while begun.elapsed() < budget && !self.mailbox.has_mail() {
            // Cheaper than a clock between any two looks.
            for _ in 0..8 {
                let received = self.transport.receive(needed)?;
                if received != Received::Nothing {
                    return Ok(received);
                }
            }
        }
        Ok(Received::Nothing)
    }

    /// Takes and answers the next PDU; the inner error is how many bytes it still needs, the inner value
    /// the end of the connection when it asks for one.
    #[inline]
    fn next_frame(
        &mut self,
        serving: &mut Serving,
    ) -> Result<Result<Option<ConnectionEnd>, usize>, ConnectionEnd> {
        // Out of the buffer while its bytes are looked at, so that everything else can be used meanwhile.
        let incoming = std::mem::take(&mut self.transport.incoming);
        let outcome = match serving.framer.next(incoming.unread()) {
            Ok(Ok(frame)) => {
                let end_of_frame = incoming.position() + frame.total_bytes as u64;
                self.answer(serving, &frame, end_of_frame).map(|end| Ok((end, frame.total_bytes)))
            }
            Ok(Err(needed)) => Ok(Err(needed)),
            Err(fault) => {
                if let Some(header) = incoming.unread().first_chunk() {
                    let reason = iscsi::fault::RejectReason::ProtocolError;
                    serving.protocol.reject(reason, &iscsi::Bhs(*header), &mut self.transport.outgoing);
                }
                Err(fault.into())
            }
        };
        self.transport.incoming = incoming;
        let (end, total) = match outcome? {
            Ok(answered) => answered,
            Err(needed) => return Ok(Err(needed)),
        };
        self.transport.incoming.take(total);
        let end = match end {
            None => self.answer_held(serving)?,
            Some(end) => Some(end),
        };
        for (lun, attention) in serving.view.desk.take_announcements() {
            let notice = Notice::Changed { lun: lun.0, attention };
            self.shared.sessions.post_to_others(&serving.session, self.id, notice, None);
        }
        // What is said at an end leaves after it: who reads the answer to a logout finds the session gone.
        if std::mem::take(&mut serving.is_due) && end.is_none() {
            self.flush(serving)?;
        }
        Ok(Ok(end))
    }

    /// Commands that came before their turn, and have it now: ours, and those of the session's other
    /// connections.
    #[inline]
    fn answer_held(&mut self, serving: &mut Serving) -> Result<Option<ConnectionEnd>, ConnectionEnd> {
        if !serving.protocol.sequence().is_waited_for() {
            return Ok(None);
        }
        while let Some(held) = serving.protocol.take_held() {
            let end = self.answer(serving, &held.frame(), self.transport.incoming.position())?;
            if end.is_some() {
                return Ok(end);
            }
        }
        if serving.protocol.sequence().is_waited_for() {
            self.shared.sessions.post_to_own(&serving.session, self.id, Notice::Turn);
        }
        Ok(None)
    }

    /// Sends what waits, and notes it where it may have to be sent again.
    #[inline]
    fn flush(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        if self.transport.outgoing.is_empty() {
            return Ok(());
        }
        self.note(serving);
        self.transport.flush()?;
        self.control.sent();
        Ok(())
    }

    /// Notes what was appended since this was last done.
    #[inline]
    fn note(&self, serving: &mut Serving) {
        let out = &self.transport.outgoing;
        if out.has_lent() {
            // Nothing is lent to a connection that may have to send it again.
            serving.noted = out.position();
            return;
        }
        let (pending, position) = (out.pending(), out.position());
        let new = (position - serving.noted) as usize;
        serving.protocol.sent(&pending[pending.len().saturating_sub(new)..], out.digests());
        serving.noted = position;
    }

    /// Answers one PDU; the end of the connection when it asks for one.
    #[inline]
    fn answer(
        &mut self,
        serving: &mut Serving,
        frame: &Frame<'_>,
        end_of_frame: u64,
    ) -> Result<Option<ConnectionEnd>, ConnectionEnd> {
        let code = frame.bhs.opcode();
        let is_ordered = code == opcode::SCSI_COMMAND && ScsiCommand::read(&frame.bhs).is_ordered();
        // What these end or follow is ended first, where that takes no more than a stated time.
        if is_ordered || code == opcode::LOGOUT {
            self.settle(serving);
        }
        serving.desktop.jobs.is_shut = is_ordered;
        let before = self.transport.outgoing.position();
        let out = &mut self.transport.outgoing;
        let over = match serving.protocol.receive(frame, out)? {
            Incoming::Nothing => None,
            Incoming::Command { command, data } => {
                self.statistics.commands += 1;
                self.statistics.busy_count.request();
                // What it had been answered tells how many it has under way.
                self.control.requested(serving.protocol.unacknowledged(command.exp_stat_sn) + 1);
                if let Some(tape) = &mut self.transport.tape {
                    let kind = match (command.read, command.write_data) {
                        (true, false) if scsi::cdb::reads_the_medium(&command.cdb) => OpKind::Read,
                        (false, true) => OpKind::Write,
                        _ => OpKind::Other,
                    };
                    let bytes = frame.total_bytes as u32;
                    tape.request(command.tag, kind, command.expected_bytes, bytes, end_of_frame);
                }
                let Serving { protocol, session, view, desktop, .. } = serving;
                let over = view.execute(&command, data, protocol, session, desktop, out);
                over.then_some(command.tag)
            }
            Incoming::Data { tag, store_offset, data, lun } => {
                let Serving { protocol, session, view, desktop, .. } = serving;
                let place = (tag, lun, store_offset);
                view.write_data(place, data, (protocol, session), desktop, out).then_some(tag)
            }
            Incoming::TaskManagement(request) => return Ok(self.task_management(serving, &request)),
            Incoming::Text { request, text } => {
                let who = (&*self.statistics.initiator_name, serving.session_type);
                let answer = self.shared.answer_text(&text, who, &self.transport.socket)?;
                serving.protocol.respond_text(&request, answer, out);
                None
            }
            Incoming::LoggedOut { session } => {
                if session {
                    self.shared.sessions.log_out_all(&serving.session, self.id);
                }
                return Ok(Some(ConnectionEnd::LoggedOut));
            }
            Incoming::LogoutOther { request, recovery } => {
                self.log_out_other(serving, &request, recovery);
                None
            }
        };
        if let (Some(tape), Some(tag)) = (&mut self.transport.tape, over) {
            let after = self.transport.outgoing.position();
            tape.response(tag, (after - before) as u32, after);
        }
        if over.is_some() {
            serving.is_due |= self.served()?;
        }
        Ok(None)
    }

    /// A command is over; whether what waits is to be sent now.
    #[inline]
    fn served(&mut self) -> Result<bool, ConnectionEnd> {
        let is_due = self.control.served(self.transport.outgoing.waiting_bytes());
        self.take_manner()?;
        Ok(is_due)
    }

    /// Closes another connection of the session, or gives it up so that its tasks can go on here.
    fn log_out_other(&mut self, serving: &mut Serving, request: &LogoutRequest, recovery: bool) {
        let found = self.shared.sessions.log_out(&serving.session, request.cid, recovery);
        let outcome = if found { LogoutOutcome::Done } else { LogoutOutcome::NoSuchConnection };
        serving.protocol.respond_logout(request, outcome, &mut self.transport.outgoing);
    }

    /// Nothing more to do: the end of a busy cycle.
    fn idle(&mut self, has_answered: bool) -> Result<(), ConnectionEnd> {
        let served = has_answered || self.statistics.busy_count.busy > 0;
        self.statistics.busy_count.idle();
        if served && self.control.idle() && self.has_nagle && self.control.manner().nagle {
            options::flush_nagle(&self.transport.socket)?;
        }
        self.take_manner()?;
        if self.published.elapsed() >= PUBLISH_EVERY {
            self.publish();
        }
        Ok(())
    }

    fn publish(&mut self) {
        let s = &mut self.statistics;
        s.sent_bytes = self.transport.outgoing.position() - self.transport.outgoing.waiting_bytes() as u64;
        s.received_bytes = self.transport.incoming.position() + self.transport.incoming.unread().len() as u64;
        s.sends = self.transport.sends;
        s.receives = self.transport.receives;
        s.send = self.control.policy();
        s.modes = self.control.shares();
        self.shared.board.publish(self.id, s);
        self.published = Instant::now();
    }

    fn wait_for_room(&mut self, limits: &crate::config::Limits) -> Result<(), ConnectionEnd> {
        let patience = limits.ping_after + limits.ping_answer;
        let deadline = Instant::now() + patience;
        while self.transport.outgoing.waiting_bytes() > limits.unsent_bytes / 2 {
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

    /// What other connections, or the target, want this one to know.
    #[inline]
    fn notices(&mut self, serving: &mut Serving) -> Result<Option<ConnectionEnd>, ConnectionEnd> {
        let mut end = None;
        let before = self.transport.outgoing.position();
        self.finish_jobs(serving);
        for notice in self.mailbox.take() {
            end = self.notice(serving, notice)?;
            if end.is_some() {
                break;
            }
        }
        if serving.log_out_by.is_some_and(|by| Instant::now() >= by) {
            end = end.or(Some(ConnectionEnd::Dropped("did not log out when it was asked to")));
        }
        // What waits for other responses goes on waiting for them.
        if self.transport.outgoing.position() != before {
            self.flush(serving)?;
        }
        Ok(end)
    }

    /// Answers the commands whose jobs are done.
    #[inline]
    fn finish_jobs(&mut self, serving: &mut Serving) {
        for done in self.mailbox.take_done() {
            let Some((running, outcome)) = serving.desktop.jobs.end(done) else { continue };
            let before = self.transport.outgoing.position();
            Table::finish(&running, outcome, &mut serving.protocol, &mut self.transport.outgoing);
            serving.has_answered = true;
            // They leave together, once all that are done are answered.
            let _ = self.control.served(0);
            if let Some(tape) = &mut self.transport.tape {
                let after = self.transport.outgoing.position();
                tape.response(running.command.tag, (after - before) as u32, after);
            }
        }
    }

    /// Waits until all jobs are done, at most [`SETTLE`]; who takes longer is given up, and nobody told how it ends.
    fn settle(&mut self, serving: &mut Serving) {
        let deadline = Instant::now() + SETTLE;
        while !serving.desktop.jobs.is_idle() {
            self.finish_jobs(serving);
            if Instant::now() >= deadline {
                let given_up = serving.desktop.jobs.abort(|_| true);
                tracing::warn!(peer = %self.statistics.peer, "{given_up} commands did not end within {SETTLE:?}");
            }
            if !serving.desktop.jobs.is_idle() {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    #[cold]
    fn notice(
        &mut self,
        serving: &mut Serving,
        notice: Notice,
    ) -> Result<Option<ConnectionEnd>, ConnectionEnd> {
        let out = &mut self.transport.outgoing;
        match notice {
            Notice::Reset { lun } => {
                abort(serving, lun);
                let luns = serving.view.luns.0.keys().filter(|l| lun.is_none_or(|reset| reset == l.0));
                let mut nexus = lock(&serving.session.nexus);
                luns.for_each(|&l| nexus.raise(l, UnitAttention::Reset));
            }
            Notice::Cleared { lun } => {
                if abort(serving, Some(lun)) > 0 {
                    lock(&serving.session.nexus).raise(Lun(lun), UnitAttention::CommandsCleared);
                }
            }
            Notice::Aborted { lun } => {
                abort(serving, lun);
            }
            Notice::Changed { lun, attention } => lock(&serving.session.nexus).raise(Lun(lun), attention),
            Notice::Disks => {
                let view = self.shared.view(&self.statistics.initiator_name);
                let before = std::mem::replace(&mut serving.view, view);
                let news = serving.view.news(&before);
                let mut told = Vec::new();
                for &(lun, attention) in &news {
                    lock(&serving.session.nexus).raise(lun, attention);
                    // That the list has changed is told once, at whatever logical unit.
                    let is_old = attention == UnitAttention::LunsChanged && told.contains(&attention);
                    if serving.session_type == SessionType::Normal && !is_old {
                        told.push(attention);
                        serving.protocol.tell(lun.encode(), &attention.sense().encode(), out);
                    }
                }
            }
            Notice::Turn => return self.answer_held(serving),
            Notice::Send(policy) => {
                self.control = SendControl::new(policy);
                self.take_manner()?;
            }
            Notice::LogOut(patience) => {
                let seconds = u16::try_from(patience.as_secs()).unwrap_or(u16::MAX);
                serving.protocol.ask_to_log_out(seconds, out);
                serving.log_out_by = Some(Instant::now() + patience);
            }
            Notice::Park => return Ok(Some(ConnectionEnd::Recovered)),
            Notice::Drop(reason) => return Ok(Some(ConnectionEnd::Dropped(reason))),
            Notice::Stop => {
                serving.protocol.announce_drop(out);
                return Ok(Some(ConnectionEnd::Stopping));
            }
        }
        Ok(None)
    }

    /// Carries out a task management function. What is aborted and has not begun never does; what a disk has begun
    /// is cancelled where the store can and waited for, at most [`SETTLE`], so that nothing of it happens after the
    /// answer.
    fn task_management(
        &mut self,
        serving: &mut Serving,
        request: &TaskManagementRequest,
    ) -> Option<ConnectionEnd> {
        // What is done is not aborted any more.
        self.finish_jobs(serving);
        let until = Instant::now() + SETTLE;
        let lun = Lun::decode(request.lun).filter(|lun| serving.view.luns.0.contains_key(lun));
        let (sessions, id) = (&self.shared.sessions, self.id);
        let mut end = None;
        let response = match (request.function(), lun) {
            (Function::AbortTask, _) => {
                let found = serving.protocol.abort(|tag, _| tag == request.referenced_tag)
                    + serving.desktop.jobs.abort(|command| command.tag == request.referenced_tag);
                if found > 0 { Response::Complete } else { Response::NoSuchTask }
            }
            (Function::TaskReassign, _) => self.reassign(serving, request),
            (Function::ClearAca | Function::Unknown(_), _) => Response::NotSupported,
            (Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset, None) => {
                Response::NoSuchLun
            }
            (Function::AbortTaskSet, Some(lun)) => {
                abort(serving, Some(lun.0));
                sessions.post_to_own(&serving.session, id, Notice::Aborted { lun: Some(lun.0) });
                Response::Complete
            }
            (Function::ClearTaskSet, Some(lun)) => {
                abort(serving, Some(lun.0));
                let own = Some(Notice::Aborted { lun: Some(lun.0) });
                sessions.post_to_others(&serving.session, id, Notice::Cleared { lun: lun.0 }, own);
                Response::Complete
            }
            (Function::LogicalUnitReset, Some(lun)) => {
                self.reset(serving, Some(lun), until);
                Response::Complete
            }
            (Function::TargetWarmReset, _) => {
                self.reset(serving, None, until);
                Response::Complete
            }
            (Function::TargetColdReset, _) => {
                abort(serving, None);
                let notice = Notice::Drop("cold reset by another session");
                sessions.post_to_others(&serving.session, id, notice, Some(notice));
                end = Some(ConnectionEnd::Dropped("cold reset by this session"));
                Response::Complete
            }
        };
        let left = serving.desktop.jobs.wait_for_leaving(until);
        if left > 0 {
            tracing::warn!(peer = %self.statistics.peer, "{left} commands did not end within {SETTLE:?}");
        }
        serving.protocol.respond_task_management(request, response, &mut self.transport.outgoing);
        end
    }

    /// Resets one logical unit or all that the initiator sees.
    fn reset(&self, serving: &mut Serving, lun: Option<Lun>, until: Instant) {
        let number = lun.map(|lun| lun.0);
        abort(serving, number);
        serving.view.luns.reset(lun);
        let own = Some(Notice::Aborted { lun: number });
        self.shared.sessions.post_to_others(&serving.session, self.id, Notice::Reset { lun: number }, own);
        for (&l, _) in serving.view.luns.0.iter().filter(|&(&l, _)| lun.is_none_or(|lun| lun == l)) {
            // Also of what other sessions have under way nothing is to happen after the answer.
            let left = until.saturating_duration_since(Instant::now());
            if serving.view.unit(l).is_some_and(|unit| !unit.reset(left)) {
                tracing::warn!("logical unit {}: commands under way did not end within {SETTLE:?}", l.0);
            }
        }
        let mut nexus = lock(&serving.session.nexus);
        for &l in serving.view.luns.0.keys().filter(|&&l| lun.is_none_or(|lun| lun == l)) {
            nexus.raise(l, UnitAttention::Reset);
        }
    }

    /// TASK REASSIGN: a task of a lost connection goes on with this one.
    fn reassign(&mut self, serving: &mut Serving, request: &TaskManagementRequest) -> Response {
        if serving.protocol.parameters().error_recovery_level < 2 {
            return Response::ReassignNotSupported;
        }
        self.settle(serving);
        let Serving { session, protocol, desktop, .. } = serving;
        let (tag, out) = (request.referenced_tag, &mut self.transport.outgoing);
        let adopted = session.with_lost(|lost| {
            let response = protocol.adopt(&mut lost.parked, tag, request.exp_data_sn, out);
            if response == Response::Complete {
                desktop.gathering.adopt(&mut lost.gathering, tag);
            }
            (response != Response::NoSuchTask).then_some(response)
        });
        adopted.unwrap_or(Response::NoSuchTask)
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
        (initiator, session_type): (&str, SessionType),
        socket: &std::net::TcpStream,
    ) -> Result<Vec<u8>, ConnectionEnd> {
        let mut answer = Vec::new();
        // Who may not use the target need not know of it.
        let is_hidden = self.access().is_some_and(|access| !access.lists(initiator));
        for (key, value) in text::parse(keys).map_err(iscsi::Fault::from)? {
            match (key, value) {
                // "All" is for discovery; a normal session may ask about its own target (RFC 7143 C).
                ("SendTargets", _) if is_hidden => {}
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

    /// Name and portals of the target. One that listens on every address is named as this initiator reached it.
    fn describe(&self, socket: &std::net::TcpStream, answer: &mut Vec<u8>) {
        text::push(answer, "TargetName", &self.config.iqn);
        let here = socket.local_addr().ok();
        let mut told = Vec::new();
        for portal in &self.portals {
            let listens = portal.listen;
            let reached = here.map(|here| (here.ip(), listens.port()).into());
            let address =
                portal.advertise.or(if listens.ip().is_unspecified() { reached } else { Some(listens) });
            if let Some(address) = address.filter(|address| !told.contains(address)) {
                text::push(answer, "TargetAddress", format!("{address},{}", portal.group));
                told.push(address);
            }
        }
    }
}

/// Drops the commands that wait for data or for a disk, of one logical unit or of all; how many.
fn abort(serving: &mut Serving, lun: Option<u16>) -> usize {
    let hit = |field| lun.is_none_or(|lun| Lun::decode(field) == Some(Lun(lun)));
    let jobs = serving.desktop.jobs.abort(|command| hit(command.lun));
    jobs + serving.protocol.abort(|_, field| hit(field))
}
