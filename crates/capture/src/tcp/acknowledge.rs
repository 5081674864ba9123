//! Acknowledgement numbers and windows: what a side says about the other side's data.

use record::{Side, Stall};

use super::options::Sack;
use super::{Before, Gap, Half, Tcp, distance};
use crate::packet::{At, Segment};

/// A queue on the path is a standing one from this delay on, nanoseconds (RFC 8289: CoDel's target).
pub(super) const QUEUE_NS: u64 = 5_000_000;

impl Tcp {
    /// Processes the header's acknowledgement number and window, which concern the other side's data.
    #[inline]
    pub(super) fn acknowledge(
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
        let is_syn = segment.flags & Segment::SYN != 0;
        let both_scale = self.halves.iter().all(|h| h.offer.is_none_or(|o| o.scale.is_some()));
        let scale = match self.halves[side as usize].offer.and_then(|o| o.scale) {
            Some(scale) if both_scale && !is_syn => u32::from(scale),
            _ => 0,
        };
        // Without the SYN the scale is unknown: the window is at least what it is without one.
        let known = self.halves[side as usize].offer.is_some();
        let half = &mut self.halves[side.peer() as usize];
        if segment.payload_bytes == 0 {
            half.loss.pure_ack(at.ns);
        }
        if !is_syn && let Some(sack) = Sack::read(segment.options, segment.ack) {
            half.selectively_acknowledged(sack, at.ns);
        }
        let advanced = half.acked.is_none_or(|acked| distance(segment.ack, acked) > 0);
        half.window_known = known;
        half.offered(u64::from(segment.window) << scale, segment.ack, at);
        if !advanced {
            return;
        }
        half.advanced(segment.ack, at);
        if half.repeated.is_some() {
            self.repeated_for_nothing(side.peer(), segment.ack, at.ns);
        }
        let half = &mut self.halves[side.peer() as usize];
        if let Some(retry) = half.retry.take_if(|r| distance(segment.ack, r.seq) > 0) {
            emit(self.resolve(retry, side.peer(), true, before));
        }
    }
}

impl Tcp {
    /// Counts the segments of a sender that were sent again for nothing, which an acknowledgement shows that comes too soon.
    #[cold]
    fn repeated_for_nothing(&mut self, sender: Side, ack: u32, ns: u64) {
        let to_receiver_ns = self.path(sender).to_receiver_ns;
        let half = &mut self.halves[sender as usize];
        if let Some(count) = half.repeated.and_then(|all| all.spurious(ack, ns, to_receiver_ns)) {
            half.repeated = None;
            half.conduct.spurious = (half.conduct.spurious + count).min(half.conduct.retransmitted);
        }
    }
}

impl Half {
    /// The receiver reports a gap, or data that it had.
    fn selectively_acknowledged(&mut self, sack: Sack, ns: u64) {
        match sack {
            Sack::Gap => (self.reported_ns, self.some_arrived) = (ns, true),
            // The network may have doubled a packet that was sent once.
            Sack::Duplicate if self.conduct.spurious < self.conduct.retransmitted => {
                self.conduct.spurious += 1;
            }
            Sack::Duplicate => {}
        }
    }

    /// The receiver offers this window behind `ack`.
    #[inline]
    fn offered(&mut self, window: u64, ack: u32, at: At) {
        let unacked = self.next.map_or(0, |next| distance(next, ack)).max(0).cast_unsigned();
        let room = window.saturating_sub(u64::from(unacked));
        if let Some(least) = self.room_least {
            if window > self.window && self.lacks_room(self.full_segment().max(1).into()) {
                // The window opens: that releases data too.
                self.ack = at;
            }
            self.room_least = Some(least.min(room));
        }
        self.window = window;
        self.edge.offered(ack.wrapping_add(u32::try_from(window).unwrap_or(u32::MAX)), at.ns);
        self.conduct.window_max_bytes =
            self.conduct.window_max_bytes.max(u32::try_from(window).unwrap_or(u32::MAX));
    }

    /// The receiver acknowledges more.
    #[inline]
    fn advanced(&mut self, ack: u32, at: At) {
        self.some_arrived |= self.acked.is_some() && self.last.at.ns > 0;
        self.ack_bytes = self.acked.map_or(0, |acked| distance(ack, acked)).max(0).cast_unsigned().into();
        self.acked = Some(ack);
        self.ack = at;
        self.acks += 1;
        if let Some(small) = self.small.as_mut().filter(|small| small.acked.is_none())
            && distance(ack, small.end) >= 0
        {
            small.acked = Some(at);
        }
        self.loss.acknowledged(at.ns, |until| distance(ack, until) >= 0);
        let beyond = self.next.map_or(0, |next| distance(ack, next));
        // A FIN takes one number, and so may a window probe. What else did not pass here arrived: the capture lost it, or has it
        // in another order.
        if beyond > 1
            && let Some(from) = self.next
        {
            self.unseen = Some(Gap { from, to: ack, since_ns: at.ns, stamps: None });
        }
        if beyond > 0 {
            self.next = Some(ack);
        }
        if beyond > 1 {
            self.hole_ns = at.ns;
            self.gap = None;
        }
        if self.gap.is_some_and(|gap| distance(ack, gap.to) >= 0) {
            self.hole_ns = at.ns;
            self.gap = None;
        }
        if let Some((end, left_ns, in_flight)) = self.timed
            && distance(ack, end) >= 0
        {
            self.timed = None;
            // A clock that was set back says nothing.
            if at.ns > left_ns {
                self.acknowledged_after(at.ns - left_ns, in_flight);
            }
        }
        if let Some((end, bytes)) = self.probing
            && distance(ack, end) >= 0
        {
            self.probing = None;
            self.largest_acked = self.largest_acked.max(bytes);
            self.conduct.arrived_max_bytes = self.largest_acked;
        }
    }

    /// A segment was acknowledged after this time, when it had left with so many bytes in flight.
    #[inline]
    fn acknowledged_after(&mut self, took_ns: u64, in_flight: u32) {
        let conduct = &mut self.conduct;
        conduct.ack_sum_ns = conduct.ack_sum_ns.saturating_add(took_ns);
        conduct.acks_timed += 1;
        let shortest = &mut conduct.ack_min_ns;
        *shortest = if *shortest == 0 { took_ns } else { (*shortest).min(took_ns) };
        // One or two segments may wait for a delayed acknowledgement.
        let few = 2 * u64::from(conduct.mss_bytes.max(self.largest_acked));
        self.queued_ns = 0;
        if u64::from(in_flight) > few {
            conduct.queueing.add(in_flight, took_ns);
            let idle_ns = conduct.ack_min_ns;
            let queued_ns = took_ns - idle_ns;
            if queued_ns >= QUEUE_NS.max(idle_ns) {
                self.queued_ns = queued_ns;
            }
        }
    }
}
