//! Portals and portal groups, redirection, LUN masking, changes while sessions continue, and resource limits.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::{Client, INITIATOR, IQN, Login, ram, set, start};
use iscsi::NO_TAG;
use iscsi::login::target::Moved;
use iscsi::opcode::target as opcode;
use iscsi::pdu::LoginRequest;
use iscsi_target::{Access, AccessState, Initiator, Limits, Portal, Shown};

const OTHER: &str = "iqn.2026-11.example.roundtrip:other";

fn login() -> Login<'static> {
    Login::default()
}

/// Returns the LUNs of REPORT LUNS.
fn luns(client: &mut Client) -> Vec<u8> {
    let (data, _, _) = client.read(0, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 256);
    data[8..].chunks_exact(8).map(|lun| lun[1]).collect()
}

#[test]
fn portal_groups_are_target_ports_listed_by_send_targets() {
    let group = |group| Portal { group, ..Portal::new("127.0.0.1:0".parse().unwrap()) };
    let target = start(vec![ram(0, 1)], |config| {
        config.portals = vec![group(1), group(2), group(2)];
        config.portals[2].advertise = Some("192.0.2.7:3260".parse().unwrap());
    });
    let [first, second, _] = target.addresses()[..] else { panic!() };
    let mut clients = [first, second].map(|address| Client::log_in(address, &login()));
    let expected = format!(
        "TargetName={IQN} TargetAddress={first},1 TargetAddress={second},2 TargetAddress=192.0.2.7:3260,2 "
    );
    assert_eq!(clients[0].ask("SendTargets=\0"), expected);
    assert_eq!(target.sessions(), 2, "the same initiator port with another target port is another nexus");
    for (client, relative) in clients.iter_mut().zip(1_u8..) {
        client.attentions(0);
        let page = client.read(0, &[0x12, 1, 0x83, 0, 255, 0], 255).0;
        let port = [0x51, 0x94, 0, 4, 0, 0, 0, relative];
        assert!(page.windows(8).any(|bytes| bytes == port), "{page:x?}");
    }
    // Implicit ALUA: sessions through group 2 get a unit attention, then NOT READY.
    assert!(
        target.set_access_state(2, AccessState::Standby) && !target.set_access_state(3, AccessState::Standby)
    );
    std::thread::sleep(Duration::from_millis(50));
    let [one, two] = &mut clients;
    assert_eq!(one.attentions(0), [(0x2a, 0x06)]);
    let (_, status, sense) = two.read(0, &[0; 6], 0);
    assert_eq!((status, sense[12], sense[13]), (2, 0x2a, 0x06));
    let (_, status, sense) = two.read(0, &[0; 6], 0);
    assert_eq!((status, sense[2] & 15, sense[12], sense[13]), (2, 2, 0x04, 0x0b), "standby");
    let groups = one.read(0, &[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], 255).0;
    assert_eq!((groups[4], groups[16], groups[20]), (0, 2, 0), "{groups:x?}");
    assert_eq!(groups.len(), 4 + 2 * 12);
}

#[test]
fn moved_target_redirects_logins() {
    for (is_permanent, status) in [(false, 0x0101), (true, 0x0102)] {
        let target = start(vec![ram(0, 1)], |config| {
            config.portals[0].moved = Some(Moved { address: "192.0.2.1:3260".into(), is_permanent });
        });
        let (mut client, response, text) = Client::try_log_in(target.address(), &login());
        assert_eq!((response.status, text.trim()), (status, "TargetAddress=192.0.2.1:3260"));
        assert!(client.receive().is_none());
    }
}

fn masked(luns: &[u16]) -> Access {
    let initiators = vec![
        Initiator {
            luns: Some(luns.iter().map(|&lun| Shown::same(lun)).collect()),
            ..Initiator::new(INITIATOR)
        },
        Initiator::new(OTHER),
    ];
    Access { initiators, ..Access::default() }
}

