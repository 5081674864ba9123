//! The data phase of a write: immediate, unsolicited, then solicited data (RFC 7143 4.2.5.2).

use std::collections::VecDeque;

use crate::bhs::NO_TAG;
use crate::parameters::Parameters;
use crate::pdu::{DataOut, ScsiCommand};

/// Where the data of a write goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOrder {
    /// First byte in the store.
    pub store_offset: u64,
    /// Bytes that the CDB asks to transfer.
    pub cdb_bytes: u64,
    /// The data must be on stable storage before the response (FUA).
    pub stable: bool,
    /// The number by which the caller fences the task; not used here.
    pub epoch: u64,
}

/// A range of a command's data buffer.
#[derive(Clone, Copy, Debug)]
struct BufferRange {
    offset: u32,
    bytes: u32,
}

/// A sequence of Data-Out PDUs in progress.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    transfer_tag: u32,
    /// Next byte due.
    at: u32,
    /// One behind its last byte.
    end: u32,
    next_data_sn: u32,
}

/// An R2T to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Target transfer tag.
    pub transfer_tag: u32,
    /// R2TSN.
    pub r2t_sn: u32,
    /// First byte requested.
    pub buffer_offset: u32,
    /// Bytes requested.
    pub desired_bytes: u32,
}

/// An invalid Data-Out PDU; the task ends with the sense of RFC 7143 11.4.7.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataFault {
    /// Unsolicited data that was not announced, or too much of it.
    UnexpectedUnsolicited,
    /// A sequence ended before its data was complete.
    NotEnough,
    /// DataSN or buffer offset out of order, or data outside the R2T.
    OutOfSequence,
}

impl DataFault {
    /// Additional sense code and qualifier under ABORTED COMMAND.
    #[must_use]
    pub fn sense(self) -> (u8, u8) {
        match self {
            DataFault::UnexpectedUnsolicited => (0x0c, 0x0c),
            DataFault::NotEnough => (0x0c, 0x0d),
            // DATA PHASE ERROR; the RFC names no code for this at ErrorRecoveryLevel 0.
            DataFault::OutOfSequence => (0x4b, 0x00),
        }
    }
}

/// A write command in progress.
#[derive(Debug)]
pub struct WriteTask {
    /// The command.
    pub command: ScsiCommand,
    /// Where the data goes.
    pub order: WriteOrder,
    /// Sense data of a failure met on the way, reported when the data phase is over.
    pub failure: Option<Vec<u8>>,
    /// Bytes that will be transferred: the lesser of the CDB's and the initiator's length.
    total: u32,
    /// All data before this byte was solicited or announced.
    solicited: u32,
    sequences: VecDeque<Sequence>,
    /// Ranges that arrived damaged and are to be solicited again.
    lost: VecDeque<BufferRange>,
    r2ts: u32,
}

impl WriteTask {
    /// A write with its immediate data (`immediate_bytes`).
    ///
    /// # Errors
    /// If more data came with the command than was negotiated.
    pub fn begin(
        command: ScsiCommand,
        immediate_bytes: usize,
        order: WriteOrder,
        parameters: &Parameters,
    ) -> Result<Self, DataFault> {
        let expected = if command.write_data { command.expected_bytes } else { 0 };
        let total = expected.min(u32::try_from(order.cdb_bytes).unwrap_or(u32::MAX));
        let first_burst = parameters.first_burst_bytes.min(expected);
        let immediate = u32::try_from(immediate_bytes).unwrap_or(u32::MAX);
        let may_be_immediate = if parameters.immediate_data { first_burst } else { 0 };
        if immediate > may_be_immediate || (!command.is_final && parameters.initial_r2t) {
            return Err(DataFault::UnexpectedUnsolicited);
        }
        let mut task = Self {
            command,
            order,
            failure: None,
            total,
            solicited: immediate,
            sequences: VecDeque::new(),
            lost: VecDeque::new(),
            r2ts: 0,
        };
        if !command.is_final && immediate < first_burst {
            task.sequences.push_back(Sequence {
                transfer_tag: NO_TAG,
                at: immediate,
                end: first_burst,
                next_data_sn: 0,
            });
            task.solicited = first_burst;
        }
        Ok(task)
    }

