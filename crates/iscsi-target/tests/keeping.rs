//! Sessions that go on in another target, as they do in the next process: each test is its initiator, which must see a pause at most.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Client, INITIATOR, IQN, Login, ReserveOut, register, start};
use iscsi::login::chap::Credentials;
use iscsi::login::target::Moved;
use iscsi::opcode::target as opcode;
use iscsi::pdu::{LogoutRequest, NopOut, TextRequest};
use iscsi_target::config::{ActsFor, Initiator, Threads, User};
use iscsi_target::{
    Access, BoundTarget, Kept, KeptError, LunConfig, NodeConfig, RunningTarget, TargetConfig,
};
use store::{Store, StoreSpec};

const PATIENCE: Duration = Duration::from_secs(30);
const READ_CAPACITY: [u8; 10] = [0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0];
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 8, 0];
const RESERVE: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const POWER_ON: (u8, u8) = (0x29, 0);
const BUSY: u8 = 0x18;

fn file(folder: &Path, bytes: &str) -> Arc<dyn Store> {
    let spec: StoreSpec = format!("file:{}/disk,size={bytes}", folder.display()).parse().unwrap();
    spec.open().unwrap()
}

fn disk(folder: &Path) -> Vec<LunConfig> {
    vec![LunConfig::new(0, file(folder, "1M"))]
}

fn text(kept: &Kept) -> Vec<u8> {
    let mut text = Vec::new();
    kept.write(&mut text).unwrap();
    text
}

/// Where the portal of kept sessions was.
fn portal(kept: &Kept) -> SocketAddr {
    kept.sockets().next().unwrap().local_addr().unwrap()
}

/// What the next process gets: the text and the sockets.
fn passed(kept: &Kept) -> Kept {
    let sockets: Vec<TcpStream> = kept.sockets().map(|socket| socket.try_clone().unwrap()).collect();
    Kept::new(&text(kept), sockets).unwrap()
}

/// The next process.
fn next(kept: &Kept, luns: Vec<LunConfig>, change: impl FnOnce(&mut TargetConfig)) -> RunningTarget {
    let mut config = TargetConfig::new(portal(kept), IQN, luns);
    change(&mut config);
    BoundTarget::bind(config).unwrap().start_with(passed(kept)).unwrap()
}

fn log_in(target: &RunningTarget, isid: u8) -> Client {
    let mut client = Client::log_in(target.address(), &Login { isid, ..Login::default() });
    client.attentions(0);
    client
}

/// Whether the connection has ended, whatever was sent before.
fn has_ended(client: &mut Client) -> bool {
    while client.receive().is_some() {}
    true
}

#[test]
fn session_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    for digests in ["", "HeaderDigest=CRC32C DataDigest=CRC32C"] {
        let target = start(disk(folder.path()), |_| ());
        let mut client = Client::log_in(target.address(), &Login { keys: digests, ..Login::default() });
        client.attentions(0);
        assert_eq!(client.write(0, &WRITE, &[7; 4096]).0, 0);
        let (stat_sn, tsih) = (client.exp_stat_sn, client.tsih);
        // A part of a PDU is with the target already.
        let command = client.command(77, &READ, 4096);
        let pdu = client.encode(command.write(), &[]);
        std::io::Write::write_all(&mut client.socket, &pdu[..20]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let kept = target.suspend(PATIENCE);
        assert_eq!(kept.sessions(), 1);
        let target = next(&kept, disk(folder.path()), |_| ());
        std::io::Write::write_all(&mut client.socket, &pdu[20..]).unwrap();
        client.cmd_sn += 1;
        let answer = client.receive().unwrap();
        assert_eq!((answer.opcode(), &answer.data[..]), (opcode::DATA_IN, &[7; 4096][..]));
        assert_eq!(answer.u32(24), stat_sn, "StatSN goes on");
        assert_eq!((target.sessions(), target.session_list()[0].tsih), (1, tsih));
        assert_eq!((target.totals().logins, target.totals().continued), (0, 1));
        let in_use = target.limits().into_iter().filter(|one| one.used == 1).map(|one| one.limit);
        assert!(in_use.eq(["connections", "sessions"]), "{:?}", target.limits());
        assert_eq!(client.write(0, &WRITE, &[8; 4096]).0, 0);
        assert_eq!(client.attentions(0), [], "nothing has happened");
        assert_eq!(client.log_out(0, 0), 0);
        assert!(has_ended(&mut client));
        assert!(target.wait_until_idle(PATIENCE));
        target.stop();
    }
}

