//! Captures of real servers that lost one packet, each in turn: only the operations of the batch that it touched change.

use std::collections::BTreeSet;
use std::io::{Cursor, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use analyzer::{Analysis, Input, Named, Options};
use capture::file::{CaptureFile, InterfaceDescription, PcapngWriter};
use record::{Observed, Side};

use super::free_address;
use crate::common::daemon::Daemon;
use crate::common::live::{captured, may_capture};
use crate::common::succeed;

/// Batches of a conversation.
const BATCHES: usize = 12;
/// TCP header without options.
const TCP_BYTES: usize = 20;

/// A packet of a capture on loopback.
pub(crate) struct Packet {
    time_ns: u64,
    bytes: Vec<u8>,
    /// Its sender, if it has data.
    data_of: Option<Side>,
}

/// An operation: its name, when its request began, and when its answer ended.
type Op = (String, u64, u64);

/// The packets of a capture file of IPv4 on loopback.
pub(crate) fn packets(file: &Path, port: u16) -> (u32, Vec<Packet>) {
    let mut file = CaptureFile::open(file).unwrap();
    let mut all: Vec<Packet> = Vec::new();
    while let Some(frame) = file.next_frame().unwrap() {
        // Loopback shows each packet as it leaves and as it arrives.
        let is_copy = all.iter().rev().take(8).any(|before| before.bytes == frame.data);
        if is_copy {
            continue;
        }
        let tcp = 14 + usize::from(frame.data[14] & 15) * 4;
        let data = tcp + usize::from(frame.data[tcp + 12] >> 4) * 4;
        assert!(data >= tcp + TCP_BYTES);
        let is_server = frame.data[tcp..tcp + 2] == port.to_be_bytes();
        let side = if is_server { Side::Server } else { Side::Client };
        let data_of = (frame.data.len() > data).then_some(side);
        all.push(Packet { time_ns: frame.time_ns, bytes: frame.data.to_vec(), data_of });
    }
    (file.interfaces()[0].link, all)
}

/// A capture file of packets, of each of which it has so many bytes at most.
pub(crate) fn written<'a>(
    link: u32,
    packets: impl IntoIterator<Item = &'a Packet>,
    most: usize,
) -> CaptureFile {
    let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
    let description = InterfaceDescription {
        name: "lo".to_owned(),
        description: None,
        link,
        snap_bytes: 0,
        bits_per_second: None,
    };
    let interface = writer.interface(&description).unwrap();
    for packet in packets {
        let (length, captured) = (packet.bytes.len(), packet.bytes.len().min(most));
        let data = &packet.bytes[..captured];
        writer.frame(interface, packet.time_ns, None, data, length as u32, None).unwrap();
    }
    CaptureFile::read("test", Box::new(Cursor::new(writer.finish().unwrap()))).unwrap()
}

/// The operations of a capture without one of its packets.
fn operations(link: u32, packets: &[Packet], without: Option<usize>) -> BTreeSet<Op> {
    let left = packets.iter().enumerate().filter(|(i, _)| Some(*i) != without).map(|(_, packet)| packet);
    let file = written(link, left, usize::MAX);
    let mut found = BTreeSet::new();
    let mut take = |observed: &Observed, named: &Named<'_>| {
        let seen = &observed.detail;
        let name = format!("{} {}", seen.op.verb.name(), named.key);
        found.insert((name, seen.request.began.ns().unwrap(), seen.response.ended.ns().unwrap()));
    };
    let inputs = vec![Input { file, place: None }];
    Analysis::run(inputs, &Options::default(), Some(&mut take), &mut |_| (), &|| false).unwrap();
    found
}

/// The times at which batches of a client that waits for all answers begin: its packets behind one of the server.
fn turns(packets: &[Packet]) -> Vec<u64> {
    let data = packets.iter().filter_map(|packet| Some((packet.data_of?, packet.time_ns)));
    let mut before = Side::Server;
    let mut begins = Vec::new();
    for (side, time_ns) in data {
        if side == Side::Client && before == Side::Server {
            begins.push(time_ns);
        }
        before = side;
    }
    begins
}

