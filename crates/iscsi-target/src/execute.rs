//! Commands carried out: plans against stores.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use iscsi::pdu::ScsiCommand;
use iscsi::replay::{Kept, KeptData, ReadOrigin};
use iscsi::target::{ReadFailed, ReleasedWrite, TargetConnection, WriteOrder};
use iscsi::{TransmitBuffer, status};
use parking_lot::RwLock;
use scsi::cdb::Cdb;
use scsi::{Disk, Durable, Effects, Lun, Plan, Segment, Sense, SenseKey};
use store::Operation;
use store::{Buffer, Ended, Fault, Request, Store, StoreError};

use crate::clock::Clock;
use crate::disks::{Table, Unit};
use crate::fence::{Epoch, NexusTasks};
use crate::jobs::{Job, Jobs, Outcome};
use crate::medium;
use crate::memory::Share;
use crate::ordering::Ordering;
use crate::planted::{Bug, is_planted};
use crate::reads::{Progress, Read};
use crate::sessions::{Session, lock};
use crate::waiting::{Then, Waiting};

/// Longest time that PREEMPT AND ABORT waits for writes in flight before it fails.
const PREEMPT_TIME: Duration = Duration::from_secs(30);

/// A command whose data is gathered before anything is done.
#[derive(Debug)]
struct Taken {
    cdb: Cdb,
    lun: Lun,
    data: Buffer,
    /// Where the data of a plain write goes; nothing for a command that is planned again with its data.
    write: Option<GatheredWrite>,
    share: Share,
}

/// A write that is done as a whole when its data is there, for its disk takes its time.
#[derive(Clone, Copy, Debug)]
struct GatheredWrite {
    offset_bytes: u64,
    length_bytes: u64,
    fua: bool,
}

/// The commands of a connection whose data is gathered.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    taken: BTreeMap<u32, Taken>,
    bytes: usize,
    limit: usize,
}

impl Gathering {
    /// Gathers at most `limit` bytes at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Goes on with a command that another connection began to gather.
    pub(crate) fn adopt(&mut self, other: &mut Gathering, tag: u32) {
        if let Some(taken) = other.remove(tag) {
            self.insert(tag, taken);
        }
    }

    fn insert(&mut self, tag: u32, taken: Taken) {
        self.bytes += taken.data.len();
        self.taken.insert(tag, taken);
    }

    fn remove(&mut self, tag: u32) -> Option<Taken> {
        let taken = self.taken.remove(&tag)?;
        self.bytes -= taken.data.len();
        Some(taken)
    }

    /// Forgets the commands that are no longer in progress.
    pub(crate) fn prune(&mut self, connection: &TargetConnection) {
        self.taken.retain(|&tag, _| connection.is_in_progress(tag));
        self.bytes = self.taken.values().map(|taken| taken.data.len()).sum();
    }
}

/// The session's tasks at the logical units that a connection uses, and their epochs as last seen.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Vec<Option<Lane>>);

#[derive(Debug)]
struct Lane {
    tasks: Arc<NexusTasks>,
    epoch: Arc<Epoch>,
}

/// An epoch that has ended, whose tasks are to be dropped.
pub(crate) struct Swept {
    pub(crate) lun: Lun,
    pub(crate) epoch: Arc<Epoch>,
}

impl Lanes {
    /// The epoch of tasks that begin now at a logical unit, if it was entered.
    #[inline]
    pub(crate) fn epoch(&self, lun: Lun) -> Option<Arc<Epoch>> {
        self.lane(lun).map(|lane| Arc::clone(&lane.epoch))
    }

    #[inline]
    fn lane(&self, lun: Lun) -> Option<&Lane> {
        self.0.get(usize::from(lun.0))?.as_ref()
    }

    /// Whether a command may begin at a logical unit as things are: it was entered, and its epoch goes on.
    #[inline]
    pub(crate) fn is_open(&self, lun: Lun) -> bool {
        self.lane(lun).is_some_and(|lane| !lane.epoch.is_aborted())
    }

    /// Whether writes of an earlier session of the nexus may still land.
    #[inline]
    pub(crate) fn is_held_up(&self, lun: Lun) -> bool {
        self.lane(lun).is_some_and(|lane| lane.tasks.is_held_up())
    }

    /// Enters a logical unit; whether the session may use it.
    pub(crate) fn open(&mut self, lun: Lun, unit: &Arc<Unit>, session: &Arc<Session>) -> bool {
        let lane = session.tasks_at(lun, unit).and_then(|tasks| {
            let epoch = tasks.current()?;
            Some(Lane { tasks, epoch })
        });
        let (is_open, index) = (lane.is_some(), usize::from(lun.0));
        if self.0.len() <= index {
            self.0.resize_with(index + 1, || None);
        }
        self.0[index] = lane;
        is_open
    }

    /// Goes over to the epochs that are current now; those that have ended.
    pub(crate) fn sweep(&mut self) -> Vec<Swept> {
        let mut swept = Vec::new();
        for (place, lun) in self.0.iter_mut().zip(0..) {
            let Some(lane) = place.as_mut().filter(|lane| lane.epoch.is_aborted()) else { continue };
            let next = lane.tasks.current();
            swept.push(Swept { lun: Lun(lun), epoch: Arc::clone(&lane.epoch) });
            match next {
                Some(next) => lane.epoch = next,
                None => *place = None,
            }
        }
        swept
    }