/// A write that has begun is completed before; what comes meanwhile is answered behind.
#[test]
fn requests_in_progress_end_and_others_wait() {
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let mut client = log_in(&target, 1);
    let tag = client.begin_write(0, &WRITE, 4096, &[]);
    let r2t = client.until(opcode::R2T).1;
    let suspending = std::thread::spawn(move || target.suspend(PATIENCE));
    std::thread::sleep(Duration::from_millis(50));
    let mut later = Vec::new();
    for (tag, cdb) in [(901, READ), (902, READ), (903, READ_CAPACITY)] {
        let command = client.command(tag, &cdb, 4096);
        later.extend(client.encode(command.write(), &[]));
        client.cmd_sn += 1;
    }
    std::io::Write::write_all(&mut client.socket, &later).unwrap();
    client.data_out((tag, r2t.u32(20)), 0, 0, &[5; 4096]);
    assert_eq!(client.response_of(tag).0, 0, "the write is answered by the process that began it");
    let kept = suspending.join().unwrap();
    assert_eq!(kept.sessions(), 1);
    client.socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert_eq!(client.socket.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let target = next(&kept, disk(folder.path()), |_| ());
    let answers: Vec<_> = (0..3).map(|_| client.receive().unwrap()).collect();
    assert_eq!(answers.iter().map(|pdu| pdu.u32(16)).collect::<Vec<_>>(), [901, 902, 903]);
    assert_eq!(answers[1].data, [5; 4096]);
    target.stop();
}

/// One that waits for data that do not come is told to log in again, and others need not wait for it longer than the patience.
#[test]
fn session_that_does_not_become_quiet_ends() {
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let (mut waits, mut quiet) = (log_in(&target, 1), log_in(&target, 2));
    waits.begin_write(0, &WRITE, 4096, &[]);
    waits.until(opcode::R2T);
    let begun = Instant::now();
    let kept = target.suspend(Duration::from_millis(300));
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(kept.sessions(), 1);
    assert_eq!(waits.until(opcode::ASYNC).1.bhs.0[36], 3, "it is told that its connections are dropped");
    assert!(has_ended(&mut waits));
    let target = next(&kept, disk(folder.path()), |_| ());
    assert_eq!(quiet.write(0, &WRITE, &[1; 4096]).0, 0);
    target.stop();
}

#[test]
fn sessions_that_could_lose_something_are_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let kept = |luns: Vec<LunConfig>, keys: &str, connections: u16| {
        let begun = Instant::now();
        let target = start(luns, |config| {
            config.wishes.error_recovery_level = 2;
            config.wishes.max_connections = 4;
        });
        let mut client = Client::log_in(target.address(), &Login { keys, ..Login::default() });
        let others: Vec<Client> = (1..connections)
            .map(|cid| {
                let (tsih, cmd_sn) = (client.tsih, client.cmd_sn);
                Client::log_in(target.address(), &Login { cid, tsih, cmd_sn, keys, ..Login::default() })
            })
            .collect();
        let kept = target.suspend(Duration::from_secs(60)).sessions();
        assert!(begun.elapsed() < Duration::from_secs(30), "they end at once");
        assert!(kept == 1 || has_ended(&mut client));
        drop(others);
        kept
    };
    assert_eq!(kept(disk(folder.path()), "", 1), 1);
    assert_eq!(
        kept(vec![LunConfig::new(0, "zero:1M".parse::<StoreSpec>().unwrap().open().unwrap())], "", 1),
        1
    );
    // What was written is gone with the process.
    assert_eq!(kept(vec![common::ram(0, 1)], "", 1), 0);
    let mut both = disk(folder.path());
    both.push(common::ram(1, 1));
    assert_eq!(kept(both, "", 1), 0);
    let layered = "ram:1M,delay=1us".parse::<StoreSpec>().unwrap().open().unwrap();
    assert_eq!(kept(vec![LunConfig::new(0, layered)], "", 1), 0);
    for level in ["1", "2"] {
        assert_eq!(kept(disk(folder.path()), &format!("ErrorRecoveryLevel={level}"), 1), 0);
    }
    assert_eq!(kept(disk(folder.path()), "MaxConnections=4", 2), 0);
    assert_eq!(kept(disk(folder.path()), "SessionType=Discovery", 1), 0);
}

