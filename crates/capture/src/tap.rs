//! One capture point: packets in, sightings out.

use std::collections::HashMap;

use ring::{OpKind, Sighting};
use serde::{Deserialize, Serialize};

use crate::follow::{Flow, Follower, Pdu};
use crate::live::Packet;
use crate::operations::Operations;
use crate::packet::{Endpoint, Segment, decode};
use crate::stream::{Sink, Stream};

/// Whose capture point it is. On an interface that shows a packet twice (loopback), each role takes the
/// copy that is its own: a client's requests are outgoing, a server's incoming.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// C1 and C2.
    Client,
    /// S1 and S2.
    Server,
}

/// What a capture point counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Packets of this capture point.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Frames that held no TCP segment.
    pub undecodable: u64,
    /// Segments that repeated what had come.
    pub retransmitted: u64,
    /// Segments that came before their turn.
    pub out_of_order: u64,
    /// Packets larger than the largest Ethernet frame of the MTU: not what the wire carries.
    pub super_packets: u64,
    /// Holes in streams.
    pub holes: u64,
    /// Bytes in them.
    pub hole_bytes: u64,
    /// Bytes in which no PDU boundary could be told.
    pub skipped_bytes: u64,
    /// Responses whose request was not seen.
    pub unmatched: u64,
    /// Requests that were given up.
    pub abandoned: u64,
    /// Operations that were not kept because there were too many.
    pub over_limit: u64,
    /// Segments of connections beyond the limit.
    pub refused: u64,
}

/// One direction: stream and follower.
#[derive(Debug)]
struct Direction {
    stream: Stream,
    follower: Follower,
}

impl Direction {
    fn new(flow: Flow, in_the_middle: bool) -> Self {
        Self { stream: Stream::default(), follower: Follower::new(flow, in_the_middle) }
    }
}

/// One connection.
#[derive(Debug)]
struct Connection {
    requests: Direction,
    responses: Direction,
    operations: Operations,
}

/// The chain from packets to sightings at one capture point.
#[derive(Debug)]
pub struct Tap {
    role: Role,
    port: u16,
    frame_bytes_max: u32,
    limit: usize,
    connections: HashMap<(Endpoint, Endpoint), Connection>,
    sightings: Vec<Sighting>,
    counters: Counters,
}

/// Most connections followed at once.
const CONNECTIONS_MAX: usize = 4096;

impl Tap {
    /// A tap for the target's port; `mtu_bytes` is the interface's, `limit` the most sightings kept.
    #[must_use]
    pub fn new(role: Role, port: u16, mtu_bytes: u32, limit: usize) -> Self {
        Self {
            role,
            port,
            // Ethernet header and two tags.
            frame_bytes_max: mtu_bytes + 14 + 8,
            limit,
            connections: HashMap::new(),
            sightings: Vec::new(),
            counters: Counters::default(),
        }
    }

    /// Takes one packet; those of the other role's copy are not this tap's.
    #[inline]
    pub fn packet(&mut self, packet: &Packet<'_>) {
        let Ok(segment) = decode(packet.data) else {
            self.counters.undecodable += 1;
            return;
        };
        let is_request = segment.destination.port == self.port;
        if packet.outgoing != (is_request == (self.role == Role::Client)) {
            return;
        }
        self.counters.packets += 1;
        self.counters.bytes += u64::from(packet.wire_bytes);
        if packet.wire_bytes > self.frame_bytes_max {
            self.counters.super_packets += 1;
        }
        self.segment(&segment, is_request, packet.time_ns);
    }

