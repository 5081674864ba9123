//! What ended a sender's pause: the cause of new data that leaves late.
//!
//! A cause is named only where all packets of the pause were seen, and where the times fit the path ([`Path`]): an
//! acknowledgement releases data that passes a round trip to the sender later.

use record::{Side, StallKind};

use super::flight::Gap as FlightGap;
use super::identification::Order;
use super::loss::{Again, TIMEOUT_NS};
use super::path::{NETWORK_NS, PROMPT_NS, Path};
use super::{Before, Half, Owes, Passing, Small, Tcp, distance};
use crate::follow::MessageState;
use crate::packet::At;

/// The timer that releases corked data runs a retransmission time-out (Linux `tcp_probe0_base`): the round trip and, on top of
/// it, 200 ms at least (`tcp_rto_min`); it ends at a tick, of 10 ms at most, and a timer wheel may add another. What leaves in
/// the middle of a message so long after the round trip was released by it, nanoseconds.
const TIMER_NS: std::ops::RangeInclusive<u64> = 190_000_000..=260_000_000;
/// The same for a whole response, which has no other sign of corking: its data is corked after its request has come, and no timer ends
/// early, so that an event every 200 ms, which a client awaits a little less, is none.
const ANSWER_TIMER_NS: std::ops::RangeInclusive<u64> = 200_000_000..=225_000_000;
/// No sender's first congestion window is smaller, segments (RFC 3390).
const INITIAL_WINDOW: u64 = 3;
/// From this round trip on a hold for one is told from a program's pause, nanoseconds.
const NAGLE_NS: u64 = 500_000;
/// How long a host takes to release what it holds when an acknowledgement comes, beyond the path's time, nanoseconds: an interrupt
/// and a softirq, and what a capture's stamps are off.
const SOFTIRQ_NS: u64 = 300_000;
/// Longest time to live that a Linux sender's packets can have (`net.ipv4.ip_default_ttl`), and the least after half as many
/// routers.
pub(super) const LINUX_TTL: std::ops::RangeInclusive<u8> = 33..=64;

/// Why new data left late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Release {
    pub(super) kind: StallKind,
    pub(super) wait_ns: u64,
    /// The frame before the pause, and the frame that ended it.
    pub(super) from: u64,
    pub(super) by: u64,
}

impl Release {
    fn of(kind: StallKind, wait_ns: u64, from: u64, by: u64) -> Self {
        Self { kind, wait_ns, from, by }
    }
}

/// A pause, and the segment with new data that ends it.
#[derive(Clone, Copy, Debug)]
struct Pause {
    before: Before,
    at: At,
    /// Since the sender's last data, nanoseconds.
    quiet_ns: u64,
    /// The peer has sent no data meanwhile.
    follows_own: bool,
    /// Payload of the segment, bytes.
    bytes: u32,
    /// Its system may hold the small end of a message behind full segments, as RFC 896 has it. Linux does so
    /// only where another small one has left with them.
    may_hold_tails: bool,
    path: Path,
}

/// The request before an answer.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// From its last data to the answer, nanoseconds.
    wait_ns: u64,
    /// The frame of that data.
    frame: u64,
    /// A packet without data has acknowledged it.
    is_acknowledged: bool,
}

impl Pause {
    /// Whether the sender is in the middle of a message.
    fn is_within(&self) -> bool {
        matches!(self.before.message, MessageState::Header | MessageState::Part)
    }
}

