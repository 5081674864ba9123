//! The target's half of the full feature phase: order of commands, data phases, responses.
//!
//! Frames come in, PDUs are appended to a [`TransmitBuffer`], and requests for the SCSI layer or the store are returned as
//! [`Incoming`]. It does no I/O.

mod answers;
mod recovery;
mod write;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use borrowed::Borrowed;

use crate::bhs::{BHS_BYTES, Bhs, NO_TAG, padding};
use crate::digest::digest;
use crate::fault::{Fault, RejectReason};
use crate::frame::Frame;
use crate::login::SessionType;
use crate::login::target::LoggedIn;
use crate::parameters::Parameters;
use crate::pdu::{
    DataIn, DataOut, LogoutRequest, NopOut, ScsiCommand, ScsiResponse, TaskManagementRequest, TextRequest,
};
use crate::replay::{Kept, ReadOrigin, Replay};
use crate::sequence::{CommandSequence, Turn};
use crate::text::Gathered;
use crate::transmit::TransmitBuffer;
use crate::write_task::WriteTask;
use crate::{opcode, status};

pub use answers::LogoutOutcome;
pub use recovery::{Adopted, Held, Parked};
pub use write::ReleasedWrite;

pub use crate::write_task::WriteOrder;

/// The event that a frame turns into, for the caller.
#[derive(Debug)]
pub enum Incoming<'a> {
    /// Answered here, or to be ignored.
    Nothing,
    /// A command to be planned; `data` is its immediate data.
    Command {
        /// The command.
        command: ScsiCommand,
        /// Immediate data.
        data: &'a [u8],
    },
    /// Data of a write in progress, to go to the store at `store_offset`; then call
    /// [`TargetConnection::data_taken`].
    Data {
        /// The task's tag.
        tag: u32,
        /// Where it goes, bytes.
        store_offset: u64,
        /// The data; empty when all of it lies beyond the transfer.
        data: &'a [u8],
        /// The logical unit.
        lun: [u8; 8],
    },
    /// A task management function to be judged; answer with
    /// [`TargetConnection::respond_task_management`].
    TaskManagement(TaskManagementRequest),
    /// A whole text request; answer with [`TargetConnection::respond_text`].
    Text {
        /// The request that ended it.
        request: TextRequest,
        /// Its keys.
        text: Vec<u8>,
    },
    /// A request to close this connection or the whole session: once all its tasks have ended, answer with
    /// [`TargetConnection::respond_logout`], then close.
    Logout {
        /// The request.
        request: LogoutRequest,
        /// The whole session.
        session: bool,
    },
    /// Retransmit these PDUs unchanged (SNACK); data of the medium is read again.
    SendAgain(Vec<Kept>),
    /// A request to close another connection of the session, or to release its tasks for reassignment (`recovery`);
    /// answer with [`TargetConnection::respond_logout`].
    LogoutOther {
        /// The request.
        request: LogoutRequest,
        /// Its tasks are kept for reassignment.
        recovery: bool,
    },
}

/// What to do with a write command's immediate data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBegun {
    /// How many bytes of the immediate data go to the store.
    pub useful_bytes: usize,
    /// Whether that is all the data: write it, then call [`TargetConnection::respond_write`].
    pub complete: bool,
}

/// The rest of a text response.
#[derive(Debug)]
struct UnsentText {
    /// The target transfer tag of the request that asks for it.
    transfer_tag: u32,
    text: Vec<u8>,
}

