//! One capture point of a live ring: packets in, op records out.

use ring::{Op, Side};

use crate::application::Protocol;
use crate::connection::Connection;
use crate::follow::{Digests, Flow};
use crate::live::Packet;
use crate::packet::{At, NotTcp, Segment, decode};
use crate::record::{Counters, Record, StreamHole};
use crate::stream::MissingReason;
use crate::table::{Ends, Table};

/// What a capture point saw.
#[derive(Clone, Debug)]
pub struct TapReport {
    /// Operations on the medium, in the order in which their responses passed.
    pub ops: Vec<Op>,
    /// What was counted.
    pub counters: Counters,
    /// Where bytes are missing, the first 10,000 times.
    pub holes: Vec<StreamHole>,
}

/// The chain from packets to op records at one capture point. On an interface that shows a packet twice (loopback), each
/// side takes the copy that is its own: a client's requests are outgoing, a server's incoming.
#[derive(Debug)]
pub struct Tap {
    side: Side,
    port: u16,
    frame_bytes_max: u32,
    digests: Digests,
    /// By the client's end and the server's.
    connections: Table<Connection>,
    /// Memory of segments that wait for their turn, all connections together.
    waiting_bytes: usize,
    record: Record,
}

/// Most connections followed at once.
const CONNECTIONS_MAX: usize = 4096;
/// Most bytes that wait for their turn, all connections together.
const WAITING_BYTES_MAX: usize = 64 << 20;

impl Tap {
    /// A tap for the target's port; `mtu_bytes` is the interface's, `limit` the most operations kept.
    #[must_use]
    pub fn new(side: Side, port: u16, mtu_bytes: u32, limit: usize) -> Self {
        Self {
            side,
            port,
            // Ethernet header and two tags.
            frame_bytes_max: mtu_bytes.saturating_add(14 + 8),
            digests: Digests::default(),
            connections: Table::default(),
            waiting_bytes: 0,
            record: Record::new(side, limit),
        }
    }

    /// The same tap for connections that have negotiated these digests. They cannot be told from the
    /// packets of a capture that begins behind the login, so the caller says.
    #[must_use]
    pub fn with_digests(mut self, digests: Digests) -> Self {
        self.digests = digests;
        self
    }

    /// Whose capture point it is.
    #[must_use]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Takes one packet; those of the other side's copy are not this tap's.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let segment = match decode(packet.data, packet.wire_bytes) {
            Ok(segment) => segment,
            Err(reason) => {
                self.record.counters.undecodable += 1;
                self.record.counters.fragments += u64::from(reason == NotTcp::Fragment);
                return;
            }
        };
        let flow = if segment.destination.port == self.port { Flow::Requests } else { Flow::Responses };
        if packet.outgoing != ((flow == Flow::Requests) == (self.side == Side::Client)) {
            return;
        }
        let counters = &mut self.record.counters;
        counters.packets += 1;
        counters.bytes += u64::from(packet.wire_bytes);
        if packet.wire_bytes > self.frame_bytes_max {
            counters.super_packets += 1;
        }
        self.segment(&segment, flow, At { ns: packet.time_ns, frame: 0 }, packet.wire_bytes);
    }

    fn segment(&mut self, segment: &Segment<'_>, flow: Flow, at: At, wire_bytes: u32) {
        let key = match flow {
            Flow::Requests => (segment.source, segment.destination),
            Flow::Responses => (segment.destination, segment.source),
        };
        let syn = segment.flags & Segment::SYN != 0;
        let mut place = self.connections.find(&key);
        if syn
            && let Some(connection) = place.and_then(|place| self.connections.get(place))
            && !connection.began_with(flow, segment.seq)
        {
            // A connection begins on ports that were used before.
            self.retire(key);
            place = None;
        }
        let place = match place {
            Some(place) => place,
            // What is left of a connection that is over does not begin one.
            None if segment.payload_bytes == 0 && !syn => return,
            None => {
                if self.connections.len() >= CONNECTIONS_MAX {
                    self.make_room();
                }
                let protocol = Protocol::Iscsi(self.digests);
                let connection = Connection::new(key.0.port.into(), key.1.port, !syn, protocol);
                self.connections.insert(key, connection)
            }
        };
        self.pass(place, segment, flow, at, wire_bytes);
    }

    /// Hands a segment to its connection, and sees to it that not too much waits.
    #[inline]
    fn pass(&mut self, place: usize, segment: &Segment<'_>, flow: Flow, at: At, wire_bytes: u32) {
        let Some(connection) = self.connections.get_mut(place) else { return };
        let others = self.waiting_bytes.saturating_sub(connection.waiting_bytes());
        connection.segment(segment, flow, at, wire_bytes, &mut self.record);
        if others + connection.waiting_bytes() > WAITING_BYTES_MAX {
            connection.give_up(MissingReason::NoRoom, &mut self.record);
        }
        self.waiting_bytes = others + connection.waiting_bytes();
        let has_ended = connection.has_ended();
        self.connections.touch(place, has_ended);
    }

    /// Retires a connection that is over; when there is none, the one that was silent for longest.
    fn make_room(&mut self) {
        let Some((ends, has_ended)) = self.connections.least_recent() else { return };
        self.record.counters.evicted += u64::from(!has_ended);
        self.retire(ends);
    }

    /// Follows a connection no further: its counters are kept.
    fn retire(&mut self, key: Ends) {
        if let Some(connection) = self.connections.remove(&key) {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(connection.waiting_bytes());
            connection.finish(key.0, key.1, &mut self.record);
        }
    }

    /// The end: all operations on the medium, what was counted, and what is missing.
    #[must_use]
    pub fn finish(mut self) -> TapReport {
        let mut keys = self.connections.all();
        // The same input gives the same report.
        keys.sort_unstable();
        for key in keys {
            self.retire(key);
        }
        let Record { ops, counters, holes, .. } = self.record;
        TapReport { ops, counters, holes }
    }
}

#[cfg(test)]
mod tests;
