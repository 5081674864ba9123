//! Commands with data from the initiator: written as it arrives, or gathered first.

use std::sync::Arc;

use iscsi::pdu::ScsiCommand;
use iscsi::status;
use iscsi::target::{ReleasedWrite, WriteOrder};
use parking_lot::RwLock;
use scsi::{Lun, Sense};
use store::Operation;
use store::{Buffer, Ended, Request, Store, StoreError};

use crate::context::{CommandState, Context, Transfer, no_lun};
use crate::fence::Epoch;
use crate::gathering::{GatheredCommand, GatheredWrite};
use crate::jobs::{Job, Jobs, Room};
use crate::lock::lock;
use crate::memory::Share;
use crate::read::Extent;
use crate::sense::write_sense;
use crate::table::Table;
use crate::unit::Unit;

/// The data of a Data-Out PDU and its destination.
#[derive(Clone, Copy)]
pub(crate) struct DataOut<'a> {
    pub(crate) tag: u32,
    /// The LUN field of the PDU.
    pub(crate) lun: [u8; 8],
    pub(crate) store_offset: u64,
    pub(crate) data: &'a [u8],
}

impl Table {
    pub(super) fn begin_write(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        to: GatheredWrite,
        context: &mut Context<'_>,
    ) -> CommandState {
        let GatheredWrite { extent: Extent { lun, offset_bytes, length_bytes }, fua } = to;
        let Some(unit) = self.unit(lun) else { return no_lun(command, context) };
        let Some(epoch) = context.tasks.open_units.epoch(lun) else { return CommandState::Over };
        let Unit { store, atomic_lock, .. } = &**unit;
        let order = WriteOrder {
            store_offset: offset_bytes,
            cdb_bytes: length_bytes,
            stable: fua,
            epoch: epoch.number(),
        };
        let waits = store.may_wait(Operation::Write) || (fua && store.may_wait(Operation::Flush));
        let length = length_bytes.min(command.expected_bytes.into()) as usize;
        let mut gathers = None;
        if waits && immediate.len() < length {
            gathers = gathering_room(context, length, |length| store.try_buffer(length));
            if gathers.is_none() {
                // Written as it arrives, it would hold up this and other connections until the disk has answered.
                context.connection.respond_status(command, status::TASK_SET_FULL, &[], 0, 0, context.out);
                return CommandState::Over;
            }
        }
        let begun = context.connection.begin_write(command, immediate.len(), order, context.out);
        let Ok(begun) = begun else { return CommandState::Over };
        let data = &immediate[..begun.useful_bytes];
        if !begun.complete {
            if let Some((mut whole, share)) = gathers {
                whole[..data.len()].copy_from_slice(data);
                // The buffer may hold old data of another session.
                whole[data.len()..].fill(0);
                let gathered = GatheredCommand { cdb: command.cdb, lun, data: whole, write: Some(to), share };
                context.tasks.gathering.insert(command.tag, gathered);
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
        if waits {
            let jobs = &context.tasks.jobs;
            let share = jobs.room(data.len() as u64).or_else(|| jobs.spare());
            let (Some(share), Ok(mut whole)) = (share, store.try_buffer(data.len())) else {
                context.connection.respond_status(command, status::BUSY, &[], 0, 0, context.out);
                return CommandState::Over;
            };
            whole.copy_from_slice(data);
            let job = Job { command: *command, r2ts: 0, epoch, changes: true, is_piece: false };
            let room = Room { unit, share: Some(share), bytes: whole.len() as u64 };
            self.submit_write(job, room, to, whole, &mut context.tasks.jobs);
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

    /// Submits a write as a job.
    pub(super) fn submit_write(
        self: &Arc<Self>,
        job: Job,
        room: Room<'_>,
        to: GatheredWrite,
        data: Buffer,
        jobs: &mut Jobs,
    ) {
        let (table, lun_field, length_bytes) = (Arc::clone(self), job.command.lun, to.extent.length_bytes);
        let request = Request::Write { offset: to.extent.offset_bytes, data, is_stable: to.fua };
        jobs.submit(job, room, request, move |ended: Ended| {
            table.ended(lun_field, ended.outcome, length_bytes)
        });
    }

    /// Writes or gathers the data of a Data-Out PDU and advances its task.
    pub(crate) fn write_data(
        self: &Arc<Self>,
        data_out: DataOut<'_>,
        context: &mut Context<'_>,
    ) -> CommandState {
        let DataOut { tag, lun: lun_field, store_offset, data } = data_out;
        let Some(task) = context.connection.write_task(tag) else { return CommandState::Pending };
        let (epoch, lun) = (task.order.epoch, Lun::decode(lun_field));
        // The session may no longer use the disk, or the task was aborted while its data was in transit.
        let Some(lun) = lun.filter(|&lun| context.tasks.open_units.is_current(lun, epoch)) else {
            context.connection.abort(|task| task.command.tag == tag);
            context.tasks.gathering.prune(context.connection);
            return CommandState::Over;
        };
        if let Some(gathered) = context.tasks.gathering.commands.get_mut(&tag) {
            let from = store_offset
                .saturating_sub(gathered.write.map_or(0, |write| write.extent.offset_bytes))
                as usize;
            let place = from..from.saturating_add(data.len());
            if let Some(place) = gathered.data.get_mut(place) {
                place.copy_from_slice(data);
            }
            if !context.connection.has_all_data(tag) {
                return CommandState::of(context.connection.data_taken(tag, Ok(()), context.out));
            }
            return self.conclude_gathered(tag, context);
        }
        let (unit, epoch) = (self.unit(lun), context.tasks.open_units.epoch(lun));
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

    /// Executes a command whose gathered data is complete.
    pub(super) fn conclude_gathered(self: &Arc<Self>, tag: u32, context: &mut Context<'_>) -> CommandState {
        let Some(gathered) = context.tasks.gathering.remove(tag) else { return CommandState::Pending };
        let Some(ReleasedWrite { command, r2ts }) = context.connection.release_write(tag) else {
            return CommandState::Pending;
        };
        let moved_bytes = gathered.data.len() as u64;
        if let Some(to) = gathered.write {
            let unit = self.unit(gathered.lun);
            let (Some(unit), Some(job)) = (unit, context.job(&command, gathered.lun, true)) else {
                return no_lun(&command, context);
            };
            // The memory is claimed already, so the job needs no check of the connection's job limit.
            let job = Job { r2ts, ..job };
            let room = Room { unit, share: Some(gathered.share), bytes: moved_bytes };
            self.submit_write(job, room, to, gathered.data, &mut context.tasks.jobs);
            return CommandState::Pending;
        }
        // Reservations and mode parameters are fenced like the medium.
        let epoch = context.tasks.open_units.epoch(gathered.lun);
        let working = epoch.as_deref().map(Epoch::enter);
        if matches!(working, Some(None)) {
            return CommandState::Over;
        }
        let save = self.save(gathered.lun);
        let plan = self.luns.finish(
            gathered.lun,
            &gathered.cdb,
            &gathered.data,
            &lock(&context.session.nexus),
            &save,
        );
        drop(gathered.data);
        drop(gathered.share);
        self.conclude_or_begin(&command, plan, Transfer { r2ts, moved_bytes }, context)
    }

    /// Begins to gather the data of a command.
    pub(super) fn begin_gathering(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        lun: Lun,
        length_bytes: u64,
        context: &mut Context<'_>,
    ) -> CommandState {
        if length_bytes > 0 && length_bytes != u64::from(command.expected_bytes) {
            // A truncated parameter list must not be executed (SPC: PARAMETER LIST LENGTH ERROR).
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
        let Some(epoch) = context.tasks.open_units.epoch(lun) else { return CommandState::Over };
        // No more than the Expected Data Transfer Length arrives.
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
            return self.conclude_or_begin(
                command,
                plan,
                Transfer { r2ts: 0, moved_bytes: length_bytes },
                context,
            );
        }
        context
            .tasks
            .gathering
            .insert(command.tag, GatheredCommand { cdb: command.cdb, lun, data, write: None, share });
        CommandState::Pending
    }
}

/// Returns memory to gather a command's data in; `None` when the connection or the target is at its limit.
fn gathering_room(
    context: &mut Context<'_>,
    length: usize,
    buffer: impl FnOnce(usize) -> Result<Buffer, StoreError>,
) -> Option<(Buffer, Share)> {
    context.tasks.gathering.prune(context.connection);
    let gathering = &context.tasks.gathering;
    // One command may always be gathered: a limit that is shorter than a command would refuse it for good.
    if gathering.bytes > 0 && gathering.bytes + length > gathering.limit {
        return None;
    }
    let share = context.tasks.jobs.claim(length)?;
    Some((buffer(length).ok()?, share))
}

/// Writes data while no atomic operation runs.
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