impl Tcp {
    /// What delayed new data that begins at `seq` and leaves after a pause.
    #[inline]
    pub(super) fn cause(&mut self, passing: Passing, seq: u32, bytes: u32) -> Option<Release> {
        let Passing { side, at, before, .. } = passing;
        let peer = &self.halves[side.peer() as usize];
        let (peer_data_ns, peer_last, peer_again_ns) = (peer.last_data_ns, peer.last.at, peer.loss.again_ns);
        let (peer_hole_ns, peer_bytes) = (peer.hole_ns, peer.conduct.bytes);
        // The sender's ACK of what was asked: an answer that was lost would have carried it.
        let is_acknowledged = peer.loss.acked_ns() >= peer_data_ns;
        let is_linux = LINUX_TTL.contains(&self.ttl[side as usize]);
        let path = self.path(side);
        let half = &mut self.halves[side as usize];
        let last = half.last;
        if at.ns < last.at.ns.max(peer_data_ns) {
            return None;
        }
        let quiet_ns = at.ns - last.at.ns;
        let is_first = last.at.ns == 0;
        if !is_first && (half.loss.is_within(last.at.ns) || half.gap.is_some()) {
            return Some(half.behind_loss(side, at));
        }
        // Nothing is known about a pause in which the capture lost packets.
        let is_whole = half.next.is_none_or(|next| next == seq)
            && half.hole_ns.max(peer_hole_ns) <= last.at.ns.max(peer_data_ns.saturating_sub(1));
        let asked_ns = at.ns.saturating_sub(last.at.ns.max(peer_data_ns));
        // A repetition begins where the lost packet began; what begins later was preceded by data that the capture lacks. Only
        // Linux counts the packets of each connection; another system's count skips those of its other connections.
        let is_repetition = half.next == Some(seq) && passing.order == Order::Skipped && is_linux;
        // What the capture skips elsewhere it may have skipped here, and what leaves beside the sender cannot vanish before.
        let is_seen_whole = half.hole_ns == 0 && peer_hole_ns == 0;
        let is_repetition = is_repetition && is_seen_whole && path.leaves_room_before();
        if asked_ns >= TIMEOUT_NS.max(path.round_trip_ns()) && is_repetition && !is_first {
            let is_due = before.in_flight > 0 || side == Side::Client;
            // If the peer sent again meanwhile, an acknowledgement was lost and not this.
            if is_due && peer_again_ns <= at.ns - asked_ns {
                return Some(half.timed_out(passing, asked_ns, last.at.frame.max(peer_last.frame)));
            }
        }
        if !is_whole {
            half.flight.paused(half.flight_gap(at, quiet_ns, path, false), &mut half.conduct);
            return None;
        }
        let follows_own = peer_data_ns <= last.at.ns;
        let may_hold_tails =
            !(is_linux && half.packets.counts()) || half.flight.holds(half.small.map(|s| s.at.ns));
        let pause = Pause { before, at, quiet_ns, follows_own, bytes, may_hold_tails, path };
        // The program's reaction to the answer, as the point sees it.
        let is_batch = side == Side::Client
            && !follows_own
            && half.batches.begins(half.conduct.bytes, peer_bytes, at.ns - peer_last.ns);
        if !is_first && let Some(release) = half.ack_clocked(pause, is_batch) {
            half.flight.paused(half.flight_gap(at, quiet_ns, path, false), &mut half.conduct);
            return Some(release);
        }
        if !is_first && let Some(kind) = half.limited_flight(pause) {
            return Some(Release::of(kind, quiet_ns, last.at.frame, half.ack.frame));
        }
        // Only data after a pause that does not respond to a request can have been released.
        if half.ack.ns >= last.at.ns && !is_first && follows_own {
            let release = half.released_by_ack(pause);
            if release.is_some() {
                return release;
            }
        }
        // Data that acknowledgements clock pauses, too, for a small part of the round trip.
        let is_long = quiet_ns >= (path.round_trip_ns() / 4).max(PROMPT_NS / 4);
        if !is_first && pause.is_within() && follows_own && is_long {
            half.conduct.own_pauses += 1;
        }
        let asked = Asked { wait_ns: asked_ns, frame: peer_last.frame, is_acknowledged };
        if is_linux { half.corked(pause, side, asked) } else { None }
    }
}

impl Half {
    /// While lost data is outstanding, nothing else holds what is behind it.
    fn behind_loss(&self, side: Side, at: At) -> Release {
        // The server's responses have waited for the retransmission already; requests that had not left have not.
        let since_ns = match side {
            Side::Client => self.last.at.ns,
            Side::Server => self.last.at.ns.max(self.loss.again_ns),
        };
        let wait_ns = at.ns.saturating_sub(since_ns);
        Release::of(StallKind::BehindLoss, wait_ns, self.last.at.frame, self.ack.frame)
    }

    /// The sender's packets before this one did not pass: they were lost, and this is their repetition.
    fn timed_out(&mut self, passing: Passing, asked_ns: u64, from: u64) -> Release {
        self.conduct.retransmitted += 1;
        self.conduct.timeouts += 1;
        let Passing { at, end, .. } = passing;
        let again = Again { ns: at.ns, until: end, gap_ns: None, reaction_ns: 0, timeout_ns: TIMEOUT_NS };
        self.loss.again(again);
        Release::of(StallKind::Timeout, asked_ns, from, 0)
    }

