//! Simulated traffic as a capture file: the segments at both capture points. The simulation counts bytes only, so the
//! iSCSI PDUs or HTTP messages are generated here.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, Write};

use capture::file::{InterfaceDescription, PcapngWriter};
use iscsi::pdu::{DataIn, ScsiCommand, ScsiResponse};
use iscsi::{Bhs, NO_TAG};
use record::{OpKind, Side, Verb};
use tcpsim::{EPOCH_NS, Frame, Message, Observer, Setup, SimOp};

/// LINKTYPE_ETHERNET.
const ETHERNET: u32 = 1;
/// Bytes of the smallest frame, without its checksum (IEEE 802.3): the sender's device pads shorter ones after the capture point.
const FRAME_LEAST_BYTES: usize = 60;
/// Window scale of both sides (RFC 7323).
const WINDOW_SHIFT: u8 = 7;
/// Acknowledged messages that are kept, because a late retransmission may still contain them.
const KEPT_MESSAGES: usize = 4096;

/// TCP flags.
const SYN: u8 = 0x02;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// A frame that waits for earlier ones. The order of the fields is the order of frames: by time, then as they were made.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    time_ns: u64,
    order: u64,
    interface: u32,
    is_outgoing: bool,
    bytes: Vec<u8>,
}

/// A connection's direction.
#[derive(Clone, Copy, Debug)]
struct Direction {
    session: u32,
    sender: Side,
}

/// The fields of a TCP header that change from segment to segment.
#[derive(Clone, Copy, Debug)]
struct Fields {
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    /// Identification of the IP packet; 0: none.
    ip_id: u16,
}

/// Writes frames in order of time.
struct Writer<W: Write> {
    out: PcapngWriter<W>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    order: u64,
}

/// Writes every frame of a simulation as pcapng, an interface for each side.
pub struct Packets<'a, W: Write> {
    setup: &'a Setup,
    verb: Verb,
    writer: Writer<W>,
    /// The messages of each session's two directions.
    streams: Vec<[VecDeque<Message>; 2]>,
    failure: Option<io::Error>,
    /// Called with every operation.
    ops: Option<&'a mut dyn FnMut(&SimOp)>,
    is_stopped: &'a dyn Fn() -> bool,
}

impl<W: Write> std::fmt::Debug for Packets<'_, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packets").field("verb", &self.verb).finish_non_exhaustive()
    }
}

