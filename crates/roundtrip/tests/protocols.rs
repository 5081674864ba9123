//! Every request of real services, also pipelined and multiplexed: the operations of a capture are as many as the load tool says that it
//! made, and as many are in flight.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "protocols/amqp.rs"]
mod amqp;
mod common;
#[path = "protocols/dns.rs"]
mod dns;
#[path = "protocols/enip.rs"]
mod enip;
#[path = "protocols/holes.rs"]
mod holes;
#[path = "protocols/http2.rs"]
mod http2;
#[path = "protocols/kafka.rs"]
mod kafka;
#[path = "protocols/ldap.rs"]
mod ldap;
#[path = "protocols/memcached.rs"]
mod memcached;
#[path = "protocols/modbus.rs"]
mod modbus;
#[path = "protocols/mongodb.rs"]
mod mongodb;
#[path = "protocols/mqtt.rs"]
mod mqtt;
#[path = "protocols/mysql.rs"]
mod mysql;
#[path = "protocols/points.rs"]
mod points;
#[path = "protocols/postgres.rs"]
mod postgres;
#[path = "protocols/redis.rs"]
mod redis;
#[path = "protocols/response_times.rs"]
mod response_times;
#[path = "protocols/rpc.rs"]
mod rpc;
#[path = "protocols/s7.rs"]
mod s7;
#[path = "protocols/smb.rs"]
mod smb;
#[path = "protocols/times.rs"]
mod times;
#[path = "protocols/tls.rs"]
mod tls;
#[path = "protocols/websocket.rs"]
mod websocket;
#[path = "protocols/wireshark.rs"]
mod wireshark;

use std::collections::HashMap;
use std::net::SocketAddr;

use common::live::{analyze, captured};
use serde_json::Value;

/// A free port on loopback.
fn free_address() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// Captures what `work` sends to a server on loopback, and analyses it.
fn analyzed<T>(server: SocketAddr, arguments: &[&str], work: impl FnOnce() -> T) -> (T, Value) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcapng");
    let (done, recorded) = captured("lo", server.port(), &file, || Ok(()), work);
    let drops: u64 = recorded.interfaces.iter().map(|interface| interface.drops).sum();
    assert_eq!(drops, 0, "the capture is complete");
    let result = analyze(&[&[file.to_str().unwrap()], arguments].concat());
    (done, result)
}

/// Captures of services that no package of the distribution has.
const CAPTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protocols/captures");

/// The client's own counts beside such a capture, its analysis, and its operations.
fn recorded(name: &str) -> (Value, Value, Vec<HashMap<String, String>>) {
    let folder = tempfile::tempdir().unwrap();
    let ops = folder.path().join("ops.csv");
    let said = std::fs::read_to_string(format!("{CAPTURES}/{name}.json")).unwrap();
    let result = analyze(&[&format!("{CAPTURES}/{name}.pcapng.zst"), "--ops", ops.to_str().unwrap()]);
    (serde_json::from_str(&said).unwrap(), result, common::records(&ops))
}

/// The row of an operation.
#[track_caller]
fn row<'a>(result: &'a Value, operation: &str) -> &'a Value {
    let rows = result["services"].as_array().unwrap();
    let found = rows.iter().find(|row| row["operation"] == operation);
    found.unwrap_or_else(|| panic!("no {operation} in {rows:#?}"))
}
