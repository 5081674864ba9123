//! The target's half of a login.

use crate::bhs::{Bhs, NO_TAG};
use crate::fault::Fault;
use crate::frame::Frame;
use crate::login::chap::{self, Algorithm, Challenge, Claim, Credentials};
use crate::login::{SessionType, Status, is_iscsi_name, stage};
use crate::parameters::{self, Answer, Parameters, Wishes};
use crate::pdu::{LoginRequest, LoginResponse};
use crate::text::{self, Gathered};

/// Most Login Requests in one login: an honest one needs fewer than ten.
pub const REQUESTS_MAX: u32 = 64;

/// What the login needs to know about the target it leads to.
pub trait Gate {
    /// Whether this login may lead to the session that it asks for. Asked with the names and the proven user as they
    /// are then; [`Gate::new_session`] must ask again, for the session that is entered.
    fn admit(&self, login: &LoggedIn) -> Result<(), Status>;
    /// The target portal group tag of the portal that the connection came in on.
    fn portal_group_tag(&self) -> u16;
    /// Whether initiators must prove who they are, and who is known; asked again for each login.
    fn authentication(&self, _session_type: SessionType) -> Option<&Authentication> {
        None
    }
    /// Fills a buffer with random bytes that nobody can foresee.
    ///
    /// # Errors
    /// When there is no randomness to be had: no login then.
    fn random(&self, _buffer: &mut [u8]) -> Result<(), Status> {
        Err(Status::OUT_OF_RESOURCES)
    }
    /// The session that a login with a TSIH is to be one more connection of, or why it cannot be.
    fn join(&self, _login: &LoggedIn) -> Result<Joined, Status> {
        Err(Status::SESSION_DOES_NOT_EXIST)
    }
    /// Where else the target is, for logins that are not to stay here.
    fn moved(&self) -> Option<Moved> {
        None
    }
    /// The session's handle, where the full feature phase begins: of a new session or of the one that was
    /// joined; or why there is none.
    fn new_session(&self, login: &LoggedIn) -> Result<u16, Status>;
}

/// A session that a login joins.
#[derive(Clone, Debug)]
pub struct Joined {
    /// What was negotiated when it began; in force for all its connections where it is not a connection's own.
    pub parameters: Parameters,
    /// Its ExpCmdSN.
    pub exp_cmd_sn: u32,
}

/// Another address of the target (RFC 7143 4.2.7.3, 11.13.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// TargetAddress: address and port, with or without a portal group tag.
    pub address: String,
    /// From now on, rather than for the time being.
    pub is_permanent: bool,
}

/// Who may log in, by CHAP.
#[derive(Clone, Debug, Default)]
pub struct Authentication {
    /// The initiators' names and secrets.
    pub initiators: Vec<Credentials>,
    /// Our own, for initiators that want us to prove ourselves.
    pub own: Option<Credentials>,
}

/// How far authentication has come.
#[derive(Debug)]
enum Proof {
    /// Nothing was said of it.
    Open,
    /// CHAP was agreed on.
    Chap,
    /// A challenge was sent.
    Challenged(Challenge),
    /// The initiator has proved who it is.
    Given,
}

/// Bytes of a challenge.
const CHALLENGE_BYTES: usize = 32;

/// Who has logged in, and what was agreed.
#[derive(Clone, Debug)]
pub struct LoggedIn {
    /// InitiatorName.
    pub initiator_name: String,
    /// The CHAP user that the initiator has proven to be, where it had to.
    pub user: Option<String>,
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
    /// The first request has been taken whole: InitiatorName, TargetName and SessionType stay what they are.
    is_declared: bool,
    initiator_named: bool,
    target_named: bool,
    session_typed: bool,
    admitted: bool,
    length_declared: bool,
    proof: Proof,
    algorithm: Option<Algorithm>,
    claim: Option<Claim>,
    /// What the initiator offers in AuthMethod, until it is answered.
    methods: Vec<String>,
    joined: Option<Joined>,
    /// TargetAddress, when the login is sent elsewhere.
    moved_to: Option<String>,
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
                user: None,
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

