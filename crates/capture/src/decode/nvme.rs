//! NVMe/TCP: commands of a queue, paired by their identifiers.
//!
//! A connection is a queue. A request is a command with its data; it ends with its response, or with the last data that says so (flag
//! SUCCESS). Identify, Connect and others of the admin queue have their names; its opcodes are told from those of I/O queues by the
//! Connect command. Asynchronous Event Requests wait for events and are not told. The key is the size that a command moves.
//! Queues that are encrypted (TLS) are not decoded.

mod names;

use record::{Side, Status, Word};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Start};

/// NVMe/TCP, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "nvme", begins, new: |_| Box::new(Nvme::default()) };

/// Lengths of the headers, by which a PDU's fields can be judged.
const INITIALIZE: u8 = 128;
const COMMAND: u8 = 72;
const OTHER: u8 = 24;
/// Most data of one PDU.
const DATA_MAX: u32 = 64 << 20;
/// Asynchronous Event Requests that wait: controllers allow a few.
const EVENTS_MAX: usize = 256;

/// Flags of a PDU: digests of its header and of its data, its data are the last, and the command has succeeded.
const HEADER_DIGEST: u8 = 1;
const DATA_DIGEST: u8 = 2;
const LAST: u8 = 4;
const SUCCESS: u8 = 8;

/// Types of PDUs.
const IC_REQ: u8 = 0;
const IC_RESP: u8 = 1;
const CAPSULE_CMD: u8 = 4;
const CAPSULE_RESP: u8 = 5;
const H2C_DATA: u8 = 6;
const C2H_DATA: u8 = 7;
const R2T: u8 = 9;

/// Which commands a queue has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Queue {
    #[default]
    Unknown,
    Admin,
    Io,
}

