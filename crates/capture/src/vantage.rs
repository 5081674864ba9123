//! One capture point: takes frames and reports events of its connections to an observer. It follows every selected TCP
//! connection and determines which end is the client.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::application::{ISCSI_PORT, Protocol};
use crate::connection::Connection;
use crate::contents::Contents;
use crate::follow::Flow;
use crate::link::Link;
use crate::observer::Observer;
use crate::packet::{At, Endpoint, NotTcp, Segment};
use crate::stream::MissingReason;
use crate::table::{Ends, Table};

/// The traffic to follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only connections with this port at one end; it is the server's.
    pub port: Option<u16>,
    /// Their protocol.
    pub protocol: Protocol,
    /// How connections are numbered.
    pub numbers: Numbers,
    /// Do not analyse TCP: neither stalls nor facts about connections are reported.
    pub ignores_tcp: bool,
}

/// How the connections of a capture point are numbered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Numbers {
    /// In order of appearance.
    #[default]
    Running,
    /// By the client's port: both sides of a live ring number alike.
    ClientPort,
}

/// Frame and segment counters of a capture point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCounters {
    /// All frames.
    pub frames: u64,
    /// Selected TCP segments, and their bytes on the wire.
    pub packets: u64,
    /// See `packets`.
    pub bytes: u64,
    /// Frames that held no TCP segment, fragments included.
    pub other: u64,
    /// Of these, fragments of IP packets.
    pub fragments: u64,
    /// Of these, shorter than their headers.
    pub truncated: u64,
    /// Of these, ICMP messages that a packet was too big for the path.
    pub too_big: u64,
    /// Segments that were captured only in part.
    pub cut: u64,
    /// Packets with more payload than their connection's handshake allows: made by segmentation offload.
    pub super_packets: u64,
    /// Connections dropped because too many were followed at once.
    pub evicted: u64,
    /// Frames older than the one before by more than a millisecond.
    pub backwards: u64,
}

/// Most connections followed at once.
pub(crate) const CONNECTIONS_MAX: usize = 4096;
/// Most bytes of out-of-order segments, over all connections.
const WAITING_BYTES_MAX: usize = 32 << 20;
/// A payload larger than any Ethernet frame's.
const FRAME_PAYLOAD_MAX: usize = 9216;

/// A connection and its two ends.
#[derive(Debug)]
struct Open {
    client: Endpoint,
    server: Endpoint,
    connection: Connection,
}

/// A capture point.
#[derive(Debug)]
pub struct Vantage {
    selection: Selection,
    /// By the two ends, the lesser first.
    connections: Table<Open>,
    /// The connection of the last segment: most follow one of their own.
    recent: Option<(Ends, usize)>,
    numbered: u32,
    waiting_bytes: usize,
    newest_ns: u64,
    /// Counters.
    pub counters: FrameCounters,
    /// The frames that belong to no followed connection.
    pub contents: Contents,
}

impl Vantage {
    /// A capture point that follows the selected connections.
    #[must_use]
    pub fn new(selection: Selection) -> Self {
        Self {
            selection,
            connections: Table::default(),
            recent: None,
            numbered: 0,
            waiting_bytes: 0,
            newest_ns: 0,
            counters: FrameCounters::default(),
            contents: Contents::default(),
        }
    }

    /// Processes a frame of `wire_bytes`, of which `data` was captured.
    #[inline]
    pub fn frame(&mut self, link: Link, at: At, data: &[u8], wire_bytes: u32, observer: &mut impl Observer) {
        match link.decode(data, wire_bytes) {
            Ok((segment, _)) => self.segment(&segment, at, wire_bytes, observer),
            Err(reason) => self.not_tcp(reason, link, data),
        }
    }

    /// Counts a frame without a segment.
    pub fn not_tcp(&mut self, reason: NotTcp, link: Link, data: &[u8]) {
        let is_cut = reason == NotTcp::Truncated;
        self.contents.other(if is_cut { "truncated frames" } else { link.protocol(data) });
        let counters = &mut self.counters;
        counters.frames += 1;
        counters.other += 1;
        match reason {
            NotTcp::Fragment => counters.fragments += 1,
            NotTcp::Truncated => counters.truncated += 1,
            NotTcp::TooBig => counters.too_big += 1,
            NotTcp::Other => {}
        }
    }

