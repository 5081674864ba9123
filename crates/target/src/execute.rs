//! Commands carried out: plans against stores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use iscsi::pdu::ScsiCommand;
use iscsi::target::{ReadFailed, TargetConnection};
use iscsi::{TransmitBuffer, status};
use lent::{Lent, Source};
use parking_lot::RwLock;
use scsi::cdb::Cdb;
use scsi::copy::Segment;
use scsi::{Disk, Lun, Nexus, Plan, Sense};
use store::layer::Operation;
use store::{Buffer, Fault, Request, Store, StoreError};

use crate::disks::{Table, Unit};
use crate::jobs::{Jobs, Outcome, Running};
use crate::medium;
use crate::sessions::{Session, lock};

/// A command whose data is gathered before anything is done.
#[derive(Debug)]
struct Taken {
    cdb: Cdb,
    lun: Lun,
    data: Buffer,
    /// Where the data of a plain write goes; nothing for a command that is planned again with its data.
    write: Option<GatheredWrite>,
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
    taken: HashMap<u32, Taken>,
    bytes: usize,
    limit: usize,
}

impl Gathering {
    /// Gathers at most `limit` bytes at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Goes on with a command that another connection began to gather.
    pub(crate) fn adopt(&mut self, other: &mut Gathering, tag: u32) {
        if let Some(taken) = other.taken.remove(&tag) {
            self.bytes += taken.data.len();
            self.taken.insert(tag, taken);
        }
    }

    /// Forgets the commands that are no longer in progress.
    pub(crate) fn prune(&mut self, connection: &TargetConnection) {
        self.taken.retain(|&tag, _| connection.is_in_progress(tag));
        self.bytes = self.taken.values().map(|taken| taken.data.len()).sum();
    }
}

/// What a connection keeps for the commands that it executes.
pub(crate) struct Desktop {
    pub(crate) scratch: Vec<u8>,
    pub(crate) gathering: Gathering,
    pub(crate) jobs: Jobs,
}

impl Table {
    fn store(&self, lun: Lun) -> Option<&dyn Store> {
        self.unit(lun).map(|unit| &*unit.store)
    }

    /// Plans and carries out one command; everything it answers is appended to `out`. True when the command
    /// is over, false when more data must come or a job was begun.
    #[inline]
    pub(crate) fn execute(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        connection: &mut TargetConnection,
        session: &Arc<Session>,
        desktop: &mut Desktop,
        out: &mut TransmitBuffer,
    ) -> bool {
        let Desktop { scratch, gathering, jobs } = desktop;
        let nexus = &session.nexus;
        scratch.clear();
        if command.read && command.write_data {
            // Bidirectional commands: no command here moves data both ways.
            let sense = Sense::INVALID_FIELD.encode();
            connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
            return true;
        }
        let plan = self.luns.plan(command.lun, &command.cdb, &mut lock(nexus), scratch);
        if jobs.is_burdened() && self.is_slow(&plan) {
            // What nobody waits for any more is still with the disk: more must not pile up before it.
            connection.respond_status(command, status::BUSY, &[], 0, 0, out);
            return true;
        }
        match plan {
            Plan::Take { lun, length_bytes } => self.begin_taking(
                command,
                immediate,
                (lun, length_bytes),
                (connection, session),
                (gathering, jobs),
                out,
            ),
            Plan::Medium { .. } | Plan::Changed { .. } | Plan::Copy { .. } => {
                if self.is_slow(&plan) && jobs.has_room(0) {
                    self.conclude_beside((command, 0), plan, 0, session, jobs);
                    return false;
                }
                let (status, sense) = self.conclude(command.lun, plan, nexus);
                connection.respond_status(command, status, &sense, 0, 0, out);
                true
            }
            Plan::MappedStatus { lun, offset_bytes, block_bytes, allocation } => {
                let Some(store) = self.store(lun) else { return no_lun(command, connection, out) };
                mapped_status(store, offset_bytes, block_bytes, scratch);
                scratch.truncate(allocation);
                respond_data(command, scratch, scratch.len() as u64, connection, out);
                true
            }
            Plan::Read { lun, offset_bytes, length_bytes } => {
                self.read(command, (lun, offset_bytes, length_bytes), connection, jobs, out)
            }
            Plan::Write { lun, offset_bytes, length_bytes, fua } => self.begin_write(
                command,
                immediate,
                (lun, offset_bytes, length_bytes, fua),
                connection,
                (gathering, jobs),
                out,
            ),
            Plan::Data => {
                respond_data(command, scratch, scratch.len() as u64, connection, out);
                true
            }
            Plan::Status(status) => {
                connection.respond_status(command, status, &[], 0, 0, out);
                true
            }
            Plan::Check(sense) => {
                let sense = self.luns.encode(command.lun, &sense);
                connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
                true
            }
            Plan::Flush { lun } => {
                let Some(unit) = self.unit(lun) else { return no_lun(command, connection, out) };
                if unit.store.may_wait(Operation::Flush) && jobs.has_room(0) {
                    let (table, lun) = (Arc::clone(self), command.lun);
                    jobs.ask((command, 0), 0, (unit, Request::Flush), move |ended| {
                        table.ended(lun, ended.outcome, 0)
                    });
                    return false;
                }
                self.respond(command, unit.store.flush(), 0, connection, out);
                true
            }
        }
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
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
    ) {
        if let Outcome::Status(status, sense, moved) = self.ended(command.lun, outcome, moved_bytes) {
            connection.respond_status(command, status, &sense, moved, 0, out);
        }
    }

