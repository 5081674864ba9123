//! One capture point of a live ring: packets in, op records out.

use record::{Op, Side};

use crate::application::Protocol;
use crate::follow::{Digests, Flow};
use crate::link::Link;
use crate::live::Packet;
use crate::observer::StreamHole;
use crate::packet::{At, decode};
use crate::record::{Counters, Record};
use crate::vantage::{Numbers, Selection, Vantage};

/// The report of a capture point.
#[derive(Clone, Debug)]
pub struct TapReport {
    /// Operations on the medium, in the order in which their responses passed.
    pub ops: Vec<Op>,
    /// Counters.
    pub counters: Counters,
    /// Where bytes are missing, the first 10,000 times.
    pub holes: Vec<StreamHole>,
}

/// A [`Vantage`] of one service that keeps one side's packets: on an interface that shows a packet twice
/// (loopback), each side takes its own copy. A client's requests are outgoing, a server's incoming.
#[derive(Debug)]
pub struct Tap {
    side: Side,
    port: u16,
    frame_bytes_max: u32,
    super_packets: u64,
    vantage: Vantage,
    record: Record,
}

impl Tap {
    /// A tap for the target's port; `mtu_bytes` is the interface's, `limit` the most operations kept.
    #[must_use]
    pub fn new(side: Side, port: u16, mtu_bytes: u32, limit: usize) -> Self {
        Self {
            side,
            port,
            // Ethernet header and two tags.
            frame_bytes_max: mtu_bytes.saturating_add(14 + 8),
            super_packets: 0,
            vantage: Self::vantage(port, Digests::default()),
            record: Record::new(side, limit),
        }
    }

    fn vantage(port: u16, digests: Digests) -> Vantage {
        Vantage::new(Selection {
            port: Some(port),
            protocol: Protocol::Iscsi(digests),
            numbers: Numbers::ClientPort,
            ignores_tcp: true,
            ..Selection::default()
        })
    }

    /// The same tap for connections that have negotiated these digests. A capture that begins after the login
    /// does not show them, so the caller passes them.
    #[must_use]
    pub fn with_digests(mut self, digests: Digests) -> Self {
        self.vantage = Self::vantage(self.port, digests);
        self
    }

    /// Whose capture point it is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Processes one packet; ignores the other side's copies.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let segment = match decode(packet.data, packet.wire_bytes) {
            Ok(segment) => segment,
            Err(reason) => return self.vantage.not_tcp(reason, Link::Ethernet, packet.data),
        };
        let flow = if segment.destination.port == self.port { Flow::Requests } else { Flow::Responses };
        if packet.outgoing != ((flow == Flow::Requests) == (self.side == Side::Client)) {
            return;
        }
        self.super_packets += u64::from(packet.wire_bytes > self.frame_bytes_max);
        let at = At { ns: packet.time_ns, frame: 0 };
        self.vantage.segment(&segment, at, packet.wire_bytes, &mut self.record);
    }

    /// Ends the capture: returns all operations on the medium, the counters and the holes.
    #[must_use]
    pub fn finish(mut self) -> TapReport {
        let frames = self.vantage.finish(&mut self.record);
        let Record { ops, counters, holes, .. } = self.record;
        let counters = Counters {
            packets: frames.packets,
            bytes: frames.bytes,
            undecodable: frames.other,
            fragments: frames.fragments,
            evicted: frames.evicted,
            super_packets: self.super_packets,
            ..counters
        };
        TapReport { ops, counters, holes }
    }
}

#[cfg(test)]
mod tests;
