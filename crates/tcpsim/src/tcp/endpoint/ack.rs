//! When acknowledgements leave: with data, after a delay, or at once (RFC 1122 4.2.3.2; Linux `__tcp_ack_snd_check`).

use super::Segment;
use super::endpoint::{Endpoint, NEVER, Options};
use crate::Ns;
use crate::profile::{AckRule, Profile};

/// Payload that a receiver expects of a segment before it saw one (Linux `TCP_MSS_DEFAULT`), and header bytes of a
/// segment with timestamps.
const MSS_DEFAULT: u32 = 536;
const HEADER_BYTES: u32 = 32;
/// The shortest delay (Linux `TCP_ATO_MIN`).
const ATO_MIN: Ns = 40_000_000;

/// What a receiver knows of its peer's segments, and owes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckState {
    rule: AckRule,
    /// What was acknowledged last, and how far the peer was let go.
    acked: u64,
    edge: u64,
    is_owed: bool,
    /// The application is to acknowledge after it read: after one small segment where no conversation is, after two in
    /// any case (Linux `ICSK_ACK_PUSHED`, `ICSK_ACK_PUSHED2`).
    pushed: u8,
    /// Acknowledgements that are still to leave at once.
    quick: u32,
    pingpong: u32,
    ato: Ns,
    /// When data came last.
    came_at: Option<Ns>,
    /// The estimated size of the peer's segments, and the last one's.
    rcv_mss: u32,
    last_bytes: u32,
    pub(super) due: Ns,
}

impl AckState {
    pub(super) fn new(profile: &Profile, options: &Options) -> Self {
        Self {
            rule: profile.ack,
            acked: 0,
            edge: options.receive_buffer_bytes,
            is_owed: false,
            pushed: 0,
            quick: 0,
            pingpong: 0,
            ato: 0,
            came_at: None,
            rcv_mss: options.mss_bytes.min(MSS_DEFAULT),
            last_bytes: 0,
            due: NEVER,
        }
    }

    pub(super) fn is_pingpong(&self, profile: &Profile) -> bool {
        self.pingpong >= profile.pingpong
    }

    /// Data leaves: soon after some came, it is a conversation (Linux `tcp_event_data_sent`).
    #[inline]
    pub(super) fn data_sent(&mut self, now: Ns) {
        if self.came_at.is_some_and(|came| now - came < self.ato) {
            self.pingpong = self.pingpong.saturating_add(1);
        }
    }

    /// Linux `tcp_measure_rcv_mss`.
    #[inline]
    fn measure(&mut self, segment: &Segment, mss: u32) {
        let (bytes, last) = (segment.bytes.min(mss), std::mem::take(&mut self.last_bytes));
        if bytes >= self.rcv_mss {
            self.rcv_mss = bytes;
            if segment.push {
                self.pushed |= 1;
            }
            return;
        }
        // A small segment may be all that its sender can send, where it is not too small or not marked as an end.
        if bytes + HEADER_BYTES >= MSS_DEFAULT + 20 || (bytes + HEADER_BYTES >= 88 + 20 && !segment.push) {
            self.last_bytes = bytes;
            if bytes == last {
                self.rcv_mss = bytes;
                return;
            }
        }
        self.pushed |= if self.pushed & 1 == 0 { 1 } else { 2 };
    }
}

impl Endpoint {
    /// Data came (Linux `tcp_data_queue`, `tcp_event_data_recv`).
    #[inline]
    pub(super) fn take_data(&mut self, now: Ns, segment: &Segment) {
        let (seq, end) = (segment.seq, segment.end());
        if seq > self.rcv_nxt || end <= self.rcv_nxt || end > self.copied + self.options.receive_buffer_bytes
        {
            if seq > self.rcv_nxt && end <= self.copied + self.options.receive_buffer_bytes {
                self.keep_early(seq, end);
            }
            // Too early, twice, or too much: the sender is told at once (RFC 5681 4.2).
            self.ack.is_owed = true;
            self.ack.quick = self.ack.quick.max(1);
            self.ack.pingpong = 0;
            return;
        }
        self.rcv_nxt = end;
        let has_filled = !self.early.is_empty();
        while let Some(&(from, to)) = self.early.first()
            && from <= self.rcv_nxt
        {
            self.rcv_nxt = self.rcv_nxt.max(to);
            self.early.remove(0);
        }
        let (rto, mss) = (self.congestion.rto_ns(), self.options.mss_bytes);
        let budget = self.profile.quick_acks;
        let quick = ((self.options.receive_buffer_bytes / (2 * u64::from(self.ack.rcv_mss))).max(2) as u32)
            .min(budget);
        let ack = &mut self.ack;
        ack.is_owed = true;
        if has_filled {
            ack.quick = ack.quick.max(1);
        }
        if ack.rule == AckRule::EverySecond {
            ack.came_at = Some(now);
            return;
        }
        ack.measure(segment, mss);
        match ack.came_at.map(|came| now - came) {
            None => (ack.quick, ack.ato) = (ack.quick.max(quick), ATO_MIN),
            Some(gap) if gap <= ATO_MIN / 2 => ack.ato = ack.ato / 2 + ATO_MIN / 2,
            Some(gap) if gap < ack.ato => ack.ato = (ack.ato / 2 + gap).min(rto),
            // The peer stopped for long: it may have lost its window, and is helped to get it again.
            Some(gap) if gap > rto => ack.quick = ack.quick.max(quick),
            Some(_) => {}
        }
        ack.came_at = Some(now);
    }