impl<'a, W: Write> Packets<'a, W> {
    /// Begins a capture with the handshake of each connection.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn new(
        out: W,
        setup: &'a Setup,
        ops: Option<&'a mut dyn FnMut(&SimOp)>,
        is_stopped: &'a dyn Fn() -> bool,
    ) -> io::Result<Self> {
        let mut out = PcapngWriter::new(out, "roundtrip simulate")?;
        for (name, description) in [("client", "the client's capture point"), ("server", "the server's")] {
            out.interface(&InterfaceDescription {
                name: name.into(),
                description: Some(description.into()),
                link: ETHERNET,
                snap_bytes: 0,
                bits_per_second: (setup.wire.bandwidth > 0).then_some(setup.wire.bandwidth),
            })?;
        }
        if !matches!(setup.verb(), Verb::Scsi(_)) {
            let second = setup.second();
            for (sender, size) in
                [(Side::Client, setup.request), (Side::Server, setup.response), (Side::Server, second)]
            {
                let needed = http_header(setup.verb(), sender, 0, size.data).len();
                if (size.header as usize) < needed {
                    let key = if sender == Side::Client { "request" } else { "response" };
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!(
                            "{key}.header: {} bytes cannot hold HTTP; use at least {needed}, or {} and whole words of data \
                             for iSCSI",
                            size.header,
                            record::wire::ISCSI_HEADER_BYTES
                        ),
                    ));
                }
            }
        }
        let mut packets = Self {
            setup,
            verb: setup.verb(),
            writer: Writer { out, waiting: BinaryHeap::new(), order: 0 },
            streams: (0..setup.sessions).map(|_| Default::default()).collect(),
            failure: None,
            ops,
            is_stopped,
        };
        (0..setup.sessions).for_each(|session| packets.shake_hands(session));
        Ok(packets)
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// The first error of writing.
    pub fn finish(mut self) -> io::Result<W> {
        match self.failure.take() {
            Some(error) => Err(error),
            None => self.writer.out.finish(),
        }
    }

    /// Adds a handshake, which the simulation does not have: three segments in the microseconds before it begins.
    fn shake_hands(&mut self, session: u32) {
        let buffers = [self.setup.client.receive_buffer, self.setup.server.receive_buffer];
        for (before_ns, sender, flags) in
            [(3_000, Side::Client, SYN), (2_000, Side::Server, SYN | ACK), (1_000, Side::Client, ACK)]
        {
            let is_syn = flags & SYN != 0;
            let mss = self.setup.wire.mtu.saturating_sub(40) as u16;
            let options: &[u8] = &[2, 4, (mss >> 8) as u8, mss as u8, 1, 3, 3, WINDOW_SHIFT];
            let (seq, ack) = (u32::from(!is_syn), u32::from(flags & ACK != 0));
            let window = if is_syn { u64::from(u16::MAX) } else { buffers[sender as usize] >> WINDOW_SHIFT };
            let window = window.min(u16::MAX.into()) as u16;
            let bytes = self.header(
                Direction { session, sender },
                Fields { seq, ack, flags, window, ip_id: 0 },
                EPOCH_NS - before_ns,
                if is_syn { options } else { &[] },
                0,
            );
            for point in [Side::Client, Side::Server] {
                self.keep(EPOCH_NS - before_ns, point, sender, bytes.clone());
            }
        }
    }

    fn keep(&mut self, time_ns: u64, point: Side, sender: Side, mut bytes: Vec<u8>) {
        if point != sender && bytes.len() < FRAME_LEAST_BYTES {
            bytes.resize(FRAME_LEAST_BYTES, 0);
        }
        let is_outgoing = (point == Side::Client) == (sender == Side::Client);
        self.writer.order += 1;
        let order = self.writer.order;
        let frame = Waiting { time_ns, order, interface: point as u32, is_outgoing, bytes };
        self.writer.waiting.push(Reverse(frame));
    }

    /// Ethernet, IPv4 and TCP headers, with capacity for `payload` bytes after them.
    fn header(
        &self,
        direction: Direction,
        fields: Fields,
        time_ns: u64,
        options: &[u8],
        payload: usize,
    ) -> Vec<u8> {
        let Direction { session, sender } = direction;
        let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 2]);
        let (from, to) = if sender == Side::Client { (client, server) } else { (server, client) };
        let service = if matches!(self.verb, Verb::Scsi(_)) { 3260_u16 } else { 80 };
        let own = 40_000 + session as u16;
        let (source, destination) = if sender == Side::Client { (own, service) } else { (service, own) };
        let timestamps = self.setup.wire.timestamps;
        let tcp_bytes = 20 + options.len() + if timestamps { 12 } else { 0 };
        let mut bytes = Vec::with_capacity(14 + 20 + tcp_bytes + payload);
        bytes.extend_from_slice(&[2, 0, 0, 0, 0, to[3], 2, 0, 0, 0, 0, from[3], 8, 0]);
        let total = (20 + tcp_bytes + payload) as u16;
        let mut ip =
            [0x45, 0, (total >> 8) as u8, total as u8, 0, 0, 0x40, 0, 64, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        ip[4..6].copy_from_slice(&fields.ip_id.to_be_bytes());
        ip[12..16].copy_from_slice(&from);
        ip[16..20].copy_from_slice(&to);
        let sum: u32 = ip.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend_from_slice(&ip);
        bytes.extend_from_slice(&source.to_be_bytes());
        bytes.extend_from_slice(&destination.to_be_bytes());
        bytes.extend_from_slice(&fields.seq.to_be_bytes());
        bytes.extend_from_slice(&fields.ack.to_be_bytes());
        bytes.extend_from_slice(&[((tcp_bytes / 4) as u8) << 4, fields.flags]);
        bytes.extend_from_slice(&fields.window.to_be_bytes());
        // No checksum, as with checksum offload; no urgent pointer.
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(options);
        if timestamps {
            bytes.extend_from_slice(&[1, 1, 8, 10]);
            bytes.extend_from_slice(&((time_ns / 1_000_000) as u32).to_be_bytes());
            bytes.extend_from_slice(&[0; 4]);
        }
        bytes
    }

    /// The header of a message.
    fn message_header(&self, message: &Message) -> Vec<u8> {
        let size = if message.sender == Side::Client {
            self.setup.request
        } else {
            self.setup.response_of(message.session)
        };
        match self.verb {
            Verb::Scsi(code) => self.pdu(code, message, size.data).0.to_vec(),
            verb => http_header(verb, message.sender, size.header.into(), size.data),
        }
    }

    fn pdu(&self, code: u8, message: &Message, data: u64) -> Bhs {
        let blocks = (self.setup.data_of(message.session) / 512) as u16;
        let number = (message.end / self.message_bytes(message.session, message.sender)) as u32;
        let mut bhs = match message.sender {
            Side::Client => {
                let mut cdb = [0; 16];
                cdb[0] = code;
                cdb[2..6].copy_from_slice(&(message.tag % 1_000_000).to_be_bytes());
                cdb[7..9].copy_from_slice(&blocks.to_be_bytes());
                let command = ScsiCommand {
                    is_final: true,
                    read: self.setup.kind() == OpKind::Read,
                    write_data: self.setup.kind() == OpKind::Write,
                    tag: message.tag,
                    expected_bytes: u32::from(blocks) * 512,
                    cmd_sn: number,
                    exp_stat_sn: message.count as u32 + 1,
                    attribute_1: true,
                    cdb,
                    ..ScsiCommand::default()
                };
                command.write()
            }
            Side::Server => {
                let (exp_cmd_sn, max_cmd_sn) = (number + 1, number + self.setup.queue_depth.max(128));
                if data > 0 {
                    let answer = DataIn {
                        is_final: true,
                        has_status: true,
                        tag: message.tag,
                        transfer_tag: NO_TAG,
                        stat_sn: number,
                        exp_cmd_sn,
                        max_cmd_sn,
                        ..DataIn::default()
                    };
                    answer.write()
                } else {
                    let answer = ScsiResponse {
                        tag: message.tag,
                        stat_sn: number,
                        exp_cmd_sn,
                        max_cmd_sn,
                        ..ScsiResponse::default()
                    };
                    answer.write()
                }
            }
        };
        bhs.0[5..8].copy_from_slice(&(data as u32).to_be_bytes()[1..]);
        bhs
    }

    fn message_bytes(&self, session: u32, sender: Side) -> u64 {
        let size = if sender == Side::Client { self.setup.request } else { self.setup.response_of(session) };
        size.bytes()
    }

    /// Appends the payload of a segment.
    fn append(&self, bytes: &mut Vec<u8>, frame: &Frame) {
        let length = self.message_bytes(frame.session, frame.sender);
        let stream = &self.streams[frame.session as usize][frame.sender as usize];
        let (mut at, until) = (frame.segment.seq, frame.segment.end());
        let mut place = stream.partition_point(|message| message.end <= at);
        while at < until {
            let message = stream.get(place);
            let begin = message.map_or(at, |message| message.end - length);
            let end = message.map_or(until, |message| message.end).min(until);
            if let Some(message) = message.filter(|_| at < begin + length) {
                let header = self.message_header(message);
                let from = ((at - begin) as usize).min(header.len());
                let to = ((end - begin) as usize).min(header.len());
                bytes.extend_from_slice(&header[from..to]);
                let rest = (end - at) as usize - (to - from);
                bytes.resize(bytes.len() + rest, 0);
            } else {
                bytes.resize(bytes.len() + (end - at) as usize, 0);
            }
            at = end;
            place += 1;
        }
    }
}