#[test]
fn session_ends_where_its_initiator_could_not_log_in_or_sees_something_else() {
    let (folder, other_folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = "alice's first secret";
    let user = |name: &str, secret: &str| User {
        credentials: Credentials { name: name.into(), secret: secret.into() },
        acts_for: ActsFor::Any,
        own: None,
    };
    let guarded = |users: Vec<User>| Some(Access { users, ..Access::default() });
    let alone = |name: &str| Some(Access { initiators: vec![Initiator::new(name)], ..Access::default() });
    type Change<'a> = &'a dyn Fn(&mut TargetConfig);
    let set =
        |access: Option<Access>| move |config: &mut TargetConfig| config.nodes[0].access = access.clone();
    let goes_on = |access: Option<Access>, user: Option<(&str, &str)>, change: Change<'_>| {
        let target = start(disk(folder.path()), |config| config.nodes[0].access = access);
        let mut client = match user {
            Some(user) => Client::try_chap(target.address(), &Login::default(), user).0,
            None => Client::log_in(target.address(), &Login::default()),
        };
        client.attentions(0);
        let kept = target.suspend(PATIENCE);
        assert_eq!(kept.sessions(), 1);
        let (portal, passed) = (portal(&kept), passed(&kept));
        drop(kept);
        let mut config = TargetConfig::new(portal, IQN, disk(folder.path()));
        change(&mut config);
        let target = BoundTarget::bind(config).unwrap().start_with(passed).unwrap();
        let sessions = target.sessions();
        if sessions == 0 {
            assert!(has_ended(&mut client));
        } else {
            assert_eq!(client.read(0, &READ_CAPACITY, 8).1, 0);
        }
        target.stop();
        sessions == 1
    };
    assert!(goes_on(None, None, &|_| ()));
    assert!(goes_on(None, None, &set(alone(INITIATOR))));
    assert!(!goes_on(None, None, &set(alone("iqn.2026-11.example.other:1"))));
    assert!(!goes_on(None, None, &set(guarded(vec![user("alice", first)]))), "it has not authenticated");
    let alice = || guarded(vec![user("alice", first)]);
    assert!(goes_on(alice(), Some(("alice", first)), &set(alice())));
    assert!(!goes_on(alice(), Some(("alice", first)), &set(guarded(vec![user("bob", "bob's only secret")]))));
    assert!(!goes_on(None, None, &|config| config.nodes[0].iqn.push('x')), "another target");
    assert!(!goes_on(None, None, &|config| config.portals[0].group = 2), "another portal group");
    let beside = |config: &mut TargetConfig| {
        let mut other = config.portals[0].clone();
        other.listen.set_port(0);
        config.portals.insert(0, other);
    };
    assert!(goes_on(None, None, &beside));
    assert!(
        !goes_on(None, None, &|config| {
            beside(config);
            config.portals.pop();
        }),
        "a portal that is gone, with another one of its group"
    );
    assert!(
        !goes_on(None, None, &|config| {
            beside(config);
            config.portals[1].group = 2;
            config.nodes[0].groups = Some(vec![1]);
        }),
        "a portal that is of another group now"
    );
    assert!(!goes_on(None, None, &|config| {
        let address = "192.0.2.1:3260".into();
        config.portals[0].moved = Some(Moved { address, is_permanent: false });
    }));
    assert!(goes_on(None, None, &|config| {
        let port = config.portals[0].listen.port();
        config.portals[0].listen = (std::net::Ipv4Addr::UNSPECIFIED, port).into();
    }));
    assert!(!goes_on(None, None, &|config| config.nodes[0].luns[0].number = 1));
    assert!(!goes_on(None, None, &|config| config.nodes[0].luns[0].names.serial = Some("other".into())));
    assert!(!goes_on(None, None, &|config| config.nodes[0].luns[0].block_bytes = 4096));
    assert!(!goes_on(None, None, &|config| config.nodes[0].luns.push(common::ram(1, 1))));
    let naa = || Some(vec![0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    assert!(!goes_on(None, None, &|config| config.nodes[0].luns[0].names.naa = naa()));
    let reader = || Initiator { read_only: true, ..Initiator::new(INITIATOR) };
    let only_reads = || Some(Access { initiators: vec![reader()], ..Access::default() });
    assert!(!goes_on(None, None, &set(only_reads())));
    assert!(goes_on(only_reads(), None, &set(only_reads())));
    // As many blocks, of another length.
    assert!(!goes_on(None, None, &|config| {
        config.nodes[0].luns[0] = LunConfig::new(0, file(other_folder.path(), "8M"));
        config.nodes[0].luns[0].block_bytes = 4096;
    }));
    std::fs::remove_file(other_folder.path().join("disk")).unwrap();
    // As large, with other data.
    assert!(!goes_on(None, None, &|config| {
        config.nodes[0].luns[0] = LunConfig::new(0, file(other_folder.path(), "1M"));
    }));
    assert!(!goes_on(None, None, &|config| config.nodes[0].luns[0].names.vendor = Some("OTHER".into())));
    assert!(!goes_on(None, None, &|config| config.nodes[0].luns[0].removable = true));
    assert!(!goes_on(None, None, &|config| config.nodes[0].luns[0].physical_bytes = 4096));
    // Another release has another revision.
    assert!(goes_on(None, None, &|config| config.nodes[0].luns[0].names.revision = Some("9.9".into())));
    std::fs::remove_file(other_folder.path().join("disk")).unwrap();
    assert!(!goes_on(None, None, &|config| {
        config.nodes[0].luns[0] = LunConfig::new(0, file(other_folder.path(), "2M"));
    }));
}

/// Persistent reservations go on without APTPL; what RESERVE(6) has reserved is lost, and both are told as of a power loss.
#[test]
fn reservations_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let (mut holder, mut other) = (log_in(&target, 1), log_in(&target, 2));
    assert_eq!(holder.reserve_out(0, register(5)).0, 0);
    let write_exclusive = ReserveOut { action: 1, kind: 1, key: 5, ..ReserveOut::default() };
    assert_eq!(holder.reserve_out(0, write_exclusive).0, 0);
    assert_eq!(other.write(0, &WRITE, &[1; 4096]).0, BUSY);
    let kept = target.suspend(PATIENCE);
    let target = next(&kept, disk(folder.path()), |_| ());
    assert_eq!(other.write(0, &WRITE, &[1; 4096]).0, BUSY);
    assert_eq!(log_in(&target, 3).write(0, &WRITE, &[1; 4096]).0, BUSY);
    assert_eq!((holder.write(0, &WRITE, &[1; 4096]).0, holder.keys(0)), (0, vec![5]));
    assert_eq!(
        holder.reserve_out(0, ReserveOut { action: 3, key: 5, ..ReserveOut::default() }).0,
        0,
        "CLEAR"
    );
    other.attentions(0);
    assert_eq!(holder.read(0, &RESERVE, 0).1, 0);
    assert_eq!(other.write(0, &WRITE, &[1; 4096]).0, BUSY);
    let kept = target.suspend(PATIENCE);
    let target = next(&kept, disk(folder.path()), |_| ());
    assert_eq!((holder.attentions(0), other.attentions(0)), (vec![POWER_ON], vec![POWER_ON]));
    assert_eq!(other.write(0, &WRITE, &[1; 4096]).0, 0);
    target.stop();
}

/// Attentions that were not told before are told behind, once.
#[test]
fn attentions_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let (mut one, mut other) = (log_in(&target, 1), log_in(&target, 2));
    assert_eq!(other.manage(5, 0, 0), 0, "LOGICAL UNIT RESET");
    let kept = target.suspend(PATIENCE);
    let target = next(&kept, disk(folder.path()), |_| ());
    assert_eq!(one.attentions(0), [(0x29, 3)]);
    assert_eq!(one.attentions(0), []);
    target.stop();
}

