//! DNS over TCP (RFC 1035, RFC 7766): queries and responses, paired by their numbers.
//!
//! A request is a message of the client: a query, a dynamic update, a notification. A zone transfer (AXFR, IXFR) is one request
//! whose answer is all messages up to the one with the last SOA record (RFC 5936, RFC 1995). The operation is the type that is
//! asked for, or the operation code where that is no query. The key is the end of the name, see [`wire::key`]. The status is the
//! response code; that a name does not exist is an answer and no failure. Messages of stateful operations that have no answer
//! (RFC 8490) are none.

mod transfer;
mod wire;

use record::{Side, Status, Word};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};
use transfer::Transfer;
use wire::{Header, Opcode, Reader};

/// DNS, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "dns", begins, new: |shown| Box::new(Dns { shown, ..Dns::default() }) };

/// DNS's port.
const PORT: u16 = 53;
/// Bytes of the length before each message.
const PREFIX: usize = 2;
/// Zone transfers in flight that are followed; further ones are no operations.
const TRANSFERS_MAX: usize = 64;

/// A connection.
#[derive(Debug, Default)]
struct Dns {
    shown: Shown,
    transfers: Vec<Transfer>,
}

/// The length that precedes a message, if it has a header.
fn length_of(bytes: &[u8]) -> Option<u16> {
    let length = bytes.first_chunk().map(|length| u16::from_be_bytes(*length))?;
    (usize::from(length) >= wire::HEADER).then_some(length)
}

/// The message behind its length, as much of it as is there.
fn body(bytes: &[u8]) -> &[u8] {
    let length = length_of(bytes).map_or(0, usize::from);
    let rest = bytes.get(PREFIX..).unwrap_or_default();
    rest.get(..length).unwrap_or(rest)
}

/// Whether a side may send a message with this header.
fn may_be(side: Side, header: &Header) -> bool {
    // Stateful operations go both ways.
    let is_own = header.is_response == (side == Side::Server) || header.opcode == Opcode::Stateful;
    is_own && (header.opcode != Opcode::Query || header.counts[0] <= 1)
}

/// Whether the bytes begin messages of the side, as far as they are there, with what only DNS has at these places.
fn are_messages(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut is_proved = false;
    while rest.len() >= PREFIX + wire::HEADER {
        let Some(length) = length_of(rest) else { return false };
        let body = body(rest);
        if !wire::is_sound(side, body, usize::from(length)) {
            return false;
        }
        is_proved = true;
        rest = rest.get(PREFIX + usize::from(length)..).unwrap_or_default();
    }
    is_proved
}

/// Whether a client begins with the length alone, or with a part of a query.
fn begins_a_query(start: &Start<'_>) -> bool {
    let is_short = start.bytes.len() < PREFIX + wire::HEADER;
    let is_length = length_of(start.bytes).is_some_and(|length| length <= 512);
    start.side == Side::Client && start.is_first && is_short && is_length
}

fn begins(start: &Start<'_>) -> bool {
    are_messages(start.side, start.bytes) || start.is_at(PORT) && begins_a_query(start)
}

impl Decoder for Dns {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        if start.len() >= PREFIX && length_of(start).is_none() {
            return Length::Invalid;
        }
        match (length_of(start), Header::read(start.get(PREFIX..).unwrap_or_default())) {
            (Some(length), Some(header)) if may_be(side, &header) => {
                Length::Is(PREFIX as u64 + u64::from(length))
            }
            _ if start.len() >= PREFIX + wire::HEADER => Length::Invalid,
            _ => Length::More,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let bytes = body(message.bytes);
        let Some(header) = Header::read(bytes) else { return };
        match message.side {
            Side::Client if !header.is_response => self.query(&header, bytes, requests),
            Side::Server if header.is_response => {
                let is_whole = message.bytes.len() as u64 >= message.length;
                self.response(&header, bytes, is_whole, requests);
            }
            _ => {}
        }
    }

    /// The question, or in a zone transfer the whole message: its last record may end the transfer.
    fn kept(&self) -> usize {
        if self.transfers.is_empty() { 1024 } else { PREFIX + usize::from(u16::MAX) }
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        are_messages(side, start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        match side {
            Side::Client => requests.lost_numbered_requests(),
            Side::Server => {
                self.transfers.clear();
                requests.lost_numbered_answers(|operation| matches!(operation, "AXFR" | "IXFR"));
            }
        }
    }
}

impl Dns {
    fn query(&mut self, header: &Header, bytes: &[u8], requests: &mut Requests) {
        if header.opcode == Opcode::Stateful && header.id == 0 {
            return;
        }
        let question = Reader::behind_header(bytes).question().filter(|_| header.counts[0] > 0);
        let operation = match (header.opcode, &question) {
            (Opcode::Query, Some(question)) => wire::type_name(question.kind),
            (opcode, _) => Word::new(opcode.name().as_bytes()),
        };
        let key = question.as_ref().map_or(String::new(), |question| wire::key(&question.labels, self.shown));
        let of = Of::Id(header.id.into());
        requests.ask(of, &Asked { operation, key: &key, stream: 0 });
        requests.asked(of);
        self.transfers.retain(|transfer| transfer.id != header.id);
        let kind = question.filter(|_| header.opcode == Opcode::Query).map_or(0, |question| question.kind);
        let Some(transfer) = Transfer::new(kind, header, bytes) else { return };
        if self.transfers.len() >= TRANSFERS_MAX {
            requests.forget(of);
        } else {
            self.transfers.push(transfer);
        }
    }

    fn response(&mut self, header: &Header, bytes: &[u8], is_whole: bool, requests: &mut Requests) {
        let of = Of::Id(header.id.into());
        let place = self.transfers.iter().position(|transfer| transfer.id == header.id);
        let is_answered = requests.answer(of);
        if let Some(transfer) = place.and_then(|place| self.transfers.get_mut(place)) {
            let is_over = header.code != 0 || transfer.passes(header, bytes);
            if !is_over && is_answered {
                if !is_whole {
                    // The record that ends it may be in the hole.
                    requests.excuse(of);
                }
                return;
            }
        }
        if let Some(place) = place {
            self.transfers.swap_remove(place);
        }
        requests.answered(of, status(wire::code(header, bytes)));
    }
}

/// The status of a response code (RFC 6895 2.3).
fn status(code: u16) -> Status {
    let name: &[u8] = match code {
        0 => return Status::Good,
        3 => return Status::Answer(Word::new(b"NXDOMAIN")),
        1 => b"FORMERR",
        2 => b"SERVFAIL",
        4 => b"NOTIMP",
        5 => b"REFUSED",
        6 => b"YXDOMAIN",
        7 => b"YXRRSET",
        8 => b"NXRRSET",
        9 => b"NOTAUTH",
        10 => b"NOTZONE",
        11 => b"DSOTYPENI",
        16 => b"BADVERS",
        17 => b"BADKEY",
        18 => b"BADTIME",
        23 => b"BADCOOKIE",
        other => return Status::Error(Word::new(format!("RCODE{other}").as_bytes())),
    };
    Status::Error(Word::new(name))
}

#[cfg(test)]
mod tests;