    fn keep_early(&mut self, seq: u64, end: u64) {
        let at = self.early.partition_point(|&(from, _)| from < seq);
        self.early.insert(at, (seq, end));
        // One range for what touches.
        let mut merged: Vec<(u64, u64)> = Vec::with_capacity(self.early.len());
        for &(from, to) in &self.early {
            match merged.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => merged.push((from, to)),
            }
        }
        self.early = merged;
    }

    /// Whether the owed acknowledgement leaves now, or when (Linux `__tcp_ack_snd_check`).
    #[inline]
    pub(super) fn acknowledge(&mut self, now: Ns, out: &mut Vec<Segment>) {
        if !self.ack.is_owed {
            return;
        }
        let new = self.rcv_nxt - self.ack.acked;
        let is_due = match self.ack.rule {
            AckRule::EverySecond => self.ack.quick > 0 || self.ack.due != NEVER,
            AckRule::Linux => {
                let quick = self.ack.quick > 0 && !self.ack.is_pingpong(&self.profile);
                quick
                    || !self.early.is_empty()
                    || (new > u64::from(self.ack.rcv_mss) && self.edge_now() >= self.ack.edge)
            }
        };
        if is_due { self.send_ack(now, out) } else { self.delay(now, out) }
    }

    /// Linux `tcp_send_delayed_ack`.
    #[inline]
    fn delay(&mut self, now: Ns, out: &mut Vec<Segment>) {
        if self.ack.rule == AckRule::EverySecond {
            self.ack.due = self.profile.timer(now, self.profile.delay_min_ns);
            return;
        }
        let mut ato = self.ack.ato;
        if ato > self.profile.delay_min_ns {
            let is_long = self.ack.is_pingpong(&self.profile) || self.ack.pushed > 0;
            let mut most = if is_long { self.profile.delay_max_ns } else { 500_000_000 };
            if let Some(srtt) = self.congestion.srtt_ns() {
                most = most.min(srtt.max(self.profile.delay_min_ns));
            }
            ato = ato.min(most);
        }
        ato = ato.min(self.profile.delay_max_ns);
        let due = self.profile.timer(now, ato);
        if self.ack.due != NEVER {
            // The one under way is nearly over.
            if self.ack.due <= now + ato / 4 {
                return self.send_ack(now, out);
            }
            self.ack.due = self.ack.due.min(due);
        } else {
            self.ack.due = due;
        }
    }

    /// The delay is over (Linux `tcp_delack_timer_handler`).
    pub(super) fn delay_is_over(&mut self, now: Ns, out: &mut Vec<Segment>) {
        if self.ack.rule == AckRule::Linux {
            if self.ack.is_pingpong(&self.profile) {
                // No conversation after all.
                (self.ack.pingpong, self.ack.ato) = (0, ATO_MIN);
            } else {
                self.ack.ato = (self.ack.ato * 2).min(self.congestion.rto_ns());
            }
        }
        self.send_ack(now, out);
    }

    /// Whether the application's reading makes an acknowledgement due (Linux `__tcp_cleanup_rbuf`).
    #[inline]
    pub(super) fn ack_after_read(&self) -> bool {
        let ack = &self.ack;
        if ack.is_owed && ack.rule == AckRule::Linux {
            let new = self.rcv_nxt - ack.acked;
            let is_pushed = ack.pushed & 2 != 0 || (ack.pushed & 1 != 0 && !ack.is_pingpong(&self.profile));
            if new > u64::from(ack.rcv_mss) || (is_pushed && self.readable() == 0) {
                return true;
            }
        }
        // The window has doubled for the peer.
        let left = ack.edge.saturating_sub(self.rcv_nxt);
        2 * left <= self.options.receive_buffer_bytes && self.edge_now() - self.rcv_nxt >= (2 * left).max(1)
    }

    pub(super) fn send_ack(&mut self, _now: Ns, out: &mut Vec<Segment>) {
        let (ack, edge) = self.ack_fields();
        out.push(Segment { seq: self.nxt, bytes: 0, ack, edge, push: false, again: false });
    }

    /// How far the peer may go.
    #[inline]
    fn edge_now(&self) -> u64 {
        let edge = self.copied + self.options.receive_buffer_bytes;
        // Small steps are not told (RFC 1122 4.2.3.3; Linux `__tcp_select_window`).
        let step = u64::from(self.options.mss_bytes).min(self.options.receive_buffer_bytes / 2);
        if edge.saturating_sub(self.rcv_nxt) < step { self.ack.edge } else { edge.max(self.ack.edge) }
    }

    /// What a segment that leaves says, which pays what is owed (Linux `tcp_event_ack_sent`).
    #[inline]
    pub(super) fn ack_fields(&mut self) -> (u64, u64) {
        let edge = self.edge_now();
        let ack = &mut self.ack;
        if ack.is_owed && ack.quick > 0 {
            ack.quick -= 1;
            if ack.quick == 0 {
                ack.ato = ATO_MIN;
            }
        }
        (ack.acked, ack.edge, ack.is_owed, ack.pushed, ack.due) = (self.rcv_nxt, edge, false, 0, NEVER);
        (ack.acked, edge)
    }
}