impl<W: Write> Observer for Packets<'_, W> {
    const FRAMES: bool = true;

    fn op(&mut self, op: &SimOp) {
        if let Some(ops) = &mut self.ops {
            ops(op);
        }
    }

    fn message(&mut self, message: &Message) {
        let stream = &mut self.streams[message.session as usize][message.sender as usize];
        stream.push_back(*message);
    }

    fn frame(&mut self, frame: &Frame) {
        let segment = frame.segment;
        let push = if segment.push && segment.bytes > 0 { PSH } else { 0 };
        let window = ((segment.edge - segment.ack) >> WINDOW_SHIFT).min(u16::MAX.into()) as u16;
        // Sequence number 0 is the SYN.
        let (seq, ack) = ((segment.seq + 1) as u32, (segment.ack + 1) as u32);
        let fields = Fields { seq, ack, flags: ACK | push, window, ip_id: (frame.number + 1) as u16 };
        let direction = Direction { session: frame.session, sender: frame.sender };
        let time_ns = EPOCH_NS + frame.at;
        let mut bytes = self.header(direction, fields, time_ns, &[], segment.bytes as usize);
        self.append(&mut bytes, frame);
        self.keep(time_ns, frame.point, frame.sender, bytes);
        // Acknowledged messages are not retransmitted.
        let other = &mut self.streams[frame.session as usize][frame.sender.peer() as usize];
        while other.len() > KEPT_MESSAGES && other.front().is_some_and(|message| message.end <= segment.ack) {
            other.pop_front();
        }
    }

    fn tick(&mut self, now: u64) -> bool {
        let until = EPOCH_NS.saturating_add(now);
        while let Some(Reverse(first)) = self.writer.waiting.peek()
            && first.time_ns <= until
            && let Some(Reverse(Waiting { time_ns, interface, is_outgoing, bytes, .. })) =
                self.writer.waiting.pop()
        {
            let length = bytes.len() as u32;
            let written = self.writer.out.frame(interface, time_ns, Some(is_outgoing), &bytes, length, None);
            if let Err(error) = written {
                self.failure.get_or_insert(error);
                return false;
            }
        }
        self.failure.is_none() && !(self.is_stopped)()
    }
}

/// The header of an HTTP message, padded with spaces to its simulated length if that is longer.
fn http_header(verb: Verb, sender: Side, header_bytes: u64, data_bytes: u64) -> Vec<u8> {
    let first = match sender {
        Side::Client => format!("{} / HTTP/1.1\r\n", verb.name()),
        Side::Server => "HTTP/1.1 200 OK\r\n".to_owned(),
    };
    let length = data_bytes.to_string();
    let bare = first.len() + "Content-Length:\r\n\r\n".len() + length.len();
    let padding = " ".repeat((header_bytes as usize).saturating_sub(bare));
    format!("{first}Content-Length:{padding}{length}\r\n\r\n").into_bytes()
}