    /// Whether it had sent more without an acknowledgement before it lost data: the loss made its congestion window small.
    fn is_reduced(&self) -> bool {
        self.loss.again_ns > 0 && self.unacked < u64::from(self.conduct.in_flight_max_bytes)
    }

    /// Whether everything that has left is acknowledged.
    fn is_idle(&self) -> bool {
        self.acked.zip(self.next).is_some_and(|(acked, next)| distance(acked, next) >= 0)
    }

    /// Whether the last acknowledgement can have been delayed on purpose: two full segments are acknowledged at once (RFC 5681
    /// 4.2), and what acknowledges more was late because of a queue.
    fn is_delayable(&self) -> bool {
        self.ack_bytes < 2 * u64::from(self.full_segment())
    }

    /// Whether the last segment was small: Nagle's algorithm holds what follows it until it is acknowledged.
    fn last_is_small(&self) -> bool {
        let full = self.full_segment();
        full > 0 && !self.last.bytes.is_multiple_of(full)
    }

    fn flight_gap(&self, at: At, quiet_ns: u64, path: Path, has_more: bool) -> FlightGap {
        let (full, round_trip_ns) = (self.full_segment(), path.round_trip_ns());
        let is_reduced = self.is_reduced();
        let (window, window_known) = (self.window, self.window_known);
        FlightGap {
            ns: at.ns,
            quiet_ns,
            round_trip_ns,
            full,
            has_more,
            is_tail: false,
            is_reduced,
            window,
            window_known,
        }
    }

    /// The congestion window's part in a pause.
    #[inline]
    fn limited_flight(&mut self, pause: Pause) -> Option<StallKind> {
        let Pause { at, quiet_ns, path, follows_own, .. } = pause;
        if self.is_far_window_full(pause) {
            self.flight.paused(self.flight_gap(at, quiet_ns, path, false), &mut self.conduct);
            self.waits_for_ack(pause, true);
            self.was_limited = true;
            return Some(StallKind::WindowFull);
        }
        let is_within = pause.is_within() || pause.before.message == MessageState::Unknown;
        let has_more = is_within
            && follows_own
            && !self.last_is_small()
            && self.room_least.is_some_and(|room| room >= u64::from(self.full_segment()));
        let is_tail = pause.bytes < self.full_segment() && self.is_idle() && pause.may_hold_tails;
        let gap = FlightGap { is_tail, ..self.flight_gap(at, quiet_ns, path, has_more) };
        let cause = self.flight.paused(gap, &mut self.conduct);
        match cause {
            Some(StallKind::WindowFull) => self.waits_for_ack(pause, true),
            Some(StallKind::CongestionWindow) => self.was_limited = true,
            _ => {}
        }
        cause
    }

    /// Whether the window of a receiver nearby had no room when the sender, who is far, stopped in a message: the acknowledgements
    /// that passed here were on their way to it. Its own flights need not show that, as each acknowledgement releases a part.
    fn is_far_window_full(&self, pause: Pause) -> bool {
        let Pause { quiet_ns, path, follows_own, .. } = pause;
        let is_far = path.to_sender_ns >= NETWORK_NS && path.to_sender_ns > path.to_receiver_ns;
        is_far
            && self.window_known
            && follows_own
            && pause.is_within()
            && quiet_ns >= PROMPT_NS / 4
            && !self.is_reduced()
            && self.edge.lacks_room(self.full_segment())
    }

