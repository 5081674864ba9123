//! Isolation between initiators, and bounds on the resources that peers can make the target hold. Each test states an
//! invariant and tries every known way to break it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use common::{Client, INITIATOR, IQN, Login, ReserveOut, chap_proof, lun_field, ram, register, set, start};
use iscsi::NO_TAG;
use iscsi::login::chap::Credentials;
use iscsi::opcode::target as opcode;
use iscsi::pdu::{ScsiCommand, Snack, TextRequest};
use iscsi_target::{
    Access, AccessState, ActsFor, Initiator, Limits, LunConfig, RunningTarget, Shown, Threads, User,
};
use store::Operation;
use store::layer::{Delay, Hook, Layered};
use store::{Ram, Store, StoreError};

const ALICE: &str = "iqn.2026-11.example.roundtrip:alice";
const BOB: &str = "iqn.2026-11.example.roundtrip:bob";
const SHARED: &str = "iqn.2026-11.example.roundtrip:shared";

const AUTHORIZATION_FAILURE: u16 = 0x0202;
const NO_SUCH_SESSION: u16 = 0x020a;

const GOOD: u8 = 0;
const BUSY: u8 = 0x08;
const CONFLICT: u8 = 0x18;
const TASK_SET_FULL: u8 = 0x28;

const COMPLETE: u8 = 0;
const NO_SUCH_TASK: u8 = 1;
const NO_SUCH_LUN: u8 = 2;
const REJECTED: u8 = 255;

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_TASK_SET: u8 = 4;
const LUN_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;
const TASK_REASSIGN: u8 = 8;

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const RESERVE_6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const EXCLUSIVE_ACCESS: u8 = 3;
const PREEMPT_AND_ABORT: u8 = 5;

const LEVEL_2: &str = "ErrorRecoveryLevel=2 DefaultTime2Wait=0 DefaultTime2Retain=20 MaxConnections=4";
const SOLICITED: &str = "InitialR2T=Yes ImmediateData=No";

/// READ (10) or WRITE (10).
fn transfer(code: u8, lba: u32, blocks: u16) -> [u8; 10] {
    let ([a, b, c, d], [high, low]) = (lba.to_be_bytes(), blocks.to_be_bytes());
    [code, 0, a, b, c, d, 0, high, low, 0]
}

fn read_10(lba: u32, blocks: u16) -> [u8; 10] {
    transfer(0x28, lba, blocks)
}

fn write_10(lba: u32, blocks: u16) -> [u8; 10] {
    transfer(0x2a, lba, blocks)
}

/// Waits until a condition holds.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(15);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A disk that holds its operations until the test releases it.
#[derive(Clone, Default)]
struct Valve(Arc<(Mutex<Flow>, Condvar)>);

#[derive(Clone, Copy, Default)]
struct Flow {
    is_open: bool,
    /// Operations that are held.
    waiting: usize,
    /// Writes that passed.
    written: usize,
}

impl Valve {
    fn open() -> Self {
        let valve = Self::default();
        valve.release();
        valve
    }

    fn release(&self) {
        self.0.0.lock().unwrap().is_open = true;
        self.0.1.notify_all();
    }

    fn hold(&self) {
        self.0.0.lock().unwrap().is_open = false;
    }

    fn flow(&self) -> Flow {
        *self.0.0.lock().unwrap()
    }

    fn wait_for(&self, operations: usize) {
        wait_until("the operations reach the disk", || self.flow().waiting == operations);
    }

    /// Returns a disk of 1 MiB behind the valve.
    fn lun(&self, number: u16) -> (LunConfig, Arc<Ram>) {
        let blocks = Arc::new(Ram::new(1 << 20));
        let store = Layered::new(self.clone(), Arc::clone(&blocks) as Arc<dyn Store>);
        (LunConfig::new(number, Arc::new(store)), blocks)
    }
}

impl Hook for Valve {
    fn before(&self, operation: Operation, _: u64, _: u64) -> Result<(), StoreError> {
        let (flow, changed) = &*self.0;
        let mut flow = flow.lock().unwrap();
        flow.waiting += 1;
        flow = changed.wait_while(flow, |flow| !flow.is_open).unwrap();
        flow.waiting -= 1;
        flow.written += usize::from(operation == Operation::Write);
        Ok(())
    }

    fn may_wait(&self, _: Operation) -> bool {
        true
    }
}

/// A valve that says nothing of it: a disk in memory, at which a command has much to do.
struct Busy(Valve);

impl Hook for Busy {
    fn before(&self, operation: Operation, offset: u64, length: u64) -> Result<(), StoreError> {
        self.0.before(operation, offset, length)
    }
}

/// Releases a valve when a test ends, also by a panic.
struct Releases(Valve);

impl Drop for Releases {
    fn drop(&mut self) {
        self.0.release();
    }
}

fn block(store: &impl Store, lba: u64) -> u8 {
    let mut there = [0; 512];
    store.read_at(lba * 512, &mut there).unwrap();
    assert!(there.iter().all(|byte| *byte == there[0]), "a torn block");
    there[0]
}

fn contents(store: &impl Store) -> Vec<u8> {
    let mut all = vec![0; store.size_bytes() as usize];
    store.read_at(0, &mut all).unwrap();
    all
}

/// Logs in and clears the unit attentions of `luns`.
fn ready(address: SocketAddr, login: &Login<'_>, luns: &[u8]) -> Client {
    let mut client = Client::log_in(address, login);
    luns.iter().for_each(|&lun| drop(client.attentions(lun)));
    client
}

/// Returns whether the session answers commands.
fn lives(client: &mut Client, lun: u8) -> bool {
    client.read(lun, &read_10(0, 1), 512).1 == GOOD
}

fn with_chap(discovery: bool) -> Access {
    let names = |names: &[&str]| ActsFor::Names(names.iter().map(|&name| name.into()).collect());
    let user = |(name, acts_for): (&str, ActsFor)| User {
        credentials: Credentials { name: name.into(), secret: secret(name).into() },
        acts_for,
        own: None,
    };
    let users = [
        ("alice", names(&[ALICE])),
        ("bob", names(&[BOB])),
        ("one", ActsFor::Any),
        ("two", ActsFor::Any),
        ("nobody", names(&[])),
    ];
    Access { users: users.map(user).to_vec(), discovery, ..Access::default() }
}

fn secret(user: &str) -> String {
    format!("{user}'s secret")
}

fn chap(address: SocketAddr, login: &Login<'_>, user: &str) -> (Client, u16) {
    Client::try_chap(address, login, (user, &secret(user)))
}

// 1. Identity.

#[test]
fn chap_user_cannot_use_the_name_or_session_of_another() {
    let target = start(vec![ram(0, 1)], |config| config.nodes[0].access = Some(with_chap(true)));
    let address = target.address();
    let bobs = Login { initiator: BOB, keys: "MaxConnections=4", ..Login::default() };
    let (mut bob, status) = chap(address, &bobs, "bob");
    assert_eq!(status, 0);
    bob.attentions(0);
    let mixed = BOB.replace("bob", "Bob");
    for initiator in [BOB, &BOB.to_uppercase(), &mixed] {
        for user in ["alice", "one", "nobody"] {
            for (isid, cid, tsih) in [(1, 0, 0), (2, 0, 0), (1, 1, bob.tsih), (1, 0, bob.tsih)] {
                let login = Login { initiator, isid, cid, tsih, ..Login::default() };
                let (_, status) = chap(address, &login, user);
                assert_eq!(status, AUTHORIZATION_FAILURE, "{user} as {initiator}, {isid} {cid} {tsih}");
            }
        }
        let login = Login { initiator, ..Login::default() };
        let wrong = [("bob", secret("alice")), ("alice", secret("bob")), ("stranger", secret("bob"))];
        for (user, secret) in wrong {
            assert_eq!(Client::try_chap(address, &login, (user, &secret)).1, 0x0201, "{user}");
        }
        assert_eq!(Client::try_log_in(address, &login).1.status, 0x0201, "without CHAP");
    }
    assert!(lives(&mut bob, 0));
    wait_until("the refused logins are gone", || target.connections() == 1);
    assert_eq!(target.sessions(), 1);
    // The owner may: names are compared without case, so it is the same session.
    let upper = BOB.to_uppercase();
    let (mut second, status) =
        chap(address, &Login { initiator: &upper, cid: 1, tsih: bob.tsih, ..bobs }, "bob");
    assert_eq!((status, target.sessions()), (0, 1));
    second.cmd_sn = bob.cmd_sn;
    assert!(lives(&mut second, 0));
    assert_eq!(chap(address, &Login { initiator: &upper, ..bobs }, "bob").1, 0);
    assert!(bob.receive().is_none() && second.receive().is_none(), "reinstated");
}

