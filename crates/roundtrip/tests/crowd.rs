//! 256 busy sessions on one target, and everything that may happen beside them: reloads, resets, a slow disk, the end of their access, a
//! stop, and a kill.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Target, roundtrip, until_sockets};
use iscsi::initiator::Direction;
use iscsi_target::{LunConfig, NodeConfig, RunningTarget, TargetConfig};
use load::initiator::commands;
use load::initiator::session::{Session, SessionOptions};
use store::{Ram, Store};

const SESSIONS: &str = "256";
/// Of the slow disk.
const DELAY: Duration = Duration::from_millis(200);
const LIMITS: [&str; 8] = [
    "--limit",
    "accepts_per_second=10000",
    "--limit",
    "accepts_per_address=10000",
    "--limit",
    "connections_per_address=1000",
    "--limit",
    "sessions=1000",
];

/// A load of many sessions, which reads back what it writes.
fn busy(target: &Target, runtime: &str) -> Child {
    let mut command = roundtrip();
    command.args(["bench", &target.url(0), "--sessions", SESSIONS, "--iodepth", "4", "--rw", "randrw"]);
    command.args(["--bs", "512", "--ramp", "0s", "--runtime", runtime, "--size", "4M", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until the target has a socket for each session, and its listener.
fn serves_all(target: &Target) {
    until_sockets(target.id(), 257);
}

fn options(name: &str) -> SessionOptions {
    SessionOptions {
        initiator_name: format!("iqn.2026-11.example.host:{name}"),
        patience: Duration::from_secs(20),
        ..SessionOptions::default()
    }
}

fn result(load: Child) -> serde_json::Value {
    let output = load.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn reloads_resets_and_a_slow_disk_beside_busy_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    let write = |more: &str| {
        let text = format!("[luns]\n0 = 'ram:4M'\n1 = 'ram:1M,delay={}ms'\n{more}", DELAY.as_millis());
        std::fs::write(&file, text).unwrap();
    };
    write("");
    let target = Target::start(&[&["--config", file.to_str().unwrap()][..], &LIMITS].concat());
    let load = busy(&target, "6s");
    serves_all(&target);
    let begun = Instant::now();
    for turn in 0..12 {
        write(if turn % 2 == 0 { "2 = 'zero:1G'\n" } else { "" });
        target.hang_up();
        // A connection that is reset while commands of it wait for the slow disk.
        let mut gone = Session::open(
            &target.url(1).parse().unwrap(),
            &SessionOptions { patience: Duration::from_millis(100), ..options("gone") },
        );
        if let Ok(gone) = &mut gone {
            // Unit attentions are answered at once.
            let mut read = || gone.command(commands::read_write(false, 0, 8), Direction::In(4096));
            loop {
                let begun = Instant::now();
                let Ok(reply) = read() else { break };
                if reply.status == 0 {
                    // This program had no time for as long.
                    assert!(begun.elapsed() >= DELAY, "the disk is slow");
                    break;
                }
            }
        }
        drop(gone);
        // One that waits for it.
        let mut slow = Session::open(&target.url(1).parse().unwrap(), &options("slow")).unwrap();
        let read = || commands::read_write(false, 0, 8);
        while slow.command(read(), Direction::In(4096)).unwrap().status != 0 {}
        slow.close().unwrap();
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let result = result(load);
    let run = &result["runs"][0];
    // A changed set of disks raises a unit attention in each session: those commands have failed, and nothing else.
    for failure in run["failures"].as_array().unwrap() {
        let class = failure["class"].as_str().unwrap();
        assert!(class.to_uppercase().contains("UNIT ATTENTION"), "{failure}");
    }
    assert!(run["iops"].as_f64().unwrap() > 1000.0, "{run}");
    assert!(run["slowest_session_iops"].as_f64().unwrap() > 0.0, "{run}");
    let stderr = target.stop();
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// Sessions begin while disks come and go: a unit attention between two of their first commands is no failure.
#[test]
fn sessions_open_while_disks_change() {
    const IQN: &str = "iqn.2026-11.example.roundtrip:crowd";
    let disks: Vec<LunConfig> =
        [0, 1].map(|number| LunConfig::new(number, Arc::new(Ram::new(1 << 20)) as Arc<dyn Store>)).into();
    let config = TargetConfig::new("127.0.0.1:0".parse().unwrap(), IQN, disks.clone());
    let target = RunningTarget::start(config).unwrap();
    let url = format!("iscsi://{}/{IQN}/0", target.address()).parse().unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0.. {
                let disks = disks[..1 + turn % 2].to_vec();
                target.set_nodes(&[NodeConfig::new(IQN, disks)], Duration::ZERO).unwrap();
                std::thread::sleep(Duration::from_micros(300));
                if ended.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        for _ in 0..300 {
            let mut session = Session::open(&url, &options("opens")).unwrap();
            let capacity = session.capacity().inspect_err(|_| ended.store(true, Ordering::Relaxed)).unwrap();
            assert_eq!(capacity.blocks, 2048);
            session.close().unwrap();
        }
        ended.store(true, Ordering::Relaxed);
    });
}

/// Whoever may no longer log in is asked to leave, and dropped when it does not.
#[test]
fn busy_sessions_are_drained() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    let write = |more: &str| std::fs::write(&file, format!("[luns]\n0 = 'ram:4M'\n{more}")).unwrap();
    write("");
    let target = Target::start(&[&["--config", file.to_str().unwrap()][..], &LIMITS].concat());
    let load = busy(&target, "60s");
    serves_all(&target);
    std::thread::sleep(Duration::from_millis(500));
    write("[access]\ninitiators = ['iqn.2026-11.example.other:1']\n");
    let begun = Instant::now();
    target.hang_up();
    let output = load.wait_with_output().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert!(!output.status.success());
    let refused = Session::open(&target.url(0).parse().unwrap(), &options("late"));
    assert!(refused.is_err());
    assert!(!target.stop().contains("panicked"));
}

#[test]
fn a_stop_and_a_kill_end_at_once_under_busy_sessions() {
    for kills in [false, true] {
        let mut target = Target::start(&[&["--lun", "0=ram:4M"][..], &LIMITS].concat());
        let load = busy(&target, "60s");
        serves_all(&target);
        std::thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        if kills {
            target.kill();
        } else {
            let stderr = target.stop();
            assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
            assert!(!stderr.contains("did not end") && !stderr.contains("panicked"), "{stderr}");
        }
        let output = load.wait_with_output().unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
        assert!(!output.status.success());
    }
}

/// A write that a unit attention ends has written nothing, and is not expected to be read.
#[test]
fn a_verified_load_knows_which_writes_failed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    let write = |more: &str| std::fs::write(&file, format!("[luns]\n0 = 'ram:1M'\n{more}")).unwrap();
    write("");
    let target = Target::start(&["--config", file.to_str().unwrap()]);
    let mut bench = roundtrip();
    bench.args(["bench", &target.url(0), "--rw", "randrw", "--size", "1M", "--iodepth", "8", "--verify"]);
    bench.args(["--runtime", "3s", "--ramp", "0s", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let load = bench.spawn().unwrap();
    until_sockets(target.id(), 2);
    for turn in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        write(if turn % 2 == 0 { "1 = 'zero:1G'\n" } else { "" });
        target.hang_up();
    }
    let run = &result(load)["runs"][0];
    assert!(run["errors"].as_u64().unwrap() > 0, "{run}");
    assert_eq!(run["mismatched_blocks"], 0, "{run}");
}