/// A connection.
#[derive(Debug, Default)]
struct Nvme {
    queue: Queue,
    /// The identifiers of the Asynchronous Event Requests that wait.
    events: Vec<u16>,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn byte_at(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or_default()
}

/// How long the PDU is of which at least 24 bytes are there, if all that is known of its type holds.
fn pdu(side: Side, bytes: &[u8]) -> Option<u64> {
    let &[kind, flags, header, data_at, p0, p1, p2, p3, ..] = bytes else { return None };
    let length = u32::from_le_bytes([p0, p1, p2, p3]);
    let digest = |flag: u8| if flags & flag > 0 { 4 } else { 0 };
    // Data begin behind the header and its digest, at a multiple of four bytes up to 128 (CPDA, HPDA).
    let (least, place) = (u32::from(header) + digest(HEADER_DIGEST), u32::from(data_at));
    let has_data = |data: u32| {
        data <= DATA_MAX && place >= least && place % 4 == 0 && length == place + data + digest(DATA_DIGEST)
    };
    let is_sound = match (side, kind) {
        (Side::Client, IC_REQ) | (Side::Server, IC_RESP) => {
            let is_blank = bytes.iter().take(usize::from(INITIALIZE)).skip(16).all(|&b| b == 0);
            let (version, alignment, digests) = (u16_at(bytes, 8), byte_at(bytes, 10), byte_at(bytes, 11));
            (flags, header, data_at, length) == (0, INITIALIZE, 0, INITIALIZE.into())
                && (version == 0 && alignment < 32 && digests <= 3 && is_blank)
        }
        (Side::Client, 2) | (Side::Server, 3) => {
            (flags, header) == (0, OTHER)
                && (24..=152).contains(&length)
                && (1..=7).contains(&u16_at(bytes, 8))
        }
        (Side::Client, CAPSULE_CMD) => {
            // All commands have scatter-gather lists.
            let is_command = header == COMMAND && flags <= 3 && byte_at(bytes, 9) & 0xfc == 0x40;
            let is_alone = data_at == 0 || place == length || place == least;
            let has_own = length.checked_sub(place + digest(DATA_DIGEST)).is_some_and(has_data);
            is_command && (length == least && is_alone || place > 0 && has_own)
        }
        (Side::Server, CAPSULE_RESP) => (header, length) == (OTHER, least) && flags <= 1 && data_at == 0,
        (Side::Server, R2T) => (header, length) == (OTHER, least) && flags <= 1,
        (Side::Client, H2C_DATA) => header == OTHER && flags <= 7 && has_data(u32_at(bytes, 16)),
        (Side::Server, C2H_DATA) => {
            let is_success = flags & (LAST | SUCCESS) == SUCCESS;
            header == OTHER && flags <= 0xf && !is_success && has_data(u32_at(bytes, 16))
        }
        _ => false,
    };
    is_sound.then(|| u64::from(length))
}

/// Whether the bytes begin PDUs of the side, as far as they are there.
fn are_pdus(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let is_first_whole = rest.len() >= usize::from(OTHER);
    while rest.len() >= usize::from(OTHER) {
        let Some(length) = pdu(side, rest) else { return false };
        rest = usize::try_from(length).ok().and_then(|length| rest.get(length..)).unwrap_or_default();
    }
    is_first_whole
}

fn begins(start: &Start<'_>) -> bool {
    are_pdus(start.side, start.bytes)
}

/// The size that a command moves.
fn size(bytes: u32) -> String {
    match bytes {
        0 => String::new(),
        _ if bytes.is_multiple_of(1 << 20) => format!("{}M", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// The status that a field of a completion states: the lowest bit is its phase.
fn status(field: u16) -> Status {
    let (code, kind) = (field >> 1 & 0xff, field >> 9 & 7);
    let text = match (kind, code) {
        (0, 0) => return Status::Good,
        (0, 4 | 6) => "INTERNAL".to_owned(),
        (0, 0x82) => "NOT_READY".to_owned(),
        (2, _) => format!("MEDIA_{code:02X}"),
        (3, _) => format!("PATH_{code:02X}"),
        _ => format!("{kind}/{code:02X}"),
    };
    Status::Error(Word::new(text.as_bytes()))
}

impl Decoder for Nvme {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        match pdu(side, start) {
            _ if start.len() < usize::from(OTHER) => Length::More,
            Some(length) => Length::Is(length),
            None => Length::Invalid,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let bytes = message.bytes;
        let id = u16_at(bytes, 8);
        let of = Of::Id(id.into());
        match byte_at(bytes, 0) {
            CAPSULE_CMD => self.command(bytes, requests),
            CAPSULE_RESP => self.response(bytes, requests),
            R2T => requests.asks_for_data(of),
            H2C_DATA => {
                requests.ask_more(of);
                if byte_at(bytes, 1) & LAST > 0 {
                    requests.asked(of);
                }
            }
            C2H_DATA => {
                // The first data may be in the hole.
                if requests.is_doubtful(of) && u32_at(bytes, 12) != 0 {
                    return requests.drop_doubtful(of);
                }
                requests.answer(of);
                if byte_at(bytes, 1) & SUCCESS > 0 {
                    requests.answered(of, Status::Good);
                }
            }
            _ => {}
        }
    }

    fn kept(&self) -> usize {
        usize::from(INITIALIZE)
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        are_pdus(side, start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        match side {
            Side::Client => requests.lost_numbered_requests(),
            Side::Server => requests.lost_numbered_answers(|_| false),
        }
    }
}

impl Nvme {
    fn command(&mut self, bytes: &[u8], requests: &mut Requests) {
        let (opcode, id, namespace) = (byte_at(bytes, 8), u16_at(bytes, 10), u32_at(bytes, 12));
        if opcode == names::FABRICS && byte_at(bytes, 12) == names::CONNECT {
            self.queue = if u16_at(bytes, 50) == 0 { Queue::Admin } else { Queue::Io };
        }
        let is_admin = match self.queue {
            Queue::Unknown => names::is_of_admin(opcode, namespace),
            known => known == Queue::Admin,
        };
        if is_admin && opcode == names::ASYNC_EVENT {
            if self.events.len() < EVENTS_MAX && !self.events.contains(&id) {
                self.events.push(id);
            }
            return;
        }
        let operation = names::name(is_admin, opcode, byte_at(bytes, 12));
        let moved = if is_admin || opcode == names::FABRICS { 0 } else { u32_at(bytes, 40) };
        let of = Of::Id(id.into());
        requests.ask(of, &Asked { operation, key: &size(moved), stream: 0 });
        // Data that are not in the capsule follow when the controller asks for them.
        let is_alone = bytes.len() == usize::from(COMMAND) + 4 * usize::from(byte_at(bytes, 1) & 1);
        if moved == 0 || opcode & 3 != 1 || !is_alone {
            requests.asked(of);
        }
    }

    fn response(&mut self, bytes: &[u8], requests: &mut Requests) {
        let id = u16_at(bytes, 20);
        if let Some(place) = self.events.iter().position(|&event| event == id) {
            self.events.swap_remove(place);
            return;
        }
        let of = Of::Id(id.into());
        let is_read = || requests.operation(of).is_some_and(|operation| operation.as_str() == names::READ);
        let status = status(u16_at(bytes, 22));
        if requests.is_doubtful(of) && status == Status::Good && is_read() {
            return requests.drop_doubtful(of);
        }
        requests.answer(of);
        requests.answered(of, status);
    }
}

#[cfg(test)]
mod tests;