#[test]
fn two_users_with_one_name_and_isid_share_neither_session_nor_reservation() {
    let target = start(vec![ram(0, 1)], |config| config.nodes[0].access = Some(with_chap(true)));
    let address = target.address();
    let login = Login { initiator: SHARED, keys: "MaxConnections=4", ..Login::default() };
    let (mut one, status) = chap(address, &login, "one");
    assert_eq!(status, 0);
    one.attentions(0);
    assert_eq!(one.reserve_out(0, register(7)).0, GOOD);
    let reserve = ReserveOut { action: 1, kind: EXCLUSIVE_ACCESS, key: 7, ..ReserveOut::default() };
    assert_eq!(one.reserve_out(0, reserve).0, GOOD);
    for initiator in [SHARED, &SHARED.to_uppercase()] {
        let second = Login { initiator, ..login };
        assert_eq!(chap(address, &second, "two").1, AUTHORIZATION_FAILURE, "reinstatement");
        for cid in [0, 1] {
            let (_, status) = chap(address, &Login { tsih: one.tsih, cid, ..second }, "two");
            assert_eq!(status, NO_SUCH_SESSION, "joining with CID {cid}");
        }
    }
    assert!(lives(&mut one, 0));
    // Neither from another ISID while the owner is logged in, nor from the same ISID after it has logged out.
    for isid in [2, 1] {
        if isid == 1 {
            assert_eq!(one.log_out(0, 0), 0);
        }
        let (mut two, status) = chap(address, &Login { isid, ..login }, "two");
        assert_eq!(status, 0);
        two.attentions(0);
        assert_eq!(two.read(0, &read_10(0, 1), 512).1, CONFLICT);
        let action = |action| ReserveOut {
            action,
            kind: EXCLUSIVE_ACCESS,
            key: 7,
            action_key: if action == 0 { 0 } else { 7 },
            aptpl: false,
        };
        for code in [0, 1, 2, 3, 4, PREEMPT_AND_ABORT] {
            assert_eq!(two.reserve_out(0, action(code)).0, CONFLICT, "service action {code}");
        }
        assert_eq!(two.log_out(0, 0), 0);
    }
    let (mut one, status) = chap(address, &login, "one");
    assert_eq!(status, 0);
    one.attentions(0);
    assert!(lives(&mut one, 0) && one.keys(0) == [7]);
}

// 2. Declared login keys are immutable.

#[test]
fn login_cannot_change_its_declared_keys() {
    let listed = Access { initiators: vec![Initiator::new(INITIATOR)], ..Access::default() };
    let discovery = format!("InitiatorName={INITIATOR} SessionType=Discovery");
    let normal = format!("InitiatorName={INITIATOR} TargetName={IQN} SessionType=Normal");
    let changes = [
        (&discovery, format!("SessionType=Normal TargetName={IQN}")),
        (&discovery, "SessionType=Normal".to_owned()),
        (&discovery, format!("InitiatorName={BOB}")),
        (&discovery, format!("TargetName={IQN}")),
        (&normal, "SessionType=Discovery".to_owned()),
        (&normal, "TargetName=iqn.2026-11.example.roundtrip:elsewhere".to_owned()),
        (&normal, format!("InitiatorName={BOB}")),
    ];
    let login = Login::default();
    for access in [None, Some(listed), Some(with_chap(false)), Some(with_chap(true))] {
        let has_chap = access.as_ref().is_some_and(|access| !access.users.is_empty());
        let asks_discovery = access.as_ref().is_some_and(|access| access.discovery);
        let target = start(vec![ram(0, 1)], |config| config.nodes[0].access = access);
        for (names, change) in &changes {
            let is_discovery = names.contains("Discovery");
            let proves = has_chap && (asks_discovery || !is_discovery);
            // In the same stage, and in the next one.
            for (first, then) in
                [((0, 0, false), (0, 3, true)), ((0, 1, true), (1, 3, true)), ((1, 0, false), (1, 3, true))]
            {
                if proves && first.0 == 1 {
                    continue;
                }
                let mut client = Client::connect(target.address());
                let status = if proves {
                    let names = format!("{names} AuthMethod=CHAP CHAP_A=7").replace(INITIATOR, SHARED);
                    let (status, text) = client.login_request(&login, (0, 0, false), &names);
                    assert_eq!(status, 0);
                    let proof = chap_proof(&text, "one", &secret("one"));
                    if first.2 {
                        assert_eq!(client.login_request(&login, first, &proof).0, 0);
                        client.login_request(&login, then, change).0
                    } else {
                        // Together with the CHAP response.
                        client.login_request(&login, then, &format!("{proof} {change}")).0
                    }
                } else {
                    assert_eq!(client.login_request(&login, first, names).0, 0, "{names}");
                    client.login_request(&login, then, change).0
                };
                assert_eq!(
                    status >> 8,
                    2,
                    "{names}, then {change}, {first:?} {then:?}, CHAP {proves}: {status:#x}"
                );
                assert!(client.receive().is_none());
            }
        }
        assert!(target.wait_until_idle(Duration::from_secs(5)));
        assert_eq!(target.sessions(), 0);
    }
}

#[test]
fn an_unlisted_initiator_is_refused_and_discovers_nothing() {
    for has_chap in [false, true] {
        let listed = vec![Initiator::new(INITIATOR)];
        let access = if has_chap { with_chap(true) } else { Access::default() };
        let access = Access { initiators: listed, ..access };
        let target = start(vec![ram(0, 1)], |config| config.nodes[0].access = Some(access));
        for session in ["Normal", "Discovery"] {
            // A discovery session does not disclose whether a name is listed: the response is empty.
            let unlisted = if session == "Normal" { AUTHORIZATION_FAILURE } else { 0 };
            for (initiator, expected) in [(SHARED, unlisted), (INITIATOR, 0)] {
                let login = Login { initiator, ..Login::default() };
                let mut client = Client::connect(target.address());
                let names = format!("InitiatorName={initiator} TargetName={IQN} SessionType={session}");
                let status = if has_chap {
                    let names = format!("{names} AuthMethod=CHAP CHAP_A=7");
                    let (_, text) = client.login_request(&login, (0, 0, false), &names);
                    client.login_request(&login, (0, 3, true), &chap_proof(&text, "one", &secret("one"))).0
                } else {
                    client.login_request(&login, (1, 3, true), &names).0
                };
                assert_eq!(status, expected, "{initiator} {session}, CHAP {has_chap}");
                if session == "Discovery" {
                    let answer = client.ask("SendTargets=All\0");
                    assert_eq!(answer.contains(IQN), initiator == INITIATOR, "{initiator}: {answer}");
                }
            }
        }
    }
}

// 3. Discovery sessions.

#[test]
fn discovery_session_accepts_only_text_nop_and_logout() {
    let target = start(vec![ram(0, 1)], |_| ());
    let keys = "SessionType=Discovery ErrorRecoveryLevel=2 MaxConnections=4";
    let discover = || Client::log_in(target.address(), &Login { keys, ..Login::default() });
    type Sends = fn(&mut Client);
    let refused: [(&str, Sends); 6] = [
        ("LUN RESET", |client| client.send_management(LUN_RESET, 0, 0)),
        ("TASK REASSIGN", |client| client.send_management(TASK_REASSIGN, 0, 1)),
        ("TARGET COLD RESET", |client| client.send_management(COLD_RESET, 0, 0)),
        ("SCSI command", |client| client.issue(&client.command(1, &TEST_UNIT_READY, 0), &[])),
        ("SNACK", |client| {
            let snack = Snack { type_byte: 0x80, tag: 1, transfer_tag: NO_TAG, ..Snack::default() };
            client.send(snack.write(), &[]);
        }),
        ("Data-Out", |client| client.data_out((1, 1), 0, 0, &[0; 512])),
    ];
    for (what, send) in refused {
        let mut client = discover();
        send(&mut client);
        assert_eq!(client.receive().map(|pdu| pdu.opcode()), Some(opcode::REJECT), "{what}");
        assert!(client.receive().is_none(), "{what}");
    }
    let mut client = discover();
    let text = TextRequest {
        immediate: true,
        is_final: true,
        tag: 9,
        transfer_tag: NO_TAG,
        cmd_sn: client.cmd_sn,
        exp_stat_sn: client.exp_stat_sn,
        ..TextRequest::default()
    };
    client.send(text.write(), b"SendTargets=All\0");
    let answer = client.until(opcode::TEXT).1;
    assert!(answer.text().contains(IQN));
    client.exp_stat_sn = answer.u32(24) + 1;
    let nop = iscsi::pdu::NopOut {
        immediate: true,
        tag: 5,
        transfer_tag: NO_TAG,
        cmd_sn: client.cmd_sn,
        exp_stat_sn: client.exp_stat_sn,
        ..Default::default()
    };
    client.send(nop.write(), &[]);
    assert_eq!(client.until(opcode::NOP_IN).1.u32(16), 5);
    assert_eq!(client.log_out(0, 0), 0);
    // A discovery session lost with an unacknowledged response.
    let mut lost = discover();
    lost.send(text.write(), b"SendTargets=All\0");
    lost.until(opcode::TEXT);
    drop((lost, client));
    wait_until("no session remains", || target.sessions() == 0 && target.connections() == 0);
}

// 4. Resets and masked logical units.

