//! Stalls of a TCP connection: facts that a capture point sees, without a judgement of their cause.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::conduct::Conduct;
use crate::op::Side;
use crate::setup::Setup;

/// The cause that delayed data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StallKind {
    /// As [`StallKind::NagleWithinMessage`], and what had left was exactly the message's header.
    NagleHeaderThenBody,
    /// In the middle of a message, behind a small segment: the rest left when the late ACK of that segment came
    /// (Nagle, RFC 896, against a delayed ACK, RFC 1122 4.2.3.2).
    NagleWithinMessage,
    /// Between messages: the next small one left when the late ACK of the one before came.
    NagleBetweenMessages,
    /// The sender had sent full segments and could not continue before a late ACK (its buffer or congestion window
    /// is smaller than the amount that the peer receives without sending an ACK).
    DelayedAck,
    /// In the middle of a message the rest left about 200 ms later, and no received segment had released it: a
    /// timer did (MSG_MORE or TCP_CORK never lifted).
    CorkWithinMessage,
    /// A whole response left about 200 ms after its request, and no received segment had released it.
    CorkedAnswer,
    /// The receiver's window was full.
    WindowFull,
    /// Data was sent again after a time-out.
    Timeout,
    /// Data was sent again before a time-out (duplicate ACKs, SACK or a tail loss probe).
    FastRetransmit,
    /// The same large segment was sent again and again, while smaller ones pass.
    BlackHole,
    /// The client was slow to send the data that the server had solicited (R2T, 100 Continue).
    SlowData,
    /// In the middle of a message nothing left until an ACK came, with room in the receiver's window. Part of operations
    /// only ([`StallSet`]): such short waits are too many to be reported one by one.
    AckWait,
    /// Data waited behind a lost segment that had been sent again: for its ACK, or for the congestion window, which a loss
    /// makes small. Part of operations only, like [`StallKind::AckWait`].
    BehindLoss,
    /// A small segment left when the prompt ACK of the small one before came: Nagle's algorithm lets one leave for each
    /// round trip (RFC 896).
    AckClocked,
    /// The rest of a message waited a round trip for the congestion window: all that the window had room for had left,
    /// and the receiver's window had room for more.
    CongestionWindow,
    /// As [`StallKind::CongestionWindow`], after an idle time that had made the congestion window small again (RFC 5681 4.1).
    SlowStartAfterIdle,
    /// Packets waited in a queue on the path: the round trip was longer than the shortest one. Part of operations only.
    QueuedOnPath,
    /// The server dropped the handshake's last ACK, because its accept queue was full, and so the client's first data, which
    /// the client sent again until the server took it.
    AcceptQueue,
    /// The application protocol's own window was used up (flow control of HTTP/2, RFC 9113 5.2): the rest of the data left when the
    /// receiver had given room.
    FlowControl,
    /// The client had announced that it waits for 100 Continue (RFC 9110 10.1.1), none came, and it sent the body when it had waited
    /// long enough.
    ContinueAwaited,
}

impl StallKind {
    /// All of them.
    pub const ALL: [StallKind; 20] = [
        StallKind::NagleHeaderThenBody,
        StallKind::NagleWithinMessage,
        StallKind::NagleBetweenMessages,
        StallKind::DelayedAck,
        StallKind::CorkWithinMessage,
        StallKind::CorkedAnswer,
        StallKind::WindowFull,
        StallKind::Timeout,
        StallKind::FastRetransmit,
        StallKind::BlackHole,
        StallKind::SlowData,
        StallKind::AckWait,
        StallKind::BehindLoss,
        StallKind::AckClocked,
        StallKind::CongestionWindow,
        StallKind::SlowStartAfterIdle,
        StallKind::QueuedOnPath,
        StallKind::AcceptQueue,
        StallKind::FlowControl,
        StallKind::ContinueAwaited,
    ];

