//! AMQP 0-9-1, with RabbitMQ's publisher confirms: what a client asks of its broker, per channel.
//!
//! A request is a synchronous method, which its channel answers in order (`Queue.Declare`, `Basic.Get` with the message that it gets), and
//! a Basic.Publish behind Confirm.Select, which the broker acknowledges by its tag, alone or with all before it (`multiple`). `login` is
//! the client's answer to the greeting, up to Tune. A Basic.Publish without confirms, a method that wants no answer (`no-wait`),
//! acknowledgements of deliveries, heartbeats and what the broker sends by itself (Basic.Deliver, Basic.Return) are no requests. The key is
//! the queue, exchange or virtual host, of a Basic.Publish exchange and routing key, with numbers and identifiers folded. The stream is the
//! channel. The status is `NACK`, or the reply code of a Close of the broker, which ends all that its channel or connection awaits.
//!
//! AMQP 1.0 is another protocol.

mod confirms;
mod frame;
mod method;

use std::collections::{HashMap, VecDeque};

use record::{Side, Status, Word};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};
use confirms::{Confirms, Flight};
use frame::Frame;
use method::Method;

/// AMQP 0-9-1, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "amqp", begins, new: |shown| Box::new(Amqp { shown, ..Amqp::default() }) };

/// RabbitMQ's port.
const PORT: u16 = 5672;
/// Most channels that are followed, and most methods that await their answers on one.
const CHANNELS_MAX: usize = 256;
const ASKED_MAX: usize = 16;
/// Numbers of requests that are methods.
const METHODS: u64 = 1 << 63;

/// A connection.
#[derive(Debug, Default)]
struct Amqp {
    shown: Shown,
    channels: HashMap<u16, Channel, foldhash::fast::RandomState>,
    /// Methods that have asked so far.
    asked: u64,
    /// Messages that await their acknowledgement.
    unconfirmed: usize,
}

/// A channel; 0 is the connection itself.
#[derive(Debug, Default)]
struct Channel {
    /// Methods that await their answers.
    asked: VecDeque<(Method, Of)>,
    /// The first of them may have been answered in a hole.
    is_doubtful: bool,
    /// A hole may hold further ones.
    is_unsure: bool,
    /// An answer that was captured before what it answers, and where it begins in the broker's stream.
    early: Option<(Method, u32)>,
    /// The message at hand of each side.
    contents: [Content; 2],
    confirms: Confirms,
}

/// A message that follows a method.
#[derive(Clone, Copy, Debug, Default)]
struct Content {
    /// The request that it belongs to, if any.
    of: Option<Of>,
    /// Bytes of its body that are still to come, once known.
    left: Option<u64>,
}

fn begins(start: &Start<'_>) -> bool {
    if start.side == Side::Client && start.bytes.starts_with(frame::PREAMBLE) {
        return true;
    }
    let has_method = frame::are_frames(start.side, start.bytes);
    has_method.is_some_and(|has_method| has_method || start.is_at(PORT) && !start.is_first)
}

impl Decoder for Amqp {
    fn length(&mut self, _: Side, start: &[u8]) -> Length {
        if start.first() == Some(&b'A') {
            let seen = start.len().min(frame::PREAMBLE.len());
            let is_preamble = start.get(..seen) == frame::PREAMBLE.get(..seen);
            return if is_preamble { Length::Is(frame::PREAMBLE.len() as u64) } else { Length::Invalid };
        }
        match frame::read(start) {
            Ok(frame) => Length::Is(u64::from(frame.size) + frame::AROUND),
            Err(length) => length,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let Ok(frame) = frame::read(message.bytes) else { return };
        match (frame.kind, message.side) {
            (frame::METHOD, Side::Client) => self.asks(&frame, requests),
            (frame::METHOD, Side::Server) => self.answers(&frame, requests),
            (frame::HEADER | frame::BODY, side) => self.content(side, &frame, requests),
            _ => {}
        }
    }

    fn kept(&self) -> usize {
        // The longest names of a method.
        800
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        side == Side::Client && start.starts_with(frame::PREAMBLE) || frame::are_frames(side, start).is_some()
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        let mut flight = Flight { requests, count: &mut self.unconfirmed, incomplete: None };
        for channel in self.channels.values_mut() {
            channel.lost(side, &mut flight);
        }
    }
}

impl Channel {
    fn lost(&mut self, side: Side, flight: &mut Flight<'_>) {
        let content = std::mem::take(&mut self.contents[side as usize]);
        if let Some(of) = content.of {
            self.asked.retain(|&(_, asked)| asked != of);
            match side {
                Side::Client => flight.forget(of),
                Side::Server => flight.requests.forget(of),
            }
        }
        if side == Side::Client {
            self.confirms.lost_messages();
        } else {
            self.confirms.lost_acknowledgements();
        }
        // Which of several methods the next answer is of does not show, nor with holes of both sides whether it is of one that was seen.
        let is_clear = match side {
            Side::Client => !self.is_doubtful,
            Side::Server => !self.is_unsure && self.asked.len() <= 1,
        };
        if is_clear && !self.asked.is_empty() {
            (self.is_doubtful, self.is_unsure) = (side == Side::Server, side == Side::Client);
        } else {
            self.forget_asked(flight.requests);
        }
    }

