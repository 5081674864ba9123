//! MQTT 3.1, 3.1.1 and 5: what a client asks of its broker, paired by packet identifiers.
//!
//! A request is a packet of the client that is answered: CONNECT, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, and PUBLISH with QoS 1 (until
//! PUBACK) or 2 (until PUBCOMP; PUBREC asks for the PUBREL, whose delay is the client's). PUBLISH with QoS 0, DISCONNECT and AUTH have
//! no answer. What the broker publishes is no request, whatever its QoS: the client answers it, and requests are those of a service.
//! The key is the topic, or the first filter, with numbers and identifiers folded; a topic alias of MQTT 5 is resolved. The status is
//! the answer's reason code where it is an error. A broker of MQTT 5 that disconnects with an error ends the requests in flight with it.
//!
//! A broker answers PUBLISH packets in their order (MQTT 5.0, 4.6): behind a hole this tells which answers it held.

mod packet;
mod reason;

use std::collections::VecDeque;

use record::{Side, Status, Word};

use super::keys::folded_path;
use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};
use packet::{Packet, Version};

/// MQTT, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "mqtt", begins, new: |shown| Box::new(Mqtt { shown, ..Mqtt::default() }) };

/// MQTT's port.
const PORT: u16 = 1883;
/// Most requests with packet identifiers in flight.
const OPEN_MAX: usize = 4096;
/// Most topic aliases that are remembered, and the longest topic of one.
const ALIASES_MAX: usize = 64;
const ALIASED_MAX: usize = 128;

/// Kinds of requests: one packet identifier is one of each at most.
const AT_LEAST_ONCE: u32 = 1;
const EXACTLY_ONCE: u32 = 2;
const SUBSCRIBE: u32 = 3;
const UNSUBSCRIBE: u32 = 4;

/// A connection.
#[derive(Debug, Default)]
struct Mqtt {
    shown: Shown,
    version: Option<Version>,
    /// Requests in flight, as [`number`] has them, in the order in which they were sent.
    open: VecDeque<u32>,
    /// So many of the first of them may have been answered in a hole.
    doubtful: usize,
    /// A CONNECT or PINGREQ may have been answered in a hole.
    is_ordered_doubtful: bool,
    /// A hole may hold requests with the identifiers of some of them.
    is_unsure: bool,
    /// Topics by their aliases.
    aliases: Vec<(u16, Box<[u8]>)>,
}

/// The number of a request: its kind and its packet identifier.
fn number(kind: u32, packet: u16) -> u32 {
    kind << 16 | u32::from(packet)
}

fn of(number: u32) -> Of {
    Of::Id(number.into())
}

fn begins(start: &Start<'_>) -> bool {
    if start.side == Side::Client && packet::is_connect(start.bytes) {
        return true;
    }
    !start.is_first && start.is_at(PORT) && packet::are_packets(start.side, start.bytes)
}

impl Decoder for Mqtt {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        match packet::read(side, start) {
            Ok(packet) => Length::Is(packet.length),
            Err(length) => length,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let Ok(packet) = packet::read(message.side, message.bytes) else { return };
        match message.side {
            Side::Client => self.asks(&packet, requests),
            Side::Server => self.answers(&packet, requests),
        }
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        packet::are_packets(side, start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        if side == Side::Server && requests.is_open(Of::Order) {
            // A client has one in flight: one before it was answered in the hole, which shows late.
            requests.forget_before_newest();
            self.is_ordered_doubtful = true;
        }
        // With holes of both sides an answer may be that of a request that was not seen, with the identifier of one that was.
        if side == Side::Server && !self.is_unsure {
            self.doubtful = self.open.len();
        } else if side == Side::Client && self.doubtful == 0 {
            self.is_unsure = !self.open.is_empty();
        } else {
            self.forget_all(requests);
        }
        if side == Side::Client {
            self.aliases.clear();
        }
    }
}

impl Mqtt {
    fn forget_all(&mut self, requests: &mut Requests) {
        requests.forget_all();
        self.open.clear();
        (self.doubtful, self.is_unsure) = (0, false);
    }

    fn asks(&mut self, packet: &Packet<'_>, requests: &mut Requests) {
        match packet.kind {
            packet::CONNECT => {
                self.version = packet::version(packet.body).or(self.version);
                self.ask_in_order(Word::new(b"CONNECT"), requests);
            }
            packet::PINGREQ => self.ask_in_order(Word::new(b"PINGREQ"), requests),
            packet::PUBLISH => self.publishes(packet, requests),
            packet::PUBREL => {
                let of = of(number(EXACTLY_ONCE, packet.identifier()));
                requests.ask_more(of);
                requests.asked(of);
            }
            packet::SUBSCRIBE | packet::UNSUBSCRIBE => {
                let (kind, name): (_, &[u8]) = match packet.kind {
                    packet::SUBSCRIBE => (SUBSCRIBE, b"SUBSCRIBE"),
                    _ => (UNSUBSCRIBE, b"UNSUBSCRIBE"),
                };
                let key = folded_path(packet.first_filter(self.version), self.shown);
                let asked = Asked { operation: Word::new(name), key: &key, stream: 0 };
                self.ask(number(kind, packet.identifier()), &asked, requests);
            }
            _ => {}
        }
    }

    fn ask_in_order(&mut self, operation: Word, requests: &mut Requests) {
        if std::mem::take(&mut self.is_ordered_doubtful) {
            // A client has one in flight: the one before has its answer.
            requests.forget_queue();
        }
        requests.ask(Of::Order, &Asked::only(operation));
        requests.asked(Of::Order);
    }

