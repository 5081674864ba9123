//! S7 communication: jobs and user data over ISO transport on TCP, paired by the reference of their PDUs.
//!
//! The protocol has no public specification; its fields are as the free implementations libnodave and Snap7 have them, in TPKT (RFC 1006) and
//! COTP (RFC 905). A request is a job, or user data that ask. What a controller tells unasked (alarms, cyclic data) is none. The
//! key is the area, a data block with its number (`DB5`, `M`), of the first variable; `+` says that more areas follow. The status is the
//! class and the code of the error, or the return code of the first item that failed.

mod names;

use record::{Side, Status, Word};

use super::numbers::Numbers;
use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Start};

/// S7 communication, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "s7", begins, new: |_| Box::new(S7::default()) };

/// Bytes of TPKT, and the fewest behind it: those of COTP with its length.
const TPKT: usize = 4;
const COTP_MIN: usize = 3;
/// Types of COTP: a request for a connection, its confirmation, an end, and data.
const CONNECT: u8 = 0xe0;
const CONFIRM: u8 = 0xd0;
const DISCONNECT: u8 = 0x80;
const DATA: u8 = 0xf0;
/// The bit of data that says that they are the last of their PDU.
const LAST: u8 = 0x80;
/// First byte of S7.
const PROTOCOL: u8 = 0x32;
/// Kinds of PDUs.
const JOB: u8 = 1;
const ACK: u8 = 2;
const ACK_DATA: u8 = 3;
const USER_DATA: u8 = 7;
/// The number of the request for a connection, apart from those of PDUs.
const CONNECTING: Of = Of::Id(1 << 32);

/// A connection.
#[derive(Debug, Default)]
struct S7 {
    numbers: Numbers,
    /// Whether the side's PDU goes on in its next message.
    is_within: [bool; 2],
    /// The request and the answer that do, with the status of the latter.
    asking: Option<Of>,
    answering: Option<(Of, Status)>,
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// A message of ISO transport: its length in all, its type, what follows the type, and the data, as far as they are there.
#[derive(Clone, Copy, Debug)]
struct Transport<'a> {
    length: usize,
    kind: u8,
    parameters: &'a [u8],
    data: &'a [u8],
}

impl<'a> Transport<'a> {
    /// The message that begins with these bytes, of which the type is there.
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let &[3, 0, _, _, header, kind, ..] = bytes else { return None };
        let (length, header) = (usize::from(u16_at(bytes, 2)?), usize::from(header));
        let behind = TPKT + 1 + header;
        let is_known = match kind {
            CONNECT | CONFIRM | DISCONNECT => header >= 6 && length == behind,
            DATA => header == 2 && length > behind,
            _ => false,
        };
        let parameters = bytes.get(6..behind.min(bytes.len()))?;
        let data = bytes.get(behind.min(bytes.len())..length.min(bytes.len()))?;
        (is_known && length >= TPKT + COTP_MIN).then_some(Self { length, kind, parameters, data })
    }

    fn is_last(&self) -> bool {
        self.parameters.first().is_some_and(|number| number & LAST > 0)
    }
}

/// A PDU of S7, as far as it is there.
#[derive(Clone, Copy, Debug)]
struct Pdu<'a> {
    kind: u8,
    reference: u16,
    /// Class and code of an error.
    error: [u8; 2],
    parameters: &'a [u8],
    data: &'a [u8],
    /// Its length by its header.
    length: usize,
}

impl<'a> Pdu<'a> {
    fn of(side: Side, bytes: &'a [u8]) -> Option<Self> {
        let &[PROTOCOL, kind, 0, 0, ..] = bytes else { return None };
        let (reference, [parameters, data]) =
            (u16_at(bytes, 4)?, [u16_at(bytes, 6)?, u16_at(bytes, 8)?].map(usize::from));
        let header = if matches!(kind, ACK | ACK_DATA) { 12 } else { 10 };
        let is_known = match kind {
            JOB => side == Side::Client && parameters > 0,
            ACK | ACK_DATA => side == Side::Server,
            USER_DATA => parameters >= 8,
            _ => false,
        };
        let error = if header == 12 { [*bytes.get(10)?, *bytes.get(11)?] } else { [0; 2] };
        let part =
            |from: usize, length: usize| bytes.get(from.min(bytes.len())..(from + length).min(bytes.len()));
        is_known.then_some(Self {
            kind,
            reference,
            error,
            parameters: part(header, parameters)?,
            data: part(header + parameters, data)?,
            length: header + parameters + data,
        })
    }
}

/// Whether the bytes are messages of the side, of which the first carries a whole PDU. The last may go on.
fn are_pdus(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut is_proven = false;
    while rest.len() >= TPKT + COTP_MIN {
        let Some(message) = Transport::of(rest) else { return false };
        let Some(behind) = rest.get(message.length..) else { return is_proven };
        if !is_proven {
            let pdu = Pdu::of(side, message.data).filter(|pdu| pdu.length == message.data.len());
            if message.kind != DATA || !message.is_last() || pdu.is_none() {
                return false;
            }
        }
        (is_proven, rest) = (true, behind);
    }
    is_proven
}

