//! One connection: its two ordered streams, its application protocol, and its TCP behaviour.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use record::{Conduct, ConnectionFacts, Setup, Side, StallKind};

use crate::application::{Application, Protocol};
use crate::chunks::together_ns;
use crate::decode::{ProtocolEntry, Shown};
use crate::follow::Flow;
use crate::observer::Observer;
use crate::observer::StreamHole;
use crate::opening::Packet;
use crate::packet::{At, Endpoint, Segment};
use crate::room::{Room, SharedRoom};
use crate::settling::Settling;
use crate::stream::{Absent, Missing, MissingReason, Sink, Stream};
use crate::tcp::{After, Before, LATE_NS, Tcp};
use crate::tls::keys::Keys;
use record::Opened;

/// Largest receive buffer that systems grow to by themselves, bytes (Linux's tcp_rmem is 6 MiB, and 32 MiB on tuned hosts).
/// A random sequence number is so close to the expected one in one case of 64.
const WINDOW_MAX: u32 = 32 << 20;
/// A burst in a hole is at most so much faster than the connection was on average.
const RATE_FACTOR: u128 = 16;

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    stream: Stream,
    has_ended: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    number: u32,
    requests: Direction,
    responses: Direction,
    application: Application,
    /// The TCP tracker; absent if TCP is not analysed.
    tcp: Option<Box<Tcp>>,
    /// Exchanges whose response is not acknowledged; absent if TCP is not analysed.
    settling: Option<Settling>,
    has_opened: bool,
    packets: u64,
    bytes: u64,
    /// Packets that were skipped because another encapsulation had brought them.
    copies: u64,
    began_ns: u64,
    /// When its last packet passed, nanoseconds since the epoch.
    last_ns: u64,
    /// When the side that does not send the segment at hand last sent data on another connection, nanoseconds since the epoch.
    pub(crate) others_ns: u64,
}

impl Connection {
    /// See [`Application::expects`].
    pub(crate) fn expects(&mut self, proven: &'static ProtocolEntry) {
        self.application.expects(proven);
    }