    /// Bounds the text of one exchange, bytes.
    pub fn limit_text(&mut self, bytes: usize) {
        self.gathered = Gathered::new(bytes);
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
            self.login.tsih = request.tsih;
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
                let mut text = Vec::new();
                if let Some(address) = &self.moved_to {
                    text::push(&mut text, "TargetAddress", address);
                }
                self.respond(&request, status, false, false, &text, out);
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
        // What a session may negotiate depends on its type, wherever in the text that stands.
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
        // Not to the next stage before the initiator has proved who it is.
        let transit = request.transit && is_proven;
        if !self.length_declared && csg == stage::OPERATIONAL {
            text::push(&mut text, "MaxRecvDataSegmentLength", self.wishes.max_recv_bytes);
            self.length_declared = true;
        }
        if transit && nsg == stage::FULL_FEATURE {
            if !self.length_declared {
                // From security straight to full feature: nothing was declared, so the default holds.
                self.login.parameters.max_recv_bytes = Parameters::default().max_recv_bytes;
            }
            let p = &mut self.login.parameters;
            if let Some(joined) = self.joined.take() {
                // What is the session's is not negotiated again; lengths and digests are the connection's.
                let (recv, send, digests) = (p.max_recv_bytes, p.max_send_bytes, p.digests);
                *p = joined.parameters;
                (p.max_recv_bytes, p.max_send_bytes, p.digests) = (recv, send, digests);
            }
            p.first_burst_bytes = p.first_burst_bytes.min(p.max_burst_bytes);
            // Larger segments cost memory, and save next to nothing.
            p.max_send_bytes = p.max_send_bytes.min(self.wishes.max_send_bytes);
            self.login.tsih = gate.new_session(&self.login)?;
        }
        Ok(Reply::Keys { text, transit })
    }

    /// Takes authentication a step further; whether the initiator has proved who it is, or need not.
    fn prove(&mut self, csg: u8, gate: &dyn Gate, text: &mut Vec<u8>) -> Result<bool, Status> {
        let failure = Err(Status::AUTHENTICATION_FAILURE);
        let offered = std::mem::take(&mut self.methods);
        let offers = |method: &str| offered.iter().any(|m| m == method);
        let Some(authentication) = gate.authentication(self.login.session_type) else {
            if !offered.is_empty() {
                if !offers("None") {
                    return failure;
                }
                text::push(text, "AuthMethod", "None");
            }
            return Ok(true);
        };
        if csg != stage::SECURITY {
            // The stage in which it could be proved was left out, or has been passed.
            return if matches!(self.proof, Proof::Given) { Ok(true) } else { failure };
        }
        let (algorithm, claim) = (self.algorithm.take(), self.claim.take());
        match (std::mem::replace(&mut self.proof, Proof::Open), algorithm, claim) {
            (Proof::Given, None, None) => self.proof = Proof::Given,
            (Proof::Open, None, None) => {
                if !offers("CHAP") {
                    return failure;
                }
                text::push(text, "AuthMethod", "CHAP");
                self.proof = Proof::Chap;
            }
            // The algorithms may come with the method.
            (Proof::Open | Proof::Chap, Some(algorithm), None) => {
                if offers("CHAP") {
                    text::push(text, "AuthMethod", "CHAP");
                }
                let mut bytes = [0; CHALLENGE_BYTES + 1];
                gate.random(&mut bytes)?;
                let (identifier, bytes) = (bytes[0], bytes[1..].to_vec());
                text::push(text, "CHAP_A", algorithm.number());
                text::push(text, "CHAP_I", identifier);
                text::push(text, "CHAP_C", chap::encode(&bytes));
                self.proof = Proof::Challenged(Challenge { algorithm, identifier, bytes });
            }
            (Proof::Challenged(challenge), None, Some(claim)) => {
                let own = authentication.own.as_ref();
                let Some(proven) = challenge.judge(&claim, &authentication.initiators, own) else {
                    return failure;
                };
                self.login.user = Some(proven.user);
                if let Some((name, response)) = proven.answer {
                    text::push(text, "CHAP_N", name);
                    text::push(text, "CHAP_R", chap::encode(&response));
                }
                self.proof = Proof::Given;
            }
            _ => return failure,
        }
        Ok(matches!(self.proof, Proof::Given))
    }