#[test]
fn reset_affects_only_luns_visible_to_its_sender() {
    let see = |name: &str, luns: Option<Vec<u16>>| Initiator {
        luns: luns.map(|luns| luns.into_iter().map(Shown::same).collect()),
        ..Initiator::new(name)
    };
    let access = Access {
        initiators: vec![see(INITIATOR, Some(vec![0])), see(ALICE, None), see(BOB, None)],
        ..Access::default()
    };
    let target = start(vec![ram(0, 1), ram(1, 1)], |config| config.nodes[0].access = Some(access));
    let address = target.address();
    let mut holder = ready(address, &Login { initiator: ALICE, ..Login::default() }, &[0, 1]);
    let mut third = ready(address, &Login { initiator: BOB, ..Login::default() }, &[0, 1]);
    assert_eq!(holder.read(1, &RESERVE_6, 0).1, GOOD);
    let mut mine = ready(address, &Login::default(), &[0]);
    let mut sibling = ready(address, &Login { isid: 2, ..Login::default() }, &[0]);
    for function in [ABORT_TASK_SET, CLEAR_TASK_SET, LUN_RESET] {
        assert_eq!(mine.manage(function, 1, 0), NO_SUCH_LUN, "function {function}");
        assert_eq!(mine.manage(function, 9, 0), NO_SUCH_LUN, "same as for a missing LUN");
    }
    for function in [LUN_RESET, WARM_RESET, COLD_RESET] {
        assert_eq!(mine.manage(function, 0, 0), COMPLETE, "function {function}");
        for client in [&mut holder, &mut third] {
            assert_eq!(client.attentions(0), [(0x29, 0x03)], "function {function}: visible disk");
        }
        assert_eq!(holder.attentions(1), [], "function {function}: masked disk");
        assert_eq!(third.read(1, &read_10(0, 1), 512).1, CONFLICT, "the reservation holds");
        assert!(lives(&mut holder, 1) && lives(&mut third, 0));
    }
    assert!(
        mine.receive().is_none() && sibling.receive().is_none(),
        "its initiator's own sessions have ended"
    );
    wait_until("others' sessions remain", || target.sessions() == 2);
}

// 7. Aborted writes never land.

/// Starts a target with a held disk (0) and a normal one (1).
fn held_target(limits: Limits) -> (RunningTarget, Valve, Arc<Ram>, Releases) {
    let valve = Valve::open();
    let (lun, blocks) = valve.lun(0);
    let target = start(vec![lun, ram(1, 1)], |config| config.limits = limits);
    (target, valve.clone(), blocks, Releases(valve))
}

/// Limits that allow eight concurrent writes per disk.
fn eight_threads() -> Limits {
    Limits { disk_threads: 32, ..Limits::default() }
}

fn isid(isid: u8) -> Login<'static> {
    Login { isid, ..Login::default() }
}

/// The session that sends a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Own,
    Other,
}

/// The functions that abort all tasks of a logical unit, with their senders.
const ABORTS: [(u8, From); 8] = [
    (ABORT_TASK_SET, From::Own),
    (CLEAR_TASK_SET, From::Own),
    (CLEAR_TASK_SET, From::Other),
    (LUN_RESET, From::Own),
    (LUN_RESET, From::Other),
    (WARM_RESET, From::Own),
    (WARM_RESET, From::Other),
    (ABORT_TASK, From::Own),
];

/// Runs an aborting request against 8 writes at a slow disk and 8 queued behind them. Checks that the response follows the
/// end of the writes at the disk and that nothing is written after it; returns the tags that the writing session received
/// responses for.
fn abort_while_writing(
    sender: From,
    writes: u32,
    send: impl FnOnce(&mut Client, u32) -> u8,
) -> (RunningTarget, Vec<u32>) {
    let (target, valve, blocks, _releases) = held_target(eight_threads());
    let address = target.address();
    let mut victim = ready(address, &isid(1), &[0, 1]);
    let mut other = ready(address, &isid(2), &[0, 1]);
    assert_eq!(victim.reserve_out(0, register(1)).0, GOOD);
    assert_eq!(other.reserve_out(0, register(2)).0, GOOD);
    valve.hold();
    let tags: Vec<u32> =
        (0..writes).map(|n| victim.begin_write(0, &write_10(n, 1), 512, &[n as u8 + 1; 512])).collect();
    assert!(victim.read(1, &TEST_UNIT_READY, 0).1 == GOOD, "all writes were received");
    let inside = (writes as usize).min(8);
    valve.wait_for(inside);
    let sends = if sender == From::Own { &mut victim } else { &mut other };
    let awaited = send(sends, tags[0]);
    // The connection serves other commands meanwhile, and the function is not answered.
    let fence = sends.begin_write(1, &TEST_UNIT_READY, 0, &[]);
    let (before, answer) = sends.until(opcode::SCSI_RESPONSE);
    assert!(
        before.is_empty() && answer.u32(16) == fence,
        "answered while writes may land: {before:?} {answer:?}"
    );
    assert_eq!((valve.flow().waiting, contents(&*blocks).iter().max()), (inside, Some(&0)));
    valve.release();
    let (before, answer) = sends.until(awaited);
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(valve.flow().waiting, 0, "answered while writes may land");
    let after = contents(&*blocks);
    let code = if awaited == opcode::SCSI_RESPONSE { answer.bhs.0[3] } else { answer.bhs.0[2] };
    assert_eq!(code, 0);
    // None of them lands after further commands and a read through the target.
    let mut answered = Vec::new();
    let last = victim.begin_write(1, &TEST_UNIT_READY, 0, &[]);
    loop {
        let tag = victim.until(opcode::SCSI_RESPONSE).1.u32(16);
        if tag == last {
            break;
        }
        answered.push(tag);
    }
    for client in [&mut victim, &mut other] {
        client.attentions(0);
        assert!(lives(client, 0));
    }
    assert_eq!(valve.flow().written, after.chunks(512).filter(|block| block[0] != 0).count());
    assert!(valve.flow().written <= inside, "a queued write has landed");
    assert_eq!(contents(&*blocks), after, "a write landed after the answer");
    (target, answered)
}

#[test]
fn aborting_functions_complete_after_the_last_write_and_aborted_writes_get_no_response() {
    for (function, sender) in ABORTS {
        let writes = if function == ABORT_TASK { 1 } else { 16 };
        let (_, answered) = abort_while_writing(sender, writes, |client, tag| {
            client.send_management(function, 0, if function == ABORT_TASK { tag } else { 0 });
            opcode::TASK_MANAGEMENT
        });
        assert_eq!(answered, [0; 0], "function {function} by {sender:?}");
    }
}

#[test]
fn preempt_and_abort_completes_after_the_last_write_and_aborted_writes_get_no_response() {
    for writes in [8, 16] {
        let (_, answered) = abort_while_writing(From::Other, writes, |client, _| {
            let preempt =
                ReserveOut { action: PREEMPT_AND_ABORT, kind: 1, key: 2, action_key: 1, aptpl: false };
            client.begin_reserve_out(0, preempt);
            opcode::SCSI_RESPONSE
        });
        assert_eq!(answered, [0; 0]);
    }
}

#[test]
fn task_management_with_hung_writes_is_rejected() {
    let run = |function: u8, sender: From| {
        let (target, valve, blocks, releases) = held_target(eight_threads());
        let mut victim = ready(target.address(), &isid(1), &[0, 1]);
        let mut other = ready(target.address(), &isid(2), &[0, 1]);
        valve.hold();
        let tag = victim.begin_write(0, &write_10(0, 1), 512, &[1; 512]);
        valve.wait_for(1);
        let sends = if sender == From::Own { &mut victim } else { &mut other };
        let begun = Instant::now();
        let response = sends.manage(function, 0, if function == ABORT_TASK { tag } else { 0 });
        assert_eq!(response, REJECTED, "function {function} by {sender:?} with a write in flight");
        assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
        assert_eq!(valve.flow().waiting, 1);
        // A second function waits for the same write.
        sends.send_management(LUN_RESET, 0, 0);
        drop(releases);
        assert_eq!(sends.until(opcode::TASK_MANAGEMENT).1.bhs.0[2], COMPLETE);
        let _ = block(&*blocks, 0);
        assert_eq!(valve.flow().waiting, 0, "the second reset was complete before the write ended");
    };
    let preempt = || {
        let (target, valve, _, releases) = held_target(eight_threads());
        let mut victim = ready(target.address(), &isid(1), &[0, 1]);
        let mut other = ready(target.address(), &isid(2), &[0, 1]);
        assert_eq!(victim.reserve_out(0, register(1)).0, GOOD);
        assert_eq!(other.reserve_out(0, register(2)).0, GOOD);
        valve.hold();
        victim.begin_write(0, &write_10(0, 1), 512, &[1; 512]);
        valve.wait_for(1);
        let preempt = ReserveOut { action: PREEMPT_AND_ABORT, kind: 1, key: 2, action_key: 1, aptpl: false };
        let tag = other.begin_reserve_out(0, preempt);
        other.send_management(LUN_RESET, 0, 0);
        let (before, answer) = other.until(opcode::TASK_MANAGEMENT);
        // The reset aborts PREEMPT AND ABORT, or that is still pending: neither completes before the write ends.
        assert!(before.is_empty() && answer.bhs.0[2] == REJECTED, "{before:?} {answer:?}");
        drop(releases);
        let fence = other.begin_write(1, &TEST_UNIT_READY, 0, &[]);
        let last = other.until(opcode::SCSI_RESPONSE).1.u32(16);
        assert!(last == tag || last == fence);
    };
    std::thread::scope(|scope| {
        ABORTS.into_iter().for_each(|(function, sender)| drop(scope.spawn(move || run(function, sender))));
        scope.spawn(preempt);
    });
}

