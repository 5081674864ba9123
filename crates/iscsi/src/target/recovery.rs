//! Recovery within the session (RFC 7143 7; ErrorRecoveryLevel 1 and 2): damaged data, SNACK, and task reassignment.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Incoming, TargetConnection};
use crate::bhs::{BHS_BYTES, Bhs, NO_TAG};
use crate::digest::Digests;
use crate::fault::{Fault, RejectReason};
use crate::frame::{Frame, Framer};
use crate::opcode::{initiator, target};
use crate::pdu::{DataIn, DataOut, ScsiResponse, Snack};
use crate::replay::{Kept, ReadOrigin, Replay};
use crate::task_management::Response;
use crate::transmit::TransmitBuffer;
use crate::write_task::WriteTask;

/// Most bytes of commands that wait for their turn on one connection.
const HELD_BYTES_MAX: usize = 4 << 20;

/// A command that arrived before its turn.
#[derive(Debug)]
pub struct Held {
    bhs: Bhs,
    ahs: Vec<u8>,
    data: Vec<u8>,
    /// Unsolicited Data-Out that followed it.
    followers: Vec<(Bhs, Vec<u8>)>,
}

impl Held {
    /// The command as received. Its bytes were taken off the stream already.
    #[must_use]
    pub fn frame(&self) -> Frame<'_> {
        Frame { bhs: self.bhs, ahs: &self.ahs, data: &self.data, total_bytes: 0, is_damaged: false }
    }

    /// Its Data-Out PDUs, to be processed after it.
    pub fn followers(&self) -> impl Iterator<Item = Frame<'_>> {
        self.followers.iter().map(|(bhs, data)| Frame {
            bhs: *bhs,
            ahs: &[],
            data,
            total_bytes: 0,
            is_damaged: false,
        })
    }

    fn bytes(&self) -> usize {
        let followers: usize = self.followers.iter().map(|(_, data)| BHS_BYTES + data.len()).sum();
        self.data.len() + self.ahs.len() + followers
    }
}

/// The state that a lost connection leaves to its session (ErrorRecoveryLevel 2).
#[derive(Debug, Default)]
pub struct Parked {
    tasks: HashMap<u32, WriteTask>,
    replay: Replay,
}

/// Memory of a parked write beside its data, bytes.
const TASK_BYTES: usize = 512;

impl Parked {
    /// Whether no task can be continued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty() && !self.replay.has_any_finished()
    }

    /// Bytes that it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.tasks.len() * TASK_BYTES + self.replay.bytes()
    }

    /// Drops the writes that `aborts` selects, and returns how many.
    pub fn abort(&mut self, mut aborts: impl FnMut(&WriteTask) -> bool) -> usize {
        let before = self.tasks.len();
        self.tasks.retain(|_, task| !aborts(task));
        before - self.tasks.len()
    }
}

/// The outcome of TASK REASSIGN.
#[derive(Debug)]
pub enum Adopted {
    /// The task cannot be reassigned, for the reason in this response.
    Refused(Response),
    /// An unfinished write: its R2Ts were appended.
    Write,
    /// A finished task: convert these PDUs with [`TargetConnection::reassigned`] and send them.
    Finished(Vec<Kept>),
}

