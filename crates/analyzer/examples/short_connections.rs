//! How fast a capture of many short connections is analysed, and in how much memory.
//!
//!     cargo run --release -p analyzer --example short_connections -- FILE write [CONNECTIONS] [closed|open|middle]
//!     cargo run --release -p analyzer --example short_connections -- FILE
//!
//! The first writes the capture, the second analyses it. `closed`: each connection has a handshake, an HTTP exchange and both
//! FINs. `open`: the FINs are missing, so that the table is full of open connections. `middle`: only the exchange, of a
//! protocol and on ports that say nothing.
#![expect(clippy::print_stdout, reason = "an example")]

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use analyzer::{Analysis, Input, Options};
use capture::file::{CaptureFile, InterfaceDescription, PcapngWriter};

const SYN: u8 = 2;
const ACK: u8 = 16;
const FIN: u8 = 1;
const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: example.org\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: a\r\n\r\nhello";
/// LINKTYPE_RAW.
const RAW: u32 = 101;

/// The two ends of a connection: address and port.
struct Ends([(u32, u16); 2]);

/// An IPv4 packet of one end.
fn packet(ends: &Ends, from: usize, numbers: (u32, u32), flags: u8, payload: &[u8]) -> Vec<u8> {
    let ((source, source_port), (to, to_port)) = (ends.0[from], ends.0[1 - from]);
    let mut all = vec![0x45, 0];
    all.extend_from_slice(&(40 + payload.len() as u16).to_be_bytes());
    all.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
    all.extend_from_slice(&source.to_be_bytes());
    all.extend_from_slice(&to.to_be_bytes());
    all.extend_from_slice(&source_port.to_be_bytes());
    all.extend_from_slice(&to_port.to_be_bytes());
    all.extend_from_slice(&numbers.0.to_be_bytes());
    all.extend_from_slice(&numbers.1.to_be_bytes());
    all.extend_from_slice(&[0x50, flags, 1, 0xf4, 0, 0, 0, 0]);
    all.extend_from_slice(payload);
    all
}

fn write(path: &Path, connections: u32, kind: &str) -> io::Result<()> {
    let mut writer = PcapngWriter::new(BufWriter::new(File::create(path)?), "short_connections")?;
    let interface =
        writer.interface(&InterfaceDescription { name: "eth0".into(), link: RAW, ..Default::default() })?;
    let mut ns = 1_700_000_000_000_000_000;
    let is_middle = kind == "middle";
    for number in 0..connections {
        let client = (0x0a00_0001 + number / 28_000, 32_768 + (number % 28_000) as u16);
        let server = if is_middle { (0x0b00_0001 + number, 45_000) } else { (0x0b00_0001, 80) };
        let ends = Ends([client, server]);
        let (request, response) =
            if is_middle { ([1; 37].as_slice(), [2; 54].as_slice()) } else { (REQUEST, RESPONSE) };
        let (asked, answered) = (100 + request.len() as u32, 900 + response.len() as u32);
        let mut packets = Vec::with_capacity(9);
        if !is_middle {
            packets.push(packet(&ends, 0, (99, 0), SYN, b""));
            packets.push(packet(&ends, 1, (899, 100), SYN | ACK, b""));
            packets.push(packet(&ends, 0, (100, 900), ACK, b""));
        }
        packets.push(packet(&ends, 0, (100, 900), ACK, request));
        packets.push(packet(&ends, 1, (900, asked), ACK, response));
        packets.push(packet(&ends, 0, (asked, answered), ACK, b""));
        if kind == "closed" {
            packets.push(packet(&ends, 0, (asked, answered), FIN | ACK, b""));
            packets.push(packet(&ends, 1, (answered, asked + 1), FIN | ACK, b""));
            packets.push(packet(&ends, 0, (asked + 1, answered + 1), ACK, b""));
        }
        for packet in packets {
            ns += 10_000;
            writer.frame(interface, ns, None, &packet, packet.len() as u32, None)?;
        }
    }
    writer.finish()?.flush()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: FILE [write [CONNECTIONS] [closed|open|middle]]")?;
    let path = Path::new(&path);
    if arguments.next().as_deref() == Some("write") {
        let connections = arguments.next().map_or(Ok(200_000), |n| n.parse())?;
        return Ok(write(path, connections, &arguments.next().unwrap_or_else(|| "closed".to_owned()))?);
    }
    let begin = Instant::now();
    let inputs = vec![Input { file: CaptureFile::open(path)?, place: None }];
    let options = Options { modes: true, ..Options::default() };
    let result = Analysis::run(inputs, &options, None, &mut |_| (), &|| false)?;
    let seconds = begin.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM: unknown");
    println!(
        "{seconds:.3} s, {:.2} M packets/s, {} operations, {} dropped; {peak}",
        result.packets as f64 / seconds / 1e6,
        result.operations,
        result.frames.evicted
    );
    Ok(())
}
