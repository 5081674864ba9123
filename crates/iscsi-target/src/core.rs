//! The state machine of a connection, without its socket: bytes in, bytes out, and no call blocks. Work that must wait
//! (for a disk, for another connection, for the initiator to read) is recorded and checked again on the next call.
//!
//! Call [`Core::next_frame`] while it takes frames, and [`Core::resume`] whenever something may have changed: bytes were
//! sent, a notice was posted, time has passed. Call [`Core::record_pending`] before sending `outgoing`. When a call returns
//! the end of the connection, call [`Core::end`], then [`Core::is_ended`] until it returns true.

mod closing;
mod commands;
mod login;
mod management;
mod suspending;
mod text;

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use iscsi::login::SessionType;
use iscsi::pdu::LogoutRequest;
use iscsi::target::TargetConnection;
use iscsi::{Cut, Framer, ReceiveBuffer, TransmitBuffer};
use policy::{BusyCount, SendControl};
use socket::tape::Tape;

use crate::context::Context;
use crate::counters::{Local, Operation};
use crate::error::ConnectionEnd;
use crate::fence::Epoch;
use crate::jobs::Claim;
use crate::mailbox::{Mailbox, Notice};
use crate::memory::Share;
use crate::room::has_room;
use crate::session::Session;
use crate::shared::Shared;
use crate::stages::{Sampler, Stages};
use crate::statistics::ConnectionStatistics;
use crate::table::Table;
use crate::tasks::Tasks;

use login::LoginPhase;
use suspending::Suspending;

/// Longest time that a task management function or a logout waits for commands in flight.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);

/// Most PDUs queued for retransmission.
const AGAIN_MAX: usize = 1 << 14;

/// Bytes of out-of-order commands that a connection may hold outside the shared memory budget.
const HELD_BYTES_FREE: usize = 128 << 10;

/// The outcome of [`Core::next_frame`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// A frame was taken and handled; its response may follow later.
    Frame,
    /// The frame is incomplete: this many bytes from the first unread one are needed.
    Needs(usize),
    /// No frame is taken until recorded work ends or bytes are sent.
    Blocked,
}

/// The state of a connection, from its first byte to its end.
pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) incoming: ReceiveBuffer,
    pub(crate) outgoing: TransmitBuffer,
    pub(crate) tape: Option<Tape>,
    pub(crate) statistics: ConnectionStatistics,
    pub(crate) sampler: Sampler,
    pub(crate) counts: Local,
    /// Somebody wants to see what was counted.
    pub(crate) is_asked_to_publish: bool,
    pub(crate) control: SendControl,
    /// Whether a response was made since the connection was last idle.
    pub(crate) has_answered: bool,
    /// Flush pending responses now.
    pub(crate) is_due: bool,
    /// The address that the initiator connected to.
    local: Option<SocketAddr>,
    login: Option<Box<LoginPhase>>,
    serving: Option<Box<Serving>>,
    ending: Option<Ending>,
    /// The claim of the receive buffer beyond its default size.
    inbound: Buffered,
}

/// The claim of a connection on memory for a long PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Buffered {
    /// None: the default buffer suffices.
    Usual,
    /// The buffer may hold this many bytes. `is_waited_for`: the time until the PDU is complete counts against the peer.
    Claimed { bytes: usize, is_waited_for: bool },
    /// The budget is exhausted: the connection is queued for it.
    Waits,
}

/// A session in its full feature phase.
struct Serving {
    protocol: TargetConnection,
    session: Arc<Session>,
    cid: u16,
    /// The disks that this initiator sees.
    view: Arc<Table>,
    /// The stream position up to which sent PDUs are recorded for retransmission.
    recorded: u64,
    log_out_by: Option<Instant>,
    tasks: Tasks,
    /// The share of the memory budget held by out-of-order commands.
    held: Share,
    /// A logout that waits for commands in flight.
    closing: Option<Closing>,
    session_type: SessionType,
    framer: Framer,
    /// The session is to go on in the next process.
    suspending: Option<Suspending>,
}

