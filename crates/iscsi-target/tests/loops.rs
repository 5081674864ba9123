//! Event loops: many connections on one thread.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Client, INITIATOR, Login, ram, start};
use iscsi::NO_TAG;
use iscsi::opcode::target as opcode;
use iscsi::pdu::NopOut;
use iscsi_target::{LunConfig, RunningTarget, SendPolicy, Threads};
use store::layer::{Delay, Layered, Work};
use store::{Ram, Store};

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 9, 0, 0, 1, 0];

fn serve(loops: usize, send: SendPolicy) -> RunningTarget {
    start(vec![ram(0, 1)], |config| {
        config.threads = Threads::Loops(loops);
        config.send = send;
    })
}

fn ready(target: &RunningTarget, isid: u8) -> Client {
    let mut client = Client::log_in(target.address(), &Login { isid, ..Login::default() });
    client.attentions(0);
    client
}

/// Threads of this process by their names.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|own| own.trim_end() == name).count()
}

#[test]
fn a_loop_serves_all_sessions_under_every_policy() {
    for send in SendPolicy::ALL {
        let target = serve(1, send);
        let mut clients: Vec<Client> = (1..=40).map(|isid| ready(&target, isid)).collect();
        for round in 0..5 {
            for client in &mut clients {
                let (data, status, _) = client.read(0, &READ, 512);
                assert_eq!((data.len(), status), (512, 0), "{send} {round}");
            }
        }
        let statistics = target.statistics();
        let thread = statistics[0].thread;
        assert_eq!(statistics.len(), 40);
        assert!(statistics.iter().all(|connection| connection.thread == thread && connection.open));
        target.stop();
    }
}

/// After the reboot of a switch: what exceeds the rate of logins waits, and nothing is refused below the limits.
#[test]
fn a_host_opens_many_sessions_at_once() {
    const SESSIONS: u8 = 200;
    let target = start(vec![ram(0, 1)], |config| config.threads = Threads::Loops(1));
    let begin = std::sync::Barrier::new(SESSIONS.into());
    let log_in = &|isid: u8| {
        begin.wait();
        Client::log_in(target.address(), &Login { isid, ..Login::default() })
    };
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let all: Vec<_> = (1..=SESSIONS).map(|isid| scope.spawn(move || log_in(isid))).collect();
        all.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert_eq!((clients.len(), target.sessions()), (SESSIONS.into(), SESSIONS.into()));
    target.stop();
}

/// On loopback the kernel handles a client's packets on the client's CPU.
#[test]
fn a_connection_is_served_where_its_packets_arrive() {
    let cpus = socket::cpu::allowed().unwrap();
    if !testing::require("two processors", cpus.len() > 1) {
        return;
    }
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let target = start(vec![ram(0, 1)], |config| {
        config.threads = Threads::Loops(2);
        config.cpus = vec![first, last];
    });
    let mut clients = Vec::new();
    for (isid, cpu) in (1..).zip([first, last, last, first, first, last]) {
        let target = &target;
        let client = std::thread::scope(|scope| {
            let log_in = move || {
                socket::cpu::pin(cpu).unwrap();
                ready(target, isid)
            };
            scope.spawn(log_in).join().unwrap()
        });
        let own = client.socket.local_addr().unwrap();
        clients.push(client);
        let statistics = target.statistics();
        let connection = statistics.iter().find(|connection| connection.peer == own).unwrap();
        assert_eq!(connection.cpu, Some(cpu), "{isid}");
    }
    target.stop();
}

/// A client that asks for more than its socket takes, and reads nothing, waits alone.
#[test]
fn a_flood_does_not_keep_others_waiting() {
    let target = serve(1, SendPolicy::Auto);
    let (mut flood, mut other) = (ready(&target, 1), ready(&target, 2));
    let mut long = READ;
    (long[5], long[7], long[8]) = (0, 4, 0);
    for _ in 0..64 {
        flood.issue(&flood.command(flood.cmd_sn, &long, 1024 * 512), &[]);
    }
    for _ in 0..300 {
        assert_eq!(other.read(0, &READ, 512).1, 0);
    }
    assert_eq!(target.connections(), 2);
}