#[test]
fn data_out_after_a_reset_is_not_written() {
    for (function, sender) in ABORTS {
        // For a disk that is written directly, and for one whose data is gathered first.
        for lun in [0, 1] {
            let (target, _, slow, _releases) = held_target(Limits::default());
            let login = Login { keys: SOLICITED, ..isid(1) };
            let mut victim = ready(target.address(), &login, &[0, 1]);
            let mut other = ready(target.address(), &isid(2), &[0, 1]);
            let tag = victim.begin_write(lun, &write_10(0, 2), 1024, &[]);
            let r2t = victim.until(opcode::R2T).1;
            let sends = if sender == From::Own { &mut victim } else { &mut other };
            let referenced = if function == ABORT_TASK { tag } else { 0 };
            assert_eq!(
                sends.manage(function, lun, referenced),
                COMPLETE,
                "function {function} by {sender:?}"
            );
            victim.data_out((tag, r2t.u32(20)), lun, 0, &[9; 1024]);
            victim.attentions(lun);
            let (there, status, _) = victim.read(lun, &read_10(0, 2), 1024);
            assert!(status == GOOD && there == [0; 1024], "function {function} by {sender:?}, disk {lun}");
            assert_eq!(block(&*slow, 0), 0);
        }
    }
}

#[test]
fn write_of_a_lost_connection_is_aborted_by_a_reset() {
    let keys = format!("{LEVEL_2} {SOLICITED}");
    for function in [CLEAR_TASK_SET, LUN_RESET, WARM_RESET, COLD_RESET] {
        for lun in [0, 1] {
            let (target, _, _, _releases) = held_target(Limits::default());
            let login = Login { keys: &keys, initiator: ALICE, ..Login::default() };
            let mut first = ready(target.address(), &login, &[0, 1]);
            let mut other = ready(target.address(), &Login::default(), &[0, 1]);
            let tag = first.begin_write(lun, &write_10(0, 1), 512, &[]);
            let transfer_tag = first.until(opcode::R2T).1.u32(20);
            let again = Login { cid: 1, tsih: first.tsih, cmd_sn: first.cmd_sn, keys: "", ..login };
            drop(first);
            wait_until("the connection is lost", || target.connections() == 1);
            assert_eq!(target.sessions(), 2, "its tasks are kept");
            assert_eq!(other.manage(function, lun, 0), COMPLETE);
            let mut second = Client::log_in(target.address(), &again);
            assert_eq!(second.log_out(2, 0), 0);
            assert_eq!(
                second.manage(TASK_REASSIGN, lun, tag),
                NO_SUCH_TASK,
                "function {function}, disk {lun}"
            );
            second.data_out((tag, transfer_tag), lun, 0, &[9; 512]);
            second.attentions(lun);
            let (there, status, _) = second.read(lun, &read_10(0, 1), 512);
            assert_eq!((status, there), (GOOD, vec![0; 512]), "function {function}, disk {lun}");
        }
    }
}

#[test]
fn write_of_a_reinstated_session_does_not_overwrite_newer_data() {
    let (target, valve, blocks, _releases) = held_target(eight_threads());
    let mut old = ready(target.address(), &isid(1), &[0, 1]);
    valve.hold();
    for _ in 0..12 {
        old.begin_write(0, &write_10(0, 1), 512, &[1; 512]);
    }
    valve.wait_for(8);
    // The session that reinstates it, and the one that reinstates that.
    for _ in 0..2 {
        let mut new = Client::log_in(target.address(), &isid(1));
        assert!(old.receive().is_none());
        new.attentions(1);
        assert_eq!(new.write(1, &write_10(0, 1), &[2; 512]).0, GOOD, "another disk");
        for _ in 0..3 {
            assert_eq!(new.write(0, &write_10(0, 1), &[2; 512]).0, BUSY, "the old writes are in flight");
        }
        old = new;
    }
    assert_eq!(block(&*blocks, 0), 0);
    valve.release();
    let until = Instant::now() + Duration::from_secs(15);
    loop {
        let (status, _) = old.write(0, &write_10(0, 1), &[2; 512]);
        if status == GOOD {
            break;
        }
        assert!(status == BUSY || status == 2, "BUSY, or the unit attention: {status:#x}");
        assert!(Instant::now() < until);
    }
    assert_eq!((valve.flow().waiting, block(&*blocks, 0)), (0, 2));
    assert!(valve.flow().written <= 9, "queued writes never land");
}

// 8. Every command is answered once.

/// Receives SCSI Responses and final Data-In until each of these tags was answered, once.
fn answers(client: &mut Client, tags: &[u32]) -> BTreeMap<u32, u8> {
    let mut answered = BTreeMap::new();
    while answered.len() < tags.len() {
        let pdu = client.receive().expect("a response");
        let is_answer = match pdu.opcode() {
            opcode::SCSI_RESPONSE => true,
            opcode::DATA_IN => pdu.bhs.0[1] & 1 != 0,
            _ => false,
        };
        if is_answer {
            client.exp_stat_sn = pdu.u32(24).wrapping_add(1);
            let tag = pdu.u32(16);
            assert!(tags.contains(&tag), "tag {tag}");
            assert_eq!(answered.insert(tag, pdu.bhs.0[3]), None, "tag {tag} was answered twice");
        }
    }
    answered
}

/// Commands that fill the announced window are all answered, also when each waits for a slow disk.
#[test]
fn full_window_of_slow_reads_is_answered() {
    let store = Arc::new(Layered::new(Delay(Duration::from_millis(1)), filled(&pattern(1 << 20))));
    let target = start(vec![LunConfig::new(0, store)], |_| ());
    let mut client = ready(target.address(), &Login::default(), &[0]);
    let tags: Vec<u32> = (0..256).map(|n| client.cmd_sn + n).collect();
    for &tag in &tags {
        let command = client.command(tag, &read_10(0, 1), 512);
        client.issue(&ScsiCommand { lun: lun_field(0), ..command }, &[]);
    }
    assert!(answers(&mut client, &tags).values().all(|status| *status == GOOD));
}

/// The last Data-Out of a write starts the commands deferred behind it: no further PDU arrives on this connection.
#[test]
fn command_behind_an_ordered_write_starts_without_further_pdus() {
    let target = start(vec![ram(0, 1)], |_| ());
    let keys = "ImmediateData=No";
    for orders in [(true, true), (false, true), (true, false)] {
        let mut client = ready(target.address(), &Login { keys, ..Login::default() }, &[0]);
        let with = |is_ordered: bool, command| ScsiCommand {
            attribute_1: !is_ordered,
            attribute_2: is_ordered,
            lun: lun_field(0),
            ..command
        };
        let (write, behind) = (client.cmd_sn, client.cmd_sn + 1);
        let command = client.command(write, &write_10(0, 1), 0);
        let command = ScsiCommand { read: false, write_data: true, expected_bytes: 512, ..command };
        client.issue(&with(orders.0, command), &[]);
        let command = client.command(behind, &TEST_UNIT_READY, 0);
        client.issue(&with(orders.1, command), &[]);
        let r2t = client.until(opcode::R2T).1;
        client.data_out((write, r2t.u32(20)), 0, 0, &[7; 512]);
        let answered = answers(&mut client, &[write, behind]);
        assert!(answered.values().all(|status| *status == GOOD), "{orders:?}: {answered:?}");
    }
}

#[test]
fn commands_behind_an_ordered_one_are_each_answered_once_on_a_slow_disk() {
    for takes in [Duration::ZERO, Duration::from_millis(6500)] {
        let (target, valve, blocks, _releases) = held_target(eight_threads());
        let keys = "InitialR2T=No ImmediateData=No";
        let mut client = ready(target.address(), &Login { keys, ..Login::default() }, &[0, 1]);
        valve.hold();
        let mut tags = Vec::new();
        for n in 0..30_u32 {
            let tag = client.cmd_sn;
            let (is_write, ordered, hoq) = (n % 3 != 0, n % 5 == 4, n % 7 == 6);
            let (lba, lun) = (n, lun_field(0));
            if is_write {
                let write = ScsiCommand {
                    read: false,
                    // Unsolicited data follows.
                    is_final: false,
                    write_data: true,
                    expected_bytes: 1024,
                    lun,
                    attribute_1: !ordered,
                    attribute_2: ordered || hoq,
                    ..client.command(tag, &write_10(2 * lba, 2), 0)
                };
                client.issue(&write, &[]);
                client.data_out((tag, NO_TAG), 0, 0, &[n as u8; 1024]);
            } else {
                let read = client.command(tag, &read_10(2 * lba, 1), 512);
                let read = ScsiCommand { lun, attribute_1: !ordered, attribute_2: ordered || hoq, ..read };
                client.issue(&read, &[]);
            }
            tags.push(tag);
        }
        wait_until("the disk has begun", || valve.flow().waiting > 0);
        std::thread::sleep(takes);
        valve.release();
        let answered = answers(&mut client, &tags);
        assert!(answered.values().all(|status| *status == GOOD), "{answered:?}");
        // No extra response: the next one is that of the next command.
        let next = client.begin_write(1, &TEST_UNIT_READY, 0, &[]);
        assert_eq!(client.receive().map(|pdu| pdu.u32(16)), Some(next));
        for n in (0..30_u8).filter(|n| n % 3 != 0) {
            assert_eq!((block(&*blocks, 2 * u64::from(n)), block(&*blocks, 2 * u64::from(n) + 1)), (n, n));
        }
    }
}

// 9. Changes are reported once.

/// Returns the unit attentions of all connections of a session, each polled until none is left.
fn attentions_of(connections: &mut [Client]) -> Vec<(u8, u8)> {
    let mut reported = Vec::new();
    for _ in 0..2 {
        for at in 0..connections.len() {
            let cmd_sn = connections.iter().map(|client| client.cmd_sn).max().unwrap();
            connections[at].cmd_sn = cmd_sn;
            reported.extend(connections[at].attentions(0));
        }
    }
    reported
}

