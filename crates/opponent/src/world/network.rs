//! The way of a packet from host to host: the sender's device, the path, the receiver's device, and the capture points.

use fastrand::Rng;
use record::Side;
use tcpsim::tcp::Segment;
use tcpsim::{EPOCH_NS, Ns};

use super::connection::Flight;
use super::{Event, World};
use crate::frames::{Packet, Point, Stamp};
use crate::setup::{Bloat, MS, SECOND, Setup};

/// Headers of IP and TCP, and what Ethernet adds on the wire, bytes.
const HEADERS: u64 = 52 + 38;

#[derive(Debug)]
pub(super) struct Network {
    /// When each host's device is free: to send, to receive.
    sending_until: [Ns; 2],
    receiving_until: [Ns; 2],
    /// When each direction of the link is free, by sender.
    free_at: [Ns; 2],
    /// Time for which each direction was sending, ns.
    sent_ns: [Ns; 2],
    /// Packets of each host so far.
    packets: [u16; 2],
    /// Longest wait of a packet behind others, ns.
    pub(super) queue_ns: Ns,
    chances: Rng,
}

impl Network {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            sending_until: [0; 2],
            receiving_until: [0; 2],
            free_at: [0; 2],
            sent_ns: [0; 2],
            packets: [0; 2],
            queue_ns: 0,
            chances: Rng::with_seed(setup.seed ^ 0x4e57),
        }
    }
}

impl Network {
    /// Time for which the busier direction was sending, ns.
    pub(super) fn busiest_ns(&self) -> Ns {
        self.sent_ns[0].max(self.sent_ns[1])
    }
}

/// The queue of other traffic at a time: it grows for a fifth of the download, and then swings between half and full, as a
/// window that is halved at each loss.
fn queue_ns(bloat: &Bloat, now: Ns) -> Ns {
    let phase = now % bloat.period_ns;
    if phase >= bloat.length_ns {
        return 0;
    }
    let rise = (bloat.length_ns / 5).max(1);
    if phase < rise {
        return (bloat.queue_ns as f64 * phase as f64 / rise as f64) as Ns;
    }
    let swing = ((phase - rise) % rise) as f64 / rise as f64;
    (bloat.queue_ns as f64 * (0.5 + 0.5 * swing)) as Ns
}

impl World<'_> {
    /// Sends a segment with data or an acknowledgement, and returns when it left the host.
    pub(super) fn send_segment(&mut self, connection: usize, from: Side, segment: Segment) -> Ns {
        self.send(connection, from, Packet::Data(segment))
    }

    /// Sends a packet, and returns when it left the host.
    pub(super) fn send(&mut self, connection: usize, from: Side, packet: Packet) -> Ns {
        let left = self.network.sending_until[from as usize].max(self.now)
            + self.setup.hosts[from as usize].packet_ns;
        self.network.sending_until[from as usize] = left;
        let mut stamp = self.stamp(connection, from, left);
        self.seen(Point::Of(from), left, connection, from, (packet, stamp));
        let mss = self.setup.path.mtu - 52;
        let Packet::Data(whole) = packet else {
            self.pass(connection, from, (packet, stamp), left);
            return left;
        };
        let mut seq = whole.seq;
        loop {
            let bytes = (whole.end() - seq).min(mss.into()) as u32;
            let is_last = seq + u64::from(bytes) == whole.end();
            let piece = Segment { seq, bytes, push: whole.push && is_last, ..whole };
            self.pass(connection, from, (Packet::Data(piece), stamp), left);
            seq += u64::from(bytes);
            if is_last {
                return left;
            }
            stamp = self.stamp(connection, from, left);
        }
    }

    /// What the sender counts, in its next packet. Linux numbers the IP packets of each connection, Windows those of the host, and the
    /// others leave the number out.
    fn stamp(&mut self, connection: usize, from: Side, at: Ns) -> Stamp {
        let (clock, echo) = (((EPOCH_NS + at) / MS) as u32, self.connections[connection].echo[from as usize]);
        Stamp { number: self.number(connection, from), clock, echo }
    }

    fn number(&mut self, connection: usize, from: Side) -> u16 {
        let counter = match self.setup.hosts[from as usize].tcp.name {
            "linux" => &mut self.connections[connection].packets[from as usize],
            "windows" => &mut self.network.packets[from as usize],
            _ => return 0,
        };
        *counter = counter.wrapping_add(1);
        *counter
    }

    fn seen(&mut self, point: Point, at: Ns, connection: usize, from: Side, packet: (Packet, Stamp)) {
        if let Some(recorder) = &mut self.recorder {
            recorder.frame(point, at, connection, from, packet, self.setup);
        }
    }

    /// Passes a packet over the path.
    fn pass(&mut self, connection: usize, from: Side, stamped: (Packet, Stamp), left: Ns) {
        let (packet, stamp) = stamped;
        self.segments += 1;
        let (path, to) = (self.setup.path, from.peer());
        let payload = if let Packet::Data(segment) = packet { segment.bytes } else { 0 };
        let on_wire_ns = (u64::from(payload) + HEADERS) * 8 * SECOND / path.bits_per_second;
        let other_ns = match &path.bloat {
            Some(bloat) if from == Side::Server => queue_ns(bloat, left),
            _ => 0,
        };
        let network = &mut self.network;
        let free_at = &mut network.free_at;
        let waits_ns = free_at[from as usize].saturating_sub(left);
        network.queue_ns = network.queue_ns.max(waits_ns);
        let queued = (waits_ns as f64 * path.bits_per_second as f64 / 8e9) as u64;
        if queued > path.queue_bytes || path.black_hole.is_some_and(|most| payload > most) {
            return;
        }
        let collides = free_at[to as usize] > left && network.chances.f64() < path.collisions;
        let done = free_at[from as usize].max(left + other_ns) + on_wire_ns;
        free_at[from as usize] = done;
        network.sent_ns[from as usize] += on_wire_ns;
        let is_lost = network.chances.f64() < path.loss || collides;
        let is_lost_early = is_lost && network.chances.bool();
        let is_overtaken = path.reorder > 0.0 && network.chances.f64() < path.reorder;
        if is_lost_early {
            return;
        }
        let part = if from == Side::Client { path.forward } else { 1.0 - path.forward };
        let travels = (path.rtt_ns as f64 * part) as Ns;
        let late = if is_overtaken { 3 * on_wire_ns + path.rtt_ns / 20 } else { 0 };
        self.seen(Point::Middle, done + late + travels / 2, connection, from, stamped);
        if is_lost {
            return;
        }
        let arrives = done + late + travels;
        self.seen(Point::Of(to), arrives, connection, from, stamped);
        let network = &mut self.network;
        let processed =
            network.receiving_until[to as usize].max(arrives) + self.setup.hosts[to as usize].packet_ns;
        let flight = Flight { connection, to, packet, clock: stamp.clock };
        if is_overtaken {
            return self.at(processed, Event::Arrive(flight));
        }
        network.receiving_until[to as usize] = processed;
        self.arrives(processed, flight);
    }
}