    /// Whether data was lost.
    #[must_use]
    pub fn is_loss(self) -> bool {
        match self {
            StallKind::Timeout
            | StallKind::FastRetransmit
            | StallKind::BlackHole
            | StallKind::BehindLoss
            | StallKind::AcceptQueue => true,
            StallKind::NagleHeaderThenBody
            | StallKind::NagleWithinMessage
            | StallKind::NagleBetweenMessages
            | StallKind::DelayedAck
            | StallKind::CorkWithinMessage
            | StallKind::CorkedAnswer
            | StallKind::WindowFull
            | StallKind::SlowData
            | StallKind::AckWait
            | StallKind::AckClocked
            | StallKind::CongestionWindow
            | StallKind::SlowStartAfterIdle
            | StallKind::QueuedOnPath
            | StallKind::FlowControl
            | StallKind::ContinueAwaited => false,
        }
    }
}

/// The waits of an operation, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StallSet {
    kinds: u32,
    /// The kinds that delayed data of the client and of the server.
    senders: [u32; 2],
    waits_ns: [u64; StallKind::ALL.len()],
}

impl StallSet {
    /// Adds a wait of a kind for data of a sender, nanoseconds.
    pub fn insert(&mut self, kind: StallKind, sender: Side, wait_ns: u64) {
        self.kinds |= 1 << kind as u32;
        self.senders[sender as usize] |= 1 << kind as u32;
        let sum = &mut self.waits_ns[kind as usize];
        *sum = sum.saturating_add(wait_ns);
    }

    /// Whether it contains a kind.
    #[must_use]
    pub fn contains(&self, kind: StallKind) -> bool {
        self.kinds & (1 << kind as u32) != 0
    }

    /// The waits of a kind, nanoseconds.
    #[must_use]
    pub fn wait_ns(&self, kind: StallKind) -> u64 {
        self.waits_ns[kind as usize]
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds == 0
    }

    /// The waits of an operation that two points saw, the client's and the server's. Data passes its sender's point when it
    /// leaves, and the other point after the path: only the first can distinguish data that was held from data that was
    /// lost. So each wait is taken from the point of the data's sender, or is the longer one where both sides' data waited.
    #[must_use]
    pub fn joined(client: &Self, server: &Self) -> Self {
        if client.is_empty() && server.is_empty() {
            return Self::default();
        }
        let mut both = Self::default();
        for kind in StallKind::ALL {
            let bit = 1 << kind as u32;
            // A queue is seen behind it, by the time stamps, or in front of it, by the acknowledgements.
            let (of_client, of_server) = match kind {
                StallKind::QueuedOnPath => (client.kinds & bit != 0, server.kinds & bit != 0),
                _ => (client.senders[0] & bit != 0, server.senders[1] & bit != 0),
            };
            let place = kind as usize;
            both.waits_ns[place] = match (of_client, of_server) {
                (true, true) => client.waits_ns[place].max(server.waits_ns[place]),
                (true, false) => client.waits_ns[place],
                (false, true) => server.waits_ns[place],
                (false, false) => continue,
            };
            both.kinds |= bit;
            both.senders[0] |= u32::from(of_client) * bit;
            both.senders[1] |= u32::from(of_server) * bit;
        }
        both
    }

    /// The waits of an operation in two stretches of time: their sums.
    #[must_use]
    pub fn then(&self, later: &Self) -> Self {
        let mut both = *self;
        both.kinds |= later.kinds;
        for (own, others) in both.senders.iter_mut().zip(later.senders) {
            *own |= others;
        }
        for (own, others) in both.waits_ns.iter_mut().zip(later.waits_ns) {
            *own = own.saturating_add(others);
        }
        both
    }

    /// Shortens the waits so that their sum is at most `most_ns`: waits of several kinds may overlap, and an operation
    /// cannot wait longer than it takes. Losses are kept first: while a lost segment is outstanding, nothing else delays
    /// what is behind it. Then the kinds that come first in [`StallKind::ALL`].
    #[must_use]
    pub fn within(&self, most_ns: u64) -> Self {
        if self.sum_ns() <= most_ns {
            return *self;
        }
        let (mut all, mut left) = (*self, most_ns);
        let losses = StallKind::ALL.into_iter().filter(|kind| kind.is_loss());
        for kind in losses.chain(StallKind::ALL.into_iter().filter(|kind| !kind.is_loss())) {
            let wait = &mut all.waits_ns[kind as usize];
            *wait = (*wait).min(left);
            left -= *wait;
        }
        all
    }

