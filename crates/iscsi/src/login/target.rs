//! The target's half of a login.

use crate::bhs::{Bhs, NO_TAG};
use crate::fault::Fault;
use crate::frame::Frame;
use crate::login::chap::{self, Algorithm, Claim};
use crate::login::{SessionType, Status, is_iscsi_name, stage};
use crate::parameters::{self, Answer, Parameters, Wishes};
use crate::pdu::{LoginRequest, LoginResponse};
use crate::text::{self, Gathered};

use authentication::Proof;

mod authentication;
mod gate;

pub use gate::{Authentication, Gate, Joined, LoggedIn, Moved};

/// Most Login Requests in one login; a regular one needs fewer than ten.
pub const REQUESTS_MAX: u32 = 64;

/// What to do after a Login Request.
#[derive(Debug)]
pub enum Step {
    /// The response was appended; the login continues.
    Continue,
    /// The response was appended; the full feature phase begins.
    FullFeature(Box<LoggedIn>),
    /// The response was appended; the connection ends after it.
    Refused(Status),
}

/// The target's side of a login (RFC 7143 6.3).
///
/// Call [`TargetLogin::receive`] with every PDU of the connection until it returns anything but [`Step::Continue`], and
/// send what it appended each time. After [`Step::FullFeature`], set the negotiated digests on the framer and the
/// transmit buffer and continue with a [`TargetConnection`](crate::target::TargetConnection); after [`Step::Refused`]
/// or an error, send what was appended and close the connection. [`TargetLogin::limit_text`] comes before the first PDU.
///
/// ```
/// use iscsi::login::initiator::{Identity, InitiatorLogin};
/// use iscsi::login::target::{Gate, LoggedIn, Step, TargetLogin};
/// use iscsi::login::{SessionType, Status};
/// use iscsi::{Framer, Wishes};
///
/// struct AnyInitiator;
/// impl Gate for AnyInitiator {
///     fn admit(&self, _: &LoggedIn) -> Result<(), Status> {
///         Ok(())
///     }
///     fn portal_group_tag(&self) -> u16 {
///         1
///     }
///     fn new_session(&self, _: &LoggedIn) -> Result<u16, Status> {
///         Ok(7)
///     }
/// }
///
/// let identity = Identity {
///     initiator_name: "iqn.2026-11.example:host".into(),
///     target_name: "iqn.2026-11.example:disk".into(),
///     session_type: SessionType::Normal,
///     isid: [0, 0, 0, 0, 0, 1],
/// };
/// let (framer, mut request, mut response) = (Framer::new(8192), Vec::new(), Vec::new());
/// let mut initiator = InitiatorLogin::begin(identity, &Wishes::default(), &mut request);
/// let mut target = TargetLogin::new(Wishes::default(), 32);
///
/// let frame = framer.next(&request)?.frame().expect("one PDU");
/// let step = target.receive(&frame, &AnyInitiator, &mut response)?;
/// assert!(matches!(step, Step::FullFeature(login) if login.tsih == 7));
///
/// let frame = framer.next(&response)?.frame().expect("one PDU");
/// let established = initiator.receive(&frame, &mut Vec::new())?.expect("the login is complete");
/// assert_eq!(established.tsih, 7);
/// # Ok::<(), iscsi::Fault>(())
/// ```
#[derive(Debug)]
pub struct TargetLogin {
    wishes: Wishes,
    window: u32,
    requests: u32,
    stat_sn: u32,
    stage: Option<u8>,
    gathered: Gathered,
    login: LoggedIn,
    /// The first request is complete: InitiatorName, TargetName and SessionType cannot change any more.
    is_declared: bool,
    initiator_named: bool,
    target_named: bool,
    session_typed: bool,
    admitted: bool,
    length_declared: bool,
    proof: Proof,
    algorithm: Option<Algorithm>,
    claim: Option<Claim>,
    /// The methods that the initiator offers in AuthMethod, until they are answered.
    methods: Vec<String>,
    joined: Option<Joined>,
    /// TargetAddress, if the login is redirected.
    moved_to: Option<String>,
}