/// What the first request of a session does in the next process is told to the others, whichever of them goes on first.
#[test]
fn attentions_come_as_soon_as_all_go_on() {
    let folder = tempfile::tempdir().unwrap();
    for resets in 0..20 {
        let target = start(disk(folder.path()), |_| ());
        let mut clients: Vec<Client> = (1..60).map(|isid| log_in(&target, isid)).collect();
        let kept = target.suspend(PATIENCE);
        assert_eq!(kept.sessions(), clients.len());
        clients[resets].send_management(5, 0, 0);
        let target = next(&kept, disk(folder.path()), |_| ());
        clients[resets].until(opcode::TASK_MANAGEMENT);
        for (index, client) in clients.iter_mut().enumerate().filter(|(index, _)| *index != resets) {
            assert_eq!(client.attentions(0), [(0x29, 3)], "{index} of the reset by {resets}");
        }
        target.stop();
    }
}

/// Another file, or a disk whose data have ended, begins without reservations.
#[test]
fn reservations_stay_with_their_data() {
    const OTHER: &str = "iqn.2026-11.example.roundtrip:other";
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let with_ram =
        |config: &mut TargetConfig| config.nodes.push(NodeConfig::new(OTHER, vec![common::ram(0, 1)]));
    let target = start(disk(folder.path()), with_ram);
    let in_memory = |target: &RunningTarget| {
        let mut client =
            Client::log_in(target.address(), &Login { target: OTHER, isid: 7, ..Login::default() });
        client.attentions(0);
        client
    };
    let mut clients = [log_in(&target, 1), in_memory(&target)];
    for client in &mut clients {
        assert_eq!(client.reserve_out(0, register(5)).0, 0);
    }
    let kept = target.suspend(PATIENCE);
    assert_eq!(kept.sessions(), 1);
    let target = next(&kept, disk(folder.path()), with_ram);
    assert_eq!((clients[0].keys(0), in_memory(&target).keys(0)), (vec![5], vec![]));
    let kept = target.suspend(PATIENCE);
    let target = next(&kept, disk(other.path()), |_| ());
    assert_eq!(log_in(&target, 3).keys(0), [0; 0]);
    target.stop();
}

