//! Causes of delayed data, from a connection's segments: facts for verdicts, without judging.
//!
//! For each side as a sender: the last data sent, the last acknowledgement and its time, and the
//! peer's window. When new data leaves after a pause, the packets in between show what released it.
//! Source of the rules: RFC 896, RFC 1122 4.2.3, RFC 6298, and Linux's tcp_output.c.

mod identification;
mod loss;
mod options;
mod pause;
mod retry;

use record::{Conduct, Side, Stall, StallKind};

use crate::follow::MessageState;
use crate::packet::{At, Segment};
use crate::tcp::identification::{Identification, Order};
use crate::tcp::loss::{Cause, Loss};
use crate::tcp::options::Offer;
use crate::tcp::retry::{Retry, Verdict};

/// An acknowledgement later than this was delayed on purpose, nanoseconds: the shortest delay in use is 40 ms
/// (Linux), half of it allows for captures at the far end.
pub(crate) const LATE_NS: u64 = 20_000_000;
/// How long after its release data may leave, beyond the round trip, nanoseconds.
const PROMPT_NS: u64 = 4_000_000;
/// Traffic of the other side that close counts as simultaneous, nanoseconds.
const SIMULTANEOUS_NS: u64 = 1_000_000;
/// A gap that is filled so soon was reordered, where the packets are not counted, nanoseconds.
const REORDERED_NS: u64 = 3_000_000;
/// Copies of a packet in one capture are this close, nanoseconds.
const COPY_NS: u64 = 5_000_000;
/// A message in more segments than this multiple of the necessary number is a train of small ones.
const TRAIN_FACTOR: u64 = 4;
/// Shortest train, segments.
const TRAIN_MIN: u64 = 8;

/// The last segment with data of a side.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    at: At,
    seq: u32,
    bytes: u32,
    ip_id: u16,
    ack: u32,
    message: Option<MessageState>,
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
    /// The window that the peer offers, bytes.
    window: u64,
    last: Last,
    /// Bytes unacknowledged, and the peer's window, when `last` had left.
    unacked: u64,
    window_then: Option<u64>,
    /// When it last sent data, old or new.
    last_data_ns: u64,
    /// A segment whose acknowledgement is awaited: its end, and when it left.
    timed: Option<(u32, u64)>,
    /// Skipped sequence numbers, and the time.
    gap: Option<(u32, u32, u64)>,
    /// Largest segments on their way, and the largest that arrived.
    probing: Option<(u32, u32)>,
    largest_acked: u32,
    retry: Option<Retry>,
    loss: Loss,
    packets: Identification,
    /// When a message began.
    sending_since: Option<u64>,
    /// Segments and bytes of the messages since all were complete, and the first frame.
    message: (u64, u64, u64),
    conduct: Conduct,
}