    /// Answers a command whose job is done.
    pub(crate) fn finish(
        running: &Running,
        outcome: Outcome,
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
    ) {
        let command = &running.command;
        match outcome {
            Outcome::Data(data, length_bytes) if lends(data.len(), connection, out) => {
                let length = data.len();
                let lent = Lent { source: Source::Memory(Arc::new(data)), offset: 0, length };
                connection.respond_lent(command, length_bytes, [lent], out);
            }
            Outcome::Data(data, length_bytes) => respond_data(command, &data, length_bytes, connection, out),
            Outcome::Status(status, sense, moved_bytes) => {
                connection.respond_status(command, status, &sense, moved_bytes, running.r2ts, out);
            }
            Outcome::GivenUp => {}
        }
    }

    /// Reads for the initiator: at once where nothing has to be waited for, by a job elsewhere. True when the
    /// command is over.
    #[inline]
    fn read(
        self: &Arc<Self>,
        command: &ScsiCommand,
        (lun, offset_bytes, length_bytes): (Lun, u64, u64),
        connection: &mut TargetConnection,
        jobs: &mut Jobs,
        out: &mut TransmitBuffer,
    ) -> bool {
        let Some(unit) = self.unit(lun) else { return no_lun(command, connection, out) };
        let Unit { store, step, .. } = &**unit;
        let may_wait = store.may_wait(Operation::Read) && jobs.has_room(length_bytes);
        // Not while somebody writes as one step, which a slow disk can take long for.
        let shared = if may_wait { step.try_read() } else { Some(step.read()) };
        let is_kept_out = shared.is_none();
        let wanted = length_bytes.min(command.expected_bytes.into()) as usize;
        if !is_kept_out && lends(wanted, connection, out) {
            match store.lend(offset_bytes, wanted) {
                Ok(Some(lent)) => {
                    connection.respond_lent(command, length_bytes, lent, out);
                    return true;
                }
                Ok(None) => {}
                Err(error) => {
                    let sense = self.luns.encode(command.lun, &read_sense(&error));
                    connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
                    return true;
                }
            }
        }
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
            Ok(()) => true,
            Err(ReadFailed { error: Unread::Waits, .. }) => {
                let (table, lun_field) = (Arc::clone(self), command.lun);
                let request = Request::Read { offset: offset_bytes, buffer: store.buffer(wanted) };
                jobs.ask((command, 0), length_bytes, (unit, request), move |ended| {
                    match (ended.outcome, ended.buffer) {
                        (Ok(()), Some(data)) => Outcome::Data(data, length_bytes),
                        (outcome, _) => {
                            let sense = outcome.err().map_or(Sense::READ_ERROR, |error| read_sense(&error));
                            let sense = table.luns.encode(lun_field, &sense);
                            Outcome::Status(status::CHECK_CONDITION, sense, 0)
                        }
                    }
                });
                false
            }
            Err(ReadFailed { error: Unread::Failed(error), data_pdus }) => {
                let sense = self.luns.encode(command.lun, &read_sense(&error));
                connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, data_pdus, out);
                true
            }
        }
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
            Plan::Copy { segments, .. } => segments.iter().any(|s| waits(s.from.0) || waits(s.to.0)),
            _ => false,
        }
    }

    /// Carries out a plan by a job.
    fn conclude_beside(
        self: &Arc<Self>,
        (command, r2ts): (&ScsiCommand, u32),
        plan: Plan,
        moved_bytes: u64,
        session: &Arc<Session>,
        jobs: &mut Jobs,
    ) {
        let (table, session, lun) = (Arc::clone(self), Arc::clone(session), command.lun);
        jobs.begin((command, r2ts), moved_bytes, move || {
            let (status, sense) = table.conclude(lun, plan, &session.nexus);
            Outcome::Status(status, sense, moved_bytes)
        });
    }

    fn begin_write(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        (lun, offset_bytes, length_bytes, fua): (Lun, u64, u64, bool),
        connection: &mut TargetConnection,
        (gathering, jobs): (&mut Gathering, &mut Jobs),
        out: &mut TransmitBuffer,
    ) -> bool {
        let Some(unit) = self.unit(lun) else { return no_lun(command, connection, out) };
        let Unit { store, step, .. } = &**unit;
        let Ok(begun) =
            connection.begin_write(command, immediate.len(), offset_bytes, length_bytes, fua, out)
        else {
            return true;
        };
        let data = &immediate[..begun.useful_bytes];
        let waits = store.may_wait(Operation::Write) || (fua && store.may_wait(Operation::Flush));
        if !begun.complete {
            let length = length_bytes.min(command.expected_bytes.into()) as usize;
            gathering.prune(connection);
            if waits && gathering.bytes + length <= gathering.limit {
                let mut whole = store.buffer(length);
                whole[..data.len()].copy_from_slice(data);
                // The memory may be that of another session's data before.
                whole[data.len()..].fill(0);
                let write = Some(GatheredWrite { offset_bytes, length_bytes, fua });
                gathering.bytes += length;
                gathering.taken.insert(command.tag, Taken { cdb: command.cdb, lun, data: whole, write });
                return false;
            }
            if let Err(error) = write(store, step, offset_bytes, data) {
                connection.fail_write(command.tag, self.luns.encode(command.lun, &write_sense(&error)));
            }
            return false;
        }
        if waits && jobs.has_room(data.len() as u64) {
            let to = GatheredWrite { offset_bytes, length_bytes, fua };
            let mut whole = store.buffer(data.len());
            whole.copy_from_slice(data);
            self.write_beside((command, 0), unit, to, whole, jobs);
            return false;
        }
        let outcome = if fua {
            let _shared = step.read();
            store.write_stable_at(offset_bytes, data)
        } else {
            write(store, step, offset_bytes, data)
        };
        self.respond(command, outcome, length_bytes, connection, out);
        true
    }

    /// Writes beside the connection's thread.
    fn write_beside(
        self: &Arc<Self>,
        (command, r2ts): (&ScsiCommand, u32),
        unit: &Arc<Unit>,
        to: GatheredWrite,
        data: Buffer,
        jobs: &mut Jobs,
    ) {
        let (table, lun_field, bytes) = (Arc::clone(self), command.lun, data.len() as u64);
        let request = Request::Write { offset: to.offset_bytes, data, is_stable: to.fua };
        jobs.ask((command, r2ts), bytes, (unit, request), move |ended| {
            table.ended(lun_field, ended.outcome, to.length_bytes)
        });
    }

    /// Writes the data of a Data-Out PDU and goes on with its task. True when the command is over.
    pub(crate) fn write_data(
        self: &Arc<Self>,
        (tag, lun, store_offset): (u32, [u8; 8], u64),
        data: &[u8],
        (connection, session): (&mut TargetConnection, &Arc<Session>),
        desktop: &mut Desktop,
        out: &mut TransmitBuffer,
    ) -> bool {
        let Desktop { gathering, jobs, .. } = desktop;
        if let Some(taken) = gathering.taken.get_mut(&tag) {
            let from =
                store_offset.saturating_sub(taken.write.map_or(0, |write| write.offset_bytes)) as usize;
            let place = from..from.saturating_add(data.len());
            if let Some(place) = taken.data.get_mut(place) {
                place.copy_from_slice(data);
            }
            if !connection.has_all_data(tag) {
                return connection.data_taken(tag, Ok(()), out);
            }
            let Some(taken) = gathering.taken.remove(&tag) else { return false };
            gathering.bytes = gathering.bytes.saturating_sub(taken.data.len());
            if let Some(to) = taken.write {
                // The data is in our hands, so the job begins whatever room there is.
                let Some(unit) = self.unit(taken.lun) else {
                    connection.end_write(tag, status::CHECK_CONDITION, &Sense::NO_SUCH_LUN.encode(), out);
                    return true;
                };
                let Some((command, r2ts)) = connection.release_write(tag) else { return false };
                self.write_beside((&command, r2ts), unit, to, taken.data, jobs);
                return false;
            }
            let plan = self.luns.finish(taken.lun, &taken.cdb, &taken.data, &lock(&session.nexus));
            if self.is_slow(&plan)
                && jobs.has_room(taken.data.len() as u64)
                && let Some((command, r2ts)) = connection.release_write(tag)
            {
                self.conclude_beside((&command, r2ts), plan, taken.data.len() as u64, session, jobs);
                return false;
            }
            let (status, sense) = self.conclude(lun, plan, &session.nexus);
            connection.end_write(tag, status, &sense, out);
            return true;
        }
        let unit = Lun::decode(lun).and_then(|lun| self.unit(lun));
        let Some(Unit { store, step, .. }) = unit.map(|unit| &**unit) else {
            return connection.data_taken(tag, Err(Sense::NO_SUCH_LUN.encode()), out);
        };
        let mut outcome = write(store, step, store_offset, data);
        if connection.must_be_stable(tag) {
            outcome = outcome.and_then(|()| store.flush());
        }
        connection.data_taken(tag, outcome.map_err(|error| self.luns.encode(lun, &write_sense(&error))), out)
    }
}

