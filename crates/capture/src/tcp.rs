//! Causes of delayed data, from a connection's segments: facts for verdicts, without judging.
//!
//! For each side as a sender: the last data sent, the last acknowledgement and its time, and the
//! peer's window. When new data leaves after a pause, the packets in between show what released it.
//! Source of the rules: RFC 896, RFC 1122 4.2.3, RFC 6298, and Linux's tcp_output.c.

mod acknowledge;
mod batches;
mod clock;
mod copies;
mod crossing;
mod edge;
mod flight;
mod identification;
mod loss;
mod messages;
mod new_data;
mod old_data;
mod options;
mod path;
mod pause;
mod retry;
mod transit;

use record::{ClockStep, Conduct, Side, Stall, StallKind, Ticks};

use crate::follow::MessageState;
use crate::packet::{At, Segment};
use crate::tcp::batches::Batches;
use crate::tcp::clock::Clocks;
use crate::tcp::copies::{Recent, Repeat};
use crate::tcp::crossing::{Crossing, Opposite};
use crate::tcp::flight::Flight;
use crate::tcp::identification::{Identification, Order};
use crate::tcp::loss::{Loss, Repeated};
use crate::tcp::messages::Sending;
use crate::tcp::options::{Offer, Stamps};
use crate::tcp::path::Echo;
pub(crate) use crate::tcp::path::LATE_NS;
use crate::tcp::pause::LINUX_TTL;
use crate::tcp::retry::Retry;
use crate::tcp::transit::Transit;

/// Traffic of the other side that close counts as simultaneous, nanoseconds, where the round trip is not shorter.
const SIMULTANEOUS_NS: u64 = 1_000_000;
/// The last segment with data of a side.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    at: At,
    bytes: u32,
    message: Option<MessageState>,
}

/// A small segment, which Nagle's algorithm does not let a second one follow before it is acknowledged (RFC 896, and the form
/// that Linux has, which lets full ones pass).
#[derive(Clone, Copy, Debug)]
struct Small {
    at: At,
    end: u32,
    /// When its peer had last sent data, nanoseconds.
    peer_ns: u64,
    acked: Option<At>,
}

/// Sequence numbers that did not pass before later ones.
#[derive(Clone, Copy, Debug)]
struct Gap {
    from: u32,
    to: u32,
    /// When later ones passed, nanoseconds, and the time stamps of their segment.
    since_ns: u64,
    stamps: Option<Stamps>,
}

/// One side as a sender.
#[derive(Debug, Default)]
struct Half {
    offer: Option<Offer>,
    /// Sequence number behind the highest byte sent.
    next: Option<u32>,
    /// Sequence number behind the last byte that the peer acknowledged.
    acked: Option<u32>,
    /// When the peer last acknowledged more.
    ack: At,
    /// The window that the peer offers, bytes; where its scale is unknown, what it is at least.
    window: u64,
    /// The window is known, and not only what it is at least.
    window_known: bool,
    /// The window as this side knew it when its data left.
    edge: edge::Edge,
    last: Last,
    /// The last small segment.
    small: Option<Small>,
    /// What it had to send behind `last`.
    owes: Owes,
    /// A limit of unacknowledged data has stopped it in this turn.
    was_limited: bool,
    /// Acknowledgements of more since `last`, and what the last one acknowledged, bytes.
    acks: u32,
    ack_bytes: u64,
    batches: Batches,
    /// Bytes unacknowledged when `last` had left.
    unacked: u64,
    /// The least room in the peer's window since then, bytes; `None` before any data.
    room_least: Option<u64>,
    /// Window probes since then, and the last of them.
    probes: u32,
    probed: At,
    /// The peer's first new data since then: this side may have had a reason to send.
    heard: Option<At>,
    /// When it last sent data, old or new.
    last_data_ns: u64,
    /// A segment whose acknowledgement is awaited: its end, when it left, and the bytes in flight then.
    timed: Option<(u32, u64, u32)>,
    gap: Option<Gap>,
    /// Data that the peer acknowledged before they were captured.
    unseen: Option<Gap>,
    /// When the capture was last known to lack data of this side that had arrived, nanoseconds.
    hole_ns: u64,
    /// When the peer last reported a gap (SACK), nanoseconds.
    reported_ns: u64,
    echo: Echo,
    recent: Recent,
    flight: Flight,
    /// The last segment's time in a queue on the path, nanoseconds.
    queued_ns: u64,
    transit: Transit,
    /// How long the first data of its turn waited behind other connections' data, nanoseconds, if that is more than the path.
    behind_ns: u64,
    /// How long the packet at hand waited in front of the capture point, nanoseconds.
    waited_ns: Option<u64>,
    /// When timers seem to have released its data.
    timers: Ticks,
    /// Largest segments on their way, and the largest that arrived.
    probing: Option<(u32, u32)>,
    largest_acked: u32,
    /// The peer has acknowledged or reported some of its data.
    some_arrived: bool,
    retry: Option<Retry>,
    loss: Loss,
    repeated: Option<Repeated>,
    packets: Identification,
    crossing: Crossing,
    /// When a message began.
    sending_since: Option<u64>,
    message: Sending,
    /// Bytes of its last turn.
    turn_bytes: u64,
    conduct: Conduct,
}

