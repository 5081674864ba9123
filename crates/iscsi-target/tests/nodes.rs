//! Several targets in one process: each has disks, rules and state of its own, and nothing of one reaches another.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{Client, INITIATOR, IQN, Login, ram, register, start};
use iscsi::login::chap::Credentials;
use iscsi::opcode::target as opcode;
use iscsi_target::{
    Access, ActsFor, DiskNames, Initiator, LunConfig, NodeConfig, Operation, Portal, RunningTarget, Shown,
    TargetError, User,
};
use store::{Ram, Store};

const OTHER: &str = "iqn.2026-11.example.roundtrip:other-target";
const ALICE: &str = "iqn.2026-11.example.roundtrip:alice";
const BOB: &str = "iqn.2026-11.example.roundtrip:bob";
const DISCOVERS: &str = "SessionType=Discovery";
const NOT_FOUND: u16 = 0x0203;
const REFUSED: u16 = 0x0202;
const UNPROVEN: u16 = 0x0201;
const LUN_RESET: u8 = 5;
const COLD_RESET: u8 = 7;

fn node(iqn: &str, luns: Vec<LunConfig>, access: Option<Access>) -> NodeConfig {
    NodeConfig { access, ..NodeConfig::new(iqn, luns) }
}

/// Two targets: the first with disks 0 and 1, the other with disk 0.
fn two(first: Option<Access>, other: Option<Access>) -> RunningTarget {
    start(vec![ram(0, 1), ram(1, 1)], |config| {
        config.nodes[0].access = first;
        config.nodes.push(node(OTHER, vec![ram(0, 2)], other));
    })
}

fn user(name: &str, secret: &str, acts_for: ActsFor) -> User {
    User { credentials: Credentials { name: name.into(), secret: secret.into() }, acts_for, own: None }
}

fn chap(users: Vec<User>) -> Option<Access> {
    Some(Access { users, discovery: true, ..Access::default() })
}

fn names(names: &[&str]) -> ActsFor {
    ActsFor::Names(names.iter().map(|&name| name.into()).collect())
}

fn luns(client: &mut Client) -> Vec<u8> {
    let (data, ..) = client.read(0, &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0], 255);
    data[8..].chunks(8).map(|lun| lun[1]).collect()
}

