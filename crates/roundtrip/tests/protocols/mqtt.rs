//! MQTT: Mosquitto with its own publisher, Paho for Python, and packets that are sent before the answers to those before them.

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
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/mqtt.py");

/// A broker that lets anybody in who names no user, and nobody write to the topics of `secret`.
pub(super) fn start(folder: &Path, address: SocketAddr) -> Daemon {
    let [config, rules, users] = ["mosquitto.conf", "rules", "users"].map(|name| folder.join(name));
    std::fs::write(&rules, "topic readwrite home/#\ntopic readwrite other/#\n").unwrap();
    std::fs::write(&users, "").unwrap();
    let settings = format!(
        "listener {} 127.0.0.1\nallow_anonymous true\nuser root\nset_tcp_nodelay true\nacl_file {}\npassword_file {}\n",
        address.port(),
        rules.display(),
        users.display()
    );
    std::fs::write(&config, settings).unwrap();
    Daemon::start(Command::new("/usr/sbin/mosquitto").arg("-c").arg(config), address)
}

/// Keys and counts of a row.
fn keys(row: &Value) -> Vec<(&str, u64)> {
    let keys = row["keys"].as_array().unwrap().iter();
    keys.map(|key| (key["name"].as_str().unwrap(), key["operations"].as_u64().unwrap())).collect()
}

#[test]
fn every_packet_that_is_answered_is_an_operation() {
    const COUNT: u64 = 600;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    for version in ["4", "5"] {
        let (port, count) = (address.port().to_string(), COUNT.to_string());
        let (said, result) = analyzed(address, &[], || succeed(PYTHON, &[PROGRAM, &port, version, &count]));
        let said: Value = serde_json::from_str(&said).unwrap();
        // QoS 0 has no answer, and what the broker publishes is no request.
        let answered = said["published"][1].as_u64().unwrap() + said["published"][2].as_u64().unwrap();
        assert_eq!((answered, &said["received"]), (400, &COUNT.into()));
        let published = row(&result, "PUBLISH");
        assert_eq!(published["operations"], answered + 3, "{published:#}");
        assert_eq!(published["protocol"], "mqtt");
        assert_eq!(keys(published), [("home/:n/lamp", answered), ("secret/door", 3)]);
        assert!((2..=20).contains(&published["in_flight_max"].as_u64().unwrap()), "{published:#}");
        // Version 3 has no way to say that a message was refused.
        assert_eq!(published["failed"], if version == "5" { 3 } else { 0 });
        let subscribed = row(&result, "SUBSCRIBE");
        assert_eq!((&subscribed["operations"], &subscribed["failed"]), (&2.into(), &0.into()));
        assert_eq!(row(&result, "UNSUBSCRIBE")["operations"], 1);
        // The second one with a user that there is not.
        let connected = row(&result, "CONNECT");
        assert_eq!((&connected["operations"], &connected["failed"]), (&2.into(), &1.into()));
        assert_ne!(said["codes"][1], 0);
        let streams = &result["streams"];
        let counts = ["unmatched", "mistaken", "unanswered"].map(|name| streams[name].as_u64());
        assert_eq!(counts, [Some(0); 3], "{streams:#}");
    }
}

#[test]
fn every_message_of_its_own_publisher_is_an_operation() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    let port = address.port().to_string();
    for (version, quality) in [("311", "1"), ("311", "2"), ("5", "1"), ("5", "2")] {
        let publish =
            ["-p", &port, "-V", version, "-q", quality, "-t", "home/5/lamp", "-m", "on", "--repeat", "500"];
        let (_, result) = analyzed(address, &[], || succeed("mosquitto_pub", &publish));
        let published = row(&result, "PUBLISH");
        assert_eq!(
            (&published["operations"], &published["failed"]),
            (&500.into(), &0.into()),
            "{published:#}"
        );
        assert_eq!(row(&result, "CONNECT")["operations"], 1);
    }
}

/// A connection to which the broker has agreed.
pub(super) fn connect(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(b"\x10\x0e\0\x04MQTT\x04\x02\0\x3c\0\x02me").unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0x20, 2, 0, 0]);
    stream
}

/// A PUBLISH with QoS 1 and its identifier.
pub(super) fn publish(id: u16) -> Vec<u8> {
    [&b"\x32\x11\0\x0bhome/7/lamp"[..], &id.to_be_bytes(), b"on"].concat()
}

#[test]
fn every_pipelined_message_is_an_operation() {
    const BATCHES: u64 = 200;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    for pipelined in [1_u16, 4, 16] {
        let ((), result) = analyzed(address, &[], || {
            let mut stream = connect(address);
            let mut batch: Vec<u8> = (1..=pipelined).flat_map(publish).collect();
            batch.extend([0xc0, 0]);
            let mut answers = vec![0; usize::from(pipelined) * 4 + 2];
            for _ in 0..BATCHES {
                stream.write_all(&batch).unwrap();
                stream.read_exact(&mut answers).unwrap();
            }
        });
        let published = row(&result, "PUBLISH");
        let pipelined = u64::from(pipelined);
        assert_eq!(published["operations"], BATCHES * pipelined, "{published:#}");
        assert_eq!((&published["in_flight_max"], &published["failed"]), (&pipelined.into(), &0.into()));
        assert_eq!(row(&result, "PINGREQ")["operations"], BATCHES);
    }
}
