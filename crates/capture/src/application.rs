//! The application protocol of a connection, and its follower.
//!
//! The first data decides: HTTP by a complete first line, iSCSI by a login, anything else is followed as turns, so that no
//! connection remains undecided. Only where iSCSI is possible without a login, a [`Trial`] holds the decision back. Turns
//! become HTTP when a turn begins with an HTTP message, and HTTP becomes turns when its stream contradicts it, or when it
//! ends by agreement (CONNECT, 101), unless that agreement is on WebSocket. What is in the records of TLS is an application of its own
//! ([`secured`]).

mod front;
mod proxy;
mod secured;

use std::collections::VecDeque;

use record::{Side, Stall};

use front::Front;

use crate::decode::{self, Agreed, Frames, ProtocolEntry, Shown, Start, Upgraded};
use crate::follow::{Digests, Flow, MessageState};
use crate::http::{Http, Mark};
use crate::in_flight::Pace;
use crate::iscsi::Iscsi;
use crate::observer::{Counted, Observer};
use crate::packet::At;
use crate::plausible;
use crate::stream::Absent;
use crate::tcp::Owes;
use crate::tls::keys::Keys;
use crate::tls::{self, Tls};
use crate::trial::{Finding, Port, Trial};
use crate::turns::Turns;

/// The expected protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Detected from the first bytes.
    #[default]
    Auto,
    /// iSCSI (RFC 7143), with these digests until a login negotiates others.
    Iscsi(Digests),
    /// HTTP/1.1 (RFC 9112).
    Http,
    /// One of [`decode::PROTOCOLS`].
    Decoded(&'static ProtocolEntry),
    /// Requests and responses, by change of direction.
    Turns,
}

/// Calls a method of the connection's protocol.
macro_rules! each {
    ($self:expr, $protocol:ident => $call:expr, $undecided:expr) => {
        match $self {
            ProtocolState::Iscsi($protocol) => $call,
            ProtocolState::Http($protocol) => $call,
            ProtocolState::Decoded($protocol) => $call,
            ProtocolState::Turns($protocol) => $call,
            ProtocolState::Tls($protocol) => $call,
            ProtocolState::Trial(_) | ProtocolState::Undecided { .. } => $undecided,
        }
    };
}

/// The application's side of a connection.
#[derive(Debug)]
enum ProtocolState {
    /// No data so far.
    Undecided {
        in_the_middle: bool,
        pace: Box<Pace>,
    },
    Trial(Box<Trial>),
    Iscsi(Box<Iscsi>),
    Http(Box<Http>),
    Decoded(Box<Frames>),
    Turns(Box<Turns>),
    Tls(Box<Tls>),
}

/// Whether the protocol may be corrected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// It was detected.
    Detected,
    /// The user chose it.
    Given,
}

/// See [`Protocol`].
#[derive(Debug)]
pub(crate) struct Application {
    connection: u32,
    /// The server's port: 3260 is iSCSI's.
    port: u16,
    responses_from: Option<u32>,
    choice: Choice,
    shown: Shown,
    /// Whether another header at the front of a turn may begin a trial: it has not been refuted.
    may_be_iscsi: bool,
    /// The numbers of the packet whose bytes are at hand of each side, and those of its latest one.
    packets: [Mark; 2],
    latest: [Mark; 2],
    /// Packets that came before others which precede them, by their frames: their bytes come later.
    early: [VecDeque<(u64, Mark)>; 2],
    /// The packet that ended the handshake, before any data.
    connected: Option<(At, Mark)>,
    protocol: ProtocolState,
    /// The first turn, while the protocol is unknown.
    front: Option<Box<Front>>,
    /// What the server has spoken on other connections.
    proven: Option<&'static ProtocolEntry>,
    /// The protocol's name, if it is known and not decoded.
    undecoded: Option<&'static str>,
    /// Secrets for what is encrypted.
    keys: Option<Keys>,
    /// It is in the records of TLS, and the front of one is told.
    is_inner: bool,
    /// The protocol that has agreed on TLS, which goes on in it.
    agreed: Option<Agreed>,
    /// The connection is encrypted, and its handshake is not in the capture.
    is_sealed: bool,
    /// The first bytes of the connection are in the capture.
    is_from_its_begin: bool,
    /// The request that HTTP left to the protocol behind it.
    upgraded: Option<Upgraded>,
    /// That request's protocol is not visible, and may be WebSocket.
    may_be_websocket: bool,
    /// Counters of the protocols before the present one.
    earlier: Counted,
    has_data: bool,
}