    /// See [`Application::proven`].
    #[inline]
    pub(crate) fn proven(&self) -> Option<&'static ProtocolEntry> {
        self.application.proven()
    }

    /// A connection with this number, at its beginning or somewhere `in_the_middle`.
    pub(crate) fn new(
        number: u32,
        server_port: u16,
        in_the_middle: bool,
        protocol: Protocol,
        shown: Shown,
        keys: Keys,
    ) -> Self {
        let application = Application::new(number, server_port, protocol, shown, in_the_middle);
        Self {
            number,
            requests: Direction::default(),
            responses: Direction::default(),
            application: application.with_keys(keys),
            tcp: None,
            settling: None,
            has_opened: false,
            packets: 0,
            bytes: 0,
            copies: 0,
            began_ns: 0,
            last_ns: 0,
            others_ns: 0,
        }
    }

    /// The same, with room for its requests that it shares with others.
    pub(crate) fn sharing(mut self, room: SharedRoom) -> Self {
        self.application.pace_mut().room = Room::of(room);
        self
    }

    /// The same, with the analysis of TCP.
    pub(crate) fn watching_tcp(mut self) -> Self {
        self.tcp = Some(Box::default());
        self.settling = Some(Settling::default());
        self
    }

    /// Its number.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Whether a SYN with this sequence number belongs to this connection, rather than to a new one on the
    /// same ports.
    pub(crate) fn began_with(&self, flow: Flow, seq: u32) -> bool {
        let (own, other) = match flow {
            Flow::Requests => (&self.requests.stream, &self.responses.stream),
            Flow::Responses => (&self.responses.stream, &self.requests.stream),
        };
        match own.syn() {
            Some(syn) => syn == seq,
            None => !own.has_begun() && (!other.has_begun() || other.syn().is_some()),
        }
    }

    /// The stream of one direction.
    pub(crate) fn stream(&self, flow: Flow) -> &Stream {
        match flow {
            Flow::Requests => &self.requests.stream,
            Flow::Responses => &self.responses.stream,
        }
    }

    /// Counts a packet that is in the capture a second time, in another encapsulation.
    pub(crate) fn skip_copy(&mut self) {
        self.copies += 1;
    }

    /// Whether a segment continues this connection, rather than another one on the same ports whose SYN is not in the capture.
    ///
    /// Sequence numbers begin anywhere. A segment far outside of every window is of this connection only after a hole, and a
    /// hole is believable if the acknowledgement number goes on, or if so much can have passed since the last packet.
    #[inline]
    pub(crate) fn is_continued_by(&self, segment: &Segment<'_>, flow: Flow, at: At) -> bool {
        let own = if flow == Flow::Requests { &self.requests } else { &self.responses };
        match own.stream.distance_to(segment.seq) {
            Some(distance) if distance.unsigned_abs() > WINDOW_MAX => {
                self.is_behind_a_hole(segment, flow, at, distance)
            }
            _ => true,
        }
    }

    #[cold]
    fn is_behind_a_hole(&self, segment: &Segment<'_>, flow: Flow, at: At, distance: i32) -> bool {
        if self.has_ended() {
            return false;
        }
        let other = if flow == Flow::Requests { &self.responses } else { &self.requests };
        let acknowledges = segment.flags & Segment::ACK != 0;
        if let Some(of_other) = other.stream.distance_to(segment.ack)
            && acknowledges
            && of_other.unsigned_abs() <= WINDOW_MAX
        {
            return true;
        }
        let lived_ns = self.last_ns.saturating_sub(self.began_ns).max(1);
        let own = if flow == Flow::Requests { &self.requests } else { &self.responses };
        let since_ns = at.ns.saturating_sub(own.stream.last_ns().max(self.began_ns));
        let passed = u128::from(self.bytes) * u128::from(since_ns) / u128::from(lived_ns);
        // More than 2 GiB ahead looks like behind.
        let ahead = u128::from(distance.cast_unsigned());
        ahead <= passed.saturating_mul(RATE_FACTOR) + u128::from(WINDOW_MAX)
    }

    /// Whether it has ended: reset, or both sides have sent a FIN.
    pub(crate) fn has_ended(&self) -> bool {
        self.requests.has_ended && self.responses.has_ended
    }

    /// Memory of out-of-order segments, bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.requests.stream.waiting_bytes() + self.responses.stream.waiting_bytes()
    }

    /// Processes a segment in this direction, of a packet of `wire_bytes`.
    #[inline]
    pub(crate) fn segment(
        &mut self,
        segment: &Segment<'_>,
        flow: Flow,
        at: At,
        wire_bytes: u32,
        observer: &mut impl Observer,
    ) {
        if self.packets == 0 {
            self.began_ns = at.ns;
        }
        self.packets += 1;
        self.bytes += u64::from(wire_bytes);
        self.last_ns = at.ns;
        let side = flow.sender();
        let bare;
        let segment = if segment.flags & Segment::RST == 0 {
            segment
        } else {
            // What comes with a reset is no data of the stream (RFC 9293 3.5.3), and what it acknowledges may be anything.
            let flags = segment.flags & !Segment::ACK;
            bare = Segment { flags, payload: &[], payload_bytes: 0, ..*segment };
            &bare
        };
        if !self.watch(segment, side, at, observer) {
            return;
        }
        self.follow_opening(segment, side, at);
        if segment.flags & Segment::ACK != 0 {
            if flow == Flow::Requests
                && let Some(settling) = &mut self.settling
            {
                settling.acknowledged(segment.ack, observer);
            }
            let other = if flow == Flow::Requests { Flow::Responses } else { Flow::Requests };
            let (stream, mut feed, _) = self.feed(other, observer);
            stream.acknowledged(segment.ack, at, &mut feed);
        }
        let syn = segment.flags & Segment::SYN != 0;
        if flow == Flow::Responses && (syn || !self.responses.stream.has_begun()) {
            self.application.responses_begin_at(segment.seq.wrapping_add(syn.into()));
        }
        if segment.payload_bytes == 0 && !self.has_opened && side == Side::Client && !syn {
            self.application.connected(at, segment.seq, segment.ack);
        }
        if segment.payload_bytes > 0 && !self.has_opened {
            self.has_opened = true;
            self.open(segment, side, observer);
        }
        if segment.payload_bytes > 0 {
            self.application.packet(side, segment.seq, segment.ack);
            let stream = if side == Side::Client { &self.requests.stream } else { &self.responses.stream };
            if stream.due().is_some_and(|due| due != segment.seq) {
                self.application.packet_is_early(side, at);
            }
        }
        let before = self.application.pace().messages;
        let (stream, mut feed, has_ended) = self.feed(flow, observer);
        stream.segment(segment.seq, syn, segment.payload, segment.payload_bytes, at, &mut feed);
        if segment.flags & Segment::FIN != 0 {
            *has_ended = true;
            // What it acknowledges may not be in the capture.
            self.application.packet(side, segment.seq, segment.ack);
            match &mut self.settling {
                Some(settling) => self.application.closed(side, at, &mut settling.observer(observer)),
                None => self.application.closed(side, at, observer),
            }
            let end = segment.seq.wrapping_add(segment.payload_bytes as u32);
            if let (Side::Server, Some(settling)) = (side, &mut self.settling)
                && self.responses.stream.is_whole_before(end)
                && self.requests.stream.has_begun()
            {
                settling.opening.closed_by_server(self.application.cut_off(), at);
            }
        }
        if segment.flags & Segment::RST != 0 {
            (self.requests.has_ended, self.responses.has_ended) = (true, true);
            if side == Side::Client
                && let Some(settling) = &mut self.settling
            {
                settling.reset_by_client(observer);
            }
        }
        if let Some(tcp) = &mut self.tcp
            && segment.payload_bytes > 0
        {
            // A correction of the protocol may restart the count.
            let messages = self.application.pace().messages;
            let completed = |of: Side| messages[of as usize].saturating_sub(before[of as usize]);
            if completed(side.peer()) > 0 {
                tcp.turned(side.peer(), at);
            }
            let message = self.application.message_state(side);
            let owes = self.application.owes(side);
            tcp.after(side, at, After { message, completed: completed(side), owes });
        }
    }

    /// Follows the connection's beginning and its end by a reset, and the pieces of its responses.
    #[inline]
    fn follow_opening(&mut self, segment: &Segment<'_>, side: Side, at: At) {
        const ENDS: u8 = Segment::SYN | Segment::FIN | Segment::RST;
        let Some(settling) = &mut self.settling else { return };
        if segment.flags & ENDS != 0 || settling.opening.is_under_way() {
            let awaited = match segment.flags & Segment::RST {
                0 => 0,
                _ => self.application.awaited(self.responses.has_ended),
            };
            settling.opening.packet(Packet { segment, side, at, awaited });
        }
        if segment.payload_bytes == 0 {
            return;
        }
        match (side, &self.tcp) {
            (Side::Server, Some(tcp)) => {
                let together_ns = together_ns(tcp.round_trip_ns());
                settling.pieces.segment(segment, at, tcp.full_segment(side), together_ns);
            }
            // What the server sent before was no response.
            (Side::Client, _) if self.application.pace().depth() == 0 => {
                settling.pieces.take();
            }
            _ => {}
        }
    }

    /// The set-up's facts, and the client's conduct without what it sent again because the server had dropped the end of the
    /// handshake: nothing was lost on the path.
    fn setup(&self, conduct: Conduct) -> (Setup, Conduct) {
        let Some(settling) = &self.settling else { return (Setup::default(), conduct) };
        let setup = *settling.opening.setup();
        if !setup.was_dropped_after_handshake() {
            return (setup, conduct);
        }
        let again = u64::from(setup.first_data_again);
        let retransmitted = conduct.retransmitted.saturating_sub(again);
        let timeouts = conduct.timeouts.saturating_sub(again);
        (setup, Conduct { retransmitted, timeouts, ..conduct })
    }

    /// Reports the connection before its first data.
    fn open(&self, segment: &Segment<'_>, side: Side, observer: &mut impl Observer) {
        let (client, server) = match side {
            Side::Client => (segment.source, segment.destination),
            Side::Server => (segment.destination, segment.source),
        };
        observer.opened(&Opened {
            connection: self.number,
            client: address(client),
            server: address(server),
            client_syn: self.requests.stream.syn(),
            handshake_ns: self.tcp.as_ref().and_then(|tcp| tcp.handshake_ns),
            ttl: (side, segment.ttl),
        });
    }

    /// Passes a segment to the TCP tracker before the application sees it. False for a copy.
    #[inline]
    fn watch(&mut self, segment: &Segment<'_>, side: Side, at: At, observer: &mut impl Observer) -> bool {
        let Self { tcp: Some(tcp), application, settling, number, others_ns, .. } = self else { return true };
        let before = Before {
            connection: *number,
            message: application.message_state(side),
            in_flight: application.pace().depth(),
            others_ns: *others_ns,
        };
        let is_new = tcp.segment(segment, side, at, before, |stall| {
            let stall = settling.as_ref().map_or(stall, |settling| settling.named(stall));
            application.stalled(&stall);
            if let Some(settling) = settling {
                settling.stalled(&stall, application.pace_mut());
            }
            // Too many to be reported one by one.
            let is_frequent = match stall.kind {
                StallKind::AckWait | StallKind::BehindLoss => true,
                StallKind::WindowFull => stall.wait_ns < LATE_NS,
                _ => false,
            };
            if !is_frequent {
                observer.stall(&stall);
            }
        });
        if let Some(settling) = settling {
            settling.queued_ns = [tcp.queued_ns(Side::Client), tcp.queued_ns(Side::Server)];
        }
        if let Some(step) = tcp.step.take() {
            if let Some(settling) = settling {
                settling.stepped(step);
            }
            observer.clock_step(&step);
        }
        is_new
    }

    /// Stops waiting for missing segments.
    pub(crate) fn give_up(&mut self, reason: MissingReason, observer: &mut impl Observer) {
        for flow in [Flow::Requests, Flow::Responses] {
            let (stream, mut feed, _) = self.feed(flow, observer);
            stream.finish(reason, &mut feed);
        }
    }

    /// Ends the connection: delivers waiting data, and the counters of the connection between these ends, to the observer.
    pub(crate) fn finish(mut self, client: Endpoint, server: Endpoint, observer: &mut impl Observer) {
        self.give_up(MissingReason::EndOfCapture, observer);
        let Self { tcp, application, settling, number, .. } = &mut self;
        if let Some(tcp) = tcp {
            let before = Before {
                connection: *number,
                message: application.message_state(Side::Client),
                in_flight: application.pace().depth(),
                others_ns: 0,
            };
            tcp.finish(before, |stall| {
                let stall = settling.as_ref().map_or(stall, |settling| settling.named(stall));
                application.stalled(&stall);
                if let Some(settling) = settling {
                    settling.stalled(&stall, application.pace_mut());
                }
                observer.stall(&stall);
            });
        }
        let mut counted = match settling {
            Some(settling) => {
                let mut counted = application.finish(&mut settling.observer(observer));
                settling.finish(observer);
                counted.unanswered += settling.given_up;
                counted
            }
            None => application.finish(observer),
        };
        for stream in [&self.requests.stream, &self.responses.stream] {
            counted.retransmitted += stream.counters.retransmitted;
            counted.out_of_order += stream.counters.out_of_order;
        }
        observer.counted(&counted);
        if let Some(tcp) = &self.tcp {
            let pace = self.application.pace();
            let withheld =
                self.settling.as_ref().map_or(0, |settling| settling.given_up + settling.stepped_over);
            let (setup, client_conduct) = self.setup(tcp.conduct(Side::Client));
            observer.connection(&ConnectionFacts {
                connection: self.number,
                client: address(client),
                server: address(server),
                protocol: self.application.name(),
                undecoded: self.application.undecoded(),
                tls: self.application.tls(),
                packets: self.packets,
                bytes: self.bytes,
                began_ns: self.began_ns,
                ended_ns: self.last_ns,
                handshake_ns: tcp.handshake_ns,
                ttl: (tcp.ttl[0], tcp.ttl[1]),
                exchanges: pace.ended.saturating_sub(withheld),
                in_flight_ns: pace.in_flight_ns,
                client_conduct,
                server_conduct: tcp.conduct(Side::Server),
                duplicates: tcp.duplicates + self.copies,
                has_ended: self.has_ended(),
                both_directions: self.requests.stream.has_begun() && self.responses.stream.has_begun(),
                setup,
            });
        }
    }

    /// One direction's stream, what it feeds, and whether it has ended.
    #[inline]
    fn feed<'a, O: Observer>(
        &'a mut self,
        flow: Flow,
        observer: &'a mut O,
    ) -> (&'a mut Stream, Feed<'a, O>, &'a mut bool) {
        let Self { number, requests, responses, application, settling, .. } = self;
        let Direction { stream, has_ended } = if flow == Flow::Requests { requests } else { responses };
        (stream, Feed { connection: *number, flow, application, settling, observer }, has_ended)
    }
}