    /// Processes a segment of a packet of `wire_bytes`.
    #[inline]
    pub fn segment(&mut self, segment: &Segment<'_>, at: At, wire_bytes: u32, observer: &mut impl Observer) {
        let counters = &mut self.counters;
        counters.frames += 1;
        counters.backwards += u64::from(at.ns.saturating_add(1_000_000) < self.newest_ns);
        self.newest_ns = self.newest_ns.max(at.ns);
        let (source, destination) = (segment.source, segment.destination);
        if self.selection.port.is_some_and(|port| source.port != port && destination.port != port) {
            self.contents.tcp((source.port, destination.port));
            return;
        }
        counters.packets += 1;
        counters.bytes += u64::from(wire_bytes);
        counters.cut += u64::from(segment.payload.len() < segment.payload_bytes);
        counters.super_packets += u64::from(segment.payload_bytes > FRAME_PAYLOAD_MAX);
        let key = if source <= destination { (source, destination) } else { (destination, source) };
        let mut place = match self.recent {
            Some((recent, place)) if recent == key => Some(place),
            _ => self.connections.find(&key),
        };
        if segment.flags & Segment::SYN != 0
            && let Some(open) = place.and_then(|place| self.connections.get(place))
        {
            let flow = if source == open.client { Flow::Requests } else { Flow::Responses };
            if !open.connection.began_with(flow, segment.seq) {
                // A new connection on reused ports.
                self.retire(key, observer);
                place = None;
            }
        }
        let place = match place {
            Some(place) => place,
            None => match self.begin(key, segment, observer) {
                Some(place) => place,
                None => {
                    self.contents.tcp((source.port, destination.port));
                    return;
                }
            },
        };
        self.recent = Some((key, place));
        let Some(open) = self.connections.get_mut(place) else { return };
        let flow = if source == open.client { Flow::Requests } else { Flow::Responses };
        let connection = &mut open.connection;
        let others = self.waiting_bytes.saturating_sub(connection.waiting_bytes());
        connection.segment(segment, flow, at, wire_bytes, observer);
        if others + connection.waiting_bytes() > WAITING_BYTES_MAX {
            connection.give_up(MissingReason::NoRoom, observer);
        }
        self.waiting_bytes = others + connection.waiting_bytes();
        let has_ended = connection.has_ended();
        self.connections.touch(place, has_ended);
    }

    /// Begins to follow a connection; `None` if the segment begins none.
    fn begin(&mut self, key: Ends, segment: &Segment<'_>, observer: &mut impl Observer) -> Option<usize> {
        let syn = segment.flags & Segment::SYN != 0;
        // The last segments of an ended connection do not begin a new one.
        if segment.payload_bytes == 0 && !syn {
            return None;
        }
        if self.connections.len() >= CONNECTIONS_MAX {
            self.make_room(observer);
        }
        let source_asks = self.source_asks(segment);
        let (client, server) = if source_asks {
            (segment.source, segment.destination)
        } else {
            (segment.destination, segment.source)
        };
        let number = match self.selection.numbers {
            Numbers::Running => self.numbered,
            Numbers::ClientPort => client.port.into(),
        };
        self.numbered = self.numbered.wrapping_add(1);
        let mut connection = Connection::new(number, server.port, !syn, self.selection.protocol);
        if !self.selection.ignores_tcp {
            connection = connection.watching_tcp();
        }
        Some(self.connections.insert(key, Open { client, server, connection }))
    }

    /// Whether the sender of the first segment seen of a connection is its client.
    fn source_asks(&self, segment: &Segment<'_>) -> bool {
        let (source, destination) = (segment.source.port, segment.destination.port);
        if segment.flags & Segment::SYN != 0 {
            return segment.flags & Segment::ACK == 0;
        }
        // In the middle: by the user's port, by iSCSI's port, else the lower port is the server's.
        for port in self.selection.port.into_iter().chain([ISCSI_PORT]) {
            if (source == port) != (destination == port) {
                return destination == port;
            }
        }
        destination <= source
    }

    /// Retires an ended connection, or the least recently used one if none has ended.
    fn make_room(&mut self, observer: &mut impl Observer) {
        let Some((ends, has_ended)) = self.connections.least_recent() else { return };
        self.counters.evicted += u64::from(!has_ended);
        self.retire(ends, observer);
    }

    /// Stops following a connection.
    fn retire(&mut self, key: Ends, observer: &mut impl Observer) {
        self.recent = None;
        if let Some(open) = self.connections.remove(&key) {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(open.connection.waiting_bytes());
            open.connection.finish(open.client, open.server, observer);
        }
    }

    /// The client ports of the followed connections.
    #[cfg(test)]
    pub(crate) fn client_ports(&self) -> Vec<u16> {
        let keys = self.connections.all();
        let open = keys.iter().filter_map(|key| self.connections.get(self.connections.find(key)?));
        open.map(|open| open.client.port).collect()
    }

    /// Ends the capture and delivers waiting data.
    pub fn finish(mut self, observer: &mut impl Observer) -> FrameCounters {
        let mut keys = self.connections.all();
        // The same input gives the same output.
        keys.sort_unstable();
        for key in keys {
            self.retire(key, observer);
        }
        self.counters
    }
}
