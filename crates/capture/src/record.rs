//! The record of a capture point: operations up to a limit, and counts of missing and excess data.

use record::{Exchange, Op, OpKind, Side};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::observer::{Counted, Observer, StreamHole};
use crate::vantage::FrameCounters;

/// Counters of a capture point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Packets of this capture point.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Frames that held no TCP segment, fragments included.
    pub undecodable: u64,
    /// Of these, fragments of IP packets.
    pub fragments: u64,
    /// Segments whose bytes had all arrived before.
    pub retransmitted: u64,
    /// Segments that arrived out of order.
    pub out_of_order: u64,
    /// Packets larger than the largest Ethernet frame of the MTU, which the wire did not carry.
    pub super_packets: u64,
    /// Holes in streams.
    pub holes: u64,
    /// Bytes in them.
    pub hole_bytes: u64,
    /// How often a PDU boundary was lost, by a hole or by a header that was not captured.
    pub boundaries_lost: u64,
    /// Bytes in which no PDU boundary was known.
    pub skipped_bytes: u64,
    /// Responses whose request was not seen.
    pub unmatched: u64,
    /// Abandoned requests.
    pub abandoned: u64,
    /// Requests whose response had not been seen when the capture or the connection ended.
    pub unanswered: u64,
    /// Connections that seemed to be of a protocol that they are not, and are followed as turns.
    #[serde(default)]
    pub mistaken: u64,
    /// Connections with data in which neither an operation nor an unanswered request was seen.
    #[serde(default)]
    pub without_operations: u64,
    /// Operations beyond the limit, which were not kept.
    pub over_limit: u64,
    /// Open connections dropped because too many were followed at once.
    pub evicted: u64,
}

/// The record of one capture point.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) ops: Vec<Op>,
    pub(crate) counters: Counters,
    pub(crate) holes: Vec<StreamHole>,
    side: Side,
    limit: usize,
}

/// Most holes that are kept; further ones are only counted.
const HOLES_MAX: usize = 10_000;

impl Record {
    /// An empty record of a side's capture point, for at most `limit` operations.
    pub(crate) fn new(side: Side, limit: usize) -> Self {
        Self { side, ops: Vec::new(), counters: Counters::default(), holes: Vec::new(), limit }
    }

    /// Keeps an operation on the medium.
    #[inline]
    pub(crate) fn keep(&mut self, op: Op) {
        if op.kind == OpKind::Other {
            return;
        }
        if self.ops.len() < self.limit {
            self.ops.push(op);
        } else {
            self.counters.over_limit += 1;
        }
    }
}

impl Observer for Record {
    #[inline]
    fn exchange(&mut self, exchange: &Exchange) {
        self.keep(exchange.op(self.side));
    }

    fn hole(&mut self, hole: StreamHole) {
        self.counters.holes += 1;
        self.counters.hole_bytes += hole.missing.bytes;
        if self.holes.len() < HOLES_MAX {
            self.holes.push(hole);
        }
    }

    fn counted(&mut self, counted: &Counted) {
        self.counters.add(counted);
    }
}

impl Counters {
    /// Takes the counts of frames over.
    pub fn count_frames(&mut self, frames: &FrameCounters) {
        self.packets = frames.packets;
        self.bytes = frames.bytes;
        self.undecodable = frames.other;
        self.fragments = frames.fragments;
        self.super_packets = frames.super_packets;
        self.evicted = frames.evicted;
    }

    /// Adds the counters of one connection.
    pub fn add(&mut self, counted: &Counted) {
        self.retransmitted += counted.retransmitted;
        self.out_of_order += counted.out_of_order;
        self.boundaries_lost += counted.boundaries_lost;
        self.skipped_bytes += counted.skipped_bytes;
        self.unmatched += counted.unmatched;
        self.abandoned += counted.abandoned;
        self.unanswered += counted.unanswered;
        self.mistaken += counted.mistaken;
        self.without_operations += counted.without_operations;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_frames_and_connections_become_those_of_the_streams() {
        let mut counters = Counters::default();
        counters.count_frames(&FrameCounters {
            packets: 1,
            bytes: 2,
            other: 3,
            fragments: 4,
            super_packets: 5,
            evicted: 6,
            ..FrameCounters::default()
        });
        let counted = Counted {
            retransmitted: 7,
            out_of_order: 8,
            boundaries_lost: 9,
            skipped_bytes: 10,
            unmatched: 11,
            abandoned: 12,
            unanswered: 13,
            mistaken: 14,
            without_operations: 15,
        };
        counters.add(&counted);
        counters.add(&counted);
        let expected = Counters {
            packets: 1,
            bytes: 2,
            undecodable: 3,
            fragments: 4,
            super_packets: 5,
            evicted: 6,
            retransmitted: 14,
            out_of_order: 16,
            boundaries_lost: 18,
            skipped_bytes: 20,
            unmatched: 22,
            abandoned: 24,
            unanswered: 26,
            mistaken: 28,
            without_operations: 30,
            ..Counters::default()
        };
        assert_eq!(counters, expected);
    }
}
