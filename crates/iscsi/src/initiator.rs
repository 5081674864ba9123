//! The initiator's half of the full feature phase.
//!
//! Commands are appended to a [`TransmitBuffer`]; frames come in and turn into [`Event`]s. No I/O.

use crate::bhs::{BHS_BYTES, Bhs, NO_TAG, padding};
use crate::digest::digest;
use crate::fault::Fault;
use crate::frame::Frame;
use crate::login::initiator::Established;
use crate::parameters::Parameters;
use crate::pdu::{
    AsyncMessage, DataIn, DataOut, LogoutRequest, NopIn, NopOut, R2t, Reject, ScsiCommand, ScsiResponse,
    TextRequest, TextResponse,
};
use crate::text::Gathered;
use crate::transmit::TransmitBuffer;
use crate::{opcode, status};

/// Most commands in flight; a power of two.
pub const COMMANDS_MAX: usize = 4096;

/// A command to issue.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The logical unit, as SAM encodes it.
    pub lun: [u8; 8],
    /// The command descriptor block.
    pub cdb: [u8; 16],
    /// Which way data goes, and how much.
    pub data: Direction,
    /// A number of the caller's, returned with the completion.
    pub user: u32,
}

/// Which way a command's data goes, bytes expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// From the target.
    In(u32),
    /// To the target.
    Out(u32),
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion<'a> {
    /// Its task tag.
    pub tag: u32,
    /// The caller's number.
    pub user: u32,
    /// SCSI status.
    pub status: u8,
    /// Bytes of data that arrived.
    pub received_bytes: u32,
    /// Bytes that the target reports as not transferred (residual underflow).
    pub residual_bytes: u32,
    /// Sense data, where the status has some.
    pub sense: &'a [u8],
}

/// What a frame turned into.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing for the caller.
    Nothing,
    /// Data of a command; with `end` the command is over as well.
    Data {
        /// The caller's number.
        user: u32,
        /// Where in the command's data it belongs, bytes.
        buffer_offset: u32,
        /// The data.
        data: &'a [u8],
        /// The completion, when this PDU carries it.
        end: Option<Completion<'a>>,
    },
    /// A command is over.
    End(Completion<'a>),
    /// The target wants data: call [`InitiatorConnection::send_data`].
    Wanted {
        /// The caller's number.
        user: u32,
        /// What is wanted.
        r2t: R2t,
    },
    /// A whole text response.
    Text(Vec<u8>),
    /// The logout was answered.
    LoggedOut,
    /// The target rejected a PDU with this reason.
    Rejected(u8),
    /// The target announced an event (RFC 7143 11.9.1).
    Announced(u8),
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    tag: u32,
    user: u32,
    expected: u32,
    received: u32,
}

/// The initiator's side of a connection in the full feature phase.
///
/// [`InitiatorConnection::issue`] appends a command; it returns `None`, and appends nothing, while
/// [`InitiatorConnection::may_issue`] is false, that is until a response opens the window. Call
/// [`InitiatorConnection::receive`] with every PDU in the order of the stream, and answer [`Event::Wanted`] with
/// [`InitiatorConnection::send_data`]. Each command ends with exactly one [`Completion`]. One text exchange at a time;
/// nothing is issued after [`InitiatorConnection::logout`]. An error of `receive` ends the connection.
///
/// ```
/// use iscsi::initiator::{Direction, Event, InitiatorConnection, Request};
/// use iscsi::login::initiator::Established;
/// use iscsi::pdu::ScsiResponse;
/// use iscsi::{Framer, Parameters, TransmitBuffer};
///
/// let login =
///     Established { parameters: Parameters::default(), cmd_sn: 1, exp_stat_sn: 1, max_cmd_sn: 32, tsih: 1 };
/// let (framer, mut out) = (Framer::new(8192), TransmitBuffer::new());
/// let mut connection = InitiatorConnection::new(&login);
/// let test_unit_ready = Request { lun: [0; 8], cdb: [0; 16], data: Direction::None, user: 5 };
/// let tag = connection.issue(&test_unit_ready, &mut out, |_, _| ()).expect("the window is open");
///
/// let response = ScsiResponse { tag, stat_sn: 1, max_cmd_sn: 33, ..ScsiResponse::default() }.write();
/// let frame = framer.next(&response.0)?.frame().expect("one PDU");
/// let Event::End(end) = connection.receive(&frame, &mut out)? else { panic!() };
/// assert_eq!((end.user, end.status), (5, 0));
/// # Ok::<(), iscsi::Fault>(())
/// ```
#[derive(Debug)]
pub struct InitiatorConnection {
    parameters: Parameters,
    cmd_sn: u32,
    max_cmd_sn: u32,
    exp_stat_sn: u32,
    next_tag: u32,
    pending: Box<[Option<Pending>]>,
    in_flight: usize,
    gathered: Gathered,
}