    /// Classifies new data that leaves after a pause in which only an acknowledgement came.
    fn released_by_ack(&mut self, pause: Pause) -> Option<Release> {
        let Pause { before, at, quiet_ns, bytes, path, .. } = pause;
        let (last, ack) = (self.last, self.ack);
        let waited_ns = ack.ns.saturating_sub(last.at.ns);
        let since_ack_ns = at.ns.saturating_sub(ack.ns);
        let need = u64::from(bytes.min(self.full_segment()).max(1));
        let is_window = self.lacks_room(need);
        // That a window had no room is no coincidence, wherever the point lies: near the receiver the whole wait is behind the ACK.
        if !path.is_released(since_ack_ns, if is_window { u64::MAX } else { waited_ns }) {
            return None;
        }
        let release = |kind| Release::of(kind, quiet_ns, last.at.frame, ack.frame);
        let is_late = path.is_late(waited_ns);
        let is_reduced = self.is_reduced();
        // Nagle's algorithm holds no full segment. Where the handshake was not seen, the size of one is a guess.
        let is_full = self.conduct.mss_bytes > 0 && bytes >= self.conduct.mss_bytes;
        let is_nagle = self.last_is_small() && self.is_idle() && !is_window && !is_full;
        if is_nagle && is_late {
            return Some(release(match before.message {
                // The same side continues to send; whether this is the same message is unknown.
                MessageState::Nothing | MessageState::Unknown => StallKind::NagleBetweenMessages,
                MessageState::Header => StallKind::NagleHeaderThenBody,
                MessageState::Part => StallKind::NagleWithinMessage,
            }));
        }
        if is_late && is_window {
            self.waits_for_ack(pause, true);
            return Some(release(StallKind::WindowFull));
        }
        // Who stops behind a full segment, or at the end of a window, has more to send.
        let is_within = pause.is_within()
            || (before.message == MessageState::Unknown && (is_window || is_full || !self.last_is_small()));
        if !is_within || (since_ack_ns > waited_ns && !is_window) {
            return None;
        }
        // No buffer is smaller than a segment; and over a short path Nagle's algorithm may have held the end of a message.
        let is_end = bytes < self.full_segment() && path.round_trip_ns() < NAGLE_NS && self.is_idle();
        if !is_window && !is_late && (is_end || self.unacked < u64::from(self.full_segment())) {
            return None;
        }
        self.waits_for_ack(pause, is_window);
        self.was_limited = true;
        Some(release(match is_window {
            true => StallKind::WindowFull,
            false if is_reduced => StallKind::BehindLoss,
            false if is_late && (is_full || !self.last_is_small()) && self.is_delayable() => {
                StallKind::DelayedAck
            }
            false => StallKind::AckWait,
        }))
    }

    /// Counts a wait for an acknowledgement.
    fn waits_for_ack(&mut self, pause: Pause, is_window: bool) {
        let Pause { at, quiet_ns, .. } = pause;
        let frames = [self.last.at.frame, self.ack.frame, at.frame];
        // The window itself had no room, not only what was unacknowledged.
        let is_zero = self.probes > 0 || self.is_idle() && self.lacks_room(self.full_segment().max(1).into());
        let conduct = &mut self.conduct;
        conduct.ack_wait_ns = conduct.ack_wait_ns.saturating_add(quiet_ns);
        conduct.ack_waits += 1;
        conduct.ack_wait_bytes += self.unacked;
        if is_window {
            conduct.window_waits += 1;
            conduct.window_wait_ns = conduct.window_wait_ns.saturating_add(quiet_ns);
            conduct.zero_windows += u64::from(is_zero);
        }
        if quiet_ns > conduct.ack_wait_max_ns {
            (conduct.ack_wait_max_ns, conduct.ack_wait_frames) = (quiet_ns, frames);
        }
    }

