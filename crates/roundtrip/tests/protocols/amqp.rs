//! AMQP 0-9-1: RabbitMQ with Pika for Python, and messages that are sent before the acknowledgements of those before them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{analyzed, free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::may_capture;
use crate::common::succeed;

/// Debian's, which has its modules.
const PYTHON: &str = "/usr/bin/python3";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/amqp.py");
/// Below the script that changes to the broker's own user.
const SERVER: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// A broker with its port mapper; both listen on loopback alone, and keep all in a folder.
pub(super) fn start(folder: &Path, address: SocketAddr) -> [Daemon; 2] {
    let (mapper, distribution) = (free_address(), free_address());
    let mut epmd = Command::new("epmd");
    epmd.args(["-port", &mapper.port().to_string(), "-address", "127.0.0.1"]);
    let mapped = Daemon::start(&mut epmd, mapper);
    let path = |name: &str| folder.join(name);
    fs::write(path("plugins"), "[].").unwrap();
    let mut server = Command::new(SERVER);
    server.env("HOME", folder).env("ERL_EPMD_ADDRESS", "127.0.0.1");
    server.env("ERL_EPMD_PORT", mapper.port().to_string());
    for (name, value) in [
        ("NODENAME", format!("test{}@localhost", address.port())),
        ("NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
        ("NODE_PORT", address.port().to_string()),
        ("DIST_PORT", distribution.port().to_string()),
        ("LOGS", "-".to_owned()),
        ("SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}".to_owned()),
    ] {
        server.env(format!("RABBITMQ_{name}"), value);
    }
    for (name, file) in [
        ("MNESIA_BASE", "data"),
        ("LOG_BASE", "log"),
        ("ENABLED_PLUGINS_FILE", "plugins"),
        ("PID_FILE", "pid"),
        ("CONFIG_FILE", "config"),
        ("CONF_ENV_FILE", "environment"),
    ] {
        server.env(format!("RABBITMQ_{name}"), path(file));
    }
    // The broker ends before its port mapper.
    [Daemon::start(&mut server, address), mapped]
}

#[test]
fn every_method_and_every_confirmed_message_is_an_operation() {
    const COUNT: u64 = 100;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    let (port, count) = (address.port().to_string(), COUNT.to_string());
    let (said, result) = analyzed(address, &[], || succeed(PYTHON, &[PROGRAM, &port, &count]));
    let said: Value = serde_json::from_str(&said).unwrap();
    let number = |name: &str| said[name].as_u64().unwrap();
    // What the program counts besides its requests.
    let others = ["messages", "acknowledged", "refused", "missing", "denied", "multiple"];
    let asked = said.as_object().unwrap().iter().filter(|(name, _)| !others.contains(&name.as_str()));
    let mut expected: Vec<(&str, u64)> =
        asked.map(|(name, count)| (&**name, count.as_u64().unwrap())).collect();
    expected.sort_unstable();
    let rows = result["services"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["protocol"] == "amqp"));
    let of =
        |row: &Value| (row["operation"].as_str().unwrap().to_owned(), row["operations"].as_u64().unwrap());
    let mut found: Vec<(String, u64)> = rows.iter().map(of).collect();
    found.sort_unstable();
    let found: Vec<(&str, u64)> = found.iter().map(|(name, count)| (&**name, *count)).collect();
    assert_eq!(found, expected);
    // Messages beside confirms and in a transaction, deliveries and heartbeats are none.
    assert_eq!(number("Basic.Publish"), 6 * COUNT + 10 + 1);
    assert!(number("multiple") > 0 && number("refused") > 0, "{said:#}");
    let failed = |name: &str| row(&result, name)["failed"].as_u64().unwrap();
    // The last of the missing ones is the exchange of a message.
    assert_eq!((failed("Queue.Declare"), number("missing")), (3, 4));
    assert_eq!((failed("Basic.Publish"), failed("login")), (number("refused") + 1, number("denied")));
    let published = row(&result, "Basic.Publish");
    let keys: Vec<&str> =
        published["keys"].as_array().unwrap().iter().filter_map(|key| key["name"].as_str()).collect();
    assert!(["sure", "full", "many", "none/key"].iter().all(|name| keys.contains(name)), "{keys:?}");
    assert!((2..=5 * COUNT).contains(&published["in_flight_max"].as_u64().unwrap()));
    assert_eq!(row(&result, "Basic.Get")["keys"][0]["name"], "jobs.:n");
    let streams = &result["streams"];
    let counts = ["unmatched", "mistaken", "unanswered"].map(|name| streams[name].as_u64());
    assert_eq!(counts, [Some(0); 3], "{streams:#}");
}