impl InitiatorConnection {
    /// A connection whose login has ended.
    #[must_use]
    pub fn new(login: &Established) -> Self {
        Self {
            parameters: login.parameters.clone(),
            cmd_sn: login.cmd_sn,
            max_cmd_sn: login.max_cmd_sn,
            exp_stat_sn: login.exp_stat_sn,
            next_tag: 1,
            pending: vec![None; COMMANDS_MAX].into_boxed_slice(),
            in_flight: 0,
            gathered: Gathered::default(),
        }
    }

    /// The negotiated parameters.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Commands without an answer.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether the target and this side take another command now.
    #[must_use]
    pub fn may_issue(&self) -> bool {
        self.in_flight < COMMANDS_MAX / 2 && self.max_cmd_sn.wrapping_sub(self.cmd_sn).cast_signed() >= 0
    }

    /// Appends a command, with as much unsolicited data as was agreed; `fill` gives the data from an offset
    /// on. Returns the task tag, or nothing when [`Self::may_issue`] is false.
    pub fn issue(
        &mut self,
        request: &Request,
        out: &mut TransmitBuffer,
        mut fill: impl FnMut(u32, &mut [u8]),
    ) -> Option<u32> {
        if !self.may_issue() {
            return None;
        }
        let tag = self.fresh_tag();
        let (expected, write) = match request.data {
            Direction::None => (0, false),
            Direction::In(bytes) => (bytes, false),
            Direction::Out(bytes) => (bytes, true),
        };
        let p = &self.parameters;
        let first_burst = if write { expected.min(p.first_burst_bytes) } else { 0 };
        let immediate = if p.immediate_data { first_burst.min(p.max_send_bytes) } else { 0 };
        let unsolicited = if p.initial_r2t { immediate } else { first_burst };
        let command = ScsiCommand {
            is_final: unsolicited <= immediate,
            read: matches!(request.data, Direction::In(_)),
            write_data: write,
            lun: request.lun,
            tag,
            expected_bytes: expected,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: request.cdb,
            ..ScsiCommand::default()
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        append(out, command.write(), immediate as usize, |data| fill(0, data));
        self.pending[tag as usize % COMMANDS_MAX] =
            Some(Pending { tag, user: request.user, expected, received: 0 });
        self.in_flight += 1;
        self.data_outs(request.lun, tag, NO_TAG, immediate, unsolicited, out, fill);
        Some(tag)
    }

    /// Answers an R2T.
    pub fn send_data(&mut self, r2t: &R2t, out: &mut TransmitBuffer, fill: impl FnMut(u32, &mut [u8])) {
        let end = r2t.buffer_offset.saturating_add(r2t.desired_bytes);
        self.data_outs(r2t.lun, r2t.tag, r2t.transfer_tag, r2t.buffer_offset, end, out, fill);
    }

    #[allow(clippy::too_many_arguments)]
    fn data_outs(
        &self,
        lun: [u8; 8],
        tag: u32,
        transfer_tag: u32,
        from: u32,
        to: u32,
        out: &mut TransmitBuffer,
        mut fill: impl FnMut(u32, &mut [u8]),
    ) {
        let (mut at, mut data_sn) = (from, 0);
        while at < to {
            let bytes = (to - at).min(self.parameters.max_send_bytes);
            let pdu = DataOut {
                is_final: at + bytes == to,
                lun,
                tag,
                transfer_tag,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                buffer_offset: at,
            };
            append(out, pdu.write(), bytes as usize, |data| fill(at, data));
            at += bytes;
            data_sn += 1;
        }
    }

    /// Appends a text request, such as `SendTargets=All`.
    pub fn text(&mut self, text: &[u8], out: &mut TransmitBuffer) {
        self.text_request(text, NO_TAG, out);
    }

    fn text_request(&mut self, text: &[u8], transfer_tag: u32, out: &mut TransmitBuffer) {
        let request = TextRequest {
            immediate: true,
            is_final: true,
            tag: 0,
            transfer_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..TextRequest::default()
        };
        append(out, request.write(), text.len(), |data| data.copy_from_slice(text));
    }

    /// Appends a request to close the session.
    pub fn logout(&mut self, out: &mut TransmitBuffer) {
        let request = LogoutRequest {
            immediate: true,
            tag: 0,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..LogoutRequest::default()
        };
        append(out, request.write(), 0, |_| ());
    }

    /// Takes one PDU.
    ///
    /// # Errors
    /// When the target breaks the protocol in a way that leaves the state of a command unknown.
    pub fn receive<'a>(&mut self, frame: &Frame<'a>, out: &mut TransmitBuffer) -> Result<Event<'a>, Fault> {
        let bhs = &frame.bhs;
        match bhs.opcode() {
            opcode::target::DATA_IN => {
                let pdu = DataIn::read(bhs);
                self.window(pdu.max_cmd_sn);
                self.data_in(&pdu, frame.data)
            }
            opcode::target::SCSI_RESPONSE => {
                let pdu = ScsiResponse::read(bhs);
                self.window(pdu.max_cmd_sn);
                self.exp_stat_sn = pdu.stat_sn.wrapping_add(1);
                let pending = self.take(pdu.tag)?;
                let sense = match frame.data.split_first_chunk::<2>() {
                    Some((length, sense)) => &sense[..sense.len().min(u16::from_be_bytes(*length).into())],
                    None => &[],
                };
                // A response code other than "completed at target" is a failure whatever the status byte is.
                let status = if pdu.response == 0 { pdu.status } else { status::CHECK_CONDITION };
                let residual = if pdu.underflow { pdu.residual_bytes } else { 0 };
                Ok(Event::End(completion(&pending, status, residual, sense)))
            }
            opcode::target::R2T => {
                let r2t = R2t::read(bhs);
                self.window(r2t.max_cmd_sn);
                let pending = self.find(r2t.tag)?;
                if r2t.buffer_offset.checked_add(r2t.desired_bytes).is_none_or(|end| end > pending.expected) {
                    return Err(Fault::Protocol {
                        what: "an R2T asks for data beyond the command's",
                        section: "RFC 7143 11.8",
                    });
                }
                Ok(Event::Wanted { user: pending.user, r2t })
            }
            opcode::target::NOP_IN => {
                let nop = NopIn::read(bhs);
                self.window(nop.max_cmd_sn);
                if nop.transfer_tag != NO_TAG {
                    let answer = NopOut {
                        immediate: true,
                        lun: nop.lun,
                        tag: NO_TAG,
                        transfer_tag: nop.transfer_tag,
                        cmd_sn: self.cmd_sn,
                        exp_stat_sn: self.exp_stat_sn,
                    };
                    append(out, answer.write(), 0, |_| ());
                }
                Ok(Event::Nothing)
            }
            opcode::target::TEXT => {
                let response = TextResponse::read(bhs);
                self.window(response.max_cmd_sn);
                self.exp_stat_sn = response.stat_sn.wrapping_add(1);
                self.gathered.add(frame.data)?;
                if response.continues || !response.is_final {
                    self.text_request(&[], response.transfer_tag, out);
                    return Ok(Event::Nothing);
                }
                Ok(Event::Text(self.gathered.take()))
            }
            opcode::target::LOGOUT => Ok(Event::LoggedOut),
            opcode::target::REJECT => Ok(Event::Rejected(Reject::read(bhs).reason)),
            opcode::target::ASYNC => {
                let message = AsyncMessage::read(bhs);
                self.exp_stat_sn = message.stat_sn.wrapping_add(1);
                Ok(Event::Announced(message.event))
            }
            opcode => Err(Fault::OutOfPhase { opcode, phase: "full feature" }),
        }
    }

    fn data_in<'a>(&mut self, pdu: &DataIn, data: &'a [u8]) -> Result<Event<'a>, Fault> {
        let slot = self.slot(pdu.tag);
        let Some(pending) = slot.as_mut().filter(|p| p.tag == pdu.tag) else {
            return Err(Fault::Protocol {
                what: "data for a task that is not in flight",
                section: "RFC 7143 11.7",
            });
        };
        let fits = pdu.buffer_offset == pending.received
            && data.len() <= (pending.expected - pending.received) as usize;
        if !fits {
            return Err(Fault::Protocol {
                what: "data out of order or beyond the command's",
                section: "RFC 7143 11.7",
            });
        }
        pending.received += data.len() as u32;
        let pending = *pending;
        let residual = if pdu.underflow { pdu.residual_bytes } else { 0 };
        let end = pdu.has_status.then(|| completion(&pending, pdu.status, residual, &[]));
        if pdu.has_status {
            *slot = None;
            self.in_flight -= 1;
            self.exp_stat_sn = pdu.stat_sn.wrapping_add(1);
        }
        Ok(Event::Data { user: pending.user, buffer_offset: pdu.buffer_offset, data, end })
    }

    fn window(&mut self, max_cmd_sn: u32) {
        // An older response may arrive with a lower bound; the window never shrinks.
        if max_cmd_sn.wrapping_sub(self.max_cmd_sn).cast_signed() > 0 {
            self.max_cmd_sn = max_cmd_sn;
        }
    }

    fn fresh_tag(&mut self) -> u32 {
        loop {
            let tag = self.next_tag;
            self.next_tag = self.next_tag.wrapping_add(1);
            // At most half of the places are taken, so this ends soon.
            if tag != NO_TAG && self.slot(tag).is_none() {
                return tag;
            }
        }
    }

    fn slot(&mut self, tag: u32) -> &mut Option<Pending> {
        &mut self.pending[tag as usize % COMMANDS_MAX]
    }

    fn find(&mut self, tag: u32) -> Result<Pending, Fault> {
        let unknown = Fault::Protocol {
            what: "an answer to a task that is not in flight",
            section: "RFC 7143 11.2.1.8",
        };
        self.slot(tag).filter(|p| p.tag == tag).ok_or(unknown)
    }

    fn take(&mut self, tag: u32) -> Result<Pending, Fault> {
        let pending = self.find(tag)?;
        *self.slot(tag) = None;
        self.in_flight -= 1;
        Ok(pending)
    }
}

