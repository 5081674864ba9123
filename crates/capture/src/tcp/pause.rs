//! What ended a sender's pause: the cause of new data that leaves late.

use record::{Side, StallKind};

use super::identification::Order;
use super::loss::TIMEOUT_NS;
use super::{Before, Half, LATE_NS, PROMPT_NS, Passing, Tcp};
use crate::follow::MessageState;
use crate::packet::At;

/// The timer that releases corked data runs 200 ms (Linux: TCP_RTO_MIN); data that leaves in this window after the
/// last event was released by it, nanoseconds.
const TIMER_NS: std::ops::RangeInclusive<u64> = 190_000_000..=260_000_000;
/// The same for a whole response, which has no other sign of corking.
const ANSWER_TIMER_NS: std::ops::RangeInclusive<u64> = 198_000_000..=225_000_000;

impl Tcp {
    /// What delayed new data that leaves after a pause, for how long, the frame before the pause, and the frame that ended
    /// it.
    #[inline]
    pub(super) fn cause(&mut self, passing: Passing, bytes: u32) -> Option<(StallKind, u64, u64, u64)> {
        let Passing { side, at, before, .. } = passing;
        let prompt_ns = self.network_round_trip_ns().saturating_add(PROMPT_NS);
        let peer = &self.halves[side.peer() as usize];
        let (peer_data_ns, peer_last, peer_again_ns) = (peer.last_data_ns, peer.last.at, peer.loss.again_ns);
        let half = &mut self.halves[side as usize];
        let last = half.last;
        let quiet_ns = at.ns.saturating_sub(last.at.ns);
        let follows_own = peer_data_ns <= last.at.ns;
        if half.loss.is_within(last.at.ns) || half.gap.is_some() {
            // While lost data is outstanding, nothing else holds what is behind it.
            // The server's responses have waited for the retransmission already; requests that had not left have not.
            let since_ns = match side {
                Side::Client => last.at.ns,
                Side::Server => last.at.ns.max(half.loss.again_ns),
            };
            let wait_ns = at.ns.saturating_sub(since_ns);
            return (last.at.ns > 0).then_some((
                StallKind::BehindLoss,
                wait_ns,
                last.at.frame,
                half.ack.frame,
            ));
        }
        let asked_ns = at.ns.saturating_sub(last.at.ns.max(peer_data_ns));
        if asked_ns >= TIMEOUT_NS && passing.order == Order::Skipped && last.at.ns > 0 {
            let is_due = before.in_flight > 0 || side == Side::Client;
            // If the peer sent again meanwhile, an acknowledgement was lost and not this.
            if is_due && peer_again_ns <= at.ns - asked_ns {
                half.conduct.retransmitted += 1;
                half.conduct.timeouts += 1;
                half.loss.again(at.ns, passing.end, None, 0);
                return Some((StallKind::Timeout, asked_ns, last.at.frame.max(peer_last.frame), 0));
            }
        }
        // Only data after a pause that does not respond to a request can have been released.
        if last.at.ns > 0
            && half.ack.ns >= last.at.ns
            && follows_own
            && let Some(released) = half.released_by_ack(before, at, quiet_ns, prompt_ns, bytes)
        {
            return Some(released);
        }
        let mid = matches!(before.message, MessageState::Header | MessageState::Part);
        if mid && follows_own && TIMER_NS.contains(&quiet_ns) {
            return Some((StallKind::CorkWithinMessage, quiet_ns, last.at.frame, 0));
        }
        let is_answer = side == Side::Server
            && before.in_flight > 0
            && !follows_own
            && matches!(before.message, MessageState::Nothing)
            && ANSWER_TIMER_NS.contains(&asked_ns);
        is_answer.then_some((StallKind::CorkedAnswer, asked_ns, peer_last.frame, 0))
    }
}

impl Half {
    /// Classifies new data that leaves after a pause in which only an acknowledgement came. Returns the kind, the
    /// wait, the frame before it, and the frame that ended it.
    fn released_by_ack(
        &mut self,
        before: Before,
        at: At,
        quiet_ns: u64,
        prompt_ns: u64,
        bytes: u32,
    ) -> Option<(StallKind, u64, u64, u64)> {
        let (last, ack) = (self.last, self.ack);
        let waited_ns = ack.ns.saturating_sub(last.at.ns);
        let since_ack_ns = at.ns.saturating_sub(ack.ns);
        let mid = matches!(before.message, MessageState::Header | MessageState::Part);
        // Whether the segment that now leaves would have fitted into the window.
        let held = self.unacked;
        let is_window = self.window_then.is_some_and(|window| held + u64::from(bytes) > window);
        // It had sent more without an acknowledgement before it lost data: the loss made its congestion window small.
        let is_reduced = self.loss.again_ns > 0 && held < u64::from(self.conduct.in_flight_max_bytes);
        let mut short = None;
        if mid && since_ack_ns <= prompt_ns && since_ack_ns <= waited_ns {
            let conduct = &mut self.conduct;
            conduct.ack_wait_ns = conduct.ack_wait_ns.saturating_add(quiet_ns);
            conduct.ack_waits += 1;
            conduct.ack_wait_bytes += held;
            if is_window {
                conduct.window_waits += 1;
                conduct.window_wait_ns = conduct.window_wait_ns.saturating_add(quiet_ns);
            }
            if quiet_ns > conduct.ack_wait_max_ns {
                conduct.ack_wait_max_ns = quiet_ns;
                conduct.ack_wait_frames = [last.at.frame, ack.frame, at.frame];
            }
            let kind = match is_window {
                true => StallKind::WindowFull,
                false if is_reduced => StallKind::BehindLoss,
                false => StallKind::AckWait,
            };
            short = Some((kind, quiet_ns, last.at.frame, ack.frame));
        }
        let full = self.full_segment();
        if waited_ns < LATE_NS || since_ack_ns > prompt_ns {
            return short;
        }
        let is_small = full > 0 && !last.bytes.is_multiple_of(full);
        let kind = match before.message {
            _ if is_window => StallKind::WindowFull,
            // The same side continues to send; whether this is the same message is unknown.
            MessageState::Nothing | MessageState::Unknown if is_small => StallKind::NagleBetweenMessages,
            MessageState::Nothing => return None,
            MessageState::Header if is_small => StallKind::NagleHeaderThenBody,
            MessageState::Part if is_small => StallKind::NagleWithinMessage,
            _ if is_reduced => StallKind::BehindLoss,
            _ => StallKind::DelayedAck,
        };
        Some((kind, quiet_ns, last.at.frame, ack.frame))
    }
}
