//! Invalid input from initiators: the connection gets the response that the RFC requires or is closed, and others continue.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use common::{IQN, Target, bench};
use iscsi::bhs::{BHS_BYTES, Bhs};
use iscsi::login::SessionType;
use iscsi::login::initiator::{Identity, InitiatorLogin};
use iscsi::pdu::{LoginRequest, LoginResponse, NopOut, Reject, ScsiCommand, ScsiResponse};
use iscsi::{NO_TAG, Wishes};
use iscsi_target::{Limits, LunConfig, RunningTarget, TargetConfig};
use load::initiator::{IscsiUrl, Session, SessionOptions};

/// Logins so far.
static SESSIONS: AtomicU8 = AtomicU8::new(0);

fn connect(target: &Target) -> TcpStream {
    let socket = TcpStream::connect(&target.address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Reads one PDU; `None` if the target closed the connection.
fn read_pdu(socket: &mut TcpStream) -> Option<(Bhs, Vec<u8>)> {
    let mut header = [0; BHS_BYTES];
    match socket.read_exact(&mut header) {
        Ok(()) => {}
        Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
        Err(e) => panic!("neither an answer nor an end: {e}"),
    }
    let bhs = Bhs(header);
    let mut data = vec![0; bhs.data_bytes().next_multiple_of(4)];
    socket.read_exact(&mut data).unwrap();
    Some((bhs, data))
}

/// Logs in and gives the socket with the first CmdSN.
fn log_in(target: &Target) -> (TcpStream, u32) {
    let mut socket = connect(target);
    let identity = Identity {
        initiator_name: "iqn.2026-11.example:hand".into(),
        target_name: IQN.into(),
        session_type: SessionType::Normal,
        // Sessions of one ISID would reinstate each other.
        isid: [0x80, 0, 0, 0, 0, SESSIONS.fetch_add(1, Ordering::Relaxed)],
    };
    let mut request = Vec::new();
    InitiatorLogin::begin(identity, &Wishes::default(), &mut request);
    socket.write_all(&request).unwrap();
    let (bhs, _) = read_pdu(&mut socket).unwrap();
    assert_eq!(bhs.opcode(), LoginResponse::OPCODE);
    let response = LoginResponse::read(&bhs);
    assert!(response.status == 0 && response.transit, "{response:?}");
    (socket, response.exp_cmd_sn)
}

#[track_caller]
fn serves(target: &Target) {
    let result = bench(&target.url(0), &["--runtime", "50ms", "--ramp", "0ms"]);
    assert!(result["runs"][0]["operations"].as_u64().unwrap() > 0);
}

fn ram() -> Target {
    Target::start(&["--lun", "0=ram:4M"])
}

#[test]
fn garbage_and_truncated_pdus_end_only_their_own_connection() {
    let target = ram();
    let mut state = 1_u32;
    for length in [1, 47, 48, 49, 300, 5000] {
        let mut socket = connect(&target);
        let garbage: Vec<u8> = (0..length)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect();
        let _ = socket.write_all(&garbage);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        // With or without a response, the connection ends.
        while read_pdu(&mut socket).is_some() {}
    }
    serves(&target);
}

#[test]
fn rejects_an_invalid_login_with_a_status() {
    let target = ram();
    let mut socket = connect(&target);
    socket.write_all(&ScsiCommand { is_final: true, ..ScsiCommand::default() }.write().0).unwrap();
    let (bhs, _) = read_pdu(&mut socket).unwrap();
    assert_eq!(LoginResponse::read(&bhs).status, 0x020b, "invalid during login");
    assert!(read_pdu(&mut socket).is_none(), "then the connection ends");
    serves(&target);
}

#[test]
fn an_unknown_target_and_an_unknown_version_are_refused_with_their_status() {
    let target = ram();
    let refused = |text: &[u8], version_min: u8| {
        let mut socket = connect(&target);
        let mut bhs = LoginRequest {
            immediate: true,
            transit: true,
            stage_byte: 1 << 2 | 3,
            version_min,
            ..LoginRequest::default()
        }
        .write();
        bhs.set_data_bytes(text.len());
        socket.write_all(&bhs.0).unwrap();
        socket.write_all(text).unwrap();
        socket.write_all(&[0; 3][..text.len().wrapping_neg() & 3]).unwrap();
        let status = LoginResponse::read(&read_pdu(&mut socket).unwrap().0).status;
        assert!(read_pdu(&mut socket).is_none(), "then the connection ends");
        status
    };
    assert_eq!(refused(b"InitiatorName=iqn.a\0TargetName=iqn.nobody\0", 0), 0x0203);
    assert_eq!(refused(b"InitiatorName=iqn.a\0TargetName=iqn.nobody\0", 1), 0x0205);
    assert_eq!(refused(b"TargetName=iqn.nobody\0", 0), 0x0207);
    assert_eq!(refused(b"no pair at all\0", 0), 0x0200);
}

#[test]
fn a_length_beyond_the_declared_is_rejected_and_ends_the_connection() {
    let target = ram();
    let (mut socket, cmd_sn) = log_in(&target);
    let mut bhs = ScsiCommand { is_final: true, write_data: true, cmd_sn, ..ScsiCommand::default() }.write();
    bhs.set_data_bytes(0x00ff_ffff);
    socket.write_all(&bhs.0).unwrap();
    let (answer, header) = read_pdu(&mut socket).unwrap();
    assert_eq!((answer.opcode(), Reject::read(&answer).reason), (Reject::OPCODE, 0x04));
    assert_eq!(header, bhs.0, "a Reject carries the header complained of");
    assert!(read_pdu(&mut socket).is_none());
    serves(&target);
}

#[test]
fn rejects_an_unknown_opcode_and_keeps_the_session() {
    let target = ram();
    let (mut socket, cmd_sn) = log_in(&target);
    socket.write_all(&Bhs::new(0x1d).0).unwrap();
    let (answer, _) = read_pdu(&mut socket).unwrap();
    assert_eq!((answer.opcode(), Reject::read(&answer).reason), (Reject::OPCODE, 0x05));
    let nop = NopOut { immediate: true, tag: 5, transfer_tag: NO_TAG, cmd_sn, ..NopOut::default() };
    socket.write_all(&nop.write().0).unwrap();
    assert_eq!(read_pdu(&mut socket).unwrap().0.initiator_task_tag(), 5);
}

#[test]
fn client_that_dies_in_mid_write_does_not_affect_others() {
    let target = ram();
    let (mut survivor, cmd_sn) = log_in(&target);
    for die_after in [0, 1, 200, 511] {
        let (mut socket, cmd_sn) = log_in(&target);
        let mut command = ScsiCommand {
            is_final: true,
            write_data: true,
            tag: 1,
            expected_bytes: 1024,
            cmd_sn,
            ..ScsiCommand::default()
        };
        command.cdb[..9].copy_from_slice(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 2]);
        let mut bhs = command.write();
        bhs.set_data_bytes(512);
        socket.write_all(&bhs.0).unwrap();
        socket.write_all(&vec![9; die_after]).unwrap();
        drop(socket);
    }
    // An established connection continues.
    let mut command = ScsiCommand { is_final: true, tag: 77, cmd_sn, ..ScsiCommand::default() };
    survivor.write_all(&command.write().0).unwrap();
    let (first, _) = read_pdu(&mut survivor).unwrap();
    assert_eq!(
        (first.initiator_task_tag(), ScsiResponse::read(&first).status),
        (77, 2),
        "power-on unit attention"
    );
    command.cmd_sn += 1;
    survivor.write_all(&command.write().0).unwrap();
    assert_eq!(ScsiResponse::read(&read_pdu(&mut survivor).unwrap().0).status, 0);
    serves(&target);
}

#[test]
fn target_at_its_limits_rejects_logins_and_serves_sessions() {
    let store = std::sync::Arc::new(store::Ram::new(1 << 20));
    let limits = Limits { connections: 3, login_time: Duration::from_millis(300), ..Limits::default() };
    let luns = vec![LunConfig::new(0, store)];
    let config = TargetConfig { limits, ..TargetConfig::new("127.0.0.1:0".parse().unwrap(), IQN, luns) };
    let target = RunningTarget::start(config).unwrap();
    let address = target.address();
    let url: IscsiUrl = format!("iscsi://{address}/{IQN}/0").parse().unwrap();
    let mut session = Session::open(&url, &SessionOptions::default()).unwrap();
    // Two that never log in take the remaining places; a fourth is refused at once.
    let begun = Instant::now();
    let mut silent: Vec<TcpStream> = (0..2).map(|_| TcpStream::connect(address).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(50));
    let mut fourth = TcpStream::connect(address).unwrap();
    fourth.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert!(matches!(fourth.read(&mut [0; 48]), Ok(0) | Err(_)));
    assert_eq!(session.capacity().unwrap().blocks, 2048, "the established session continues");
    // The silent ones are closed after the login time, and a new session is admitted.
    for socket in &mut silent {
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert_eq!(socket.read(&mut [0; 48]).unwrap(), 0, "a login that never ends is ended");
    }
    assert!(begun.elapsed() < Duration::from_secs(4));
    let options = SessionOptions { session_number: 1, ..SessionOptions::default() };
    let deadline = Instant::now() + Duration::from_secs(5);
    while Session::open(&url, &options).is_err() {
        assert!(Instant::now() < deadline, "the places of the silent connections were never freed");
    }
    target.stop();
}

#[test]
fn a_second_login_of_a_session_takes_its_place() {
    let target = ram();
    let url: IscsiUrl = target.url(0).parse().unwrap();
    let mut first = Session::open(&url, &SessionOptions::default()).unwrap();
    assert!(first.capacity().is_ok());
    let mut second = Session::open(&url, &SessionOptions::default()).unwrap();
    assert!(second.capacity().is_ok());
    assert!(first.capacity().is_err(), "reinstatement ended the first session");
    assert!(second.capacity().is_ok());
}