    /// Whether this is the epoch that goes on.
    #[inline]
    pub(crate) fn is_current(&self, lun: Lun, epoch: u64) -> bool {
        self.lane(lun).is_some_and(|lane| lane.epoch.number() == epoch)
    }
}

/// What a connection keeps for the commands that it executes.
pub(crate) struct Tasks {
    pub(crate) scratch: Vec<u8>,
    pub(crate) gathering: Gathering,
    pub(crate) jobs: Jobs,
    pub(crate) lanes: Lanes,
    /// Reads whose answers are being made, in the order in which they came.
    pub(crate) reads: BTreeMap<u64, Read>,
    pub(crate) next_read: u64,
    /// What is answered when something else has ended.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) ordering: Ordering,
    /// PDUs to be sent again.
    pub(crate) again: VecDeque<Kept>,
    /// Bytes that may wait to be sent before no more are made.
    pub(crate) unsent_bytes: usize,
}

impl Tasks {
    pub(crate) fn new(jobs: Jobs, gathered_bytes: usize, unsent_bytes: usize) -> Self {
        Self {
            scratch: Vec::new(),
            gathering: Gathering::new(gathered_bytes),
            jobs,
            lanes: Lanes::default(),
            reads: BTreeMap::new(),
            next_read: 0,
            waiting: Vec::new(),
            ordering: Ordering::default(),
            again: VecDeque::new(),
            unsent_bytes,
        }
    }

    /// Whether a command of this logical unit is in progress.
    pub(crate) fn is_busy(&self, connection: &TargetConnection, lun: [u8; 8]) -> bool {
        connection.has_writes(lun)
            || self.jobs.any(|command| command.lun == lun)
            || self.reads.values().any(|read| read.command.lun == lun)
            || self.waiting.iter().any(|waiting| match waiting.command() {
                Some(command) => command.lun == lun,
                // What was aborted is still at a disk: an ORDERED command must not overtake it.
                None => waiting.has_in_flight(),
            })
    }

    /// Whether the command of this tag is in progress.
    pub(crate) fn is_in_progress(&self, connection: &TargetConnection, tag: u32) -> bool {
        connection.is_in_progress(tag)
            || self.jobs.any(|command| command.tag == tag)
            || self.reads.values().any(|read| read.command.tag == tag)
            || self.waiting.iter().any(|waiting| waiting.command().is_some_and(|c| c.tag == tag))
    }

    /// Whether no command is in progress, nor waits to be.
    pub(crate) fn is_idle(&self, connection: &TargetConnection) -> bool {
        self.jobs.is_idle()
            && self.reads.is_empty()
            && self.again.is_empty()
            && self.ordering.is_empty()
            && connection.tasks() == 0
            && self.waiting.iter().all(|waiting| waiting.command().is_none())
    }
}

/// What carrying out a command works with, besides the disks.
pub(crate) struct Context<'a> {
    pub(crate) connection: &'a mut TargetConnection,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) out: &'a mut TransmitBuffer,
    pub(crate) clock: &'a Clock,
}

impl Context<'_> {
    fn check(&mut self, command: &ScsiCommand, sense: &[u8]) {
        self.connection.respond_status(command, status::CHECK_CONDITION, sense, 0, 0, self.out);
    }

    fn answer(&mut self, command: &ScsiCommand, data: &[u8]) {
        respond_data(command, data, self.connection, self.out);
    }

    /// A job of a command at a logical unit; nothing where its session may not use that any more.
    fn job(&self, command: &ScsiCommand, lun: Lun, changes: bool) -> Option<Job> {
        Some(Job {
            command: *command,
            r2ts: 0,
            epoch: self.tasks.lanes.epoch(lun)?,
            changes,
            is_piece: false,
        })
    }
}

/// The epochs of a copy's destinations, by number of the logical unit.
type CopyEpochs = BTreeMap<u16, Arc<Epoch>>;

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum CommandState {
    /// It was answered, or aborted.
    Over,
    /// Its answer comes later.
    Pending,
}

impl CommandState {
    fn of(is_over: bool) -> Self {
        if is_over { Self::Over } else { Self::Pending }
    }
}

impl Table {
    fn store(&self, lun: Lun) -> Option<&dyn Store> {
        self.unit(lun).map(|unit| &*unit.store)
    }