/// The target's side of a connection in the full feature phase.
///
/// Call [`TargetConnection::receive`] with every PDU in the order of the stream, and act on the [`Incoming`] before the
/// next one:
///
/// - `Command`: answer at once or later, by exactly one of [`respond_status`](Self::respond_status),
///   [`respond_read`](Self::respond_read) and [`begin_answer`](Self::begin_answer) with its pieces; or begin its data
///   phase with [`begin_write`](Self::begin_write), which fails only after it has answered.
/// - `Data`: store the data, then call [`data_taken`](Self::data_taken) with the outcome. It sends further R2Ts, and the
///   response after the last data. To answer later instead, check [`has_all_data`](Self::has_all_data) first, then take
///   the write with [`release_write`](Self::release_write).
/// - `TaskManagement`, `Text`, `Logout`: answer with the method that the variant names.
/// - `SendAgain`: append each PDU with [`send_again`](Self::send_again).
///
/// After `receive`, and after any call that answers a command, [`take_held`](Self::take_held) returns commands that
/// arrived before their turn: pass their frames to `receive`. An error of `receive` ends the connection; send what is in
/// the transmit buffer first. Above ErrorRecoveryLevel 0, call [`sent`](Self::sent) with everything appended, in order,
/// before the bytes leave the buffer; [`park`](Self::park) hands the tasks of a lost connection to another one.
///
/// ```
/// use iscsi::login::SessionType;
/// use iscsi::login::target::LoggedIn;
/// use iscsi::pdu::{ScsiCommand, ScsiResponse};
/// use iscsi::target::{Incoming, TargetConnection};
/// use iscsi::{Framer, Parameters, TransmitBuffer, status};
///
/// # let login = LoggedIn {
/// #     initiator_name: "iqn.i".into(), user: None, proven: None, target_name: "iqn.t".into(),
/// #     session_type: SessionType::Normal, isid: [0; 6], tsih: 1, cid: 0,
/// #     parameters: Parameters::default(), exp_cmd_sn: 1, stat_sn: 1,
/// # };
/// let (framer, mut out) = (Framer::new(8192), TransmitBuffer::new());
/// let mut connection = TargetConnection::new(&login, 32);
/// let test_unit_ready = ScsiCommand { is_final: true, tag: 9, cmd_sn: 1, ..ScsiCommand::default() };
/// let stream = test_unit_ready.write().0;
/// let frame = framer.next(&stream)?.frame().expect("one PDU");
/// let Incoming::Command { command, .. } = connection.receive(&frame, &mut out)? else { panic!() };
/// connection.respond_status(&command, status::GOOD, &[], 0, 0, &mut out);
///
/// let frame = framer.next(out.pending())?.frame().expect("one PDU");
/// assert_eq!(ScsiResponse::read(&frame.bhs).tag, 9);
/// # Ok::<(), iscsi::Fault>(())
/// ```
#[derive(Debug)]
pub struct TargetConnection {
    parameters: Parameters,
    session_type: SessionType,
    cid: u16,
    sequence: Arc<CommandSequence>,
    stat_sn: u32,
    tasks: HashMap<u32, WriteTask>,
    /// Commands that arrived before their turn, by CmdSN.
    held: HashMap<u32, Held>,
    held_bytes: usize,
    replay: Replay,
    /// Reads in progress, with the place of their data.
    reads: HashMap<u32, ReadOrigin>,
    next_transfer_tag: u32,
    gathered: Gathered,
    unsent_text: Option<UnsentText>,
    /// Responses that were not GOOD, since they were last taken.
    failures: BTreeMap<([u8; 8], u8, u8), u64>,
}

/// Most kinds of failures that are counted between two takes.
const FAILURES_MAX: usize = 256;

impl TargetConnection {
    /// The only connection of a session; `window` (at least 1) commands may be in flight.
    #[must_use]
    pub fn new(login: &LoggedIn, window: u32) -> Self {
        Self::join(login, Arc::new(CommandSequence::new(login.exp_cmd_sn, window)))
    }

    /// A connection that completed its login, of a session whose connections share `sequence`.
    #[must_use]
    pub fn join(login: &LoggedIn, sequence: Arc<CommandSequence>) -> Self {
        Self {
            parameters: login.parameters.clone(),
            session_type: login.session_type,
            cid: login.cid,
            sequence,
            stat_sn: login.stat_sn,
            tasks: HashMap::new(),
            held: HashMap::new(),
            held_bytes: 0,
            replay: Replay::default(),
            reads: HashMap::new(),
            next_transfer_tag: 0,
            gathered: Gathered::default(),
            failures: BTreeMap::new(),
            unsent_text: None,
        }
    }

    /// The negotiated parameters.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// The order of the session's commands.
    #[must_use]
    pub fn sequence(&self) -> &CommandSequence {
        &self.sequence
    }

    /// Limits the text of one exchange and the PDUs kept for retransmission, bytes. Must precede the first PDU.
    pub fn limit(&mut self, text_bytes: usize, replay_bytes: usize) {
        self.gathered = Gathered::new(text_bytes);
        self.replay = Replay::new(replay_bytes);
    }

    /// The number of writes whose data is incomplete.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Whether data of this task is awaited.
    #[must_use]
    pub fn awaits_data(&self, tag: u32) -> bool {
        self.tasks.contains_key(&tag)
    }

    /// StatSN of the next response. A connection on which [`is_between_requests`](Self::is_between_requests) holds continues as the
    /// [`join`](Self::join) of a login with this StatSN.
    #[must_use]
    pub fn stat_sn(&self) -> u32 {
        self.stat_sn
    }

