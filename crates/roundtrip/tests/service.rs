//! Under a service manager: what it is told, and the socket that it holds.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::manager::{Manager, script};
use common::{IQN, bench, roundtrip, until_sockets};
use load::initiator::session::{Session, SessionOptions};

#[test]
fn a_service_manager_hears_of_every_state_and_keeps_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    std::fs::write(&file, format!("iqn = '{IQN}'\nluns.0 = 'ram:4M'\n")).unwrap();
    let mut manager =
        Manager::start("127.0.0.1:0", &["--sandbox", "require", "--config", file.to_str().unwrap()]);
    assert_eq!(manager.until("STATUS="), "STATUS=serving 1 targets at 1 portals");
    bench(&manager.url(), &["--rw", "randread", "--runtime", "200ms"]);
    manager.until("WATCHDOG=1");
    std::fs::write(&file, format!("iqn = '{IQN}'\nluns.0 = 'ram:8M'\n")).unwrap();
    assert!(Command::new("kill").args(["-HUP", &manager.pid]).status().unwrap().success());
    manager.until("RELOADING=1");
    manager.until("MONOTONIC_USEC=");
    manager.until("READY=1");
    manager.stop();
}

/// Sessions under load, which verify what they read, go on over restarts without a failure and without a login.
#[test]
fn sessions_outlive_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let disk = |lun: u8| format!("{lun}=file:{}/{lun},size=8M", folder.path().display());
    let disks = ["--lun", &disk(0), "--lun", &disk(1)];
    let options = ["--sandbox", "require", "--keep-sessions", "--iqn", IQN];
    let mut manager = Manager::start("127.0.0.1:0", &[&options[..], &disks].concat());
    let loads: Vec<Child> = [(0, "512", None), (1, "64k", Some("--data-digest"))]
        .map(|(lun, bs, digest)| {
            let url = format!("iscsi://{}/{IQN}/{lun}", manager.address);
            let mut bench = roundtrip();
            bench.args(["bench", &url, "--rw", "randrw", "--bs", bs, "--size", "8M", "--verify"]);
            bench.args(["--iodepth", "8", "--runtime", "4s", "--ramp", "0s", "--json"]).args(digest);
            bench.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .into();
    std::thread::sleep(Duration::from_millis(500));
    for turn in 0..6 {
        // A socket for each session, and the state.
        assert_eq!(manager.restart("restart"), 3, "in turn {turn}");
        std::thread::sleep(Duration::from_millis(200));
    }
    for load in loads {
        let output = load.wait_with_output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let run = &result["runs"][0];
        assert_eq!((&run["errors"], &run["mismatched_blocks"]), (&0.into(), &0.into()));
        assert!(run["iops"].as_f64().unwrap() > 100.0, "{}", run["iops"]);
    }
    // Nothing is left in the store of a process without sessions.
    assert_eq!(manager.restart("restart"), 0);
    manager.stop();
}

/// More sessions than a message has descriptors, and than a process may have by default.
#[test]
fn many_sessions_outlive_a_restart() {
    const SESSIONS: usize = 1200;
    let folder = tempfile::tempdir().unwrap();
    let disk = format!("0=file:{}/disk,size=16M", folder.path().display());
    let mut options = vec!["--keep-sessions", "--iqn", IQN, "--lun", &disk];
    for limit in [
        "sessions=2000",
        "connections=2000",
        "connections_per_address=2000",
        "logins=2000",
        "accepts_per_address=5000",
    ] {
        options.extend(["--limit", limit]);
    }
    let mut manager = Manager::start("127.0.0.1:0", &options);
    let loads = ["a", "b"].map(|name| {
        let mut bench = roundtrip();
        bench.args(["bench", &manager.url(), "--rw", "randread", "--sessions", &(SESSIONS / 2).to_string()]);
        bench.args(["--initiator-name", &format!("iqn.2026-11.example.host:{name}"), "--runtime", "6s"]);
        bench.args(["--ramp", "0s", "--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
        bench.spawn().unwrap()
    });
    until_sockets(manager.pid.parse().unwrap(), SESSIONS);
    // The last ones log in.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(manager.restart("restart"), SESSIONS + 1);
    for load in loads {
        let output = load.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(result["runs"][0]["errors"], 0);
    }
    manager.stop();
}

/// A process that cannot start leaves the sessions to the next one.
#[test]
fn sessions_outlive_a_start_that_fails() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("target.toml");
    let disk = folder.path().join("disk");
    let right = format!("iqn = '{IQN}'\nluns.0 = 'file:{},size=16M'\n", disk.display());
    std::fs::write(&file, &right).unwrap();
    let mut manager = Manager::start("127.0.0.1:0", &["--keep-sessions", "--config", file.to_str().unwrap()]);
    let options = SessionOptions { patience: Duration::from_secs(5), ..SessionOptions::default() };
    let mut session = Session::open(&manager.url().parse().unwrap(), &options).unwrap();
    assert!(session.capacity().is_ok());
    for wrong in ["iqn = 7", "iqn = 'iqn.2026-11.example:x'\nluns.0 = 'file:/nowhere'"] {
        std::fs::write(&file, wrong).unwrap();
        assert_eq!(manager.fail(|| std::fs::write(&file, &right).unwrap()), "failed 2, stored 2");
        assert!(session.capacity().is_ok());
    }
    assert_eq!(manager.restart("restart"), 2);
    assert!(session.capacity().is_ok());
    manager.stop();
}

/// What was kept goes on once: a process that is killed leaves nothing that a later one could take for its own.
#[test]
fn what_a_killed_process_had_taken_over_ends_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = format!("0=file:{}/disk,size=16M", folder.path().display());
    let mut manager = Manager::start("127.0.0.1:0", &["--keep-sessions", "--iqn", IQN, "--lun", &disk]);
    let options = SessionOptions { patience: Duration::from_secs(5), ..SessionOptions::default() };
    let mut session = Session::open(&manager.url().parse().unwrap(), &options).unwrap();
    assert!(session.capacity().is_ok());
    assert_eq!(manager.restart("restart"), 2);
    assert!(session.capacity().is_ok());
    assert_eq!(manager.restart("kill"), 0);
    assert!(session.capacity().is_err());
    assert!(Session::open(&manager.url().parse().unwrap(), &options).unwrap().capacity().is_ok());
    manager.stop();
}

#[test]
fn a_socket_where_no_portal_is_is_refused() {
    let mut manager = Command::new("python3")
        .args([&script("service.py"), "127.0.0.1", "0", env!("CARGO_BIN_EXE_roundtrip"), "target"])
        .args(["--lun", "0=ram:1M", "--portal", "127.0.0.1:0"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = manager.stdin.take();
    let output = manager.wait_with_output().unwrap();
    drop(input);
    let (told, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        error.contains("passes a socket at 127.0.0.1:") && error.contains("where no portal is"),
        "{error}"
    );
    assert!(told.contains("ended 2") && !told.contains("READY"), "{told}");
}

#[test]
fn the_live_view_draws_sorts_and_gives_the_terminal_back() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let mut target = roundtrip()
        .args(["target", "--portal", "127.0.0.1:0", "--iqn", IQN, "--lun", "0=ram:4M", "--control"])
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = String::new();
    BufReader::new(target.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let mut load = roundtrip()
        .args(["bench", &format!("iscsi://{}/{IQN}/0", ready.split(' ').nth(1).unwrap()), "--runtime", "20s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let once = |words: &[&str]| {
        let output = roundtrip().args(["top", "--once"]).args(words).arg(&socket).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    std::thread::sleep(std::time::Duration::from_millis(500));
    let rates: serde_json::Value = serde_json::from_str(&once(&["--json"])).unwrap();
    let (disk, connection) = (&rates["disks"][0], &rates["connections"][0]);
    assert!(disk["iops"].as_f64().unwrap() > 100.0 && disk["p50_us"].as_f64().unwrap() > 0.0, "{rates}");
    assert_eq!((disk["target"].as_str(), connection["target"].as_str()), (Some(IQN), Some(IQN)));
    let text = once(&[]);
    assert!(text.contains("sessions 1") && text.contains("transmit") && !text.contains('\u{1b}'), "{text}");
    let drawn = Command::new("python3")
        .args([&script("terminal.py"), "sspq", env!("CARGO_BIN_EXE_roundtrip"), "top", "--interval", "300ms"])
        .arg(&socket)
        .output()
        .unwrap();
    let drawn = String::from_utf8_lossy(&drawn.stdout).into_owned();
    // The alternate screen is entered and left, the cursor hidden and shown.
    for part in ["\u{1b}[?1049h", "\u{1b}[?1049l", "\u{1b}[?25h", "IOPS", "PAUSED", "ended 0"] {
        assert!(drawn.contains(part), "{part:?}: {drawn:?}");
    }
    load.kill().unwrap();
    target.kill().unwrap();
    let gone = roundtrip().args(["top", "--once"]).arg(&socket).output().unwrap();
    assert!(
        gone.status.code() == Some(1) && String::from_utf8_lossy(&gone.stderr).contains("no target answers")
    );
    [load, target].iter_mut().for_each(|child| drop(child.wait()));
}

#[test]
fn a_configuration_of_another_target_is_imported_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../import/tests/fixtures");
    for (kind, name) in [("targetcli", "saveconfig.json"), ("tgt", "targets.conf"), ("ctl", "ctl.conf")] {
        let (from, to) = (format!("{fixtures}/{name}"), folder.path().join(format!("{kind}.toml")));
        let output = roundtrip().args(["import", kind, &from, "--out"]).arg(&to).output().unwrap();
        let notes = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && notes.contains("notes: read them"), "{kind}: {notes}");
        let mode = std::os::unix::fs::PermissionsExt::mode(&to.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "it may hold secrets");
        let checked = roundtrip().args(["target", "--check"]).arg(&to).output().unwrap();
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(
            checked.status.success() && text.contains(": valid") && text.contains("+ target iqn."),
            "{text}"
        );
        // A file that is there is not overwritten.
        assert!(
            !roundtrip().args(["import", kind, &from, "--out"]).arg(&to).output().unwrap().status.success()
        );
    }
    let wrong = folder.path().join("wrong.toml");
    std::fs::write(&wrong, "luns.0 = 'floppy:1M'\n").unwrap();
    let checked = roundtrip().args(["target", "--check"]).arg(&wrong).output().unwrap();
    assert_eq!(checked.status.code(), Some(2));
}