/// Connections with as much to do are served as much, at any time: each has a turn in a round, and no turn is long.
#[test]
fn equal_connections_are_served_equally() {
    const CLIENTS: u8 = 64;
    const EACH: u32 = 60;
    let work = Layered::new(Work(Duration::from_micros(60)), Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>);
    let long = Layered::new(Work(Duration::from_millis(300)), Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>);
    let luns = vec![LunConfig::new(0, Arc::new(work)), LunConfig::new(1, Arc::new(long))];
    let target = start(luns, |config| config.threads = Threads::Loops(1));
    let mut clients: Vec<Client> = (1..=CLIENTS).map(|isid| ready(&target, isid)).collect();
    // The loop has something else to do until all have asked: what one is served, the others wait for.
    let mut first = ready(&target, CLIENTS + 1);
    first.attentions(1);
    let command = iscsi::pdu::ScsiCommand { lun: common::lun_field(1), ..first.command(1, &READ, 512) };
    first.issue(&command, &[]);
    for client in &mut clients {
        let mut all = Vec::new();
        for tag in 0..EACH {
            let command = client.command(tag, &READ, 512);
            all.extend(client.encode(command.write(), &[]));
            client.cmd_sn = client.cmd_sn.wrapping_add(1);
        }
        client.socket.write_all(&all).unwrap();
        client.socket.set_nonblocking(true).unwrap();
    }
    // Bytes that have come, looked at without taking them.
    let one = 48 + 512;
    let mut buffer = vec![0; EACH as usize * one];
    let mut look = || -> Vec<usize> {
        let mut came = |client: &Client| client.socket.peek(&mut buffer).map_or(0, |bytes| bytes / one);
        clients.iter().map(&mut came).collect()
    };
    let mut looks = 0;
    loop {
        // The mean is of the time before: whoever looks may be slow, and what has come only grows.
        let mean = look().iter().sum::<usize>() as f64 / f64::from(CLIENTS);
        let served = look();
        if mean >= f64::from(EACH) {
            break;
        }
        // Whose turn of the round is still to come is behind by a turn, of up to five operations: half of the mean only later on.
        if mean >= 15.0 {
            looks += 1;
            assert!(*served.iter().min().unwrap() as f64 >= 0.5 * mean, "{mean}: {served:?}");
        }
    }
    assert!(looks > 3, "looked {looks} times on the way");
}

/// A client whose PDUs never end, and need no answer, has turns that do.
#[test]
fn a_flood_without_end_does_not_keep_others_waiting() {
    let target = serve(1, SendPolicy::Auto);
    let (flood, mut other) = (ready(&target, 1), ready(&target, 2));
    let ping = NopOut {
        immediate: true,
        tag: NO_TAG,
        transfer_tag: NO_TAG,
        cmd_sn: flood.cmd_sn,
        exp_stat_sn: flood.exp_stat_sn,
        ..NopOut::default()
    };
    let ping = flood.encode(ping.write(), &[]);
    let pings = ping.repeat(20_000);
    let (pings, done) = (&pings, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let mut socket = flood.socket.try_clone().unwrap();
        scope.spawn(move || while !done.load(Ordering::Relaxed) && socket.write_all(pings).is_ok() {});
        let peer = flood.socket.local_addr().unwrap();
        let received = || {
            let statistics = target.statistics();
            statistics.iter().find(|own| own.peer == peer).map_or(0, |own| own.received_bytes)
        };
        let answered = catch_unwind(AssertUnwindSafe(|| {
            (0..100).for_each(|_| assert_eq!(other.read(0, &READ, 512).1, 0));
            // It is never idle, and its figures are published all the same.
            let until = Instant::now() + Duration::from_secs(10);
            let before = received();
            while received() < before + (1 << 20) {
                assert!(Instant::now() < until, "{before} and {}", received());
                std::thread::sleep(Duration::from_millis(10));
            }
        }));
        done.store(true, Ordering::Relaxed);
        // A thread that waits for room ends with its connection.
        target.stop();
        assert!(answered.is_ok(), "a read was not answered in time");
    });
}