impl TargetConnection {
    /// Holds a command until its turn.
    pub(super) fn hold<'a>(&mut self, frame: &Frame<'a>, cmd_sn: u32) -> Result<Incoming<'a>, Fault> {
        if self.parameters.max_connections < 2 && self.parameters.error_recovery_level == 0 {
            return Err(Fault::CommandGap { got: cmd_sn, expected: self.sequence.expected() });
        }
        let bytes = frame.data.len() + frame.ahs.len();
        if self.held_bytes + bytes > HELD_BYTES_MAX {
            return Err(Fault::Protocol {
                what: "too much data arrived with commands ahead of their turn",
                section: "RFC 7143 4.2.2.1",
            });
        }
        // A duplicate CmdSN is the same command.
        if let Entry::Vacant(place) = self.held.entry(cmd_sn) {
            let (ahs, data) = (frame.ahs.to_vec(), frame.data.to_vec());
            place.insert(Held { bhs: frame.bhs, ahs, data, followers: Vec::new() });
            self.held_bytes += bytes;
            self.sequence.wait(1);
        }
        Ok(Incoming::Nothing)
    }

    /// Keeps unsolicited Data-Out of a command that waits for its turn. Returns false if there is no such command.
    pub(super) fn hold_data(&mut self, frame: &Frame<'_>) -> Result<bool, Fault> {
        let (tag, bytes) = (frame.bhs.initiator_task_tag(), BHS_BYTES + frame.data.len());
        let is_full = self.held_bytes + bytes > HELD_BYTES_MAX;
        let is_its = |held: &&mut Held| {
            held.bhs.opcode() == initiator::SCSI_COMMAND && held.bhs.initiator_task_tag() == tag
        };
        let Some(held) = self.held.values_mut().find(is_its) else { return Ok(false) };
        if is_full {
            return Err(Fault::Protocol {
                what: "too much data arrived with commands ahead of their turn",
                section: "RFC 7143 4.2.2.1",
            });
        }
        held.followers.push((frame.bhs, frame.data.to_vec()));
        self.held_bytes += bytes;
        Ok(true)
    }

    /// Bytes of commands that wait for their turn, and of the data behind them.
    #[inline]
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Removes the held command whose turn it is, if there is one.
    #[inline]
    #[must_use]
    pub fn take_held(&mut self) -> Option<Held> {
        if self.held.is_empty() {
            return None;
        }
        let expected = self.sequence.expected();
        // Another connection may have taken the turn of a held number meanwhile.
        let (bytes, sequence) = (&mut self.held_bytes, &self.sequence);
        self.held.retain(|cmd_sn, held| {
            let is_due = (cmd_sn.wrapping_sub(expected) as i32) >= 0;
            if !is_due {
                *bytes -= held.bytes();
                sequence.wait(-1);
            }
            is_due
        });
        let held = self.held.remove(&expected)?;
        self.held_bytes -= held.bytes();
        self.sequence.wait(-1);
        Some(held)
    }

    /// Rejects a PDU with damaged data, and solicits the data of a write again.
    pub(super) fn damaged<'a>(&mut self, frame: &Frame<'a>, out: &mut TransmitBuffer) -> Incoming<'a> {
        self.reject(RejectReason::DataDigestError, &frame.bhs, out);
        if frame.bhs.opcode() == initiator::DATA_OUT {
            let pdu = DataOut::read(&frame.bhs);
            if let Some(task) = self.tasks.get_mut(&pdu.tag) {
                match task.damaged(&pdu, frame.data.len()) {
                    Ok(()) => self.solicit(pdu.tag, out),
                    Err(fault) => self.fail_task(pdu.tag, fault, out),
                }
            }
        }
        // A damaged command is dropped: its CmdSN stays due, and the initiator retransmits it.
        Incoming::Nothing
    }

    /// Keeps appended PDUs, in stream format, for retransmission (above ErrorRecoveryLevel 0).
    #[inline]
    pub fn sent(&mut self, bytes: &[u8], digests: Digests) {
        if self.parameters.error_recovery_level > 0 && !bytes.is_empty() {
            let max_data_bytes = self.parameters.max_send_bytes.max(8192) as usize;
            let framer = Framer { max_data_bytes, digests, passes_damage: true };
            self.replay.keep(&framer, bytes, &mut self.reads);
        }
    }

    /// Declares that the data of this task is on the medium: a retransmission reads it again, so it is not kept. Must
    /// precede the answer.
    pub fn reads_from(&mut self, tag: u32, origin: ReadOrigin) {
        if self.parameters.error_recovery_level > 0 {
            self.reads.insert(tag, origin);
        }
    }

    /// The PDUs that a SNACK requests; a SNACK for PDUs that are not kept is rejected.
    pub(super) fn snack<'a>(&mut self, bhs: &Bhs, out: &mut TransmitBuffer) -> Incoming<'a> {
        if self.parameters.error_recovery_level == 0 {
            self.reject(RejectReason::SnackReject, bhs, out);
            return Incoming::Nothing;
        }
        let snack = Snack::read(bhs);
        let wanted = match snack.type_byte & 0x0f {
            0 | 3 if snack.tag != NO_TAG => self.replay.sequence(snack.tag, snack.first, snack.count),
            1 => self.replay.status(snack.first, snack.count),
            // DataACK: never requested by this target.
            2 => return Incoming::Nothing,
            _ => Vec::new(),
        };
        if wanted.is_empty() {
            self.reject(RejectReason::SnackReject, bhs, out);
            return Incoming::Nothing;
        }
        Incoming::SendAgain(wanted)
    }

    /// Takes the state that a lost connection leaves to its session.
    #[must_use]
    pub fn park(&mut self) -> Parked {
        self.sequence.unfinished(-(self.tasks.len() as i32));
        Parked { tasks: std::mem::take(&mut self.tasks), replay: std::mem::take(&mut self.replay) }
    }

    /// TASK REASSIGN: continues a task of a lost connection. The initiator has received the Data-In PDUs before
    /// `exp_data_sn`.
    pub fn adopt(
        &mut self,
        parked: &mut Parked,
        tag: u32,
        exp_data_sn: u32,
        out: &mut TransmitBuffer,
    ) -> Adopted {
        if self.tasks.contains_key(&tag) {
            return Adopted::Refused(Response::StillAllegiant);
        }
        if let Some(mut task) = parked.tasks.remove(&tag) {
            task.restart();
            self.keep_task(tag, task);
            self.solicit(tag, out);
            return Adopted::Write;
        }
        if !parked.replay.has_finished(tag) {
            return Adopted::Refused(Response::NoSuchTask);
        }
        if parked.replay.first(tag).is_some_and(|first| first > exp_data_sn) {
            // Data that the initiator lacks is no longer kept.
            return Adopted::Refused(Response::ReassignNotSupported);
        }
        let kept = parked.replay.take_task(tag);
        if kept.iter().any(|kept| kept.data_bytes() > self.parameters.max_send_bytes as usize) {
            return Adopted::Refused(Response::ReassignNotSupported);
        }
        Adopted::Finished(kept)
    }

    /// Converts a PDU of another connection to one of this connection; `None` if the initiator has received it, that is if
    /// it is a Data-In before `exp_data_sn`.
    pub fn reassigned(&mut self, kept: &mut Kept, exp_data_sn: u32) -> Option<()> {
        let (expected, most) = (self.sequence.expected(), self.sequence.max_cmd_sn());
        let length = kept.bhs.data_bytes();
        let mut bhs = match kept.bhs.opcode() {
            target::DATA_IN => {
                let mut data_in = DataIn::read(&kept.bhs);
                if data_in.data_sn < exp_data_sn && !data_in.has_status {
                    return None;
                }
                (data_in.exp_cmd_sn, data_in.max_cmd_sn) = (expected, most);
                if data_in.has_status {
                    data_in.stat_sn = self.next_stat_sn();
                }
                data_in.write()
            }
            target::SCSI_RESPONSE => {
                let mut response = ScsiResponse::read(&kept.bhs);
                (response.exp_cmd_sn, response.max_cmd_sn) = (expected, most);
                response.stat_sn = self.next_stat_sn();
                response.write()
            }
            _ => return None,
        };
        bhs.set_data_bytes(length);
        kept.bhs = bhs;
        Some(())
    }
}