fn blocks(client: &mut Client, lun: u8) -> u32 {
    let (data, ..) = client.read(lun, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    u32::from_be_bytes(data[..4].try_into().unwrap()) + 1
}

fn log_in(address: SocketAddr, target: &str, isid: u8) -> Client {
    let mut client = Client::log_in(address, &Login { target, isid, ..Login::default() });
    client.attentions(0);
    client
}

fn status(address: SocketAddr, target: &str, initiator: &str) -> u16 {
    Client::try_log_in(address, &Login { target, initiator, ..Login::default() }).1.status
}

/// The targets that an initiator discovers; with a user it authenticates.
fn discovered(address: SocketAddr, initiator: &str, user: Option<(&str, &str)>) -> Result<Vec<String>, u16> {
    let login = Login { initiator, keys: DISCOVERS, isid: 9, ..Login::default() };
    let (mut client, status) = match user {
        Some(user) => Client::try_chap(address, &Login { keys: DISCOVERS, ..login }, user),
        None => {
            let (client, response, _) = Client::try_log_in(address, &login);
            (client, response.status)
        }
    };
    if status != 0 {
        return Err(status);
    }
    let text = client.ask("SendTargets=All\0");
    Ok(text.split(' ').filter_map(|pair| pair.strip_prefix("TargetName=")).map(str::to_owned).collect())
}

#[test]
fn each_target_has_its_own_disks_and_is_found_by_its_name() {
    let target = two(None, None);
    let address = target.address();
    let (mut first, mut other) = (log_in(address, IQN, 1), log_in(address, &OTHER.to_uppercase(), 1));
    assert_eq!((luns(&mut first), luns(&mut other)), (vec![0, 1], vec![0]));
    assert_eq!((blocks(&mut first, 0), blocks(&mut other, 0)), (2048, 4096));
    assert_eq!(target.sessions(), 2, "one initiator and ISID, two targets");
    assert_eq!(status(address, "iqn.2026-11.example.roundtrip:none", INITIATOR), NOT_FOUND);
    assert_eq!(discovered(address, INITIATOR, None).unwrap(), [IQN, OTHER]);
    // A session may ask about its own target only (RFC 7143 C).
    assert!(first.ask("SendTargets=\0").contains(IQN));
    assert_eq!(first.ask(&format!("SendTargets={OTHER}\0")), "");
    assert!(first.ask(&format!("SendTargets={IQN}\0")).contains("TargetAddress"));
    // "All" is its own target alone, and what is no name is rejected.
    let all = first.ask("SendTargets=All\0");
    assert!(all.contains(IQN) && all.contains("TargetAddress") && !all.contains(OTHER), "{all}");
    for wrong in ["Alle", "A", "all", "example"] {
        assert_eq!(first.ask(&format!("SendTargets={wrong}\0")).trim_end(), "SendTargets=Reject");
    }
    assert_eq!(first.ask("sENDtARGETS=All\0").trim_end(), "sENDtARGETS=NotUnderstood");
    // A connection joins a session of its own target only.
    let joins = Login { target: OTHER, cid: 1, tsih: first.tsih, ..Login::default() };
    assert_ne!(Client::try_log_in(address, &joins).1.status, 0);
}

#[test]
fn resets_reservations_and_attentions_stay_within_a_target() {
    let target = two(None, None);
    let address = target.address();
    let (mut first, mut other) = (log_in(address, IQN, 1), log_in(address, OTHER, 1));
    let mut watcher = log_in(address, OTHER, 2);
    assert_eq!(watcher.reserve_out(0, register(7)).0, 0);
    assert_eq!((watcher.keys(0), first.keys(0)), (vec![7], vec![]));
    assert_eq!(first.manage(LUN_RESET, 0, 0), 0);
    assert_eq!(watcher.attentions(0), [], "a reset at the first target");
    assert_eq!(first.manage(COLD_RESET, 0, 0), 0);
    assert!(first.receive().is_none(), "a cold reset ends the session");
    assert_eq!((other.attentions(0), watcher.attentions(0)), (vec![], vec![]));
    assert_eq!(blocks(&mut other, 0), 4096, "the same initiator at the other target");
    // The other way round the attention is due, which shows that it would be seen.
    assert_eq!(other.manage(LUN_RESET, 0, 0), 0);
    assert_eq!(watcher.attentions(0), [(0x29, 0x03)]);
}

#[test]
fn secret_of_one_target_opens_no_other_and_discovers_no_other() {
    let of = |secret: &str| chap(vec![user("alice", secret, ActsFor::Any)]);
    let target = two(of("secret of the first"), of("secret of the other"));
    let address = target.address();
    let (first, other) = (("alice", "secret of the first"), ("alice", "secret of the other"));
    let try_chap = |target, user| {
        Client::try_chap(address, &Login { target, initiator: ALICE, ..Login::default() }, user).1
    };
    assert_eq!((try_chap(IQN, first), try_chap(OTHER, other)), (0, 0));
    assert_eq!((try_chap(IQN, other), try_chap(OTHER, first)), (UNPROVEN, UNPROVEN));
    assert_eq!(discovered(address, ALICE, Some(first)).unwrap(), [IQN]);
    assert_eq!(discovered(address, ALICE, Some(other)).unwrap(), [OTHER]);
    assert_eq!(discovered(address, ALICE, Some(("alice", "secret of nobody"))), Err(UNPROVEN));
    assert_eq!(discovered(address, ALICE, None), Err(UNPROVEN));
    // Before it has authenticated, an initiator cannot tell which names exist.
    let unknown = "iqn.2026-11.example.roundtrip:none";
    assert_eq!(status(address, unknown, ALICE), status(address, IQN, ALICE));
    assert_eq!(try_chap(unknown, first), NOT_FOUND);
}

#[test]
fn an_open_target_is_discovered_without_authentication_and_a_guarded_one_is_not() {
    let target = two(None, chap(vec![user("alice", "secret of alice", ActsFor::Any)]));
    let address = target.address();
    assert_eq!(discovered(address, ALICE, None).unwrap(), [IQN]);
    assert_eq!(discovered(address, ALICE, Some(("alice", "secret of alice"))).unwrap(), [IQN, OTHER]);
    assert_eq!(discovered(address, ALICE, Some(("alice", "secret of nobody"))), Err(UNPROVEN));
    assert_eq!((status(address, IQN, ALICE), status(address, OTHER, ALICE)), (0, UNPROVEN));
    assert_eq!(status(address, "iqn.2026-11.example.roundtrip:none", ALICE), UNPROVEN, "as a guarded one");
}

#[test]
fn each_target_answers_discovery_with_its_own_credentials() {
    let own = |name: &str, secret: &str| Some(Credentials { name: name.into(), secret: secret.into() });
    let of = |user_name: &str, target_name: &str| {
        let users = vec![user(user_name, &format!("secret of {user_name}"), ActsFor::Any)];
        Some(Access {
            users,
            own: own(target_name, &format!("secret of {target_name}")),
            discovery: true,
            ..Access::default()
        })
    };
    let target = two(of("alice", "first-target"), of("bob", "other-target"));
    for (name, answers) in [("alice", "first-target"), ("bob", "other-target")] {
        let login = Login { keys: DISCOVERS, ..Login::default() };
        let mut client = Client::connect(target.address());
        let keys = format!("InitiatorName={ALICE} {DISCOVERS} AuthMethod=CHAP CHAP_A=7");
        let (_, text) = client.login_request(&login, (0, 0, false), &keys);
        let proof = common::chap_proof(&text, name, &format!("secret of {name}"));
        let (status, text) = client.login_request(
            &login,
            (0, 1, true),
            &format!("{proof} CHAP_I=5 CHAP_C=0x0102030405060708"),
        );
        assert_eq!(status, 0);
        assert!(text.contains(&format!("CHAP_N={answers}")), "{name}: {text}");
    }
}

#[test]
fn namesakes_have_the_secret_of_their_initiator() {
    let users = vec![
        user("iscsi", "secret for alice", names(&[ALICE])),
        user("iscsi", "secret for bob..", names(&[BOB])),
    ];
    let target = start(vec![ram(0, 1)], |config| config.nodes[0].access = chap(users));
    let try_chap = |initiator, secret| {
        let login = Login { initiator, ..Login::default() };
        Client::try_chap(target.address(), &login, ("iscsi", secret)).1
    };
    assert_eq!((try_chap(ALICE, "secret for alice"), try_chap(BOB, "secret for bob..")), (0, 0));
    assert_eq!(try_chap(ALICE, "secret for bob.."), UNPROVEN);
    assert_eq!(try_chap(BOB, "secret for alice"), UNPROVEN);
    assert_eq!(try_chap(INITIATOR, "secret for alice"), REFUSED, "bound to other names");
}

#[test]
fn disk_is_shown_under_another_number_and_may_be_read_only() {
    let shown =
        vec![Shown { number: 5, disk: 0, read_only: true }, Shown { number: 0, disk: 1, read_only: false }];
    let access = Access {
        initiators: vec![
            Initiator { luns: Some(shown), ..Initiator::new(ALICE) },
            Initiator { read_only: true, ..Initiator::new(BOB) },
            Initiator::new(INITIATOR),
        ],
        ..Access::default()
    };
    let target = start(vec![ram(0, 1), ram(1, 2)], |config| config.nodes[0].access = Some(access));
    let address = target.address();
    let see = |initiator| Client::log_in(address, &Login { initiator, ..Login::default() });
    let (mut alice, mut bob, mut all) = (see(ALICE), see(BOB), see(INITIATOR));
    for (client, luns) in [(&mut alice, [0, 5]), (&mut bob, [0, 1]), (&mut all, [0, 1])] {
        luns.into_iter().for_each(|lun| drop(client.attentions(lun)));
    }
    assert_eq!((luns(&mut alice), luns(&mut all)), (vec![0, 5], vec![0, 1]));
    assert_eq!((blocks(&mut alice, 5), blocks(&mut alice, 0)), (2048, 4096));
    let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    assert_eq!(all.write(0, &write, &[7; 512]).0, 0);
    assert_eq!(alice.read(5, &read, 512).0, [7; 512], "disk 0 is number 5");
    for (is_alice, lun) in [(true, 5), (false, 0), (false, 1)] {
        let client = if is_alice { &mut alice } else { &mut bob };
        let (status, sense) = client.write(lun, &write, &[8; 512]);
        assert_eq!((status, sense[2] & 15, sense[12]), (2, 7, 0x27), "write protected, LUN {lun}");
    }
    assert_eq!(all.read(0, &read, 512).0, [7; 512]);
    assert_eq!(alice.write(0, &write, &[9; 512]).0, 0, "disk 1 may be written");
    // Unit attentions arrive under the number that each initiator sees.
    assert_eq!(all.manage(LUN_RESET, 0, 0), 0);
    assert_eq!((alice.attentions(5), alice.attentions(0)), (vec![(0x29, 0x03)], vec![]));
    assert_eq!((bob.attentions(0), bob.attentions(1)), (vec![(0x29, 0x03)], vec![]));
    assert_eq!(all.attentions(0), [(0x29, 0x03)]);
    assert_eq!(alice.manage(LUN_RESET, 0, 0), 0);
    assert_eq!((all.attentions(0), all.attentions(1)), (vec![], vec![(0x29, 0x03)]));
    // Reservations are those of the disk.
    alice.attentions(0);
    assert_eq!(alice.reserve_out(0, register(0xa)).0, 0);
    assert_eq!((all.keys(0), all.keys(1)), (vec![], vec![0xa]));
    // One that may not write may not keep others from it, either.
    assert_eq!(bob.reserve_out(0, register(0xb)).0, 2);
    let (reserve, eject) = ([0x16, 0, 0, 0, 0, 0], [0x1b, 0, 0, 0, 2, 0]);
    let mode_select = [0x15, 0x10, 0, 0, 0, 0];
    let set_groups = [0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for cdb in [&reserve[..], &eject, &mode_select, &set_groups] {
        let (_, status, sense) = bob.read(0, cdb, 0);
        assert_eq!((status, sense.get(12)), (2, Some(&0x27)), "{cdb:x?}");
    }
    assert_eq!(all.write(0, &write, &[7; 512]).0, 0);
}

#[test]
fn targets_come_and_go_while_others_are_served() {
    let luns = vec![ram(0, 1), ram(1, 1)];
    let target = start(luns.clone(), |_| ());
    let address = target.address();
    let mut first = log_in(address, IQN, 1);
    let set = |nodes: &[NodeConfig]| target.set_nodes(nodes, Duration::from_millis(200));
    let both = [node(IQN, luns.clone(), None), node(OTHER, vec![ram(0, 2)], None)];
    assert_eq!(status(address, OTHER, INITIATOR), NOT_FOUND);
    set(&both).unwrap();
    let mut other = log_in(address, OTHER, 1);
    // What is refused changes nothing.
    let twice = [both[0].clone(), both[0].clone()];
    assert!(matches!(set(&twice), Err(TargetError::DuplicateName(_))));
    let bad = [node("disk", Vec::new(), None)];
    assert!(matches!(set(&bad), Err(TargetError::Name(_))));
    let odd = LunConfig::new(0, Arc::new(Ram::new(100)) as Arc<dyn Store>);
    assert!(set(&[node(IQN, Vec::new(), None), node(OTHER, vec![odd], None)]).is_err());
    let far = NodeConfig { groups: Some(vec![7]), ..both[0].clone() };
    assert!(matches!(set(&[far]), Err(TargetError::NoGroup { group: 7, .. })));
    assert_eq!((blocks(&mut first, 0), blocks(&mut other, 0)), (2048, 4096));
    assert_eq!(first.attentions(0), []);
    // A target that ends asks its initiators to log out.
    set(&both[..1]).unwrap();
    assert_eq!(other.until(opcode::ASYNC).1.bhs.0[36], 1, "it is asked to log out");
    assert!(std::iter::from_fn(|| other.receive()).count() < 5, "it is dropped");
    assert_eq!(status(address, OTHER, INITIATOR), NOT_FOUND);
    assert_eq!(blocks(&mut first, 0), 2048);
    assert_eq!(discovered(address, INITIATOR, None).unwrap(), [IQN]);
    set(&both).unwrap();
    assert_eq!(blocks(&mut log_in(address, OTHER, 2), 0), 4096);
}

#[test]
fn target_is_reached_through_its_portal_groups_only() {
    let target = start(vec![ram(0, 1)], |config| {
        config.portals.push(Portal { group: 2, ..Portal::new("127.0.0.1:0".parse().unwrap()) });
        config.nodes.push(NodeConfig { groups: Some(vec![2]), ..NodeConfig::new(OTHER, vec![ram(0, 2)]) });
    });
    let addresses = target.addresses();
    assert_eq!(status(addresses[0], OTHER, INITIATOR), NOT_FOUND);
    assert_eq!(status(addresses[1], OTHER, INITIATOR), 0);
    assert_eq!(status(addresses[1], IQN, INITIATOR), 0);
    let login = Login { keys: DISCOVERS, isid: 9, ..Login::default() };
    let text = Client::log_in(addresses[1], &login).ask("SendTargets=All\0");
    let (first, other) = text.split_at(text.find(OTHER).unwrap());
    assert_eq!(first.matches("TargetAddress").count(), 2);
    assert!(other.matches("TargetAddress").count() == 1 && other.contains(",2"), "{other}");
}

#[test]
fn rules_by_address() {
    let from = |network: &str| Access { addresses: vec![network.parse().unwrap()], ..Access::default() };
    let target = two(Some(from("192.0.2.0/24")), Some(from("127.0.0.0/8")));
    let address = target.address();
    assert_eq!((status(address, IQN, INITIATOR), status(address, OTHER, INITIATOR)), (REFUSED, 0));
    assert_eq!(discovered(address, INITIATOR, None).unwrap(), [OTHER]);
    // An IPv4 initiator at an IPv6 socket keeps its IPv4 address.
    let mapped = from("127.0.0.0/8");
    assert!(mapped.is_reached_from("::ffff:127.0.0.1".parse().unwrap()));
    assert!(!mapped.is_reached_from("::1".parse().unwrap()));
    // Rules that end a session's address end the session.
    let mut client = log_in(address, OTHER, 1);
    let nodes = [node(OTHER, Vec::new(), Some(from("192.0.2.0/24")))];
    target.set_nodes(&nodes, Duration::from_millis(100)).unwrap();
    assert!(std::iter::from_fn(|| client.receive()).count() < 5, "it is dropped");
}

#[test]
fn disks_have_the_names_that_they_are_given_and_no_two_the_same() {
    let named = |names: DiskNames, number| LunConfig { names, ..ram(number, 1) };
    let naa: Vec<u8> = (0..16).map(|byte| if byte == 0 { 0x60 } else { byte }).collect();
    let names = DiskNames {
        serial: Some("beaf11".into()),
        naa: Some(naa.clone()),
        t10: Some("disk one:beaf11".into()),
        vendor: Some("LIO-ORG".into()),
        product: Some("disk one".into()),
        revision: Some("4.0".into()),
    };
    let target = start(vec![named(names.clone(), 0)], |_| ());
    let mut client = log_in(target.address(), IQN, 1);
    let (inquiry, ..) = client.read(0, &[0x12, 0, 0, 0, 96, 0], 96);
    assert_eq!(&inquiry[8..36], b"LIO-ORG disk one        4.0 ");
    let mut page = |code: u8| client.read(0, &[0x12, 1, code, 0, 255, 0], 255).0;
    assert_eq!(&page(0x80)[4..], b"beaf11");
    let names_page = page(0x83);
    assert_eq!(names_page[4..24], [&[1, 3, 0, 16][..], &naa].concat());
    assert_eq!(&names_page[24..28 + 23], b"\x02\x01\0\x17LIO-ORG disk one:beaf11");
    let refused = |names: DiskNames| {
        let nodes = [NodeConfig::new(IQN, vec![named(names, 0)])];
        target.set_nodes(&nodes, Duration::ZERO).err().map(|error| error.to_string())
    };
    let some = |text: &str| Some(text.to_owned());
    for (names, word) in [
        (DiskNames { serial: some("../../etc/passwd"), ..DiskNames::default() }, "serial"),
        (DiskNames { serial: some(""), ..DiskNames::default() }, "serial"),
        (DiskNames { serial: some(&"a".repeat(65)), ..DiskNames::default() }, "serial"),
        (DiskNames { vendor: some("ninechars"), ..DiskNames::default() }, "vendor"),
        (DiskNames { product: some("caf\u{e9}"), ..DiskNames::default() }, "product"),
        (DiskNames { revision: some("12345"), ..DiskNames::default() }, "revision"),
        (DiskNames { t10: some("a\nb"), ..DiskNames::default() }, "t10"),
        (DiskNames { naa: Some(vec![0x60; 8]), ..DiskNames::default() }, "naa"),
        (DiskNames { naa: Some(Vec::new()), ..DiskNames::default() }, "naa"),
    ] {
        let error = refused(names.clone());
        assert!(error.as_ref().is_some_and(|error| error.contains(word)), "{names:?}: {error:?}");
    }
    let only = |change: fn(&DiskNames) -> DiskNames| {
        [node(IQN, vec![named(names.clone(), 0)], None), node(OTHER, vec![named(change(&names), 0)], None)]
    };
    for nodes in [
        only(|names| DiskNames { serial: names.serial.clone(), ..DiskNames::default() }),
        only(|names| DiskNames { naa: names.naa.clone(), ..DiskNames::default() }),
    ] {
        let error = target.set_nodes(&nodes, Duration::ZERO).unwrap_err();
        assert!(matches!(error, TargetError::DuplicateIdentity { .. }), "{error}");
    }
}

#[test]
fn commands_are_counted_for_their_disk_also_while_their_connection_is_idle() {
    let target = two(None, None);
    let mut client = log_in(target.address(), IQN, 1);
    client.attentions(1);
    let read = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
    let counts = |lun: usize| {
        target.refresh();
        let counts = &target.nodes()[0].disks[lun].counts;
        let reads = &counts.operations[Operation::Read as usize];
        (reads.commands, reads.bytes, counts.failed.clone())
    };
    let (before, _, failed) = counts(1);
    assert_eq!((before, failed), (0, vec![(2, 6, 1)]), "the unit attention of the login");
    // Faster than a connection publishes by itself, and nothing after it.
    (0..100).for_each(|_| assert_eq!(client.read(1, &read, 512).1, 0));
    assert_eq!(counts(1), (100, 51_200, vec![(2, 6, 1)]));
    assert_eq!(counts(0).0, 0);
    // What was for a disk that is not there is no other disk's later.
    (0..5).for_each(|_| assert_eq!(client.read(7, &read, 512).1, 2));
    let nodes = [node(IQN, vec![ram(0, 1), ram(7, 1)], None)];
    target.set_nodes(&nodes, Duration::from_secs(1)).unwrap();
    assert_eq!(counts(1).0, 0, "disk 7");
}