/// What a session does until it is quiet is told to those that have been quiet before.
#[test]
fn attentions_come_until_all_are_quiet() {
    const PREEMPTED: (u8, u8) = (0x2a, 5);
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let (mut one, mut quiet) = (log_in(&target, 1), log_in(&target, 2));
    assert_eq!(quiet.reserve_out(0, register(5)).0, 0);
    assert_eq!(one.reserve_out(0, register(6)).0, 0);
    let preempt = ReserveOut { action: 4, kind: 1, key: 6, action_key: 5, ..ReserveOut::default() };
    let (cdb, list) = preempt.encode();
    let tag = one.begin_write(0, &cdb, list.len() as u32, &[]);
    let r2t = one.until(opcode::R2T).1;
    let suspending = std::thread::spawn(move || target.suspend(PATIENCE));
    std::thread::sleep(Duration::from_millis(100));
    one.data_out((tag, r2t.u32(20)), 0, 0, &list);
    assert_eq!(one.response_of(tag).0, 0);
    let kept = suspending.join().unwrap();
    assert_eq!(kept.sessions(), 2);
    let target = next(&kept, disk(folder.path()), |_| ());
    assert_eq!(quiet.attentions(0), [PREEMPTED]);
    assert_eq!(quiet.keys(0), [6]);
    target.stop();
}

/// An initiator may use the window that it was given, whatever the next process gives new sessions.
#[test]
fn window_never_shrinks() {
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |config| config.limits.window = 64);
    let mut client = log_in(&target, 1);
    let kept = target.suspend(PATIENCE);
    let target = next(&kept, disk(folder.path()), |config| config.limits.window = 4);
    // Each keeps its place until its data come.
    let tags: Vec<u32> = (0..64).map(|_| client.begin_write(0, &WRITE, 4096, &[])).collect();
    for tag in tags {
        assert_eq!(client.until(opcode::R2T).1.u32(16), tag);
    }
    target.stop();
}

