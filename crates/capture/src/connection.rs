//! One connection: its two ordered streams, its application protocol, and its TCP behaviour.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use record::{ConnectionFacts, Side, StallKind};

use crate::application::{Application, Protocol};
use crate::follow::Flow;
use crate::observer::Observer;
use crate::observer::StreamHole;
use crate::packet::{At, Endpoint, Segment};
use crate::settling::Settling;
use crate::stream::{Missing, MissingReason, Sink, Stream};
use crate::tcp::{Before, LATE_NS, Tcp};
use record::Opened;

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
    began_ns: u64,
    /// When its last packet passed, nanoseconds since the epoch.
    last_ns: u64,
}

impl Connection {
    /// A connection with this number, at its beginning or somewhere `in_the_middle`.
    pub(crate) fn new(number: u32, server_port: u16, in_the_middle: bool, protocol: Protocol) -> Self {
        Self {
            number,
            requests: Direction::default(),
            responses: Direction::default(),
            application: Application::new(number, server_port, protocol, in_the_middle),
            tcp: None,
            settling: None,
            has_opened: false,
            packets: 0,
            bytes: 0,
            began_ns: 0,
            last_ns: 0,
        }
    }

    /// The same, with the analysis of TCP.
    pub(crate) fn watching_tcp(mut self) -> Self {
        self.tcp = Some(Box::default());
        self.settling = Some(Settling::default());
        self
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
        if !self.watch(segment, side, at, observer) {
            return;
        }
        if segment.flags & Segment::ACK != 0 {
            if flow == Flow::Requests
                && let Some(settling) = &mut self.settling
            {
                settling.acknowledged(segment.ack, observer);
            }
            let other = if flow == Flow::Requests { Flow::Responses } else { Flow::Requests };
            let (stream, mut feed, _) = self.feed(other, observer);
            stream.acknowledged(segment.ack, &mut feed);
        }
        let syn = segment.flags & Segment::SYN != 0;
        if flow == Flow::Responses && (syn || !self.responses.stream.has_begun()) {
            self.application.responses_begin_at(segment.seq.wrapping_add(syn.into()));
        }
        if segment.payload_bytes > 0 && !self.has_opened {
            self.has_opened = true;
            self.open(segment, side, observer);
        }
        let completed_before = self.application.pace().messages[side as usize];
        let (stream, mut feed, has_ended) = self.feed(flow, observer);
        stream.segment(segment.seq, syn, segment.payload, segment.payload_bytes, at, &mut feed);
        if segment.flags & Segment::FIN != 0 {
            *has_ended = true;
            match &mut self.settling {
                Some(settling) => self.application.closed(side, at, &mut settling.observer(observer)),
                None => self.application.closed(side, at, observer),
            }
        }
        if segment.flags & Segment::RST != 0 {
            (self.requests.has_ended, self.responses.has_ended) = (true, true);
        }
        if let Some(tcp) = &mut self.tcp
            && segment.payload_bytes > 0
        {
            let completed = self.application.pace().messages[side as usize] - completed_before;
            tcp.after(side, at, self.application.message_state(side), completed);
        }
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
        let Self { tcp: Some(tcp), application, settling, number, .. } = self else { return true };
        let before = Before {
            connection: *number,
            message: application.message_state(side),
            in_flight: application.pace().depth(),
        };
        tcp.segment(segment, side, at, before, |stall| {
            application.stalled(&stall);
            if let Some(settling) = settling {
                settling.stalled(&stall);
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
        })
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
            };
            tcp.finish(before, |stall| {
                application.stalled(&stall);
                if let Some(settling) = settling {
                    settling.stalled(&stall);
                }
                observer.stall(&stall);
            });
        }
        if let Some(settling) = settling {
            settling.finish(observer);
        }
        let mut counted = self.application.finish(observer);
        for stream in [&self.requests.stream, &self.responses.stream] {
            counted.retransmitted += stream.counters.retransmitted;
            counted.out_of_order += stream.counters.out_of_order;
        }
        observer.counted(&counted);
        if let Some(tcp) = &self.tcp {
            let pace = self.application.pace();
            observer.connection(&ConnectionFacts {
                connection: self.number,
                client: address(client),
                server: address(server),
                protocol: self.application.name(),
                packets: self.packets,
                bytes: self.bytes,
                began_ns: self.began_ns,
                ended_ns: self.last_ns,
                handshake_ns: tcp.handshake_ns,
                ttl: (tcp.ttl[0], tcp.ttl[1]),
                exchanges: pace.ended,
                in_flight_ns: pace.in_flight_ns,
                client_conduct: tcp.conduct(Side::Client),
                server_conduct: tcp.conduct(Side::Server),
                duplicates: tcp.duplicates,
                has_ended: self.has_ended(),
                both_directions: self.requests.stream.has_begun() && self.responses.stream.has_begun(),
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
    fn missing(&mut self, count: u64, at: At) {
        let side = self.flow.sender();
        match self.settling {
            Some(settling) => {
                self.application.missing(side, count, at, &mut settling.observer(self.observer));
            }
            None => self.application.missing(side, count, at, self.observer),
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
        self.missing(count, at);
    }
    fn hole(&mut self, missing: Missing) {
        self.observer.hole(StreamHole { connection: self.connection, flow: self.flow, missing });
        self.missing(missing.bytes, At { ns: missing.time_ns, frame: 0 });
    }
}
