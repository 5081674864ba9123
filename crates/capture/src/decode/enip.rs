//! EtherNet/IP: requests of the encapsulation protocol, and of CIP in them.
//!
//! A request is a command that has a reply, or the CIP request in it (ODVA, The CIP Networks Library, volume 2, 2-3 and 2-4). Replies to
//! SendRRData have the sender context of their request, those to SendUnitData its sequence count; clients that give all requests one
//! context have their replies in order. An Unconnected Send is the request that it carries. The operation is the CIP service; the key
//! is the prefix of the first tag's name, or the class of the object. The status is the encapsulation's or CIP's general one.

mod cip;

use record::{Side, Status, Word};

use super::numbers::Numbers;
use super::{Asked, Decoder, Length, Message, ProtocolEntry, Requests, Shown, Start};

/// EtherNet/IP, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "enip", begins, new: |shown| Box::new(Enip { shown, ..Enip::default() }) };

/// Port of the encapsulation protocol.
const PORT: u16 = 44818;
/// Bytes of the header.
const HEADER: usize = 24;
/// Most bytes behind it.
const DATA_MAX: u16 = 65_511;

const NOP: u16 = 0;
const LIST_SERVICES: u16 = 4;
const LIST_IDENTITY: u16 = 0x63;
const LIST_INTERFACES: u16 = 0x64;
const REGISTER: u16 = 0x65;
const UNREGISTER: u16 = 0x66;
const SEND_RR_DATA: u16 = 0x6f;
const SEND_UNIT_DATA: u16 = 0x70;
const INDICATE_STATUS: u16 = 0x72;
const CANCEL: u16 = 0x73;

/// Types of items.
const CONNECTED_ADDRESS: u16 = 0xa1;
const CONNECTED_DATA: u16 = 0xb1;
const UNCONNECTED_DATA: u16 = 0xb2;

/// A connection.
#[derive(Debug, Default)]
struct Enip {
    shown: Shown,
    contexts: Numbers,
    sequences: Numbers,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// A header, and what follows it.
#[derive(Clone, Copy, Debug)]
struct Packet<'a> {
    command: u16,
    length: usize,
    session: u32,
    status: u32,
    context: u64,
    data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// The packet of the side that begins with these bytes, of which the header is there.
    fn of(side: Side, bytes: &'a [u8]) -> Option<Self> {
        let (header, data) = bytes.split_first_chunk::<HEADER>()?;
        let (command, length) = (u16_at(header, 0)?, u16_at(header, 2)?);
        let [session, status, options] = [4, 8, 20].map(|at| u32_at(header, at).unwrap_or_default());
        let context = header.get(12..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        let is_client = side == Side::Client;
        let has_length = match command {
            NOP => is_client,
            // A reply that states an error has nothing else.
            _ if !is_client && length == 0 => status > 0,
            LIST_SERVICES | LIST_IDENTITY | LIST_INTERFACES => is_client == (length == 0),
            REGISTER => length == 4,
            UNREGISTER => is_client && length == 0,
            SEND_RR_DATA | SEND_UNIT_DATA => length >= 8,
            INDICATE_STATUS | CANCEL => true,
            _ => false,
        };
        let is_sound = options == 0 && (!is_client || status == 0) && length <= DATA_MAX && has_length;
        let length = HEADER + usize::from(length);
        let data = data.get(..data.len().min(length - HEADER))?;
        is_sound.then_some(Self { command, length, session, status, context, data })
    }

    /// The items of a command that carries CIP: the sequence count if it is connected, and the CIP message, as far as they are there.
    fn carried(&self) -> Option<(Option<u16>, &'a [u8])> {
        let (interface, count) = (u32_at(self.data, 0)?, u16_at(self.data, 6)?);
        if interface != 0 || !(1..=8).contains(&count) {
            return None;
        }
        let mut rest = self.data.get(8..)?;
        for _ in 0..count {
            let (kind, length) = (u16_at(rest, 0)?, usize::from(u16_at(rest, 2)?));
            let behind = rest.get(4..)?;
            let item = behind.get(..length.min(behind.len()))?;
            match kind {
                CONNECTED_DATA => return Some((Some(u16_at(item, 0)?), item.get(2..)?)),
                UNCONNECTED_DATA => return Some((None, item)),
                _ => {}
            }
            rest = behind.get(length..)?;
        }
        None
    }

    /// Whether its data are what its command has: items whose lengths add up, or the version of the protocol.
    fn has_sound_data(&self) -> bool {
        match self.command {
            REGISTER => self.status > 0 || self.data == [1, 0, 0, 0],
            SEND_RR_DATA | SEND_UNIT_DATA if self.status == 0 => self.session > 0 && self.has_items(),
            _ => false,
        }
    }

    fn has_items(&self) -> bool {
        let is_unit = self.command == SEND_UNIT_DATA;
        let (Some(0), Some(count)) = (u32_at(self.data, 0), u16_at(self.data, 6)) else { return false };
        let mut rest = self.data.get(8..).unwrap_or_default();
        for place in 0..count {
            let (Some(kind), Some(length)) = (u16_at(rest, 0), u16_at(rest, 2)) else { return false };
            let is_known = match (place, is_unit) {
                (0, true) => (kind, length) == (CONNECTED_ADDRESS, 4),
                (0, false) => (kind, length) == (0, 0),
                (1, true) => kind == CONNECTED_DATA && length >= 4,
                (1, false) => kind == UNCONNECTED_DATA && length >= 2,
                // Addresses of sockets.
                _ => (0x8000..=0x8003).contains(&kind),
            };
            let behind = rest.get(4 + usize::from(length)..);
            let (true, Some(behind)) = (is_known, behind) else { return false };
            rest = behind;
        }
        (2..=4).contains(&count) && rest.is_empty()
    }
}

/// Whether the bytes are packets of the side, of which the first proves it. The last may go on.
fn are_packets(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut is_proven = false;
    while rest.len() >= HEADER {
        let Some(packet) = Packet::of(side, rest) else { return false };
        let Some(behind) = rest.get(packet.length..) else { return is_proven };
        if !is_proven && !packet.has_sound_data() {
            return false;
        }
        (is_proven, rest) = (true, behind);
    }
    is_proven
}

/// Whether a client begins by asking which devices there are.
fn is_discovery(start: &Start<'_>) -> bool {
    let asks = |packet: Packet<'_>| {
        matches!(packet.command, LIST_SERVICES | LIST_IDENTITY | LIST_INTERFACES)
            && packet.session == 0
            && start.bytes.len() == HEADER
    };
    start.side == Side::Client && Packet::of(Side::Client, start.bytes).is_some_and(asks)
}