/// Turns end within large responses, which stay whole and in order: copied ones, lent ones, and both in turn.
#[test]
fn responses_that_take_many_turns_are_whole() {
    let disk = Ram::new(8 << 20);
    let pattern: Vec<u8> = (0..2_u32 << 20).flat_map(u32::to_be_bytes).collect();
    disk.write_at(0, &pattern).unwrap();
    let disk = LunConfig::new(0, Arc::new(disk) as Arc<dyn Store>);
    let target = start(vec![disk], |config| config.threads = Threads::Loops(1));
    std::thread::scope(|scope| {
        for isid in 1..=3_u8 {
            let (target, pattern) = (&target, &pattern);
            scope.spawn(move || {
                let mut client = ready(target, isid);
                for round in 0..12_u32 {
                    let lengths = [2048, 1, 100, 2047, 129, 8, 300, 2048].map(|blocks: u32| blocks << 9);
                    let first = (round * 37 + u32::from(isid)) % 4096;
                    for (tag, length) in (100..).zip(lengths) {
                        let mut cdb = [0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                        cdb[2..6].copy_from_slice(&first.to_be_bytes());
                        cdb[7..9].copy_from_slice(&((length >> 9) as u16).to_be_bytes());
                        client.issue(&client.command(tag, &cdb, length), &[]);
                    }
                    // A long read may end behind the ones that were sent after it.
                    let mut all: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
                    let mut left: u32 = lengths.iter().sum();
                    while left > 0 {
                        let pdu = client.receive().expect("a connection");
                        assert_eq!(pdu.opcode(), opcode::DATA_IN);
                        client.exp_stat_sn = client.exp_stat_sn.max(pdu.u32(24).wrapping_add(1));
                        left -= pdu.data.len() as u32;
                        all.entry(pdu.u32(16)).or_default().extend(pdu.data);
                    }
                    for (tag, length) in (100..).zip(lengths) {
                        let from = first as usize * 512;
                        assert!(all[&tag] == pattern[from..from + length as usize], "{tag} {length}");
                    }
                }
            });
        }
    });
}

/// Another thread has mail for a connection between its last login response and its first wait.
#[test]
fn a_notice_right_behind_a_login_is_delivered() {
    let target = serve(2, SendPolicy::Auto);
    for round in 0..300_u32 {
        let mut client =
            Client::log_in(target.address(), &Login { isid: (round % 200) as u8, ..Login::default() });
        assert_eq!(target.ask_to_log_out(INITIATOR, Duration::from_secs(5)), 1, "{round}");
        assert_eq!(client.until(opcode::ASYNC).1.bhs.0[36], 1, "{round}: log out");
        assert_eq!(client.log_out(0, 0), 0);
        let until = Instant::now() + Duration::from_secs(10);
        while target.connections() > 0 {
            assert!(Instant::now() < until, "{round}: the connection has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The end of a connection and the login that waits for it are turns of one thread.
#[test]
fn a_login_waits_for_the_end_of_a_connection_of_its_own_loop() {
    let target = serve(1, SendPolicy::Auto);
    let begun = Instant::now();
    for _ in 0..30 {
        let mut client = ready(&target, 1);
        assert_eq!(client.read(0, &READ, 512).1, 0);
    }
    // A login that blocks the thread for which it waits goes on after a second.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    assert!(target.wait_until_idle(Duration::from_secs(5)));
    assert_eq!(target.sessions(), 0);
}

/// A connection that has been closed ends when its writes have, and a login that comes behind it is answered then, or after a second:
/// with threads of their own, and on one loop.
#[test]
fn a_login_is_answered_behind_the_end_of_a_closed_connection() {
    const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 9, 0, 0, 1, 0];
    for threads in [Threads::PerConnection, Threads::Loops(1)] {
        for (delay_ms, least_ms) in [(700, 350), (2500, 1000)] {
            let ram = Arc::new(Ram::new(1 << 20));
            let store = Layered::new(Delay(Duration::from_millis(delay_ms)), ram as Arc<dyn Store>);
            let luns = vec![LunConfig::new(0, Arc::new(store))];
            let target = start(luns, |config| config.threads = threads);
            let keys = "ErrorRecoveryLevel=2";
            let mut closed = Client::log_in(target.address(), &Login { isid: 1, keys, ..Login::default() });
            closed.attentions(0);
            closed.begin_write(0, &WRITE, 512, &[7; 512]);
            // The write has come: a request behind it has been answered.
            assert!(closed.ask("SendTargets=").contains("TargetName"));
            let begun = Instant::now();
            drop(closed);
            Client::log_in(target.address(), &Login { isid: 2, ..Login::default() });
            let took = begun.elapsed();
            assert!(took >= Duration::from_millis(least_ms), "{threads:?} {delay_ms}: {took:?}");
            assert!(took < Duration::from_millis(delay_ms + 600), "{threads:?} {delay_ms}: {took:?}");
        }
    }
}

#[test]
fn a_stop_ends_the_loops() {
    let name = "loop 5";
    let target = serve(6, SendPolicy::Auto);
    let _clients: Vec<Client> = (1..=12).map(|isid| ready(&target, isid)).collect();
    assert_eq!(threads(name), 1);
    let mut used: Vec<_> = target.statistics().iter().map(|connection| connection.thread).collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used.len(), 6, "two connections each");
    target.stop();
    // The kernel wakes who waits for a thread before it takes the thread from its list.
    let until = Instant::now() + Duration::from_secs(5);
    while threads(name) > 0 {
        assert!(Instant::now() < until, "a loop goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}
