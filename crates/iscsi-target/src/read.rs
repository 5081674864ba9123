//! Read responses, made chunk by chunk while the transmit buffer has room. A large READ is never in memory as a whole,
//! whatever the digests and the recovery level.

use std::collections::VecDeque;
use std::sync::Arc;

use borrowed::{Borrowed, Source};
use iscsi::pdu::ScsiCommand;
use iscsi::replay::ReadOrigin;
use iscsi::target::{DataSequence, TargetConnection};
use iscsi::{TransmitBuffer, status};
use scsi::{Lun, Sense};
use store::{Buffer, Operation, Request};

use crate::done::Outcome;
use crate::fence::Epoch;
use crate::jobs::{Job, Jobs, Room};
use crate::memory::Share;
use crate::planted::{Bug, is_planted};
use crate::room::{has_room, may_borrow_bytes};
use crate::sense::read_sense;
use crate::table::Table;
use crate::unit::Unit;

/// Most bytes read, or borrowed from a store, in one step.
const CHUNK_BYTES: u32 = 1 << 20;

/// A byte range of a logical unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) lun: Lun,
    /// Offset of the first byte in the store.
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

/// A read whose response is in progress.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) command: ScsiCommand,
    /// The range that the CDB addresses.
    pub(crate) extent: Extent,
    /// The number of the epoch of its task.
    pub(crate) epoch: u64,
    sequence: DataSequence,
    chunk: Option<Chunk>,
    /// The job that reads the next chunk.
    pub(crate) job: Option<u64>,
    /// The memory budget share of the next chunk while it is read.
    share: Option<Share>,
    /// The sense data that ends the response.
    failed: Option<Sense>,
    /// DataSN of the first PDU to send: the initiator has the earlier ones (TASK REASSIGN).
    skip: u32,
}

/// Data of the response from offset `from` on.
#[derive(Debug)]
struct Chunk {
    from: u32,
    data: Data,
}

#[derive(Debug)]
enum Data {
    Read(Arc<Held<Buffer>>),
    Borrowed(VecDeque<Borrowed>),
}

/// Data with its share of the memory budget, released with the last reference: when the data is sent.
#[derive(Debug)]
struct Held<T> {
    data: T,
    _share: Arc<Share>,
}

impl AsRef<[u8]> for Held<Buffer> {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl AsRef<[u8]> for Held<Arc<dyn AsRef<[u8]> + Send + Sync>> {
    fn as_ref(&self) -> &[u8] {
        (*self.data).as_ref()
    }
}

/// Attaches a memory budget share to borrowed memory; file ranges hold none.
fn held(mut borrowed: Borrowed, share: &Arc<Share>) -> Borrowed {
    if let Source::Memory(data) = borrowed.source {
        borrowed.source = Source::Memory(Arc::new(Held { data, _share: Arc::clone(share) }));
    }
    borrowed
}

/// Bytes that writers copy who change any part of a range while it is lent: whole granules.
fn copied_bytes(granularity: Option<u32>, offset: u64, bytes: u32) -> usize {
    let granule = u64::from(granularity.unwrap_or(1).max(1));
    let end = (offset + u64::from(bytes)).next_multiple_of(granule);
    (end - offset / granule * granule) as usize
}

/// The progress of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is complete.
    Done,
    /// It waits for a job.
    Waits,
    /// The transmit buffer is full.
    Full,
}

/// The data sources of a read.
pub(crate) struct Supply<'a> {
    pub(crate) table: &'a Arc<Table>,
    pub(crate) jobs: &'a mut Jobs,
    /// The current epoch at its logical unit, if the session may still use it.
    pub(crate) epoch: Option<&'a Arc<Epoch>>,
}

impl Read {
    pub(crate) fn new(command: &ScsiCommand, extent: Extent, epoch: u64, sequence: DataSequence) -> Self {
        let command = *command;
        let (chunk, job, share, failed, skip) = (None, None, None, None, 0);
        Self { command, extent, epoch, sequence, chunk, job, share, failed, skip }
    }