    /// Whether a small segment left when the small one before was acknowledged, although there was something to send before:
    /// Nagle's algorithm lets one leave in each round trip.
    fn ack_clocked(&self, pause: Pause, is_batch: bool) -> Option<Release> {
        let Pause { at, bytes, path, follows_own, .. } = pause;
        let acked = self.small.filter(|small| small.acked.is_some());
        let from =
            acked.filter(|small| self.is_prompt(pause, small.acked)).or_else(|| self.all_before(pause))?;
        let ack = from.acked?;
        let waited_ns = ack.ns.saturating_sub(from.at.ns);
        let since_ack_ns = at.ns.saturating_sub(ack.ns);
        let is_small = bytes < self.full_segment() || self.conduct.mss_bytes == 0;
        // An acknowledgement that waits in a queue is the queue's.
        let trip_ns = path.round_trip_ns();
        // Data that brings the acknowledgement took its own time.
        let is_pure = self.loss.acked_ns() == ack.ns;
        let most_ns = if is_pure { u64::MAX } else { trip_ns.saturating_mul(2).saturating_add(NAGLE_NS) };
        let is_nagle = is_small
            && trip_ns > 0
            && self.is_prompt(pause, Some(ack))
            && (NAGLE_NS..=most_ns).contains(&waited_ns.saturating_add(since_ack_ns))
            && !path.is_late(waited_ns)
            && !self.lacks_room(bytes.into());
        if !is_nagle {
            return None;
        }
        // Behind the path, what comes a round trip apart may also be a server's pace.
        let is_near = waited_ns >= since_ack_ns;
        let is_there = is_batch
            || is_near
                && match self.owes {
                    // What the peer sent in the last round trip to the sender was not there when the small segment left.
                    Owes::Answers => from.peer_ns.saturating_add(path.to_sender_ns / 10 * 9) <= from.at.ns,
                    Owes::Rest => !self.was_limited,
                    Owes::Nothing => follows_own && pause.is_within() && !self.was_limited,
                };
        let since_ns = if is_there {
            self.last.at.ns.max(from.at.ns)
        } else {
            // The peer's data that came before its acknowledgement gave reason to send; an answer to what the
            // acknowledgement's own packet carried leaves at the same time.
            let heard = self.heard?;
            let ready_ns = ack.ns.saturating_sub(heard.ns);
            let reaction_ns = since_ack_ns.saturating_sub(path.to_sender_ns).max(PROMPT_NS / 10);
            if ready_ns <= reaction_ns || !is_near {
                return None;
            }
            heard.ns.saturating_add(path.to_sender_ns)
        };
        let wait_ns = at.ns.saturating_sub(since_ns);
        if wait_ns < trip_ns / 4 {
            return None;
        }
        Some(Release::of(StallKind::AckClocked, wait_ns, from.at.frame, ack.frame))
    }

    /// Whether the segment passes when an acknowledgement can have released it: a host does that without its program, and sooner
    /// than a program reacts.
    fn is_prompt(&self, pause: Pause, ack: Option<At>) -> bool {
        let Pause { at, path, .. } = pause;
        let Some(ack) = ack else { return false };
        let waited_ns = self.small.map_or(self.last.at.ns, |small| small.at.ns);
        let varies_ns = (path.to_sender_ns / 10).max(SOFTIRQ_NS.min(at.ns.saturating_sub(waited_ns) / 5));
        at.ns.saturating_sub(ack.ns).abs_diff(path.to_sender_ns) <= varies_ns
    }

    /// The full segments whose acknowledgement the small end of their message waits for, as RFC 896 has it: until all are
    /// acknowledged. A limit would let it leave when the first of several are; and it would have been there before.
    fn all_before(&self, pause: Pause) -> Option<Small> {
        let Pause { follows_own, .. } = pause;
        let full = u64::from(self.full_segment());
        let is_waiting_for_all = self.acks > 1 || self.unacked < INITIAL_WINDOW * full;
        let is_held = follows_own
            && pause.is_within()
            && !self.last_is_small()
            && !self.was_limited
            && !self.is_reduced()
            && self.is_idle()
            && is_waiting_for_all;
        let last = self.last.at;
        is_held.then_some(Small { at: last, end: 0, peer_ns: last.ns, acked: Some(self.ack) })
    }

    /// Whether a timer released the data: it left a least time-out after the data before it, or after the request.
    fn corked(&mut self, pause: Pause, side: Side, asked: Asked) -> Option<Release> {
        let Pause { before, at, quiet_ns, follows_own, path, .. } = pause;
        let last = self.last;
        let less_path = |ns: u64| ns.saturating_sub(path.round_trip_ns());
        let (kind, wait_ns, from) =
            if pause.is_within() && follows_own && TIMER_NS.contains(&less_path(quiet_ns)) {
                (StallKind::CorkWithinMessage, quiet_ns, last.at.frame)
            } else if side == Side::Server
                && before.in_flight > 0
                && !follows_own
                && before.message == MessageState::Nothing
                && asked.is_acknowledged
                && ANSWER_TIMER_NS.contains(&less_path(asked.wait_ns.saturating_sub(path.to_sender_ns)))
            {
                (StallKind::CorkedAnswer, asked.wait_ns, asked.frame)
            } else {
                return None;
            };
        self.conduct.timer_pauses += 1;
        self.timers.add(at.ns);
        // Timers end at ticks, and a program's own pause does not.
        if self.timers.are_scattered() {
            return None;
        }
        Some(Release::of(kind, wait_ns, from, 0))
    }
}