    /// Keeps what a command changes of what is to be kept; called before it is in force.
    fn save(&self, lun: Lun) -> impl Fn(&Durable) -> Result<(), Sense> + '_ {
        move |durable| self.luns.0.get(&lun).map_or(Ok(()), |disk| self.effects.save(disk, durable))
    }

    /// Plans and carries out one command, at logical units that were entered; everything it answers is appended.
    /// False when more data must come, or the answer follows later.
    #[inline]
    pub(crate) fn execute(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        context: &mut Context<'_>,
    ) -> CommandState {
        if command.read && command.write_data {
            // Bidirectional commands: no command here moves data both ways.
            context.check(command, &Sense::INVALID_FIELD.encode());
            return CommandState::Over;
        }
        let mut scratch = std::mem::take(&mut context.tasks.scratch);
        scratch.clear();
        let plan = self.luns.plan(command.lun, &command.cdb, &mut lock(&context.session.nexus), &mut scratch);
        let is_over = self.carry_out(command, immediate, plan, &mut scratch, context);
        context.tasks.scratch = scratch;
        is_over
    }

    #[inline]
    fn carry_out(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        plan: Plan,
        scratch: &mut Vec<u8>,
        context: &mut Context<'_>,
    ) -> CommandState {
        if context.tasks.jobs.is_over_limit() && self.is_slow(&plan) {
            // Work that was given up is still with the disk: more must not pile up in front of it.
            context.connection.respond_status(command, status::BUSY, &[], 0, 0, context.out);
            return CommandState::Over;
        }
        match plan {
            Plan::Take { lun, length_bytes } => {
                self.begin_taking(command, immediate, (lun, length_bytes), context)
            }
            Plan::Read { lun, offset_bytes, length_bytes } => {
                self.read(command, (lun, offset_bytes, length_bytes), context)
            }
            Plan::Write { lun, offset_bytes, length_bytes, fua } => {
                let to = GatheredWrite { offset_bytes, length_bytes, fua };
                self.begin_write(command, immediate, (lun, to), context)
            }
            Plan::Data => {
                context.answer(command, scratch);
                CommandState::Over
            }
            Plan::Status(status) => {
                context.connection.respond_status(command, status, &[], 0, 0, context.out);
                CommandState::Over
            }
            Plan::Check(sense) => {
                context.check(command, &self.luns.encode(command.lun, &sense));
                CommandState::Over
            }
            Plan::MappedStatus { lun, offset_bytes, block_bytes, allocation } => {
                let Some(store) = self.store(lun) else { return no_lun(command, context) };
                mapped_status(store, offset_bytes, block_bytes, scratch);
                scratch.truncate(allocation);
                context.answer(command, scratch);
                CommandState::Over
            }
            Plan::Flush { lun } => {
                let Some(unit) = self.unit(lun) else { return no_lun(command, context) };
                if unit.store.may_wait(Operation::Flush)
                    && let Some(share) = context.tasks.jobs.room(0)
                    && let Some(job) = context.job(command, lun, false)
                {
                    let (table, lun) = (Arc::clone(self), command.lun);
                    context.tasks.jobs.ask(job, (unit, Some(share), 0), Request::Flush, move |ended| {
                        table.ended(lun, ended.outcome, 0)
                    });
                    return CommandState::Pending;
                }
                self.respond(command, unit.store.flush(), 0, context);
                CommandState::Over
            }
            Plan::Medium { .. } | Plan::Changed { .. } | Plan::Copy { .. } | Plan::Reserved { .. } => {
                self.conclude_or_begin(command, (plan, 0), 0, context)
            }
        }
    }

    /// Concludes a plan that needs no more data: here, or by a job where its disk takes its time.
    fn conclude_or_begin(
        self: &Arc<Self>,
        command: &ScsiCommand,
        (plan, r2ts): (Plan, u32),
        moved_bytes: u64,
        context: &mut Context<'_>,
    ) -> CommandState {
        if let Plan::Reserved { lun, status, effects } = plan {
            return self.reserved((command, r2ts), moved_bytes, (lun, status, &effects), context);
        }
        let Some(copies) = self.copy_epochs(&plan, context) else { return CommandState::Over };
        let target = match &plan {
            Plan::Medium { lun, .. } | Plan::Changed { lun, .. } | Plan::Copy { lun, .. } => Some(*lun),
            _ => None,
        };
        let unit = target.and_then(|lun| Some((lun, self.unit(lun)?)));
        if self.is_slow(&plan)
            && let Some((lun, unit)) = unit
            && let Some(share) = context.tasks.jobs.room(moved_bytes)
            && let Some(job) = context.job(command, lun, true)
        {
            let (table, session, lun) = (Arc::clone(self), Arc::clone(context.session), command.lun);
            let job = Job { r2ts, ..job };
            context.tasks.jobs.begin(job, (unit, Some(share), moved_bytes), move || {
                let (status, sense) = table.conclude(lun, plan, &session, &copies);
                Outcome::Status(status, sense, moved_bytes)
            });
            return CommandState::Pending;
        }
        let epoch = target.and_then(|lun| context.tasks.lanes.epoch(lun));
        let _working = match &epoch {
            Some(epoch) => match Epoch::enter(&**epoch) {
                Some(working) => Some(working),
                None => return CommandState::Over,
            },
            None => None,
        };
        let (status, sense) = self.conclude(command.lun, plan, context.session, &copies);
        context.connection.respond_status(command, status, &sense, moved_bytes, r2ts, context.out);
        CommandState::Over
    }

    /// A change of reservations: who is to learn of it does, and tasks that it aborts are aborted before the answer.
    fn reserved(
        &self,
        (command, r2ts): (&ScsiCommand, u32),
        moved_bytes: u64,
        (lun, status, effects): (Lun, u8, &Effects),
        context: &mut Context<'_>,
    ) -> CommandState {
        for (port, attention) in &effects.attentions {
            self.effects
                .raise(lun, *attention, |session| scsi::reservations::names(port, &session.nexus_name));
        }
        let aborts = |nexus: &str| effects.aborted.iter().any(|port| scsi::reservations::names(port, nexus));
        let epochs = match self.unit(lun) {
            Some(unit) if !effects.aborted.is_empty() => unit.nexuses.abort(aborts, |_| None),
            _ => Vec::new(),
        };
        if epochs.is_empty() {
            context.connection.respond_status(command, status, &[], moved_bytes, r2ts, context.out);
            return CommandState::Over;
        }
        let then = Then::Command { command: *command, r2ts, status, moved_bytes };
        let until = context.clock.now() + PREEMPT_TIME;
        context.connection.sequence().unfinished(1);
        context.tasks.waiting.push(Waiting { epochs, claims: Vec::new(), until, then });
        CommandState::Pending
    }

    /// How a job that wrote or flushed has ended.
    fn ended(&self, lun: [u8; 8], outcome: Result<(), StoreError>, moved_bytes: u64) -> Outcome {
        match outcome {
            Ok(()) => Outcome::Status(status::GOOD, Vec::new(), moved_bytes),
            Err(error) => {
                Outcome::Status(status::CHECK_CONDITION, self.luns.encode(lun, &write_sense(&error)), 0)
            }
        }
    }

    /// Answers a command whose write or flush has ended.
    fn respond(
        &self,
        command: &ScsiCommand,
        outcome: Result<(), StoreError>,
        moved_bytes: u64,
        context: &mut Context<'_>,
    ) {
        if let Outcome::Status(status, sense, moved) = self.ended(command.lun, outcome, moved_bytes) {
            context.connection.respond_status(command, status, &sense, moved, 0, context.out);
        }
    }

    /// Answers a command whose job is done, or goes on with its answer.
    pub(crate) fn finish(self: &Arc<Self>, id: u64, job: &Job, outcome: Outcome, context: &mut Context<'_>) {
        match outcome {
            Outcome::Status(status, sense, moved_bytes) => {
                let (command, r2ts) = (&job.command, job.r2ts);
                context.connection.respond_status(command, status, &sense, moved_bytes, r2ts, context.out);
            }
            Outcome::Data(_) | Outcome::Failed(_) => {
                let mut reads = context.tasks.reads.values_mut();
                if let Some(read) = reads.find(|read| read.job == Some(id)) {
                    read.came(outcome);
                }
            }
            Outcome::Aborted => {}
        }
    }

    /// Goes on with the answers of reads, in the order in which they came, while there is room; whether any is
    /// complete by it.
    pub(crate) fn go_on(self: &Arc<Self>, context: &mut Context<'_>) -> bool {
        let mut is_any_done = self.send_again(context);
        let mut next = context.tasks.reads.keys().next().copied();
        while let Some(id) = next {
            let Some(mut read) = context.tasks.reads.remove(&id) else { break };
            let room = (&mut *context.out, context.tasks.unsent_bytes);
            let progress = read.go_on(self, context.connection, context.tasks, room);
            if progress == Progress::Done {
                context.connection.sequence().unfinished(-1);
                is_any_done = true;
            } else {
                context.tasks.reads.insert(id, read);
            }
            if progress == Progress::Full {
                break;
            }
            next = context.tasks.reads.range(id + 1..).next().map(|(&id, _)| id);
        }
        is_any_done
    }

    /// Sends PDUs again that were asked for, while there is room; whether any was.
    fn send_again(&self, context: &mut Context<'_>) -> bool {
        let mut is_any = false;
        while has_room(context.out, context.tasks.unsent_bytes) {
            let Some(kept) = context.tasks.again.pop_front() else { break };
            is_any = true;
            match &kept.data {
                KeptData::Copy(data) => {
                    TargetConnection::send_again(&kept, data, context.out);
                }
                KeptData::Medium { lun, offset_bytes, length } => {
                    let mut data = vec![0; *length];
                    // As a READ would be now: the disk may be reserved or ejected by now.
                    let lun = Lun::decode(*lun)
                        .filter(|&lun| self.luns.may_read(lun, &lock(&context.session.nexus)));
                    let unit = lun.and_then(|lun| self.unit(lun));
                    let is_there = unit.is_some_and(|unit| {
                        let _shared = unit.atomic_lock.read();
                        unit.store.read_at(*offset_bytes, &mut data).is_ok()
                    });
                    if is_there {
                        TargetConnection::send_again(&kept, &data, context.out);
                    } else {
                        let reason = iscsi::fault::RejectReason::SnackReject;
                        context.connection.reject(reason, &kept.bhs, context.out);
                    }
                }
            }
        }
        is_any
    }

    /// Reads for the initiator: at once where little is read and nothing has to be waited for, and piece by piece
    /// elsewhere.
    #[inline]
    fn read(
        self: &Arc<Self>,
        command: &ScsiCommand,
        (lun, offset_bytes, length_bytes): (Lun, u64, u64),
        context: &mut Context<'_>,
    ) -> CommandState {
        let Some(unit) = self.unit(lun) else { return no_lun(command, context) };
        let Context { connection, out, .. } = context;
        let Unit { store, atomic_lock, .. } = &**unit;
        let wanted = if command.read { length_bytes.min(command.expected_bytes.into()) } else { 0 };
        if wanted <= AT_ONCE_BYTES && !may_borrow_bytes(wanted as usize, connection, out) {
            let may_wait = store.may_wait(Operation::Read);
            // Not while something is done to the disk atomically, which a slow disk can take long for.
            let shared = if may_wait { atomic_lock.try_read() } else { Some(atomic_lock.read()) };
            let is_kept_out = shared.is_none();
            let read = connection.respond_read(command, length_bytes, out, |at, buffer| {
                // Only what was not begun can be left to a job.
                if may_wait && at == 0 {
                    let is_there = !is_kept_out && store.read_now(offset_bytes, buffer)?;
                    return if is_there { Ok(()) } else { Err(Unread::Waits) };
                }
                Ok(store.read_at(offset_bytes + at, buffer)?)
            });
            drop(shared);
            match read {
                Ok(()) if wanted > 0 => {
                    let origin = ReadOrigin { lun: command.lun, offset_bytes };
                    connection.reads_from(command.tag, origin);
                    return CommandState::Over;
                }
                Ok(()) => return CommandState::Over,
                Err(ReadFailed { error: Unread::Waits, .. }) => {}
                Err(ReadFailed { error: Unread::Failed(error), data_pdus }) => {
                    let sense = self.luns.encode(command.lun, &read_sense(&error));
                    let status = status::CHECK_CONDITION;
                    connection.respond_status(command, status, &sense, 0, data_pdus, out);
                    return CommandState::Over;
                }
            }
        }
        let Some(sequence) = connection.begin_answer(command, length_bytes) else {
            connection.respond_status(command, status::GOOD, &[], length_bytes, 0, out);
            return CommandState::Over;
        };
        let Some(epoch) = context.tasks.lanes.epoch(lun) else { return CommandState::Over };
        let mut read = Read::new(command, (lun, offset_bytes, length_bytes), epoch.number(), sequence);
        connection.reads_from(command.tag, read.origin());
        let room = (&mut **out, context.tasks.unsent_bytes);
        if read.go_on(self, connection, context.tasks, room) == Progress::Done {
            return CommandState::Over;
        }
        connection.sequence().unfinished(1);
        context.tasks.reads.insert(context.tasks.next_read, read);
        context.tasks.next_read += 1;
        CommandState::Pending
    }

    /// Whether a plan is better carried out beside the connection's thread.
    fn is_slow(&self, plan: &Plan) -> bool {
        let waits = |lun: Lun| {
            let operations = [Operation::Read, Operation::Write, Operation::Discard, Operation::Flush];
            self.store(lun).is_some_and(|store| operations.iter().any(|&o| store.may_wait(o)))
        };
        match plan {
            Plan::Medium { lun, .. }
            | Plan::Take { lun, .. }
            | Plan::Read { lun, .. }
            | Plan::Write { lun, .. }
            | Plan::Flush { lun } => waits(*lun),
            Plan::Copy { segments, .. } => segments.iter().any(|s| waits(s.from.lun) || waits(s.to.lun)),
            _ => false,
        }
    }

    fn begin_write(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        (lun, to): (Lun, GatheredWrite),
        context: &mut Context<'_>,
    ) -> CommandState {
        let Some(unit) = self.unit(lun) else { return no_lun(command, context) };
        let Some(epoch) = context.tasks.lanes.epoch(lun) else { return CommandState::Over };
        let Unit { store, atomic_lock, .. } = &**unit;
        let GatheredWrite { offset_bytes, length_bytes, fua } = to;
        let order = WriteOrder {
            store_offset: offset_bytes,
            cdb_bytes: length_bytes,
            stable: fua,
            epoch: epoch.number(),
        };
        let begun = context.connection.begin_write(command, immediate.len(), order, context.out);
        let Ok(begun) = begun else { return CommandState::Over };
        let data = &immediate[..begun.useful_bytes];
        let waits = store.may_wait(Operation::Write) || (fua && store.may_wait(Operation::Flush));
        if !begun.complete {
            let length = length_bytes.min(command.expected_bytes.into()) as usize;
            if waits
                && let Some((mut whole, share)) =
                    gathering_room(context, length, |length| store.try_buffer(length))
            {
                whole[..data.len()].copy_from_slice(data);
                // The memory may be that of another session's data before.
                whole[data.len()..].fill(0);
                let taken = Taken { cdb: command.cdb, lun, data: whole, write: Some(to), share };
                context.tasks.gathering.insert(command.tag, taken);
                return CommandState::Pending;
            }
            let Some(_working) = Epoch::enter(&*epoch) else {
                context.connection.abort(|task| task.command.tag == command.tag);
                return CommandState::Over;
            };
            if let Err(error) = write(store, atomic_lock, offset_bytes, data) {
                let sense = self.luns.encode(command.lun, &write_sense(&error));
                context.connection.fail_write(command.tag, sense);
            }
            return CommandState::Pending;
        }
        if waits
            && let Some(share) = context.tasks.jobs.room(data.len() as u64)
            && let Ok(mut whole) = store.try_buffer(data.len())
        {
            whole.copy_from_slice(data);
            let job = Job { command: *command, r2ts: 0, epoch, changes: true, is_piece: false };
            self.write_beside(job, (unit, share), to, whole, &mut context.tasks.jobs);
            return CommandState::Pending;
        }
        let Some(_working) = Epoch::enter(&*epoch) else { return CommandState::Over };
        let outcome = if fua {
            let _shared = atomic_lock.read();
            store.write_stable_at(offset_bytes, data)
        } else {
            write(store, atomic_lock, offset_bytes, data)
        };
        self.respond(command, outcome, length_bytes, context);
        CommandState::Over
    }

    /// Writes beside the connection's thread.
    fn write_beside(
        self: &Arc<Self>,
        job: Job,
        (unit, share): (&Arc<Unit>, Share),
        to: GatheredWrite,
        data: Buffer,
        jobs: &mut Jobs,
    ) {
        let (table, lun_field, bytes) = (Arc::clone(self), job.command.lun, data.len() as u64);
        let request = Request::Write { offset: to.offset_bytes, data, is_stable: to.fua };
        jobs.ask(job, (unit, Some(share), bytes), request, move |ended: Ended| {
            table.ended(lun_field, ended.outcome, to.length_bytes)
        });
    }

    /// Writes the data of a Data-Out PDU and goes on with its task.
    pub(crate) fn write_data(
        self: &Arc<Self>,
        (tag, lun_field, store_offset): (u32, [u8; 8], u64),
        data: &[u8],
        context: &mut Context<'_>,
    ) -> CommandState {
        let Some(task) = context.connection.write_task(tag) else { return CommandState::Pending };
        let (epoch, lun) = (task.order.epoch, Lun::decode(lun_field));
        // The session may not use the disk any more, or the task was aborted while its data was on its way.
        let Some(lun) = lun.filter(|&lun| context.tasks.lanes.is_current(lun, epoch)) else {
            context.connection.abort(|task| task.command.tag == tag);
            context.tasks.gathering.prune(context.connection);
            return CommandState::Over;
        };
        if let Some(taken) = context.tasks.gathering.taken.get_mut(&tag) {
            let from =
                store_offset.saturating_sub(taken.write.map_or(0, |write| write.offset_bytes)) as usize;
            let place = from..from.saturating_add(data.len());
            if let Some(place) = taken.data.get_mut(place) {
                place.copy_from_slice(data);
            }
            if !context.connection.has_all_data(tag) {
                return CommandState::of(context.connection.data_taken(tag, Ok(()), context.out));
            }
            return self.conclude_taken(tag, context);
        }
        let (unit, epoch) = (self.unit(lun), context.tasks.lanes.epoch(lun));
        let (Some(unit), Some(epoch)) = (unit, epoch) else {
            let sense = Sense::NO_SUCH_LUN.encode();
            return CommandState::of(context.connection.data_taken(tag, Err(sense), context.out));
        };
        let Some(_working) = Epoch::enter(&*epoch) else {
            context.connection.abort(|task| task.command.tag == tag);
            return CommandState::Over;
        };
        let mut outcome = write(&unit.store, &unit.atomic_lock, store_offset, data);
        if context.connection.must_be_stable(tag) {
            outcome = outcome.and_then(|()| unit.store.flush());
        }
        let outcome = outcome.map_err(|error| self.luns.encode(lun_field, &write_sense(&error)));
        CommandState::of(context.connection.data_taken(tag, outcome, context.out))
    }

    /// All data of a command that gathered it is there.
    fn conclude_taken(self: &Arc<Self>, tag: u32, context: &mut Context<'_>) -> CommandState {
        let Some(taken) = context.tasks.gathering.remove(tag) else { return CommandState::Pending };
        let Some(ReleasedWrite { command, r2ts }) = context.connection.release_write(tag) else {
            return CommandState::Pending;
        };
        let moved_bytes = taken.data.len() as u64;
        if let Some(to) = taken.write {
            let unit = self.unit(taken.lun);
            let (Some(unit), Some(job)) = (unit, context.job(&command, taken.lun, true)) else {
                return no_lun(&command, context);
            };
            // The memory is claimed already, so the job begins whatever other jobs there are.
            let job = Job { r2ts, ..job };
            self.write_beside(job, (unit, taken.share), to, taken.data, &mut context.tasks.jobs);
            return CommandState::Pending;
        }
        // What it changes beside the medium (reservations, mode parameters) is fenced like the medium.
        let epoch = context.tasks.lanes.epoch(taken.lun);
        let working = epoch.as_deref().map(Epoch::enter);
        if matches!(working, Some(None)) {
            return CommandState::Over;
        }
        let save = self.save(taken.lun);
        let plan = self.luns.finish(taken.lun, &taken.cdb, &taken.data, &lock(&context.session.nexus), &save);
        drop(taken.data);
        drop(taken.share);
        self.conclude_or_begin(&command, (plan, r2ts), moved_bytes, context)
    }

    /// Begins to gather a command's data.
    fn begin_taking(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        (lun, length_bytes): (Lun, u64),
        context: &mut Context<'_>,
    ) -> CommandState {
        if length_bytes > 0 && length_bytes != u64::from(command.expected_bytes) {
            // Half a list of parameters, or more than there can be, is none.
            context.check(command, &Sense::PARAMETER_LENGTH.encode());
            return CommandState::Over;
        }
        if length_bytes == 0 {
            if command.expected_bytes > 0 {
                context.check(command, &Sense::INVALID_FIELD.encode());
            } else {
                context.connection.respond_status(command, status::GOOD, &[], 0, 0, context.out);
            }
            return CommandState::Over;
        }
        let Some(epoch) = context.tasks.lanes.epoch(lun) else { return CommandState::Over };
        // What the initiator does not send is not there: a shorter transfer brings less.
        let length =
            length_bytes.min(command.expected_bytes.into()).min(scsi::limits::TAKEN_BYTES_MAX) as usize;
        let Some((mut data, share)) = gathering_room(context, length, Buffer::try_new) else {
            context.connection.respond_status(command, status::TASK_SET_FULL, &[], 0, 0, context.out);
            return CommandState::Over;
        };
        let order = WriteOrder { cdb_bytes: length_bytes, epoch: epoch.number(), ..WriteOrder::default() };
        let begun = context.connection.begin_write(command, immediate.len(), order, context.out);
        let Ok(begun) = begun else { return CommandState::Over };
        let here = begun.useful_bytes.min(length);
        data[..here].copy_from_slice(&immediate[..here]);
        if begun.complete {
            let Some(_working) = Epoch::enter(&*epoch) else { return CommandState::Over };
            let save = self.save(lun);
            let plan = self.luns.finish(lun, &command.cdb, &data, &lock(&context.session.nexus), &save);
            return self.conclude_or_begin(command, (plan, 0), length_bytes, context);
        }
        context
            .tasks
            .gathering
            .insert(command.tag, Taken { cdb: command.cdb, lun, data, write: None, share });
        CommandState::Pending
    }

    /// The epochs of the logical units that a copy writes to: whoever fences its nexus off one of them stops it there.
    /// Nothing where the session may not use one any more.
    fn copy_epochs(&self, plan: &Plan, context: &mut Context<'_>) -> Option<CopyEpochs> {
        let mut epochs = CopyEpochs::new();
        let Plan::Copy { segments, .. } = plan else { return Some(epochs) };
        for lun in segments.iter().map(|segment| segment.to.lun) {
            if !context.tasks.lanes.is_open(lun) {
                let unit = self.unit(lun)?;
                context.tasks.lanes.open(lun, unit, context.session);
            }
            epochs.insert(lun.0, context.tasks.lanes.epoch(lun)?);
        }
        Some(epochs)
    }

    /// Carries out a plan that needs no more data: status and sense.
    fn conclude(
        &self,
        lun_field: [u8; 8],
        plan: Plan,
        session: &Session,
        copies: &CopyEpochs,
    ) -> (u8, Vec<u8>) {
        let outcome = match plan {
            Plan::Medium { lun, action } => match self.unit(lun) {
                Some(unit) => medium::act(&*unit.store, &unit.atomic_lock, action)
                    .and_then(|()| self.through(lun))
                    .map(|()| status::GOOD),
                None => Err(Sense::NO_SUCH_LUN),
            },
            Plan::Status(status) => Ok(status),
            Plan::Changed { lun, attention } => {
                // Every other session learns of it once, the one that changed it never.
                let tells =
                    |other: &Session| other.instance != session.instance || is_planted(Bug::TellsOriginator);
                self.effects.raise(lun, attention, tells);
                Ok(status::GOOD)
            }
            Plan::Copy { lun, segments, list_identifier } => {
                let (copied, outcome) = self.copy(&segments, copies);
                if let (Some(disk), Some(identifier)) = (self.luns.0.get(&lun), list_identifier) {
                    note_copy(disk, session, identifier, &segments[..copied], outcome.is_ok());
                }
                outcome.map(|()| status::GOOD)
            }
            Plan::Check(sense) => Err(sense),
            _ => Err(Sense::INVALID_FIELD),
        };
        match outcome {
            Ok(status) => (status, Vec::new()),
            Err(sense) => (status::CHECK_CONDITION, self.luns.encode(lun_field, &sense)),
        }
    }

    /// Brings what was written to stable storage where the disk's cache is switched off.
    fn through(&self, lun: Lun) -> Result<(), Sense> {
        match (self.luns.0.get(&lun), self.store(lun)) {
            (Some(disk), Some(store)) if disk.is_write_through() => {
                store.flush().map_err(|error| write_sense(&error))
            }
            _ => Ok(()),
        }
    }

    /// Copies segment after segment; how many were copied, and why not all.
    fn copy(&self, segments: &[Segment], copies: &CopyEpochs) -> (usize, Result<(), Sense>) {
        for (index, segment) in segments.iter().enumerate() {
            let (from, to) = (segment.from, segment.to);
            let (Some(a), Some(b), Some(epoch)) =
                (self.unit(from.lun), self.unit(to.lun), copies.get(&to.lun.0))
            else {
                return (index, Err(Sense::COPY_ABORTED));
            };
            let a = (&*a.store, &*a.atomic_lock, from.offset_bytes);
            let b = (&*b.store, &*b.atomic_lock, to.offset_bytes);
            let enter = || Epoch::enter(&**epoch);
            let copied = medium::copy(a, b, segment.length_bytes, enter).and_then(|()| self.through(to.lun));
            if let Err(sense) = copied {
                return (index, Err(sense));
            }
        }
        (segments.len(), Ok(()))
    }
}