    fn segment(&mut self, segment: &Segment<'_>, is_request: bool, ns: u64) {
        let (client, server) = if is_request {
            (segment.source, segment.destination)
        } else {
            (segment.destination, segment.source)
        };
        let syn = segment.flags & Segment::SYN != 0;
        let key = (client, server);
        if !self.connections.contains_key(&key) && self.connections.len() >= CONNECTIONS_MAX {
            self.counters.refused += 1;
            return;
        }
        if syn && is_request {
            // A connection begins, perhaps on a port that was used before.
            self.retire(key);
        }
        let connection = self.connections.entry(key).or_insert_with(|| Connection {
            requests: Direction::new(Flow::Requests, !syn),
            responses: Direction::new(Flow::Responses, !syn),
            operations: Operations::new(client.port.into()),
        });
        let Connection { requests, responses, operations } = connection;
        let mut take_request = |pdu: &Pdu| operations.request(pdu);
        if is_request {
            let Direction { stream, follower } = requests;
            let mut sink = Feed { follower, take: &mut take_request, counters: &mut self.counters };
            stream.segment(segment.seq, syn, segment.payload, segment.payload_bytes, ns, &mut sink);
            let Direction { stream, follower } = responses;
            let (sightings, limit) = (&mut self.sightings, self.limit);
            let mut over = 0;
            let mut take = |pdu: &Pdu| over += keep(sightings, limit, operations.response(pdu));
            let mut sink = Feed { follower, take: &mut take, counters: &mut self.counters };
            stream.acknowledged(segment.ack, &mut sink);
            self.counters.over_limit += over;
        } else {
            let mut sink = Feed {
                follower: &mut requests.follower,
                take: &mut take_request,
                counters: &mut self.counters,
            };
            requests.stream.acknowledged(segment.ack, &mut sink);
            let Direction { stream, follower } = responses;
            let (sightings, limit) = (&mut self.sightings, self.limit);
            let mut over = 0;
            let mut take = |pdu: &Pdu| over += keep(sightings, limit, operations.response(pdu));
            let mut sink = Feed { follower, take: &mut take, counters: &mut self.counters };
            stream.segment(segment.seq, syn, segment.payload, segment.payload_bytes, ns, &mut sink);
            self.counters.over_limit += over;
        }
        if segment.flags & Segment::RST != 0 {
            self.retire(key);
        }
    }

    /// A connection is over: its counters are kept.
    fn retire(&mut self, key: (Endpoint, Endpoint)) {
        let Some(Connection { mut requests, mut responses, mut operations }) = self.connections.remove(&key)
        else {
            return;
        };
        {
            let mut take = |pdu: &Pdu| operations.request(pdu);
            let mut sink =
                Feed { follower: &mut requests.follower, take: &mut take, counters: &mut self.counters };
            requests.stream.finish(&mut sink);
        }
        {
            let (sightings, limit) = (&mut self.sightings, self.limit);
            let mut over = 0;
            let mut take = |pdu: &Pdu| over += keep(sightings, limit, operations.response(pdu));
            let mut sink =
                Feed { follower: &mut responses.follower, take: &mut take, counters: &mut self.counters };
            responses.stream.finish(&mut sink);
            self.counters.over_limit += over;
        }
        for direction in [&requests, &responses] {
            self.counters.retransmitted += direction.stream.counters.retransmitted;
            self.counters.out_of_order += direction.stream.counters.out_of_order;
            self.counters.skipped_bytes += direction.follower.skipped_bytes;
        }
        self.counters.unmatched += operations.unmatched;
        self.counters.abandoned += operations.abandoned;
    }

    /// The end: all sightings of operations on the medium, and what was counted.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Sighting>, Counters) {
        let keys: Vec<_> = self.connections.keys().copied().collect();
        for key in keys {
            self.retire(key);
        }
        (self.sightings, self.counters)
    }
}

/// Keeps a sighting of an operation on the medium; 1 when there was no more room.
fn keep(sightings: &mut Vec<Sighting>, limit: usize, sighting: Option<Sighting>) -> u64 {
    match sighting {
        Some(s) if s.kind == OpKind::Other => 0,
        Some(s) if sightings.len() < limit => {
            sightings.push(s);
            0
        }
        Some(_) => 1,
        None => 0,
    }
}

/// Feeds a follower from a stream.
struct Feed<'a, F> {
    follower: &'a mut Follower,
    take: &'a mut F,
    counters: &'a mut Counters,
}

impl<F: FnMut(&Pdu)> Sink for Feed<'_, F> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8], ns: u64) {
        self.follower.bytes(bytes, ns, &mut *self.take);
    }
    fn uncaptured(&mut self, count: u64, ns: u64) {
        self.follower.uncaptured(count, ns, &mut *self.take);
    }
    fn hole(&mut self, count: u64, ns: u64) {
        self.counters.holes += 1;
        self.counters.hole_bytes += count;
        self.follower.hole(count, ns, &mut *self.take);
    }
}

