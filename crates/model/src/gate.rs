//! Nagle's algorithm at its place in a ring, message by message: which messages leave in which packet.
//!
//! The rule is Minshall's (Linux): a packet that is not full waits while an earlier packet that was not full is
//! unacknowledged; full packets leave at once. Every message of the peer carries the acknowledgement of all that the peer
//! had received when it left.

use std::collections::VecDeque;

use super::extras::Extras;
use super::nagle::{CLIENT_TRANSMIT, SERVER_TRANSMIT};
use super::{Role, Stage};

/// A sender with Nagle's algorithm.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    message_bytes: u64,
    /// Bytes of a full packet.
    payload_bytes: u64,
    /// The messages not yet complete in a packet, with the stream offset of their end.
    held: VecDeque<Held>,
    /// Stream offset up to which messages were written.
    written: u64,
    /// Stream offset up to which packets have left.
    left: u64,
    /// End of the last packet that was not full and is not acknowledged.
    small: Option<u64>,
    /// For each operation, the end of the packet in which its last message left.
    packet_end: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    operation: usize,
    end: u64,
}

/// A message that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    /// Its operation.
    pub(super) operation: usize,
    /// No earlier message ends in its packet: it carries what a packet costs.
    pub(super) leads: bool,
}

impl Gate {
    /// A sender of messages of one size, for `operations` operations.
    pub(super) fn new(message_bytes: u64, payload_bytes: u64, operations: usize) -> Self {
        Self {
            message_bytes: message_bytes.max(1),
            payload_bytes: payload_bytes.max(1),
            held: VecDeque::new(),
            written: 0,
            left: 0,
            small: None,
            packet_end: vec![0; operations],
        }
    }

    /// The operation's message is written. Adds the messages that leave to `leaving`, in order.
    pub(super) fn write(&mut self, operation: usize, leaving: &mut Vec<Departure>) {
        self.written += self.message_bytes;
        self.held.push_back(Held { operation, end: self.written });
        while self.written - self.left >= self.payload_bytes {
            self.packet(self.left + self.payload_bytes, leaving);
        }
        self.rest(leaving);
    }

    /// End of the packet in which the operation's last message left.
    pub(super) fn packet_end(&self, operation: usize) -> u64 {
        self.packet_end.get(operation).copied().unwrap_or(0)
    }

    /// Everything up to this end is acknowledged.
    pub(super) fn acknowledged(&mut self, end_acknowledged: u64, leaving: &mut Vec<Departure>) {
        if self.small.is_some_and(|end| end <= end_acknowledged) {
            self.small = None;
            self.rest(leaving);
        }
    }

    /// End of the small packet that waits for its acknowledgement.
    pub(super) fn unacknowledged(&self) -> Option<u64> {
        self.small
    }

    /// The peer's delayed ACK of a small packet that ended there arrives; void when it was acknowledged before.
    pub(super) fn timed_out(&mut self, end: u64, leaving: &mut Vec<Departure>) {
        if self.small == Some(end) {
            self.small = None;
            self.rest(leaving);
        }
    }

    /// Everything leaves, as when TCP_NODELAY is set.
    pub(super) fn flush(&mut self, leaving: &mut Vec<Departure>) {
        if self.written > self.left {
            self.packet(self.written, leaving);
            self.small = Some(self.left);
        }
    }

    fn rest(&mut self, leaving: &mut Vec<Departure>) {
        if self.small.is_none() {
            self.flush(leaving);
        }
    }

    fn packet(&mut self, end: u64, leaving: &mut Vec<Departure>) {
        self.left = end;
        let mut leads = true;
        while let Some(held) = self.held.front().copied().filter(|held| held.end <= end) {
            self.held.pop_front();
            if let Some(packet_end) = self.packet_end.get_mut(held.operation) {
                *packet_end = end;
            }
            leaving.push(Departure { operation: held.operation, leads });
            leads = false;
        }
    }
}

/// A gate in a ring.
#[derive(Clone, Debug)]
pub(super) struct PlacedGate {
    pub(super) gate: Gate,
    /// The stage before which messages wait.
    pub(super) before: usize,
    /// The peer's first stage: what arrives there is received.
    pub(super) received_at: usize,
    /// The wire on which the peer's messages leave, with the acknowledgement of what was received.
    pub(super) peer_wire: usize,
    /// The stage whose arrivals acknowledge.
    pub(super) acknowledged_at: usize,
    /// End of what the peer has received.
    pub(super) received: u64,
    /// For each operation, the acknowledgement that the peer's message carries.
    pub(super) carried: Vec<u64>,
    /// The thread that writes, where its going idle flushes.
    pub(super) flushed_by: Option<usize>,
    /// The peer's delayed ACK, microseconds after the packet left.
    pub(super) ack_delay_us: f64,
}