/// A ping of the process before is answered in the next one, and the session is not older for it.
#[test]
fn pings_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let short = |config: &mut TargetConfig| config.limits.ping_after = Duration::from_millis(100);
    let target = start(disk(folder.path()), short);
    let mut client = log_in(&target, 1);
    let ping = client.until(opcode::NOP_IN).1;
    let kept = target.suspend(PATIENCE);
    let target = next(&kept, disk(folder.path()), |_| ());
    let answer = NopOut {
        immediate: true,
        tag: iscsi::NO_TAG,
        transfer_tag: ping.u32(20),
        cmd_sn: client.cmd_sn,
        exp_stat_sn: client.exp_stat_sn,
        ..NopOut::default()
    };
    client.send(answer.write(), &[]);
    assert_eq!(client.read(0, &READ_CAPACITY, 8).1, 0);
    target.stop();
}

/// Whoever has gone meanwhile is not missed, and what the text says must be whole.
#[test]
fn texts_and_sockets_need_not_be_there() {
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let (gone, mut stays) = (log_in(&target, 1), log_in(&target, 2));
    let command = stays.command(50, &READ_CAPACITY, 8);
    let pdu = stays.encode(command.write(), &[]);
    std::io::Write::write_all(&mut stays.socket, &pdu[..30]).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let kept = target.suspend(PATIENCE);
    drop(gone);
    let text = text(&kept);
    let sockets = || -> Vec<TcpStream> { kept.sockets().map(|socket| socket.try_clone().unwrap()).collect() };
    for length in 0..text.len() {
        assert!(Kept::new(&text[..length], sockets()).is_err(), "{length} of {} bytes", text.len());
    }
    // Whatever is damaged, it is an error or another state; nothing panics.
    for index in 0..text.len() {
        for value in [0, b'9', b'"', b'\n', 255] {
            let mut damaged = text.clone();
            damaged[index] = value;
            let _ = Kept::new(&damaged, sockets());
        }
    }
    let line = text.iter().position(|&byte| byte == b'\n').unwrap();
    let other =
        String::from_utf8(text[..line].to_vec()).unwrap().replacen("\"version\":1", "\"version\":2", 1);
    let other = [other.as_bytes(), &text[line..]].concat();
    assert!(matches!(Kept::new(&other, sockets()), Err(KeptError::Version(2))));
    assert_eq!(Kept::new(&text, Vec::new()).unwrap().sessions(), 0);
    let strangers = vec![
        TcpStream::connect(std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
            .unwrap(),
    ];
    assert_eq!(Kept::new(&text, strangers).unwrap().sessions(), 0);
    let target = next(&kept, disk(folder.path()), |_| ());
    std::io::Write::write_all(&mut stays.socket, &pdu[30..]).unwrap();
    assert_eq!(stays.receive().unwrap().u32(16), 50);
    let until = Instant::now() + PATIENCE;
    while target.sessions() > 1 {
        assert!(Instant::now() < until, "the session of the one that has gone ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    target.stop();
}

/// Each connection on a thread of its own.
#[test]
fn threads_of_their_own_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let alone = |config: &mut TargetConfig| {
        config.threads = Threads::PerConnection;
        config.cpus = vec![0];
    };
    let target = start(disk(folder.path()), alone);
    let mut client = log_in(&target, 1);
    let mut target = Some(target);
    for turn in 0..3 {
        let kept = target.take().unwrap().suspend(PATIENCE);
        let next = target.insert(next(&kept, disk(folder.path()), alone));
        assert_eq!(client.write(0, &WRITE, &[turn; 4096]).0, 0);
        next.refresh();
        assert_eq!(next.statistics()[0].cpu, Some(0), "its thread is pinned");
    }
    target.unwrap().stop();
}

#[test]
fn mode_parameters_go_on() {
    const MODE_SENSE: [u8; 6] = [0x1a, 8, 0x0a, 0, 255, 0];
    // The control page with SWP, not saved.
    let page = [&[0, 0, 0, 0][..], &[0x0a, 10, 0, 0x10, 8, 0, 0, 0, 0, 0, 0, 0]].concat();
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let mut client = log_in(&target, 1);
    let before = client.read(0, &MODE_SENSE, 255).0;
    assert_eq!(client.write(0, &[0x15, 0x10, 0, 0, page.len() as u8, 0], &page).0, 0);
    let changed = client.read(0, &MODE_SENSE, 255).0;
    assert_ne!(changed, before);
    let target = next(&target.suspend(PATIENCE), disk(folder.path()), |_| ());
    assert_eq!(client.read(0, &MODE_SENSE, 255).0, changed);
    assert_eq!(client.write(0, &WRITE, &[1; 4096]).0, 2, "it is write-protected");
    target.stop();
}

/// RECEIVE COPY RESULTS tells the end of a copy that was asked for before.
#[test]
fn results_of_copies_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let mut client = log_in(&target, 1);
    let naa = client.read(0, &[0x12, 1, 0x83, 0, 255, 0], 255).0[8..16].to_vec();
    let mut cscd = vec![0xe4, 0, 0, 0, 1, 3, 0, 8];
    cscd.extend(naa);
    cscd.resize(32, 0);
    // List identifier 7: a block from LBA 0 to LBA 8.
    let mut list = vec![7, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend(cscd);
    list.extend([2, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8]);
    let mut cdb = [0; 16];
    (cdb[0], cdb[13]) = (0x83, list.len() as u8);
    assert_eq!(client.write(0, &cdb, &list).0, 0);
    let target = next(&target.suspend(PATIENCE), disk(folder.path()), |_| ());
    let mut cdb = [0; 16];
    (cdb[0], cdb[2], cdb[13]) = (0x84, 7, 255);
    let result = client.read(0, &cdb, 255).0;
    assert_eq!(result, [0, 0, 0, 8, 1, 0, 1, 0, 0, 0, 2, 0], "done, a segment, 512 bytes");
    target.stop();
}

/// A logout that has begun is answered.
#[test]
fn logouts_end() {
    let folder = tempfile::tempdir().unwrap();
    let spec = format!("file:{}/disk,size=1M,delay=300ms", folder.path().display());
    let slow = vec![LunConfig::new(0, spec.parse::<StoreSpec>().unwrap().open().unwrap())];
    let target = start(slow, |_| ());
    let mut client = log_in(&target, 1);
    let command = client.command(client.cmd_sn, &READ, 4096);
    client.issue(&command, &[]);
    let request = LogoutRequest {
        immediate: true,
        reason_byte: 0x80,
        tag: 8,
        cmd_sn: client.cmd_sn,
        exp_stat_sn: client.exp_stat_sn,
        ..LogoutRequest::default()
    };
    client.send(request.write(), &[]);
    std::thread::sleep(Duration::from_millis(50));
    let suspending = std::thread::spawn(move || target.suspend(PATIENCE).sessions());
    assert_eq!(client.until(opcode::LOGOUT).1.u32(16), 8);
    assert_eq!(suspending.join().unwrap(), 0);
}

/// What is kept meanwhile counts as memory of commands.
#[test]
fn kept_requests_take_from_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    for (budget, kept) in [(64 << 20, 1), (1 << 20, 0)] {
        let target = start(disk(folder.path()), |config| config.limits.memory_bytes = budget);
        let mut client = log_in(&target, 1);
        let tag = client.begin_write(0, &WRITE, 4096, &[]);
        let r2t = client.until(opcode::R2T).1;
        let suspending = std::thread::spawn(move || target.suspend(PATIENCE).sessions());
        std::thread::sleep(Duration::from_millis(50));
        let ping = NopOut {
            immediate: true,
            tag: 2,
            transfer_tag: iscsi::NO_TAG,
            cmd_sn: client.cmd_sn,
            exp_stat_sn: client.exp_stat_sn,
            ..NopOut::default()
        };
        let ping = client.encode(ping.write(), &[3; 8192]);
        let sent = (0..512).try_for_each(|_| std::io::Write::write_all(&mut client.socket, &ping));
        if sent.is_ok() {
            client.data_out((tag, r2t.u32(20)), 0, 0, &[5; 4096]);
        }
        assert_eq!(suspending.join().unwrap(), kept);
    }
}

/// Who has been asked to log out, or is in the middle of a text, logs in again.
#[test]
fn what_has_begun_otherwise_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let mut client = log_in(&target, 1);
    assert_eq!(target.ask_to_log_out(INITIATOR, PATIENCE), 1);
    client.until(opcode::ASYNC);
    assert_eq!(target.suspend(Duration::from_secs(1)).sessions(), 0);
    let target = start(disk(folder.path()), |_| ());
    let mut client = log_in(&target, 1);
    let request = TextRequest {
        immediate: true,
        continues: true,
        tag: 9,
        transfer_tag: iscsi::NO_TAG,
        cmd_sn: client.cmd_sn,
        exp_stat_sn: client.exp_stat_sn,
        ..TextRequest::default()
    };
    client.send(request.write(), b"SendTargets");
    client.until(opcode::TEXT);
    assert_eq!(target.suspend(Duration::from_millis(300)).sessions(), 0);
}