    /// Returns an example for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let command = ScsiCommand { read: true, expected_bytes: 512, tag: 7, ..ScsiCommand::default() };
        let login = iscsi::login::target::LoggedIn {
            initiator_name: String::new(),
            user: None,
            proven: None,
            target_name: String::new(),
            session_type: iscsi::login::SessionType::Normal,
            isid: [0; 6],
            tsih: 1,
            cid: 0,
            parameters: iscsi::Parameters::default(),
            exp_cmd_sn: 1,
            stat_sn: 1,
        };
        let sequence = TargetConnection::new(&login, 1).begin_answer(&command, 512).expect("512 bytes");
        Self::new(&command, Extent { lun: Lun(0), offset_bytes: 0, length_bytes: 512 }, 1, sequence)
    }

    /// Counts the read as an unfinished command until its last PDU is made.
    pub(crate) fn count(&mut self, connection: &TargetConnection) {
        connection.begin_count(&mut self.sequence);
    }

    /// Returns the part that a lost connection leaves for reassignment.
    pub(crate) fn parked(mut self) -> Self {
        (self.chunk, self.job, self.share) = (None, None, None);
        self
    }

    /// Restarts the response on another connection. The initiator has the Data-In PDUs before `exp_data_sn`; `None` when
    /// it has some and the connection segments the data differently, so that the DataSNs would not match.
    pub(crate) fn restart(self, connection: &TargetConnection, exp_data_sn: u32) -> Option<Self> {
        let sequence = connection.begin_answer(&self.command, self.extent.length_bytes)?;
        let is_cut_alike = sequence.is_cut_like(&self.sequence);
        (is_cut_alike || exp_data_sn == 0).then_some(Self {
            sequence,
            skip: exp_data_sn,
            failed: None,
            ..self
        })
    }

    /// Stores the result of the job that read the next chunk.
    pub(crate) fn chunk_ended(&mut self, outcome: Outcome) {
        self.job = None;
        match outcome {
            Outcome::Data(buffer) => {
                let (Some((from, _)), Some(share)) = (self.sequence.next(), self.share.take()) else {
                    return;
                };
                let held = Held { data: buffer, _share: Arc::new(share) };
                self.chunk = Some(Chunk { from, data: Data::Read(Arc::new(held)) });
            }
            Outcome::Failed(sense) => self.failed = Some(sense),
            Outcome::Status(..) | Outcome::Answer(_) | Outcome::Aborted => {
                self.failed = Some(Sense::READ_ERROR);
            }
        }
    }

    /// Appends Data-In PDUs while fewer than `unsent_bytes` are unsent.
    pub(crate) fn advance(
        &mut self,
        supply: &mut Supply<'_>,
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
        unsent_bytes: usize,
    ) -> Progress {
        let command = self.command;
        loop {
            if let Some(sense) = self.failed.take() {
                connection.end_count(&mut self.sequence);
                let (sense, pdus) =
                    (supply.table.luns.encode(command.lun, &sense), self.sequence.data_pdus());
                connection.respond_status(&command, status::CHECK_CONDITION, &sense, 0, pdus, out);
                return Progress::Done;
            }
            let Some((at, bytes)) = self.sequence.next() else { return Progress::Done };
            if self.sequence.data_pdus() < self.skip && at + bytes < self.sequence.transfer_bytes() {
                connection.skip_piece(&command, &mut self.sequence);
                continue;
            }
            if !has_room(out, unsent_bytes) && !is_planted(Bug::IgnoresSendLimit) {
                return Progress::Full;
            }
            if self.job.is_some() {
                return Progress::Waits;
            }
            if !self.append(at, bytes, connection, out) && !self.fetch(at, bytes, supply, connection, out) {
                return Progress::Waits;
            }
        }
    }

    /// Appends a PDU from the chunk; returns false when the chunk does not cover it.
    fn append(
        &mut self,
        at: u32,
        bytes: u32,
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
    ) -> bool {
        let Some(chunk) = &mut self.chunk else { return false };
        let length = bytes as usize;
        match &mut chunk.data {
            Data::Read(buffer) => {
                let from = (at - chunk.from) as usize;
                let Some(data) = buffer.data.get(from..from + length) else {
                    self.chunk = None;
                    return false;
                };
                if may_borrow_bytes(length, connection, out) {
                    let borrowed =
                        Borrowed { source: Source::Memory(buffer.clone()), offset: from as u64, length };
                    connection.answer_borrowed(&self.command, &mut self.sequence, [borrowed], out);
                } else {
                    connection.answer_piece(&self.command, &mut self.sequence, out, |piece| {
                        piece.copy_from_slice(data);
                    });
                }
            }
            Data::Borrowed(borrowed) => {
                let there: usize = borrowed.iter().map(|borrowed| borrowed.length).sum();
                if there < length {
                    self.chunk = None;
                    return false;
                }
                let mut left = length;
                let pieces = std::iter::from_fn(|| {
                    let first = borrowed.front_mut().filter(|_| left > 0)?;
                    let here = first.length.min(left);
                    left -= here;
                    let piece = first.part(0, here);
                    *first = first.part(here as u64, first.length - here);
                    if first.length == 0 {
                        borrowed.pop_front();
                    }
                    Some(piece)
                });
                let pieces: Vec<Borrowed> = pieces.collect();
                connection.answer_borrowed(&self.command, &mut self.sequence, pieces, out);
            }
        }
        true
    }

    /// Gets the next data: borrowed, read without blocking, or by a job. False if there is no memory for it before the connection has
    /// sent what it has.
    fn fetch(
        &mut self,
        at: u32,
        bytes: u32,
        supply: &mut Supply<'_>,
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
    ) -> bool {
        let Supply { table, jobs, epoch } = supply;
        let Some(unit) = table.unit(self.extent.lun) else {
            self.failed = Some(Sense::NO_SUCH_LUN);
            return true;
        };
        let Unit { store, atomic_lock, .. } = &**unit;
        let offset = self.extent.offset_bytes + u64::from(at);
        let chunk_bytes = (self.sequence.transfer_bytes() - at).min(CHUNK_BYTES);
        let may_wait = store.may_wait(Operation::Read);
        // An atomic operation may hold the lock for long on a slow disk: do not block on it.
        let shared = if may_wait { atomic_lock.try_read() } else { Some(atomic_lock.read()) };
        // In short PDUs memory would go out in as many pieces, which costs more than the copy.
        let is_long = may_wait || may_borrow_bytes(bytes as usize, connection, out);
        if shared.is_some() && is_long && may_borrow_bytes(chunk_bytes as usize, connection, out) {
            // Memory is borrowed for the whole rest of the response if the budget covers the copies that concurrent
            // writers must make: the response is then a consistent snapshot. Writers to a file copy nothing.
            let whole = self.sequence.transfer_bytes() - at;
            let copies = |bytes: u32| copied_bytes(store.limits().granularity_bytes, offset, bytes);
            let claims = |bytes: u32| jobs.claim_dispensable(copies(bytes)).map(|share| (Some(share), bytes));
            let borrowed = if may_wait {
                Some((None, chunk_bytes))
            } else {
                claims(whole).or_else(|| claims(chunk_bytes))
            };
            let borrowed = borrowed.map_or(Ok(None), |(share, bytes)| {
                let borrowed = store.borrow(offset, bytes as usize)?;
                Ok(borrowed.map(|borrowed| (borrowed, share)))
            });
            match borrowed {
                Ok(Some((borrowed, share))) => {
                    let share = share.map(Arc::new);
                    let borrowed = borrowed.into_iter().map(|borrowed| match &share {
                        Some(share) => held(borrowed, share),
                        None => borrowed,
                    });
                    self.chunk = Some(Chunk { from: at, data: Data::Borrowed(borrowed.collect()) });
                    return true;
                }
                Ok(None) => {}
                Err(error) => {
                    self.failed = Some(read_sense(&error));
                    return true;
                }
            }
        }
        let is_kept_out = shared.is_none();
        let mut outcome = Ok(false);
        if !is_kept_out {
            // The PDU is appended only if its data is available without blocking.
            let made = connection.try_answer_piece(&self.command, &mut self.sequence, out, |piece| {
                outcome = store.read_now(offset, piece);
                matches!(outcome, Ok(true))
            });
            if made {
                return true;
            }
        }
        drop(shared);
        if let Err(error) = outcome {
            self.failed = Some(read_sense(&error));
            return true;
        }
        let room = jobs.room(chunk_bytes.into()).map(|share| (share, chunk_bytes));
        let room = room.or_else(|| jobs.room(bytes.into()).map(|share| (share, bytes)));
        let room = room.or_else(|| jobs.spare().map(|share| (share, bytes)));
        let Some((share, length)) = room else { return false };
        let Ok(buffer) = store.try_buffer(length as usize) else {
            // The system has no memory for a job: read at once into the PDU.
            let _shared = atomic_lock.read();
            let mut outcome = Ok(());
            connection.try_answer_piece(&self.command, &mut self.sequence, out, |piece| {
                outcome = store.read_at(offset, piece);
                outcome.is_ok()
            });
            self.failed = outcome.err().map(|error| read_sense(&error));
            return true;
        };
        let Some(epoch) = epoch.map(Arc::clone) else {
            self.failed = Some(Sense::NO_SUCH_LUN);
            return true;
        };
        let job = Job { command: self.command, r2ts: 0, epoch, changes: false, is_piece: true };
        let request = Request::Read { offset, buffer };
        self.share = Some(share);
        let id =
            jobs.submit(job, Room { unit, share: None, bytes: length.into() }, request, |ended| {
                match (ended.outcome, ended.buffer) {
                    (Ok(()), Some(data)) => Outcome::Data(data),
                    (outcome, _) => {
                        let sense = outcome.err().map_or(Sense::READ_ERROR, |error| read_sense(&error));
                        Outcome::Failed(sense)
                    }
                }
            });
        self.job = Some(id);
        true
    }

    /// Returns where the data comes from, for retransmission.
    pub(crate) fn origin(&self) -> ReadOrigin {
        ReadOrigin { lun: self.command.lun, offset_bytes: self.extent.offset_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lent_range_counts_as_its_granules() {
        const GRANULE: u32 = 64 << 10;
        for (offset, bytes, expected) in [
            (0, GRANULE, 1),
            (512, GRANULE, 2),
            (GRANULE - 512, 1024, 2),
            (512, 512, 1),
            (0, 16 * GRANULE, 16),
        ] {
            let expected = expected * GRANULE as usize;
            assert_eq!(copied_bytes(Some(GRANULE), offset.into(), bytes), expected, "{offset} {bytes}");
        }
        assert_eq!(copied_bytes(None, 512, 512), 512);
    }
}