    fn publishes(&mut self, packet: &Packet<'_>, requests: &mut Requests) {
        let Some(publish) = packet.publish() else { return };
        if publish.topic.is_empty() {
            self.version = Some(Version::Five);
        }
        let is_five = self.version == Some(Version::Five);
        let alias = publish.alias().filter(|_| is_five);
        if let Some(alias) = alias.filter(|_| !publish.topic.is_empty()) {
            self.remember(alias, publish.topic);
        }
        let kind = match packet.quality() {
            1 => AT_LEAST_ONCE,
            2 => EXACTLY_ONCE,
            _ => return,
        };
        let number = number(kind, publish.identifier);
        // Sent again, since no answer came: the request is what it was.
        if packet.is_repeated() && requests.is_open(of(number)) {
            return;
        }
        let known =
            || self.aliases.iter().find(|(known, _)| Some(*known) == alias).map(|(_, topic)| &**topic);
        let topic = if publish.topic.is_empty() { known().unwrap_or_default() } else { publish.topic };
        let key = folded_path(topic, self.shown);
        self.ask(number, &Asked { operation: Word::new(b"PUBLISH"), key: &key, stream: 0 }, requests);
    }

    fn remember(&mut self, alias: u16, topic: &[u8]) {
        let topic = topic.get(..topic.len().min(ALIASED_MAX)).unwrap_or_default();
        self.aliases.retain(|(known, _)| *known != alias);
        if self.aliases.len() < ALIASES_MAX {
            self.aliases.push((alias, topic.into()));
        }
    }

    fn ask(&mut self, number: u32, asked: &Asked<'_>, requests: &mut Requests) {
        if self.open.len() >= OPEN_MAX {
            self.forget_all(requests);
        }
        if let Some(place) = self.open.iter().position(|&open| open == number) {
            // The identifier is used again: the answer was not seen.
            self.remove(place);
        }
        self.open.push_back(number);
        requests.ask(of(number), asked);
        if number >> 16 != EXACTLY_ONCE {
            requests.asked(of(number));
        }
    }

    fn remove(&mut self, place: usize) {
        self.open.remove(place);
        self.doubtful -= usize::from(place < self.doubtful);
        self.is_unsure &= !self.open.is_empty();
    }

    fn answers(&mut self, packet: &Packet<'_>, requests: &mut Requests) {
        match packet.kind {
            packet::CONNACK => {
                let status = reason::of_connack(packet.body, self.version);
                return self.answer_in_order("CONNECT", status, requests);
            }
            packet::PINGRESP => return self.answer_in_order("PINGREQ", Status::Good, requests),
            packet::PUBACK => self.answer(AT_LEAST_ONCE, packet, requests),
            packet::PUBREC if reason::of_ack(packet.body) == Status::Good => {
                requests.asks_for_data(of(number(EXACTLY_ONCE, packet.identifier())));
            }
            packet::PUBREC | packet::PUBCOMP => self.answer(EXACTLY_ONCE, packet, requests),
            packet::SUBACK => self.answer(SUBSCRIBE, packet, requests),
            packet::UNSUBACK => self.answer(UNSUBSCRIBE, packet, requests),
            packet::DISCONNECT => {
                let status = reason::of_disconnect(packet.body);
                if status != Status::Good {
                    for number in std::mem::take(&mut self.open) {
                        requests.answer(of(number));
                        requests.answered(of(number), status);
                    }
                    (self.doubtful, self.is_unsure) = (0, false);
                }
            }
            _ => {}
        }
        requests.passed_behind();
    }

    fn answer_in_order(&mut self, operation: &str, status: Status, requests: &mut Requests) {
        if std::mem::take(&mut self.is_ordered_doubtful) && requests.is_behind_unseen() {
            // It is that of a request in a hole, behind an answer in another one.
            requests.forget(Of::Order);
        }
        if requests.skip_to(|asked, _| asked == operation) {
            requests.answer(Of::Order);
            requests.answered(Of::Order, status);
        } else {
            requests.answered_none();
        }
    }

    fn answer(&mut self, kind: u32, packet: &Packet<'_>, requests: &mut Requests) {
        let number = number(kind, packet.identifier());
        let of = of(number);
        if self.doubtful > 0 && requests.is_behind_unseen() {
            // The identifier of a request in a hole, behind an answer in another one.
            self.forget_all(requests);
        }
        if let Some(place) = self.open.iter().position(|&open| open == number) {
            self.answered_before(place, kind, requests);
        }
        requests.answer(of);
        let status = match kind {
            SUBSCRIBE | UNSUBSCRIBE => reason::of_list(packet.body, kind == SUBSCRIBE, self.version),
            _ => reason::of_ack(packet.body),
        };
        requests.answered(of, status);
    }

    /// The request at a place is answered: those of its kind before it were answered in the hole, if there was one.
    fn answered_before(&mut self, place: usize, kind: u32, requests: &mut Requests) {
        let mut left = place.min(self.doubtful);
        let mut at = 0;
        let mut answered = place;
        while left > 0 {
            left -= 1;
            match self.open.get(at).copied() {
                Some(before) if before >> 16 == kind => {
                    requests.forget(of(before));
                    self.remove(at);
                    answered -= 1;
                }
                _ => at += 1,
            }
        }
        self.remove(answered);
    }
}

#[cfg(test)]
mod tests;