    /// The set without the waits of a kind.
    #[must_use]
    pub fn without(mut self, kind: StallKind) -> Self {
        self.kinds &= !(1 << kind as u32);
        self.senders.iter_mut().for_each(|kinds| *kinds &= !(1 << kind as u32));
        self.waits_ns[kind as usize] = 0;
        self
    }

    /// Shortens the waits for lost data by this sum.
    #[must_use]
    pub fn less_loss(&self, less_ns: u64) -> Self {
        let (mut all, mut less) = (*self, less_ns);
        for kind in StallKind::ALL.into_iter().filter(|kind| kind.is_loss()) {
            let wait = &mut all.waits_ns[kind as usize];
            let cut = less.min(*wait);
            (*wait, less) = (*wait - cut, less - cut);
        }
        all
    }

    /// The sum of all waits, nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u64 {
        self.waits_ns.iter().fold(0, |sum, wait| sum.saturating_add(*wait))
    }
}

/// One stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The connection, as its capture point numbers them.
    pub connection: u32,
    /// The cause that delayed the data.
    pub kind: StallKind,
    /// The sender of the data.
    pub sender: Side,
    /// Its duration, nanoseconds.
    pub wait_ns: u64,
    /// When it ended, nanoseconds since the epoch.
    pub time_ns: u64,
    /// Its frames, in order: the last before the wait, the one that ended it, and the one that then left.
    /// 0: none.
    pub frames: [u64; 3],
    /// Payload of the segment that waited, bytes.
    pub segment_bytes: u32,
    /// Its first sequence number.
    pub seq: u32,
}

/// The facts about a connection that are known when its first data passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Its number, as [`crate::Exchange::connection`].
    pub connection: u32,
    /// The client's end.
    pub client: SocketAddr,
    /// The server's end.
    pub server: SocketAddr,
    /// Sequence number of the client's SYN, when it was seen.
    pub client_syn: Option<u32>,
    /// From SYN to SYN+ACK, and from there to the ACK, nanoseconds.
    pub handshake_ns: Option<(u64, u64)>,
    /// Time to live of the first packet with data, and its sender.
    pub ttl: (Side, u8),
}

/// The facts about a connection that a capture point has at its end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionFacts {
    /// The connection, as its capture point numbers them.
    pub connection: u32,
    /// The client's end.
    pub client: SocketAddr,
    /// The server's end.
    pub server: SocketAddr,
    /// Its protocol.
    pub protocol: &'static str,
    /// The name of its protocol, if it is known and followed as turns.
    pub undecoded: Option<&'static str>,
    /// Its encryption, if it has one.
    pub tls: Option<crate::Tls>,
    /// Its packets and their bytes on the wire.
    pub packets: u64,
    /// See `packets`.
    pub bytes: u64,
    /// When its first and its last packet passed, nanoseconds since the epoch.
    pub began_ns: u64,
    /// See `began_ns`.
    pub ended_ns: u64,
    /// From SYN to SYN+ACK, and from there to the ACK, nanoseconds: the round trips from the capture point to the
    /// server and to the client.
    pub handshake_ns: Option<(u64, u64)>,
    /// Time to live of the packets of the client and of the server.
    pub ttl: (u8, u8),
    /// Exchanges that ended.
    pub exchanges: u64,
    /// Exchanges in flight, integrated over time, nanoseconds.
    pub in_flight_ns: u128,
    /// How the client behaved as a sender.
    pub client_conduct: Conduct,
    /// How the server did.
    pub server_conduct: Conduct,
    /// Packets that the capture holds twice.
    pub duplicates: u64,
    /// Whether it was closed or reset before the end of the capture.
    pub has_ended: bool,
    /// Whether both directions were seen.
    pub both_directions: bool,
    /// How it was set up, and whether it failed.
    pub setup: Setup,
}