impl Table {
    /// Begins to gather a command's data. True when the command is over.
    fn begin_taking(
        self: &Arc<Self>,
        command: &ScsiCommand,
        immediate: &[u8],
        (lun, length_bytes): (Lun, u64),
        (connection, session): (&mut TargetConnection, &Arc<Session>),
        (gathering, jobs): (&mut Gathering, &mut Jobs),
        out: &mut TransmitBuffer,
    ) -> bool {
        gathering.prune(connection);
        if length_bytes > 0 && length_bytes != u64::from(command.expected_bytes) {
            // Half a list of parameters, or more than there can be, is none.
            let sense = Sense::PARAMETER_LENGTH.encode();
            connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
            return true;
        }
        if length_bytes == 0 {
            let surplus = command.expected_bytes > 0;
            let (status, sense) = if surplus {
                (status::CHECK_CONDITION, Sense::INVALID_FIELD.encode())
            } else {
                (status::GOOD, Vec::new())
            };
            connection.respond_status(command, status, &sense, 0, 0, out);
            return true;
        }
        // What the initiator does not send is not there: a shorter transfer brings less.
        let length =
            length_bytes.min(command.expected_bytes.into()).min(scsi::medium::TAKEN_BYTES_MAX) as usize;
        if gathering.bytes + length > gathering.limit {
            connection.respond_status(command, status::TASK_SET_FULL, &[], 0, 0, out);
            return true;
        }
        let Ok(begun) = connection.begin_write(command, immediate.len(), 0, length_bytes, false, out) else {
            return true;
        };
        let mut data = Buffer::new(length);
        let here = begun.useful_bytes.min(length);
        data[..here].copy_from_slice(&immediate[..here]);
        if begun.complete {
            let plan = self.luns.finish(lun, &command.cdb, &data, &lock(&session.nexus));
            if self.is_slow(&plan) && jobs.has_room(length_bytes) {
                self.conclude_beside((command, 0), plan, length_bytes, session, jobs);
                return false;
            }
            let (status, sense) = self.conclude(command.lun, plan, &session.nexus);
            connection.respond_status(command, status, &sense, length_bytes, 0, out);
            return true;
        }
        gathering.bytes += length;
        gathering.taken.insert(command.tag, Taken { cdb: command.cdb, lun, data, write: None });
        false
    }