/// A logout of this connection, or of the session, in progress.
struct Closing {
    request: LogoutRequest,
    session: bool,
    until: Instant,
    /// Aborted work that may still change a disk; `None` until the tasks are closed.
    in_flight: Option<InFlight>,
}

/// Epochs that have not ended, and jobs that run.
type InFlight = (Vec<Arc<Epoch>>, Vec<Weak<Claim>>);

/// A connection that has ended and waits until its tasks can pass to its session.
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

    /// Whether a command that has come is not answered: it waits for its data, a disk, others, or room.
    fn has_open_task(&self) -> bool {
        let tasks = &self.tasks;
        self.protocol.tasks() > 0
            || !tasks.jobs.is_idle()
            || !tasks.reads.is_empty()
            || !tasks.waiting.is_empty()
            || !tasks.ordering.is_empty()
            || self.protocol.sequence().is_waited_for()
    }

    /// Charges commands that came out of order, or are kept for the next process, to the memory budget.
    #[inline]
    fn count_held(&mut self) -> Result<(), ConnectionEnd> {
        let kept = self.suspending.as_ref().map_or(0, Suspending::bytes);
        let bytes = (self.protocol.held_bytes() + kept).saturating_sub(HELD_BYTES_FREE);
        if bytes == self.held.bytes() || self.held.resize(bytes) {
            return Ok(());
        }
        Err(ConnectionEnd::Dropped("no memory left for commands that wait"))
    }

    #[inline]
    fn record_pending(&mut self, out: &TransmitBuffer) {
        Self::record_pending_of(&mut self.protocol, &mut self.recorded, out);
    }

    #[inline]
    fn record_pending_of(protocol: &mut TargetConnection, recorded: &mut u64, out: &TransmitBuffer) {
        if out.has_borrowed() {
            // Connections that keep PDUs for retransmission never borrow data.
            *recorded = out.position();
            return;
        }
        let (pending, position) = (out.pending(), out.position());
        let new = (position - *recorded) as usize;
        protocol.sent(&pending[pending.len().saturating_sub(new)..], out.digests());
        *recorded = position;
    }
}

/// An accepted connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accepted {
    /// Its number, unique in the target.
    pub(crate) id: u64,
    /// The index of the portal.
    pub(crate) portal: usize,
    pub(crate) peer: SocketAddr,
    /// The address that the peer connected to.
    pub(crate) local: Option<SocketAddr>,
}

impl Core {
    /// Creates the state machine of an accepted connection.
    pub(crate) fn new(
        accepted: &Accepted,
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        cpu: Option<usize>,
    ) -> Self {
        let &Accepted { id, portal, peer, local } = accepted;
        let send = shared.send();
        let statistics = ConnectionStatistics {
            id,
            target: String::new(),
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
            stages: Stages::default(),
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
            sampler: Sampler::default(),
            counts: Local::default(),
            is_asked_to_publish: false,
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

    /// Adds what was counted to the counters of the disks.
    pub(crate) fn publish_counts(&mut self) {
        if let Some(serving) = &mut self.serving {
            self.counts.publish(&serving.view, serving.protocol.take_failures());
        }
    }

    /// The last PDU was answered at once, and measured.
    #[cold]
    pub(crate) fn took(&mut self, time: Duration) {
        if let Some(serving) = &self.serving {
            self.counts.took(&serving.view, time, crate::stages::EACH);
        }
    }

    /// Returns when the login must be complete; `None` after the login.
    pub(crate) fn login_deadline(&self) -> Option<Instant> {
        self.login.as_ref().map(|login| login.deadline)
    }

    /// Returns the longest time to sleep without input; `None` when only input or a notice can change anything.
    pub(crate) fn sleep_limit(&self) -> Option<Duration> {
        let serving = self.serving.as_ref()?;
        let polls = serving.closing.is_some()
            || serving.suspending.is_some()
            || !serving.tasks.waiting.is_empty()
            || self.inbound == Buffered::Waits;
        if polls {
            return Some(Duration::from_millis(1));
        }
        let by = serving.log_out_by?;
        Some(by.saturating_duration_since(self.shared.clock.now()))
    }

    /// Returns whether the initiator was asked to log out.
    pub(crate) fn is_asked_to_log_out(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.log_out_by.is_some())
    }

    /// Returns whether responses or retransmissions wait for room in the transmit buffer.
    pub(crate) fn has_more(&self) -> bool {
        let serving = self.serving.as_ref();
        serving.is_some_and(|s| !s.tasks.reads.is_empty() || !s.tasks.again.is_empty())
    }

    /// Returns whether commands are deferred. One may be due: the last Data-Out can have completed the command before it.
    pub(crate) fn has_deferred(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| !serving.tasks.ordering.is_empty())
    }

