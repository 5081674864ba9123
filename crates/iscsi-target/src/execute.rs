//! Execution of planned commands on stores.

mod conclude;
mod mapped;
mod write;

pub(crate) use write::DataOut;

use std::sync::Arc;

use iscsi::pdu::ScsiCommand;
use iscsi::replay::{KeptData, ReadOrigin};
use iscsi::status;
use iscsi::target::{ReadFailed, TargetConnection};
use scsi::{Action, Durable, Lun, Plan, Sense, log_sense};
use store::Operation;
use store::{Request, Store, StoreError};

use crate::context::{CommandState, Context, Transfer, no_lun};
use crate::done::Outcome;
use crate::gathering::GatheredWrite;
use crate::jobs::{Job, Room};
use crate::lock::lock;
use crate::read::{Extent, Progress, Read, Supply};
use crate::room::{has_room, may_borrow_bytes};
use crate::sense::{read_sense, write_sense};
use crate::table::Table;
use crate::tasks::Tasks;
use crate::unit::Unit;

use mapped::Mapped;

impl Table {
    fn store(&self, lun: Lun) -> Option<&dyn Store> {
        self.unit(lun).map(|unit| &*unit.store)
    }

    /// Returns a function that saves durable state changed by a command. It is called before the change takes effect.
    fn save(&self, lun: Lun) -> impl Fn(&Durable) -> Result<(), Sense> + '_ {
        move |durable| self.luns.0.get(&lun).map_or(Ok(()), |disk| self.effects.save(disk, durable))
    }

    /// Plans and executes a command for an entered logical unit, and appends its response. Pending when more data must
    /// arrive or the response follows later.
    #[inline]
    pub(crate) fn execute(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        context: &mut Context<'_>,
    ) -> CommandState {
        if command.read && command.write_data {
            // Bidirectional: none of the supported commands transfers data both ways.
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
            // Abandoned operations are still at the disk: more must not queue up behind them.
            context.connection.respond_status(command, status::BUSY, &[], 0, 0, context.out);
            return CommandState::Over;
        }
        match plan {
            Plan::Take { lun, length_bytes } => {
                self.begin_gathering(command, immediate, lun, length_bytes, context)
            }
            Plan::Read { lun, offset_bytes, length_bytes } => {
                self.read(command, Extent { lun, offset_bytes, length_bytes }, context)
            }
            Plan::Write { lun, offset_bytes, length_bytes, fua } => {
                let extent = Extent { lun, offset_bytes, length_bytes };
                self.begin_write(command, immediate, GatheredWrite { extent, fua }, context)
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
                let Some(unit) = self.unit(lun) else { return no_lun(command, context) };
                let from = Mapped { offset_bytes, block_bytes, allocation };
                if unit.store.may_wait(Operation::Map) {
                    // Its session may no longer use the unit.
                    let Some(job) = context.job(command, lun, false) else { return CommandState::Over };
                    let jobs = &context.tasks.jobs;
                    let Some(share) = jobs.room(0).or_else(|| jobs.spare()) else {
                        context.connection.respond_status(command, status::BUSY, &[], 0, 0, context.out);
                        return CommandState::Over;
                    };
                    let store = Arc::clone(&unit.store);
                    context.tasks.jobs.begin(job, Room { unit, share: Some(share), bytes: 0 }, move || {
                        Outcome::Answer(mapped::status(&*store, from))
                    });
                    return CommandState::Pending;
                }
                context.answer(command, &mapped::status(&*unit.store, from));
                CommandState::Over
            }
            Plan::Log { lun, request } => {
                let (Some(unit), Some(disk)) = (self.unit(lun), self.luns.0.get(&lun)) else {
                    return no_lun(command, context);
                };
                log_sense::page(&request, &disk.shared.log, unit.counters.processed(), scratch);
                scratch.truncate(request.allocation);
                context.answer(command, scratch);
                CommandState::Over
            }
            Plan::Flush { lun } => {
                let Some(unit) = self.unit(lun) else { return no_lun(command, context) };
                if unit.store.may_wait(Operation::Flush) {
                    let Some(job) = context.job(command, lun, false) else { return CommandState::Over };
                    // On this thread it would hold up every other connection until the disk has answered.
                    let jobs = &context.tasks.jobs;
                    let Some(share) = jobs.room(0).or_else(|| jobs.spare()) else {
                        context.connection.respond_status(command, status::BUSY, &[], 0, 0, context.out);
                        return CommandState::Over;
                    };
                    let (table, lun) = (Arc::clone(self), command.lun);
                    context.tasks.jobs.submit(
                        job,
                        Room { unit, share: Some(share), bytes: 0 },
                        Request::Flush,
                        move |ended| table.ended(lun, ended.outcome, 0),
                    );
                    return CommandState::Pending;
                }
                self.respond(command, unit.store.flush(), 0, context);
                CommandState::Over
            }
            Plan::Medium { .. } | Plan::Changed { .. } | Plan::Copy { .. } | Plan::Reserved { .. } => {
                self.conclude_or_begin(command, plan, Transfer::default(), context)
            }
        }
    }

    /// Returns the outcome of a write or flush.
    fn ended(&self, lun: [u8; 8], outcome: Result<(), StoreError>, moved_bytes: u64) -> Outcome {
        match outcome {
            Ok(()) => Outcome::Status(status::GOOD, Vec::new(), moved_bytes),
            Err(error) => {
                Outcome::Status(status::CHECK_CONDITION, self.luns.encode(lun, &write_sense(&error)), 0)
            }
        }
    }

    /// Answers a command whose write or flush has completed.
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

    /// Answers a command whose job has completed, or stores the chunk that its job has read.
    pub(crate) fn finish(self: &Arc<Self>, id: u64, job: &Job, outcome: Outcome, context: &mut Context<'_>) {
        match outcome {
            Outcome::Status(status, sense, moved_bytes) => {
                let (command, r2ts) = (&job.command, job.r2ts);
                context.connection.respond_status(command, status, &sense, moved_bytes, r2ts, context.out);
            }
            Outcome::Data(_) | Outcome::Failed(_) => {
                let mut reads = context.tasks.reads.values_mut();
                if let Some(read) = reads.find(|read| read.job == Some(id)) {
                    read.chunk_ended(outcome);
                }
            }
            Outcome::Answer(data) => context.answer(&job.command, &data),
            Outcome::Aborted => {}
        }
    }

    /// Retransmits PDUs and continues read responses in order of arrival, while there is room. Returns whether a response
    /// was completed or a PDU retransmitted.
    pub(crate) fn advance_reads(self: &Arc<Self>, context: &mut Context<'_>) -> bool {
        let mut is_any_done = self.send_again(context);
        let mut next = context.tasks.reads.keys().next().copied();
        while let Some(id) = next {
            let Some(mut read) = context.tasks.reads.remove(&id) else { break };
            let Tasks { jobs, open_units, unsent_bytes, .. } = &mut *context.tasks;
            let mut supply = Supply { table: self, jobs, epoch: open_units.epoch_ref(read.extent.lun) };
            let progress = read.advance(&mut supply, context.connection, context.out, *unsent_bytes);
            if progress == Progress::Done {
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

    /// Retransmits requested PDUs while there is room; returns whether any was.
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
                    // Checked like a new READ: the disk may be reserved or ejected by now.
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

    /// Executes a read: immediately when it is short and the data is available without blocking, otherwise chunk by chunk.
    #[inline]
    fn read(
        self: &Arc<Self>,
        command: &ScsiCommand,
        extent: Extent,
        context: &mut Context<'_>,
    ) -> CommandState {
        let Extent { lun, offset_bytes, length_bytes } = extent;
        let Some(unit) = self.unit(lun) else { return no_lun(command, context) };
        let Context { connection, out, .. } = context;
        let Unit { store, atomic_lock, .. } = &**unit;
        let wanted = if command.read { length_bytes.min(command.expected_bytes.into()) } else { 0 };
        if wanted <= AT_ONCE_BYTES && !may_borrow_bytes(wanted as usize, connection, out) {
            let may_wait = store.may_wait(Operation::Read);
            // An atomic operation may hold the lock for long on a slow disk: do not block on it.
            let shared = if may_wait { atomic_lock.try_read() } else { Some(atomic_lock.read()) };
            let is_kept_out = shared.is_none();
            let read = connection.respond_read(command, length_bytes, out, |at, buffer| {
                // Only a response without Data-In PDUs can be left to a job.
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
        let Some(epoch) = context.tasks.open_units.epoch(lun) else { return CommandState::Over };
        let mut read = Read::new(command, extent, epoch.number(), sequence);
        connection.reads_from(command.tag, read.origin());
        let Tasks { jobs, open_units, unsent_bytes, .. } = &mut *context.tasks;
        let mut supply = Supply { table: self, jobs, epoch: open_units.epoch_ref(lun) };
        if read.advance(&mut supply, connection, out, *unsent_bytes) == Progress::Done {
            return CommandState::Over;
        }
        read.count(connection);
        context.tasks.reads.insert(context.tasks.next_read, read);
        context.tasks.next_read += 1;
        CommandState::Pending
    }

    /// Returns whether a plan may block on its disk and should run as a job.
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
}

/// Whether a plan moves or compares so much that it would hold up the other connections of the thread, also on a disk that never
/// blocks.
fn is_long(plan: &Plan) -> bool {
    let bytes = match plan {
        Plan::Medium { action, .. } => match action {
            Action::Fill { length_bytes, .. } | Action::Compare { length_bytes, .. } => *length_bytes,
            Action::Unmap { ranges } => ranges.iter().map(|range| range.length_bytes).sum(),
            Action::SelfTest { .. } => 0,
            Action::WriteAtomic { data, .. } | Action::Or { data, .. } => data.len() as u64,
            Action::CompareAndWrite { expected, data, .. } => (expected.len() + data.len()) as u64,
        },
        Plan::Copy { segments, .. } => segments.iter().map(|segment| segment.length_bytes).sum(),
        _ => 0,
    };
    bytes > LONG_BYTES
}

/// Bytes that a thread fills, copies or compares in much less than 100 us, bytes.
const LONG_BYTES: u64 = 128 << 10;

/// Longest read that is answered in one step when its data is available without blocking, bytes.
const AT_ONCE_BYTES: u64 = 64 << 10;

/// Why a read returned no data.
enum Unread {
    /// The data is not available without blocking.
    Waits,
    /// The read failed.
    Failed(StoreError),
}

impl From<StoreError> for Unread {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}