#[test]
fn change_is_reported_once_to_each_other_session_and_never_to_its_originator() {
    let lun = ram(0, 1);
    let target = start(vec![lun.clone()], |_| ());
    let address = target.address();
    let several = Login { keys: "MaxConnections=4", ..isid(2) };
    let author = vec![Client::log_in(address, &Login { keys: "MaxConnections=4", ..isid(1) })];
    let first = Client::log_in(address, &several);
    let joined = Client::log_in(address, &Login { cid: 1, tsih: first.tsih, ..several });
    let single = Client::log_in(address, &isid(3));
    let mut sessions = [author, vec![first, joined], vec![single]];
    for session in &mut sessions {
        assert_eq!(attentions_of(session), [(0x29, 0x00)]);
    }
    let other_initiator = Login { initiator: BOB, ..Login::default() };
    let mut stranger = ready(address, &other_initiator, &[0]);
    for round in 0..3_u64 {
        let author = &mut sessions[0][0];
        let mut mode = author.read(0, &[0x1a, 8, 0x0a, 0, 255, 0], 255).0;
        (mode[0], mode[2], mode[8]) = (0, 0, mode[8] ^ 8);
        let select = [0x15, 0x10, 0, 0, mode.len() as u8, 0];
        assert_eq!(author.write(0, &select, &mode).0, GOOD);
        let others = |sessions: &mut [Vec<Client>; 3], stranger: &mut Client, code: (u8, u8), from: usize| {
            for (index, session) in sessions.iter_mut().enumerate() {
                let expected: &[(u8, u8)] = if index < from { &[] } else { &[code] };
                assert_eq!(attentions_of(session), expected, "session {index}, round {round}");
            }
            assert_eq!(stranger.attentions(0), [code]);
        };
        others(&mut sessions, &mut stranger, (0x2a, 0x01), 1);
        let groups = [0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
        assert_eq!(sessions[0][0].write(0, &groups, &[0, 0, 0, 0, 1, 0, 0, 1]).0, GOOD);
        others(&mut sessions, &mut stranger, (0x2a, 0x06), 1);
        // Changes by the operator have no originating session: all are notified.
        assert!(target.set_access_state(1, AccessState::Optimized));
        others(&mut sessions, &mut stranger, (0x2a, 0x06), 0);
        lun.store.resize((round + 2) << 20).unwrap();
        set(&target, std::slice::from_ref(&lun), None);
        others(&mut sessions, &mut stranger, (0x2a, 0x09), 0);
    }
}

// 10. Reservations.

#[test]
fn set_target_port_groups_of_an_excluded_initiator_is_a_conflict() {
    let target = start(vec![ram(0, 1)], |_| ());
    let mut holder = ready(target.address(), &isid(1), &[0]);
    let mut excluded = ready(target.address(), &Login { initiator: BOB, ..isid(1) }, &[0]);
    let groups = [0xa4, 0x0a, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0];
    let set = |client: &mut Client| client.write(0, &groups, &[0, 0, 0, 0, 1, 0, 0, 1]).0;
    assert_eq!(holder.reserve_out(0, register(7)).0, GOOD);
    for kind in [1, 3, 5, 6, 7, 8] {
        let reserve = ReserveOut { action: 1, kind, key: 7, ..ReserveOut::default() };
        assert_eq!(holder.reserve_out(0, reserve).0, GOOD);
        assert_eq!(set(&mut excluded), CONFLICT, "type {kind}");
        assert_eq!(holder.reserve_out(0, ReserveOut { action: 2, ..reserve }).0, GOOD);
    }
    assert_eq!(holder.reserve_out(0, ReserveOut { key: 7, ..ReserveOut::default() }).0, GOOD);
    assert_eq!(holder.read(0, &RESERVE_6, 0).1, GOOD);
    assert_eq!(set(&mut excluded), CONFLICT, "RESERVE (6)");
    assert_eq!(set(&mut holder), GOOD);
}

#[test]
fn one_initiator_cannot_exhaust_the_registrations() {
    let target = start(vec![ram(0, 1)], |_| ());
    let mut clients: Vec<Client> = (1..=70).map(|n| ready(target.address(), &isid(n), &[0])).collect();
    let outcomes: Vec<(u8, Vec<u8>)> =
        clients.iter_mut().map(|client| client.reserve_out(0, register(7))).collect();
    let refused: Vec<_> = outcomes.iter().filter(|(status, _)| *status != GOOD).collect();
    assert_eq!(refused.len(), 6, "64 of one initiator at most");
    for (status, sense) in refused {
        assert_eq!((*status, sense[12], sense[13]), (2, 0x55, 0x04), "insufficient registration resources");
    }
    let mut other = ready(target.address(), &Login { initiator: BOB, ..isid(1) }, &[0]);
    assert_eq!(other.reserve_out(0, register(8)).0, GOOD);
    assert_eq!(other.keys(0).len(), 65);
}

#[test]
fn unsaved_registration_fails_and_has_no_effect() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let target = start(vec![ram(0, 1)], |config| config.state = Some(state.clone()));
    let mut client = ready(target.address(), &isid(1), &[0]);
    let mut other = ready(target.address(), &Login { initiator: BOB, ..isid(1) }, &[0]);
    let kept = |key| ReserveOut { aptpl: true, ..register(key) };
    assert_eq!(client.reserve_out(0, kept(5)).0, GOOD);
    assert_eq!(client.reserve_out(0, ReserveOut { key: 5, ..ReserveOut::default() }).0, GOOD);
    assert_eq!(client.keys(0), [0; 0]);
    std::fs::remove_dir_all(&state).unwrap();
    for ignores in [0, 6] {
        let (status, sense) = client.reserve_out(0, ReserveOut { action: ignores, ..kept(7) });
        assert_eq!((status, client.keys(0)), (2, Vec::new()), "{sense:x?}");
    }
    // The session is unaffected, and no other session is excluded or notified.
    assert_eq!(client.reserve_out(0, register(9)).0, GOOD);
    assert_eq!((other.attentions(0), client.attentions(0)), (Vec::new(), Vec::new()));
    assert_eq!(other.keys(0), [9]);
}

// 11. Isolation of disks and peers.

#[test]
fn hung_disk_does_not_block_another() {
    for disk_threads in [4, 64] {
        let valve = Valve::open();
        let _releases = Releases(valve.clone());
        let slow =
            Layered::new(Delay(Duration::from_millis(1)), Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>);
        let luns = vec![valve.lun(0).0, LunConfig::new(1, Arc::new(slow))];
        let target = start(luns, |config| config.limits.disk_threads = disk_threads);
        let mut hanging = [1, 2].map(|n| ready(target.address(), &isid(n), &[0, 1]));
        let mut third = ready(target.address(), &isid(3), &[0, 1]);
        valve.hold();
        for client in &mut hanging {
            for _ in 0..100 {
                client.issue(&client.command(client.cmd_sn, &read_10(0, 1), 512), &[]);
            }
        }
        wait_until("the disk hangs", || valve.flow().waiting > 0);
        for _ in 0..20 {
            for client in hanging.iter_mut().chain([&mut third]) {
                assert!(lives(client, 1), "no thread left of {disk_threads}");
            }
        }
        valve.release();
        for client in &mut hanging {
            for _ in 0..100 {
                assert_eq!(client.until(opcode::DATA_IN).1.bhs.0[3], GOOD);
            }
        }
    }
}

/// A fill, a comparison and an unmapping of a whole disk in memory take longer than a turn of an event loop may.
#[test]
fn long_work_does_not_hold_up_other_connections() {
    for threads in [Threads::PerConnection, Threads::Loops(1)] {
        let valve = Valve::open();
        let _releases = Releases(valve.clone());
        let busy = Layered::new(Busy(valve.clone()), Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>);
        let luns = vec![LunConfig::new(0, Arc::new(busy)), ram(1, 1)];
        let target = start(luns, |config| config.threads = threads);
        let [mut working, mut other] = [1, 2].map(|n| ready(target.address(), &isid(n), &[0, 1]));
        let write_same = transfer(0x41, 0, 2048);
        let mut verify = transfer(0x2f, 0, 2048);
        // One block is compared with each of the medium.
        verify[1] = 0b110;
        let mut unmap = transfer(0x42, 0, 0);
        unmap[8] = 24;
        let range = [&[0, 22, 0, 16, 0, 0, 0, 0][..], &[0; 8], &2048_u32.to_be_bytes(), &[0; 4]].concat();
        let block = vec![7; 512];
        for (cdb, data) in [(write_same, &block), (verify, &block), (unmap, &range)] {
            valve.hold();
            let tag = working.begin_write(0, &cdb, data.len() as u32, data);
            valve.wait_for(1);
            for _ in 0..20 {
                assert!(lives(&mut other, 1), "{threads:?} {cdb:x?}");
                assert_eq!(working.read(1, &TEST_UNIT_READY, 0).1, GOOD, "{threads:?}: its own connection");
            }
            valve.release();
            assert_eq!(working.response_of(tag).0, GOOD, "{threads:?} {cdb:x?}");
        }
    }
}

