//! Logins, with and without CHAP.

use proptest::prelude::*;

use super::authentication::CHALLENGE_BYTES;
use super::*;
use crate::frame::Framer;
use crate::login::chap::{Credentials, Known};

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
fn rejected_logins_carry_their_status() {
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
    fn authentication(&self, _: &LoggedIn) -> Option<&Authentication> {
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
        initiators: vec![Known {
            credentials: user("alice", "wonderland-12"),
            own: Some(user("target", "looking-glass")),
        }],
        is_optional: false,
    })
}

fn proof(secret: &str, more: &str) -> Vec<u8> {
    let response = Algorithm::Sha256.response(7, secret.as_bytes(), &[7; CHALLENGE_BYTES]);
    format!("CHAP_N=alice\0CHAP_R={}\0{more}", chap::encode(&response)).into_bytes()
}

#[test]
fn mutual_chap_leads_to_full_feature() {
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
fn discovery_sessions_negotiate_no_recovery_whatever_the_key_order() {
    let mut login = TargetLogin::new(Wishes::default(), 128);
    let text = b"ErrorRecoveryLevel=2\0MaxConnections=8\0InitiatorName=iqn.i\0SessionType=Discovery\0";
    let (step, _, text) = send(&mut login, &request(1, 3, true), text);
    assert!(text.contains("ErrorRecoveryLevel=0") && text.contains("MaxConnections=1"), "{text}");
    let Step::FullFeature(logged_in) = step else { panic!("{step:?}") };
    assert_eq!(logged_in.parameters.error_recovery_level, 0);
}

#[test]
fn chap_cannot_be_bypassed() {
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
fn limits_the_requests_of_a_login() {
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
