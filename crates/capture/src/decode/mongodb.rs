//! MongoDB: commands and replies, paired by their numbers.
//!
//! A request is a message of the client that is answered: a command of OP_MSG, one of OP_QUERY (the handshake of older drivers), or what is
//! in OP_COMPRESSED, whose command does not show. The reply names the request. Messages that want no reply (`moreToCome`) are no requests.
//! Of replies that follow each other without further requests (exhaust cursors, a hello that is streamed) the first is the answer, and the
//! others are no operations. A hello and a getMore that wait for an event say so. The operation is the command; the key is
//! `database.collection`, with numbers and identifiers folded. The status is the error's name, also of the first error among writes.
//! (MongoDB wire protocol.)

mod bson;
mod command;
mod message;

use std::collections::VecDeque;

use record::{Side, Status, Word};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};
use command::Command;
use message::Head;

/// MongoDB, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "mongodb", begins, new: |shown| Box::new(Mongo { shown, ..Mongo::default() }) };

/// Most requests in flight whose order is remembered.
const OPEN_MAX: usize = 1024;
/// Most requests in flight that open cursors which wait, and most such cursors.
const OPENING_MAX: usize = 16;
const CURSORS_MAX: usize = 64;

/// A connection.
#[derive(Debug, Default)]
struct Mongo {
    shown: Shown,
    /// Requests in flight, in their order.
    open: VecDeque<u32>,
    /// So many of the first of them may have been answered in a hole.
    doubtful: usize,
    /// Those of them whose replies have cursors that wait for events.
    opening: VecDeque<u32>,
    /// Such cursors.
    cursors: VecDeque<i64>,
    /// The number of the last reply that another one follows.
    continued: Option<u32>,
}

fn begins(start: &Start<'_>) -> bool {
    message::are_messages(start.side, start.bytes)
}

impl Decoder for Mongo {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        message::head(side, start).map_or_else(|length| length, |head| Length::Is(head.length.into()))
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let Ok(head) = message::head(message.side, message.bytes) else { return };
        let body = message.bytes.get(message::HEAD..).unwrap_or_default();
        match message.side {
            Side::Client => self.asks(&head, body, requests),
            Side::Server => self.answers(&head, body, requests),
        }
    }

    /// The commands that name their database do so behind all that they ask for.
    fn kept(&self) -> usize {
        4096
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        message::are_messages(side, start)
    }

    fn lost(&mut self, side: Side, _: &mut Requests) {
        if side == Side::Server {
            self.doubtful = self.open.len();
            self.continued = None;
        }
    }
}

impl Mongo {
    fn asks(&mut self, head: &Head, body: &[u8], requests: &mut Requests) {
        let of = Of::Id(head.number.into());
        let mut asked = Asked::only(Word::default());
        let command = message::document(head, body).and_then(|document| Command::read(document, self.shown));
        match (head.operation, &command) {
            (message::COMPRESSED, _) => asked.operation = Word::new(b"compressed"),
            (message::MESSAGE, _) if message::flags(body) & message::MORE_TO_COME > 0 => return,
            (message::QUERY, _) if !message::is_command(body) => asked.operation = Word::new(b"query"),
            (message::MESSAGE | message::QUERY, Some(command)) => {
                (asked.operation, asked.key) = (command.name, &command.key);
            }
            (message::MESSAGE | message::QUERY, None) => asked.operation = Word::new(b"command"),
            (message::GET_MORE, _) => asked.operation = Word::new(b"getMore"),
            _ => return,
        }
        if self.open.len() >= OPEN_MAX {
            requests.forget_all();
            self.open.clear();
            self.doubtful = 0;
        }
        requests.ask(of, &asked);
        requests.asked(of);
        self.open.push_back(head.number);
        if head.operation == message::COMPRESSED {
            // Whether it wants a reply does not show.
            requests.excuse(of);
        }
        let Some(command) = command else { return };
        if command.waits || command.cursor.is_some_and(|cursor| self.cursors.contains(&cursor)) {
            requests.awaits_event(of, true);
        }
        if command.opens_waiting {
            if self.opening.len() >= OPENING_MAX {
                self.opening.pop_front();
            }
            self.opening.push_back(head.number);
        }
    }

    fn answers(&mut self, head: &Head, body: &[u8], requests: &mut Requests) {
        let continues = self.continued == Some(head.answers);
        let has_more = head.operation == message::MESSAGE && message::flags(body) & message::MORE_TO_COME > 0;
        self.continued = has_more.then_some(head.number);
        if continues {
            return;
        }
        let of = Of::Id(head.answers.into());
        self.answered(head.answers, requests);
        let document = message::document(head, body);
        if let Some(place) = self.opening.iter().position(|&number| number == head.answers) {
            self.opening.remove(place);
            if let Some(cursor) = document.and_then(command::cursor) {
                if self.cursors.len() >= CURSORS_MAX {
                    self.cursors.pop_front();
                }
                self.cursors.push_back(cursor);
            }
        }
        requests.answer(of);
        let is_hidden = head.operation == message::COMPRESSED;
        requests.answered(of, if is_hidden { Status::Unknown } else { command::status(document) });
    }

    /// A request is answered: if it was sent behind a hole, those before the hole were answered in it.
    fn answered(&mut self, number: u32, requests: &mut Requests) {
        let Some(place) = self.open.iter().position(|&open| open == number) else { return };
        if place < self.doubtful {
            self.doubtful -= 1;
            self.open.remove(place);
            return;
        }
        self.open.remove(place);
        for lost in self.open.drain(..std::mem::take(&mut self.doubtful)) {
            requests.forget(Of::Id(lost.into()));
        }
    }
}

#[cfg(test)]
mod tests;
