//! `roundtrip host serve` and `host check --load`, in a network namespace of the test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Output, Stdio};

use common::roundtrip;
use serde_json::Value;

/// `roundtrip host serve`, until it is dropped.
struct Served {
    child: Child,
    port: String,
}

impl Served {
    fn start() -> Self {
        let mut command = roundtrip();
        command.args(["host", "serve", "--listen", "127.0.0.1:0", "--for", "10m"]).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().strip_prefix("ready 127.0.0.1:").unwrap().to_owned();
        Self { child, port }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn check(port: &str, format: &[&str]) -> Output {
    let arguments = ["host", "check", "--interface", "lo", "--watch", "0s", "--peer", "127.0.0.1", "--load"];
    let load = ["--load-time", "60s", "--load-bytes", "1M", "--load-port", port];
    roundtrip().args(arguments).args(load).args(format).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_load_test_prints_a_row_for_each_direction_of_each_run() {
    let served = Served::start();
    let output = check(&served.port, &["--json"]);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let load = &result["facts"]["load"];
    assert_eq!((&load["peer"], &load["asked_seconds"]), (&"127.0.0.1".into(), &60.0.into()));
    assert_eq!(load["address"], format!("127.0.0.1:{}", served.port));
    // 16 blocks and the last mark.
    for (run, direction) in [
        ("to_peer", "to_peer"),
        ("from_peer", "from_peer"),
        ("together", "to_peer"),
        ("together", "from_peer"),
    ] {
        assert_eq!(load[run][direction]["bytes"], (1 << 20) + 1, "{load}");
        assert!(load[run][direction]["sender"]["segments"].as_u64().unwrap() > 0, "{load}");
    }
    assert_eq!((&load["to_peer"]["from_peer"], &load["from_peer"]["to_peer"]), (&Value::Null, &Value::Null));
    assert_eq!(
        (&load["together"]["here"]["interface"], &load["together"]["there"]["interface"]),
        (&"lo".into(), &"lo".into())
    );
    let shown = text(&check(&served.port, &[]));
    for name in ["to the peer alone", "from the peer alone", "both together"] {
        assert!(shown.contains(name), "{shown}");
    }
    let metrics = text(&check(&served.port, &["--prometheus"]));
    let series = "roundtrip_host_load_retransmitted_segments{run=\"both together\",direction=\"from\"} ";
    assert!(metrics.contains(series), "{metrics}");
    assert!(!metrics.contains("roundtrip_host_load_bits_per_second{"), "too short to measure: {metrics}");
}

#[test]
fn a_load_test_without_a_server_is_not_seen_and_exits_with_1() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let output = check(&port, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("not seen: the load test with 127.0.0.1: "), "{}", text(&output));
    assert!(text(&output).contains("run `roundtrip host serve` on the peer"), "{}", text(&output));
}

#[test]
fn no_load_starts_without_the_flag() {
    let served = Served::start();
    let arguments = ["host", "check", "--interface", "lo", "--watch", "0s", "--json", "--peer"];
    let output = roundtrip().args(arguments).arg(format!("127.0.0.1:{}", served.port)).output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["facts"]["load"], Value::Null);
}

#[test]
fn a_server_listens_with_the_default_of_its_time() {
    let mut command = roundtrip();
    command.args(["host", "serve", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.starts_with("ready 127.0.0.1:"), "{line}");
}

#[test]
fn a_server_ends_after_its_time() {
    let output =
        roundtrip().args(["host", "serve", "--listen", "127.0.0.1:0", "--for", "1ms"]).output().unwrap();
    assert!(output.status.success() && text(&output).starts_with("ready 127.0.0.1:"));
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = busy.local_addr().unwrap().to_string();
    let output = roundtrip().args(["host", "serve", "--listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}
