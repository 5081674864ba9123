//! WebSocket (RFC 6455), behind the 101 of HTTP/1.1.
//!
//! Nothing says which message answers which, so data messages are turns: a client's message and the server's next one, where both wait
//! for each other. A turn says that it overlaps when one of them did not: the client sent again before the answer, the server sent more
//! than one message, or a message that left before the request came. From then on all turns of the connection say so, because the next
//! message of the server may be another one's answer, or none. Pings of the client are answered by the pong with their payload, and a
//! Close by a Close. What the server asks (its pings, its Close) is no request. Payloads are not read beyond control frames, so that
//! compression (RFC 7692) changes nothing.

mod frame;

use std::collections::VecDeque;

use frame::{CONTROL_MAX, Chain, HEADER_MAX, Header, Read};
use record::{Key, Side, Status, Word};

use super::{Decoder, Length, Message, Of, ProtocolEntry, Requests, Start, Upgraded};

/// WebSocket, in the table of protocols.
pub(crate) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "websocket", begins, new: |_| Box::new(WebSocket::default()) };

/// Most pings in flight; clients send one at a time.
const PINGS_MAX: usize = 64;
/// Longest head of the handshake.
const HEAD_MAX: usize = 16 << 10;

/// Numbers of requests; those of pings follow.
const TURN: Of = Of::Id(0);
const CLOSING: Of = Of::Id(1);
const FIRST_PING: u64 = 2;

/// Whether a side is within a message of several frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Within {
    #[default]
    Unknown,
    No,
    Message,
}

/// What one side sends.
#[derive(Debug, Default)]
struct Sender {
    /// A boundary of its frames is known.
    is_known: bool,
    within: Within,
    chain: Chain,
    has_closed: bool,
    /// Behind an upgrade it has sent nothing so far.
    is_fresh: bool,
}

/// How far the turn at hand has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Turn {
    #[default]
    None,
    Asked,
    /// A message of the server has begun.
    Answering,
    /// It has ended; whether it was the only one shows the next message.
    Answered,
}

/// A connection.
#[derive(Debug, Default)]
struct WebSocket {
    /// The path of the handshake.
    key: Key,
    sides: [Sender; 2],
    turn: Turn,
    has_answered: bool,
    /// Once, a side did not wait for the other.
    is_irregular: bool,
    /// Hashes of the payloads of the client's pings in flight, and their numbers.
    pings: VecDeque<(u64, u64)>,
    next_ping: u64,
    /// The status of the client's Close.
    close: Status,
}

fn begins(start: &Start<'_>) -> bool {
    // A connection begins with HTTP.
    !start.is_first && Chain::default().proves(start.side, start.bytes)
}

/// Whether bytes may begin a frame: proof enough where WebSocket is what was agreed on.
pub(crate) fn begins_a_frame(side: Side, bytes: &[u8]) -> bool {
    matches!(Header::read(side, bytes), Read::Header(_))
}

/// Bytes of a head of HTTP, where a connection begins that the user knows to be WebSocket.
fn head(side: Side, start: &[u8]) -> Option<Length> {
    let begin: &[u8] = if side == Side::Client { b"GET /" } else { b"HTTP/1.1 101" };
    if !start.starts_with(&begin[..begin.len().min(start.len())]) {
        return None;
    }
    let end = start.windows(4).position(|window| window == b"\r\n\r\n");
    match end {
        Some(at) => Some(Length::Is(at as u64 + 4)),
        None => (start.len() < HEAD_MAX).then_some(Length::More),
    }
}

/// The status that a Close states (RFC 6455 7.4).
fn status(payload: &[u8]) -> Status {
    let Some(code) = payload.first_chunk().map(|code| u16::from_be_bytes(*code)) else { return Status::Good };
    let name: &[u8] = match code {
        1000 | 1001 => return Status::Good,
        1002 => b"PROTOCOL",
        1003 => b"UNSUPPORTED",
        1007 => b"BAD_DATA",
        1008 => b"POLICY",
        1009 => b"TOO_BIG",
        1010 => b"NO_EXTENSION",
        1011 => b"INTERNAL",
        1012 => b"RESTART",
        1013 => b"TRY_LATER",
        1014 => b"BAD_GATEWAY",
        _ => return Status::Error(Word::new(code.to_string().as_bytes())),
    };
    Status::Error(Word::new(name))
}