/// Both sides.
#[derive(Debug, Default)]
pub(crate) struct Tcp {
    halves: [Half; 2],
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
        if segment.flags & Segment::SYN != 0 {
            self.syn(segment, side, at);
        }
        if segment.flags & Segment::ACK != 0 {
            self.acknowledge(segment, side, at, before, &mut emit);
        }
        let bytes = segment.payload_bytes as u32;
        let half = &mut self.halves[side as usize];
        let last = half.last;
        if bytes == 0 {
            half.packets.passed(segment.ip_id, 1);
            return true;
        }
        if segment.ip_id != 0
            && (last.seq, last.bytes, last.ip_id, last.ack)
                == (segment.seq, bytes, segment.ip_id, segment.ack)
            && at.ns.saturating_sub(last.at.ns) < COPY_NS
        {
            self.duplicates += 1;
            return false;
        }
        let end = segment.seq.wrapping_add(bytes);
        let next = half.next.unwrap_or(segment.seq);
        let full = half.full_segment();
        let packets = if bytes <= full { 1 } else { bytes.div_ceil(full.max(1)).min(64) as u16 };
        let order = half.packets.passed(segment.ip_id, packets);
        let passing = Passing { side, at, end, order, before };
        if distance(segment.seq, next) < 0 {
            self.old_data(segment, passing, next, &mut emit);
        } else {
            self.new_data(segment, passing, &mut emit);
        }
        true
    }

    /// Updates the state after the application has seen the segment: whether the sender is in a message now, and how
    /// many it has completed.
    #[inline]
    pub(crate) fn after(&mut self, side: Side, at: At, message: MessageState, completed: u64) {
        let half = &mut self.halves[side as usize];
        half.last.message = Some(message);
        if completed > 0 {
            let (segments, bytes, first) = std::mem::take(&mut half.message);
            // No segment is larger than the peer's window.
            let window = half.conduct.window_max_bytes;
            let full = if window > 0 { half.full_segment().min(window) } else { half.full_segment() };
            let needed = bytes.div_ceil(u64::from(full.max(1)));
            half.conduct.messages += completed;
            if segments >= TRAIN_MIN && segments >= TRAIN_FACTOR * needed.max(completed) {
                if half.conduct.trains == 0 {
                    half.conduct.train_frames = [first, at.frame];
                }
                half.conduct.trains += 1;
                half.conduct.train_segments += segments;
            }
        }
        match message {
            MessageState::Nothing | MessageState::Unknown => {
                if let Some(since) = half.sending_since.take() {
                    half.conduct.sending_ns =
                        half.conduct.sending_ns.saturating_add(at.ns.saturating_sub(since));
                }
            }
            MessageState::Header | MessageState::Part => {
                half.sending_since.get_or_insert(at.ns);
            }
        }
    }

    /// Ends the connection.
    pub(crate) fn finish(&mut self, before: Before, mut emit: impl FnMut(Stall)) {
        for side in [Side::Client, Side::Server] {
            let retry = self.halves[side as usize].retry.take();
            if let Some(retry) = retry {
                emit(self.resolve(retry, side, false, before));
            }
        }
    }

    /// The conduct of a side.
    pub(crate) fn conduct(&self, side: Side) -> Conduct {
        let half = &self.halves[side as usize];
        Conduct { mss_bytes: half.full_segment(), ..half.conduct }
    }

    fn syn(&mut self, segment: &Segment<'_>, side: Side, at: At) {
        self.halves[side as usize].offer = Some(Offer::read(segment.options));
        match side {
            Side::Client => self.syn_ns = Some(at.ns),
            Side::Server => self.syn_ack_ns = Some(at.ns),
        }
        self.handshake_ns = None;
        let both = self.halves[0].offer.zip(self.halves[1].offer);
        for (half, peer) in [(0, 1), (1, 0)] {
            let offered = self.halves[peer].offer.and_then(|o| o.full_segment(both));
            if let Some(bytes) = offered {
                self.halves[half].conduct.mss_bytes = bytes;
            }
        }
    }

    /// Processes the header's acknowledgement number and window, which concern the other side's data.
    #[inline]
    fn acknowledge(
        &mut self,
        segment: &Segment<'_>,
        side: Side,
        at: At,
        before: Before,
        emit: &mut impl FnMut(Stall),
    ) {
        if side == Side::Client
            && self.handshake_ns.is_none()
            && let (Some(syn), Some(syn_ack)) = (self.syn_ns.take(), self.syn_ack_ns.take())
        {
            self.handshake_ns = Some((syn_ack.saturating_sub(syn), at.ns.saturating_sub(syn_ack)));
        }
        let both_scale = self.halves.iter().all(|h| h.offer.is_none_or(|o| o.scale.is_some()));
        let scale = match self.halves[side as usize].offer.and_then(|o| o.scale) {
            Some(scale) if both_scale && segment.flags & Segment::SYN == 0 => u32::from(scale),
            _ => 0,
        };
        // Without the SYN the scale is unknown, and so is the window.
        let known = self.halves[side as usize].offer.is_some();
        let half = &mut self.halves[side.peer() as usize];
        if segment.payload_bytes == 0 {
            half.loss.pure_ack(at.ns);
        }
        let window = u64::from(segment.window) << scale;
        if known {
            if window > half.window && half.unacked + u64::from(half.last.bytes) > half.window {
                // The window opens: that releases data too.
                half.ack = at;
            }
            half.window = window;
            half.conduct.window_max_bytes =
                half.conduct.window_max_bytes.max(u32::try_from(window).unwrap_or(u32::MAX));
        }
        let advanced = half.acked.is_none_or(|acked| distance(segment.ack, acked) > 0);
        if !advanced {
            return;
        }
        half.acked = Some(segment.ack);
        half.ack = at;
        half.loss.acknowledged(at.ns, |until| distance(segment.ack, until) >= 0);
        if let Some((end, left_ns)) = half.timed
            && distance(segment.ack, end) >= 0
        {
            half.timed = None;
            let took = at.ns.saturating_sub(left_ns).max(1);
            half.conduct.ack_sum_ns = half.conduct.ack_sum_ns.saturating_add(took);
            half.conduct.acks_timed += 1;
            let shortest = &mut half.conduct.ack_min_ns;
            *shortest = if *shortest == 0 { took } else { (*shortest).min(took) };
        }
        if let Some((end, bytes)) = half.probing
            && distance(segment.ack, end) >= 0
        {
            half.probing = None;
            half.largest_acked = half.largest_acked.max(bytes);
        }
        if let Some(retry) = half.retry.take_if(|r| distance(segment.ack, r.seq) > 0) {
            emit(self.resolve(retry, side.peer(), true, before));
        }
    }

    /// The outcome of retransmissions.
    fn resolve(&self, retry: Retry, sender: Side, arrived: bool, before: Before) -> Stall {
        let half = &self.halves[sender as usize];
        let kind = match retry.verdict(arrived, half.largest_acked) {
            Verdict::BlackHole => StallKind::BlackHole,
            Verdict::Timeout => StallKind::Timeout,
        };
        Stall {
            connection: before.connection,
            kind,
            sender,
            wait_ns: retry.last.ns.saturating_sub(retry.since_ns),
            time_ns: retry.last.ns,
            frames: [retry.original_frame, retry.first_frame, retry.last.frame],
            segment_bytes: retry.bytes,
            seq: retry.seq,
        }
    }

    /// Processes data that was sent before.
    fn old_data(&mut self, segment: &Segment<'_>, passing: Passing, next: u32, emit: &mut impl FnMut(Stall)) {
        let Passing { side, at, end, order, before } = passing;
        let peer = &self.halves[side.peer() as usize];
        let peer_data_ns = peer.last_data_ns;
        let reaction_ns = peer.conduct.ack_min_ns.saturating_add(PROMPT_NS);
        let half = &mut self.halves[side as usize];
        let bytes = end.wrapping_sub(segment.seq);
        let acked = half.acked.unwrap_or(segment.seq);
        // Keep-alives and window probes repeat one byte at most.
        if bytes <= 1 && distance(acked, segment.seq) >= 0 {
            return;
        }
        // It fills a recent gap: it was reordered, not retransmitted, unless its sender counts it behind what overtook it.
        let mut gap_ns = None;
        if let Some((from, to, since)) = half.gap
            && distance(segment.seq, from) >= 0
            && distance(to, end) >= 0
        {
            if segment.seq == from {
                half.gap = (end != to).then_some((end, to, since));
            }
            let is_reordered = match order {
                Order::Overtaken => true,
                Order::Skipped => false,
                Order::Next if half.packets.counts() => false,
                Order::Next | Order::Unknown => at.ns.saturating_sub(since) < REORDERED_NS,
            };
            if is_reordered {
                return;
            }
            gap_ns = Some(since);
        }
        half.last_data_ns = at.ns;
        half.timed = None;
        half.conduct.retransmitted += 1;
        half.conduct.retransmitted_against_traffic +=
            u64::from(at.ns.saturating_sub(peer_data_ns) < SIMULTANEOUS_NS);
        let until = if distance(end, next) > 0 { end } else { next };
        half.next = Some(until);
        let (cause, since_ns) = half.loss.again(at.ns, until, gap_ns, reaction_ns);
        let is_timer = cause == Cause::Timer;
        half.conduct.timeouts += u64::from(is_timer);
        // It had arrived. Its acknowledgement was lost, for which only a sender with more to send waited.
        let has_more = matches!(before.message, MessageState::Header | MessageState::Part);
        if distance(acked, end) >= 0 && !has_more {
            return;
        }
        let is_again = half.retry.as_ref().is_some_and(|r| r.seq == segment.seq);
        if is_again || is_timer {
            match &mut half.retry {
                Some(retry) if is_again => retry.again(at, bytes),
                retry => {
                    *retry = Some(Retry::new(segment.seq, bytes, half.last.at.frame, at, since_ns));
                }
            }
            return;
        }
        emit(Stall {
            connection: before.connection,
            kind: StallKind::FastRetransmit,
            sender: side,
            wait_ns: at.ns - since_ns,
            time_ns: at.ns,
            frames: [half.last.at.frame, 0, at.frame],
            segment_bytes: bytes,
            seq: segment.seq,
        });
    }

    /// Processes new data.
    #[inline]
    fn new_data(&mut self, segment: &Segment<'_>, passing: Passing, emit: &mut impl FnMut(Stall)) {
        let Passing { side, at, end, before, .. } = passing;
        let peer_data_ns = self.halves[side.peer() as usize].last_data_ns;
        let bytes = end.wrapping_sub(segment.seq);
        let cause = self.cause(passing, bytes);
        let half = &mut self.halves[side as usize];
        let last = half.last;
        if at.ns.saturating_sub(last.at.ns) >= LATE_NS && peer_data_ns <= last.at.ns && last.at.ns > 0 {
            half.conduct.pauses +=
                u64::from(matches!(before.message, MessageState::Nothing | MessageState::Unknown));
        }
        if let Some((kind, wait_ns, from, by)) = cause {
            emit(Stall {
                connection: before.connection,
                kind,
                sender: side,
                wait_ns,
                time_ns: at.ns,
                frames: [from, by, at.frame],
                segment_bytes: bytes,
                seq: segment.seq,
            });
        }
        if half.acked.is_none_or(|acked| distance(half.next.unwrap_or(segment.seq), acked) <= 0) {
            half.loss.begins_to_wait(at.ns);
        }
        if let Some(next) = half.next
            && distance(segment.seq, next) > 0
        {
            half.gap = Some((next, segment.seq, at.ns));
        }
        half.next = Some(end);
        half.last =
            Last { at, seq: segment.seq, bytes, ip_id: segment.ip_id, ack: segment.ack, message: None };
        half.last_data_ns = at.ns;
        if half.timed.is_none() {
            half.timed = Some((end, at.ns));
        }
        if bytes > half.largest_acked && half.probing.is_none_or(|(_, largest)| bytes > largest) {
            half.probing = Some((end, bytes));
        }
        half.message.0 += 1;
        half.message.1 += u64::from(bytes);
        if half.message.0 == 1 {
            half.message.2 = at.frame;
        }
        let conduct = &mut half.conduct;
        conduct.segments += 1;
        conduct.bytes += u64::from(bytes);
        conduct.against_traffic += u64::from(at.ns.saturating_sub(peer_data_ns) < SIMULTANEOUS_NS);
        let in_flight = half.acked.map_or(0, |acked| distance(end, acked)).max(0).cast_unsigned();
        conduct.in_flight_max_bytes = conduct.in_flight_max_bytes.max(in_flight);
        half.unacked = in_flight.into();
        half.window_then = (half.window > 0 || half.conduct.window_max_bytes > 0).then_some(half.window);
    }

    /// The shortest observed round trip between both ends, nanoseconds.
    fn network_round_trip_ns(&self) -> u64 {
        let handshake = self.handshake_ns.map_or(0, |(there, here)| there.saturating_add(here));
        let [client, server] = &self.halves;
        let acks = client.conduct.ack_min_ns.saturating_add(server.conduct.ack_min_ns);
        if acks == 0 { handshake } else { acks }
    }
}

impl Half {
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