impl TargetLogin {
    /// A login that negotiates towards `wishes`; `window` commands may be in flight after it.
    #[must_use]
    pub fn new(wishes: Wishes, window: u32) -> Self {
        let parameters = Parameters { max_recv_bytes: wishes.max_recv_bytes, ..Parameters::default() };
        Self {
            wishes,
            window,
            requests: 0,
            stat_sn: 0,
            stage: None,
            gathered: Gathered::default(),
            login: LoggedIn {
                initiator_name: String::new(),
                user: None,
                proven: None,
                target_name: String::new(),
                session_type: SessionType::Normal,
                isid: [0; 6],
                tsih: 0,
                cid: 0,
                parameters,
                exp_cmd_sn: 0,
                stat_sn: 0,
            },
            is_declared: false,
            initiator_named: false,
            target_named: false,
            session_typed: false,
            admitted: false,
            length_declared: false,
            proof: Proof::Open,
            algorithm: None,
            claim: None,
            methods: Vec::new(),
            joined: None,
            moved_to: None,
        }
    }

    /// InitiatorName and TargetName as far as they are known.
    #[must_use]
    pub fn names(&self) -> (&str, &str) {
        (&self.login.initiator_name, &self.login.target_name)
    }

    /// Bounds the text of one exchange, bytes.
    pub fn limit_text(&mut self, bytes: usize) {
        self.gathered = Gathered::new(bytes);
    }

    /// Takes one PDU and appends the answer to `out`.
    ///
    /// # Errors
    /// If the PDU is not valid during a login; a Login Response that rejects it was appended.
    pub fn receive(&mut self, frame: &Frame<'_>, gate: &dyn Gate, out: &mut Vec<u8>) -> Result<Step, Fault> {
        if frame.bhs.opcode() != LoginRequest::OPCODE {
            let request = LoginRequest { tag: frame.bhs.initiator_task_tag(), ..LoginRequest::default() };
            self.respond(&request, Status::INVALID_DURING_LOGIN, Stage::Stay, &[], out);
            return Err(Fault::OutOfPhase { opcode: frame.bhs.opcode(), phase: "login" });
        }
        let request = LoginRequest::read(&frame.bhs);
        if self.requests == 0 {
            // The initiator chooses the first CmdSN and, by ExpStatSN, the first StatSN (RFC 7143 11.13.4).
            self.login.exp_cmd_sn = request.cmd_sn;
            self.login.isid = request.isid;
            self.login.cid = request.cid;
            self.login.tsih = request.tsih;
            self.stat_sn = request.exp_stat_sn;
        }
        self.requests += 1;
        match self.step(&request, frame.data, gate) {
            Ok(Reply::More) => {
                self.respond(&request, Status::SUCCESS, Stage::Stay, &[], out);
                Ok(Step::Continue)
            }
            Ok(Reply::Keys { text, transit }) => {
                self.respond(
                    &request,
                    Status::SUCCESS,
                    if transit { Stage::Next } else { Stage::Stay },
                    &text,
                    out,
                );
                if transit && request.nsg() == stage::FULL_FEATURE {
                    self.login.stat_sn = self.stat_sn;
                    return Ok(Step::FullFeature(Box::new(self.login.clone())));
                }
                if transit {
                    self.stage = Some(request.nsg());
                }
                Ok(Step::Continue)
            }
            Err(status) => {
                let mut text = Vec::new();
                if let Some(address) = &self.moved_to {
                    text::push(&mut text, "TargetAddress", address);
                }
                self.respond(&request, status, Stage::Stay, &text, out);
                Ok(Step::Refused(status))
            }
        }
    }