/// Whether a client asks for a connection as those of S7 do: to an access point of two bytes, of which the first is the kind of
/// connection (programming device, panel, other), and the second rack and slot. Other protocols over ISO transport name others.
fn is_connect(start: &Start<'_>) -> bool {
    let Some(message) = Transport::of(start.bytes) else { return false };
    if start.side != Side::Client || message.kind != CONNECT || message.length != start.bytes.len() {
        return false;
    }
    // Behind two references and the class.
    let mut rest = message.parameters.get(5..).unwrap_or_default();
    let (mut has_size, mut called, mut calling) = (false, false, false);
    while let [code, length, behind @ ..] = rest {
        let Some(value) = behind.get(..usize::from(*length)) else { return false };
        match (code, value) {
            (0xc0, [7..=13]) => has_size = true,
            (0xc1, [_, _]) => calling = true,
            (0xc2, [1..=3, _]) => called = true,
            _ => return false,
        }
        rest = behind.get(value.len()..).unwrap_or_default();
    }
    has_size && called && calling && rest.is_empty()
}

fn begins(start: &Start<'_>) -> bool {
    is_connect(start) || start.side == Side::Client && are_pdus(Side::Client, start.bytes)
}

impl Decoder for S7 {
    fn length(&mut self, _: Side, start: &[u8]) -> Length {
        match Transport::of(start) {
            Some(message) => Length::Is(message.length as u64),
            None if start.len() < 6 => Length::More,
            None => Length::Invalid,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let Some(transport) = Transport::of(message.bytes) else { return };
        match (message.side, transport.kind) {
            (Side::Client, CONNECT) => {
                requests.ask(CONNECTING, &Asked::only(Word::new(b"CONNECT")));
                requests.asked(CONNECTING);
            }
            (Side::Server, CONFIRM | DISCONNECT) if requests.is_open(CONNECTING) => {
                let refused = Status::Error(Word::new(b"REFUSED"));
                requests.answer(CONNECTING);
                requests.answered(CONNECTING, if transport.kind == CONFIRM { Status::Good } else { refused });
            }
            (side, DATA) => self.data(side, &transport, requests),
            _ => {}
        }
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        are_pdus(side, start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        self.is_within[side as usize] = false;
        match side {
            Side::Client => self.asking = None,
            Side::Server => {
                self.answering = None;
                self.numbers.lost_answers(requests);
            }
        }
    }
}

impl S7 {
    fn data(&mut self, side: Side, transport: &Transport<'_>, requests: &mut Requests) {
        let is_last = transport.is_last();
        let is_first = !std::mem::replace(&mut self.is_within[side as usize], !is_last);
        let pdu = Pdu::of(side, transport.data).filter(|_| is_first);
        match side {
            Side::Client if is_first => {
                self.asking = pdu.and_then(|pdu| self.request(&pdu, requests));
            }
            Side::Client => {
                if let Some(of) = self.asking {
                    requests.ask_more(of);
                }
            }
            Side::Server => {
                if is_first {
                    self.answering = pdu.and_then(|pdu| self.answer(&pdu, requests));
                } else if let Some((of, _)) = self.answering {
                    requests.answer(of);
                }
                if let Some((of, status)) = self.answering.take_if(|_| is_last) {
                    requests.answered(of, status);
                }
            }
        }
    }

    fn request(&mut self, pdu: &Pdu<'_>, requests: &mut Requests) -> Option<Of> {
        let (operation, key) = match pdu.kind {
            JOB => {
                let function = *pdu.parameters.first()?;
                (names::function(function), names::areas(function, pdu.parameters))
            }
            _ => (names::asked(pdu.parameters)?, String::new()),
        };
        let asked = Asked { operation, key: &key, stream: 0 };
        Some(self.numbers.ask(pdu.reference.into(), &asked, requests))
    }

    /// The request that an answer is of, and its status. What a controller tells unasked has no operation.
    fn answer(&mut self, pdu: &Pdu<'_>, requests: &mut Requests) -> Option<(Of, Status)> {
        let operation = match (pdu.kind, pdu.parameters.first()) {
            (USER_DATA, _) => Some(names::answered(pdu.parameters)?),
            (_, function) => function.map(|&function| names::function(function)),
        };
        // An error may have no more than its code.
        let may_be_of = |asked: &str| operation.is_none_or(|operation| asked == operation.as_str());
        let of = self.numbers.answer(pdu.reference.into(), may_be_of, requests)?;
        let status = match pdu.kind {
            USER_DATA => names::status_of_user_data(pdu.parameters),
            _ if pdu.error != [0; 2] => names::error(pdu.error),
            _ => names::items(pdu.parameters, pdu.data),
        };
        Some((of, status))
    }
}

#[cfg(test)]
mod tests;