/// Both sides.
#[derive(Debug, Default)]
pub(crate) struct Tcp {
    halves: [Half; 2],
    clocks: Clocks,
    /// A step of the capturing clock that the last segment has proved.
    pub(crate) step: Option<ClockStep>,
    syn_ns: Option<u64>,
    syn_ack_ns: Option<u64>,
    pub(crate) handshake_ns: Option<(u64, u64)>,
    pub(crate) ttl: [u8; 2],
    pub(crate) duplicates: u64,
}

/// The application's state when a segment came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before {
    pub(crate) connection: u32,
    /// The state of the sender's message.
    pub(crate) message: MessageState,
    /// Requests in flight.
    pub(crate) in_flight: u32,
    /// When the other side last sent data on another connection, nanoseconds.
    pub(crate) others_ns: u64,
}

/// The application's state behind a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct After {
    /// The state of the sender's message.
    pub(crate) message: MessageState,
    /// Messages that the segment completed.
    pub(crate) completed: u64,
    pub(crate) owes: Owes,
}

/// What a sender has to send behind a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Owes {
    /// Nothing that is known.
    #[default]
    Nothing,
    /// The server has requests to answer, or the client a place in its ring to fill.
    Answers,
    /// The rest of a message whose length is known.
    Rest,
}

/// A segment with data that passes.
#[derive(Clone, Copy, Debug)]
struct Passing {
    side: Side,
    at: At,
    /// Sequence number behind its last byte.
    end: u32,
    /// Its place among its sender's packets.
    order: Order,
    stamps: Option<Stamps>,
    before: Before,
}

