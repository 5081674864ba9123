//! Modbus/TCP: pymodbus, both sides, and mbpoll.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use super::{analyzed, free_address, response_times, row};
use crate::common::daemon::Daemon;
use crate::common::live::{captured, kinds, may_capture};
use crate::common::{records, succeed, tool};

/// Debian's, which has its modules.
const PYTHON: &str = "/usr/bin/python3";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/modbus.py");

fn start() -> (Daemon, SocketAddr) {
    let address = free_address();
    let mut server = Command::new(PYTHON);
    server.args([PROGRAM, "serve", &address.port().to_string()]);
    (Daemon::start(&mut server, address), address)
}

fn client(address: SocketAddr, kind: &str, count: u64, depth: u64) -> Value {
    let [port, count, depth] = [address.port().into(), count, depth].map(|n: u64| n.to_string());
    serde_json::from_str(&succeed(PYTHON, &[PROGRAM, kind, &port, &count, &depth])).unwrap()
}

#[test]
fn every_pipelined_request_is_an_operation() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    for depth in [1, 4, 16] {
        let (said, result) = analyzed(address, &[], || client(address, "pipelined", 800, depth));
        for (operation, count) in said.as_object().unwrap() {
            let row = row(&result, operation);
            assert_eq!((&row["protocol"], &row["operations"]), (&"modbus".into(), count), "{row:#}");
            assert_eq!((&row["failed"], &row["overlapping"]), (&0.into(), &0.into()));
        }
        assert_eq!(said["READ_COILS"], 160);
        let keys = |operation| &row(&result, operation)["keys"];
        assert_eq!(keys("READ_COILS")[0]["name"], "unit 1: 0-999");
        assert_eq!(keys("READ_INPUT")[0]["name"], "unit 2: 1000-1999");
        assert_eq!(keys("WRITE_REGISTERS")[0]["name"], "unit 1: 3000-3999");
        let depths = result["stanzas"].as_array().unwrap().iter();
        let most = depths.map(|stanza| stanza["queue_depth"][2].as_u64().unwrap()).max();
        assert_eq!(most, Some(depth));
        assert_eq!(
            (&result["streams"]["unmatched"], &result["streams"]["unanswered"]),
            (&0.into(), &0.into())
        );
    }
}

#[test]
fn requests_with_one_identifier_are_operations_in_order() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    for depth in [1_u64, 5] {
        let (said, result) = analyzed(address, &[], || client(address, "one_identifier", 500, depth));
        let row = row(&result, "READ_HOLDING");
        assert_eq!(
            (&row["operations"], &row["in_flight_max"]),
            (&said["READ_HOLDING"], &depth.into()),
            "{row:#}"
        );
        assert_eq!(row["keys"][0]["name"], "unit 1: 4000-4999");
        assert_eq!(result["streams"]["unmatched"], 0);
    }
}

#[test]
fn exceptions_are_told_by_name() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    let folder = tempfile::tempdir().unwrap();
    let ops = folder.path().join("ops.csv");
    let arguments = ["--ops", ops.to_str().unwrap()];
    let (said, result) = analyzed(address, &arguments, || client(address, "refused", 30, 1));
    let operations = records(&ops);
    for (operation, status) in [
        ("READ_COILS", "ILLEGAL_ADDRESS"),
        ("READ_HOLDING", "GATEWAY_TARGET"),
        ("WRITE_REGISTER", "DEVICE_FAILURE"),
    ] {
        let row = row(&result, operation);
        assert_eq!((&row["operations"], &row["failed"]), (&said[status], &said[status]), "{row:#}");
        let with_it = operations.iter().filter(|op| op["operation"] == operation && op["status"] == status);
        assert_eq!(with_it.count(), 30, "{operation}");
    }
    assert!(kinds(&result).contains(&"error_answers".to_owned()));
    // What is sent to all units has no answer.
    assert_eq!(result["streams"]["unanswered"], 0);
}

#[test]
fn polls_are_as_many_as_mbpoll_says() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    let port = address.port().to_string();
    let (said, result) = analyzed(address, &[], || {
        let poll = ["-0", "-r", "2100", "-c", "8", "-l", "15", "-p", &port, "127.0.0.1"];
        // It polls until it is interrupted.
        let output = tool("timeout", &[&["-s", "INT", "1", "mbpoll"], &poll[..]].concat());
        String::from_utf8_lossy(&output.stdout).into_owned()
    });
    let words: Vec<&str> = said.split_whitespace().collect();
    let before = |word: &str| {
        let place = words.iter().position(|found| found.trim_end_matches(',') == word).unwrap();
        words[place - 1].parse::<u64>().unwrap()
    };
    let row = row(&result, "READ_HOLDING");
    // The answer to its last poll may come while it is interrupted, which it does not count.
    let (operations, received) = (row["operations"].as_u64().unwrap(), before("received"));
    let frames = before("frames");
    assert!((received..=frames).contains(&operations) && frames - received <= 1, "{operations}: {said}");
    assert!(before("received") > 10, "{said}");
    assert_eq!(row["keys"][0]["name"], "unit 1: 2000-2999");
}

#[test]
fn response_times_are_those_of_tshark() {
    let Some(_alone) = may_capture() else { return };
    let (_server, address) = start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcapng");
    captured("lo", address.port(), &file, || Ok(()), || client(address, "pipelined", 1000, 8));
    let [agreeing, theirs, ours] =
        response_times::agreeing(&file, address.port(), 502, "modbus.response_time");
    eprintln!("{agreeing} of tshark's {theirs} times, {ours} operations");
    assert_eq!(ours, 1000);
    assert!(theirs > 900 && agreeing * 1000 >= theirs * 995, "{agreeing} of {theirs}");
}
