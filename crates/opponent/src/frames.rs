//! A run's packets as the bytes of a capture: headers, the messages' text, and the faults of capturing.

use capture::file::{InterfaceDescription, PcapngWriter};
use fastrand::Rng;
use iscsi::NO_TAG;
use iscsi::pdu::{DataIn, ScsiCommand};
use record::Side;
use tcpsim::tcp::Segment;
use tcpsim::{EPOCH_NS, Ns};

use crate::setup::{MS, Place, Protocol, Setup};
use crate::world::Outcome;

/// Hosts of clients; the lanes take turns on them.
pub const CLIENTS: usize = 4;

/// A packet between the hosts.
#[derive(Clone, Copy, Debug)]
pub enum Packet {
    /// A connection request.
    Syn,
    /// Its answer.
    SynAck,
    /// A reset in answer to a connection request.
    Refusal,
    /// The end of the handshake.
    Acknowledged {
        /// Offset of the peer's stream.
        ack: u64,
    },
    /// Data, or an acknowledgement.
    Data(Segment),
    /// The end of a stream.
    Fin {
        /// Offset of the sender's stream.
        seq: u64,
        /// Offset of the peer's.
        ack: u64,
    },
    /// The last acknowledgement.
    Last {
        /// Offset of the sender's stream.
        seq: u64,
        /// Offset of the peer's.
        ack: u64,
    },
    /// A reset.
    Reset {
        /// Offset of the sender's stream.
        seq: u64,
        /// Offset of the peer's.
        ack: u64,
    },
}

/// The fields of a packet's headers that its sender counts.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// Identification of the IP packet; 0: none.
    pub number: u16,
    /// The sender's timestamp, milliseconds (RFC 7323 TSval).
    pub clock: u32,
    /// The peer's last one (TSecr).
    pub echo: u32,
}

/// A place where packets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A side's host.
    Of(Side),
    /// Between them.
    Middle,
}

/// A packet at a capture point.
#[derive(Debug)]
struct Captured {
    at: Ns,
    interface: u8,
    data: Vec<u8>,
    wire_bytes: u32,
}

/// A message in a stream.
#[derive(Debug)]
struct Message {
    begin: u64,
    end: u64,
    header: Vec<u8>,
}

#[derive(Debug)]
struct Stream {
    lane: usize,
    port: u16,
    first: [u32; 2],
    messages: [Vec<Message>; 2],
}

/// Keeps the packets that pass the capture points of a setup.
#[derive(Debug)]
pub struct Recorder {
    points: Vec<Point>,
    frames: Vec<Captured>,
    streams: Vec<Stream>,
    chances: Rng,
}

/// A capture file, and where it was made.
#[derive(Clone, Debug)]
pub struct CaptureBytes {
    /// The file.
    pub pcapng: Vec<u8>,
    /// The side that `analyze` is told.
    pub place: Option<Side>,
}

const SYN: u8 = 0x02;
const FIN: u8 = 0x01;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Length of the header of a message, at least `least` bytes.
#[must_use]
pub fn header_bytes(setup: &Setup, side: Side, op: usize, body: u64, least: u64, outcome: Outcome) -> u64 {
    header(setup, side, op, body, least, outcome).len() as u64
}

fn header(setup: &Setup, side: Side, op: usize, body: u64, least: u64, outcome: Outcome) -> Vec<u8> {
    match setup.protocol {
        Protocol::Http => http(side, op, body, least, outcome),
        Protocol::Turns => {
            let mut bytes = vec![b'Q'];
            bytes.extend_from_slice(&(body as u32).to_be_bytes());
            bytes.extend_from_slice(&(op as u32).to_be_bytes());
            bytes.resize(least.max(9) as usize, b'.');
            bytes
        }
        Protocol::Iscsi => pdu(setup, side, op, body),
    }
}