/// Signed distance from `b` to `a` in the circle of sequence numbers.
fn distance(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

impl Tcp {
    /// Processes a segment of `side` before the application sees it. False if it is a copy of an earlier
    /// packet.
    #[inline]
    pub(crate) fn segment(
        &mut self,
        segment: &Segment<'_>,
        side: Side,
        at: At,
        before: Before,
        mut emit: impl FnMut(Stall),
    ) -> bool {
        self.ttl[side as usize] = segment.ttl;
        let mut stamps = None;
        if segment.flags & Segment::SYN != 0 {
            self.syn(segment, side, at);
        } else {
            stamps = Stamps::read(segment.options);
        }
        if let Some(stamps) = stamps {
            self.step = self.clocks.passed(side, at, stamps);
            if self.step.is_some() {
                self.halves.iter_mut().for_each(|half| half.transit = Transit::default());
            }
            self.stamped(side, at, stamps);
        }
        if segment.flags & Segment::ACK != 0 {
            self.acknowledge(segment, side, at, before, &mut emit);
        }
        let bytes = segment.payload_bytes as u32;
        let opposite = self.opposite(segment, side, at, before);
        let half = &mut self.halves[side as usize];
        if bytes == 0 {
            let order = half.packets.passed(segment.ip_id, 1);
            half.crossing.passed(opposite, order, &half.packets, &mut half.conduct);
            return true;
        }
        let next = half.next.unwrap_or(segment.seq);
        let is_old = distance(segment.seq, next) < 0;
        if is_old && self.is_copy(segment, side, at, stamps) {
            self.duplicates += 1;
            return false;
        }
        let half = &mut self.halves[side as usize];
        half.recent.passed(segment, stamps, at.ns);
        let end = segment.seq.wrapping_add(bytes);
        let full = half.full_segment();
        let packets = if bytes <= full { 1 } else { bytes.div_ceil(full.max(1)).min(64) as u16 };
        let order = half.packets.passed(segment.ip_id, packets);
        half.crossing.passed(opposite, order, &half.packets, &mut half.conduct);
        if bytes == 1 && half.is_probed(at) {
            return true;
        }
        let passing = Passing { side, at, end, order, stamps, before };
        if is_old {
            self.old_data(segment, passing, next, &mut emit);
        } else {
            self.new_data(segment, passing, &mut emit);
        }
        true
    }

    /// What the other direction did when a segment left. Only Linux counts the packets of each connection; the numbers of another
    /// system skip those of its other connections.
    #[inline]
    fn opposite(&self, segment: &Segment<'_>, side: Side, at: At, before: Before) -> Opposite {
        if !LINUX_TTL.contains(&segment.ttl) {
            return Opposite::default();
        }
        let peer = &self.halves[side.peer() as usize];
        let has_more = peer.next.is_some_and(|next| distance(next, segment.ack) > 0);
        Opposite::of(has_more, at.ns.saturating_sub(before.others_ns), self.path(side))
    }

    /// Whether a segment whose bytes have passed is a copy that its sender did not send.
    fn is_copy(&self, segment: &Segment<'_>, side: Side, at: At, stamps: Option<Stamps>) -> bool {
        let half = &self.halves[side as usize];
        let round_trip_ns = self.path(side).round_trip_ns();
        half.recent.has_copy(
            segment,
            stamps,
            Repeat { ns: at.ns, round_trip_ns, reported_ns: half.reported_ns },
        )
    }

    /// Ends the connection.
    pub(crate) fn finish(&mut self, before: Before, mut emit: impl FnMut(Stall)) {
        for side in [Side::Client, Side::Server] {
            let retry = self.halves[side as usize].retry.take();
            if let Some(retry) = retry {
                emit(self.resolve(retry, side, false, before));
            }
            if let Some(closed) = self.halves[side as usize].still_closed(side, before.connection) {
                emit(closed);
            }
        }
    }

    /// How long a side's data waited in a queue on the path, nanoseconds, if that is more than the path itself.
    #[inline]
    pub(crate) fn queued_ns(&self, side: Side) -> u64 {
        let half = &self.halves[side as usize];
        half.queued_ns.max(half.behind_ns)
    }

    /// The conduct of a side.
    pub(crate) fn conduct(&self, side: Side) -> Conduct {
        let half = &self.halves[side as usize];
        Conduct { mss_bytes: half.full_segment(), ..half.conduct }
    }

    /// The payload of a side's full segment, bytes.
    pub(crate) fn full_segment(&self, side: Side) -> u32 {
        self.halves[side as usize].full_segment()
    }

    /// The round trip of the handshake, nanoseconds; 0: unknown.
    pub(crate) fn round_trip_ns(&self) -> u64 {
        self.handshake_ns.map_or(0, |(there, here)| there.saturating_add(here))
    }

    /// The round trip of the handshake is that of the SYN that was answered: one that is sent again makes it no longer.
    fn syn(&mut self, segment: &Segment<'_>, side: Side, at: At) {
        let half = &mut self.halves[side as usize];
        half.offer = Some(Offer::read(segment.options));
        // Data may come with it (RFC 7413).
        if segment.payload_bytes == 0 {
            half.next.get_or_insert(segment.seq.wrapping_add(1));
        }
        match side {
            // Which of several SYNs was answered is unknown behind the answer.
            Side::Client if self.syn_ack_ns.is_none() => self.syn_ns = Some(at.ns),
            Side::Server if self.handshake_ns.is_none() => {
                // The answer was lost on its way, or what followed it was: neither is part of a round trip.
                let again_ns = self.syn_ack_ns.map_or(0, |first| at.ns.saturating_sub(first));
                self.syn_ns = self.syn_ns.map(|syn| syn.saturating_add(again_ns));
                self.syn_ack_ns = Some(at.ns);
            }
            Side::Client | Side::Server => return,
        }
        let both = self.halves[0].offer.zip(self.halves[1].offer);
        for (half, peer) in [(0, 1), (1, 0)] {
            let offered = self.halves[peer].offer.and_then(|o| o.full_segment(both));
            if let Some(bytes) = offered {
                self.halves[half].conduct.mss_bytes = bytes;
            }
        }
    }
}

impl Half {
    /// Whether the receiver's window is closed: a byte of new or old data then only asks for a window update (RFC 9293 3.8.6.1).
    fn is_probed(&mut self, at: At) -> bool {
        let is_closed = self.lacks_room(1) && self.window == 0;
        if is_closed {
            self.probes += 1;
            self.probed = at;
        }
        is_closed
    }

    /// Whether the peer's window had no room for so many bytes; where its scale is unknown it may have had.
    fn lacks_room(&self, bytes: u64) -> bool {
        self.window_known && self.room_least.is_some_and(|room| room < bytes)
    }

    /// The wait for a window that was still closed when the connection or the capture ended; the probes show that there was
    /// data to send.
    fn still_closed(&mut self, sender: Side, connection: u32) -> Option<Stall> {
        let wait_ns = self.probed.ns.saturating_sub(self.last.at.ns);
        if self.probes == 0 || self.window > 0 {
            return None;
        }
        let conduct = &mut self.conduct;
        conduct.zero_windows += 1;
        conduct.window_waits += 1;
        conduct.ack_waits += 1;
        conduct.window_wait_ns = conduct.window_wait_ns.saturating_add(wait_ns);
        conduct.ack_wait_ns = conduct.ack_wait_ns.saturating_add(wait_ns);
        let frames = [self.last.at.frame, self.ack.frame, self.probed.frame];
        if wait_ns > conduct.ack_wait_max_ns {
            (conduct.ack_wait_max_ns, conduct.ack_wait_frames) = (wait_ns, frames);
        }
        Some(Stall {
            connection,
            kind: StallKind::WindowFull,
            sender,
            wait_ns,
            time_ns: self.probed.ns,
            frames,
            segment_bytes: 1,
            seq: self.next.unwrap_or(0),
        })
    }

    /// The payload of a full segment, bytes: the handshake's limit, else the largest seen.
    fn full_segment(&self) -> u32 {
        if self.conduct.mss_bytes > 0 {
            self.conduct.mss_bytes
        } else {
            self.largest_acked.max(self.last.bytes)
        }
    }
}

#[cfg(test)]
mod tests;