/// An end of a connection as the standard library writes it.
fn address(end: Endpoint) -> SocketAddr {
    SocketAddr::new(IpAddr::V6(Ipv6Addr::from(end.address)).to_canonical(), end.port)
}

/// The sink of a stream: the application, and through it the observer.
struct Feed<'a, O> {
    connection: u32,
    flow: Flow,
    application: &'a mut Application,
    settling: &'a mut Option<Settling>,
    observer: &'a mut O,
}

impl<O: Observer> Feed<'_, O> {
    fn missing(&mut self, absent: Absent, count: u64, at: At) {
        let side = self.flow.sender();
        match self.settling {
            Some(settling) => {
                self.application.missing(side, absent, count, at, &mut settling.observer(self.observer));
            }
            None => self.application.missing(side, absent, count, at, self.observer),
        }
    }
}

impl<O: Observer> Sink for Feed<'_, O> {
    #[inline]
    fn bytes(&mut self, bytes: &[u8], at: At) {
        let side = self.flow.sender();
        match self.settling {
            Some(settling) => self.application.bytes(side, bytes, at, &mut settling.observer(self.observer)),
            None => self.application.bytes(side, bytes, at, self.observer),
        }
    }
    fn uncaptured(&mut self, count: u64, at: At) {
        self.missing(Absent::Uncaptured, count, at);
    }
    fn hole(&mut self, missing: Missing) {
        self.observer.hole(StreamHole { connection: self.connection, flow: self.flow, missing });
        self.missing(Absent::Lost, missing.bytes, At { ns: missing.time_ns, frame: 0 });
    }
}