/// Memory to gather a command's data in; nothing where this connection, or the target, has none.
fn gathering_room(
    context: &mut Context<'_>,
    length: usize,
    buffer: impl FnOnce(usize) -> Result<Buffer, StoreError>,
) -> Option<(Buffer, Share)> {
    context.tasks.gathering.prune(context.connection);
    let gathering = &context.tasks.gathering;
    if gathering.bytes + length > gathering.limit {
        return None;
    }
    let share = context.tasks.jobs.claim(length)?;
    Some((buffer(length).ok()?, share))
}

/// LOGICAL UNIT COMMUNICATION TIME-OUT: what a PREEMPT AND ABORT waited for did not end.
pub(crate) const ABORT_TIMED_OUT: Sense = Sense::new(SenseKey::HardwareError, 0x08, 0x01);

fn note_copy(disk: &Disk, session: &Session, identifier: u8, copied: &[Segment], is_whole: bool) {
    disk.shared.copies.ended(&lock(&session.nexus), identifier, copied, is_whole);
}

/// Reads up to this are answered at once where nothing has to be waited for, bytes.
const AT_ONCE_BYTES: u64 = 64 << 10;

/// Data shorter than this is copied into the response: that costs less than to send it by itself.
const BORROWED_BYTES_MIN: usize = 16 << 10;

