//! Answers to everything that is no SCSI command.

use super::{Incoming, TargetConnection, UnsentText};
use crate::bhs::{Bhs, NO_TAG};
use crate::fault::{Fault, RejectReason};
use crate::frame::Frame;
use crate::pdu::{
    AsyncMessage, LogoutRequest, LogoutResponse, NopIn, NopOut, Reject, TaskManagementRequest,
    TaskManagementResponse, TextRequest, TextResponse,
};
use crate::sequence::Turn;
use crate::task_management;
use crate::transmit::TransmitBuffer;

/// How a text exchange continues after a response (RFC 7143 11.11.1).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Exchange {
    /// The initiator may send more (neither F nor C).
    Open,
    /// The text continues in the next response (C).
    Continues,
    /// This response ends it (F).
    Final,
}

/// The response to a logout (RFC 7143 11.15.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutOutcome {
    /// The connection or session is closed.
    Done = 0,
    /// There is no such connection.
    NoSuchConnection = 1,
    /// Connections are not recovered here.
    NoRecovery = 2,
    /// Something of it could not be brought to an end in time.
    CleanupFailed = 3,
}

impl TargetConnection {
    /// Answers a task management function.
    pub fn respond_task_management(
        &mut self,
        request: &TaskManagementRequest,
        response: task_management::Response,
        out: &mut TransmitBuffer,
    ) {
        let response = TaskManagementResponse {
            response: response as u8,
            tag: request.tag,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
        };
        out.pdu(response.write(), &[]);
    }

    pub(super) fn nop_in(&mut self, nop: &NopOut, data: &[u8], out: &mut TransmitBuffer) {
        let pdu = NopIn {
            lun: nop.lun,
            tag: nop.tag,
            transfer_tag: NO_TAG,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
        };
        let data = &data[..data.len().min(self.parameters.max_send_bytes as usize)];
        out.pdu(pdu.write(), data);
    }

    /// Pings the initiator (NOP-In).
    pub fn ping(&mut self, out: &mut TransmitBuffer) {
        let pdu = NopIn {
            tag: NO_TAG,
            transfer_tag: self.next_transfer_tag,
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
            ..NopIn::default()
        };
        out.pdu(pdu.write(), &[]);
    }

    /// Announces that the target will drop all connections of the session (RFC 7143 11.9.1, event 3).
    pub fn announce_drop(&mut self, out: &mut TransmitBuffer) {
        let time2wait = self.parameters.time2wait;
        self.event(AsyncMessage { event: 3, parameter2: time2wait, ..AsyncMessage::default() }, &[], out);
    }

    /// Asks the initiator to log out within this many seconds (RFC 7143 11.9.1, event 1).
    pub fn ask_to_log_out(&mut self, seconds: u16, out: &mut TransmitBuffer) {
        self.event(AsyncMessage { event: 1, parameter3: seconds, ..AsyncMessage::default() }, &[], out);
    }

    /// Sends an asynchronous message with the sense data of a logical unit (RFC 7143 11.9.1, event 0).
    pub fn send_scsi_event(&mut self, lun: [u8; 8], sense: &[u8], out: &mut TransmitBuffer) {
        let mut data = (sense.len() as u16).to_be_bytes().to_vec();
        data.extend_from_slice(sense);
        self.event(AsyncMessage { lun, ..AsyncMessage::default() }, &data, out);
    }

    fn event(&mut self, message: AsyncMessage, data: &[u8], out: &mut TransmitBuffer) {
        let pdu = AsyncMessage {
            tag: NO_TAG,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
            ..message
        };
        out.pdu(pdu.write(), data);
    }