impl Decoder for WebSocket {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        let sender = &self.sides[side as usize];
        if !sender.is_known
            && let Some(length) = head(side, start)
        {
            return length;
        }
        match Header::read(side, start) {
            Read::More => Length::More,
            Read::Invalid => Length::Invalid,
            Read::Header(header) => match (header.opcode, sender.within) {
                (frame::CONTINUATION, Within::No) => Length::Invalid,
                (opcode, Within::Message) if header.is_data() && opcode != frame::CONTINUATION => {
                    Length::Invalid
                }
                _ => Length::Is(header.length()),
            },
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let (side, bytes) = (message.side, message.bytes);
        let sender = &mut self.sides[side as usize];
        let Read::Header(header) = Header::read(side, bytes) else {
            // The head of the handshake: frames follow.
            (sender.is_known, sender.within) = (true, Within::No);
            return;
        };
        sender.is_fresh = false;
        match header.opcode {
            frame::PING if side == Side::Client => self.ping(header.payload(bytes), requests),
            frame::PONG if side == Side::Server => self.pong(header.payload(bytes), requests),
            frame::PING | frame::PONG => {}
            frame::CLOSE => self.close(side, status(&header.payload(bytes).unwrap_or_default()), requests),
            _ => {
                sender.within = if header.is_final { Within::No } else { Within::Message };
                if header.opcode != frame::CONTINUATION && requests.is_behind_unseen() {
                    // A message between this one and the turn at hand is missing.
                    self.drop_turn(requests);
                    return;
                }
                if !self.is_known() {
                    return;
                }
                match side {
                    Side::Client => self.client(&header, requests),
                    Side::Server => self.server(&header, requests),
                }
            }
        }
    }

    fn kept(&self) -> usize {
        HEADER_MAX + CONTROL_MAX as usize
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        let sender = &mut self.sides[side as usize];
        let is_fresh = sender.is_fresh;
        if sender.chain.proves(side, start) || is_fresh && Chain::default().proves_first(side, start) {
            *sender = Sender { is_known: true, has_closed: sender.has_closed, ..Sender::default() };
            return true;
        }
        false
    }

    /// What was in flight may have ended in the hole.
    fn needs_answers(&self) -> bool {
        false
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        let sender = &mut self.sides[side as usize];
        *sender = Sender { has_closed: sender.has_closed, is_fresh: sender.is_fresh, ..Sender::default() };
        requests.settle();
        requests.forget_all();
        self.pings.clear();
        self.turn = Turn::None;
    }

    fn absent(&mut self, side: Side, count: u64) {
        self.sides[side as usize].chain.absent(count);
    }

    fn upgraded(&mut self, upgraded: Upgraded, _: &mut Requests) {
        self.key = upgraded.key;
        for sender in &mut self.sides {
            (sender.is_known, sender.within, sender.is_fresh) = (true, Within::No, true);
        }
    }

    fn closed(&mut self, _: Side, requests: &mut Requests) {
        requests.settle();
    }
}

impl WebSocket {
    /// Whether the messages of both sides are seen.
    fn is_known(&self) -> bool {
        self.sides.iter().all(|sender| sender.is_known)
    }

    /// The turn at hand cannot be followed.
    fn drop_turn(&mut self, requests: &mut Requests) {
        requests.settle();
        if requests.is_open(TURN) {
            requests.forget(TURN);
        }
        self.turn = Turn::None;
    }

    /// A frame of a message of the client.
    fn client(&mut self, header: &Header, requests: &mut Requests) {
        let is_open = matches!(self.turn, Turn::Asked | Turn::Answering);
        if is_open {
            // Of the message at hand, or of one that did not wait.
            self.is_irregular |= header.opcode != frame::CONTINUATION || self.turn == Turn::Answering;
            requests.ask_more(TURN);
        } else if header.opcode != frame::CONTINUATION {
            self.is_irregular |= !requests.has_waited();
            requests.settle();
            let name: &[u8] = if header.opcode == frame::TEXT { b"TEXT" } else { b"BINARY" };
            requests.ask_for(TURN, Word::new(name), self.key);
            // Until one answer has come, and no more.
            requests.overlaps(TURN);
            self.turn = Turn::Asked;
        }
        if header.is_final {
            requests.asked(TURN);
        }
    }

