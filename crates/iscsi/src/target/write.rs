//! Data phases of writes.

use super::{Incoming, TargetConnection, WriteBegun};
use crate::pdu::{DataOut, R2t, ScsiCommand};
use crate::status;
use crate::transmit::TransmitBuffer;
use crate::write_task::{DataFault, WriteOrder, WriteTask};

/// A write whose data is complete, taken from its connection.
#[derive(Clone, Copy, Debug)]
pub struct ReleasedWrite {
    /// The command, which the caller answers.
    pub command: ScsiCommand,
    /// R2Ts sent: ExpDataSN of the response.
    pub r2ts: u32,
}

impl TargetConnection {
    /// Begins the data phase of a write: R2Ts are appended as needed.
    ///
    /// # Errors
    /// When the initiator sent more unsolicited data than agreed; the command was answered then.
    pub fn begin_write(
        &mut self,
        command: &ScsiCommand,
        immediate_bytes: usize,
        order: WriteOrder,
        out: &mut TransmitBuffer,
    ) -> Result<WriteBegun, DataFault> {
        match WriteTask::begin(*command, immediate_bytes, order, &self.parameters) {
            Ok(task) => {
                let begun = WriteBegun {
                    useful_bytes: task.useful(0, immediate_bytes),
                    complete: task.is_complete(),
                };
                if !begun.complete {
                    self.keep_task(command.tag, task);
                    self.solicit(command.tag, out);
                }
                Ok(begun)
            }
            Err(fault) => {
                self.fail_data(command, fault, 0, out);
                Err(fault)
            }
        }
    }

    /// Answers a write that had all its data with the command.
    pub fn respond_write(&mut self, command: &ScsiCommand, cdb_bytes: u64, out: &mut TransmitBuffer) {
        self.respond_status(command, status::GOOD, &[], cdb_bytes, 0, out);
    }

    /// Records a failure of a write in progress; it is reported at the end of the data phase.
    pub fn fail_write(&mut self, tag: u32, sense: Vec<u8>) {
        if let Some(task) = self.tasks.get_mut(&tag) {
            task.failure.get_or_insert(sense);
        }
    }

    /// Whether a write's data is complete and must be on stable storage before its response.
    #[must_use]
    pub fn must_be_stable(&self, tag: u32) -> bool {
        self.tasks.get(&tag).is_some_and(|task| task.order.stable && task.is_complete())
    }

    /// Whether all data of a write was received.
    #[must_use]
    pub fn has_all_data(&self, tag: u32) -> bool {
        self.tasks.get(&tag).is_some_and(WriteTask::is_complete)
    }

    /// Whether a write is still in progress.
    #[must_use]
    pub fn is_in_progress(&self, tag: u32) -> bool {
        self.tasks.contains_key(&tag)
    }

    /// Answers a write whose data is complete, in place of [`Self::data_taken`].
    pub fn end_write(&mut self, tag: u32, status: u8, sense: &[u8], out: &mut TransmitBuffer) {
        if let Some(task) = self.take_task(tag) {
            self.respond_status(&task.command, status, sense, task.order.cdb_bytes, task.r2ts(), out);
        }
    }

    /// Removes a write whose data is complete; the caller answers its command with [`Self::respond_status`].
    pub fn release_write(&mut self, tag: u32) -> Option<ReleasedWrite> {
        self.take_task(tag).map(|task| ReleasedWrite { command: task.command, r2ts: task.r2ts() })
    }

    /// Records that the data of an [`Incoming::Data`] was written, or the sense of the failure. Appends further R2Ts, or
    /// the response at the end of the data phase; returns true then.
    pub fn data_taken(&mut self, tag: u32, outcome: Result<(), Vec<u8>>, out: &mut TransmitBuffer) -> bool {
        let Some(task) = self.tasks.get_mut(&tag) else { return false };
        if let Err(sense) = outcome {
            // The first failure is the one to report.
            task.failure.get_or_insert(sense);
        }
        if !task.is_complete() {
            self.solicit(tag, out);
            return false;
        }
        if let Some(task) = self.take_task(tag) {
            let (status, sense) = match &task.failure {
                None => (status::GOOD, &[][..]),
                Some(sense) => (status::CHECK_CONDITION, sense.as_slice()),
            };
            self.respond_status(&task.command, status, sense, task.order.cdb_bytes, task.r2ts(), out);
        }
        true
    }

    pub(super) fn data_out<'a>(
        &mut self,
        pdu: &DataOut,
        data: &'a [u8],
        out: &mut TransmitBuffer,
    ) -> Incoming<'a> {
        // Drop data in flight of a task that was rejected or aborted.
        let Some(task) = self.tasks.get_mut(&pdu.tag) else { return Incoming::Nothing };
        if let Err(fault) = task.data(pdu, data.len()) {
            self.fail_task(pdu.tag, fault, out);
            return Incoming::Nothing;
        }
        Incoming::Data {
            tag: pdu.tag,
            store_offset: task.order.store_offset + u64::from(pdu.buffer_offset),
            data: &data[..task.useful(pdu.buffer_offset, data.len())],
            lun: task.command.lun,
        }
    }

    /// Ends a task after an invalid Data-Out.
    pub(super) fn fail_task(&mut self, tag: u32, fault: DataFault, out: &mut TransmitBuffer) {
        if let Some(task) = self.take_task(tag) {
            self.fail_data(&task.command, fault, task.r2ts(), out);
        }
    }

    fn fail_data(
        &mut self,
        command: &ScsiCommand,
        fault: DataFault,
        data_pdus: u32,
        out: &mut TransmitBuffer,
    ) {
        let (asc, ascq) = fault.sense();
        let sense = status::aborted_command_sense(asc, ascq);
        self.respond_status(command, status::CHECK_CONDITION, &sense, 0, data_pdus, out);
    }

    pub(super) fn solicit(&mut self, tag: u32, out: &mut TransmitBuffer) {
        let (stat_sn, exp_cmd_sn, max_cmd_sn) =
            (self.stat_sn, self.sequence.expected(), self.sequence.max_cmd_sn());
        let Some(task) = self.tasks.get_mut(&tag) else { return };
        while let Some(wanted) = task.solicit(&self.parameters, &mut self.next_transfer_tag) {
            let r2t = R2t {
                lun: task.command.lun,
                tag,
                transfer_tag: wanted.transfer_tag,
                stat_sn,
                exp_cmd_sn,
                max_cmd_sn,
                r2t_sn: wanted.r2t_sn,
                buffer_offset: wanted.buffer_offset,
                desired_bytes: wanted.desired_bytes,
            };
            out.pdu(r2t.write(), &[]);
        }
    }

    /// The write of this tag, if it is in progress.
    #[must_use]
    pub fn write_task(&self, tag: u32) -> Option<&WriteTask> {
        self.tasks.get(&tag)
    }

    /// Whether a write of this logical unit is in progress.
    #[must_use]
    pub fn has_writes(&self, lun: [u8; 8]) -> bool {
        self.tasks.values().any(|task| task.command.lun == lun)
    }

    /// Drops the writes in progress that `aborts` selects, without a response, and returns how many.
    pub fn abort(&mut self, mut aborts: impl FnMut(&WriteTask) -> bool) -> usize {
        let before = self.tasks.len();
        self.tasks.retain(|_, task| !aborts(task));
        let aborted = before - self.tasks.len();
        self.sequence.unfinished(-(aborted as i32));
        aborted
    }
}
