//! WebSocket: websockets for Python, both sides.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use super::{analyzed, free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::{kinds, may_capture};
use crate::common::succeed;

/// Debian's, which has its modules.
const PYTHON: &str = "/usr/bin/python3";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/websocket.py");

fn start() -> (Daemon, SocketAddr) {
    let address = free_address();
    let mut server = Command::new(PYTHON);
    server.args([PROGRAM, "serve", &address.port().to_string()]);
    (Daemon::start(&mut server, address), address)
}

/// What a client says that it has done, and what its capture shows.
fn observed(address: SocketAddr, kind: &str, count: u32) -> (Value, Value) {
    let (port, count) = (address.port().to_string(), count.to_string());
    let (said, result) = analyzed(address, &[], || succeed(PYTHON, &[PROGRAM, kind, &port, &count]));
    assert_eq!((&result["streams"]["unmatched"], &result["streams"]["mistaken"]), (&0.into(), &0.into()));
    (serde_json::from_str(&said).unwrap(), result)
}

fn notes(result: &Value) -> Vec<&str> {
    result["notes"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

#[test]
fn every_message_that_is_answered_and_every_ping_is_an_operation() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    let (said, result) = observed(address, "echo", 300);
    for (operation, count) in [("TEXT", &said["text"]), ("BINARY", &said["binary"]), ("PING", &said["pings"])]
    {
        let row = row(&result, operation);
        assert_eq!((&row["protocol"], &row["operations"]), (&"websocket".into(), count), "{row:#}");
        assert_eq!((&row["failed"], &row["overlapping"]), (&0.into(), &0.into()));
        assert_eq!(row["keys"][0]["name"], "/echo");
    }
    assert_eq!((&said["text"], &said["pings"]), (&600.into(), &225.into()));
    for operation in ["GET", "CLOSE"] {
        assert_eq!(row(&result, operation)["operations"], 3);
    }
    assert!(!notes(&result).iter().any(|note| note.contains("overlap")), "{:?}", notes(&result));
    let (said, result) = observed(address, "pings", 60);
    let row = row(&result, "PING");
    assert_eq!((&row["operations"], &row["failed"]), (&said["pings"], &0.into()));
}

#[test]
fn messages_that_do_not_alternate_are_marked() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    let turns = |result: &Value| {
        let row = row(result, "TEXT");
        ["operations", "overlapping"].map(|name| row[name].as_u64().unwrap())
    };
    let (said, result) = observed(address, "push", 10);
    let ([turns_of_push, overlapping], sent) = (turns(&result), said["sent"].as_u64().unwrap());
    // Notes that leave between the same two events are one turn.
    assert!(turns_of_push == overlapping && (1..=sent).contains(&turns_of_push), "{sent}: {result:#}");
    assert!(notes(&result).iter().any(|note| note.contains("messages overlap: times are per turn")));
    // Events among answers: a question is a turn, and those behind the first event say that its answer may be another message.
    let (said, result) = observed(address, "mixed", 100);
    let ([turns_of_mixed, overlapping], sent) = (turns(&result), said["sent"].as_u64().unwrap());
    assert_eq!(turns_of_mixed, sent);
    assert!(overlapping > 0, "{result:#}");
    assert!(notes(&result).iter().any(|note| note.contains("messages overlap: times are per turn")));
    // Four messages and their four answers are one turn.
    let (_, result) = observed(address, "pipelined", 200);
    assert_eq!(turns(&result), [50, 50]);
    assert!(notes(&result).iter().any(|note| note.contains("messages overlap: times are per turn")));
}

#[test]
fn messages_that_nobody_answers_are_no_outage() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    let (_, result) = observed(address, "telling", 5);
    assert!(!kinds(&result).contains(&"no_response".to_owned()), "{}", result["verdicts"]);
    // One turn, which both capture points of loopback see.
    assert_eq!(result["streams"]["unanswered"], 2, "{}", result["streams"]);
}

#[test]
fn a_close_that_refuses_is_an_error() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    let (said, result) = observed(address, "refused", 20);
    assert_eq!(said["codes"], Value::from(vec![1011; 20]));
    let row = row(&result, "TEXT");
    assert_eq!((&row["operations"], &row["failed"]), (&20.into(), &20.into()));
    assert_eq!(row["keys"][0]["name"], "/refuse");
}
