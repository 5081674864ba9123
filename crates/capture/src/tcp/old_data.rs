//! Data that was sent before: lost and sent again, overtaken on the way, or sent again for nothing.

use record::{Side, Stall, StallKind};

use super::identification::Order;
use super::loss::{Again, Cause, Repeated, TIMEOUT_NS};
use super::retry::{Retry, Verdict};
use super::{Before, Gap, Half, LATE_NS, Passing, SIMULTANEOUS_NS, Tcp, distance};
use crate::follow::MessageState;
use crate::packet::Segment;

/// A gap that is filled so soon was reordered, where neither the packets are counted nor the path is known, nanoseconds.
const REORDERED_NS: u64 = 3_000_000;

impl Tcp {
    /// The outcome of retransmissions.
    pub(super) fn resolve(&mut self, retry: Retry, sender: Side, arrived: bool, before: Before) -> Stall {
        let half = &mut self.halves[sender as usize];
        let verdict = retry.verdict(arrived, half.largest_acked, half.some_arrived);
        // The other side has answered the handshake: small packets passed.
        let is_set_up = self.handshake_ns.is_some();
        half.conduct.vanished += u64::from(verdict == Verdict::Vanished && is_set_up);
        let kind = match verdict {
            Verdict::Vanished if !is_set_up => StallKind::Timeout,
            Verdict::BlackHole | Verdict::Vanished => StallKind::BlackHole,
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
    pub(super) fn old_data(
        &mut self,
        segment: &Segment<'_>,
        passing: Passing,
        next: u32,
        emit: &mut impl FnMut(Stall),
    ) {
        let Passing { side, at, end, before, .. } = passing;
        let path = self.path(side);
        let peer_data_ns = self.halves[side.peer() as usize].last_data_ns;
        let half = &mut self.halves[side as usize];
        let bytes = end.wrapping_sub(segment.seq);
        let acked = half.acked.unwrap_or(segment.seq);
        // Keep-alives and window probes repeat one byte at most, or what a closed window does not take.
        if bytes <= 1 && distance(acked, segment.seq) >= 0 || half.is_probed(at) {
            return;
        }
        // It was captured behind its acknowledgement, and sent before.
        let is_of = |unseen: Gap| distance(segment.seq, unseen.from) >= 0 && distance(unseen.to, end) >= 0;
        if half.unseen.is_some_and(|unseen| is_of(unseen) && at.ns.saturating_sub(unseen.since_ns) < LATE_NS)
        {
            return;
        }
        // It fills a recent gap: it was reordered, not retransmitted, unless its sender counts it behind what overtook it.
        let mut gap_ns = None;
        if let Some(gap) = half.gap
            && distance(segment.seq, gap.from) >= 0
            && distance(gap.to, end) >= 0
        {
            if segment.seq == gap.from {
                half.gap = (end != gap.to).then_some(Gap { from: end, ..gap });
            }
            if half.is_reordered(gap, passing, path.round_trip_ns()) {
                return;
            }
            gap_ns = Some(gap.since_ns);
        }
        half.last_data_ns = at.ns;
        half.timed = None;
        half.conduct.retransmitted += 1;
        half.conduct.retransmitted_against_traffic +=
            u64::from(at.ns.saturating_sub(peer_data_ns) < SIMULTANEOUS_NS);
        let until = if distance(end, next) > 0 { end } else { next };
        half.next = Some(until);
        let timeout_ns = TIMEOUT_NS.max(path.round_trip_ns());
        let sent_again = Again { ns: at.ns, until, gap_ns, reaction_ns: path.reaction_ns(), timeout_ns };
        let (cause, since_ns) = half.loss.again(sent_again);
        let is_timer = cause == Cause::Timer;
        half.conduct.timeouts += u64::from(is_timer);
        // It had arrived. Its acknowledgement was lost, for which only a sender with more to send waited.
        let had_arrived = distance(acked, end) >= 0;
        half.conduct.spurious += u64::from(had_arrived);
        if !had_arrived {
            half.repeated = Some(Repeated::again(half.repeated, end, at.ns));
        }
        let has_more = matches!(before.message, MessageState::Header | MessageState::Part);
        if had_arrived && !has_more {
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
}

impl Half {
    /// Whether data that fills a gap left before what overtook it.
    fn is_reordered(&self, gap: Gap, passing: Passing, round_trip_ns: u64) -> bool {
        let age_ns = passing.at.ns.saturating_sub(gap.since_ns);
        match passing.order {
            Order::Overtaken => return true,
            Order::Skipped => return false,
            Order::Next if self.packets.counts() => return false,
            Order::Next | Order::Unknown => {}
        }
        // Its sender's clock, where it has moved on.
        if let (Some(later), Some(own)) = (gap.stamps, passing.stamps)
            && later.value != own.value
        {
            return distance(own.value, later.value) < 0;
        }
        // The receiver must report the gap before its sender can fill it.
        let is_reported = self.loss.acked_ns() >= gap.since_ns;
        match round_trip_ns {
            0 => age_ns < REORDERED_NS,
            _ if !is_reported => age_ns < TIMEOUT_NS.max(round_trip_ns),
            _ => age_ns < round_trip_ns / 4 * 3,
        }
    }
}
