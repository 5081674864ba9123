//! One connection without its socket: bytes come in, bytes go out, and nothing waits. What would have to wait (for a
//! disk, for another connection, for the initiator to read) is recorded, and looked at again with the next call.
//!
//! Call [`Core::next_frame`] while it takes frames, [`Core::go_on`] whenever something may have changed (bytes were
//! sent, the mailbox was rung, time has passed), and send what is in `outgoing` after [`Core::note`]. When either says
//! that the connection ends, call [`Core::end`], then [`Core::is_ended`] until it is true.

mod login;
mod management;
mod text;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use iscsi::login::SessionType;
use iscsi::opcode::initiator as opcode;
use iscsi::pdu::{LogoutRequest, ScsiCommand};
use iscsi::target::{Incoming, LogoutOutcome, TargetConnection};
use iscsi::{Cut, Frame, Framer, ReceiveBuffer, TransmitBuffer, status};
use policy::{BusyCount, SendControl};
use record::OpKind;
use scsi::{Lun, Sense};
use socket::tape::Tape;

use crate::disks::Table;
use crate::error::ConnectionEnd;
use crate::execute::{ABORT_TIMED_OUT, CommandState, Context, Tasks, has_room};
use crate::fence::Epoch;
use crate::jobs::Claim;
use crate::memory::Share;
use crate::ordering::Deferred;
use crate::server::Shared;
use crate::sessions::{Mailbox, Notice, Remains, Session, lock};
use crate::statistics::ConnectionStatistics;
use crate::waiting::{Then, WAITING_MAX, Waiting};

use login::LoginPhase;

/// Longest time that a task management function or a logout waits for commands in flight.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);

/// Most PDUs that wait to be sent again.
const AGAIN_MAX: usize = 1 << 14;

/// Bytes of commands ahead of their turn that a connection may hold whatever others do.
const HELD_BYTES_FREE: usize = 128 << 10;

/// What a look at the next frame came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A frame was taken, and answered as far as it could be.
    Frame,
    /// The frame is not whole: so many bytes from the first unread one are needed.
    Needs(usize),
    /// No frame is taken before something that was recorded has ended, or bytes were sent.
    Blocked,
}

/// One connection, from its first byte to its end.
pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) incoming: ReceiveBuffer,
    pub(crate) outgoing: TransmitBuffer,
    pub(crate) tape: Option<Tape>,
    pub(crate) statistics: ConnectionStatistics,
    pub(crate) control: SendControl,
    /// Something was answered since the connection was last idle.
    pub(crate) has_answered: bool,
    /// What waits is to be sent now.
    pub(crate) is_due: bool,
    /// The address that the initiator reached.
    local: Option<SocketAddr>,
    login: Option<Box<LoginPhase>>,
    serving: Option<Box<Serving>>,
    ending: Option<Ending>,
    /// What the receive buffer holds beyond its usual size.
    inbound: Buffered,
}

/// Whether the receive buffer may be larger than usual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffered {
    Usual,
    /// It may be so many bytes long. Whether the target waits for them, as far as others were told.
    Claimed {
        bytes: usize,
        is_waited_for: bool,
    },
    /// It waits for others that hold what there is.
    Waits,
}

/// A session in its full feature phase.
struct Serving {
    protocol: TargetConnection,
    session: Arc<Session>,
    cid: u16,
    /// The disks that this initiator sees.
    view: Arc<Table>,
    /// Up to where in the stream what was sent has been recorded.
    recorded: u64,
    log_out_by: Option<Instant>,
    tasks: Tasks,
    /// What commands ahead of their turn hold of the memory of all.
    held: Share,
    /// A logout that waits for what is in flight.
    closing: Option<Closing>,
    session_type: SessionType,
    framer: Framer,
}

/// A logout of this connection, or of the session, in progress.
struct Closing {
    request: LogoutRequest,
    session: bool,
    until: Instant,
    /// What may still change a disk, once nothing is to come any more.
    in_flight: Option<InFlight>,
}

/// Epochs that last, and jobs that run.
type InFlight = (Vec<Arc<Epoch>>, Vec<Weak<Claim>>);

/// The connection is lost, and waits until what is in flight can be left to its session.
struct Ending {
    keeps: bool,
    until: Instant,
}