    /// Whether no request is in progress, and nothing is kept for retransmission.
    #[must_use]
    pub fn is_between_requests(&self) -> bool {
        self.tasks.is_empty()
            && self.held.is_empty()
            && self.reads.is_empty()
            && self.gathered.is_empty()
            && self.unsent_text.is_none()
            && self.parameters.error_recovery_level == 0
    }

    /// Takes one PDU.
    ///
    /// # Errors
    /// If the connection cannot continue; a Reject was appended where the RFC provides one.
    #[inline]
    pub fn receive<'a>(
        &mut self,
        frame: &Frame<'a>,
        out: &mut TransmitBuffer,
    ) -> Result<Incoming<'a>, Fault> {
        let bhs = &frame.bhs;
        if self.parameters.error_recovery_level > 0 {
            // ExpStatSN has the same place in all that an initiator sends.
            let exp_stat_sn = u32::from_be_bytes([bhs.0[28], bhs.0[29], bhs.0[30], bhs.0[31]]);
            self.replay.acknowledge(exp_stat_sn);
        }
        if frame.is_damaged {
            return Ok(self.damaged(frame, out));
        }
        if self.session_type == SessionType::Discovery && !is_discovery(bhs.opcode()) {
            self.reject(RejectReason::ProtocolError, bhs, out);
            return Err(Fault::OutOfPhase { opcode: bhs.opcode(), phase: "discovery" });
        }
        match bhs.opcode() {
            opcode::initiator::SCSI_COMMAND => {
                let command = ScsiCommand::read(bhs);
                match self.turn(command.immediate, command.cmd_sn) {
                    Turn::Now => {}
                    Turn::Later => return self.hold(frame, command.cmd_sn),
                    Turn::Never => return Ok(Incoming::Nothing),
                }
                if command.immediate && self.sequence.open_window() == 0 {
                    // Immediate commands are outside the window, but the memory that they need is limited too.
                    self.reject(RejectReason::ImmediateCommandReject, bhs, out);
                    return Ok(Incoming::Nothing);
                }
                if self.tasks.contains_key(&command.tag) {
                    self.reject(RejectReason::TaskInProgress, bhs, out);
                    return Ok(Incoming::Nothing);
                }
                Ok(Incoming::Command { command, data: frame.data })
            }
            opcode::initiator::DATA_OUT => {
                if !self.held.is_empty() && self.hold_data(frame)? {
                    return Ok(Incoming::Nothing);
                }
                Ok(self.data_out(&DataOut::read(bhs), frame.data, out))
            }
            opcode::initiator::NOP_OUT => {
                let nop = NopOut::read(bhs);
                match self.turn(nop.immediate, nop.cmd_sn) {
                    Turn::Now if nop.tag != NO_TAG => self.nop_in(&nop, frame.data, out),
                    Turn::Later => return self.hold(frame, nop.cmd_sn),
                    Turn::Now | Turn::Never => {}
                }
                Ok(Incoming::Nothing)
            }
            opcode::initiator::TASK_MANAGEMENT => {
                let request = TaskManagementRequest::read(bhs);
                match self.turn(request.immediate, request.cmd_sn) {
                    Turn::Now => Ok(Incoming::TaskManagement(request)),
                    Turn::Later => self.hold(frame, request.cmd_sn),
                    Turn::Never => Ok(Incoming::Nothing),
                }
            }
            opcode::initiator::TEXT => self.text(&TextRequest::read(bhs), frame, out),
            opcode::initiator::LOGOUT => {
                let request = LogoutRequest::read(bhs);
                match self.turn(request.immediate, request.cmd_sn) {
                    Turn::Now => Ok(self.logout(&request, out)),
                    Turn::Later => self.hold(frame, request.cmd_sn),
                    Turn::Never => Ok(Incoming::Nothing),
                }
            }
            opcode::initiator::LOGIN => {
                self.reject(RejectReason::ProtocolError, bhs, out);
                Err(Fault::OutOfPhase { opcode: bhs.opcode(), phase: "full feature" })
            }
            opcode::initiator::SNACK => Ok(self.snack(bhs, out)),
            _ => {
                self.reject(RejectReason::CommandNotSupported, bhs, out);
                Ok(Incoming::Nothing)
            }
        }
    }

    /// Takes a command's turn in the order of CmdSN (RFC 7143 4.2.2.1). Immediate commands are outside that order.
    #[inline]
    fn turn(&self, immediate: bool, cmd_sn: u32) -> Turn {
        if immediate { Turn::Now } else { self.sequence.take_turn(cmd_sn) }
    }

    fn keep_task(&mut self, tag: u32, task: WriteTask) {
        if self.tasks.insert(tag, task).is_none() {
            self.sequence.unfinished(1);
        }
    }

    fn take_task(&mut self, tag: u32) -> Option<WriteTask> {
        let task = self.tasks.remove(&tag)?;
        self.sequence.unfinished(-1);
        Some(task)
    }

    /// The StatSN of a response that carries status.
    fn next_stat_sn(&mut self) -> u32 {
        let stat_sn = self.stat_sn;
        self.stat_sn = stat_sn.wrapping_add(1);
        stat_sn
    }

    /// Answers a command that ends with data for the initiator and GOOD status. `length` is what the CDB
    /// transfers; `read` fills the given bytes of the data from the given offset on, all of them.
    ///
    /// # Errors
    /// The reader's error; the incomplete PDU is removed, so that a status with sense can follow.
    #[inline]
    pub fn respond_read<E>(
        &mut self,
        command: &ScsiCommand,
        length: u64,
        out: &mut TransmitBuffer,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), ReadFailed<E>> {
        let Some(mut sequence) = DataSequence::new(command, length, &self.parameters) else {
            self.respond_status(command, status::GOOD, &[], length, 0, out);
            return Ok(());
        };
        while let Some((at, _)) = sequence.next() {
            let mut outcome = Ok(());
            let made = self.try_answer_piece(command, &mut sequence, out, |piece| {
                outcome = read(u64::from(at), piece);
                outcome.is_ok()
            });
            if let (false, Err(error)) = (made, outcome) {
                return Err(ReadFailed { error, data_pdus: sequence.data_sn });
            }
        }
        Ok(())
    }

    /// Whether this connection's responses may refer to borrowed data: data digests and retransmission need a copy.
    #[must_use]
    #[inline]
    pub fn may_borrow(&self, out: &TransmitBuffer) -> bool {
        self.parameters.error_recovery_level == 0 && !out.digests().data
    }

    /// How many responses with status were made that an initiator had not received when it sent `exp_stat_sn`; 0 for a
    /// number that cannot be.
    #[must_use]
    #[inline]
    pub fn unacknowledged(&self, exp_stat_sn: u32) -> u32 {
        let count = self.stat_sn.wrapping_sub(exp_stat_sn);
        if count < 1 << 16 { count } else { 0 }
    }

    /// Begins an answer that is made one PDU at a time, as there is room for it; `None` if no data is transferred.
    #[must_use]
    pub fn begin_answer(&self, command: &ScsiCommand, length: u64) -> Option<DataSequence> {
        DataSequence::new(command, length, &self.parameters)
    }

    /// Appends the next Data-In PDU of an answer; `fill` fills its data, whose length [`DataSequence::next`] returned.
    pub fn answer_piece(
        &mut self,
        command: &ScsiCommand,
        sequence: &mut DataSequence,
        out: &mut TransmitBuffer,
        fill: impl FnOnce(&mut [u8]),
    ) {
        self.try_answer_piece(command, sequence, out, |piece| {
            fill(piece);
            true
        });
    }

    /// As [`Self::answer_piece`], with a `fill` that may fail: then nothing is appended, and this returns false.
    #[inline]
    pub fn try_answer_piece(
        &mut self,
        command: &ScsiCommand,
        sequence: &mut DataSequence,
        out: &mut TransmitBuffer,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) -> bool {
        let Some((_, bytes)) = sequence.next() else { return false };
        let digests = out.digests();
        let (padded, header_bytes) = (bytes as usize + padding(bytes as usize), digests.header_bytes());
        let total = BHS_BYTES + header_bytes + padded + digests.data_bytes(bytes as usize);
        let pdu = out.claim(total);
        let (header, rest) = pdu.split_at_mut(BHS_BYTES);
        let (header_digest, rest) = rest.split_at_mut(header_bytes);
        let (segment, data_digest) = rest.split_at_mut(padded);
        let (data, pad) = segment.split_at_mut(bytes as usize);
        if !fill(data) {
            out.unclaim(total);
            return false;
        }
        pad.fill(0);
        let bhs = self.data_in(command, sequence);
        header.copy_from_slice(&bhs.0);
        if digests.header {
            header_digest.copy_from_slice(&digest(&[&bhs.0]));
        }
        if digests.data {
            data_digest.copy_from_slice(&digest(&[segment]));
        }
        true
    }

    /// Appends the next Data-In PDU of an answer with borrowed data, whose length [`DataSequence::next`] returned.
    pub fn answer_borrowed(
        &mut self,
        command: &ScsiCommand,
        sequence: &mut DataSequence,
        data: impl IntoIterator<Item = Borrowed>,
        out: &mut TransmitBuffer,
    ) {
        let Some((_, bytes)) = sequence.next() else { return };
        let bhs = self.data_in(command, sequence);
        out.extend(&bhs.0);
        if out.digests().header {
            out.extend(&digest(&[&bhs.0]));
        }
        let mut left = bytes as usize;
        for borrowed in data {
            let here = borrowed.length.min(left);
            out.push_borrowed(borrowed.part(0, here));
            left -= here;
        }
        // Less data than announced is the caller's error. The PDU still has the length in its header, or the stream would be
        // corrupt.
        out.claim(left).fill(0);
        out.extend(&[0; 3][..padding(bytes as usize)]);
    }

    /// Counts a read as an unfinished command, which takes a place in the window, until the header of its last Data-In PDU
    /// is made or [`Self::end_count`] is called.
    pub fn begin_count(&self, sequence: &mut DataSequence) {
        self.sequence.unfinished(1);
        sequence.is_counted = true;
    }

    /// Ends the count of a read, if it is counted. Must precede a status that ends the read before its last Data-In PDU.
    #[inline]
    pub fn end_count(&self, sequence: &mut DataSequence) {
        if std::mem::take(&mut sequence.is_counted) {
            self.sequence.unfinished(-1);
        }
    }

    /// Skips the next Data-In PDU of an answer, which the initiator has received.
    pub fn skip_piece(&mut self, command: &ScsiCommand, sequence: &mut DataSequence) {
        if sequence.next().is_some() {
            let _ = self.data_in(command, sequence);
        }
    }

    /// Retransmits a PDU with its data.
    pub fn send_again(kept: &Kept, data: &[u8], out: &mut TransmitBuffer) {
        out.pdu(kept.bhs, data);
    }

    /// The header of the next Data-In PDU of a sequence.
    #[inline]
    fn data_in(&mut self, command: &ScsiCommand, sequence: &mut DataSequence) -> Bhs {
        let (at, bytes) = (sequence.at, sequence.bytes);
        sequence.burst_left -= bytes;
        let last = at + bytes == sequence.transfer;
        if last {
            // The initiator learns of the window from this PDU: if it counted this command, a window of one would stay closed.
            self.end_count(sequence);
        }
        let mut data_in = DataIn {
            is_final: last || sequence.burst_left == 0,
            tag: command.tag,
            transfer_tag: NO_TAG,
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
            data_sn: sequence.data_sn,
            buffer_offset: at,
            ..DataIn::default()
        };
        if last {
            data_in.has_status = true;
            data_in.stat_sn = self.next_stat_sn();
            (data_in.overflow, data_in.underflow, data_in.residual_bytes) =
                residual(sequence.length, command.expected_bytes);
        }
        sequence.at += bytes;
        sequence.data_sn += 1;
        if sequence.burst_left == 0 {
            sequence.burst_left = sequence.burst_bytes;
        }
        let mut bhs = data_in.write();
        bhs.set_data_bytes(bytes as usize);
        bhs
    }

    /// Counts a response that is not GOOD.
    #[cold]
    fn failed(&mut self, lun: [u8; 8], status: u8, sense: &[u8]) {
        // Sense data in descriptor format has the key in the second byte, in fixed format in the third (SPC-4 4.5).
        let key = match sense.first().map(|code| code & 0x7f) {
            Some(0x72 | 0x73) => sense.get(1),
            Some(0x70 | 0x71) => sense.get(2),
            _ => None,
        };
        let of = (lun, status, key.map_or(0, |key| key & 15));
        // An initiator can name as many logical units as it likes.
        if self.failures.len() < FAILURES_MAX || self.failures.contains_key(&of) {
            *self.failures.entry(of).or_default() += 1;
        }
    }

    /// Takes the responses that were not GOOD since the last call: LUN field, status, sense key, and how many.
    pub fn take_failures(&mut self) -> BTreeMap<([u8; 8], u8, u8), u64> {
        std::mem::take(&mut self.failures)
    }

    /// Answers a command that ends with status and perhaps sense data. `length` is what the CDB would have
    /// transferred, for the residual count; `data_pdus` what was sent before (ExpDataSN).
    pub fn respond_status(
        &mut self,
        command: &ScsiCommand,
        status: u8,
        sense: &[u8],
        length: u64,
        data_pdus: u32,
        out: &mut TransmitBuffer,
    ) {
        let expected = if command.read || command.write_data { command.expected_bytes } else { 0 };
        let moved = if status == status::GOOD { length } else { 0 };
        let (overflow, underflow, residual_bytes) = residual(moved, expected);
        if status != status::GOOD {
            self.failed(command.lun, status, sense);
        }
        let response = ScsiResponse {
            overflow,
            underflow,
            status,
            tag: command.tag,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
            exp_data_sn: data_pdus,
            residual_bytes,
            ..ScsiResponse::default()
        };
        // The data segment is the length of the sense data, then the sense data (RFC 7143 11.4.7).
        let mut segment = Vec::new();
        if !sense.is_empty() {
            segment.extend_from_slice(&(sense.len() as u16).to_be_bytes());
            segment.extend_from_slice(sense);
        }
        out.pdu(response.write(), &segment);
    }
}

