//! Commands carried out: plans against stores.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use iscsi::pdu::ScsiCommand;
use iscsi::target::TargetConnection;
use iscsi::{TransmitBuffer, status};
use scsi::cdb::Cdb;
use scsi::copy::Segment;
use scsi::{Disk, Lun, Nexus, Plan, Sense};
use store::{Fault, Store, StoreError};

use crate::disks::{Table, Unit};
use crate::medium;
use crate::sessions::lock;

/// A command whose data is gathered before anything is done.
#[derive(Debug)]
struct Taken {
    cdb: Cdb,
    lun: Lun,
    data: Vec<u8>,
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

impl Table {
    fn store(&self, lun: Lun) -> Option<&dyn Store> {
        self.unit(lun).map(|unit| &*unit.store)
    }

    /// Plans and carries out one command; everything it answers is appended to `out`. True when the command
    /// is over, false when more data must come.
    #[inline]
    pub(crate) fn execute(
        &self,
        command: &ScsiCommand,
        immediate: &[u8],
        connection: &mut TargetConnection,
        nexus: &Mutex<Nexus>,
        (scratch, gathering): (&mut Vec<u8>, &mut Gathering),
        out: &mut TransmitBuffer,
    ) -> bool {
        scratch.clear();
        if command.read && command.write_data {
            // Bidirectional commands: no command here moves data both ways.
            let sense = Sense::INVALID_FIELD.encode();
            connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
            return true;
        }
        let plan = self.luns.plan(command.lun, &command.cdb, &mut lock(nexus), scratch);
        match plan {
            Plan::Take { lun, length_bytes } => self.begin_taking(
                command,
                immediate,
                (lun, length_bytes),
                (connection, nexus),
                gathering,
                out,
            ),
            Plan::Medium { .. } | Plan::Changed { .. } | Plan::Copy { .. } => {
                let (status, sense) = self.conclude(command.lun, plan, nexus);
                connection.respond_status(command, status, &sense, 0, 0, out);
                true
            }
            Plan::MappedStatus { lun, offset_bytes, block_bytes, allocation } => {
                let Some(store) = self.store(lun) else { return no_lun(command, connection, out) };
                mapped_status(store, offset_bytes, block_bytes, scratch);
                scratch.truncate(allocation);
                respond_data(command, scratch, connection, out);
                true
            }
            Plan::Read { lun, offset_bytes, length_bytes } => {
                let Some(Unit { store, step }) = self.unit(lun) else {
                    return no_lun(command, connection, out);
                };
                // Not while somebody writes as one step.
                let shared = step.read().unwrap_or_else(PoisonError::into_inner);
                let read = connection.respond_read(command, length_bytes, out, |at, buffer| {
                    store.read_at(offset_bytes + at, buffer)
                });
                drop(shared);
                if let Err(failed) = read {
                    let sense = self.luns.encode(command.lun, &read_sense(&failed.error));
                    connection.respond_status(
                        command,
                        status::CHECK_CONDITION,
                        &sense,
                        0,
                        failed.data_pdus,
                        out,
                    );
                }
                true
            }
            Plan::Write { lun, offset_bytes, length_bytes, fua } => {
                self.begin_write(command, immediate, (lun, offset_bytes, length_bytes, fua), connection, out)
            }
            Plan::Data => {
                respond_data(command, scratch, connection, out);
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
                match self.store(lun).map(Store::flush) {
                    Some(Ok(())) => connection.respond_status(command, status::GOOD, &[], 0, 0, out),
                    Some(Err(error)) => {
                        let sense = self.luns.encode(command.lun, &write_sense(&error));
                        connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
                    }
                    None => return no_lun(command, connection, out),
                }
                true
            }
        }
    }