/// Where other connections hold the whole memory budget, a connection may have one read outside it.
#[test]
fn hung_disk_does_not_block_other_connections_without_memory() {
    for threads in [Threads::PerConnection, Threads::Loops(1)] {
        let valve = Valve::open();
        let _releases = Releases(valve.clone());
        let slow =
            Layered::new(Delay(Duration::from_millis(1)), Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>);
        let luns = vec![valve.lun(0).0, LunConfig::new(1, Arc::new(slow))];
        let target = start(luns, |config| {
            config.limits.memory_bytes = 0;
            config.threads = threads;
        });
        let mut hanging = ready(target.address(), &isid(1), &[0, 1]);
        let mut other = ready(target.address(), &isid(2), &[0, 1]);
        valve.hold();
        for _ in 0..20 {
            hanging.issue(&hanging.command(hanging.cmd_sn, &read_10(0, 1), 512), &[]);
        }
        valve.wait_for(1);
        for _ in 0..20 {
            assert!(lives(&mut other, 1), "{threads:?}");
            assert_eq!(hanging.read(1, &TEST_UNIT_READY, 0).1, GOOD, "{threads:?}: its own connection");
        }
        valve.release();
        for _ in 0..20 {
            assert_eq!(hanging.until(opcode::DATA_IN).1.bhs.0[3], GOOD);
        }
    }
}

/// The same of commands with data: one may be at the disk, and the others are to come again.
#[test]
fn hung_writes_do_not_block_other_connections_without_memory() {
    for threads in [Threads::PerConnection, Threads::Loops(1)] {
        let valve = Valve::open();
        let _releases = Releases(valve.clone());
        let target = start(vec![valve.lun(0).0, ram(1, 1)], |config| {
            config.limits.memory_bytes = 0;
            config.threads = threads;
        });
        let mut hanging = ready(target.address(), &isid(1), &[0, 1]);
        let mut other = ready(target.address(), &isid(2), &[0, 1]);
        valve.hold();
        let mut tags = vec![hanging.begin_write(0, &write_10(0, 1), 512, &[1; 512])];
        valve.wait_for(1);
        let write_same = transfer(0x41, 0, 8);
        for cdb in [write_10(1, 1), write_same, write_10(2, 1), transfer(0x2f, 0, 0)] {
            let (data, expected) = if cdb[0] == 0x2f { (&[][..], 0) } else { (&[2; 512][..], 512) };
            tags.push(hanging.begin_write(0, &cdb, expected, data));
        }
        // Its data would arrive in pieces.
        let long = [3; 8192];
        tags.push(hanging.begin_write(0, &write_10(16, 32), 16_384, &long[..512]));
        for _ in 0..20 {
            assert!(lives(&mut other, 1), "{threads:?}");
        }
        let answered = answers(&mut hanging, &tags[1..]);
        let statuses: Vec<u8> = tags[1..].iter().map(|tag| answered[tag]).collect();
        assert_eq!(
            statuses,
            [BUSY, TASK_SET_FULL, BUSY, GOOD, TASK_SET_FULL],
            "{threads:?}: its own connection"
        );
        valve.release();
        assert_eq!(hanging.response_of(tags[0]).0, GOOD, "{threads:?}");
        assert_eq!(hanging.write(0, &write_10(1, 1), &[4; 512]).0, GOOD, "{threads:?}: the next one");
    }
}

#[test]
fn repeated_resets_do_not_drop_a_slow_reader() {
    let target = start((0..32).map(|n| ram(n, 8)).collect(), |_| ());
    let all: Vec<u8> = (0..32).collect();
    let mut slow = ready(target.address(), &isid(1), &all);
    let mut resets = ready(target.address(), &isid(2), &[]);
    assert_eq!(slow.write(0, &write_10(0, 1), &[7; 512]).0, GOOD);
    let bytes = 8 << 20;
    slow.issue(&slow.command(slow.cmd_sn, &read_10(0, 16384), bytes), &[]);
    assert_eq!(slow.socket.peek(&mut [0]).unwrap(), 1, "its response has begun");
    for n in 0..100 {
        assert_eq!(resets.manage(LUN_RESET, 1 + n % 31, 0), COMPLETE);
    }
    let mut received = 0;
    loop {
        let pdu = slow.until(opcode::DATA_IN).1;
        if received == 0 {
            assert_eq!(pdu.data[..512], [7; 512]);
        }
        received += pdu.data.len();
        if pdu.bhs.0[1] & 1 != 0 {
            break;
        }
    }
    assert_eq!(received, bytes as usize);
    assert_eq!(slow.attentions(0), []);
    assert_eq!(slow.attentions(1), [(0x29, 0x03)], "once, however many resets there were");
}

// 12. Lost sessions.

/// Logs in at ErrorRecoveryLevel 2 and sends a write without its data; the caller drops the connection.
fn with_task(target: &RunningTarget, isid: u8, blocks: u16) -> Client {
    let keys = format!("{LEVEL_2} {SOLICITED}");
    let login = Login { isid, keys: &keys, ..Login::default() };
    let mut client = ready(target.address(), &login, &[0]);
    client.begin_write(0, &write_10(0, blocks), u32::from(blocks) * 512, &[]);
    client.until(opcode::R2T);
    client
}

#[test]
fn recoverable_tasks_of_lost_sessions_are_bounded() {
    // Bounded in number of sessions.
    let limits = Limits { lost_sessions: 2, ..Limits::default() };
    let target = start(vec![ram(0, 1)], |config| config.limits = limits);
    let clients: Vec<_> = (1..=6).map(|n| with_task(&target, n, 1)).collect();
    assert_eq!(target.sessions(), 6);
    drop(clients);
    wait_until("two sessions remain", || target.connections() == 0 && target.sessions() == 2);
    // Bounded in bytes: here no task fits.
    let (valve, limits) = (Valve::open(), Limits { lost_bytes: 8192, ..Limits::default() });
    let target = start(vec![valve.lun(0).0], |config| config.limits = limits);
    for (blocks, remain) in [(64, 0), (1, 1)] {
        let client = with_task(&target, 1, blocks);
        drop(client);
        wait_until("the session is dropped or kept", || {
            target.connections() == 0 && target.sessions() == remain
        });
    }
    // Bounded in time, whatever the initiator negotiates.
    let limits = Limits { retain_time: Duration::from_millis(100), ..Limits::default() };
    let target = start(vec![ram(0, 1)], |config| config.limits = limits);
    drop(with_task(&target, 1, 1));
    wait_until("the session expires", || target.connections() == 0 && target.sessions() == 0);
}

#[test]
fn login_evicts_lost_sessions_at_the_session_limit() {
    let limits = Limits { sessions: 3, ..Limits::default() };
    let target = start(vec![ram(0, 1)], |config| config.limits = limits);
    let lost: Vec<_> = (1..=3).map(|n| with_task(&target, n, 1)).collect();
    let refused = Client::try_log_in(target.address(), &isid(9)).1.status;
    assert_eq!(refused, 0x0302, "sessions with connections are not evicted");
    drop(lost);
    wait_until("the connections are lost", || target.connections() == 0);
    assert_eq!(target.sessions(), 3);
    let mut kept = Vec::new();
    for n in 11..=13 {
        kept.push(ready(target.address(), &isid(n), &[0]));
        assert_eq!(target.sessions(), 3);
    }
    assert_eq!(Client::try_log_in(target.address(), &isid(14)).1.status, 0x0302);
    assert!(kept.iter_mut().all(|client| lives(client, 0)));
}

#[test]
fn lost_session_without_recoverable_tasks_is_not_kept() {
    let target = start(vec![ram(0, 1)], |_| ());
    for has_unacknowledged in [false, true] {
        let mut client = ready(target.address(), &Login { keys: LEVEL_2, ..Login::default() }, &[0]);
        assert!(lives(&mut client, 0));
        if !has_unacknowledged {
            client.acknowledge();
        }
        drop(client);
        let remain = usize::from(has_unacknowledged);
        wait_until("the session is kept with a status only", || {
            target.connections() == 0 && target.sessions() == remain
        });
    }
}

// 13. Memory.

/// Runs a test in a separate process, so that other tests do not affect its memory.
fn alone(name: &str, test: impl FnOnce()) {
    const MARK: &str = "ROUNDTRIP_TEST_ALONE";
    if std::env::var(MARK).is_ok_and(|mark| mark == name) {
        return test();
    }
    let mut process = std::process::Command::new(std::env::current_exe().unwrap());
    // glibc gives each thread an arena that keeps freed memory: with one arena, resident memory is what the target holds
    // (21 MiB in each run of the slow disk; 19 to 36 MiB with many, by which threads happened to free most).
    let process = process.args([name, "--exact", "--nocapture"]).env(MARK, name).env("MALLOC_ARENA_MAX", "1");
    let output = process.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).unwrap().unwrap();
    pages * page as usize
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n % 8191 + n / 8191) as u8).collect()
}

fn filled(data: &[u8]) -> Arc<Ram> {
    let store = Arc::new(Ram::new(data.len() as u64));
    store.write_at(0, data).unwrap();
    store
}

/// Receives the response of a read and compares its data.
fn receive_all(client: &mut Client, expected: &[u8]) {
    loop {
        let pdu = client.until(opcode::DATA_IN).1;
        let from = pdu.u32(40) as usize;
        assert!(pdu.data == expected[from..from + pdu.data.len()], "wrong data from byte {from} on");
        if pdu.bhs.0[1] & 1 != 0 {
            assert_eq!((pdu.bhs.0[3], from + pdu.data.len()), (GOOD, expected.len()));
            client.exp_stat_sn = pdu.u32(24).wrapping_add(1);
            return;
        }
    }
}