    /// Handles one request; the error is the status that rejects it.
    fn step(&mut self, request: &LoginRequest, segment: &[u8], gate: &dyn Gate) -> Result<Reply, Status> {
        if self.requests > REQUESTS_MAX {
            return Err(Status::INITIATOR_ERROR);
        }
        if request.version_min > 0 {
            return Err(Status::UNSUPPORTED_VERSION);
        }
        if request.tsih != self.login.tsih {
            return Err(Status::INITIATOR_ERROR);
        }
        let csg = request.csg();
        if !matches!(csg, stage::SECURITY | stage::OPERATIONAL) || self.stage.is_some_and(|due| due != csg) {
            return Err(Status::INITIATOR_ERROR);
        }
        let nsg = request.nsg();
        let next_is_wrong = nsg <= csg || nsg == 2;
        if request.transit && (next_is_wrong || request.continues) {
            return Err(Status::INITIATOR_ERROR);
        }
        self.stage = Some(csg);
        self.gathered.add(segment).map_err(|_| Status::INITIATOR_ERROR)?;
        if request.continues {
            return Ok(Reply::More);
        }
        let whole = self.gathered.take();
        let offered = text::parse(&whole).map_err(|_| Status::INITIATOR_ERROR)?;
        let mut text = Vec::new();
        // The keys that are valid depend on the session type, wherever it stands in the text.
        for (key, value) in offered.iter().filter(|(key, _)| *key == "SessionType") {
            self.key(key, value, &mut text)?;
        }
        for (key, value) in offered.iter().filter(|(key, _)| *key != "SessionType") {
            self.key(key, value, &mut text)?;
        }
        if !self.initiator_named {
            return Err(Status::MISSING_PARAMETER);
        }
        if self.login.session_type == SessionType::Normal && !self.target_named {
            return Err(Status::MISSING_PARAMETER);
        }
        self.is_declared = true;
        let is_proven = self.prove(csg, gate, &mut text)?;
        if !self.admitted && is_proven {
            gate.admit(&self.login)?;
        }
        if !self.admitted && is_proven && self.login.session_type == SessionType::Normal {
            if let Some(moved) = gate.moved() {
                self.moved_to = Some(moved.address);
                let permanent = moved.is_permanent;
                return Err(if permanent { Status::MOVED_PERMANENTLY } else { Status::MOVED_TEMPORARILY });
            }
            text::push(&mut text, "TargetPortalGroupTag", gate.portal_group_tag());
        }
        if !self.admitted && is_proven && self.login.tsih != 0 {
            let joined = gate.join(&self.login)?;
            self.login.exp_cmd_sn = joined.exp_cmd_sn;
            self.joined = Some(joined);
        }
        self.admitted |= is_proven;
        // No transition before the initiator is authenticated.
        let transit = request.transit && is_proven;
        if !self.length_declared && csg == stage::OPERATIONAL {
            text::push(&mut text, "MaxRecvDataSegmentLength", self.wishes.max_recv_bytes);
            self.length_declared = true;
        }
        if transit && nsg == stage::FULL_FEATURE {
            if !self.length_declared {
                // Directly from security to full feature: nothing was declared, so the default applies.
                self.login.parameters.max_recv_bytes = Parameters::default().max_recv_bytes;
            }
            let p = &mut self.login.parameters;
            if let Some(joined) = self.joined.take() {
                // Session-wide parameters are not negotiated again; lengths and digests are per connection.
                let (recv, send, digests) = (p.max_recv_bytes, p.max_send_bytes, p.digests);
                *p = joined.parameters;
                (p.max_recv_bytes, p.max_send_bytes, p.digests) = (recv, send, digests);
            }
            p.first_burst_bytes = p.first_burst_bytes.min(p.max_burst_bytes);
            // Larger segments cost memory and save very little.
            p.max_send_bytes = p.max_send_bytes.min(self.wishes.max_send_bytes);
            self.login.tsih = gate.new_session(&self.login)?;
        }
        Ok(Reply::Keys { text, transit })
    }