    fn begin_write(
        &self,
        command: &ScsiCommand,
        immediate: &[u8],
        (lun, offset_bytes, length_bytes, fua): (Lun, u64, u64, bool),
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
    ) -> bool {
        let Some(Unit { store, step }) = self.unit(lun) else { return no_lun(command, connection, out) };
        let Ok(begun) =
            connection.begin_write(command, immediate.len(), offset_bytes, length_bytes, fua, out)
        else {
            return true;
        };
        let data = &immediate[..begun.useful_bytes];
        let mut outcome = write(store, step, offset_bytes, data);
        if begun.complete && fua {
            outcome = outcome.and_then(|()| store.flush());
        }
        let sense = outcome.map_err(|error| self.luns.encode(command.lun, &write_sense(&error)));
        match (begun.complete, sense) {
            (true, Ok(())) => connection.respond_write(command, length_bytes, out),
            (true, Err(sense)) => {
                connection.respond_status(command, status::CHECK_CONDITION, &sense, 0, 0, out);
            }
            (false, Ok(())) => {}
            (false, Err(sense)) => connection.fail_write(command.tag, sense),
        }
        begun.complete
    }

    /// Writes the data of a Data-Out PDU and goes on with its task. True when the command is over.
    pub(crate) fn write_data(
        &self,
        (tag, lun, store_offset): (u32, [u8; 8], u64),
        data: &[u8],
        (connection, nexus): (&mut TargetConnection, &Mutex<Nexus>),
        gathering: &mut Gathering,
        out: &mut TransmitBuffer,
    ) -> bool {
        if let Some(taken) = gathering.taken.get_mut(&tag) {
            let place = store_offset as usize..(store_offset as usize).saturating_add(data.len());
            if let Some(place) = taken.data.get_mut(place) {
                place.copy_from_slice(data);
            }
            if !connection.has_all_data(tag) {
                return connection.data_taken(tag, Ok(()), out);
            }
            let Some(taken) = gathering.taken.remove(&tag) else { return false };
            gathering.bytes = gathering.bytes.saturating_sub(taken.data.len());
            let plan = self.luns.finish(taken.lun, &taken.cdb, &taken.data, &lock(nexus));
            let (status, sense) = self.conclude(lun, plan, nexus);
            connection.end_write(tag, status, &sense, out);
            return true;
        }
        let Some(Unit { store, step }) = Lun::decode(lun).and_then(|lun| self.unit(lun)) else {
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
        &self,
        command: &ScsiCommand,
        immediate: &[u8],
        (lun, length_bytes): (Lun, u64),
        (connection, nexus): (&mut TargetConnection, &Mutex<Nexus>),
        gathering: &mut Gathering,
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
        let mut data = vec![0; length];
        let here = begun.useful_bytes.min(length);
        data[..here].copy_from_slice(&immediate[..here]);
        if begun.complete {
            let plan = self.luns.finish(lun, &command.cdb, &data, &lock(nexus));
            let (status, sense) = self.conclude(command.lun, plan, nexus);
            connection.respond_status(command, status, &sense, length_bytes, 0, out);
            return true;
        }
        gathering.bytes += length;
        gathering.taken.insert(command.tag, Taken { cdb: command.cdb, lun, data });
        false
    }

    /// Carries out a plan that needs no more data: status and sense.
    fn conclude(&self, lun_field: [u8; 8], plan: Plan, nexus: &Mutex<Nexus>) -> (u8, Vec<u8>) {
        // What is to be kept is kept before the initiator is told.
        let kept = |lun| self.luns.0.get(&lun).map_or(Ok(()), |disk| self.desk.keep(disk));
        let outcome = match plan {
            Plan::Medium { lun, action } => match self.unit(lun) {
                Some(Unit { store, step }) => medium::act(&**store, step, action)
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
            let (a, b) = ((&*a.store, &a.step, from_offset), (&*b.store, &b.step, to_offset));
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

/// Writes data, apart from steps that must be whole.
#[inline]
fn write(store: &Arc<dyn Store>, step: &RwLock<()>, offset: u64, data: &[u8]) -> Result<(), StoreError> {
    if data.is_empty() {
        return Ok(());
    }
    let _shared = step.read().unwrap_or_else(PoisonError::into_inner);
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
        StoreError::OutOfRange { .. } | StoreError::FixedSize(_) | StoreError::Io { .. } => {
            Sense::WRITE_ERROR
        }
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