/// The connections of a loop use the same buffers in turn: one that has read and written keeps none.
#[test]
fn idle_connections_of_a_loop_hold_little_memory() {
    const CONNECTIONS: usize = 200;
    alone("idle_connections_of_a_loop_hold_little_memory", || {
        let target = start(vec![ram(0, 1)], |config| {
            config.threads = Threads::Loops(1);
            config.limits.sessions = CONNECTIONS;
        });
        let login = |isid| Login { isid, ..Login::default() };
        let mut clients = Vec::with_capacity(CONNECTIONS);
        let mut before = 0;
        for n in 0..CONNECTIONS {
            let mut client = ready(target.address(), &login(n as u8), &[0]);
            assert_eq!(client.read(0, &read_10(0, 128), 64 << 10).1, 0);
            assert_eq!(client.write(0, &write_10(0, 16), &[7; 8 << 10]).0, 0);
            clients.push(client.socket);
            if n == 20 {
                before = resident();
            }
        }
        assert_eq!(target.sessions(), CONNECTIONS);
        let each = resident().saturating_sub(before) / (CONNECTIONS - 21);
        assert!(each <= 8 << 10, "{each} bytes for each connection");
    });
}

const UNREAD_BYTES: usize = 64 << 20;

/// Lets 32 clients request 64 MiB each and read nothing, then everything. Checks that they hold at most `bound_kib` beyond
/// `memory_bytes`.
fn unread_reads_hold_little_memory(
    store: Arc<dyn Store>,
    memory_bytes: usize,
    bound_kib: usize,
    threads: Threads,
) {
    let data = pattern(UNREAD_BYTES);
    let target = start(vec![LunConfig::new(0, store)], |config| {
        config.limits.memory_bytes = memory_bytes;
        config.threads = threads;
    });
    for keys in ["", " DataDigest=CRC32C", " ErrorRecoveryLevel=1"] {
        let keys = format!("MaxRecvDataSegmentLength=262144{keys}");
        let login = |isid| Login { isid, keys: &keys, ..Login::default() };
        let mut clients: Vec<_> = (1..=32).map(|n| ready(target.address(), &login(n), &[0])).collect();
        let before = resident();
        for client in &mut clients {
            let mut cdb = [0; 16];
            (cdb[0], cdb[11]) = (0x88, 2);
            client.issue(&client.command(client.cmd_sn, &cdb, UNREAD_BYTES as u32), &[]);
        }
        for client in &clients {
            assert_eq!(client.socket.peek(&mut [0]).unwrap(), 1);
        }
        let unread = resident();
        let mut most = unread;
        for mut client in clients {
            receive_all(&mut client, &data);
            drop(client);
            most = most.max(resident());
        }
        let (grown, unread) = (most.saturating_sub(before), unread.saturating_sub(before));
        let (grown, unread) = (grown >> 10, unread >> 10);
        assert!(grown < bound_kib, "{grown} KiB for 32 reads with {keys}, {unread} KiB of them while unread");
    }
}

#[test]
fn unread_responses_of_a_fast_disk_hold_little_memory() {
    alone("unread_responses_of_a_fast_disk_hold_little_memory", || {
        let limits = Limits::default();
        let store = filled(&pattern(UNREAD_BYTES));
        for threads in [Threads::PerConnection, Threads::Loops(2)] {
            unread_reads_hold_little_memory(store.clone(), limits.memory_bytes, 32 << 10, threads);
        }
    });
}

/// Reads across two chunks of a disk in memory are lent and not received, and each time another session changes both chunks: what
/// was lent is copied by the writer, four times and more what was read.
#[test]
fn lent_memory_that_is_overwritten_is_bounded() {
    alone("lent_memory_that_is_overwritten_is_bounded", || {
        const ROUNDS: u32 = 64;
        let target = start(vec![LunConfig::new(0, filled(&pattern(16 << 20)))], |config| {
            config.limits.memory_bytes = 8 << 20;
            config.tcp.send_buffer = Some(16 << 10);
            config.threads = Threads::Loops(1);
        });
        let mut readers: Vec<_> = (1..=16)
            .map(|isid| {
                let keys = "MaxRecvDataSegmentLength=262144";
                ready(target.address(), &Login { isid, keys, ..Login::default() }, &[0])
            })
            .collect();
        let mut writer = ready(target.address(), &Login { isid: 99, ..Login::default() }, &[0]);
        let before = resident();
        for round in 0..ROUNDS {
            // 16 KiB around the border of two chunks of 64 KiB, which no other session reads.
            let borders = (1..).map(|n| n * 256);
            for (reader, border) in readers.iter_mut().zip(borders) {
                let command = reader.command(reader.cmd_sn, &read_10(border - 16, 32), 16 << 10);
                reader.issue(&command, &[]);
                // Once the writer is answered, the loop has seen what came before.
                for lba in [border - 20, border + 20] {
                    assert_eq!(writer.write(0, &write_10(lba, 1), &vec![round as u8; 512]).0, GOOD);
                }
            }
        }
        let grown = resident().saturating_sub(before) >> 10;
        assert!(grown < 20 << 10, "{grown} KiB for {ROUNDS} rounds");
    });
}

/// Also checks that each client receives all when it reads: the others hold the whole memory budget.
fn unread_reads_of_a_slow_disk(name: &str, threads: Threads) {
    alone(name, || {
        let store = filled(&pattern(UNREAD_BYTES));
        let store = Arc::new(Layered::new(Delay(Duration::from_millis(1)), store));
        // Reads of a slow disk may use the whole memory budget.
        for memory_bytes in [8 << 20, Limits::default().memory_bytes] {
            let bound_kib = (memory_bytes >> 10) + (24 << 10);
            unread_reads_hold_little_memory(store.clone(), memory_bytes, bound_kib, threads);
        }
    });
}

#[test]
fn unread_responses_of_a_slow_disk_hold_little_memory() {
    unread_reads_of_a_slow_disk("unread_responses_of_a_slow_disk_hold_little_memory", Threads::PerConnection);
}

#[test]
fn unread_responses_of_a_slow_disk_hold_little_memory_of_event_loops() {
    let name = "unread_responses_of_a_slow_disk_hold_little_memory_of_event_loops";
    unread_reads_of_a_slow_disk(name, Threads::Loops(2));
}

/// Encodes a write of 1 MiB with immediate data.
fn long_write(client: &Client) -> Vec<u8> {
    let command = client.command(client.cmd_sn, &write_10(0, 2048), 1 << 20);
    let mut bhs = ScsiCommand { read: false, write_data: true, ..command }.write();
    bhs.set_data_bytes(1 << 20);
    let mut pdu = bhs.0.to_vec();
    pdu.resize(48 + (1 << 20), 7);
    pdu
}

const UNFINISHED: usize = 20;

#[test]
fn unfinished_pdus_hold_bounded_memory_and_delay_others_boundedly() {
    alone("unfinished_pdus_hold_bounded_memory_and_delay_others_boundedly", || {
        let target = start(vec![ram(0, 2)], |config| {
            config.limits.receive_bytes = 8 << 20;
            config.wishes.first_burst_bytes = 1 << 20;
        });
        let login = |isid| Login {
            isid,
            keys: "MaxBurstLength=1048576 FirstBurstLength=1048576",
            ..Login::default()
        };
        let clients: Vec<_> =
            (1..=UNFINISHED as u8).map(|n| ready(target.address(), &login(n), &[0])).collect();
        let mut honest = ready(target.address(), &login(200), &[0]);
        let before = resident();
        // They send as much as the target takes, but never the last byte. All share one buffer, to keep the test's memory low.
        let pdu: Arc<[u8]> = long_write(&honest).into();
        let threads: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                let pdu = Arc::clone(&pdu);
                std::thread::spawn(move || {
                    let _ = client.socket.write_all(&pdu[..pdu.len() - 1]);
                    client
                })
            })
            .collect();
        let begun = Instant::now();
        let mut most = 0;
        while begun.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(Duration::from_millis(50));
            most = most.max(resident().saturating_sub(before));
        }
        assert!(most < 14 << 20, "{} KiB for {UNFINISHED} unfinished PDUs", most >> 10);
        // Eight fit at a time, five seconds each.
        honest.socket.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        honest.socket.write_all(&pdu).unwrap();
        let status = honest.until(opcode::SCSI_RESPONSE).1.bhs.0[3];
        assert_eq!(status, GOOD, "stalled PDUs are dropped");
        drop(target);
        threads.into_iter().for_each(|thread| drop(thread.join()));
    });
}

#[test]
fn out_of_order_commands_hold_little_memory() {
    alone("out_of_order_commands_hold_little_memory", || {
        let target = start(vec![ram(0, 2)], |config| config.limits.memory_bytes = 8 << 20);
        let mut honest = ready(target.address(), &Login { isid: 200, ..Login::default() }, &[0]);
        let login = |isid| Login { isid, keys: LEVEL_2, ..Login::default() };
        let mut clients: Vec<_> = (1..=32).map(|n| ready(target.address(), &login(n), &[0])).collect();
        let before = resident();
        for client in &mut clients {
            for ahead in 1..=48 {
                let command = client.command(client.cmd_sn + ahead, &write_10(0, 128), 65_536);
                let cmd_sn = client.cmd_sn + ahead;
                let mut bhs = ScsiCommand { cmd_sn, read: false, write_data: true, ..command }.write();
                bhs.set_data_bytes(65_536);
                let mut pdu = bhs.0.to_vec();
                pdu.resize(48 + 65_536, 7);
                if client.socket.write_all(&pdu).is_err() {
                    break;
                }
            }
        }
        let most = resident().saturating_sub(before);
        assert!(most < 24 << 20, "{} KiB for 96 MiB of out-of-order commands", most >> 10);
        assert!(lives(&mut honest, 0));
        wait_until("a connection above the budget is dropped", || target.connections() < 33);
    });
}