#[test]
fn initiator_sees_only_its_own_disks() {
    let target =
        start(vec![ram(0, 1), ram(1, 1), ram(2, 1)], |config| config.nodes[0].access = Some(masked(&[0, 2])));
    let mut mine = Client::log_in(target.address(), &login());
    let mut other = Client::log_in(target.address(), &Login { initiator: OTHER, ..login() });
    assert_eq!((luns(&mut mine), luns(&mut other)), (vec![0, 2], vec![0, 1, 2]));
    let (_, status, sense) = mine.read(1, &[0; 6], 0);
    assert_eq!((status, sense[12]), (2, 0x25), "logical unit not supported");
    let stranger = Login { initiator: "iqn.2026-11.example.roundtrip:stranger", ..login() };
    assert_eq!(Client::try_log_in(target.address(), &stranger).1.status, 0x0202);
    // An initiator that may not use the target does not discover it.
    let found = |initiator: &str| {
        let keys = "SessionType=Discovery";
        let (mut client, response, _) =
            Client::try_log_in(target.address(), &Login { initiator, isid: 9, keys, ..login() });
        assert_eq!(response.status, 0);
        client.ask("SendTargets=All\0")
    };
    assert!(found(OTHER).contains(IQN));
    assert_eq!(found(stranger.initiator), "");
    // EXTENDED COPY cannot address a masked disk (CVE-2020-28374), here by the designator of disk 1 that the other
    // initiator read.
    (0..3).for_each(|lun| drop(other.attentions(lun)));
    [0, 2].into_iter().for_each(|lun| drop(mine.attentions(lun)));
    let names = |client: &mut Client, lun| client.read(lun, &[0x12, 1, 0x83, 0, 255, 0], 255).0;
    let naa = |page: &[u8]| page[8..16].to_vec();
    let (own, hidden) = (naa(&names(&mut mine, 0)), naa(&names(&mut other, 1)));
    let cscd = |naa: &[u8]| {
        let mut cscd = vec![0xe4, 0, 0, 0, 1, 3, 0, 8];
        cscd.extend(naa);
        cscd.resize(32, 0);
        cscd
    };
    let mut list = vec![1, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend([cscd(&hidden), cscd(&own)].concat());
    list.extend([2, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 1]);
    list.extend([0; 16]);
    let copy = |client: &mut Client| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[13]) = (0x83, list.len() as u8);
        let command = iscsi::pdu::ScsiCommand {
            read: false,
            write_data: true,
            expected_bytes: list.len() as u32,
            ..client.command(3, &cdb, 0)
        };
        client.issue(&command, &list);
        let response = client.until(opcode::SCSI_RESPONSE).1;
        (response.bhs.0[3], response.data.get(4).map(|key| key & 15))
    };
    assert_eq!(copy(&mut other), (0, None), "allowed for an initiator that sees both");
    assert_eq!(copy(&mut mine), (2, Some(0x0a)), "COPY ABORTED");
}

#[test]
fn disk_changes_are_reported_to_sessions_that_see_them() {
    let (a, b) = (ram(0, 1), ram(1, 1));
    let target = start(vec![a.clone(), b.clone()], |_| ());
    let mut client = Client::log_in(target.address(), &login());
    client.attentions(0);
    client.attentions(1);
    let event = |client: &mut Client| {
        let pdu = client.until(opcode::ASYNC).1;
        (pdu.bhs.0[36], pdu.data.get(14).copied(), pdu.data.get(15).copied())
    };
    let three = [a.clone(), b.clone(), ram(5, 1)];
    set(&target, &three, None);
    assert_eq!(event(&mut client), (0, Some(0x3f), Some(0x0e)), "reported LUNs data has changed");
    assert_eq!(luns(&mut client), [0, 1, 5]);
    a.store.resize(2 << 20).unwrap();
    set(&target, &[a.clone(), b.clone()], None);
    assert_eq!(event(&mut client), (0, Some(0x3f), Some(0x0e)));
    assert_eq!(event(&mut client), (0, Some(0x2a), Some(0x09)), "capacity data has changed");
    assert_eq!(client.attentions(0), [(0x3f, 0x0e), (0x2a, 0x09)]);
    let capacity = client.read(0, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8).0;
    assert_eq!(capacity[..4], 4095_u32.to_be_bytes());
    // A changed mask is a LUN inventory change for the initiator that it affects.
    set(&target, &[a, b], Some(masked(&[1])));
    assert_eq!(event(&mut client), (0, Some(0x3f), Some(0x0e)));
    assert_eq!(luns(&mut client), [1]);
}

#[test]
fn excluded_initiator_is_asked_to_log_out_and_then_dropped() {
    let lun = ram(0, 1);
    let target = start(vec![lun.clone()], |_| ());
    let [mut polite, mut deaf] =
        [1, 2].map(|isid| Client::log_in(target.address(), &Login { isid, ..login() }));
    let begun = Instant::now();
    let only_other = Access { initiators: masked(&[]).initiators.split_off(1), ..Access::default() };
    set(&target, &[lun], Some(only_other));
    for client in [&mut polite, &mut deaf] {
        let event = client.until(opcode::ASYNC).1;
        assert_eq!((event.bhs.0[36], event.bhs.0[43]), (1, 1), "log out within a second");
    }
    assert_eq!(polite.log_out(0, 0), 0);
    assert!(deaf.receive().is_none());
    assert!(begun.elapsed() >= Duration::from_secs(1));
    assert_eq!(Client::try_log_in(target.address(), &login()).1.status, 0x0202);
}