/// What one process has begun to answer, it answers whole, however slowly the initiator reads; the next one answers the rest.
#[test]
fn answers_of_before_arrive_whole() {
    const READ_64K: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 128, 0];
    let folder = tempfile::tempdir().unwrap();
    let target = start(disk(folder.path()), |_| ());
    let mut client = log_in(&target, 1);
    let count = 100;
    for tag in 0..count {
        let command = client.command(2000 + tag, &READ_64K, 65_536);
        client.issue(&command, &[]);
    }
    let path = folder.path().to_owned();
    let suspending = std::thread::spawn(move || {
        let kept = target.suspend(PATIENCE);
        assert_eq!(kept.sessions(), 1);
        next(&kept, disk(&path), |_| ())
    });
    // A disk ends reads in any order.
    let mut missing: std::collections::BTreeMap<u32, usize> =
        (0..count).map(|tag| (2000 + tag, 65_536)).collect();
    while !missing.is_empty() {
        std::thread::sleep(Duration::from_micros(300));
        let pdu = client.receive().unwrap();
        assert_eq!(pdu.opcode(), opcode::DATA_IN);
        let tag = pdu.u32(16);
        let left = missing.get_mut(&tag).unwrap_or_else(|| panic!("{tag} is answered twice"));
        *left = left.checked_sub(pdu.data.len()).unwrap_or_else(|| panic!("{tag} has too many bytes"));
        if *left == 0 {
            missing.remove(&tag);
        }
    }
    let target = suspending.join().unwrap();
    assert_eq!(client.read(0, &READ_CAPACITY, 8).1, 0);
    target.stop();
}