/// Whether a PDU is valid in a discovery session (RFC 7143 4.3, 4.4.2): Text, Logout, NOP-Out.
fn is_discovery(code: u8) -> bool {
    matches!(code, opcode::initiator::TEXT | opcode::initiator::LOGOUT | opcode::initiator::NOP_OUT)
}

impl Drop for TargetConnection {
    /// Frees the places of its commands in the window.
    fn drop(&mut self) {
        self.sequence.unfinished(-(self.tasks.len() as i32));
        self.sequence.wait(-(self.held.len() as i32));
    }
}

/// The Data-In PDUs of one command, as the negotiated lengths cut them (RFC 7143 11.7).
#[derive(Clone, Copy, Debug)]
pub struct DataSequence {
    /// The length by the CDB, and the length transferred.
    length: u64,
    transfer: u32,
    /// The data of the next PDU: offset and length.
    at: u32,
    bytes: u32,
    pdu_bytes_max: u32,
    burst_bytes: u32,
    burst_left: u32,
    data_sn: u32,
    /// It counts as an unfinished command.
    is_counted: bool,
}

impl DataSequence {
    /// `None` if no data is transferred.
    #[inline]
    fn new(command: &ScsiCommand, length: u64, parameters: &Parameters) -> Option<Self> {
        let expected = if command.read { command.expected_bytes } else { 0 };
        let transfer = length.min(u64::from(expected)) as u32;
        (transfer > 0).then_some(Self {
            length,
            transfer,
            at: 0,
            bytes: 0,
            pdu_bytes_max: parameters.max_send_bytes,
            burst_bytes: parameters.max_burst_bytes,
            burst_left: parameters.max_burst_bytes,
            data_sn: 0,
            is_counted: false,
        })
    }