/// Whether a response refers to its data rather than holding it.
#[inline]
pub(crate) fn may_borrow_bytes(bytes: usize, connection: &TargetConnection, out: &TransmitBuffer) -> bool {
    bytes >= BORROWED_BYTES_MIN && connection.may_borrow(out)
}

/// How many times the bytes that a connection may hold unsent may be borrowed ones, which cost it no memory.
const BORROWED_TIMES: usize = 4;

/// Whether answers that wait to be sent leave room for others.
#[inline]
pub(crate) fn has_room(out: &TransmitBuffer, unsent_bytes: usize) -> bool {
    out.own_bytes() < unsent_bytes && out.waiting_bytes() < BORROWED_TIMES * unsent_bytes
}

/// Why data is not there.
enum Unread {
    /// It has to be waited for.
    Waits,
    /// It cannot be had.
    Failed(StoreError),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

/// Writes data, apart from steps that must be whole.
#[inline]
fn write(
    store: &Arc<dyn Store>,
    atomic_lock: &RwLock<()>,
    offset: u64,
    data: &[u8],
) -> Result<(), StoreError> {
    if data.is_empty() {
        return Ok(());
    }
    let _shared = atomic_lock.read();
    store.write_at(offset, data)
}

/// Answers with data that lies in memory, so reading it cannot fail.
fn respond_data(
    command: &ScsiCommand,
    data: &[u8],
    connection: &mut TargetConnection,
    out: &mut TransmitBuffer,
) {
    let _ = connection.respond_read(command, data.len() as u64, out, |at, buffer| {
        let from = at as usize;
        data.get(from..from + buffer.len()).map(|piece| buffer.copy_from_slice(piece)).ok_or(())
    });
}

/// GET LBA STATUS parameter data (SBC-3 5.6.2): runs of mapped and unmapped blocks.
fn mapped_status(store: &dyn Store, offset_bytes: u64, block_bytes: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 8]);
    let (mut at, block) = (offset_bytes, u64::from(block_bytes.max(1)));
    for _ in 0..MAPPED_RUNS_MAX {
        if at >= store.size_bytes() {
            break;
        }
        let (is_mapped, run_bytes) = store.is_mapped(at);
        let blocks = (run_bytes / block).clamp(1, u64::from(u32::MAX));
        out.extend_from_slice(&(at / block).to_be_bytes());
        out.extend_from_slice(&(blocks as u32).to_be_bytes());
        // 0: mapped; 1: deallocated.
        out.extend_from_slice(&[u8::from(!is_mapped), 0, 0, 0]);
        at += blocks * block;
    }
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
}