fn http(side: Side, op: usize, body: u64, least: u64, outcome: Outcome) -> Vec<u8> {
    let first = match side {
        Side::Client if body > 0 => format!("POST /items/{op} HTTP/1.1\r\nHost: service\r\n"),
        Side::Client => format!("GET /items/{op} HTTP/1.1\r\nHost: service\r\n"),
        Side::Server if outcome == Outcome::Error => "HTTP/1.1 503 Service Unavailable\r\n".to_owned(),
        Side::Server => "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n".to_owned(),
    };
    let length =
        if side == Side::Client && body == 0 { String::new() } else { format!("Content-Length: {body}\r\n") };
    let bare = first.len() + length.len() + "X-Pad: \r\n\r\n".len();
    let padding = "x".repeat((least as usize).saturating_sub(bare));
    format!("{first}{length}X-Pad: {padding}\r\n\r\n").into_bytes()
}

fn pdu(setup: &Setup, side: Side, op: usize, body: u64) -> Vec<u8> {
    let (tag, number) = (op as u32 + 1, op as u32);
    let blocks = (setup.sizes[1].body / 512) as u16;
    let mut bhs = match side {
        Side::Client => {
            let mut cdb = [0; 16];
            cdb[0] = 0x28;
            cdb[2..6].copy_from_slice(&(number * 64).to_be_bytes());
            cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
            let command = ScsiCommand {
                is_final: true,
                read: true,
                tag,
                expected_bytes: u32::from(blocks) * 512,
                cmd_sn: number,
                exp_stat_sn: number,
                attribute_1: true,
                cdb,
                ..ScsiCommand::default()
            };
            command.write()
        }
        Side::Server => {
            let answer = DataIn {
                is_final: true,
                has_status: true,
                tag,
                transfer_tag: NO_TAG,
                stat_sn: number,
                exp_cmd_sn: number + 1,
                max_cmd_sn: number + 128,
                ..DataIn::default()
            };
            answer.write()
        }
    };
    bhs.0[5..8].copy_from_slice(&(body as u32).to_be_bytes()[1..]);
    bhs.0.to_vec()
}