    /// Carries out a plan that needs no more data: status and sense.
    fn conclude(&self, lun_field: [u8; 8], plan: Plan, nexus: &Mutex<Nexus>) -> (u8, Vec<u8>) {
        // What is to be kept is kept before the initiator is told.
        let kept = |lun| self.luns.0.get(&lun).map_or(Ok(()), |disk| self.desk.keep(disk));
        let outcome = match plan {
            Plan::Medium { lun, action } => match self.unit(lun) {
                Some(unit) => medium::act(&*unit.store, &unit.step, action)
                    .and_then(|()| self.through(lun))
                    .map(|()| status::GOOD),
                None => Err(Sense::NO_SUCH_LUN),
            },
            Plan::Status(status) => match Lun::decode(lun_field) {
                Some(lun) => kept(lun).map(|()| status),
                None => Ok(status),
            },
            Plan::Changed { lun, attention } => {
                self.desk.announce(lun, attention);
                kept(lun).map(|()| status::GOOD)
            }
            Plan::Copy { lun, segments, list_identifier } => {
                let (copied, outcome) = self.copy(&segments);
                if let (Some(disk), Some(identifier)) = (self.luns.0.get(&lun), list_identifier) {
                    note_copy(disk, nexus, identifier, &segments[..copied], outcome.is_ok());
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
    fn copy(&self, segments: &[Segment]) -> (usize, Result<(), Sense>) {
        for (index, segment) in segments.iter().enumerate() {
            let ((from, from_offset), (to, to_offset)) = (segment.from, segment.to);
            let (Some(a), Some(b)) = (self.unit(from), self.unit(to)) else {
                return (index, Err(Sense::COPY_ABORTED));
            };
            let (a, b) = ((&*a.store, &*a.step, from_offset), (&*b.store, &*b.step, to_offset));
            let copied = medium::copy(a, b, segment.length_bytes).and_then(|()| self.through(to));
            if let Err(sense) = copied {
                return (index, Err(sense));
            }
        }
        (segments.len(), Ok(()))
    }
}

fn note_copy(disk: &Disk, nexus: &Mutex<Nexus>, identifier: u8, copied: &[Segment], is_whole: bool) {
    disk.shared.copies.ended(&lock(nexus), identifier, copied, is_whole);
}

/// Data shorter than this is copied into the response: that costs less than to send it by itself.
const LENT_BYTES_MIN: usize = 16 << 10;

/// Whether a response refers to its data rather than holding it.
#[inline]
fn lends(bytes: usize, connection: &TargetConnection, out: &TransmitBuffer) -> bool {
    bytes >= LENT_BYTES_MIN && connection.may_lend(out)
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
fn write(store: &Arc<dyn Store>, step: &RwLock<()>, offset: u64, data: &[u8]) -> Result<(), StoreError> {
    if data.is_empty() {
        return Ok(());
    }
    let _shared = step.read();
    store.write_at(offset, data)
}

/// Answers with data that lies in memory, so reading it cannot fail. `length_bytes` is what the command would
/// transfer, for the residual count.
fn respond_data(
    command: &ScsiCommand,
    data: &[u8],
    length_bytes: u64,
    connection: &mut TargetConnection,
    out: &mut TransmitBuffer,
) {
    let _ = connection.respond_read(command, length_bytes, out, |at, buffer| {
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

fn no_lun(command: &ScsiCommand, connection: &mut TargetConnection, out: &mut TransmitBuffer) -> bool {
    connection.respond_status(command, status::CHECK_CONDITION, &Sense::NO_SUCH_LUN.encode(), 0, 0, out);
    true
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
