//! The target's half of a login.

use crate::bhs::{Bhs, NO_TAG};
use crate::fault::Fault;
use crate::frame::Frame;
use crate::login::{SessionType, Status, is_iscsi_name, stage};
use crate::parameters::{self, Answer, Parameters, Wishes};
use crate::pdu::{LoginRequest, LoginResponse};
use crate::text::{self, Gathered};

/// Most Login Requests in one login: an honest one needs fewer than ten.
pub const REQUESTS_MAX: u32 = 64;

/// What the login needs to know about the target it leads to.
pub trait Gate {
    /// Whether a target of this name may be used by this initiator.
    fn admit(&self, target_name: &str, initiator_name: &str) -> Result<(), Status>;
    /// The target portal group tag of the portal that the connection came in on.
    fn portal_group_tag(&self) -> u16;
    /// A handle for the new session, or why there is none.
    fn new_session(&self, login: &LoggedIn) -> Result<u16, Status>;
}

/// Who has logged in, and what was agreed.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// InitiatorName.
    pub initiator_name: String,
    /// TargetName; empty for a discovery session.
    pub target_name: String,
    /// Discovery or normal.
    pub session_type: SessionType,
    /// The initiator's part of the session identifier.
    pub isid: [u8; 6],
    /// The target's part.
    pub tsih: u16,
    /// Connection identifier.
    pub cid: u16,
    /// What was negotiated.
    pub parameters: Parameters,
    /// ExpCmdSN when the full feature phase begins.
    pub exp_cmd_sn: u32,
    /// StatSN of the next response.
    pub stat_sn: u32,
}

/// What to do after a Login Request.
#[derive(Debug)]
pub enum Step {
    /// The response was appended; the login goes on.
    Continue,
    /// The response was appended; the full feature phase begins.
    FullFeature(Box<LoggedIn>),
    /// The response was appended; the connection ends after it.
    Refused(Status),
}

/// The state of a login in progress.
#[derive(Debug)]
pub struct TargetLogin {
    wishes: Wishes,
    window: u32,
    requests: u32,
    stat_sn: u32,
    stage: Option<u8>,
    gathered: Gathered,
    login: LoggedIn,
    initiator_named: bool,
    target_named: bool,
    admitted: bool,
    length_declared: bool,
}

