//! The messages that one end sends: when each was where, until the other end takes it.

use std::collections::VecDeque;

use record::{Op, Stamp};

use super::wire::Packet;
use crate::op::{Part, Parts};
use crate::tcp::{HOLDS, Held, Hold};
use crate::{EPOCH_NS, Ns};

/// A message on its way to the other end, with the time of each place that it passed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transit {
    /// Offset after its last byte.
    pub(super) end: u64,
    /// The operation: for a request as far as its start determines it, for a response with the request's stamps.
    pub(super) op: Op,
    /// For a response: where the request's time went.
    pub(super) request: Parts,
    /// For a request: responses that the client had taken when it made it.
    pub(super) acknowledged: u64,
    pub(super) begun: Ns,
    pub(super) made: Ns,
    pub(super) send_begun: Ns,
    /// The sender's time without room in its socket: at the begin of the send, and after it the send's own.
    pub(super) blocked: Ns,
    pub(super) written: Ns,
    /// The connection's holds when it was written; once it is sent, its own.
    pub(super) held: Held,
    pub(super) transmitted: Ns,
    /// The packet that completed it.
    pub(super) packet: Option<Packet>,
    pub(super) delivered: Ns,
}

/// The stamp of a simulated time.
pub(super) fn stamp(at: Ns) -> Stamp {
    Stamp::at(EPOCH_NS + at)
}

const HELD: [(Hold, Part); HOLDS] = [
    (Hold::Nagle, Part::Nagle),
    (Hold::Cork, Part::Cork),
    (Hold::Congestion, Part::Congestion),
    (Hold::Window, Part::Window),
    (Hold::Device, Part::Device),
];

/// Assigns consecutive spans of time to parts.
struct Ledger {
    parts: Parts,
    at: Ns,
}

impl Ledger {
    /// Assigns the time up to `until` to a part; a time in the past adds nothing.
    #[inline]
    fn until(&mut self, part: Part, until: Ns) {
        if until > self.at {
            self.parts[part as usize] += until - self.at;
            self.at = until;
        }
    }
}

impl Transit {
    /// Where its time went from `begun` to `taken`; the taking thread last began to run at `ran`.
    pub(super) fn parts(&self, ran: Ns, taken: Ns) -> Parts {
        let mut ledger = Ledger { parts: [0; Part::COUNT], at: self.begun };
        ledger.until(Part::Work, self.made);
        ledger.until(Part::Gather, self.send_begun);
        ledger.until(Part::Buffer, self.send_begun + self.blocked);
        ledger.until(Part::Send, self.written);
        for (hold, part) in HELD {
            let until = ledger.at + self.held[hold as usize];
            ledger.until(part, until);
        }
        ledger.until(Part::Transmit, self.transmitted);
        if let Some(packet) = &self.packet {
            if packet.segment.retransmitted || packet.segment.end() < self.end {
                ledger.until(Part::Lost, packet.arrived);
            }
            ledger.until(Part::WireStart, packet.ready);
            ledger.until(Part::WireQueue, packet.began);
            ledger.until(Part::Wire, packet.ended);
            ledger.until(Part::Delay, packet.arrived);
            ledger.until(Part::Interrupt, packet.seen);
        }
        ledger.until(Part::Softirq, self.delivered);
        ledger.until(Part::Start, ran.min(taken));
        ledger.until(Part::Queue, taken);
        ledger.parts
    }
}

/// Messages in order. Each passes four places, and none overtakes another.
#[derive(Debug, Default)]
pub(super) struct Flow {
    messages: VecDeque<Transit>,
    /// Number of the first message that is not taken.
    first: u64,
    /// Numbers of the first messages whose send has not begun, that are not written, transmitted, delivered.
    sending: u64,
    written: u64,
    sent: u64,
    delivered: u64,
    /// Offset after the last message.
    pub(super) end: u64,
}

impl Flow {
    #[inline]
    pub(super) fn push(&mut self, message: Transit) {
        self.end = message.end;
        self.messages.push_back(message);
    }

    #[inline]
    fn at(&mut self, number: u64) -> Option<&mut Transit> {
        self.messages.get_mut((number - self.first) as usize)
    }

    /// A send of all messages made so far begins; `blocked` is the thread's time without room so far.
    #[inline]
    pub(super) fn send_begins(&mut self, now: Ns, blocked: Ns) {
        let mut number = self.sending;
        while let Some(message) = self.at(number) {
            (message.send_begun, message.blocked) = (now, blocked);
            number += 1;
        }
        self.sending = number;
    }

    /// The socket has taken everything up to `end`.
    #[inline]
    pub(super) fn is_written(&mut self, now: Ns, end: u64, held: Held, blocked: Ns) {
        let mut number = self.written;
        while let Some(message) = self.at(number).filter(|message| message.end <= end) {
            (message.written, message.held, message.blocked) = (now, held, blocked - message.blocked);
            number += 1;
        }
        self.written = number;
    }

    /// Everything up to `end` passed the capture point at `transmitted`.
    #[inline]
    pub(super) fn is_sent(&mut self, end: u64, held: Held, transmitted: Ns) {
        let mut number = self.sent;
        while let Some(message) = self.at(number).filter(|message| message.end <= end) {
            for (own, all) in message.held.iter_mut().zip(held) {
                *own = all - *own;
            }
            message.transmitted = transmitted;
            number += 1;
        }
        self.sent = number;
    }

    /// This packet gave the other end everything up to `end`.
    #[inline]
    pub(super) fn is_delivered(&mut self, now: Ns, end: u64, packet: &Packet) {
        let mut number = self.delivered;
        while let Some(message) = self.at(number).filter(|message| message.end <= end) {
            (message.packet, message.delivered) = (Some(*packet), now);
            number += 1;
        }
        self.delivered = number;
    }

    /// Whether the next message is among the first `end` bytes.
    #[inline]
    pub(super) fn has_message(&self, end: u64) -> bool {
        self.messages.front().is_some_and(|message| message.end <= end)
    }

    /// Takes the next message.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Transit> {
        let message = self.messages.pop_front();
        self.first += u64::from(message.is_some());
        message
    }
}