#[test]
fn retransmitted_data_is_identical_and_holds_little_memory() {
    alone("retransmitted_data_is_identical_and_holds_little_memory", || {
        const BYTES: usize = 3 << 20;
        let data = pattern(BYTES);
        let target = start(vec![LunConfig::new(0, filled(&data))], |_| ());
        for keys in ["", "DataDigest=CRC32C"] {
            let keys = format!("ErrorRecoveryLevel=1 MaxRecvDataSegmentLength=65536 {keys}");
            let mut client = ready(target.address(), &Login { keys: keys.trim(), ..Login::default() }, &[0]);
            let tag = client.cmd_sn;
            let unacknowledged = client.exp_stat_sn;
            client.issue(&client.command(tag, &read_10(0, 6144), BYTES as u32), &[]);
            receive_all(&mut client, &data);
            let before = resident();
            for _ in 0..64 {
                let snack = Snack { type_byte: 0x80, tag, transfer_tag: NO_TAG, ..Snack::default() };
                let mut bhs = snack.write();
                bhs.0[28..32].copy_from_slice(&unacknowledged.to_be_bytes());
                client.send(bhs, &[]);
            }
            assert_eq!(client.socket.peek(&mut [0]).unwrap(), 1);
            let mut most = resident();
            for _ in 0..64 {
                let mut received = 0;
                while received < BYTES {
                    let pdu = client.receive().unwrap();
                    assert_eq!((pdu.opcode(), pdu.u32(16)), (opcode::DATA_IN, tag));
                    let from = pdu.u32(40) as usize;
                    assert!(pdu.data == data[from..from + pdu.data.len()], "retransmitted data differs");
                    received += pdu.data.len();
                }
                most = most.max(resident());
            }
            let grown = most.saturating_sub(before);
            assert!(grown < 6 << 20, "{} KiB for 64 SNACKs, {keys}", grown >> 10);
            assert_eq!(client.attentions(0), []);
        }
    });
}

#[test]
fn data_is_not_retransmitted_after_a_reservation_or_eject() {
    let mut disk = ram(0, 1);
    disk.removable = true;
    let target = start(vec![disk], |_| ());
    let mut owner = ready(target.address(), &isid(2), &[0]);
    assert_eq!(owner.reserve_out(0, register(2)).0, GOOD);
    let mut reader = ready(target.address(), &Login { keys: LEVEL_2, ..isid(1) }, &[0]);
    assert_eq!(owner.write(0, &write_10(0, 1), &[1; 512]).0, GOOD);
    let (tag, unacknowledged) = (reader.cmd_sn, reader.exp_stat_sn);
    let read = reader.command(tag, &read_10(0, 1), 512);
    reader.issue(&read, &[]);
    assert_eq!(reader.until(opcode::DATA_IN).1.data, [1; 512]);
    let ask = |reader: &mut Client| {
        let snack = Snack { type_byte: 0x80, tag, transfer_tag: NO_TAG, ..Snack::default() };
        let mut bhs = snack.write();
        bhs.0[28..32].copy_from_slice(&unacknowledged.to_be_bytes());
        reader.send(bhs, &[]);
        reader.receive().unwrap()
    };
    assert_eq!(
        (ask(&mut reader).data.len(), ask(&mut reader).data.len()),
        (512, 512),
        "while it may be read"
    );
    let reserve = ReserveOut { action: 1, kind: EXCLUSIVE_ACCESS, key: 2, ..ReserveOut::default() };
    assert_eq!(owner.reserve_out(0, reserve).0, GOOD);
    assert_eq!(owner.write(0, &write_10(0, 1), &[0x5e; 512]).0, GOOD);
    assert_eq!(ask(&mut reader).opcode(), opcode::REJECT, "reserved");
    // Nor by reassignment to another connection.
    let login = Login { keys: LEVEL_2, ..isid(1) };
    let mut second = Client::log_in(target.address(), &Login { cid: 1, tsih: reader.tsih, ..login });
    second.cmd_sn = reader.cmd_sn + 1;
    drop(reader);
    wait_until("the first connection is gone", || target.connections() == 2);
    second.send_management(TASK_REASSIGN, 0, tag);
    let answer = second.until(opcode::TASK_MANAGEMENT).1;
    assert_eq!(answer.bhs.0[2], 4, "task allegiance reassignment not supported");
    assert_eq!(owner.reserve_out(0, ReserveOut { action: 2, ..reserve }).0, GOOD);
    owner.attentions(0);
    // START STOP UNIT with LOEJ.
    let mut third = ready(target.address(), &Login { keys: "ErrorRecoveryLevel=1", ..isid(3) }, &[0]);
    let (tag, unacknowledged) = (third.cmd_sn, third.exp_stat_sn);
    let read = third.command(tag, &read_10(0, 1), 512);
    third.issue(&read, &[]);
    assert_eq!(third.until(opcode::DATA_IN).1.data, [0x5e; 512]);
    assert_eq!(owner.read(0, &[0x1b, 0, 0, 0, 2, 0], 0).1, GOOD);
    let snack = Snack { type_byte: 0x80, tag, transfer_tag: NO_TAG, ..Snack::default() };
    let mut bhs = snack.write();
    bhs.0[28..32].copy_from_slice(&unacknowledged.to_be_bytes());
    third.send(bhs, &[]);
    assert_eq!(third.receive().unwrap().opcode(), opcode::REJECT, "ejected");
}

// 14. Memory shortage.

#[test]
fn commands_are_answered_and_memory_is_released_under_shortage() {
    const BLOCKS: u16 = 128;
    let blocks = Arc::new(Ram::new(8 << 20));
    let slow = Layered::new(Delay(Duration::from_millis(2)), Arc::clone(&blocks) as Arc<dyn Store>);
    let limits = Limits { memory_bytes: 1 << 20, ..Limits::default() };
    let target = start(vec![LunConfig::new(0, Arc::new(slow)), ram(1, 1)], |config| config.limits = limits);
    let mut clients = [1, 2, 3].map(|n| ready(target.address(), &isid(n), &[0, 1]));
    for round in 1..=3_u8 {
        let mut tags: [Vec<u32>; 3] = Default::default();
        for n in 0..30_u32 {
            for (client, tags) in clients.iter_mut().zip(&mut tags) {
                let (tag, lba) = (client.cmd_sn, n * u32::from(BLOCKS));
                let bytes = u32::from(BLOCKS) * 512;
                let ordered = n % 10 == 9;
                let read = ScsiCommand {
                    attribute_1: !ordered,
                    attribute_2: ordered,
                    ..client.command(tag, &read_10(lba, BLOCKS), bytes)
                };
                let write = ScsiCommand {
                    read: false,
                    write_data: true,
                    cdb: client.command(0, &write_10(lba, BLOCKS), 0).cdb,
                    ..read
                };
                if n % 2 == 0 {
                    client.issue(&read, &[]);
                } else {
                    client.issue(&write, &vec![round; bytes as usize]);
                }
                tags.push(tag);
            }
        }
        for (client, tags) in clients.iter_mut().zip(&tags) {
            let answered = answers(client, tags);
            let is_allowed = |status: &u8| [GOOD, BUSY, TASK_SET_FULL].contains(status);
            assert!(answered.values().all(is_allowed), "{answered:?}");
        }
        // Without commands in flight the budget is free.
        for client in &mut clients {
            let written = vec![round ^ 0x80; 512 * usize::from(BLOCKS)];
            assert_eq!(client.write(0, &write_10(0, BLOCKS), &written).0, GOOD);
            let (there, status, _) = client.read(0, &read_10(0, BLOCKS), written.len() as u32);
            assert!(status == GOOD && there == written);
            // A command with gathered data is refused when there is no memory for it.
            let mut verify = write_10(0, BLOCKS);
            (verify[0], verify[1]) = (0x2f, 2);
            assert_eq!(client.write(0, &verify, &written).0, GOOD);
        }
    }
}

// 16. Floods.

fn connect_from(source: [u8; 4], to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::from((source, 0)))?;
    connect(&socket, &to)?;
    Ok(socket.into())
}

#[test]
fn connection_flood_does_not_block_logins_from_another_address() {
    let limits = Limits { connections: 64, logins: 16, ..Limits::default() };
    for limits in [Limits::default(), limits] {
        let target = start(vec![ram(0, 1)], |config| config.limits = limits);
        let (address, stops) = (target.address(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut kept = Vec::new();
                    while !stops.load(Ordering::Relaxed) {
                        kept.extend(connect_from([127, 0, 0, 2], address));
                        if kept.len() > 200 {
                            kept.drain(..100);
                        }
                    }
                });
            }
            let flooded = || {
                connect_from([127, 0, 0, 2], address).is_ok_and(|mut socket| {
                    // Closed at once: the limit of its address is reached.
                    socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
                    socket.read(&mut [0]).is_ok_and(|count| count == 0)
                })
            };
            wait_until("the flood is felt", flooded);
            let honest = std::panic::catch_unwind(|| {
                for n in 1..=20 {
                    let begun = Instant::now();
                    let mut client = ready(address, &isid(n), &[0]);
                    assert!(lives(&mut client, 0));
                    assert!(begun.elapsed() < Duration::from_secs(10), "login {n}: {:?}", begun.elapsed());
                }
            });
            stops.store(true, Ordering::Relaxed);
            honest.unwrap();
        });
    }
}