impl Recorder {
    /// The capture points of a setup.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let points = match setup.tap.place {
            Place::Client => vec![Point::Of(Side::Client)],
            Place::Server => vec![Point::Of(Side::Server)],
            Place::Both | Place::Apart => vec![Point::Of(Side::Client), Point::Of(Side::Server)],
            Place::Middle => vec![Point::Middle],
        };
        let chances = Rng::with_seed(setup.seed ^ 0x7a9);
        Self { points, frames: Vec::new(), streams: Vec::new(), chances }
    }

    /// A connection of a lane begins.
    pub fn connection(&mut self, _: &Setup, lane: usize) {
        let first = [self.chances.u32(..), self.chances.u32(..)];
        let port = 32_768 + ((self.streams.len() * 7) % 28_000) as u16;
        self.streams.push(Stream { lane, port, first, messages: Default::default() });
    }

    /// A message has a place in a stream.
    #[allow(clippy::too_many_arguments, reason = "a message's place, and what its header depends on")]
    pub fn message(
        &mut self,
        connection: usize,
        side: Side,
        begin: u64,
        end: u64,
        op: usize,
        (outcome, body): (Outcome, u64),
        setup: &Setup,
    ) {
        let header = header(setup, side, op, body, end - begin - body, outcome);
        self.streams[connection].messages[side as usize].push(Message { begin, end, header });
    }

    /// A packet passes a point.
    pub fn frame(
        &mut self,
        point: Point,
        at: Ns,
        connection: usize,
        from: Side,
        (packet, stamp): (Packet, Stamp),
        setup: &Setup,
    ) {
        let Some(interface) = self.points.iter().position(|&other| other == point) else { return };
        let (data, wire_bytes) = self.bytes(point, connection, from, (packet, stamp), setup);
        self.frames.push(Captured { at, interface: interface as u8, data, wire_bytes });
    }

    fn bytes(
        &self,
        point: Point,
        connection: usize,
        from: Side,
        (packet, stamp): (Packet, Stamp),
        setup: &Setup,
    ) -> (Vec<u8>, u32) {
        let stream = &self.streams[connection];
        let buffers = setup.hosts.map(|host| host.receive_buffer);
        let shift = if buffers[from as usize] >= 8 << 20 { 10 } else { 7 };
        let offered = |bytes: u64| (bytes >> shift).min(65_535) as u16;
        let whole = offered(buffers[from as usize]);
        let (seq, ack, flags, window, payload) = match packet {
            Packet::Syn => (0, None, SYN, 64_240, None),
            Packet::SynAck => (0, Some(1), SYN | ACK, 65_160, None),
            Packet::Refusal => (0, Some(1), RST | ACK, 0, None),
            Packet::Acknowledged { ack } => (1, Some(ack + 1), ACK, whole, None),
            Packet::Fin { seq, ack } => (seq + 1, Some(ack + 1), FIN | ACK, whole, None),
            Packet::Last { seq, ack } => (seq + 1, Some(ack + 1), ACK, whole, None),
            Packet::Reset { seq, ack } => (seq + 1, Some(ack + 1), RST | ACK, 0, None),
            Packet::Data(s) => {
                let push = if s.push && s.bytes > 0 { PSH } else { 0 };
                (s.seq + 1, Some(s.ack + 1), ACK | push, offered(s.edge - s.ack), Some(s))
            }
        };
        let is_syn = flags & SYN != 0;
        let mss = (setup.path.mtu - 40) as u16;
        let mut options: Vec<u8> = Vec::with_capacity(20);
        if is_syn {
            options.extend_from_slice(&[2, 4, (mss >> 8) as u8, mss as u8, 1, 3, 3, shift]);
        }
        options.extend_from_slice(&[1, 1, 8, 10]);
        options.extend_from_slice(&stamp.clock.to_be_bytes());
        options.extend_from_slice(&stamp.echo.to_be_bytes());
        let bytes = payload.map_or(0, |segment| segment.bytes);
        let tcp_bytes = 20 + options.len();
        let total = 20 + tcp_bytes as u32 + bytes;
        let (client, server) = ([192, 0, 2, 10 + (stream.lane % CLIENTS) as u8], [192, 0, 2, 2]);
        let service = match setup.protocol {
            Protocol::Http => 80_u16,
            Protocol::Turns => 5432,
            Protocol::Iscsi => 3260,
        };
        let (source, destination) = if from == Side::Client { (client, server) } else { (server, client) };
        let ports = if from == Side::Client { [stream.port, service] } else { [service, stream.port] };
        let hops: u8 = match setup.path.rtt_ns {
            0..200_000 => 0,
            200_000..MS => 1,
            _ => 9,
        };
        let passed = match point {
            Point::Of(side) if side == from => 0,
            Point::Of(_) => hops,
            Point::Middle => hops / 2,
        };
        let mut data = Vec::with_capacity(14 + total as usize);
        data.extend_from_slice(&[2, 0, 0, 0, 0, destination[3], 2, 0, 0, 0, 0, source[3], 8, 0]);
        let ttl = setup.hosts[from as usize].ttl - passed;
        data.extend_from_slice(&[0x45, 0]);
        data.extend_from_slice(&(total.min(65_535) as u16).to_be_bytes());
        data.extend_from_slice(&stamp.number.to_be_bytes());
        data.extend_from_slice(&[0x40, 0, ttl, 6, 0, 0]);
        data.extend_from_slice(&source);
        data.extend_from_slice(&destination);
        ports.iter().for_each(|port| data.extend_from_slice(&port.to_be_bytes()));
        let first = &stream.first;
        let seq = first[from as usize].wrapping_add(seq as u32);
        let ack = ack.map_or(0, |ack| first[from.peer() as usize].wrapping_add(ack as u32));
        data.extend_from_slice(&seq.to_be_bytes());
        data.extend_from_slice(&ack.to_be_bytes());
        data.extend_from_slice(&[((tcp_bytes / 4) as u8) << 4, flags]);
        data.extend_from_slice(&window.to_be_bytes());
        data.extend_from_slice(&[0; 4]);
        data.extend_from_slice(&options);
        if let Some(segment) = payload {
            stream.append(&mut data, from, &segment);
        }
        let wire_bytes = data.len() as u32;
        if setup.tap.snap > 0 {
            data.truncate(setup.tap.snap as usize);
        }
        (data, wire_bytes)
    }

    /// The files.
    #[must_use]
    pub fn finish(mut self, setup: &Setup) -> Vec<CaptureBytes> {
        let tap = &setup.tap;
        self.frames.sort_by_key(|frame| frame.at);
        let begin = self.frames.first().map_or(0, |frame| frame.at);
        let end = self.frames.last().map_or(0, |frame| frame.at);
        let length = (end - begin).max(1);
        let dark: Vec<(Ns, Ns)> = (0..4)
            .map(|_| {
                let long = (tap.holes / 4.0 * length as f64) as Ns;
                let from = begin + self.chances.u64(length / 10..length.max(10) * 9 / 10 + 1);
                (from, from + long)
            })
            .collect();
        let middle = begin + length / 2;
        let seen_from = if tap.late { begin + length / 10 } else { 0 };
        let (chances, apart) = (&mut self.chances, tap.place == Place::Apart);
        let files = if apart { 2 } else { 1 };
        let mut outs: Vec<Out> =
            (0..files).map(|_| Out::new(if apart { 1 } else { self.points.len() })).collect();
        let offset_ns = chances.u64(0..400 * MS);
        for frame in &self.frames {
            let is_dark = tap.holes > 0.0 && dark.iter().any(|&(from, to)| (from..to).contains(&frame.at));
            if frame.at < seen_from || is_dark {
                continue;
            }
            let mut at = EPOCH_NS + frame.at;
            // One of two clocks is set.
            if frame.at > middle && !(apart && frame.interface == 1) {
                at = at.saturating_add_signed(tap.step_ns);
            }
            let (file, interface) =
                if apart { (usize::from(frame.interface), 0) } else { (0, frame.interface) };
            if file == 1 {
                at += offset_ns;
            }
            outs[file].frame(at, interface, frame);
            if tap.doubled {
                outs[file].frame(at + 500 + chances.u64(0..2_000), interface, frame);
            }
        }
        let place = |file: usize| match tap.place {
            Place::Client => tap.is_told.then_some(Side::Client),
            Place::Server => tap.is_told.then_some(Side::Server),
            Place::Apart => Some(if file == 0 { Side::Client } else { Side::Server }),
            Place::Both | Place::Middle => None,
        };
        outs.into_iter()
            .enumerate()
            .map(|(file, out)| CaptureBytes { pcapng: out.finish(), place: place(file) })
            .collect()
    }
}