#[cfg(test)]
mod tests {
    use iscsi::pdu::{DataIn, ScsiCommand};
    use ring::Stamp;

    use super::*;
    use crate::packet::build::frame;

    fn command(tag: u32) -> Vec<u8> {
        let mut command =
            ScsiCommand { read: true, is_final: true, tag, expected_bytes: 512, ..ScsiCommand::default() };
        command.cdb[0] = 0x28;
        command.write().0.to_vec()
    }

    fn response(tag: u32) -> Vec<u8> {
        let mut bhs = DataIn { tag, is_final: true, has_status: true, ..DataIn::default() }.write();
        bhs.set_data_bytes(512);
        [bhs.0.as_slice(), &[0x55; 512]].concat()
    }

    /// Both copies of a packet, as loopback shows them: out at `ns`, in 5 ns later.
    fn both(taps: &mut [Tap; 2], ns: u64, frame: &[u8]) {
        for (outgoing, ns) in [(true, ns), (false, ns + 5)] {
            let packet = Packet { time_ns: ns, outgoing, data: frame, wire_bytes: frame.len() as u32 };
            taps.iter_mut().for_each(|tap| tap.packet(&packet));
        }
    }

    #[test]
    fn two_taps_on_loopback_see_all_four_points() {
        let mut taps = [Tap::new(Role::Client, 3260, 9000, 10), Tap::new(Role::Server, 3260, 9000, 10)];
        both(&mut taps, 1, &frame(true, 5000, 3260, 99, Segment::SYN, b""));
        both(&mut taps, 2, &frame(false, 5000, 3260, 899, Segment::SYN | 0x10, b""));
        both(&mut taps, 100, &frame(true, 5000, 3260, 100, 0x10, &[command(1), command(2)].concat()));
        both(&mut taps, 200, &frame(false, 5000, 3260, 900, 0x10, &response(2)));
        both(&mut taps, 300, &frame(false, 5000, 3260, 1460, 0x10, &response(1)));
        let [client, server] = taps.map(Tap::finish);
        let points = |s: &Sighting| (s.connection, s.tag, s.request, s.response);
        assert_eq!(
            client.0.iter().map(points).collect::<Vec<_>>(),
            [(5000, 2, Stamp::at(100), Stamp::at(205)), (5000, 1, Stamp::at(100), Stamp::at(305)),]
        );
        assert_eq!(
            server.0.iter().map(points).collect::<Vec<_>>(),
            [(5000, 2, Stamp::at(105), Stamp::at(200)), (5000, 1, Stamp::at(105), Stamp::at(300)),]
        );
        assert_eq!((client.1.holes, client.1.unmatched, client.1.packets), (0, 0, 5));
    }

    #[test]
    fn a_lost_packet_is_a_hole_and_the_rest_goes_on() {
        let mut tap = Tap::new(Role::Client, 3260, 9000, 10);
        let mut show = |ns, outgoing, frame: &[u8]| {
            tap.packet(&Packet { time_ns: ns, outgoing, data: frame, wire_bytes: frame.len() as u32 });
        };
        show(1, true, &frame(true, 5000, 3260, 99, Segment::SYN, b""));
        show(2, false, &frame(false, 5000, 3260, 899, Segment::SYN | 0x10, b""));
        show(3, true, &frame(true, 5000, 3260, 100, 0x10, &[command(1), command(2), command(3)].concat()));
        // The response to 1 (900 to 1460) was lost by the capture.
        show(5, false, &frame(false, 5000, 3260, 1460, 0x10, &response(2)));
        // The client acknowledges past it (the builder acknowledges 0, so say it by hand).
        let mut ack = frame(true, 5000, 3260, 244, 0x10, b"");
        ack[14 + 20 + 8..14 + 20 + 12].copy_from_slice(&2020_u32.to_be_bytes());
        show(6, true, &ack);
        show(7, false, &frame(false, 5000, 3260, 2020, 0x10, &response(3)));
        let (sightings, counters) = tap.finish();
        assert_eq!(sightings.iter().map(|s| s.tag).collect::<Vec<_>>(), [2, 3]);
        assert_eq!((counters.holes, counters.hole_bytes), (1, 560));
    }
}
