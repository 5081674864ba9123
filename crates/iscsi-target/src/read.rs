//! Answers of reads that are made piece by piece: as much of them as there is room for. What one READ asks for is
//! never in memory as a whole, whatever the digests and the recovery level.

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

/// Bytes that are read, or borrowed from a store, at once.
const CHUNK_BYTES: u32 = 1 << 20;

/// A range of a logical unit's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    pub(crate) lun: Lun,
    /// First byte in the store.
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

/// A read whose answer is being made.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) command: ScsiCommand,
    /// What the CDB asks to transfer.
    pub(crate) extent: Extent,
    /// The number of the epoch of its task.
    pub(crate) epoch: u64,
    sequence: DataSequence,
    chunk: Option<Chunk>,
    /// The job that reads the next chunk.
    pub(crate) job: Option<u64>,
    /// What the next chunk holds of the memory of all while it is read.
    share: Option<Share>,
    /// Why it cannot go on.
    failed: Option<Sense>,
    /// Data-In PDUs before this one are with the initiator already (TASK REASSIGN).
    skip: u32,
}

/// Data from a place of the answer on.
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

/// Data that holds its part of the memory of all for as long as anybody refers to it: until it is sent.
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

/// What is in memory, so that it holds its part too.
fn held(mut borrowed: Borrowed, share: &Arc<Share>) -> Borrowed {
    if let Source::Memory(data) = borrowed.source {
        borrowed.source = Source::Memory(Arc::new(Held { data, _share: Arc::clone(share) }));
    }
    borrowed
}

/// How far an answer came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is complete.
    Done,
    /// It waits for its disk.
    Waits,
    /// There is no room for more.
    Full,
}

/// Where a read gets its data.
pub(crate) struct Supply<'a> {
    pub(crate) table: &'a Arc<Table>,
    pub(crate) jobs: &'a mut Jobs,
    /// The epoch of tasks that begin now at its logical unit, where the session may still use that.
    pub(crate) epoch: Option<&'a Arc<Epoch>>,
}

impl Read {
    pub(crate) fn new(command: &ScsiCommand, extent: Extent, epoch: u64, sequence: DataSequence) -> Self {
        let command = *command;
        let (chunk, job, share, failed, skip) = (None, None, None, None, 0);
        Self { command, extent, epoch, sequence, chunk, job, share, failed, skip }
    }

    /// One for tests.
    #[cfg(test)]
    pub(crate) fn example() -> Self {
        let command = ScsiCommand { read: true, expected_bytes: 512, tag: 7, ..ScsiCommand::default() };
        let login = iscsi::login::target::LoggedIn {
            initiator_name: String::new(),
            user: None,
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

    /// What a lost connection leaves of it.
    pub(crate) fn parked(mut self) -> Self {
        (self.chunk, self.job, self.share) = (None, None, None);
        self
    }

    /// Begins again on another connection, whose initiator has the Data-In PDUs before `exp_data_sn`; nothing where
    /// that connection cuts the data in another way.
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

    /// The job that read its next chunk has ended.
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
            Outcome::Status(..) | Outcome::Aborted => self.failed = Some(Sense::READ_ERROR),
        }
    }

    /// Appends Data-In PDUs while there is room: while fewer than `unsent_bytes` wait to be sent.
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
            if !self.append(at, bytes, connection, out) {
                self.fetch(at, bytes, supply, connection, out);
            }
        }
    }

    /// Appends a piece from the chunk; whether it has it.
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

    /// Gets the next data: borrowed, read here and now, or by a job.
    fn fetch(
        &mut self,
        at: u32,
        bytes: u32,
        supply: &mut Supply<'_>,
        connection: &mut TargetConnection,
        out: &mut TransmitBuffer,
    ) {
        let Supply { table, jobs, epoch } = supply;
        let Some(unit) = table.unit(self.extent.lun) else {
            self.failed = Some(Sense::NO_SUCH_LUN);
            return;
        };
        let Unit { store, atomic_lock, .. } = &**unit;
        let offset = self.extent.offset_bytes + u64::from(at);
        let chunk_bytes = (self.sequence.transfer_bytes() - at).min(CHUNK_BYTES);
        let may_wait = store.may_wait(Operation::Read);
        // Not while something is done to the disk atomically, which a slow disk can take long for.
        let shared = if may_wait { atomic_lock.try_read() } else { Some(atomic_lock.read()) };
        if shared.is_some() && may_borrow_bytes(chunk_bytes as usize, connection, out) {
            // Memory is borrowed as a whole where there is budget for what writers would have to copy: then the answer
            // is of one moment. What is in a file is not copied by writers.
            let whole = self.sequence.transfer_bytes() - at;
            let claims = |bytes: u32| jobs.claim(bytes as usize).map(|share| (Some(share), bytes));
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
                    return;
                }
                Ok(None) => {}
                Err(error) => {
                    self.failed = Some(read_sense(&error));
                    return;
                }
            }
        }
        let is_kept_out = shared.is_none();
        let mut outcome = Ok(false);
        if !is_kept_out {
            // The PDU is made only if its data is there.
            let made = connection.try_answer_piece(&self.command, &mut self.sequence, out, |piece| {
                outcome = store.read_now(offset, piece);
                matches!(outcome, Ok(true))
            });
            if made {
                return;
            }
        }
        drop(shared);
        if let Err(error) = outcome {
            self.failed = Some(read_sense(&error));
            return;
        }
        let room = jobs.room(chunk_bytes.into()).map(|share| (share, chunk_bytes));
        let room = room.or_else(|| jobs.room(bytes.into()).map(|share| (share, bytes)));
        let room =
            room.and_then(|(share, length)| Some((share, length, store.try_buffer(length as usize).ok()?)));
        let Some((share, length, buffer)) = room else {
            // There is no memory for it to wait in: it is waited for here.
            let _shared = atomic_lock.read();
            let mut outcome = Ok(());
            connection.try_answer_piece(&self.command, &mut self.sequence, out, |piece| {
                outcome = store.read_at(offset, piece);
                outcome.is_ok()
            });
            self.failed = outcome.err().map(|error| read_sense(&error));
            return;
        };
        let Some(epoch) = epoch.map(Arc::clone) else {
            self.failed = Some(Sense::NO_SUCH_LUN);
            return;
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
    }

    /// Where the data is, for an answer that may have to be sent again.
    pub(crate) fn origin(&self) -> ReadOrigin {
        ReadOrigin { lun: self.command.lun, offset_bytes: self.extent.offset_bytes }
    }
}