    /// How many of `bytes` bytes at `buffer_offset` belong to the transfer; the rest exceeds the length in the CDB.
    #[must_use]
    pub fn useful(&self, buffer_offset: u32, bytes: usize) -> usize {
        bytes.min(self.total.saturating_sub(buffer_offset) as usize)
    }

    /// Whether all data was received.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.sequences.is_empty() && self.lost.is_empty() && self.solicited >= self.total
    }

    /// How many R2Ts were sent: ExpDataSN of the response.
    #[must_use]
    pub fn r2ts(&self) -> u32 {
        self.r2ts
    }

    /// The next R2T to send, if one may be sent now: not before unsolicited data has ended.
    pub fn solicit(&mut self, parameters: &Parameters, next_transfer_tag: &mut u32) -> Option<Wanted> {
        let unsolicited = self.sequences.front().is_some_and(|s| s.transfer_tag == NO_TAG);
        let room = self.sequences.len() < parameters.max_outstanding_r2t as usize;
        if unsolicited || !room || (self.solicited >= self.total && self.lost.is_empty()) {
            return None;
        }
        let BufferRange { offset: buffer_offset, bytes: desired_bytes } = match self.lost.pop_front() {
            Some(BufferRange { offset, bytes }) if bytes > parameters.max_burst_bytes => {
                let burst = parameters.max_burst_bytes;
                self.lost.push_front(BufferRange { offset: offset + burst, bytes: bytes - burst });
                BufferRange { offset, bytes: burst }
            }
            Some(lost) => lost,
            None => {
                let bytes = (self.total - self.solicited).min(parameters.max_burst_bytes);
                self.solicited += bytes;
                BufferRange { offset: self.solicited - bytes, bytes }
            }
        };
        let wanted =
            Wanted { transfer_tag: *next_transfer_tag, r2t_sn: self.r2ts, buffer_offset, desired_bytes };
        *next_transfer_tag = next_transfer_tag.wrapping_add(1);
        if *next_transfer_tag == NO_TAG {
            *next_transfer_tag = 0;
        }
        self.r2ts += 1;
        self.sequences.push_back(Sequence {
            transfer_tag: wanted.transfer_tag,
            at: wanted.buffer_offset,
            end: wanted.buffer_offset + desired_bytes,
            next_data_sn: 0,
        });
        Some(wanted)
    }

    /// Records a Data-Out PDU whose `bytes` data bytes are damaged: they will be solicited again.
    ///
    /// # Errors
    /// As [`Self::data`].
    pub fn damaged(&mut self, pdu: &DataOut, bytes: usize) -> Result<(), DataFault> {
        self.data(pdu, bytes)?;
        let wanted = self.useful(pdu.buffer_offset, bytes) as u32;
        if wanted > 0 {
            self.lost.push_back(BufferRange { offset: pdu.buffer_offset, bytes: wanted });
        }
        Ok(())
    }

    /// Prepares for another connection: outstanding data was lost with the old one and will be solicited again.
    pub fn restart(&mut self) {
        let missing = self.sequences.iter().map(|s| s.at).chain(self.lost.iter().map(|lost| lost.offset));
        self.solicited = missing.min().unwrap_or(self.solicited).min(self.solicited);
        self.sequences.clear();
        self.lost.clear();
    }

    /// Records a Data-Out PDU of `bytes` data bytes.
    ///
    /// # Errors
    /// If it is not the next PDU in order (DataPDUInOrder and DataSequenceInOrder are Yes).
    pub fn data(&mut self, pdu: &DataOut, bytes: usize) -> Result<(), DataFault> {
        let Some(sequence) = self.sequences.front_mut().filter(|s| s.transfer_tag == pdu.transfer_tag) else {
            return Err(if pdu.transfer_tag == NO_TAG {
                DataFault::UnexpectedUnsolicited
            } else {
                DataFault::OutOfSequence
            });
        };
        if pdu.data_sn != sequence.next_data_sn || pdu.buffer_offset != sequence.at {
            return Err(DataFault::OutOfSequence);
        }
        let left = (sequence.end - sequence.at) as usize;
        if bytes > left {
            return Err(if pdu.transfer_tag == NO_TAG {
                DataFault::UnexpectedUnsolicited
            } else {
                DataFault::OutOfSequence
            });
        }
        sequence.at += bytes as u32;
        sequence.next_data_sn = sequence.next_data_sn.wrapping_add(1);
        let whole = bytes == left;
        if !whole && !pdu.is_final {
            return Ok(());
        }
        if !whole {
            if pdu.transfer_tag != NO_TAG {
                return Err(DataFault::NotEnough);
            }
            // An initiator may end its unsolicited data early; the rest is solicited.
            self.solicited = sequence.at;
        }
        self.sequences.pop_front();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn to(cdb_bytes: u64) -> WriteOrder {
        WriteOrder { cdb_bytes, ..WriteOrder::default() }
    }

    fn command(bytes: u32, is_final: bool) -> ScsiCommand {
        ScsiCommand { write_data: true, is_final, expected_bytes: bytes, ..ScsiCommand::default() }
    }

    fn parameters() -> Parameters {
        Parameters {
            initial_r2t: false,
            first_burst_bytes: 1024,
            max_burst_bytes: 2048,
            max_outstanding_r2t: 2,
            ..Parameters::default()
        }
    }

    #[test]
    fn immediate_data_alone_completes() {
        let task = WriteTask::begin(command(512, true), 512, to(512), &parameters()).unwrap();
        assert!(task.is_complete());
    }

    #[test]
    fn unsolicited_then_two_outstanding_r2ts_then_one() {
        let p = parameters();
        let mut tag = 9;
        let mut task = WriteTask::begin(command(6144, false), 512, to(6144), &p).unwrap();
        assert_eq!(task.solicit(&p, &mut tag), None, "unsolicited data is still due");
        let pdu = DataOut { transfer_tag: NO_TAG, buffer_offset: 512, is_final: true, ..DataOut::default() };
        task.data(&pdu, 512).unwrap();
        let first = task.solicit(&p, &mut tag).unwrap();
        let second = task.solicit(&p, &mut tag).unwrap();
        assert_eq!((first.buffer_offset, first.desired_bytes, first.r2t_sn), (1024, 2048, 0));
        assert_eq!((second.buffer_offset, second.desired_bytes, second.r2t_sn), (3072, 2048, 1));
        assert_eq!(task.solicit(&p, &mut tag), None, "only two may be outstanding");
        let pdu = DataOut { transfer_tag: 9, buffer_offset: 1024, is_final: true, ..DataOut::default() };
        task.data(&pdu, 2048).unwrap();
        let third = task.solicit(&p, &mut tag).unwrap();
        assert_eq!((third.buffer_offset, third.desired_bytes), (5120, 1024));
        assert!(!task.is_complete());
    }

    #[test]
    fn rejects_data_out_that_is_not_due() {
        let p = parameters();
        let begin = || WriteTask::begin(command(4096, true), 0, to(4096), &p).unwrap();
        assert_eq!(
            WriteTask::begin(command(4096, true), 2048, to(4096), &p).unwrap_err(),
            DataFault::UnexpectedUnsolicited,
            "more immediate data than FirstBurstLength"
        );
        let unsolicited = DataOut { transfer_tag: NO_TAG, ..DataOut::default() };
        assert_eq!(begin().data(&unsolicited, 512), Err(DataFault::UnexpectedUnsolicited));
        let solicited = DataOut { transfer_tag: 0, ..DataOut::default() };
        let with_r2t = || {
            let mut task = begin();
            task.solicit(&p, &mut 0).unwrap();
            task
        };
        assert_eq!(with_r2t().data(&DataOut { data_sn: 1, ..solicited }, 512), Err(DataFault::OutOfSequence));
        assert_eq!(
            with_r2t().data(&DataOut { buffer_offset: 1, ..solicited }, 512),
            Err(DataFault::OutOfSequence)
        );
        assert_eq!(with_r2t().data(&DataOut { is_final: true, ..solicited }, 512), Err(DataFault::NotEnough));
        assert_eq!(with_r2t().data(&solicited, 2049), Err(DataFault::OutOfSequence));
    }

    #[test]
    fn damaged_data_is_solicited_again_and_a_new_connection_solicits_the_rest() {
        let p = parameters();
        let mut tag = 0;
        let mut task = WriteTask::begin(command(4096, true), 0, to(4096), &p).unwrap();
        let wanted: Vec<Wanted> = std::iter::from_fn(|| task.solicit(&p, &mut tag)).collect();
        assert_eq!(wanted.len(), 2);
        let piece = |transfer_tag, data_sn, buffer_offset, is_final| DataOut {
            transfer_tag,
            data_sn,
            buffer_offset,
            is_final,
            ..DataOut::default()
        };
        task.data(&piece(0, 0, 0, false), 1024).unwrap();
        task.damaged(&piece(0, 1, 1024, true), 1024).unwrap();
        let again = task.solicit(&p, &mut tag).unwrap();
        assert_eq!((again.buffer_offset, again.desired_bytes, again.r2t_sn), (1024, 1024, 2));
        task.data(&piece(1, 0, 2048, false), 512).unwrap();
        task.restart();
        let after: Vec<_> = std::iter::from_fn(|| task.solicit(&p, &mut tag))
            .map(|w| (w.buffer_offset, w.desired_bytes))
            .collect();
        assert_eq!(after, [(1024, 2048), (3072, 1024)], "from the first byte that is missing");
        assert!(!task.is_complete());
    }

    #[test]
    fn data_beyond_the_transfer_length_is_dropped() {
        let task = WriteTask::begin(command(1024, true), 1024, to(512), &parameters()).unwrap();
        assert!(task.is_complete());
        assert_eq!(task.useful(0, 1024), 512);
    }

    proptest! {
        /// Whatever a well-behaved initiator sends, every byte is asked for once and the task ends.
        #[test]
        fn every_byte_is_transferred_once(
            total in 1_u32..50_000, immediate in 0_u32..2000, unsolicited: bool,
            first_burst in 512_u32..4096, max_burst in 512_u32..8192, outstanding in 1_u32..5, segment in 1_u32..3000
        ) {
            let p = Parameters { initial_r2t: false, first_burst_bytes: first_burst, max_burst_bytes: max_burst,
                max_outstanding_r2t: outstanding, ..Parameters::default() };
            let immediate = immediate.min(first_burst).min(total);
            let mut task = WriteTask::begin(command(total, !unsolicited), immediate as usize, to(u64::from(total)), &p).unwrap();
            let mut due = immediate;
            let mut sequence = |task: &mut WriteTask, transfer_tag, from: u32, to: u32| {
                assert_eq!(from, due);
                let (mut at, mut data_sn) = (from, 0);
                while at < to {
                    let bytes = segment.min(to - at);
                    let pdu = DataOut { transfer_tag, data_sn, buffer_offset: at, is_final: at + bytes == to, ..DataOut::default() };
                    task.data(&pdu, bytes as usize).unwrap();
                    at += bytes;
                    data_sn += 1;
                }
                due = to;
            };
            let announced = first_burst.min(total);
            if unsolicited && immediate < announced {
                sequence(&mut task, NO_TAG, immediate, announced);
            }
            let (mut tag, mut waiting) = (0, VecDeque::new());
            while !task.is_complete() {
                while let Some(wanted) = task.solicit(&p, &mut tag) { waiting.push_back(wanted); }
                prop_assert!(waiting.len() <= outstanding as usize);
                let wanted: Wanted = waiting.pop_front().expect("an incomplete task waits for data");
                sequence(&mut task, wanted.transfer_tag, wanted.buffer_offset, wanted.buffer_offset + wanted.desired_bytes);
            }
            prop_assert_eq!(due, total);
        }
    }
}
