//! Signals of `roundtrip target` beside those that end or reload it, and its statistics for scripts.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::Duration;

use common::{IQN, Target, roundtrip, wait};
use load::initiator::session::{Session, SessionOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Logs in and out, which the debug log tells.
fn visit(target: &Target) {
    let session = Session::open(&target.url(0).parse().unwrap(), &SessionOptions::default()).unwrap();
    session.close().unwrap();
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn sigusr1_switches_the_debug_log() {
    let target = Target::start(&["--lun", "0=ram:1M"]);
    visit(&target);
    for _ in 0..2 {
        kill(Pid::from_raw(target.id() as i32), Signal::SIGUSR1).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        visit(&target);
    }
    let text = target.stop();
    let is_on = text.find("the debug log is on").unwrap();
    let is_off = text.find("the debug log is off").unwrap();
    let logins: Vec<usize> = text.match_indices("logged in").map(|(at, _)| at).collect();
    assert!(logins.len() == 1 && (is_on..is_off).contains(&logins[0]), "{text}");
}

#[test]
fn statistics_for_scripts_are_a_line_each_time() {
    let mut child = roundtrip()
        .args([
            "target",
            "--portal",
            "127.0.0.1:0",
            "--iqn",
            IQN,
            "--lun",
            "0=ram:1M",
            "--json",
            "--stats",
            "100ms",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || -> serde_json::Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let address = next()["ready"].as_str().unwrap().to_owned();
    let url = format!("iscsi://{address}/{IQN}/0").parse().unwrap();
    let session = Session::open(&url, &SessionOptions::default()).unwrap();
    let connection = (0..50).find_map(|_| next()["now"].as_array()?.first().cloned()).expect("a connection");
    assert_eq!(connection["open"], true);
    session.close().unwrap();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM).unwrap();
    let last = (0..50).map(|_| next()).find(|line| line["now"].is_null()).unwrap();
    assert_eq!(last["connections"].as_array().unwrap().len(), 1, "{last}");
    assert!(wait(&mut child, Duration::from_secs(5)).success());
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(!text.contains("initiator"), "no tables: {text}");
}