/// Most packets out of their order whose numbers are remembered.
const EARLY_MAX: usize = 256;
/// iSCSI's port (RFC 7143 2.1).
pub(crate) const ISCSI_PORT: u16 = 3260;
/// Turns whose first bytes are examined for another protocol. A connection in its middle shows a message's front in the first
/// few; a tunnel begins after as many.
const EXAMINED_TURNS: u32 = 64;

fn flow(side: Side) -> Flow {
    if side == Side::Client { Flow::Requests } else { Flow::Responses }
}

impl Application {
    pub(crate) fn new(
        connection: u32,
        port: u16,
        protocol: Protocol,
        shown: Shown,
        in_the_middle: bool,
    ) -> Self {
        let choice = if protocol == Protocol::Auto { Choice::Detected } else { Choice::Given };
        let protocol = match protocol {
            Protocol::Auto => ProtocolState::Undecided { in_the_middle, pace: Box::default() },
            Protocol::Iscsi(digests) => {
                ProtocolState::Iscsi(Box::new(Iscsi::new(connection, in_the_middle, digests)))
            }
            Protocol::Http => {
                ProtocolState::Http(Box::new(Http::new(connection, in_the_middle).showing(shown)))
            }
            Protocol::Decoded(entry) => {
                let pace = Pace::default();
                ProtocolState::Decoded(Box::new(Frames::new(connection, entry, shown, pace, in_the_middle)))
            }
            Protocol::Turns => ProtocolState::Turns(Box::new(Turns::new(connection))),
        };
        Self {
            connection,
            port,
            shown,
            responses_from: None,
            packets: [Mark::default(); 2],
            latest: [Mark::default(); 2],
            early: Default::default(),
            connected: None,
            choice,
            may_be_iscsi: in_the_middle,
            protocol,
            front: None,
            proven: None,
            undecoded: None,
            keys: None,
            is_inner: false,
            agreed: None,
            is_sealed: false,
            is_from_its_begin: false,
            upgraded: None,
            may_be_websocket: false,
            earlier: Counted::default(),
            has_data: false,
        }
    }