    pub(super) fn text<'a>(
        &mut self,
        request: &TextRequest,
        frame: &Frame<'a>,
        out: &mut TransmitBuffer,
    ) -> Result<Incoming<'a>, Fault> {
        let segment = frame.data;
        match self.turn(request.immediate, request.cmd_sn) {
            Turn::Now => {}
            Turn::Later => return self.hold(frame, request.cmd_sn),
            Turn::Never => return Ok(Incoming::Nothing),
        }
        if request.transfer_tag != NO_TAG && segment.is_empty() && !request.continues {
            // A request for the rest of a long response.
            match self.unsent_text.take() {
                Some(UnsentText { transfer_tag, text }) if transfer_tag == request.transfer_tag => {
                    self.send_text(request, text, out);
                }
                _ => self.reject(RejectReason::InvalidPduField, &request.write(), out),
            }
            return Ok(Incoming::Nothing);
        }
        self.gathered.add(segment)?;
        if request.continues {
            if request.is_final {
                self.gathered.take();
                self.reject(RejectReason::ProtocolError, &request.write(), out);
                return Ok(Incoming::Nothing);
            }
            let tag = self.fresh_transfer_tag();
            self.text_response(request, tag, Exchange::Open, &[], out);
            return Ok(Incoming::Nothing);
        }
        self.unsent_text = None;
        Ok(Incoming::Text { request: *request, text: self.gathered.take() })
    }

    /// Answers a text request; a long answer takes several responses, each on a request of the initiator.
    pub fn respond_text(&mut self, request: &TextRequest, answer: Vec<u8>, out: &mut TransmitBuffer) {
        self.send_text(request, answer, out);
    }

    fn send_text(&mut self, request: &TextRequest, mut answer: Vec<u8>, out: &mut TransmitBuffer) {
        let most = self.parameters.max_send_bytes as usize;
        if answer.len() > most {
            let rest = answer.split_off(most);
            let tag = self.fresh_transfer_tag();
            self.unsent_text = Some(UnsentText { transfer_tag: tag, text: rest });
            self.text_response(request, tag, Exchange::Continues, &answer, out);
        } else {
            let (tag, exchange) = if request.is_final {
                (NO_TAG, Exchange::Final)
            } else {
                (self.fresh_transfer_tag(), Exchange::Open)
            };
            self.text_response(request, tag, exchange, &answer, out);
        }
    }

    fn text_response(
        &mut self,
        request: &TextRequest,
        transfer_tag: u32,
        exchange: Exchange,
        text: &[u8],
        out: &mut TransmitBuffer,
    ) {
        let response = TextResponse {
            is_final: exchange == Exchange::Final,
            continues: exchange == Exchange::Continues,
            lun: request.lun,
            tag: request.tag,
            transfer_tag,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
        };
        out.pdu(response.write(), text);
    }

    fn fresh_transfer_tag(&mut self) -> u32 {
        let tag = self.next_transfer_tag;
        self.next_transfer_tag = if tag + 1 == NO_TAG { 0 } else { tag + 1 };
        tag
    }

    pub(super) fn logout<'a>(&mut self, request: &LogoutRequest, out: &mut TransmitBuffer) -> Incoming<'a> {
        // 0: the session; 1: the given connection; 2: the given connection, for recovery of its tasks.
        let reason = request.reason_byte & 0x7f;
        match reason {
            0 => Incoming::Logout { request: *request, session: true },
            1 if request.cid == self.cid => Incoming::Logout { request: *request, session: false },
            2 if self.parameters.error_recovery_level < 2 => {
                self.respond_logout(request, LogoutOutcome::NoRecovery, out);
                Incoming::Nothing
            }
            1 | 2 if request.cid != self.cid => {
                Incoming::LogoutOther { request: *request, recovery: reason == 2 }
            }
            _ => {
                self.reject(RejectReason::InvalidPduField, &request.write(), out);
                Incoming::Nothing
            }
        }
    }

    /// Answers a logout.
    pub fn respond_logout(
        &mut self,
        request: &LogoutRequest,
        outcome: LogoutOutcome,
        out: &mut TransmitBuffer,
    ) {
        let response = LogoutResponse {
            response: outcome as u8,
            tag: request.tag,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
            time2wait: self.parameters.time2wait,
            time2retain: self.parameters.time2retain,
        };
        out.pdu(response.write(), &[]);
    }

    /// Appends a Reject that carries the header complained of.
    pub fn reject(&mut self, reason: RejectReason, offender: &Bhs, out: &mut TransmitBuffer) {
        let pdu = Reject {
            reason: reason as u8,
            tag: NO_TAG,
            stat_sn: self.next_stat_sn(),
            exp_cmd_sn: self.sequence.expected(),
            max_cmd_sn: self.sequence.max_cmd_sn(),
            ..Reject::default()
        };
        out.pdu(pdu.write(), &offender.0);
    }
}
