//! The initiator's half of a login: CHAP if there are credentials, then one operational exchange.

mod authentication;

pub use self::authentication::Chap;
use self::authentication::{Answered, Proof};

use crate::bhs::padding;
use crate::digest::Digests;
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

/// The protection of a session.
#[derive(Clone, Debug, Default)]
pub struct Security {
    /// Credentials; `None` logs in without authentication.
    pub chap: Option<Chap>,
    /// Digests that the target must accept.
    pub digests: Digests,
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

/// The initiator's side of a login (RFC 7143 6.3): a security stage if there are credentials, and an operational stage.
///
/// [`InitiatorLogin::begin`] or [`InitiatorLogin::begin_secured`] appends the first request. Call [`InitiatorLogin::receive`] with every response, and send
/// what it appended, until it returns [`Established`] or an error; it must not be called after that.
/// [`TargetLogin`](crate::login::target::TargetLogin) has an example of both sides.
#[derive(Debug)]
pub struct InitiatorLogin {
    identity: Identity,
    security: Security,
    wishes: Wishes,
    proof: Proof,
    parameters: Parameters,
    gathered: Gathered,
    responses: u32,
    /// TargetAddress of a redirection.
    moved_to: Option<String>,
}

impl InitiatorLogin {
    /// Begins a login without authentication and digests: the first request is appended to `out`.
    pub fn begin(identity: Identity, wishes: &Wishes, out: &mut Vec<u8>) -> Self {
        Self::begin_secured(identity, Security::default(), wishes, out)
    }

    /// Begins a login: the first request is appended to `out`.
    pub fn begin_secured(identity: Identity, security: Security, wishes: &Wishes, out: &mut Vec<u8>) -> Self {
        let mut text = Vec::new();
        text::push(&mut text, "InitiatorName", &identity.initiator_name);
        match identity.session_type {
            SessionType::Discovery => text::push(&mut text, "SessionType", "Discovery"),
            SessionType::Normal => {
                text::push(&mut text, "SessionType", "Normal");
                text::push(&mut text, "TargetName", &identity.target_name);
            }
        }
        let parameters = Parameters {
            max_recv_bytes: wishes.max_recv_bytes,
            max_burst_bytes: wishes.max_burst_bytes,
            first_burst_bytes: wishes.first_burst_bytes,
            initial_r2t: wishes.initial_r2t,
            immediate_data: wishes.immediate_data,
            max_outstanding_r2t: wishes.max_outstanding_r2t,
            ..Parameters::default()
        };
        let mut login = Self {
            identity,
            security,
            wishes: wishes.clone(),
            proof: Proof::Done,
            parameters,
            gathered: Gathered::default(),
            responses: 0,
            moved_to: None,
        };
        match &login.security.chap {
            Some(chap) => {
                login.proof = Proof::Offered;
                chap.offer(&mut text);
            }
            None => login.offer(&mut text),
        }
        login.request(&text, 0, out);
        login
    }

    /// Returns the TargetAddress to which the target redirected the login, `host:port,group`, after the refusal.
    #[must_use]
    pub fn moved_to(&self) -> Option<&str> {
        self.moved_to.as_deref()
    }

    /// Appends the operational keys.
    fn offer(&self, text: &mut Vec<u8>) {
        let wishes = &self.wishes;
        let yes_no = |b| if b { "Yes" } else { "No" };
        let digest = |is_on| if is_on { "CRC32C" } else { "None" };
        text::push(text, "HeaderDigest", digest(self.security.digests.header));
        text::push(text, "DataDigest", digest(self.security.digests.data));
        text::push(text, "MaxRecvDataSegmentLength", wishes.max_recv_bytes);
        if self.identity.session_type == SessionType::Normal {
            text::push(text, "InitialR2T", yes_no(wishes.initial_r2t));
            text::push(text, "ImmediateData", yes_no(wishes.immediate_data));
            text::push(text, "MaxBurstLength", wishes.max_burst_bytes);
            text::push(text, "FirstBurstLength", wishes.first_burst_bytes);
            text::push(text, "MaxOutstandingR2T", wishes.max_outstanding_r2t);
            text::push(text, "MaxConnections", 1);
            text::push(text, "DataPDUInOrder", "Yes");
            text::push(text, "DataSequenceInOrder", "Yes");
        }
        text::push(text, "ErrorRecoveryLevel", 0);
        text::push(text, "DefaultTime2Wait", 2);
        text::push(text, "DefaultTime2Retain", 0);
    }

    fn request(&self, text: &[u8], exp_stat_sn: u32, out: &mut Vec<u8>) {
        let (transit, stage_byte) = match self.proof {
            Proof::Offered | Proof::Algorithms => (false, stage::SECURITY << 2),
            Proof::Responded(_) | Proof::Settled => (true, stage::SECURITY << 2 | stage::OPERATIONAL),
            Proof::Done => (true, stage::OPERATIONAL << 2 | stage::FULL_FEATURE),
        };
        let mut bhs = LoginRequest {
            immediate: true,
            transit,
            stage_byte,
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
    /// If the target rejects or redirects the login, does not prove its secret, refuses a digest, or sends anything but a
    /// Login Response.
    pub fn receive(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<Option<Established>, Fault> {
        if frame.bhs.opcode() != LoginResponse::OPCODE {
            return Err(Fault::OutOfPhase { opcode: frame.bhs.opcode(), phase: "login" });
        }
        let response = LoginResponse::read(&frame.bhs);
        let status = Status(response.status);
        if !status.is_success() {
            if matches!(status, Status::MOVED_TEMPORARILY | Status::MOVED_PERMANENTLY) {
                let keys = text::parse(frame.data).unwrap_or_default();
                let address = keys.into_iter().find(|(key, _)| *key == "TargetAddress");
                self.moved_to = address.map(|(_, value)| value.to_owned());
            }
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
        let mut answered = Answered::default();
        for (key, value) in text::parse(&whole)? {
            if !answered.take(key, value) {
                parameters::accept(&mut self.parameters, key, value);
            }
        }
        if self.proof != Proof::Done {
            self.authenticate(&answered, &response, exp_stat_sn, out)?;
            return Ok(None);
        }
        if !response.transit {
            self.request(&[], exp_stat_sn, out);
            return Ok(None);
        }
        let p = &mut self.parameters;
        p.first_burst_bytes = p.first_burst_bytes.min(p.max_burst_bytes);
        if p.digests != self.security.digests {
            return Err(Fault::Protocol { what: "the target refuses a digest", section: "RFC 7143 13.1" });
        }
        Ok(Some(Established {
            parameters: self.parameters.clone(),
            cmd_sn: response.exp_cmd_sn,
            exp_stat_sn,
            max_cmd_sn: response.max_cmd_sn,
            tsih: response.tsih,
        }))
    }

    /// Continues the security stage, and begins the operational one when it is over.
    fn authenticate(
        &mut self,
        answered: &Answered,
        response: &LoginResponse,
        exp_stat_sn: u32,
        out: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        let Some(chap) = &self.security.chap else { return Ok(()) };
        let mut text = Vec::new();
        self.proof = match chap.proceed(self.proof, answered, &mut text)? {
            // The proof is complete, but the target has not changed the stage: ask again.
            Proof::Done if !response.transit => Proof::Settled,
            next => next,
        };
        if self.proof == Proof::Done {
            self.offer(&mut text);
        }
        self.request(&text, exp_stat_sn, out);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