fn completion<'a>(pending: &Pending, status: u8, residual: u32, sense: &'a [u8]) -> Completion<'a> {
    let Pending { tag, user, expected, received } = *pending;
    // A residual above the expected length would be a negative transfer.
    Completion { tag, user, status, received_bytes: received, residual_bytes: residual.min(expected), sense }
}

/// Appends a PDU whose data segment `fill` writes, with the digests of `out`.
fn append(out: &mut TransmitBuffer, mut bhs: Bhs, data_bytes: usize, fill: impl FnOnce(&mut [u8])) {
    bhs.set_data_bytes(data_bytes);
    let digests = out.digests();
    let (padded, header_bytes) = (data_bytes + padding(data_bytes), digests.header_bytes());
    let pdu = out.claim(BHS_BYTES + header_bytes + padded + digests.data_bytes(data_bytes));
    let (header, rest) = pdu.split_at_mut(BHS_BYTES);
    let (header_digest, rest) = rest.split_at_mut(header_bytes);
    let (segment, data_digest) = rest.split_at_mut(padded);
    header.copy_from_slice(&bhs.0);
    if digests.header {
        header_digest.copy_from_slice(&digest(&[&bhs.0]));
    }
    fill(&mut segment[..data_bytes]);
    segment[data_bytes..].fill(0);
    if !data_digest.is_empty() {
        data_digest.copy_from_slice(&digest(&[segment]));
    }
}