impl Serving {
    fn context<'a>(
        &'a mut self,
        shared: &'a Shared,
        out: &'a mut TransmitBuffer,
    ) -> (Context<'a>, &'a Arc<Table>) {
        let Self { protocol, session, tasks, view, .. } = self;
        (Context { connection: protocol, session, tasks, out, clock: &shared.clock }, view)
    }

    /// Counts what commands ahead of their turn hold.
    #[inline]
    fn count_held(&mut self) -> Result<(), ConnectionEnd> {
        let bytes = self.protocol.held_bytes().saturating_sub(HELD_BYTES_FREE);
        if bytes == self.held.bytes() || self.held.resize(bytes) {
            return Ok(());
        }
        Err(ConnectionEnd::Dropped("the target has no memory for commands ahead of their turn"))
    }

    #[inline]
    fn note(&mut self, out: &TransmitBuffer) {
        Self::note_of(&mut self.protocol, &mut self.recorded, out);
    }

    #[inline]
    fn note_of(protocol: &mut TargetConnection, recorded: &mut u64, out: &TransmitBuffer) {
        if out.has_borrowed() {
            // Nothing is borrowed to a connection that may have to send it again.
            *recorded = out.position();
            return;
        }
        let (pending, position) = (out.pending(), out.position());
        let new = (position - *recorded) as usize;
        protocol.sent(&pending[pending.len().saturating_sub(new)..], out.digests());
        *recorded = position;
    }
}

impl Core {
    /// A connection that came in on the target's portal of this index, from `peer`.
    pub(crate) fn new(
        (id, portal): (u64, usize),
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        (peer, local): (SocketAddr, Option<SocketAddr>),
        cpu: Option<usize>,
    ) -> Self {
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
        let login = Some(Box::new(LoginPhase::new(&shared, portal)));
        Self {
            id,
            shared,
            mailbox,
            incoming: ReceiveBuffer::new(),
            outgoing: TransmitBuffer::new(),
            tape: None,
            statistics,
            control: SendControl::new(send),
            has_answered: false,
            is_due: false,
            local,
            login,
            serving: None,
            ending: None,
            inbound: Buffered::Usual,
        }
    }

    /// When the login must have ended; nothing once it has.
    pub(crate) fn login_deadline(&self) -> Option<Instant> {
        self.login.as_ref().map(|login| login.deadline)
    }

    /// How long the connection may sleep although nothing comes: until something that it waits for may have ended.
    pub(crate) fn sleep_limit(&self) -> Option<Duration> {
        let serving = self.serving.as_ref()?;
        let polls =
            serving.closing.is_some() || !serving.tasks.waiting.is_empty() || self.inbound == Buffered::Waits;
        if polls {
            return Some(Duration::from_millis(1));
        }
        let by = serving.log_out_by?;
        Some(by.saturating_duration_since(self.shared.clock.now()))
    }