/// Deletes each packet with data of a conversation in turn, from its batch number `setup` on. The conversation returns when its
/// batches began, if it knows.
fn each_packet(server: SocketAddr, setup: usize, talk: impl FnOnce() -> Option<Vec<u64>>) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcapng");
    let (begins, _) = captured("lo", server.port(), &file, || Ok(()), talk);
    let (link, packets) = packets(&file, server.port());
    let begins = begins.unwrap_or_else(|| turns(&packets));
    assert!(begins.len() >= setup + BATCHES, "{} batches", begins.len());
    let whole = operations(link, &packets, None);
    let mut wrong = Vec::new();
    for (at, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.data_of.is_some()) {
        let Some(batch) = begins.iter().rposition(|&ns| ns <= packet.time_ns).filter(|&n| n >= setup) else {
            continue;
        };
        let until = begins.get(batch + 1).copied().unwrap_or(u64::MAX);
        let is_touched = |op: &&Op| (begins[batch]..until).contains(&op.1);
        let left = operations(link, &packets, Some(at));
        let others =
            |all: &BTreeSet<Op>| all.iter().filter(|op| !is_touched(op)).cloned().collect::<Vec<_>>();
        let (expected, found) = (others(&whole), others(&left));
        if expected != found {
            let without = |some: &[Op], others: &[Op]| -> Vec<String> {
                let only = some.iter().filter(|op| !others.contains(op));
                only.map(|(name, began, _)| {
                    format!("{name} of batch {:?}", begins.iter().rposition(|ns| ns <= began))
                })
                .collect()
            };
            let (lost, invented) = (without(&expected, &found), without(&found, &expected));
            let side = packet.data_of;
            wrong.push(format!(
                "packet {at} of the {side:?}, batch {batch}: lost {lost:?}, invented {invented:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} packets:\n{}", wrong.len(), packets.len(), wrong.join("\n"));
}

/// Sends a batch in pieces, so that it is several packets, and reads its answers. Returns when it began.
fn batch(stream: &mut TcpStream, requests: &[u8], piece: usize, answers: usize) -> u64 {
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    for piece in requests.chunks(piece) {
        stream.write_all(piece).unwrap();
    }
    let mut answer = vec![0; answers];
    stream.read_exact(&mut answer).unwrap();
    begun.as_nanos() as u64
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

#[test]
fn a_packet_of_redis_that_was_not_captured_shifts_nothing() {
    let Some(_alone) = may_capture() else { return };
    let address = free_address();
    let _server = super::redis::server(address);
    each_packet(address, 1, || {
        let mut stream = connect(address);
        let one = |_| {
            let mut requests = String::new();
            let mut answer = 0;
            for k in 0..6 {
                requests += &format!("*3\r\n$3\r\nSET\r\n$1\r\n{k}\r\n$5\r\nhello\r\n");
                requests += &format!("*2\r\n$3\r\nGET\r\n$1\r\n{k}\r\n");
                answer += "+OK\r\n$5\r\nhello\r\n".len();
            }
            batch(&mut stream, requests.as_bytes(), 53, answer)
        };
        Some((0..=BATCHES).map(one).collect())
    });
}

#[test]
fn a_packet_of_memcached_that_was_not_captured_shifts_nothing() {
    let Some(_alone) = may_capture() else { return };
    let address = free_address();
    let mut server = Command::new("memcached");
    server.args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-U", "0", "-u", "nobody"]);
    let _server = Daemon::start(&mut server, address);
    each_packet(address, 1, || {
        let mut stream = connect(address);
        let one = |_| {
            let mut requests = String::new();
            let mut answer = 0;
            for k in 0..6 {
                requests += &format!("set key:{k} 0 0 5\r\nhello\r\nget key:{k}\r\nget none:{k}\r\n");
                answer += "STORED\r\nVALUE key:1 0 5\r\nhello\r\nEND\r\nEND\r\n".len();
            }
            batch(&mut stream, requests.as_bytes(), 53, answer)
        };
        Some((0..=BATCHES).map(one).collect())
    });
}

#[test]
fn a_packet_of_mqtt_that_was_not_captured_shifts_nothing() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = super::mqtt::start(folder.path(), address);
    each_packet(address, 2, || {
        let mut stream = super::mqtt::connect(address);
        let mut id = 0;
        let one = |_| {
            let mut requests = Vec::new();
            for _ in 0..6 {
                id += 1;
                requests.extend(super::mqtt::publish(id));
            }
            requests.extend([0xc0, 0]);
            batch(&mut stream, &requests, 53, 6 * 4 + 2)
        };
        Some((0..=BATCHES + 1).map(one).collect())
    });
}

/// Several connections at once, from the capture that corpus/decoders has: no operations change but those that were in flight.
#[test]
fn a_packet_of_mongodb_that_was_not_captured_shifts_nothing() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/decoders/mongodb.pcapng.zst");
    let (link, packets) = packets(&file, 27017);
    let whole = operations(link, &packets, None);
    assert!(whole.len() > 100);
    for (at, packet) in packets.iter().enumerate().filter(|(_, packet)| packet.data_of.is_some()) {
        let left = operations(link, &packets, Some(at));
        let others = |all: &BTreeSet<Op>| -> Vec<Op> {
            all.iter().filter(|op| !(op.1..=op.2).contains(&packet.time_ns)).cloned().collect()
        };
        assert_eq!(others(&left), others(&whole), "packet {at} of the {:?}", packet.data_of);
    }
}

#[test]
fn a_packet_of_amqp_that_was_not_captured_shifts_nothing() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = super::amqp::start(folder.path(), address);
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    each_packet(address, 1, || {
        let mut stream = super::amqp::connect(address);
        let one = |number| {
            // A client that waits for each acknowledgement shows behind a hole which one comes next.
            let begun = now();
            for piece in super::amqp::publish().chunks(21) {
                stream.write_all(piece).unwrap();
            }
            super::amqp::await_tag(&mut stream, number);
            begun
        };
        Some((1..=BATCHES as u64 + 1).map(one).collect())
    });
}

#[test]
fn a_packet_of_postgres_that_was_not_captured_shifts_nothing() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = super::postgres::start(folder.path(), address);
    let script = folder.path().join("pipeline.sql");
    // Answers of several packets: the server sends 8 KiB at a time.
    let statements = "select repeat('x', 3000);\nselect 1;\nselect repeat('x', 9000);\nselect 2;\n".repeat(2);
    std::fs::write(&script, format!("\\startpipeline\n{statements}\\endpipeline\n")).unwrap();
    let (port, batches) = (address.port().to_string(), (BATCHES + 1).to_string());
    let to = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "postgres"];
    let bench = ["-n", "-M", "prepared", "-t", &batches, "-f", script.to_str().unwrap()];
    each_packet(address, 12, || {
        succeed(&super::postgres::program("pgbench").display().to_string(), &[&bench[..], &to].concat());
        None
    });
}