/// What comes while a connection is not quiet waits in the socket, or in memory up to a limit.
#[test]
fn floods_take_no_memory() {
    const PING: usize = 8192;
    let folder = tempfile::tempdir().unwrap();
    for waits_for_data in [false, true] {
        let delay = if waits_for_data { "" } else { ",delay=500ms" };
        let spec = format!("file:{}/disk,size=1M{delay}", folder.path().display());
        let slow = || vec![LunConfig::new(0, spec.parse::<StoreSpec>().unwrap().open().unwrap())];
        let target = start(slow(), |_| ());
        let mut client = log_in(&target, 1);
        if waits_for_data {
            client.begin_write(0, &WRITE, 4096, &[]);
            client.until(opcode::R2T);
        } else {
            let command = client.command(1, &READ, 4096);
            client.issue(&command, &[]);
        }
        let ping = NopOut {
            immediate: true,
            tag: 2,
            transfer_tag: iscsi::NO_TAG,
            cmd_sn: client.cmd_sn,
            exp_stat_sn: client.exp_stat_sn,
            ..NopOut::default()
        };
        let ping = client.encode(ping.write(), &[3; PING]);
        let mut writer = client.socket.try_clone().unwrap();
        let suspending = std::thread::spawn(move || target.suspend(PATIENCE));
        std::thread::sleep(Duration::from_millis(50));
        // 64 MiB: twice what is kept.
        let count = (64 << 20) / PING;
        let flood = std::thread::spawn(move || {
            (0..count).try_for_each(|_| std::io::Write::write_all(&mut writer, &ping))
        });
        if waits_for_data {
            assert_eq!(suspending.join().unwrap().sessions(), 0);
            assert!(has_ended(&mut client));
            assert!(flood.join().unwrap().is_err());
            continue;
        }
        assert_eq!(client.receive().unwrap().data.len(), 4096);
        let target = next(&suspending.join().unwrap(), slow(), |_| ());
        for _ in 0..count {
            assert_eq!(client.receive().unwrap().data, [3; PING]);
        }
        flood.join().unwrap().unwrap();
        target.stop();
    }
}