impl TargetLogin {
    /// A login that will end in these wishes; `window` commands may be in flight after it.
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
                target_name: String::new(),
                session_type: SessionType::Normal,
                isid: [0; 6],
                tsih: 0,
                cid: 0,
                parameters,
                exp_cmd_sn: 0,
                stat_sn: 0,
            },
            initiator_named: false,
            target_named: false,
            admitted: false,
            length_declared: false,
        }
    }

    /// Takes one PDU and appends the answer to `out`.
    ///
    /// # Errors
    /// When the PDU has no place in a login; a Login Response that says so was appended if it could be.
    pub fn receive(&mut self, frame: &Frame<'_>, gate: &dyn Gate, out: &mut Vec<u8>) -> Result<Step, Fault> {
        if frame.bhs.opcode() != LoginRequest::OPCODE {
            let request = LoginRequest { tag: frame.bhs.initiator_task_tag(), ..LoginRequest::default() };
            self.respond(&request, Status::INVALID_DURING_LOGIN, false, false, &[], out);
            return Err(Fault::OutOfPhase { opcode: frame.bhs.opcode(), phase: "login" });
        }
        let request = LoginRequest::read(&frame.bhs);
        if self.requests == 0 {
            // The initiator numbers its first command as it likes, and expects the first StatSN as it says.
            self.login.exp_cmd_sn = request.cmd_sn;
            self.login.isid = request.isid;
            self.login.cid = request.cid;
            self.stat_sn = request.exp_stat_sn;
        }
        self.requests += 1;
        match self.step(&request, frame.data, gate) {
            Ok(Reply::More) => {
                self.respond(&request, Status::SUCCESS, false, false, &[], out);
                Ok(Step::Continue)
            }
            Ok(Reply::Keys { text, transit }) => {
                self.respond(&request, Status::SUCCESS, transit, false, &text, out);
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
                self.respond(&request, status, false, false, &[], out);
                Ok(Step::Refused(status))
            }
        }
    }

    /// Judges one request; the error is the status that refuses it.
    fn step(&mut self, request: &LoginRequest, segment: &[u8], gate: &dyn Gate) -> Result<Reply, Status> {
        if self.requests > REQUESTS_MAX {
            return Err(Status::INITIATOR_ERROR);
        }
        if request.version_min > 0 {
            return Err(Status::UNSUPPORTED_VERSION);
        }
        if request.tsih != 0 {
            // One connection per session: there is never a session that a second connection could join.
            return Err(Status::SESSION_DOES_NOT_EXIST);
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
        for (key, value) in offered {
            self.key(key, value, &mut text)?;
        }
        if !self.initiator_named {
            return Err(Status::MISSING_PARAMETER);
        }
        if self.login.session_type == SessionType::Normal && !self.target_named {
            return Err(Status::MISSING_PARAMETER);
        }
        if !self.admitted && self.login.session_type == SessionType::Normal {
            gate.admit(&self.login.target_name, &self.login.initiator_name)?;
            text::push(&mut text, "TargetPortalGroupTag", gate.portal_group_tag());
        }
        self.admitted = true;
        if !self.length_declared && csg == stage::OPERATIONAL {
            text::push(&mut text, "MaxRecvDataSegmentLength", self.wishes.max_recv_bytes);
            self.length_declared = true;
        }
        if request.transit && nsg == stage::FULL_FEATURE {
            if !self.length_declared {
                // From security straight to full feature: nothing was declared, so the default holds.
                self.login.parameters.max_recv_bytes = Parameters::default().max_recv_bytes;
            }
            let p = &mut self.login.parameters;
            p.first_burst_bytes = p.first_burst_bytes.min(p.max_burst_bytes);
            self.login.tsih = gate.new_session(&self.login)?;
        }
        Ok(Reply::Keys { text, transit: request.transit })
    }

    /// Answers one key.
    fn key(&mut self, key: &str, value: &str, text: &mut Vec<u8>) -> Result<(), Status> {
        match key {
            "InitiatorName" => {
                if !is_iscsi_name(value) || (self.initiator_named && self.login.initiator_name != value) {
                    return Err(Status::INITIATOR_ERROR);
                }
                value.clone_into(&mut self.login.initiator_name);
                self.initiator_named = true;
            }
            "TargetName" => {
                value.clone_into(&mut self.login.target_name);
                self.target_named = true;
            }
            "SessionType" => {
                self.login.session_type = match value {
                    "Normal" => SessionType::Normal,
                    "Discovery" => SessionType::Discovery,
                    _ => return Err(Status::SESSION_TYPE),
                };
            }
            "InitiatorAlias" | "TargetAlias" => {}
            "AuthMethod" => {
                if !value.split(',').any(|method| method == "None") {
                    return Err(Status::AUTHENTICATION_FAILURE);
                }
                text::push(text, "AuthMethod", "None");
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
        transit: bool,
        continues: bool,
        text: &[u8],
        out: &mut Vec<u8>,
    ) {
        let stages = if transit { request.stage_byte & 0x0f } else { request.stage_byte & 0x0c };
        let response = LoginResponse {
            transit,
            continues,
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

/// What a request earned.
enum Reply {
    /// The text goes on in the next request.
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
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::Framer;

    struct Open;
    impl Gate for Open {
        fn admit(&self, target_name: &str, _: &str) -> Result<(), Status> {
            if target_name == "iqn.t" { Ok(()) } else { Err(Status::NOT_FOUND) }
        }
        fn portal_group_tag(&self) -> u16 {
            1
        }
        fn new_session(&self, _: &LoggedIn) -> Result<u16, Status> {
            Ok(5)
        }
    }

    fn send(login: &mut TargetLogin, request: &LoginRequest, text: &[u8]) -> (Step, LoginResponse, String) {
        let mut stream = Vec::new();
        append(&mut stream, request.write(), text);
        let framer = Framer { max_data_bytes: 8192 };
        let frame = framer.next(&stream).unwrap().unwrap();
        let mut out = Vec::new();
        let step = login.receive(&frame, &Open, &mut out).unwrap();
        let answer = framer.next(&out).unwrap().unwrap();
        let text = String::from_utf8(answer.data.to_vec()).unwrap().replace('\0', " ");
        (step, LoginResponse::read(&answer.bhs), text)
    }

    fn request(csg: u8, nsg: u8, transit: bool) -> LoginRequest {
        LoginRequest {
            immediate: true,
            transit,
            stage_byte: csg << 2 | nsg,
            cmd_sn: 77,
            exp_stat_sn: 3,
            ..LoginRequest::default()
        }
    }

    const NAMES: &[u8] = b"InitiatorName=iqn.i\0TargetName=iqn.t\0SessionType=Normal\0";

    #[test]
    fn both_stages_lead_to_full_feature() {
        let mut login = TargetLogin::new(Wishes::default(), 128);
        let text = [NAMES, b"AuthMethod=CHAP,None\0"].concat();
        let (step, response, text) = send(&mut login, &request(0, 1, true), &text);
        assert!(matches!(step, Step::Continue));
        assert!(response.transit);
        assert_eq!((response.stat_sn, response.max_cmd_sn), (3, 77 + 127));
        assert_eq!(text, "AuthMethod=None TargetPortalGroupTag=1 ");
        let (step, response, text) = send(
            &mut login,
            &request(1, 3, true),
            b"MaxRecvDataSegmentLength=262144\0InitialR2T=No\0X-new=1\0MaxBurstLength=65536\0",
        );
        let Step::FullFeature(logged_in) = step else { panic!("{step:?}") };
        assert_eq!(response.tsih, 5);
        assert!(text.contains("InitialR2T=No") && text.contains("X-new=NotUnderstood"), "{text}");
        assert!(text.contains("MaxRecvDataSegmentLength=1048576"), "{text}");
        assert_eq!(logged_in.parameters.max_send_bytes, 262_144);
        assert_eq!(logged_in.parameters.max_burst_bytes, 65_536);
        assert_eq!(logged_in.stat_sn, 5);
    }

    #[test]
    fn refusals_carry_their_status() {
        let cases: [(&[u8], LoginRequest, Status); 7] = [
            (b"TargetName=iqn.t\0", request(1, 3, true), Status::MISSING_PARAMETER),
            (b"InitiatorName=iqn.i\0", request(1, 3, true), Status::MISSING_PARAMETER),
            (b"InitiatorName=iqn.i\0TargetName=iqn.x\0", request(1, 3, true), Status::NOT_FOUND),
            (b"InitiatorName=iqn.i\0SessionType=Odd\0", request(1, 3, true), Status::SESSION_TYPE),
            (b"InitiatorName=iqn.i\0AuthMethod=CHAP\0", request(0, 1, true), Status::AUTHENTICATION_FAILURE),
            (NAMES, request(1, 1, true), Status::INITIATOR_ERROR),
            (NAMES, LoginRequest { version_min: 1, ..request(1, 3, true) }, Status::UNSUPPORTED_VERSION),
        ];
        for (text, request, expected) in cases {
            let mut login = TargetLogin::new(Wishes::default(), 128);
            let (step, response, _) = send(&mut login, &request, text);
            assert!(matches!(step, Step::Refused(status) if status == expected), "{step:?} for {expected}");
            assert_eq!(response.status, expected.0);
        }
    }

    #[test]
    fn a_login_that_never_ends_is_ended() {
        let mut login = TargetLogin::new(Wishes::default(), 128);
        for n in 0.. {
            let (step, ..) = send(&mut login, &request(1, 0, false), NAMES);
            if matches!(step, Step::Refused(_)) {
                assert_eq!(n, REQUESTS_MAX);
                break;
            }
        }
    }

    proptest! {
        #[test]
        fn no_request_can_panic(header in prop::collection::vec(any::<u8>(), 48), text in prop::collection::vec(any::<u8>(), 0..100)) {
            let mut bhs = Bhs([0; 48]);
            bhs.0.copy_from_slice(&header);
            bhs.0[4] = 0;
            let frame = Frame { bhs, ahs: &[], data: &text, total_bytes: 0 };
            let mut login = TargetLogin::new(Wishes::default(), 128);
            let mut out = Vec::new();
            let _ = login.receive(&frame, &Open, &mut out);
            prop_assert!(out.len() >= 48);
        }
    }
}