    /// Answers one key.
    fn key(&mut self, key: &str, value: &str, text: &mut Vec<u8>) -> Result<(), Status> {
        match key {
            // Declared once, with the first request (RFC 7143 6.3.1): a later change would escape the checks made so far.
            "InitiatorName" => {
                let is_other = self.initiator_named || self.is_declared;
                if !is_iscsi_name(value) || (is_other && self.login.initiator_name != value) {
                    return Err(Status::INITIATOR_ERROR);
                }
                value.clone_into(&mut self.login.initiator_name);
                self.initiator_named = true;
            }
            "TargetName" => {
                if (self.target_named || self.is_declared) && self.login.target_name != value {
                    return Err(Status::INITIATOR_ERROR);
                }
                value.clone_into(&mut self.login.target_name);
                self.target_named = true;
            }
            "SessionType" => {
                let session_type = match value {
                    "Normal" => SessionType::Normal,
                    "Discovery" => SessionType::Discovery,
                    _ => return Err(Status::SESSION_TYPE),
                };
                if (self.session_typed || self.is_declared) && self.login.session_type != session_type {
                    return Err(Status::INITIATOR_ERROR);
                }
                self.login.session_type = session_type;
                self.session_typed = true;
                if session_type == SessionType::Discovery {
                    // A discovery session has one connection and ends with it.
                    self.wishes.error_recovery_level = 0;
                    self.wishes.max_connections = 1;
                }
            }
            "InitiatorAlias" | "TargetAlias" => {}
            "AuthMethod" => self.methods = value.split(',').map(str::to_owned).collect(),
            "CHAP_A" => {
                // The first of the initiator's list that is supported.
                let known = value.split(',').find_map(Algorithm::by_number);
                self.algorithm = Some(known.ok_or(Status::AUTHENTICATION_FAILURE)?);
            }
            "CHAP_N" => self.claim.get_or_insert_default().name = Some(value.to_owned()),
            "CHAP_R" => self.claim.get_or_insert_default().response = Some(binary(value)?),
            "CHAP_C" => self.claim.get_or_insert_default().challenge = Some(binary(value)?),
            "CHAP_I" => {
                let identifier = value.parse().map_err(|_| Status::AUTHENTICATION_FAILURE)?;
                self.claim.get_or_insert_default().identifier = Some(identifier);
            }
            _ => match parameters::answer(&mut self.login.parameters, &self.wishes, key, value) {
                Some(Answer::Value(answer)) => text::push(text, key, answer),
                Some(Answer::Silence) => {}
                None => text::push(text, key, "NotUnderstood"),
            },
        }
        Ok(())
    }

    fn respond(
        &mut self,
        request: &LoginRequest,
        status: Status,
        stage: Stage,
        text: &[u8],
        out: &mut Vec<u8>,
    ) {
        // NSG is valid only together with T.
        let transit = stage == Stage::Next;
        let stages = if transit { request.stage_byte & 0x0f } else { request.stage_byte & 0x0c };
        let response = LoginResponse {
            transit,
            stage_byte: stages,
            isid: request.isid,
            tsih: self.login.tsih,
            tag: if request.tag == NO_TAG { 0 } else { request.tag },
            stat_sn: self.stat_sn,
            exp_cmd_sn: self.login.exp_cmd_sn,
            max_cmd_sn: self.login.exp_cmd_sn.wrapping_add(self.window - 1),
            status: status.0,
            ..LoginResponse::default()
        };
        self.stat_sn = self.stat_sn.wrapping_add(1);
        append(out, response.write(), text);
    }
}

/// A binary value of CHAP.
fn binary(value: &str) -> Result<Vec<u8>, Status> {
    chap::decode(value).ok_or(Status::AUTHENTICATION_FAILURE)
}

/// Whether a response grants the transition to the next stage (T).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The login stays in its stage.
    Stay,
    /// The next stage begins.
    Next,
}

/// The reply to a request that is valid.
enum Reply {
    /// The text continues in the next request (C).
    More,
    /// Answers to the keys, and whether the next stage begins.
    Keys { text: Vec<u8>, transit: bool },
}

/// Appends a PDU with its padded data segment.
fn append(out: &mut Vec<u8>, mut bhs: Bhs, data: &[u8]) {
    bhs.set_data_bytes(data.len());
    out.extend_from_slice(&bhs.0);
    out.extend_from_slice(data);
    out.resize(out.len() + crate::bhs::padding(data.len()), 0);
}

#[cfg(test)]
mod tests;