    /// Returns whether the transmit buffer has room for more responses.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        has_room(&self.outgoing, self.shared.config.limits.unsent_bytes)
    }

    /// Bytes of all PDUs so far, handled and made.
    #[inline]
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.incoming.position() + self.outgoing.position()
    }

    /// Takes and handles the next received PDU.
    ///
    /// # Errors
    /// Why the connection ends.
    #[inline]
    pub(crate) fn next_frame(&mut self) -> Result<Taken, ConnectionEnd> {
        let Some(mut serving) = self.serving.take() else { return self.login_frame() };
        self.counts.next();
        let taken = self.serve_frame(&mut serving);
        self.serving = Some(serving);
        taken
    }

    #[inline]
    fn serve_frame(&mut self, serving: &mut Serving) -> Result<Taken, ConnectionEnd> {
        let waits_for_no_data = serving.suspending.is_some() && serving.protocol.tasks() == 0;
        let is_blocked = serving.closing.is_some() || waits_for_no_data || !serving.tasks.again.is_empty();
        if is_blocked || !self.has_room() {
            return Ok(Taken::Blocked);
        }
        // Moved out of `self` so that the frame can borrow from it while `self` is used mutably.
        let incoming = std::mem::take(&mut self.incoming);
        let mut taken = 0;
        let outcome = match serving.framer.next(incoming.unread()) {
            Ok(Cut::Frame(frame)) => {
                taken = frame.total_bytes;
                let end_of_frame = incoming.position() + frame.total_bytes as u64;
                if let Buffered::Claimed { bytes, is_waited_for: true } = self.inbound {
                    // The PDU is complete: disk time from here on does not count as the peer's delay.
                    self.shared.inbound.set_waiting(self.id, None);
                    self.inbound = Buffered::Claimed { bytes, is_waited_for: false };
                }
                // What the PDU behind it reads or writes comes from memory while this one is executed: copies from a disk in memory
                // are mostly waits.
                if let Some(next) = incoming.unread().get(taken..).and_then(<[u8]>::first_chunk) {
                    serving.view.foresee(&iscsi::Bhs(*next));
                }
                let pdu = &incoming.unread()[..taken];
                if serving.suspending.is_some() && Self::keeps(serving, &frame.bhs, pdu) {
                    serving.count_held().map(|()| None)
                } else {
                    self.answer(serving, &frame, end_of_frame).map(|()| None)
                }
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

    /// Adjusts the claim on receive memory to the next PDU; returns whether the PDU may be received.
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
                self.shared.inbound.set_waiting(self.id, Some(now));
                self.inbound = Buffered::Claimed { bytes, is_waited_for: true };
            }
            return true;
        }
        let is_claimed = self.shared.inbound.claim(self.id, &self.mailbox, needed, now);
        self.inbound = if is_claimed {
            Buffered::Claimed { bytes: needed, is_waited_for: true }
        } else {
            Buffered::Waits
        };
        is_claimed
    }

    /// Handles what may have changed: completed jobs, notices, room in the transmit buffer, deferred work.
    ///
    /// # Errors
    /// Why the connection ends.
    #[inline]
    pub(crate) fn resume(&mut self) -> Result<(), ConnectionEnd> {
        let Some(mut serving) = self.serving.take() else { return self.login_notices() };
        let begun = (self.inbound != Buffered::Usual).then(|| self.shared.clock.now());
        let outcome = self.resume_serving(&mut serving);
        self.serving = Some(serving);
        if let Some(begun) = begun {
            let time = self.shared.clock.now().saturating_duration_since(begun);
            self.shared.inbound.discount(self.id, time);
        }
        outcome
    }

    #[inline]
    fn resume_serving(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        let before = self.outgoing.position();
        self.finish_jobs(serving);
        for notice in self.mailbox.take() {
            self.notice(serving, notice)?;
        }
        if !serving.tasks.reads.is_empty() || !serving.tasks.again.is_empty() {
            let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
            if Arc::clone(view).advance_reads(&mut context) {
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
            return Err(ConnectionEnd::Dropped("the initiator did not log out in time"));
        }
        self.is_due |= self.outgoing.position() != before;
        if serving.closing.is_some() {
            self.close(serving)?;
        }
        self.suspended(serving)
    }

    /// Answers the commands whose jobs have completed.
    #[inline]
    fn finish_jobs(&mut self, serving: &mut Serving) {
        let all = self.mailbox.take_done();
        if all.is_empty() {
            return;
        }
        // Tasks that another session has aborted get no response.
        self.sweep(serving);
        let now = Instant::now();
        for done in all {
            let Some((id, job, outcome, begun)) = serving.tasks.jobs.end(done) else { continue };
            self.sampler.stored(begun, now);
            if let Some(unit) = scsi::Lun::decode(job.command.lun).and_then(|lun| serving.view.unit(lun)) {
                let took = now.saturating_duration_since(begun);
                unit.counters.took(Operation::of(job.command.cdb[0]), took, 1);
            }
            let before = self.outgoing.position();
            let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
            view.finish(id, &job, outcome, &mut context);
            if self.outgoing.position() == before {
                continue;
            }
            self.has_answered = true;
            // Not flushed one by one: the responses of all completed jobs are sent together.
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
                    // What was counted belongs to the disks of before.
                    self.counts.publish(&serving.view, serving.protocol.take_failures());
                    serving.view = view;
                }
                self.sweep(serving);
                if serving.session_type == SessionType::Normal {
                    for (lun, attention) in serving.session.take_events() {
                        let sense = attention.sense().encode();
                        serving.protocol.send_scsi_event(lun.encode(), &sense, &mut self.outgoing);
                    }
                }
            }
            Notice::Turn => self.answer_held(serving)?,
            Notice::Publish => self.is_asked_to_publish = true,
            Notice::Send(policy) => self.control = SendControl::new(policy),
            Notice::LogOut(patience) => {
                let seconds = u16::try_from(patience.as_secs()).unwrap_or(u16::MAX);
                serving.protocol.ask_to_log_out(seconds, &mut self.outgoing);
                serving.log_out_by = Some(self.shared.clock.now() + patience);
            }
            Notice::Park => return Err(ConnectionEnd::Recovered),
            Notice::Drop(reason) => return Err(ConnectionEnd::Dropped(reason)),
            Notice::Suspend => self.suspend(serving)?,
            Notice::Stop => return Err(self.stopped(serving)),
        }
        Ok(())
    }

    /// Sends a NOP-In that asks for a response.
    pub(crate) fn ping(&mut self) {
        if let Some(serving) = &mut self.serving {
            serving.protocol.ping(&mut self.outgoing);
            self.is_due = true;
        }
    }

    /// Records PDUs appended since the last call for retransmission. Must be called before they are sent.
    #[inline]
    pub(crate) fn record_pending(&mut self) {
        if let Some(serving) = &mut self.serving {
            serving.record_pending(&self.outgoing);
        }
    }
}
