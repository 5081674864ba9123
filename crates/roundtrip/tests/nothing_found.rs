//! Captures without operations are an error that names their contents, outages are a verdict, and files that are no captures
//! are named by their kind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::Write as _;
use std::path::Path;

use common::roundtrip;
use serde_json::Value;

/// A little-endian pcap file of Ethernet frames, each with its time in milliseconds.
fn pcap(frames: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    for (ms, frame) in frames {
        let seconds = (1_700_000_000 + ms / 1000) as u32;
        for word in [seconds, (ms % 1000 * 1000) as u32, frame.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&word.to_le_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}

/// An IPv4 packet of this protocol between two hosts.
fn ip(protocol: u8, from_client: bool, rest: &[u8]) -> Vec<u8> {
    let (source, destination) = if from_client { (1, 2) } else { (2, 1) };
    let total = (20 + rest.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source, 8, 0];
    frame.extend_from_slice(&[0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, protocol, 0, 0]);
    frame.extend_from_slice(&[10, 0, 0, source, 10, 0, 0, destination]);
    frame.extend_from_slice(rest);
    frame
}

/// A TCP segment of a connection to port 80.
fn tcp(from_client: bool, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (source, destination) = if from_client { (40_000_u16, 80_u16) } else { (80, 40_000) };
    let mut segment = Vec::new();
    segment.extend_from_slice(&source.to_be_bytes());
    segment.extend_from_slice(&destination.to_be_bytes());
    segment.extend_from_slice(&seq.to_be_bytes());
    segment.extend_from_slice(&ack.to_be_bytes());
    segment.extend_from_slice(&[0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    segment.extend_from_slice(payload);
    ip(6, from_client, &segment)
}

const SYN: u8 = 2;
const ACK: u8 = 0x10;
const RST: u8 = 4;
const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A handshake, at this time.
fn handshake(ms: u64) -> Vec<(u64, Vec<u8>)> {
    vec![
        (ms, tcp(true, 99, 0, SYN, &[])),
        (ms, tcp(false, 499, 100, SYN | ACK, &[])),
        (ms, tcp(true, 100, 500, ACK, &[])),
    ]
}

/// Exit code, stdout and stderr of an analysis.
fn analyze(folder: &Path, frames: &[(u64, Vec<u8>)], arguments: &[&str]) -> (Option<i32>, String, String) {
    let file = folder.join("a.pcap");
    std::fs::write(&file, pcap(frames)).unwrap();
    let output = roundtrip().arg("analyze").arg(&file).args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn captures_without_operations_are_an_error_that_names_their_contents() {
    let folder = tempfile::tempdir().unwrap();
    let mut http = handshake(0);
    http.push((1, tcp(true, 100, 500, ACK, REQUEST)));
    http.push((2, tcp(false, 500, 100 + REQUEST.len() as u32, ACK, RESPONSE)));
    let udp = [(0, ip(17, true, &[0; 8])), (1, ip(17, false, &[0; 8])), (2, ip(1, true, &[8; 8]))];
    for (frames, arguments, named) in [
        (&http[..], &["--port", "9999"][..], &["5 of TCP port 80", "none has port 9999"][..]),
        (&udp, &[], &["2 UDP", "1 ICMP", "no TCP"]),
        (&[], &[], &["0 frames", "the capture is empty"]),
        (&http[..3], &[], &["3 of TCP port 80"][..0]),
        (&http[2..3], &[], &["1 of TCP port 80"]),
    ] {
        let (code, stdout, stderr) = analyze(folder.path(), frames, arguments);
        assert_eq!(code, Some(2), "{stderr}");
        assert!(stdout.is_empty() && stderr.lines().count() == 1, "{stdout}{stderr}");
        for named in named {
            assert!(stderr.contains(named), "'{named}' is not in: {stderr}");
        }
        let (code, stdout, _) = analyze(folder.path(), frames, &[arguments, &["--json"]].concat());
        let result: Value = serde_json::from_str(&stdout).unwrap();
        assert_eq!((code, &result["operations"]), (Some(2), &0.into()));
    }
    let (code, stdout, _) = analyze(folder.path(), &http, &["--port", "80"]);
    assert_eq!(code, Some(0), "{stdout}");
    let (_, stdout, _) = analyze(folder.path(), &http, &["--json"]);
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!([&result["streams"]["packets"], &result["packets"]], [&Value::from(5), &Value::from(5)]);
    assert_eq!(result["streams"]["bytes"], result["bytes"]);
    assert!(result["bytes"].as_u64().unwrap() > 0);
}

#[test]
fn an_endless_response_is_no_operation_and_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let (asked, mut seq) = (100 + REQUEST.len() as u32, 500);
    let mut frames = handshake(0);
    frames.push((1, tcp(true, 100, 500, ACK, REQUEST)));
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    let events = (0..20).map(|_| &b"data: x\n\n"[..]);
    for (piece, ms) in std::iter::once(&head[..]).chain(events).zip((0..).map(|n| 3 + 100 * n)) {
        frames.push((ms, tcp(false, seq, asked, ACK, piece)));
        seq += piece.len() as u32;
        frames.push((ms, tcp(true, asked, seq, ACK, &[])));
    }
    let (code, stdout, stderr) = analyze(folder.path(), &frames, &[]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""), "{stdout}");
    for named in [
        "1 response was still coming",
        "first byte took 2.00 ms",
        "100 ms between pieces",
        "no operation ended",
    ] {
        assert!(stdout.contains(named), "'{named}' is not in: {stdout}");
    }
    let (code, stdout, _) = analyze(folder.path(), &frames, &["--json"]);
    let result: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((code, &result["operations"], &result["responses_coming"]), (Some(0), &0.into(), &1.into()));
}

#[test]
fn a_hole_is_reported_with_the_operations_that_it_cost() {
    let folder = tempfile::tempdir().unwrap();
    let (request, response) = (REQUEST.len() as u32, RESPONSE.len() as u32);
    let mut frames = handshake(0);
    // The capture lost the response; the client's next packet acknowledges it.
    frames.push((1, tcp(true, 100, 500, ACK, REQUEST)));
    frames.push((3, tcp(true, 100 + request, 500 + response, ACK, REQUEST)));
    frames.push((4, tcp(false, 500 + response, 100 + 2 * request, ACK, RESPONSE)));
    frames.push((5, tcp(true, 100 + 2 * request, 500 + 2 * response, ACK, REQUEST)));
    frames.push((6, tcp(false, 500 + 2 * response, 100 + 3 * request, ACK, RESPONSE)));
    let (_, stdout, stderr) = analyze(folder.path(), &frames, &["--json"]);
    let result: Value = serde_json::from_str(&stdout).expect(&stderr);
    let [hole] = &result["holes"].as_array().unwrap()[..] else { panic!("{result:#}") };
    assert_eq!((&hole["input"], &hole["offset"], &hole["bytes"]), (&0.into(), &0.into(), &response.into()));
    assert_eq!((&hole["flow"], &hole["reason"]), (&"responses".into(), &"acknowledged".into()));
    assert_eq!(hole["connection"], result["connections"][0]["connection"]);
    assert_eq!(
        (&result["streams"]["holes"], &result["streams"]["hole_bytes"]),
        (&1.into(), &response.into())
    );
    let number = |value: &Value| value.as_f64().unwrap();
    let of_one = number(&result["bytes"]) / number(&result["operations"]);
    assert!((number(&hole["operations"]) - f64::from(response) / of_one).abs() < 1e-9, "{result:#}");
}

#[test]
fn outages_are_a_verdict() {
    let folder = tempfile::tempdir().unwrap();
    let request = |ms| (ms, tcp(true, 100, 500, ACK, REQUEST));
    let answer = (2, tcp(false, 500, 100 + REQUEST.len() as u32, ACK, RESPONSE));
    let after = 100 + REQUEST.len() as u32;
    let dead = [&handshake(0)[..], &[request(1), request(300), request(900), request(2100)]].concat();
    // One operation, then silence.
    let second = |ms| (ms, tcp(true, after, 500 + RESPONSE.len() as u32, ACK, REQUEST));
    let died =
        [&handshake(0)[..], &[request(1), answer.clone(), second(10), second(400), second(3000)]].concat();
    let refused = [(0, tcp(true, 99, 0, SYN, &[])), (1, tcp(false, 0, 100, RST | ACK, &[]))];
    let silent = [
        (0, tcp(true, 99, 0, SYN, &[])),
        (1000, tcp(true, 99, 0, SYN, &[])),
        (3000, tcp(true, 99, 0, SYN, &[])),
    ];
    let no_response = "no_response";
    let failed = "failed_connects";
    for (frames, kind, text, seconds) in [
        (&dead[..], no_response, "1 request never got a response (10.0.0.2:80)", 2.099),
        (&died, no_response, "1 request never got a response", 2.99),
        (
            &refused,
            failed,
            "1 of 1 connection to 10.0.0.2:80 was not established: 1 refused by a reset",
            0.001,
        ),
        (&silent, failed, "1 of 1 connection to 10.0.0.2:80 was not established: 1 never answered", 3.0),
    ] {
        let (code, stdout, stderr) = analyze(folder.path(), frames, &["--json"]);
        let result: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
        let verdict = &result["verdicts"][0];
        assert_eq!((code, &verdict["kind"]), (Some(1), &kind.into()), "{result:#}");
        assert!(verdict["text"].as_str().unwrap().contains(text), "{verdict:#}");
        let cost = verdict["cost_us"].as_f64().unwrap() / 1e6;
        assert!((cost - seconds).abs() < 0.002, "{cost} for {seconds}");
        let excess = &result["excess"];
        let sum = excess["verdicts_us"].as_f64().unwrap() + excess["unexplained_us"].as_f64().unwrap();
        assert!((sum - excess["excess_us"].as_f64().unwrap()).abs() < 1.0, "{excess:#}");
    }
    // A request in flight when the capture ends is no outage.
    let cut = [&handshake(0)[..], &[request(1), answer, second(10)]].concat();
    assert_eq!(analyze(folder.path(), &cut, &[]).0, Some(0));
}

#[test]
fn files_that_are_no_captures_are_named_by_their_kind() {
    let folder = tempfile::tempdir().unwrap();
    let gzip = |bytes: &[u8]| {
        let mut child = std::process::Command::new("gzip")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(bytes).unwrap();
        child.wait_with_output().unwrap().stdout
    };
    let program = std::fs::read(env!("CARGO_BIN_EXE_roundtrip")).unwrap();
    for (bytes, kind) in [
        (Vec::new(), "it is empty"),
        (b"{\"runs\": []}".repeat(100_000), "it is JSON"),
        (program, "it is an ELF program"),
        (gzip(b"hello\n"), "it is gzip data, and what is in it is text"),
        (vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0], "a pcap file that ends within its header"),
        (vec![7; 1 << 20], "begins with 07 07 07 07 07 07 07 07;"),
    ] {
        let file = folder.path().join("file");
        std::fs::write(&file, &bytes).unwrap();
        let output = roundtrip().arg("analyze").arg(&file).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(kind) && text.lines().count() == 1 && text.len() < 500, "{kind}: {text}");
    }
}