    /// Answers one key.
    fn key(&mut self, key: &str, value: &str, text: &mut Vec<u8>) -> Result<(), Status> {
        match key {
            // Declared once, with the first request (RFC 7143 6.3.1); what was judged by them stays what was judged.
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
                    // Nothing of a discovery session outlives its connection.
                    self.wishes.error_recovery_level = 0;
                    self.wishes.max_connections = 1;
                }
            }
            "InitiatorAlias" | "TargetAlias" => {}
            "AuthMethod" => self.methods = value.split(',').map(str::to_owned).collect(),
            "CHAP_A" => {
                // The first of the initiator's list that we know too.
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

/// A binary value of CHAP.
fn binary(value: &str) -> Result<Vec<u8>, Status> {
    chap::decode(value).ok_or(Status::AUTHENTICATION_FAILURE)
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
        fn admit(&self, login: &LoggedIn) -> Result<(), Status> {
            let is_known = login.target_name == "iqn.t" || login.session_type == SessionType::Discovery;
            if is_known { Ok(()) } else { Err(Status::NOT_FOUND) }
        }
        fn portal_group_tag(&self) -> u16 {
            1
        }
        fn new_session(&self, _: &LoggedIn) -> Result<u16, Status> {
            Ok(5)
        }
    }

    fn send(login: &mut TargetLogin, request: &LoginRequest, text: &[u8]) -> (Step, LoginResponse, String) {
        send_to(&Open, login, request, text)
    }

    fn send_to(
        gate: &dyn Gate,
        login: &mut TargetLogin,
        request: &LoginRequest,
        text: &[u8],
    ) -> (Step, LoginResponse, String) {
        let mut stream = Vec::new();
        append(&mut stream, request.write(), text);
        let framer = Framer::new(8192);
        let frame = framer.next(&stream).unwrap().frame().unwrap();
        let mut out = Vec::new();
        let step = login.receive(&frame, gate, &mut out).unwrap();
        let answer = framer.next(&out).unwrap().frame().unwrap();
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
            (
                b"InitiatorName=iqn.i\0TargetName=iqn.t\0AuthMethod=CHAP\0",
                request(0, 1, true),
                Status::AUTHENTICATION_FAILURE,
            ),
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

    /// A gate that asks for CHAP.
    struct Guarded(Authentication);
    impl Gate for Guarded {
        fn admit(&self, login: &LoggedIn) -> Result<(), Status> {
            assert_eq!(login.user.as_deref(), Some("alice"), "admission is asked for the proven user");
            Ok(())
        }
        fn portal_group_tag(&self) -> u16 {
            1
        }
        fn authentication(&self, _: SessionType) -> Option<&Authentication> {
            Some(&self.0)
        }
        fn random(&self, buffer: &mut [u8]) -> Result<(), Status> {
            buffer.fill(7);
            Ok(())
        }
        fn new_session(&self, _: &LoggedIn) -> Result<u16, Status> {
            Ok(5)
        }
    }

    fn guarded() -> Guarded {
        let user = |name: &str, secret: &str| Credentials { name: name.into(), secret: secret.into() };
        Guarded(Authentication {
            initiators: vec![user("alice", "wonderland-12")],
            own: Some(user("target", "looking-glass")),
        })
    }

    fn proof(secret: &str, more: &str) -> Vec<u8> {
        let response = Algorithm::Sha256.response(7, secret.as_bytes(), &[7; CHALLENGE_BYTES]);
        format!("CHAP_N=alice\0CHAP_R={}\0{more}", chap::encode(&response)).into_bytes()
    }

    #[test]
    fn chap_leads_to_full_feature_and_the_target_proves_itself_too() {
        let (gate, mut login) = (guarded(), TargetLogin::new(Wishes::default(), 128));
        let names = [NAMES, b"AuthMethod=CHAP,None\0"].concat();
        // The transit bit is not granted before the proof.
        let (_, response, text) = send_to(&gate, &mut login, &request(0, 1, true), &names);
        assert!(!response.transit);
        assert_eq!(text, "AuthMethod=CHAP ");
        let (_, response, text) = send_to(&gate, &mut login, &request(0, 1, false), b"CHAP_A=9,7,5\0");
        assert!(!response.transit && text.starts_with("CHAP_A=7 CHAP_I=7 CHAP_C=0x0707"), "{text}");
        let (_, response, text) = send_to(
            &gate,
            &mut login,
            &request(0, 1, true),
            &proof("wonderland-12", "CHAP_I=3\0CHAP_C=0x0102\0"),
        );
        let own = chap::encode(&Algorithm::Sha256.response(3, b"looking-glass", &[1, 2]));
        assert!(response.transit);
        assert_eq!(text, format!("CHAP_N=target CHAP_R={own} TargetPortalGroupTag=1 "));
        let (step, ..) = send_to(&gate, &mut login, &request(1, 3, true), b"");
        let Step::FullFeature(logged_in) = step else { panic!("{step:?}") };
        assert_eq!(logged_in.user.as_deref(), Some("alice"));
    }

    #[test]
    fn names_and_session_type_cannot_change_during_a_login() {
        let changes: [&[u8]; 4] = [
            b"SessionType=Normal\0TargetName=iqn.t\0",
            b"TargetName=iqn.t\0",
            b"InitiatorName=iqn.j\0",
            b"SessionType=Normal\0",
        ];
        for change in changes {
            for stage in [0, 1] {
                let mut login = TargetLogin::new(Wishes::default(), 128);
                let first = b"InitiatorName=iqn.i\0SessionType=Discovery\0";
                let (step, ..) = send(&mut login, &request(stage, stage, false), first);
                assert!(matches!(step, Step::Continue), "{step:?}");
                let (step, response, _) = send(&mut login, &request(stage, 3, true), change);
                assert!(matches!(step, Step::Refused(_)), "{step:?} for {}", String::from_utf8_lossy(change));
                assert_eq!(response.status, Status::INITIATOR_ERROR.0);
            }
        }
        // A type that is not named is Normal, and stays so.
        let mut login = TargetLogin::new(Wishes::default(), 128);
        let _ = send(&mut login, &request(1, 1, false), b"InitiatorName=iqn.i\0TargetName=iqn.t\0");
        let (step, ..) = send(&mut login, &request(1, 3, true), b"SessionType=Discovery\0");
        assert!(matches!(step, Step::Refused(Status::INITIATOR_ERROR)), "{step:?}");
    }

    #[test]
    fn a_discovery_session_negotiates_no_recovery_wherever_its_type_stands() {
        let mut login = TargetLogin::new(Wishes::default(), 128);
        let text = b"ErrorRecoveryLevel=2\0MaxConnections=8\0InitiatorName=iqn.i\0SessionType=Discovery\0";
        let (step, _, text) = send(&mut login, &request(1, 3, true), text);
        assert!(text.contains("ErrorRecoveryLevel=0") && text.contains("MaxConnections=1"), "{text}");
        let Step::FullFeature(logged_in) = step else { panic!("{step:?}") };
        assert_eq!(logged_in.parameters.error_recovery_level, 0);
    }

    #[test]
    fn there_is_no_way_round_chap() {
        let names = |method: &str| [NAMES, method.as_bytes()].concat();
        let chap = names("AuthMethod=CHAP\0");
        let cases: [Vec<(LoginRequest, Vec<u8>)>; 7] = [
            // Another stage first, no method, no CHAP, no known algorithm.
            vec![(request(1, 3, true), names(""))],
            vec![(request(0, 1, true), names(""))],
            vec![(request(0, 1, true), names("AuthMethod=None\0"))],
            vec![(request(0, 1, false), chap.clone()), (request(0, 1, false), b"CHAP_A=1\0".to_vec())],
            // A wrong secret; an answer before the challenge; our challenge sent back.
            vec![
                (request(0, 1, false), chap.clone()),
                (request(0, 1, false), b"CHAP_A=7\0".to_vec()),
                (request(0, 1, true), proof("wrong", "")),
            ],
            vec![(request(0, 1, false), chap.clone()), (request(0, 1, true), proof("wonderland-12", ""))],
            vec![
                (request(0, 1, false), chap),
                (request(0, 1, false), b"CHAP_A=7\0".to_vec()),
                (
                    request(0, 1, true),
                    proof(
                        "wonderland-12",
                        &format!("CHAP_I=7\0CHAP_C={}\0", chap::encode(&[7; CHALLENGE_BYTES])),
                    ),
                ),
            ],
        ];
        for (index, requests) in cases.into_iter().enumerate() {
            let (gate, mut login) = (guarded(), TargetLogin::new(Wishes::default(), 128));
            let last = requests.len() - 1;
            for (step, (request, text)) in requests.into_iter().enumerate() {
                let (outcome, response, _) = send_to(&gate, &mut login, &request, &text);
                if step < last {
                    assert!(matches!(outcome, Step::Continue), "case {index} step {step}: {outcome:?}");
                } else {
                    assert_eq!(response.status, Status::AUTHENTICATION_FAILURE.0, "case {index}");
                }
            }
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
            let frame = Frame { bhs, ahs: &[], data: &text, total_bytes: 0, is_damaged: false };
            let mut login = TargetLogin::new(Wishes::default(), 128);
            let mut out = Vec::new();
            let _ = login.receive(&frame, &Open, &mut out);
            prop_assert!(out.len() >= 48);
        }
    }
}
