//! One capture point: takes frames and reports events of its connections to an observer. It follows every selected TCP
//! connection and determines which end is the client.

use record::{Side, Spacing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::application::{ISCSI_PORT, Protocol};
use crate::connection::Connection;
use crate::contents::Contents;
use crate::decode::{ProtocolEntry, Shown};
use crate::encapsulation::Tag;
use crate::follow::Flow;
use crate::held::HeldSegment;
use crate::link::Link;
use crate::observer::Observer;
use crate::packet::{At, Endpoint, NotTcp, Segment};
use crate::proven::Proven;
use crate::roles::{Certainty, Roles};
use crate::room::SharedRoom;
use crate::stream::MissingReason;
use crate::table::{Ends, Table};
use crate::tenants::{Carrier, Tenants, continues};
use crate::tls::keys::Keys;

/// The traffic to follow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only connections with this port at one end; it is the server's.
    pub port: Option<u16>,
    /// Their protocol.
    pub protocol: Protocol,
    /// How keys are shown.
    pub shown: Shown,
    /// Secrets of encrypted connections.
    pub keys: Keys,
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
    /// Segments far outside the windows of their connection that were followed by no others of their kind.
    #[serde(default)]
    pub strays: u64,
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
    /// By sender.
    carriers: [Carrier; 2],
    connection: Connection,
    /// A segment far outside its windows: of another connection, if others follow it.
    stray: Option<Box<HeldSegment>>,
    /// Its first segments, until it is clear which end is the server.
    early: Vec<HeldSegment>,
    is_undecided: bool,
    /// What its server speaks has been noted.
    is_noted: bool,
}

/// Segments after which the server is decided by what there is.
const EARLY_MAX: usize = 32;
/// Bytes of them.
const EARLY_BYTES_MAX: usize = 64 << 10;
/// Bytes of sequence numbers in which a segment follows a stray one.
const STRAY_NEAR: u32 = 1 << 20;

/// Whether a connection's beginning is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InTheMiddle {
    Yes,
    No,
}

/// A capture point.
#[derive(Debug)]
pub struct Vantage {
    selection: Selection,
    /// By the two ends, the lesser first, and the tag of the first segment.
    connections: Table<Open>,
    /// Those with tags.
    tenants: Tenants,
    /// The connection of the last segment: most follow one of their own.
    recent: Option<(Ends, usize)>,
    numbered: u32,
    roles: Roles,
    proven: Proven,
    room: SharedRoom,
    waiting_bytes: usize,
    newest_ns: u64,
    /// Distances between the packets with data of clients and of servers.
    pub spacings: [Spacing; 2],
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
            tenants: Tenants::default(),
            recent: None,
            numbered: 0,
            roles: Roles::default(),
            proven: Proven::default(),
            room: SharedRoom::default(),
            waiting_bytes: 0,
            newest_ns: 0,
            spacings: Default::default(),
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

    /// When the newest packet passed, nanoseconds since the epoch.
    #[must_use]
    pub fn newest_ns(&self) -> u64 {
        self.newest_ns
    }