    /// Whether the initiator was asked to log out.
    pub(crate) fn is_asked_to_log_out(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.log_out_by.is_some())
    }

    /// Whether more responses are to be made once there is room for them.
    pub(crate) fn has_more(&self) -> bool {
        let serving = self.serving.as_ref();
        serving.is_some_and(|s| !s.tasks.reads.is_empty() || !s.tasks.again.is_empty())
    }

    /// Whether a deferred command may be due: the Data-Out that just came can have ended what it waited for.
    pub(crate) fn has_deferred(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| !serving.tasks.ordering.is_empty())
    }

    /// Whether the answers that wait to be sent leave room for others.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        has_room(&self.outgoing, self.shared.config.limits.unsent_bytes)
    }

    /// Takes and answers the next PDU that has come.
    ///
    /// # Errors
    /// The end of the connection.
    #[inline]
    pub(crate) fn next_frame(&mut self) -> Result<Taken, ConnectionEnd> {
        let Some(mut serving) = self.serving.take() else { return self.login_frame() };
        let taken = self.serve_frame(&mut serving);
        self.serving = Some(serving);
        taken
    }

    #[inline]
    fn serve_frame(&mut self, serving: &mut Serving) -> Result<Taken, ConnectionEnd> {
        if serving.closing.is_some() || !self.has_room() || !serving.tasks.again.is_empty() {
            return Ok(Taken::Blocked);
        }
        // Out of the buffer while its bytes are looked at, so that everything else can be used meanwhile.
        let incoming = std::mem::take(&mut self.incoming);
        let mut taken = 0;
        let outcome = match serving.framer.next(incoming.unread()) {
            Ok(Cut::Frame(frame)) => {
                taken = frame.total_bytes;
                let end_of_frame = incoming.position() + frame.total_bytes as u64;
                if let Buffered::Claimed { bytes, is_waited_for: true } = self.inbound {
                    // However long the disk takes now, the initiator is not late.
                    self.shared.inbound.waits(self.id, None);
                    self.inbound = Buffered::Claimed { bytes, is_waited_for: false };
                }
                self.answer(serving, &frame, end_of_frame).map(|()| None)
            }
            Ok(Cut::Needs(needed)) => Ok(Some(needed)),
            Err(fault) => {
                if let Some(header) = incoming.unread().first_chunk() {
                    let reason = iscsi::fault::RejectReason::ProtocolError;
                    serving.protocol.reject(reason, &iscsi::Bhs(*header), &mut self.outgoing);
                }
                Err(fault.into())
            }
        };
        self.incoming = incoming;
        self.incoming.take(taken);
        if let Some(needed) = outcome? {
            let is_usual = needed <= ReceiveBuffer::USUAL_BYTES && self.inbound == Buffered::Usual;
            let may_come = is_usual || self.claim_inbound(needed);
            return Ok(if may_come { Taken::Needs(needed) } else { Taken::Blocked });
        }
        self.answer_held(serving)?;
        Ok(Taken::Frame)
    }

    /// Claims what the receive buffer must hold beyond its usual size, or gives it back; whether the PDU can come.
    #[cold]
    fn claim_inbound(&mut self, needed: usize) -> bool {
        if self.incoming.shrink(needed) {
            self.shared.inbound.release(self.id);
            self.inbound = Buffered::Usual;
            return true;
        }
        let now = self.shared.clock.now();
        if let Buffered::Claimed { bytes, is_waited_for } = self.inbound
            && needed <= bytes
        {
            if !is_waited_for {
                self.shared.inbound.waits(self.id, Some(now));
                self.inbound = Buffered::Claimed { bytes, is_waited_for: true };
            }
            return true;
        }
        let is_claimed = self.shared.inbound.claim((self.id, &self.mailbox), needed, now);
        self.inbound = if is_claimed {
            Buffered::Claimed { bytes: needed, is_waited_for: true }
        } else {
            Buffered::Waits
        };
        is_claimed
    }

    /// Commands that came before their turn, and have it now: ours, and those of the session's other connections.
    #[inline]
    fn answer_held(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        if !serving.protocol.sequence().is_waited_for() {
            return Ok(());
        }
        while let Some(held) = serving.protocol.take_held() {
            serving.count_held()?;
            self.answer(serving, &held.frame(), self.incoming.position())?;
            for frame in held.followers() {
                self.answer(serving, &frame, self.incoming.position())?;
            }
        }
        if serving.protocol.sequence().is_waited_for() {
            serving.session.post_to_others(self.id, Notice::Turn);
        }
        Ok(())
    }

    /// Answers one PDU.
    #[inline]
    fn answer(
        &mut self,
        serving: &mut Serving,
        frame: &Frame<'_>,
        end_of_frame: u64,
    ) -> Result<(), ConnectionEnd> {
        let code = frame.bhs.opcode();
        if code == opcode::DATA_OUT && !serving.tasks.ordering.is_empty() && self.follow(serving, frame) {
            return Ok(());
        }
        if code == opcode::SCSI_COMMAND {
            // Before the command takes its turn: who aborts the tasks up to a CmdSN finds this one among them.
            self.enter(serving, Lun::decode(frame.bhs.lun()));
        }
        let before = self.outgoing.position();
        let out = &mut self.outgoing;
        match serving.protocol.receive(frame, out)? {
            Incoming::Nothing => return serving.count_held(),
            Incoming::Command { command, data } => {
                self.statistics.commands += 1;
                self.statistics.busy_count.request();
                // What it had been answered tells how many it has in flight.
                self.control.requested(serving.protocol.unacknowledged(command.exp_stat_sn) + 1);
                if let Some(tape) = &mut self.tape {
                    let kind = match (command.read, command.write_data) {
                        (true, false) if scsi::cdb::reads_the_medium(&command.cdb) => OpKind::Read,
                        (false, true) => OpKind::Write,
                        _ => OpKind::Other,
                    };
                    let bytes = frame.total_bytes as u32;
                    tape.request(command.tag, kind, command.expected_bytes, bytes, end_of_frame);
                }
                self.command(serving, &command, data, before);
            }
            Incoming::Data { tag, store_offset, data, lun } => {
                self.sweep_if_aborted(serving, lun);
                let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
                if view.write_data((tag, lun, store_offset), data, &mut context) == CommandState::Over {
                    self.over(tag, before);
                }
            }
            Incoming::TaskManagement(request) => self.task_management(serving, &request)?,
            Incoming::Text { request, text } => {
                let who = (&serving.session.key, serving.session_type);
                let answer = text::answer(&self.shared, &text, who, self.local)?;
                serving.protocol.respond_text(&request, answer, out);
            }
            Incoming::Logout { request, session } => {
                let until = self.shared.clock.now() + SETTLE;
                serving.closing = Some(Closing { request, session, until, in_flight: None });
            }
            Incoming::LogoutOther { request, recovery } => self.log_out_other(serving, &request, recovery),
            Incoming::SendAgain(kept) => {
                if serving.tasks.again.len() + kept.len() > AGAIN_MAX {
                    let reason = iscsi::fault::RejectReason::SnackReject;
                    serving.protocol.reject(reason, &frame.bhs, out);
                } else {
                    serving.tasks.again.extend(kept);
                    let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
                    let _ = Arc::clone(view).go_on(&mut context);
                    self.is_due = true;
                }
            }
        }
        Ok(())
    }

    /// Enters the logical unit of a command, where the session has not yet, or its tasks there were aborted.
    #[inline]
    fn enter(&mut self, serving: &mut Serving, lun: Option<Lun>) {
        let Some(lun) = lun.filter(|&lun| !serving.tasks.lanes.is_open(lun)) else { return };
        self.sweep(serving);
        if !serving.tasks.lanes.is_open(lun)
            && let Some(unit) = serving.view.unit(lun)
        {
            serving.tasks.lanes.open(lun, unit, &serving.session);
        }
    }

    #[inline]
    fn sweep_if_aborted(&mut self, serving: &mut Serving, lun: [u8; 8]) {
        if !Lun::decode(lun).is_some_and(|lun| serving.tasks.lanes.is_open(lun)) {
            self.sweep(serving);
        }
    }

    /// Carries out a command, or defers it behind others.
    #[inline]
    fn command(&mut self, serving: &mut Serving, command: &ScsiCommand, data: &[u8], before: u64) {
        let is_open = Lun::decode(command.lun).is_some_and(|lun| serving.tasks.lanes.is_open(lun));
        if !is_open && serving.session.is_closed() {
            // The session has ended, and this connection is about to learn of it: nothing is answered any more.
            return;
        }
        if !serving.tasks.ordering.is_free(command) && self.defers(serving, command, data) {
            return;
        }
        if self.execute(serving, command, data) == CommandState::Over {
            self.over(command.tag, before);
        }
    }

    #[inline]
    fn execute(&mut self, serving: &mut Serving, command: &ScsiCommand, data: &[u8]) -> CommandState {
        let lun = Lun::decode(command.lun);
        if lun.is_some_and(|lun| serving.tasks.lanes.is_held_up(lun)) {
            // A write of an earlier session of this nexus may still land, and must not do so on top of a newer one.
            serving.protocol.respond_status(command, status::BUSY, &[], 0, 0, &mut self.outgoing);
            return CommandState::Over;
        }
        if let Some(lun) = lun
            && serving.view.unit(lun).is_some()
            && !serving.tasks.lanes.is_open(lun)
        {
            // The session may not use the logical unit any more.
            let sense = Sense::NO_SUCH_LUN.encode();
            let code = status::CHECK_CONDITION;
            serving.protocol.respond_status(command, code, &sense, 0, 0, &mut self.outgoing);
            return CommandState::Over;
        }
        let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
        view.execute(command, data, &mut context)
    }

    /// Defers a command that must wait for others; whether it does.
    #[cold]
    fn defers(&mut self, serving: &mut Serving, command: &ScsiCommand, data: &[u8]) -> bool {
        self.release(serving);
        let Serving { tasks, protocol, .. } = serving;
        if !tasks.ordering.must_wait(command, || tasks.is_busy(protocol, command.lun)) {
            tasks.ordering.begins(command);
            return false;
        }
        let lun = Lun::decode(command.lun);
        let epoch = lun.and_then(|lun| tasks.lanes.epoch(lun)).map_or(0, |epoch| epoch.number());
        let jobs = &tasks.jobs;
        if tasks.ordering.defer(command, data, epoch, |bytes| jobs.claim(bytes)) {
            protocol.sequence().unfinished(1);
        } else {
            protocol.respond_status(command, status::TASK_SET_FULL, &[], 0, 0, &mut self.outgoing);
        }
        true
    }

    /// Keeps Data-Out behind its deferred command; whether it is one's.
    #[cold]
    fn follow(&mut self, serving: &mut Serving, frame: &Frame<'_>) -> bool {
        let (tag, jobs) = (frame.bhs.initiator_task_tag(), &serving.tasks.jobs);
        match serving.tasks.ordering.follow(frame, tag, |bytes| jobs.claim(bytes)) {
            None => false,
            Some(Ok(())) => true,
            Some(Err(Deferred { command, .. })) => {
                serving.protocol.sequence().unfinished(-1);
                let full = status::TASK_SET_FULL;
                serving.protocol.respond_status(&command, full, &[], 0, 0, &mut self.outgoing);
                true
            }
        }
    }

    /// Begins the deferred commands that can begin now.
    fn release(&mut self, serving: &mut Serving) {
        // Another session may have aborted some of them meanwhile: those are not answered.
        self.sweep(serving);
        loop {
            let Serving { tasks, protocol, .. } = &mut *serving;
            let mut ordering = std::mem::take(&mut tasks.ordering);
            ordering.prune(|tag| tasks.is_in_progress(protocol, tag));
            let next = ordering.next(|lun| tasks.is_busy(protocol, lun));
            tasks.ordering = ordering;
            let Some(Deferred { command, data, followers, .. }) = next else { return };
            serving.protocol.sequence().unfinished(-1);
            serving.tasks.ordering.begins(&command);
            let before = self.outgoing.position();
            if self.execute(serving, &command, &data) == CommandState::Over {
                self.over(command.tag, before);
            }
            for (bhs, data) in followers {
                let frame = Frame { bhs, ahs: &[], data: &data, total_bytes: 0, is_damaged: false };
                let before = self.outgoing.position();
                let incoming = serving.protocol.receive(&frame, &mut self.outgoing);
                if let Ok(Incoming::Data { tag, store_offset, data, lun }) = incoming {
                    let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
                    if view.write_data((tag, lun, store_offset), data, &mut context) == CommandState::Over {
                        self.over(tag, before);
                    }
                }
            }
        }
    }

    /// A command is over: its response, if it has one, was appended behind `before`.
    #[inline]
    fn over(&mut self, tag: u32, before: u64) {
        if let Some(tape) = &mut self.tape {
            let after = self.outgoing.position();
            tape.response(tag, (after - before) as u32, after);
        }
        self.is_due |= self.control.served(self.outgoing.waiting_bytes());
    }

    /// Looks at what may have changed: jobs that are done, notices, room for more of an answer, what was waited for.
    ///
    /// # Errors
    /// The end of the connection.
    #[inline]
    pub(crate) fn go_on(&mut self) -> Result<(), ConnectionEnd> {
        let Some(mut serving) = self.serving.take() else { return self.login_notices() };
        let begun = (self.inbound != Buffered::Usual).then(|| self.shared.clock.now());
        let outcome = self.serve_on(&mut serving);
        self.serving = Some(serving);
        if let Some(begun) = begun {
            let time = self.shared.clock.now().saturating_duration_since(begun);
            self.shared.inbound.pass_over(self.id, time);
        }
        outcome
    }

    #[inline]
    fn serve_on(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        let before = self.outgoing.position();
        self.finish_jobs(serving);
        for notice in self.mailbox.take() {
            self.notice(serving, notice)?;
        }
        if !serving.tasks.reads.is_empty() || !serving.tasks.again.is_empty() {
            let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
            if Arc::clone(view).go_on(&mut context) {
                self.has_answered = true;
                let _ = self.control.served(0);
            }
        }
        if !serving.tasks.waiting.is_empty() {
            self.finish_waiting(serving)?;
        }
        if !serving.tasks.ordering.is_empty() {
            self.release(serving);
        }
        if serving.log_out_by.is_some_and(|by| self.shared.clock.now() >= by) {
            return Err(ConnectionEnd::Dropped("did not log out when it was asked to"));
        }
        self.is_due |= self.outgoing.position() != before;
        if serving.closing.is_some() {
            self.close(serving)?;
        }
        Ok(())
    }

    /// Answers the commands whose jobs are done.
    #[inline]
    fn finish_jobs(&mut self, serving: &mut Serving) {
        let all = self.mailbox.take_done();
        if all.is_empty() {
            return;
        }
        // Tasks that another session has aborted meanwhile get no response.
        self.sweep(serving);
        for done in all {
            let Some((id, job, outcome)) = serving.tasks.jobs.end(done) else { continue };
            let before = self.outgoing.position();
            let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
            view.finish(id, &job, outcome, &mut context);
            if self.outgoing.position() == before {
                continue;
            }
            self.has_answered = true;
            // They leave together, once all that are done are answered.
            let _ = self.control.served(0);
            if let Some(tape) = &mut self.tape {
                let after = self.outgoing.position();
                tape.response(job.command.tag, (after - before) as u32, after);
            }
        }
    }

    #[cold]
    fn notice(&mut self, serving: &mut Serving, notice: Notice) -> Result<(), ConnectionEnd> {
        match notice {
            Notice::Sweep => self.sweep(serving),
            Notice::Disks => {
                if let Some(view) = serving.session.view() {
                    serving.view = view;
                }
                self.sweep(serving);
                if serving.session_type == SessionType::Normal {
                    for (lun, attention) in serving.session.take_news() {
                        let sense = attention.sense().encode();
                        serving.protocol.send_scsi_event(lun.encode(), &sense, &mut self.outgoing);
                    }
                }
            }
            Notice::Turn => self.answer_held(serving)?,
            Notice::Send(policy) => self.control = SendControl::new(policy),
            Notice::LogOut(patience) => {
                let seconds = u16::try_from(patience.as_secs()).unwrap_or(u16::MAX);
                serving.protocol.ask_to_log_out(seconds, &mut self.outgoing);
                serving.log_out_by = Some(self.shared.clock.now() + patience);
            }
            Notice::Park => return Err(ConnectionEnd::Recovered),
            Notice::Drop(reason) => return Err(ConnectionEnd::Dropped(reason)),
            Notice::Stop => {
                serving.protocol.announce_drop(&mut self.outgoing);
                return Err(ConnectionEnd::Stopping);
            }
        }
        Ok(())
    }

    /// Drops the tasks of epochs that have ended. They can change nothing any more; this frees what they hold, cancels
    /// what their disks still do, and establishes the unit attention that is due for them.
    fn sweep(&mut self, serving: &mut Serving) {
        for swept in serving.tasks.lanes.sweep() {
            let (lun, epoch) = (swept.lun, swept.epoch.number());
            let (dropped, _) = Self::abort(serving, |task| task.epoch == epoch && task.lun == Some(lun));
            if dropped > 0
                && let Some(attention) = swept.epoch.take_attention()
            {
                lock(&serving.session.nexus).raise(lun, attention);
            }
        }
    }

    /// Drops tasks without a response: how many, and what of them may still change a disk.
    fn abort(serving: &mut Serving, aborts: impl Fn(&Task) -> bool) -> (usize, Vec<Weak<Claim>>) {
        let Serving { protocol, tasks, .. } = serving;
        let of = |command: &ScsiCommand, epoch| {
            aborts(&Task { tag: command.tag, lun: Lun::decode(command.lun), epoch })
        };
        let mut dropped = protocol.abort(|task| of(&task.command, task.order.epoch));
        tasks.gathering.prune(protocol);
        let (jobs, claims) = tasks.jobs.abort(|job| of(&job.command, job.epoch.number()));
        dropped += jobs;
        let before = tasks.reads.len();
        tasks.reads.retain(|_, read| !of(&read.command, read.epoch));
        let reads = before - tasks.reads.len();
        let deferred = tasks.ordering.abort(|deferred| of(&deferred.command, deferred.epoch));
        protocol.sequence().unfinished(-((reads + deferred) as i32));
        (dropped + reads + deferred, claims)
    }

    /// Gives the answers that waited, where what they waited for has ended or took too long.
    #[cold]
    fn finish_waiting(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        let (now, out) = (self.shared.clock.now(), &mut self.outgoing);
        let Serving { protocol, session, tasks, view, .. } = serving;
        let (mut ended, waiting): (Vec<Waiting>, Vec<Waiting>) = std::mem::take(&mut tasks.waiting)
            .into_iter()
            .partition(|waiting| waiting.is_over(session) || waiting.until <= now);
        tasks.waiting = waiting;
        let mut end = None;
        for waiting in &mut ended {
            let is_over = waiting.is_over(session);
            match &waiting.then {
                Then::TaskManagement { request, response, ends } => {
                    let failed = iscsi::task_management::Response::Rejected;
                    let response = if is_over { *response } else { failed };
                    protocol.respond_task_management(request, response, out);
                    end = end.or(*ends);
                }
                Then::Command { command, r2ts, status, moved_bytes } => {
                    protocol.sequence().unfinished(-1);
                    if is_over {
                        protocol.respond_status(command, *status, &[], *moved_bytes, *r2ts, out);
                    } else {
                        let sense = view.luns.encode(command.lun, &ABORT_TIMED_OUT);
                        protocol.respond_status(command, status::CHECK_CONDITION, &sense, 0, *r2ts, out);
                    }
                }
                Then::OtherLogout { request, .. } => {
                    let outcome = if is_over { LogoutOutcome::Done } else { LogoutOutcome::CleanupFailed };
                    protocol.respond_logout(request, outcome, out);
                }
            }
            if !is_over {
                let peer = self.statistics.peer;
                tracing::warn!(%peer, "a task management function failed: commands in flight did not end in time");
            }
        }
        self.has_answered |= !ended.is_empty();
        end.map_or(Ok(()), |reason| Err(ConnectionEnd::Dropped(reason)))
    }

    /// Brings a logout on: first what is in flight ends, then nothing of the session comes any more, then it is
    /// answered.
    #[cold]
    fn close(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        let now = self.shared.clock.now();
        let Some(mut closing) = serving.closing.take() else { return Ok(()) };
        let is_late = now >= closing.until;
        if closing.in_flight.is_none() && (serving.tasks.is_idle(&serving.protocol) || is_late) {
            let (_, claims) = Self::abort(serving, |_| true);
            let is_last = closing.session || serving.session.is_alone(self.id);
            let epochs = if is_last { serving.session.close_tasks() } else { Vec::new() };
            if closing.session {
                serving.session.forget_lost();
                serving.session.post_to_others(self.id, Notice::Drop("the session was logged out"));
            }
            closing.in_flight = Some((epochs, claims));
        }
        let is_over = closing.in_flight.as_ref().is_some_and(|(epochs, claims)| {
            (!closing.session || serving.session.is_alone(self.id))
                && epochs.iter().all(|epoch| epoch.is_over())
                && claims.iter().all(|claim| claim.strong_count() == 0)
        });
        if !is_over && !is_late {
            serving.closing = Some(closing);
            return Ok(());
        }
        let outcome = if is_over { LogoutOutcome::Done } else { LogoutOutcome::CleanupFailed };
        serving.protocol.respond_logout(&closing.request, outcome, &mut self.outgoing);
        Err(ConnectionEnd::LoggedOut)
    }

    /// Closes another connection of the session, or gives it up so that its tasks can go on here.
    fn log_out_other(&mut self, serving: &mut Serving, request: &LogoutRequest, recovery: bool) {
        let (alive, is_lost) = serving.session.has(request.cid);
        let Some(id) = alive else {
            let is_done = is_lost && recovery;
            let outcome = if is_done { LogoutOutcome::Done } else { LogoutOutcome::NoSuchConnection };
            serving.protocol.respond_logout(request, outcome, &mut self.outgoing);
            return;
        };
        if serving.tasks.waiting.len() >= WAITING_MAX {
            serving.protocol.respond_logout(request, LogoutOutcome::CleanupFailed, &mut self.outgoing);
            return;
        }
        let reason = Notice::Drop("logged out by another connection");
        serving.session.end_connection(request.cid, if recovery { Notice::Park } else { reason });
        let then = Then::OtherLogout { request: *request, id };
        let until = self.shared.clock.now() + 2 * SETTLE;
        serving.tasks.waiting.push(Waiting { epochs: Vec::new(), claims: Vec::new(), until, then });
    }

    /// Asks the initiator for a sign of life.
    pub(crate) fn ping(&mut self) {
        if let Some(serving) = &mut self.serving {
            serving.protocol.ping(&mut self.outgoing);
            self.is_due = true;
        }
    }

    /// Notes what was appended since this was last called, where it may have to be sent again. To be called before it
    /// is sent.
    #[inline]
    pub(crate) fn note(&mut self) {
        if let Some(serving) = &mut self.serving {
            serving.note(&self.outgoing);
        }
    }

    /// The connection ends, because of this: no frame is taken any more.
    pub(crate) fn end(&mut self, end: &ConnectionEnd) {
        self.login = None;
        let Some(serving) = &mut self.serving else { return };
        // Where connections are recovered, what one leaves when it is lost waits for another.
        let is_lost = matches!(
            end,
            ConnectionEnd::Closed
                | ConnectionEnd::Socket(_)
                | ConnectionEnd::Silent(_)
                | ConnectionEnd::Fault(_)
                | ConnectionEnd::Recovered
        );
        let keeps = is_lost
            && serving.session_type == SessionType::Normal
            && serving.session.parameters.error_recovery_level == 2;
        self.ending = Some(Ending { keeps, until: self.shared.clock.now() + SETTLE });
    }

    /// Whether all of it has ended, which it does where it can with this call: writes that a disk has begun end
    /// before their connection leaves them to its session.
    pub(crate) fn is_ended(&mut self) -> bool {
        if self.inbound != Buffered::Usual {
            self.shared.inbound.release(self.id);
            self.inbound = Buffered::Usual;
        }
        let Some(mut serving) = self.serving.take() else { return true };
        let Some((mut keeps, until)) = self.ending.as_ref().map(|ending| (ending.keeps, ending.until)) else {
            self.serving = Some(serving);
            return false;
        };
        if keeps {
            self.finish_jobs(&mut serving);
            // Whoever takes the place of the connection wants nothing that it leaves.
            let gives_up = |notice: &Notice| matches!(notice, Notice::Drop(_) | Notice::Stop);
            keeps = !self.mailbox.take().iter().any(gives_up);
            self.sweep(&mut serving);
            if keeps && serving.tasks.jobs.any(|c| c.write_data) && self.shared.clock.now() < until {
                self.serving = Some(serving);
                return false;
            }
        }
        let Serving { protocol, tasks, session, cid, recorded, .. } = &mut *serving;
        let commands = tasks.waiting.iter().filter(|waiting| waiting.command().is_some()).count();
        let deferred = tasks.ordering.abort(|_| true);
        protocol.sequence().unfinished(-((tasks.reads.len() + deferred + commands) as i32));
        let remains = keeps.then(|| {
            // Also what has ended by now is there to be sent again.
            Serving::note_of(protocol, recorded, &self.outgoing);
            let reads = std::mem::take(&mut tasks.reads).into_values();
            let reads = reads.map(|read| (read.command.tag, read.parked())).collect();
            Remains { parked: protocol.park(), gathering: std::mem::take(&mut tasks.gathering), reads }
        });
        let (session, cid) = (Arc::clone(session), *cid);
        // Its tasks are given up, and their places in the window free, before its session goes on without it.
        drop(serving);
        self.shared.end(&session, (cid, self.id), remains);
        true
    }
}

/// A task of a connection, as far as aborting it goes.
struct Task {
    tag: u32,
    lun: Option<Lun>,
    epoch: u64,
}