    /// The protocol's name in reports.
    pub(crate) fn name(&self) -> &'static str {
        match &self.protocol {
            ProtocolState::Undecided { .. } | ProtocolState::Trial(_) => "unknown",
            ProtocolState::Iscsi(_) => "iscsi",
            ProtocolState::Http(_) => "http",
            ProtocolState::Decoded(frames) => frames.name(),
            ProtocolState::Tls(tls) if tls.is_clear() && tls.has_data() => tls.inner().name(),
            ProtocolState::Turns(_) | ProtocolState::Tls(_) => "turns",
        }
    }

    /// The name of a protocol that is known and followed as turns.
    pub(crate) fn undecoded(&self) -> Option<&'static str> {
        match &self.protocol {
            ProtocolState::Tls(tls) if tls.is_clear() && tls.has_data() => tls.inner().undecoded(),
            ProtocolState::Tls(_) => Some("TLS"),
            _ => self.undecoded,
        }
    }

    /// Sequence number of the first byte of the server's stream.
    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.responses_from = Some(seq);
        match &mut self.protocol {
            ProtocolState::Trial(trial) => {
                trial.iscsi.responses_begin_at(seq);
                trial.turns.responses_begin_at(seq);
            }
            protocol => each!(protocol, s => s.responses_begin_at(seq), ()),
        }
    }

    #[inline]
    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        // The common case first.
        if let ProtocolState::Iscsi(iscsi) = &mut self.protocol {
            iscsi.bytes(side, bytes, at, observer);
            return;
        }
        if !self.early[side as usize].is_empty() {
            self.is_of_frame(side, at.frame);
        }
        self.detected(side, bytes, at, observer);
    }

    /// Follows a protocol that may have to be corrected.
    fn detected(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        let mut bytes = bytes;
        if !self.has_data && side == Side::Client && !self.is_inner {
            let header = proxy::header_bytes(bytes);
            bytes = bytes.get(header..).unwrap_or_default();
            if header > 0 && bytes.is_empty() {
                return;
            }
        }
        if self.may_be_tls(side) && self.is_client_hello(bytes) {
            self.become_tls(at, observer);
            self.follow_front(side, bytes, at, observer);
        } else if self.choice == Choice::Detected && !self.is_inner {
            self.decide(side, bytes, at, observer);
            self.follow_front(side, bytes, at, observer);
        }
        self.has_data = true;
        match &mut self.protocol {
            ProtocolState::Iscsi(iscsi) => iscsi.bytes(side, bytes, at, observer),
            ProtocolState::Http(http) => {
                http.packet(side, self.packets[side as usize]);
                let taken = http.bytes(side, bytes, at, observer);
                if http.has_ended_by_agreement() || self.choice == Choice::Detected && http.is_contradicted()
                {
                    self.leave_http(at, observer);
                    if let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
                        self.pass_rest(side, rest, at, observer);
                    }
                }
            }
            ProtocolState::Decoded(frames) => {
                frames.packet(side, self.packets[side as usize]);
                let rest = frames.bytes(side, bytes, at, observer);
                if frames.has_ended() || self.choice == Choice::Detected && frames.is_contradicted() {
                    self.leave_decoded(observer);
                }
                if let (false, ProtocolState::Turns(turns)) = (rest.is_empty(), &mut self.protocol) {
                    turns.pass(side, rest, at, observer);
                }
            }
            ProtocolState::Turns(turns) => {
                if self.is_inner {
                    turns.in_records();
                }
                turns.packet(side, self.packets[side as usize]);
                turns.pass(side, bytes, at, observer);
            }
            ProtocolState::Tls(tls) => {
                tls.packet(side, self.packets[side as usize]);
                tls.bytes(side, bytes, at, observer);
            }
            ProtocolState::Trial(trial) => {
                trial.turns.packet(side, self.packets[side as usize]);
                trial.bytes(side, bytes, at);
                let finding = trial.finding();
                self.end_trial(finding, observer);
            }
            ProtocolState::Undecided { .. } => {}
        }
    }

    /// Processes what is behind the last message of HTTP in a segment.
    fn pass_rest(&mut self, side: Side, rest: &[u8], at: At, observer: &mut impl Observer) {
        let start = Start::new(side, rest, self.port, false);
        if self.choice == Choice::Detected
            && let Some(entry) = decode::detect(&start, None)
        {
            self.become_decoded(entry, at);
        }
        match &mut self.protocol {
            ProtocolState::Decoded(frames) => {
                frames.packet(side, self.packets[side as usize]);
                frames.bytes(side, rest, at, observer);
            }
            ProtocolState::Turns(turns) => turns.pass(side, rest, at, observer),
            _ => {}
        }
    }

    /// Processes bytes that were on the wire and are not in the capture.
    pub(crate) fn missing(
        &mut self,
        side: Side,
        absent: Absent,
        count: u64,
        at: At,
        observer: &mut impl Observer,
    ) {
        match &mut self.protocol {
            ProtocolState::Iscsi(iscsi) => iscsi.missing(side, count, at, observer),
            ProtocolState::Http(http) => {
                http.missing(side, absent, count, at, observer);
                if http.has_ended_by_agreement() {
                    self.leave_http(at, observer);
                }
            }
            ProtocolState::Decoded(frames) => frames.missing(side, absent, count, at, observer),
            ProtocolState::Turns(turns) => {
                self.front = None;
                turns.missing((side, absent), count, self.packets[side as usize], at, observer);
            }
            ProtocolState::Tls(tls) => tls.missing(side, absent, count, at, observer),
            ProtocolState::Trial(trial) => {
                trial.missing(side, absent, count, self.packets[side as usize], at);
                let finding = trial.finding();
                self.end_trial(finding, observer);
            }
            ProtocolState::Undecided { in_the_middle, .. } => {
                *in_the_middle = true;
                self.may_be_iscsi = true;
                if side == Side::Server {
                    // Where its next byte is.
                    self.responses_from = self.responses_from.map(|from| from.wrapping_add(count as u32));
                }
            }
        }
    }

    /// A side has closed its stream.
    pub(crate) fn closed(&mut self, side: Side, at: At, observer: &mut impl Observer) {
        match &mut self.protocol {
            ProtocolState::Http(http) => http.closed(side, at, observer),
            ProtocolState::Decoded(frames) => {
                frames.packet(side, self.packets[side as usize]);
                frames.closed(side, observer);
            }
            ProtocolState::Tls(tls) => tls.closed(side, at, observer),
            _ => {}
        }
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        if let ProtocolState::Trial(trial) = &self.protocol {
            let finding = trial.last_finding();
            self.end_trial(finding, observer);
        }
        let counted =
            self.earlier.then(each!(&mut self.protocol, s => s.finish(observer), Counted::default()));
        let has_data = match &self.protocol {
            ProtocolState::Tls(tls) => tls.has_data(),
            _ => self.has_data,
        };
        let is_empty = has_data && self.pace().ended == 0 && counted.unanswered == 0;
        Counted { without_operations: u64::from(is_empty), ..counted }
    }

    /// The state of a side's current message.
    #[inline]
    pub(crate) fn message_state(&self, side: Side) -> MessageState {
        each!(&self.protocol, s => s.message_state(side), MessageState::Unknown)
    }

    /// What a side has to send. How many requests a turn has is unknown, and so is the length of a message whose head was not
    /// captured.
    #[inline]
    pub(crate) fn owes(&self, side: Side) -> Owes {
        let is_long = match &self.protocol {
            ProtocolState::Iscsi(_) => true,
            ProtocolState::Http(http) => http.has_rest(side),
            ProtocolState::Decoded(frames) => frames.has_rest(side),
            ProtocolState::Tls(tls) => match tls.inner().owes(side) {
                Owes::Nothing => tls.has_rest(side) && tls.is_clear(),
                owes => return owes,
            },
            ProtocolState::Turns(_) | ProtocolState::Trial(_) | ProtocolState::Undecided { .. } => {
                return Owes::Nothing;
            }
        };
        match self.message_state(side) {
            MessageState::Nothing if self.pace().owes(side) => Owes::Answers,
            MessageState::Header | MessageState::Part if is_long => Owes::Rest,
            _ => Owes::Nothing,
        }
    }

    #[inline]
    pub(crate) fn pace(&self) -> &Pace {
        match &self.protocol {
            ProtocolState::Trial(trial) => trial.turns.pace(),
            ProtocolState::Undecided { pace, .. } => pace,
            ProtocolState::Iscsi(protocol) => protocol.pace(),
            ProtocolState::Http(protocol) => protocol.pace(),
            ProtocolState::Decoded(protocol) => protocol.pace(),
            ProtocolState::Turns(protocol) => protocol.pace(),
            ProtocolState::Tls(protocol) => protocol.pace(),
        }
    }

    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        match &mut self.protocol {
            ProtocolState::Trial(trial) => trial.turns.pace_mut(),
            ProtocolState::Undecided { pace, .. } => pace,
            ProtocolState::Iscsi(protocol) => protocol.pace_mut(),
            ProtocolState::Http(protocol) => protocol.pace_mut(),
            ProtocolState::Decoded(protocol) => protocol.pace_mut(),
            ProtocolState::Turns(protocol) => protocol.pace_mut(),
            ProtocolState::Tls(protocol) => protocol.pace_mut(),
        }
    }

    /// A packet with data is about to be processed: which request a response answers can follow from both numbers.
    #[inline]
    /// The client has ended the handshake.
    pub(crate) fn connected(&mut self, at: At, seq: u32, ack: u32) {
        self.connected.get_or_insert((at, Mark { seq, ack }));
    }

    pub(crate) fn packet(&mut self, side: Side, seq: u32, ack: u32) {
        let mark = Mark { seq, ack };
        (self.packets[side as usize], self.latest[side as usize]) = (mark, mark);
    }

    /// The side's packet at hand came before another one that precedes it: its bytes come with those of a later packet.
    pub(crate) fn packet_is_early(&mut self, side: Side, at: At) {
        let early = &mut self.early[side as usize];
        if early.len() >= EARLY_MAX {
            early.pop_front();
        }
        early.push_back((at.frame, self.latest[side as usize]));
    }

    /// Bytes of the packet with this frame are at hand.
    #[cold]
    fn is_of_frame(&mut self, side: Side, frame: u64) {
        let early = &mut self.early[side as usize];
        while early.front().is_some_and(|&(of, _)| of < frame) {
            early.pop_front();
        }
        let own = early.front().filter(|&&(of, _)| of == frame).map(|&(_, mark)| mark);
        self.packets[side as usize] = own.unwrap_or(self.latest[side as usize]);
    }

    /// Requests without a response. Data behind which the server has closed the connection (`is_closed`) may be a farewell
    /// where its meaning is unknown.
    pub(crate) fn awaited(&self, is_closed: bool) -> u32 {
        let pace = self.pace();
        match &self.protocol {
            ProtocolState::Tls(tls) => tls.awaited(is_closed),
            // A turn is in flight until the next one begins.
            ProtocolState::Turns(_) if is_closed => 0,
            ProtocolState::Turns(_) => {
                let begun = pace.ended + u64::from(pace.depth());
                u32::from(begun > pace.messages[Side::Client as usize])
            }
            _ => pace.depth(),
        }
    }

    /// Requests without a whole response, which the server's FIN leaves so. What waits for an event may end with the connection.
    pub(crate) fn cut_off(&self) -> u32 {
        match &self.protocol {
            ProtocolState::Decoded(frames) => frames.cut_off(),
            ProtocolState::Tls(tls) => tls.cut_off(),
            _ => self.awaited(true),
        }
    }

    /// Adds a stall to the exchanges that it delayed.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        if let ProtocolState::Trial(trial) = &mut self.protocol {
            trial.stalled(stall);
            return;
        }
        if let ProtocolState::Tls(tls) = &mut self.protocol {
            return tls.stalled(stall);
        }
        if let Some(front) = &mut self.front {
            front.stalled(stall);
        }
        each!(&mut self.protocol, s => {
            s.stalled(stall);
            s.pace_mut().released(stall);
        }, ());
    }

    /// Detects the protocol from the first bytes of a segment, or corrects it.
    fn decide(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        match &self.protocol {
            ProtocolState::Undecided { in_the_middle, .. } => {
                let in_the_middle = *in_the_middle;
                self.begin(side, bytes, in_the_middle);
            }
            ProtocolState::Turns(_) => {
                if self.goes_on_with_a_protocol(side, bytes, at) {
                    return;
                }
                let ProtocolState::Turns(turns) = &self.protocol else { return };
                let (speaker, number) = turns.speaker();
                if speaker == Some(side) || number >= EXAMINED_TURNS {
                    return;
                }
                let is_header = || plausible::begins_with_a_header(flow(side), bytes);
                let front = self.front.as_ref().filter(|front| front.side() != side && side == Side::Server);
                let asked = front.map_or(&[][..], |front| front.bytes());
                let start = Start::new(side, bytes, self.port, false).answering(asked);
                // Where the heads were cut, a frame shows what 101 has agreed on.
                let is_websocket = || number == 0 && decode::begins_a_websocket_frame(side, bytes);
                if self.may_be_websocket && side == Side::Client && is_websocket() {
                    self.become_decoded(&decode::WEBSOCKET, at);
                } else if Http::is_spoken(side, bytes) {
                    self.end_preamble(side, observer);
                    self.become_http(true, at);
                } else if let Some(entry) = decode::detect(&start, self.proven) {
                    self.end_preamble(side, observer);
                    self.become_decoded(entry, at);
                } else if !self.is_inner && self.undecoded.is_none() && tls::is_application_data(bytes) {
                    (self.undecoded, self.is_sealed) = (Some("TLS"), true);
                } else if self.may_be_iscsi && !self.is_inner && is_header() {
                    self.may_be_iscsi = false;
                    self.try_iscsi();
                }
            }
            ProtocolState::Trial(trial) => {
                let is_front = trial.turns.speaker().0 != Some(side);
                if is_front && Http::is_spoken(side, bytes) {
                    self.end_preamble(side, observer);
                    self.become_http(true, at);
                }
            }
            ProtocolState::Http(_)
            | ProtocolState::Decoded(_)
            | ProtocolState::Iscsi(_)
            | ProtocolState::Tls(_) => {}
        }
    }

    /// Whether the side's first turn shows its protocol with these bytes, where its first segment was too short for that.
    fn goes_on_with_a_protocol(&mut self, side: Side, bytes: &[u8], at: At) -> bool {
        let Some(front) = self.front.as_ref().filter(|front| front.side() == side) else { return false };
        let joined = [front.bytes(), bytes].concat();
        let start = Start::new(side, &joined, self.port, true);
        if Http::is_spoken(side, &joined) {
            self.become_http(false, at);
        } else if let Some(entry) = decode::detect(&start, self.proven) {
            self.become_decoded(entry, at);
        } else {
            return false;
        }
        true
    }

    /// A client begins a message of a protocol that is recognised: the turn before it, such as the negotiation with a SOCKS proxy, was
    /// whole if the connection was seen from its first byte. Otherwise it may be a part of a message.
    fn end_preamble(&mut self, side: Side, observer: &mut impl Observer) {
        if side != Side::Client || !self.is_from_its_begin {
            return;
        }
        match &mut self.protocol {
            ProtocolState::Turns(turns) => turns.end(observer),
            ProtocolState::Trial(trial) => trial.turns.end(observer),
            _ => {}
        }
    }

    /// Decides by the first data.
    fn begin(&mut self, side: Side, bytes: &[u8], in_the_middle: bool) {
        self.is_from_its_begin = !in_the_middle;
        let pace = std::mem::take(self.pace_mut());
        let (port, is_inner) = (self.port, self.is_inner);
        let is_iscsi_possible =
            || !is_inner && (port == ISCSI_PORT || plausible::holds_a_header(flow(side), bytes));
        let start = Start::new(side, bytes, self.port, !in_the_middle);
        self.protocol = if Http::is_spoken(side, bytes) {
            ProtocolState::Http(Box::new(Http::new(self.connection, in_the_middle).showing(self.shown)))
        } else if let Some(entry) = decode::detect(&start, self.proven) {
            let pace = Pace::default();
            let mut frames = Frames::new(self.connection, entry, self.shown, pace, in_the_middle);
            if let Some((at, mark)) = self.connected.filter(|_| !in_the_middle) {
                frames.connected(at, mark);
            }
            ProtocolState::Decoded(Box::new(frames))
        } else if side == Side::Client && !is_inner && plausible::begins_a_login(bytes) {
            ProtocolState::Iscsi(Box::new(Trial::iscsi(self.connection, in_the_middle)))
        } else {
            let mut turns = Box::new(Turns::new(self.connection));
            self.undecoded = decode::known(&start);
            if in_the_middle && !is_inner && tls::is_application_data(bytes) {
                (self.undecoded, self.is_sealed) = (Some("TLS"), true);
            }
            if self.undecoded.is_some() {
                turns.is_pipelined();
            }
            if !in_the_middle {
                self.front = Some(Box::new(Front::new(side, pace.clone())));
            }
            if is_iscsi_possible() {
                self.may_be_iscsi = false;
                let iscsi = Trial::iscsi(self.connection, in_the_middle);
                ProtocolState::Trial(Box::new(Trial::new(self.port_kind(), iscsi, turns)))
            } else {
                ProtocolState::Turns(turns)
            }
        };
        *self.pace_mut() = pace;
        if let Some(seq) = self.responses_from {
            self.responses_begin_at(seq);
        }
    }

    /// Keeps what a side sends first, until the other one answers. What shows the protocol begins with it.
    fn follow_front(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        let Some(mut front) = self.front.take() else { return };
        match (side, &mut self.protocol) {
            (side, ProtocolState::Turns(_) | ProtocolState::Trial(_)) if front.side() == side => {
                let is_kept = front.segment(bytes, self.packets[side as usize], at);
                self.front = Some(front).filter(|_| is_kept);
            }
            // A greeting is no part of what the client begins.
            (Side::Client, _) if front.side() == Side::Server => {}
            (side, ProtocolState::Tls(_)) if front.side() != side => {}
            (_, protocol) => front.replay(protocol, observer),
        }
    }

    /// Whether the client's bytes begin TLS, with what was kept of its first turn.
    fn is_client_hello(&self, bytes: &[u8]) -> bool {
        let front = self.front.as_ref().filter(|front| front.side() == Side::Client);
        tls::is_client_hello(bytes)
            || front.is_some_and(|front| tls::is_client_hello(&[front.bytes(), bytes].concat()))
    }

    /// The server has spoken this protocol on other connections.
    pub(crate) fn expects(&mut self, proven: &'static ProtocolEntry) {
        self.proven = Some(proven);
    }

    /// The protocol that has been spoken here beyond doubt.
    #[inline]
    pub(crate) fn proven(&self) -> Option<&'static ProtocolEntry> {
        match &self.protocol {
            ProtocolState::Decoded(frames) if self.choice == Choice::Detected => frames.proven(),
            _ => None,
        }
    }

    fn port_kind(&self) -> Port {
        if self.port == ISCSI_PORT { Port::Iscsi } else { Port::Other }
    }

    /// Replaces the protocol by another one.
    fn change(&mut self, next: impl FnOnce(ProtocolState) -> ProtocolState) {
        let none = ProtocolState::Undecided { in_the_middle: true, pace: Box::default() };
        let now = std::mem::replace(&mut self.protocol, none);
        self.protocol = next(now);
    }

    /// Ends a trial, if it has a finding.
    fn end_trial(&mut self, finding: Finding, observer: &mut impl Observer) {
        if finding == Finding::Open {
            return;
        }
        // A header-like 48 bytes elsewhere were no guess worth a note; the port was.
        let is_mistake = finding == Finding::Turns && self.port == ISCSI_PORT;
        self.earlier.mistaken |= u64::from(is_mistake);
        self.change(|now| match now {
            ProtocolState::Trial(trial) if finding == Finding::Iscsi => {
                ProtocolState::Iscsi(trial.into_iscsi(observer))
            }
            ProtocolState::Trial(trial) => ProtocolState::Turns(trial.into_turns(observer)),
            other => other,
        });
    }

    /// Follows the connection as turns and as iSCSI from here on.
    fn try_iscsi(&mut self) {
        let (connection, port) = (self.connection, self.port_kind());
        self.change(|now| match now {
            ProtocolState::Turns(turns) => {
                let mut iscsi = Trial::iscsi(connection, true);
                iscsi.responses_begin_at(turns.responses_end());
                ProtocolState::Trial(Box::new(Trial::new(port, iscsi, turns)))
            }
            other => other,
        });
    }

    /// Follows the connection as HTTP from here on, `in_the_middle` of it or with what was kept of it. The turn at hand was a part of a
    /// message.
    fn become_http(&mut self, in_the_middle: bool, at: At) {
        let (connection, shown) = (self.connection, self.shown);
        self.change(|now| {
            let turns = match now {
                ProtocolState::Turns(turns) => turns,
                ProtocolState::Trial(trial) => trial.into_neither(),
                other => return other,
            };
            let seq = turns.responses_end();
            let pace = turns.into_pace(at);
            let http =
                if in_the_middle { Http::after(connection, pace) } else { Http::new(connection, false) };
            let mut http = http.showing(shown);
            http.responses_begin_at(seq);
            ProtocolState::Http(Box::new(http))
        });
    }

    /// Decodes the connection from here on: the turn at hand was a part of a message.
    fn become_decoded(&mut self, entry: &'static ProtocolEntry, at: At) {
        let (connection, shown, upgraded) = (self.connection, self.shown, self.upgraded.take());
        // Otherwise all is there from the first byte.
        let in_the_middle = self.front.is_none() && !std::mem::take(&mut self.may_be_websocket);
        let greeting = self.front.as_ref().filter(|front| front.side() == Side::Server);
        let greeting = greeting.map_or(0, |front| front.bytes().len() as u32);
        self.change(|now| match now {
            ProtocolState::Turns(turns) => {
                let seq = turns.responses_end().wrapping_sub(greeting);
                let mut frames = Frames::new(connection, entry, shown, turns.into_pace(at), in_the_middle);
                frames.responses_begin_at(seq);
                if let Some(upgraded) = upgraded {
                    frames.upgraded(upgraded, at);
                }
                ProtocolState::Decoded(Box::new(frames))
            }
            other => other,
        });
    }

    /// Follows the connection as turns from here on: it is not of the protocol that it seemed to be of, or no longer.
    fn leave_decoded(&mut self, observer: &mut impl Observer) {
        let connection = self.connection;
        let (mut earlier, mut agreed, mut undecoded) = (self.earlier, None, self.undecoded);
        self.change(|now| match now {
            ProtocolState::Decoded(mut frames) => {
                let encrypted = frames.encrypted();
                undecoded = encrypted.or(undecoded);
                earlier = earlier.then(frames.finish(observer));
                earlier.mistaken = u64::from(earlier.mistaken > 0 || !frames.has_ended());
                let (pace, seq);
                (pace, seq, agreed) = frames.into_pace();
                let mut turns = Turns::after(connection, pace);
                turns.responses_begin_at(seq);
                if encrypted.is_some() {
                    turns.is_pipelined();
                }
                ProtocolState::Turns(Box::new(turns))
            }
            other => other,
        });
        (self.earlier, self.agreed, self.undecoded) = (earlier, agreed, undecoded);
    }

    /// Follows the connection as turns from here on.
    fn leave_http(&mut self, at: At, observer: &mut impl Observer) {
        let (connection, shown) = (self.connection, self.shown);
        let (mut earlier, mut upgraded, mut may_be_websocket) = (self.earlier, None, false);
        self.change(|now| match now {
            ProtocolState::Http(mut http) => {
                upgraded = http.upgraded();
                earlier = earlier.then(http.finish(observer));
                earlier.mistaken = u64::from(earlier.mistaken > 0 || !http.has_ended_by_agreement());
                let is_websocket = http.becomes_websocket();
                may_be_websocket = is_websocket.is_none() && upgraded.is_some();
                let (pace, seq) = http.into_pace(at);
                if is_websocket == Some(true) {
                    // Both sides begin a frame.
                    let mut frames = Frames::new(connection, &decode::WEBSOCKET, shown, pace, false);
                    frames.responses_begin_at(seq);
                    frames.upgraded(upgraded.take().unwrap_or_default(), at);
                    return ProtocolState::Decoded(Box::new(frames));
                }
                let mut turns = Turns::after(connection, pace);
                turns.responses_begin_at(seq);
                ProtocolState::Turns(Box::new(turns))
            }
            other => other,
        });
        (self.earlier, self.upgraded, self.may_be_websocket) = (earlier, upgraded, may_be_websocket);
    }
}

#[cfg(test)]
mod tests;