fn limited(limits: Limits) -> iscsi_target::RunningTarget {
    start(vec![ram(0, 1)], |config| config.limits = limits)
}

#[test]
fn sessions_and_connections_of_an_address_have_a_limit() {
    let target = limited(Limits { sessions: 2, connections_per_address: 4, ..Limits::default() });
    let kept: Vec<Client> =
        (1..3).map(|isid| Client::log_in(target.address(), &Login { isid, ..login() })).collect();
    let (third, response, _) = Client::try_log_in(target.address(), &Login { isid: 3, ..login() });
    assert_eq!(response.status, 0x0302, "out of resources");
    drop(third);
    let silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(target.address()).unwrap()).collect();
    // Two of them exceed the limit and are closed at once.
    let closed = silent.iter().filter(|socket| {
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        (&mut &**socket).read(&mut [0]).is_ok_and(|count| count == 0)
    });
    assert!(closed.count() >= 2);
    drop(kept);
}

#[test]
fn slow_logins_and_unbounded_text_are_cut_off() {
    let limits = Limits { login_time: Duration::from_millis(300), text_bytes: 4096, ..Limits::default() };
    let target = limited(limits);
    let begun = Instant::now();
    let mut slow = TcpStream::connect(target.address()).unwrap();
    slow.write_all(&[0x43, 0x87]).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    assert_eq!(slow.read(&mut [0]).unwrap(), 0);
    assert!(begun.elapsed() < Duration::from_secs(3));
    // A login that never ends, 1 KiB of text at a time.
    let mut endless = Client::connect(target.address());
    let request = LoginRequest {
        immediate: true,
        continues: true,
        stage_byte: 1 << 2,
        isid: [0x80, 0, 0, 0, 0, 1],
        ..LoginRequest::default()
    };
    let piece = "X-key=value\0".repeat(85);
    let status = (0..8).find_map(|_| {
        endless.send(request.write(), piece.as_bytes());
        let status = endless.receive().map(|pdu| u16::from_be_bytes([pdu.bhs.0[36], pdu.bhs.0[37]]));
        status.filter(|&status| status != 0)
    });
    assert_eq!(status, Some(0x0200), "initiator error");
}

#[test]
fn connection_memory_is_limited() {
    let limits = Limits { gathered_bytes: 64 << 10, ..Limits::default() };
    let target = limited(limits);
    let mut client = Client::log_in(target.address(), &Login { keys: "ImmediateData=No", ..login() });
    client.attentions(0);
    // VERIFY with BYTCHK of 32 KiB each, whose data never arrives: the third exceeds the limit.
    for tag in 1..=3 {
        let command = iscsi::pdu::ScsiCommand {
            read: false,
            write_data: true,
            expected_bytes: 32 << 10,
            ..client.command(tag, &[0x2f, 2, 0, 0, 0, 0, 0, 0, 64, 0], 0)
        };
        client.issue(&command, &[]);
    }
    let (asked, response) = client.until(opcode::SCSI_RESPONSE);
    assert_eq!((asked.len(), response.u32(16), response.bhs.0[3]), (2, 3, 0x28), "TASK SET FULL");
}

#[test]
fn silent_initiator_is_pinged_and_then_closed() {
    let wait = Duration::from_millis(200);
    let target = limited(Limits { ping_after: wait, ping_answer: wait, ..Limits::default() });
    let mut client = Client::log_in(target.address(), &login());
    // A connection that answers pings stays open.
    for _ in 0..3 {
        let ping = client.until(opcode::NOP_IN).1;
        assert_eq!(ping.u32(16), NO_TAG);
        let answer = iscsi::pdu::NopOut {
            immediate: true,
            tag: NO_TAG,
            transfer_tag: ping.u32(20),
            cmd_sn: client.cmd_sn,
            exp_stat_sn: client.exp_stat_sn,
            ..Default::default()
        };
        client.send(answer.write(), &[]);
    }
    // A busy connection is not pinged.
    let begun = Instant::now();
    while begun.elapsed() < 3 * wait {
        let test = client.command(client.cmd_sn, &[0; 6], 0);
        client.issue(&test, &[]);
        assert_eq!(client.receive().unwrap().opcode(), opcode::SCSI_RESPONSE, "no ping in between");
        std::thread::sleep(wait / 10);
    }
    client.until(opcode::NOP_IN);
    assert!(client.receive().is_none(), "closed without a ping response");
}
