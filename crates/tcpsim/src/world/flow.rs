//! The messages that one end makes, from their making to their taking.

use std::collections::VecDeque;

use record::{Op, Stamp};

use super::wire::Packet;
use crate::op::{Part, Parts};
use crate::tcp::{HOLDS, Held, Hold};
use crate::{EPOCH_NS, Ns};

/// A message on its way, and when it was where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter {
    /// Offset behind its last byte.
    pub(super) end: u64,
    /// The operation: of a request what is known by its start, of a response what its request found.
    pub(super) op: Op,
    /// Where the request's time went, of a response.
    pub(super) request: Parts,
    /// Responses that the client had taken when it made this request.
    pub(super) acknowledged: u64,
    pub(super) begun: Ns,
    pub(super) made: Ns,
    pub(super) send_begun: Ns,
    /// The maker's time without room in its socket, when the send began and up to the end of it.
    pub(super) blocked: Ns,
    pub(super) written: Ns,
    /// The connection's holds when it was written; when it was sent, its own.
    pub(super) held: Held,
    pub(super) transmitted: Ns,
    /// The packet that brought its end, or what was missing before that.
    pub(super) packet: Option<Packet>,
    pub(super) delivered: Ns,
}

/// A stamp of a simulated moment.
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

/// Adds up parts that follow each other.
struct Ledger {
    parts: Parts,
    at: Ns,
}

impl Ledger {
    /// Up to `until` it was this; what is over already adds nothing.
    #[inline]
    fn until(&mut self, part: Part, until: Ns) {
        if until > self.at {
            self.parts[part as usize] += until - self.at;
            self.at = until;
        }
    }
}

impl Letter {
    /// Where its time went, from `begun` to `taken`, by a thread that last began to run at `ran`.
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
            if packet.segment.again || packet.segment.end() < self.end {
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

/// Messages in their order. Each passes four places, and none overtakes another.
#[derive(Debug, Default)]
pub(super) struct Flow {
    letters: VecDeque<Letter>,
    /// Number of the first one that is still here.
    first: u64,
    /// Numbers of the first ones that are not yet being sent, written, transmitted, delivered.
    sending: u64,
    written: u64,
    sent: u64,
    delivered: u64,
    /// Offset behind the last one.
    pub(super) end: u64,
}

impl Flow {
    #[inline]
    pub(super) fn push(&mut self, letter: Letter) {
        self.end = letter.end;
        self.letters.push_back(letter);
    }

    #[inline]
    fn at(&mut self, number: u64) -> Option<&mut Letter> {
        self.letters.get_mut((number - self.first) as usize)
    }

    /// A send of all that was made begins; `blocked` is the thread's time without room so far.
    #[inline]
    pub(super) fn send_begins(&mut self, now: Ns, blocked: Ns) {
        let mut number = self.sending;
        while let Some(letter) = self.at(number) {
            (letter.send_begun, letter.blocked) = (now, blocked);
            number += 1;
        }
        self.sending = number;
    }

    /// The socket has taken everything up to `end`.
    #[inline]
    pub(super) fn is_written(&mut self, now: Ns, end: u64, held: Held, blocked: Ns) {
        let mut number = self.written;
        while let Some(letter) = self.at(number).filter(|letter| letter.end <= end) {
            (letter.written, letter.held, letter.blocked) = (now, held, blocked - letter.blocked);
            number += 1;
        }
        self.written = number;
    }

    /// Everything up to `end` passed the capture point at `transmitted`.
    #[inline]
    pub(super) fn is_sent(&mut self, end: u64, held: Held, transmitted: Ns) {
        let mut number = self.sent;
        while let Some(letter) = self.at(number).filter(|letter| letter.end <= end) {
            for (own, all) in letter.held.iter_mut().zip(held) {
                *own = all - *own;
            }
            letter.transmitted = transmitted;
            number += 1;
        }
        self.sent = number;
    }

    /// The other end has everything up to `end`, since this packet.
    #[inline]
    pub(super) fn is_delivered(&mut self, now: Ns, end: u64, packet: &Packet) {
        let mut number = self.delivered;
        while let Some(letter) = self.at(number).filter(|letter| letter.end <= end) {
            (letter.packet, letter.delivered) = (Some(*packet), now);
            number += 1;
        }
        self.delivered = number;
    }

    /// Whether the next message is among the first `end` bytes.
    #[inline]
    pub(super) fn has_message(&self, end: u64) -> bool {
        self.letters.front().is_some_and(|letter| letter.end <= end)
    }

    /// The next message is taken.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Letter> {
        let letter = self.letters.pop_front();
        self.first += u64::from(letter.is_some());
        letter
    }
}