    fn forget_asked(&mut self, requests: &mut Requests) {
        self.asked.drain(..).for_each(|(_, of)| requests.forget(of));
        (self.is_doubtful, self.is_unsure) = (false, false);
    }

    /// The request that the answer to a method is of: those before it were answered in a hole.
    fn answered(&mut self, method: Method, requests: &mut Requests) -> Option<Of> {
        if self.is_doubtful && requests.is_behind_unseen() {
            // It is that of a request in a hole, behind an answer in another one.
            requests.counted.unmatched += 1;
            self.forget_asked(requests);
            return None;
        }
        let place = self.asked.iter().position(|&(asked, _)| asked == method);
        let of = place.and_then(|place| self.asked.get(place)).map(|&(_, of)| of);
        let Some(of) = of.filter(|&of| requests.is_received(of)) else {
            requests.counted.unmatched += 1;
            self.early = Some((method, requests.place().seq));
            return None;
        };
        self.asked.drain(..place.unwrap_or_default()).for_each(|(_, before)| requests.forget(before));
        self.asked.pop_front();
        self.is_doubtful = false;
        self.is_unsure &= !self.asked.is_empty();
        Some(of)
    }

    /// Whether a method's answer was captured before it: the client had not received that.
    fn is_late(&mut self, method: Method, requests: &Requests) -> bool {
        let received = requests.place().ack;
        let is_its = |(answered, seq): (Method, u32)| {
            answered == method && received.wrapping_sub(seq).cast_signed() <= 0
        };
        self.early.take().is_some_and(is_its)
    }

    /// All that it awaits ends with a status, or without one.
    fn end(&mut self, number: u16, status: Option<Status>, flight: &mut Flight<'_>) {
        if let Some(status) = status.filter(|_| !self.is_doubtful) {
            for (_, of) in self.asked.drain(..) {
                flight.requests.answer(of);
                flight.requests.answered(of, status);
            }
        }
        self.forget_asked(flight.requests);
        self.confirms.end(number, status, flight);
    }
}

impl Amqp {
    /// A channel, unless too many are open.
    fn channel(&mut self, number: u16) -> Option<&mut Channel> {
        if self.channels.len() >= CHANNELS_MAX && !self.channels.contains_key(&number) {
            return None;
        }
        Some(self.channels.entry(number).or_default())
    }

