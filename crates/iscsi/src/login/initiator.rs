//! The initiator's half of a login: one operational exchange, without authentication.

use crate::bhs::padding;
use crate::fault::Fault;
use crate::frame::Frame;
use crate::login::{SessionType, Status, stage};
use crate::parameters::{self, Parameters, Wishes};
use crate::pdu::{LoginRequest, LoginResponse};
use crate::text::{self, Gathered};

/// The names of a session to log in to.
#[derive(Clone, Debug)]
pub struct Identity {
    /// InitiatorName.
    pub initiator_name: String,
    /// TargetName; empty for discovery.
    pub target_name: String,
    /// Discovery or normal.
    pub session_type: SessionType,
    /// The initiator's part of the session identifier: distinct for each session of one initiator.
    pub isid: [u8; 6],
}

/// The result of a login.
#[derive(Clone, Debug)]
pub struct Established {
    /// The negotiated parameters.
    pub parameters: Parameters,
    /// CmdSN of the first command.
    pub cmd_sn: u32,
    /// The next StatSN expected.
    pub exp_stat_sn: u32,
    /// Last CmdSN the target takes.
    pub max_cmd_sn: u32,
    /// The target's part of the session identifier.
    pub tsih: u16,
}

/// The initiator's side of a login (RFC 7143 6.3): one operational stage without authentication.
///
/// [`InitiatorLogin::begin`] appends the first request. Call [`InitiatorLogin::receive`] with every response, and send
/// what it appended, until it returns [`Established`] or an error; it must not be called after that.
/// [`TargetLogin`](crate::login::target::TargetLogin) has an example of both sides.
#[derive(Debug)]
pub struct InitiatorLogin {
    identity: Identity,
    parameters: Parameters,
    gathered: Gathered,
    responses: u32,
}

impl InitiatorLogin {
    /// Begins a login: the first request is appended to `out`.
    pub fn begin(identity: Identity, wishes: &Wishes, out: &mut Vec<u8>) -> Self {
        let mut text = Vec::new();
        text::push(&mut text, "InitiatorName", &identity.initiator_name);
        match identity.session_type {
            SessionType::Discovery => text::push(&mut text, "SessionType", "Discovery"),
            SessionType::Normal => {
                text::push(&mut text, "SessionType", "Normal");
                text::push(&mut text, "TargetName", &identity.target_name);
            }
        }
        let yes_no = |b| if b { "Yes" } else { "No" };
        text::push(&mut text, "HeaderDigest", "None");
        text::push(&mut text, "DataDigest", "None");
        text::push(&mut text, "MaxRecvDataSegmentLength", wishes.max_recv_bytes);
        if identity.session_type == SessionType::Normal {
            text::push(&mut text, "InitialR2T", yes_no(wishes.initial_r2t));
            text::push(&mut text, "ImmediateData", yes_no(wishes.immediate_data));
            text::push(&mut text, "MaxBurstLength", wishes.max_burst_bytes);
            text::push(&mut text, "FirstBurstLength", wishes.first_burst_bytes);
            text::push(&mut text, "MaxOutstandingR2T", wishes.max_outstanding_r2t);
            text::push(&mut text, "MaxConnections", 1);
            text::push(&mut text, "DataPDUInOrder", "Yes");
            text::push(&mut text, "DataSequenceInOrder", "Yes");
        }
        text::push(&mut text, "ErrorRecoveryLevel", 0);
        text::push(&mut text, "DefaultTime2Wait", 2);
        text::push(&mut text, "DefaultTime2Retain", 0);
        let parameters = Parameters {
            max_recv_bytes: wishes.max_recv_bytes,
            max_burst_bytes: wishes.max_burst_bytes,
            first_burst_bytes: wishes.first_burst_bytes,
            initial_r2t: wishes.initial_r2t,
            immediate_data: wishes.immediate_data,
            max_outstanding_r2t: wishes.max_outstanding_r2t,
            ..Parameters::default()
        };
        let login = Self { identity, parameters, gathered: Gathered::default(), responses: 0 };
        login.request(&text, 0, out);
        login
    }

    fn request(&self, text: &[u8], exp_stat_sn: u32, out: &mut Vec<u8>) {
        let mut bhs = LoginRequest {
            immediate: true,
            transit: true,
            stage_byte: stage::OPERATIONAL << 2 | stage::FULL_FEATURE,
            isid: self.identity.isid,
            cmd_sn: 1,
            exp_stat_sn,
            ..LoginRequest::default()
        }
        .write();
        bhs.set_data_bytes(text.len());
        out.extend_from_slice(&bhs.0);
        out.extend_from_slice(text);
        out.resize(out.len() + padding(text.len()), 0);
    }

    /// Takes one PDU. Returns the result when the login is complete; otherwise a further request was appended.
    ///
    /// # Errors
    /// If the target rejects the login, or sends anything but a Login Response.
    pub fn receive(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<Option<Established>, Fault> {
        if frame.bhs.opcode() != LoginResponse::OPCODE {
            return Err(Fault::OutOfPhase { opcode: frame.bhs.opcode(), phase: "login" });
        }
        let response = LoginResponse::read(&frame.bhs);
        let status = Status(response.status);
        if !status.is_success() {
            return Err(Fault::LoginRefused(status));
        }
        self.responses += 1;
        if self.responses > 16 {
            return Err(Fault::Protocol {
                what: "the target does not complete the login",
                section: "RFC 7143 6.3",
            });
        }
        self.gathered.add(frame.data)?;
        let exp_stat_sn = response.stat_sn.wrapping_add(1);
        if response.continues {
            self.request(&[], exp_stat_sn, out);
            return Ok(None);
        }
        let whole = self.gathered.take();
        for (key, value) in text::parse(&whole)? {
            parameters::accept(&mut self.parameters, key, value);
        }
        if !response.transit {
            self.request(&[], exp_stat_sn, out);
            return Ok(None);
        }
        let p = &mut self.parameters;
        p.first_burst_bytes = p.first_burst_bytes.min(p.max_burst_bytes);
        Ok(Some(Established {
            parameters: self.parameters.clone(),
            cmd_sn: response.exp_cmd_sn,
            exp_stat_sn,
            max_cmd_sn: response.max_cmd_sn,
            tsih: response.tsih,
        }))
    }
}