fn frame(kind: u8, channel: u16, payload: &[u8]) -> Vec<u8> {
    let (channel, size) = (channel.to_be_bytes(), (payload.len() as u32).to_be_bytes());
    [&[kind][..], &channel, &size, payload, &[0xce]].concat()
}

/// Reads frames up to one with this method.
fn await_method(stream: &mut TcpStream, method: [u8; 4]) -> Vec<u8> {
    loop {
        let mut head = [0; 7];
        stream.read_exact(&mut head).unwrap();
        let size = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        let mut payload = vec![0; size as usize + 1];
        stream.read_exact(&mut payload).unwrap();
        if payload.starts_with(&method) {
            return payload;
        }
    }
}

/// A connection with a channel whose messages are acknowledged, and a queue `q`.
pub(super) fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"AMQP\0\0\x09\x01").unwrap();
    await_method(&mut stream, [0, 10, 0, 10]);
    let answer =
        [&[0, 10, 0, 11, 0, 0, 0, 0][..], b"\x05PLAIN", b"\0\0\0\x0c\0guest\0guest", b"\x05en_US"].concat();
    stream.write_all(&frame(1, 0, &answer)).unwrap();
    await_method(&mut stream, [0, 10, 0, 30]);
    // No more channels and no smaller frames than the broker likes, and no heartbeats.
    let tuned = [&[0, 10, 0, 31, 0, 9][..], &131_072_u32.to_be_bytes(), &[0, 0]].concat();
    stream.write_all(&frame(1, 0, &tuned)).unwrap();
    for (channel, method, arguments) in [
        (0, [0, 10, 0, 40], &b"\x01/\0\0"[..]),
        (1, [0, 20, 0, 10], b"\0"),
        (1, [0, 85, 0, 10], b"\0"),
        (1, [0, 50, 0, 10], b"\0\0\x01q\0\0\0\0\0"),
    ] {
        stream.write_all(&frame(1, channel, &[&method[..], arguments].concat())).unwrap();
        await_method(&mut stream, [method[0], method[1], method[2], method[3] + 1]);
    }
    stream
}

/// A message to the queue.
pub(super) fn publish() -> Vec<u8> {
    let method = frame(1, 1, &[&[0, 60, 0, 40][..], b"\0\0\0\x01q\0"].concat());
    let head = frame(2, 1, &[&[0, 60, 0, 0][..], &5_u64.to_be_bytes(), &[0, 0]].concat());
    [method, head, frame(3, 1, b"hello")].concat()
}

/// Reads acknowledgements up to that of a tag.
pub(super) fn await_tag(stream: &mut TcpStream, tag: u64) {
    while !await_method(stream, [0, 60, 0, 80])[4..].starts_with(&tag.to_be_bytes()) {}
}

#[test]
fn every_pipelined_message_is_an_operation() {
    const BATCHES: u64 = 100;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    for pipelined in [1_u64, 4, 16] {
        let ((), result) = analyzed(address, &[], || {
            let mut stream = connect(address);
            let batch = publish().repeat(pipelined as usize);
            for number in 1..=BATCHES {
                stream.write_all(&batch).unwrap();
                await_tag(&mut stream, number * pipelined);
            }
        });
        let row = row(&result, "Basic.Publish");
        assert_eq!(row["operations"], BATCHES * pipelined, "{row:#}");
        assert_eq!((&row["in_flight_max"], &row["failed"]), (&pipelined.into(), &0.into()));
        assert_eq!(row["keys"][0]["name"], "q");
    }
}