fn begins(start: &Start<'_>) -> bool {
    let is_port = start.is_at(PORT);
    (is_port || start.side == Side::Client) && are_packets(start.side, start.bytes)
        || is_port && is_discovery(start)
}

/// A number among those of requests of all commands.
fn number(packet: &Packet<'_>, sequence: Option<u16>) -> u64 {
    let (session, context) = (packet.session.to_le_bytes(), packet.context.to_le_bytes());
    match sequence {
        Some(count) => super::hash_of(&[&session[..], &count.to_le_bytes()].concat()),
        // The session is not known when it is asked for.
        None if packet.command == REGISTER => super::hash_of(&[&b"register"[..], &context].concat()),
        None => super::hash_of(&[&session[..], &context].concat()),
    }
}

/// The name of a command that carries no CIP.
fn command_name(command: u16) -> Option<Word> {
    let name = match command {
        LIST_SERVICES => "LIST_SERVICES",
        LIST_IDENTITY => "LIST_IDENTITY",
        LIST_INTERFACES => "LIST_INTERFACES",
        REGISTER => "REGISTER",
        _ => return None,
    };
    Some(Word::new(name.as_bytes()))
}

/// The status that the encapsulation states.
fn status(code: u32) -> Status {
    let name = match code {
        0 => return Status::Good,
        1 => "BAD_COMMAND",
        2 => "NO_MEMORY",
        3 => "BAD_DATA",
        0x64 => "BAD_SESSION",
        0x65 => "BAD_LENGTH",
        0x69 => "BAD_REVISION",
        other => return Status::Error(Word::new(format!("ENCAP_{other:02X}").as_bytes())),
    };
    Status::Error(Word::new(name.as_bytes()))
}

impl Decoder for Enip {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        match Packet::of(side, start) {
            Some(packet) => Length::Is(packet.length as u64),
            None if start.len() < HEADER => Length::More,
            None => Length::Invalid,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let Some(packet) = Packet::of(message.side, message.bytes) else { return };
        match message.side {
            Side::Client => self.request(&packet, requests),
            Side::Server => self.reply(&packet, requests),
        }
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        are_packets(side, start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        if side == Side::Server {
            self.contexts.lost_answers(requests);
            self.sequences.lost_answers(requests);
        }
    }
}

impl Enip {
    fn numbers(&mut self, sequence: Option<u16>) -> &mut Numbers {
        if sequence.is_some() { &mut self.sequences } else { &mut self.contexts }
    }

    fn request(&mut self, packet: &Packet<'_>, requests: &mut Requests) {
        let asked = |operation, key| Asked { operation, key, stream: 0 };
        if let Some(operation) = command_name(packet.command) {
            self.contexts.ask(number(packet, None), &asked(operation, ""), requests);
            return;
        }
        if !matches!(packet.command, SEND_RR_DATA | SEND_UNIT_DATA) {
            return;
        }
        let Some((sequence, message)) = packet.carried() else { return };
        if message.first().is_none_or(|service| service & cip::REPLY > 0) {
            return;
        }
        let (operation, key) = cip::request(message, self.shown);
        self.numbers(sequence).ask(number(packet, sequence), &asked(operation, &key), requests);
    }

    fn reply(&mut self, packet: &Packet<'_>, requests: &mut Requests) {
        let status = status(packet.status);
        if let Some(operation) = command_name(packet.command) {
            let may_be_of = |asked: &str| asked == operation.as_str();
            self.answered(packet, None, may_be_of, status, requests);
            return;
        }
        let carried = packet.carried().filter(|_| packet.status == 0);
        match (packet.command, carried) {
            (SEND_RR_DATA | SEND_UNIT_DATA, Some((sequence, message))) => {
                let Some(reply) = cip::Reply::of(message) else { return };
                let may_be_of = |asked: &str| reply.may_answer(asked);
                self.answered(packet, sequence, may_be_of, reply.status(), requests);
            }
            // What has failed is not repeated.
            (SEND_RR_DATA, None) if packet.status > 0 => {
                self.answered(packet, None, |_| true, status, requests);
            }
            _ => {}
        }
    }

    fn answered(
        &mut self,
        packet: &Packet<'_>,
        sequence: Option<u16>,
        may_be_of: impl Fn(&str) -> bool,
        status: Status,
        requests: &mut Requests,
    ) {
        let number = number(packet, sequence);
        if let Some(of) = self.numbers(sequence).answer(number, may_be_of, requests) {
            requests.answered(of, status);
        }
    }
}

#[cfg(test)]
mod tests;