/// Most runs of one answer.
const MAPPED_RUNS_MAX: usize = 64;

fn no_lun(command: &ScsiCommand, context: &mut Context<'_>) -> CommandState {
    context.check(command, &Sense::NO_SUCH_LUN.encode());
    CommandState::Over
}

pub(crate) fn read_sense(error: &StoreError) -> Sense {
    tracing::warn!(%error, "a read failed");
    match error {
        StoreError::Injected(fault) => fault_sense(*fault).unwrap_or(Sense::READ_ERROR),
        _ => Sense::READ_ERROR,
    }
}

pub(crate) fn write_sense(error: &StoreError) -> Sense {
    tracing::warn!(%error, "a write failed");
    match error {
        StoreError::ReadOnly => Sense::WRITE_PROTECTED,
        StoreError::NoMemory(_) | StoreError::NoSpace(_) => Sense::SPACE_ALLOCATION_FAILED,
        StoreError::Injected(fault) => fault_sense(*fault).unwrap_or(Sense::WRITE_ERROR),
        StoreError::OutOfRange { .. }
        | StoreError::FixedSize(_)
        | StoreError::Cancelled
        | StoreError::Io { .. } => Sense::WRITE_ERROR,
    }
}

/// What a fault is to the initiator, where reads and writes tell it alike.
fn fault_sense(fault: Fault) -> Option<Sense> {
    match fault {
        Fault::Medium => None,
        Fault::Hardware => Some(Sense::INTERNAL_FAILURE),
        Fault::NotReady => Some(Sense::NOT_READY),
        Fault::NoSpace => Some(Sense::SPACE_ALLOCATION_FAILED),
    }
}