/// The shortest of the times that are known (not 0), nanoseconds; 0: none is.
#[must_use]
pub fn shortest(times_ns: [u64; 3]) -> u64 {
    // One less each, so that what is unknown is more than all others.
    let [a, b, c] = times_ns.map(|ns| ns.wrapping_sub(1));
    a.min(b).min(c).wrapping_add(1)
}

impl ConnectionFacts {
    /// How one side behaved.
    #[must_use]
    pub fn conduct(&self, side: Side) -> &Conduct {
        match side {
            Side::Client => &self.client_conduct,
            Side::Server => &self.server_conduct,
        }
    }

    /// The shortest observed round trip from the capture point to a side's host and back, nanoseconds; 0: unknown. It is
    /// the least of the handshake's part, of the acknowledgements of the peer's data and of the echoes of its time stamps,
    /// each of which is at least the network's time.
    #[must_use]
    pub fn path_ns(&self, side: Side) -> u64 {
        let there = match (side, self.handshake_ns) {
            (Side::Server, Some((there, _))) => there,
            (Side::Client, Some((_, here))) => here,
            (_, None) => 0,
        };
        let conduct = self.conduct(side.peer());
        shortest([there, conduct.ack_min_ns, conduct.echo_min_ns])
    }

    /// The shortest observed round trip between both hosts, nanoseconds; 0 where one of its parts is unknown.
    #[must_use]
    pub fn round_trip_ns(&self) -> u64 {
        match (self.path_ns(Side::Client), self.path_ns(Side::Server)) {
            (0, _) | (_, 0) => 0,
            (client, server) => client.saturating_add(server),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_holds_what_was_put_in() {
        let mut set = StallSet::default();
        assert!(set.is_empty());
        set.insert(StallKind::SlowData, Side::Client, 7);
        set.insert(StallKind::SlowData, Side::Client, 5);
        for kind in StallKind::ALL {
            let is_in = kind == StallKind::SlowData;
            assert_eq!((set.contains(kind), set.wait_ns(kind)), (is_in, if is_in { 12 } else { 0 }));
        }
    }

    #[test]
    fn waits_are_those_that_the_point_of_the_sender_saw() {
        let (mut client, mut server) = (StallSet::default(), StallSet::default());
        // Lost on the path: at the client's point this looks like a cork and a delayed ACK.
        client.insert(StallKind::CorkedAnswer, Side::Server, 200);
        client.insert(StallKind::DelayedAck, Side::Server, 40);
        server.insert(StallKind::Timeout, Side::Server, 190);
        // What the client's data waited for, its own point saw.
        client.insert(StallKind::NagleWithinMessage, Side::Client, 30);
        server.insert(StallKind::FastRetransmit, Side::Client, 7);
        let both = StallSet::joined(&client, &server);
        let expected = [(StallKind::Timeout, 190), (StallKind::NagleWithinMessage, 30)];
        for kind in StallKind::ALL {
            let wait = expected.iter().find(|(of, _)| *of == kind).map_or(0, |(_, wait)| *wait);
            assert_eq!((both.wait_ns(kind), both.contains(kind)), (wait, wait > 0), "{kind:?}");
        }
        // Both sides' data waited: the longer wait, not the sum.
        server.insert(StallKind::DelayedAck, Side::Server, 25);
        client.insert(StallKind::DelayedAck, Side::Client, 0);
        assert_eq!(StallSet::joined(&client, &server).wait_ns(StallKind::DelayedAck), 40);
        assert!(StallSet::joined(&StallSet::default(), &StallSet::default()).is_empty());
    }

    #[test]
    fn overlapping_waits_are_losses_first() {
        let mut all = StallSet::default();
        all.insert(StallKind::DelayedAck, Side::Server, 40);
        all.insert(StallKind::Timeout, Side::Server, 200);
        let cut = all.within(210);
        assert_eq!((cut.wait_ns(StallKind::DelayedAck), cut.wait_ns(StallKind::Timeout)), (10, 200));
        assert_eq!((cut.sum_ns(), all.within(1000)), (210, all));
        assert_eq!(all.then(&cut).sum_ns(), 450);
    }
}