    /// A frame of a message of the server.
    fn server(&mut self, header: &Header, requests: &mut Requests) {
        let is_first = header.opcode != frame::CONTINUATION;
        match self.turn {
            // A greeting, or the answer to what was in a hole.
            Turn::None => return,
            // It goes on.
            Turn::Asked if !is_first => return,
            Turn::Asked if !requests.is_received(TURN) => {
                // The server greets every client, or sends unasked.
                self.is_irregular |= self.has_answered;
                return;
            }
            Turn::Asked => {
                self.is_irregular |= self.sides[Side::Client as usize].within == Within::Message;
                self.turn = Turn::Answering;
                requests.answer(TURN);
            }
            Turn::Answering => {
                requests.answer(TURN);
            }
            Turn::Answered => {
                self.is_irregular = true;
                requests.answer_more();
            }
        }
        if header.is_final && self.turn == Turn::Answering {
            requests.answered_so_far(TURN, Status::Unknown, self.is_irregular);
            (self.turn, self.has_answered) = (Turn::Answered, true);
        }
    }

    fn ping(&mut self, payload: Option<Vec<u8>>, requests: &mut Requests) {
        let Some(payload) = payload.filter(|_| self.is_known()) else { return };
        if self.pings.len() >= PINGS_MAX
            && let Some((_, id)) = self.pings.pop_front()
        {
            requests.forget(Of::Id(id));
        }
        let (hash, id) = (super::hash_of(&payload), FIRST_PING + self.next_ping);
        self.next_ping += 1;
        requests.ask_for(Of::Id(id), Word::new(b"PING"), self.key);
        requests.asked(Of::Id(id));
        if self.pings.iter().any(|&(other, _)| other == hash) {
            // One pong may answer both.
            requests.excuse(Of::Id(id));
        }
        self.pings.push_back((hash, id));
    }

    fn pong(&mut self, payload: Option<Vec<u8>>, requests: &mut Requests) {
        // Behind a hole in its payload, it may be that of any.
        let hash = payload.map(|payload| super::hash_of(&payload));
        let is_its = |&(other, id): &(u64, u64)| {
            hash.is_none_or(|hash| hash == other) && requests.is_received(Of::Id(id))
        };
        let Some(place) = self.pings.iter().position(is_its) else { return };
        // A server may answer the last of several pings only (RFC 6455 5.5.3).
        for (_, id) in self.pings.drain(..place) {
            requests.forget(Of::Id(id));
        }
        let Some((_, id)) = self.pings.pop_front() else { return };
        if hash.is_none() {
            requests.forget(Of::Id(id));
            return;
        }
        requests.answer(Of::Id(id));
        requests.answered(Of::Id(id), Status::Good);
    }

    fn close(&mut self, side: Side, status: Status, requests: &mut Requests) {
        let [client, server] = [Side::Client, Side::Server].map(|side| self.sides[side as usize].has_closed);
        self.sides[side as usize].has_closed = true;
        match side {
            Side::Client if !client && !server && self.is_known() => {
                self.close = status;
                requests.ask_for(CLOSING, Word::new(b"CLOSE"), self.key);
                requests.asked(CLOSING);
                // Many a server closes the connection instead.
                requests.excuse(CLOSING);
            }
            Side::Server if client && !server => {
                // The side that complains states why, and the other one repeats it.
                let status = if status == Status::Good { self.close } else { status };
                if requests.is_open(CLOSING) {
                    requests.answer(CLOSING);
                    requests.answered(CLOSING, status);
                }
            }
            // The server refuses what was asked.
            Side::Server if status != Status::Good && matches!(self.turn, Turn::Asked | Turn::Answering) => {
                requests.answer(TURN);
                requests.answered_so_far(TURN, status, self.is_irregular);
                self.turn = Turn::Answered;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