    /// How many bytes are transferred in all.
    #[must_use]
    #[inline]
    pub fn transfer_bytes(&self) -> u32 {
        self.transfer
    }

    /// Whether the same PDUs make up both answers.
    #[must_use]
    pub fn is_cut_like(&self, other: &Self) -> bool {
        (self.transfer, self.pdu_bytes_max, self.burst_bytes)
            == (other.transfer, other.pdu_bytes_max, other.burst_bytes)
    }

    /// How many Data-In PDUs were made: ExpDataSN of a status that follows them.
    #[must_use]
    pub fn data_pdus(&self) -> u32 {
        self.data_sn
    }

    /// The place of the next PDU's data, its first byte and how many; it is the same until its header is made.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "the same until a PDU is made: no iterator")]
    pub fn next(&mut self) -> Option<(u32, u32)> {
        let left = self.transfer - self.at;
        self.bytes = left.min(self.pdu_bytes_max).min(self.burst_left);
        (left > 0).then_some((self.at, self.bytes))
    }
}

/// A read that failed after some Data-In PDUs were made.
#[derive(Debug)]
pub struct ReadFailed<E> {
    /// Why.
    pub error: E,
    /// How many Data-In PDUs precede the status: its ExpDataSN.
    pub data_pdus: u32,
}

/// Overflow, underflow and residual count (RFC 7143 11.4.5): the CDB's length against the initiator's.
fn residual(length: u64, expected: u32) -> (bool, bool, u32) {
    let expected = u64::from(expected);
    let count = u32::try_from(length.abs_diff(expected)).unwrap_or(u32::MAX);
    (length > expected, length < expected, count)
}

#[cfg(test)]
mod tests;