    /// A method of the client.
    fn asks(&mut self, frame: &Frame<'_>, requests: &mut Requests) {
        let (number, shown) = (frame.channel, self.shown);
        let Some(method) = method::of(frame.payload) else { return };
        if method == method::CHANNEL_OPEN {
            self.close(number, None, requests);
        }
        let (of, mut unconfirmed) = (Of::Id(METHODS | self.asked), self.unconfirmed);
        let Some(channel) = self.channel(number) else { return };
        channel.contents[Side::Client as usize] = Content::default();
        match method {
            method::PUBLISH => {
                let mut flight = Flight { requests, count: &mut unconfirmed, incomplete: None };
                let of = channel.confirms.publish(number, &mut flight);
                channel.contents[Side::Client as usize].of = of;
                if let Some(of) = of {
                    let (key, stream) = (method::published(frame.payload, shown), u32::from(number));
                    requests.ask(of, &Asked { operation: Word::new(b"Basic.Publish"), key: &key, stream });
                }
                self.unconfirmed = unconfirmed;
                return;
            }
            method::SECURE_OK => {
                if let Some(&(_, of)) = channel.asked.back() {
                    requests.ask_more(of);
                }
            }
            method::CHANNEL_CLOSE_OK => self.close(number, None, requests),
            _ => {}
        }
        let Some(asking) = method::read(frame.payload, shown) else { return };
        let Some(channel) = self.channel(number) else { return };
        match method {
            method::CHANNEL_OPEN => channel.confirms = Confirms::opened(),
            method::CONFIRM_SELECT => channel.confirms.select(),
            _ => {}
        }
        if channel.is_late(method, requests) {
            return;
        }
        if requests.leaves_with_lost() {
            return requests.leave_out();
        }
        if channel.is_doubtful || channel.asked.len() >= ASKED_MAX {
            // The client asks again: it has its answer.
            channel.forget_asked(requests);
        }
        requests.ask(of, &Asked { operation: asking.operation, key: &asking.key, stream: number.into() });
        requests.asked(of);
        channel.asked.push_back((method, of));
        self.asked += 1;
    }

    /// A method of the server.
    fn answers(&mut self, frame: &Frame<'_>, requests: &mut Requests) {
        let number = frame.channel;
        let Some(method) = method::of(frame.payload) else { return };
        let mut unconfirmed = self.unconfirmed;
        let Some(channel) = self.channel(number) else { return };
        channel.contents[Side::Server as usize] = Content::default();
        match method {
            method::ACK | method::NACK => {
                let Some(tags) = method::acknowledged(frame.payload) else { return };
                let nack = || Status::Error(Word::new(b"NACK"));
                let status = if method == method::ACK { Status::Good } else { nack() };
                let incomplete = channel.contents[Side::Client as usize].of;
                let mut flight = Flight { requests, count: &mut unconfirmed, incomplete };
                channel.confirms.acknowledged(number, tags, status, &mut flight);
                self.unconfirmed = unconfirmed;
            }
            method::CHANNEL_CLOSE => self.close(number, method::closing(frame.payload), requests),
            method::CONNECTION_CLOSE => {
                let status = method::closing(frame.payload);
                let mut open: Vec<u16> = self.channels.keys().copied().collect();
                open.sort_unstable();
                open.into_iter().for_each(|number| self.close(number, status, requests));
            }
            method::SECURE => {
                if let Some(&(_, of)) = channel.asked.back() {
                    requests.asks_for_data(of);
                }
            }
            _ => {
                let Some(asked) = method::answered(method) else { return };
                let Some(of) = channel.answered(asked, requests) else { return };
                requests.answer(of);
                if method == method::GET_OK {
                    channel.contents[Side::Server as usize].of = Some(of);
                    return;
                }
                requests.answered(of, Status::Good);
                if asked == method::CHANNEL_CLOSE || asked == method::CONNECTION_CLOSE {
                    self.close(number, None, requests);
                }
            }
        }
    }

    /// A channel ends.
    fn close(&mut self, number: u16, status: Option<Status>, requests: &mut Requests) {
        if let Some(mut channel) = self.channels.remove(&number) {
            if let Some(of) = channel.contents[Side::Server as usize].of {
                requests.forget(of);
            }
            let mut flight = Flight { requests, count: &mut self.unconfirmed, incomplete: None };
            channel.end(number, status, &mut flight);
        }
    }

    /// The head or a part of a message.
    fn content(&mut self, side: Side, frame: &Frame<'_>, requests: &mut Requests) {
        let Some(channel) = self.channels.get_mut(&frame.channel) else { return };
        let content = &mut channel.contents[side as usize];
        let left = match (frame.kind, content.left) {
            (frame::HEADER, None) => frame::u64_at(frame.payload, 4).unwrap_or_default(),
            (frame::BODY, Some(left)) => left.saturating_sub(frame.size.into()),
            _ => return,
        };
        content.left = Some(left);
        let Some(of) = content.of else { return };
        match side {
            Side::Client => requests.ask_more(of),
            Side::Server => {
                requests.answer(of);
            }
        }
        if left == 0 {
            *content = Content::default();
            match side {
                Side::Client => requests.asked(of),
                Side::Server => requests.answered(of, Status::Good),
            }
        }
    }
}

#[cfg(test)]
mod tests;