    /// Counts a frame without a segment.
    pub fn not_tcp(&mut self, reason: NotTcp, link: Link, data: &[u8]) {
        self.contents.unread(link.unread(reason, data));
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
        let (lesser, greater) =
            if source <= destination { (source, destination) } else { (destination, source) };
        let key = (lesser, greater, segment.tag);
        let mut place = match self.recent {
            Some((recent, place)) if recent == key => Some(place),
            _ => self.find(&key, segment),
        };
        if let Some(open) = place.and_then(|place| self.connections.get(place)) {
            let flow = if source == open.client { Flow::Requests } else { Flow::Responses };
            if segment.flags & Segment::SYN != 0 {
                if open.is_undecided || !open.connection.began_with(flow, segment.seq) {
                    // A new connection on reused ports.
                    let own = self.tenants.known(&key).unwrap_or(key);
                    self.retire(own, observer);
                    place = None;
                }
            } else if segment.flags & Segment::RST == 0 && !open.connection.is_continued_by(segment, flow, at)
            {
                let own = self.tenants.known(&key).unwrap_or(key);
                if !self.is_new_on_the_same_ports(own, segment, at, wire_bytes, observer) {
                    return;
                }
                place = self.connections.find(&own);
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
        if open.stray.take().is_some() {
            // The connection goes on, so it was of no new one.
            self.counters.strays += 1;
        }
        if open.is_undecided {
            let own = self.tenants.known(&key).unwrap_or(key);
            self.hold(own, HeldSegment::new(segment, at, wire_bytes), observer);
            return;
        }
        Self::follow(open, (&mut self.waiting_bytes, &mut self.spacings), segment, at, wire_bytes, observer);
        let has_ended = open.connection.has_ended();
        let proven = open.connection.proven().filter(|_| !open.is_noted);
        self.connections.touch(place, has_ended);
        if let Some(entry) = proven {
            self.note_proven(place, entry);
        }
    }

    /// A connection has shown what its server speaks: so does it on others.
    #[cold]
    fn note_proven(&mut self, place: usize, entry: &'static ProtocolEntry) {
        let Some(open) = self.connections.get_mut(place) else { return };
        open.is_noted = true;
        let server = open.server;
        if self.proven.add(server, entry) {
            for key in self.connections.all() {
                if let Some(place) = self.connections.find(&key)
                    && let Some(open) = self.connections.get_mut(place)
                    && open.server == server
                {
                    open.connection.expects(entry);
                }
            }
        }
    }

    /// A connection to a server.
    fn connection(&self, number: u32, server: Endpoint, middle: InTheMiddle) -> Connection {
        let Selection { protocol, shown, ref keys, ignores_tcp, .. } = self.selection;
        let in_the_middle = middle == InTheMiddle::Yes;
        let mut connection =
            Connection::new(number, server.port, in_the_middle, protocol, shown, keys.clone())
                .sharing(self.room.clone());
        if let Some(entry) = self.proven.by(server) {
            connection.expects(entry);
        }
        if ignores_tcp { connection } else { connection.watching_tcp() }
    }

    /// Passes a segment to its connection.
    #[inline]
    fn follow(
        open: &mut Open,
        (waiting_bytes, spacings): (&mut usize, &mut [Spacing; 2]),
        segment: &Segment<'_>,
        at: At,
        wire_bytes: u32,
        observer: &mut impl Observer,
    ) {
        let flow = if segment.source == open.client { Flow::Requests } else { Flow::Responses };
        let connection = &mut open.connection;
        if open.carriers[flow.sender() as usize].is_copy(connection, flow, segment) {
            connection.skip_copy();
            return;
        }
        if segment.payload_bytes > 0 {
            let spacing = &mut spacings[flow.sender() as usize];
            spacing.add(connection.number(), segment.payload_bytes as u32, wire_bytes, at.ns);
        }
        connection.others_ns = spacings[flow.sender().peer() as usize].last_beside_ns(connection.number());
        let others = waiting_bytes.saturating_sub(connection.waiting_bytes());
        connection.segment(segment, flow, at, wire_bytes, observer);
        if others + connection.waiting_bytes() > WAITING_BYTES_MAX {
            connection.give_up(MissingReason::NoRoom, observer);
        }
        *waiting_bytes = others + connection.waiting_bytes();
    }

    /// Keeps an early segment of a connection whose server is not certain, and decides when there are enough.
    #[cold]
    fn hold(&mut self, key: Ends, held: HeldSegment, observer: &mut impl Observer) {
        let Some(place) = self.connections.find(&key) else { return };
        let Some(open) = self.connections.get_mut(place) else { return };
        self.waiting_bytes += held.bytes();
        let (_, certainty) = self.roles.source(&held.segment());
        open.early.push(held);
        let bytes: usize = open.early.iter().map(HeldSegment::bytes).sum();
        let is_enough = certainty == Certainty::Certain
            || open.early.len() >= EARLY_MAX
            || bytes >= EARLY_BYTES_MAX
            || self.waiting_bytes > WAITING_BYTES_MAX;
        if is_enough && let Some(mut open) = self.connections.remove(&key) {
            self.decide_roles(&mut open, observer);
            self.connections.insert(key, open);
            // Its place may be another one.
            self.recent = None;
        }
    }

    /// Decides which end is the server of a connection, and passes its early segments to it.
    fn decide_roles(&mut self, open: &mut Open, observer: &mut impl Observer) {
        open.is_undecided = false;
        let early = std::mem::take(&mut open.early);
        if let Some(server) = self.roles.server(&early)
            && server != open.server
        {
            (open.client, open.server) = (open.server, open.client);
            open.carriers = Default::default();
            let number = open.connection.number();
            open.connection = self.connection(number, server, InTheMiddle::Yes);
        }
        for held in early {
            self.waiting_bytes = self.waiting_bytes.saturating_sub(held.bytes());
            Self::follow(
                open,
                (&mut self.waiting_bytes, &mut self.spacings),
                &held.segment(),
                held.at,
                held.wire_bytes,
                observer,
            );
        }
    }

    /// Whether a segment that does not continue its connection is of a new one on the same ports, which is followed then. One
    /// such segment may be anything, so it is kept until another one follows it, unless the connection has ended.
    #[cold]
    fn is_new_on_the_same_ports(
        &mut self,
        key: Ends,
        segment: &Segment<'_>,
        at: At,
        wire_bytes: u32,
        observer: &mut impl Observer,
    ) -> bool {
        let place = self.connections.find(&key);
        let Some(open) = place.and_then(|place| self.connections.get_mut(place)) else { return false };
        let is_near = |a: u32, b: u32| a.wrapping_sub(b).cast_signed().unsigned_abs() <= STRAY_NEAR;
        let follows = |stray: &HeldSegment| {
            let stray = stray.segment();
            let end = stray.seq.wrapping_add(stray.payload_bytes as u32);
            if stray.source == segment.source {
                is_near(segment.seq, end)
            } else {
                is_near(segment.ack, end) || is_near(segment.seq, stray.ack)
            }
        };
        if open.connection.has_ended() {
            self.retire(key, observer);
            return true;
        }
        match open.stray.take() {
            Some(stray) if follows(&stray) => {
                self.retire(key, observer);
                // Its first segment; the caller passes the second.
                self.replay(key, &stray, observer);
                true
            }
            before => {
                self.counters.strays += u64::from(before.is_some() || segment.payload_bytes == 0);
                if segment.payload_bytes > 0 {
                    open.stray = Some(Box::new(HeldSegment::new(segment, at, wire_bytes)));
                } else {
                    open.stray = before;
                }
                false
            }
        }
    }

    /// Begins a connection with a segment that was kept.
    fn replay(&mut self, key: Ends, held: &HeldSegment, observer: &mut impl Observer) {
        let segment = held.segment();
        let Some(place) = self.begin(key, &segment, observer) else { return };
        let Some(open) = self.connections.get_mut(place) else { return };
        if !open.is_undecided {
            Self::follow(
                open,
                (&mut self.waiting_bytes, &mut self.spacings),
                &segment,
                held.at,
                held.wire_bytes,
                observer,
            );
        } else {
            self.hold(key, HeldSegment::new(&segment, held.at, held.wire_bytes), observer);
        }
    }

    /// The place of a segment's connection.
    #[inline]
    fn find(&mut self, key: &Ends, segment: &Segment<'_>) -> Option<usize> {
        let place = self.connections.find(key);
        let is_plain = segment.tag == Tag::NONE && self.tenants.is_empty();
        if place.is_some() || is_plain { place } else { self.find_tenant(key, segment) }
    }

    /// The place of the connection that a segment continues, where its encapsulation is not that of the connection's first.
    fn find_tenant(&mut self, key: &Ends, segment: &Segment<'_>) -> Option<usize> {
        if let Some(own) = self.tenants.known(key) {
            return self.connections.find(&own);
        }
        let (place, own) = self.tenants.others(key).find_map(|own| {
            let place = self.connections.find(&own)?;
            let open = self.connections.get(place)?;
            let flow = if segment.source == open.client { Flow::Requests } else { Flow::Responses };
            continues(&open.connection, flow, segment).then_some((place, own))
        })?;
        self.tenants.join(key, &own);
        Some(place)
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
        let (side, certainty) = self.source(segment);
        let (client, server) = match side {
            Side::Client => (segment.source, segment.destination),
            Side::Server => (segment.destination, segment.source),
        };
        let number = match self.selection.numbers {
            Numbers::Running => self.numbered,
            Numbers::ClientPort => client.port.into(),
        };
        self.numbered = self.numbered.wrapping_add(1);
        let in_the_middle = if syn { InTheMiddle::No } else { InTheMiddle::Yes };
        let connection = self.connection(number, server, in_the_middle);
        let is_undecided = certainty == Certainty::Likely;
        self.tenants.begin(&key);
        let open = Open {
            client,
            server,
            carriers: Default::default(),
            connection,
            stray: None,
            early: Vec::new(),
            is_undecided,
            is_noted: false,
        };
        Some(self.connections.insert(key, open))
    }

    /// The side of the sender of the first segment seen of a connection.
    fn source(&mut self, segment: &Segment<'_>) -> (Side, Certainty) {
        let (source, destination) = (segment.source.port, segment.destination.port);
        if segment.flags & Segment::SYN != 0 {
            self.roles.syn(segment);
            let side = if segment.flags & Segment::ACK == 0 { Side::Client } else { Side::Server };
            return (side, Certainty::Certain);
        }
        // In the middle: by the user's port, or by iSCSI's.
        for port in self.selection.port.into_iter().chain([ISCSI_PORT]) {
            if (source == port) != (destination == port) {
                let side = if destination == port { Side::Client } else { Side::Server };
                return (side, Certainty::Certain);
            }
        }
        if self.selection.port.is_some() {
            // Both ports are the user's.
            return (Side::Client, Certainty::Certain);
        }
        self.roles.seen(segment.source, segment.destination);
        self.roles.source(segment)
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
        self.tenants.forget(&key);
        if let Some(mut open) = self.connections.remove(&key) {
            if open.is_undecided {
                self.decide_roles(&mut open, observer);
            }
            self.counters.strays += u64::from(open.stray.is_some());
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

#[cfg(test)]
mod tests;