/// The gates of a ring, the server's first, and for each stage the gate whose packets it works on. A ring without the
/// wire's stages has none.
pub(super) fn place(
    stages: &[Stage],
    extras: &Extras,
    operations: usize,
) -> (Vec<PlacedGate>, Vec<Option<usize>>) {
    let named = |name: &str| stages.iter().position(|stage| stage.name == name);
    let count = stages.len();
    let (mut gates, mut of_stage) = (Vec::new(), vec![None; count]);
    let sides = [
        (extras.server_collects, SERVER_TRANSMIT, "W2", "W1"),
        (extras.client_collects, CLIENT_TRANSMIT, "W1", "W2"),
    ];
    for (collecting, transmit, own_wire, peer_wire) in sides {
        let (Some(collecting), Some(own), Some(peer)) = (collecting, named(own_wire), named(peer_wire))
        else {
            continue;
        };
        let before = named(transmit).unwrap_or(own);
        // The packets exist from the gate to the end of the peer's side.
        let mut stage = before;
        while stage != peer {
            if Some(stage) != named(CLIENT_TRANSMIT) && Some(stage) != named(SERVER_TRANSMIT)
                || stage == before
            {
                of_stage[stage] = Some(gates.len());
            }
            stage = (stage + 1) % count;
        }
        let thread = (before + count - 1) % count;
        let is_thread = matches!(stages[thread].role(), Role::Server | Role::Client);
        gates.push(PlacedGate {
            gate: Gate::new(collecting.message_bytes, collecting.payload_bytes, operations),
            before,
            received_at: (own + 1) % count,
            peer_wire: peer,
            acknowledged_at: (peer + 1) % count,
            received: 0,
            carried: vec![0; operations],
            flushed_by: (collecting.flushes_when_idle && is_thread).then_some(thread),
            ack_delay_us: collecting.ack_delay_us,
        });
    }
    (gates, of_stage)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three messages fill a packet and a bit.
    fn gate() -> Gate {
        Gate::new(40, 100, 16)
    }

    fn left(gate: &mut Gate, does: impl FnOnce(&mut Gate, &mut Vec<Departure>)) -> Vec<(usize, bool)> {
        let mut leaving = Vec::new();
        does(gate, &mut leaving);
        leaving.iter().map(|d| (d.operation, d.leads)).collect()
    }

    #[test]
    fn the_second_small_packet_waits_for_the_acknowledgement_of_the_first() {
        let mut gate = gate();
        assert_eq!(left(&mut gate, |g, l| g.write(0, l)), [(0, true)]);
        assert_eq!(left(&mut gate, |g, l| g.write(1, l)), []);
        assert_eq!(left(&mut gate, |g, l| g.write(2, l)), []);
        // The successor of an operation that is still held acknowledges nothing new.
        assert_eq!(left(&mut gate, |g, l| g.acknowledged(g.packet_end(2), l)), []);
        assert_eq!(left(&mut gate, |g, l| g.acknowledged(g.packet_end(0), l)), [(1, true), (2, false)]);
        assert_eq!(left(&mut gate, |g, l| g.write(3, l)), [], "the new packet is unacknowledged too");
        assert_eq!(
            left(&mut gate, |g, l| g.acknowledged(g.packet_end(1), l)),
            [(3, true)],
            "by its first operation"
        );
    }

    #[test]
    fn a_full_packet_leaves_at_once_and_leaves_the_rest_behind() {
        let mut gate = gate();
        left(&mut gate, |g, l| g.write(0, l));
        left(&mut gate, |g, l| g.write(1, l));
        left(&mut gate, |g, l| g.write(2, l));
        // 120 bytes wait: 100 leave, and with them two whole messages.
        assert_eq!(left(&mut gate, |g, l| g.write(3, l)), [(1, true), (2, false)]);
        assert_eq!(left(&mut gate, |g, l| g.acknowledged(g.packet_end(1), l)), [(3, true)]);
    }

    #[test]
    fn a_flush_waits_for_nothing() {
        let mut gate = gate();
        left(&mut gate, |g, l| g.write(0, l));
        left(&mut gate, |g, l| g.write(1, l));
        assert_eq!(left(&mut gate, Gate::flush), [(1, true)]);
        assert_eq!(left(&mut gate, Gate::flush), []);
        assert_eq!(
            left(&mut gate, |g, l| g.acknowledged(g.packet_end(0), l)),
            [],
            "the flushed packet is unacknowledged"
        );
    }

    #[test]
    fn messages_longer_than_a_packet_never_share_one_that_costs_extra() {
        let mut gate = Gate::new(250, 100, 4);
        assert_eq!(left(&mut gate, |g, l| g.write(0, l)), [(0, true)]);
        assert_eq!(left(&mut gate, |g, l| g.write(1, l)), [], "its last 50 bytes wait");
        assert_eq!(
            left(&mut gate, |g, l| g.write(2, l)),
            [(1, true), (2, true)],
            "two full packets end them"
        );
    }
}