impl Stream {
    fn append(&self, data: &mut Vec<u8>, from: Side, segment: &Segment) {
        let messages = &self.messages[from as usize];
        let (mut at, until) = (segment.seq, segment.end());
        let mut place = messages.partition_point(|message| message.end <= at);
        while at < until {
            let Some(message) = messages.get(place) else {
                data.resize(data.len() + (until - at) as usize, 0);
                return;
            };
            let end = message.end.min(until);
            let offset = (at - message.begin) as usize;
            let to = ((end - message.begin) as usize).min(message.header.len());
            let from = offset.min(to);
            data.extend_from_slice(&message.header[from..to]);
            let rest = (end - at) as usize - (to - from);
            data.resize(data.len() + rest, b'.');
            at = end;
            place += 1;
        }
    }
}

/// A file that is written.
struct Out(PcapngWriter<Vec<u8>>);

impl Out {
    fn new(interfaces: usize) -> Self {
        let mut out = PcapngWriter::new(Vec::new(), "opponent").expect("memory takes it");
        for number in 0..interfaces {
            let description = InterfaceDescription {
                name: format!("point{number}"),
                description: None,
                link: 1,
                snap_bytes: 0,
                bits_per_second: None,
            };
            out.interface(&description).expect("memory takes it");
        }
        Self(out)
    }

    fn frame(&mut self, at: Ns, interface: u8, frame: &Captured) {
        let written = self.0.frame(interface.into(), at, None, &frame.data, frame.wire_bytes, None);
        written.expect("memory takes it");
    }

    fn finish(self) -> Vec<u8> {
        self.0.finish().expect("memory takes it")
    }
}
