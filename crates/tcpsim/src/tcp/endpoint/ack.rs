//! When acknowledgements leave: with data, after a delay, or at once (RFC 1122 4.2.3.2; Linux `__tcp_ack_snd_check`).

use super::{Endpoint, NEVER, Options};
use crate::Ns;
use crate::profile::{AckRule, Profile};
use crate::tcp::Segment;

/// Segment payload that a receiver assumes before it has seen one (Linux `TCP_MSS_DEFAULT`).
const MSS_DEFAULT: u32 = 536;
/// Smallest segment payload that a sender without PSH may have as its full size (Linux `TCP_MIN_MSS`).
const MSS_LEAST: u32 = 88;
/// TCP header without options, and with timestamps: Linux compares lengths that include it.
const HEADER_BYTES: u32 = 20;
const HEADER_BYTES_TIMESTAMPS: u32 = 32;
/// Longest delay outside a conversation (Linux `HZ / 2` in `tcp_send_delayed_ack`).
const DELAY_MAX: Ns = 500_000_000;
/// The header fields of a segment that acknowledge data and offer window.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckFields {
    pub(super) ack: u64,
    pub(super) edge: u64,
}

/// The receive side's acknowledgement state: what was acknowledged last, what is owed, and the delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckState {
    rule: AckRule,
    /// The last acknowledged offset, and the window edge offered with it.
    acked: u64,
    edge: u64,
    is_owed: bool,
    /// The application's next read acknowledges: after one small segment outside a conversation, after two in any case
    /// (Linux `ICSK_ACK_PUSHED`, `ICSK_ACK_PUSHED2`).
    pushed: u8,
    /// Acknowledgements that are still sent without delay.
    quick: u32,
    /// Replies within the delay: above the profile's threshold the connection is a conversation.
    pingpong: u32,
    /// The least value of the present delay (Linux `TCP_ATO_MIN`, equal to `TCP_DELACK_MIN`).
    ato_min: Ns,
    /// The present delay.
    ato: Ns,
    /// When data arrived last.
    arrived_at: Option<Ns>,
    /// The estimated size of the peer's segments, and the size of the last small one.
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
            ato_min: profile.delay_min_ns,
            ato: 0,
            arrived_at: None,
            rcv_mss: options.mss_bytes.min(MSS_DEFAULT),
            last_bytes: 0,
            due: NEVER,
        }
    }

    pub(super) fn is_pingpong(&self, profile: &Profile) -> bool {
        self.pingpong >= profile.pingpong
    }

    /// Data is sent: within the delay of received data it counts as a reply (Linux `tcp_event_data_sent`).
    #[inline]
    pub(super) fn data_sent(&mut self, now: Ns) {
        if self.arrived_at.is_some_and(|arrived| now - arrived < self.ato) {
            self.pingpong = self.pingpong.saturating_add(1);
        }
    }

    /// Updates the estimate of the peer's segment size (Linux `tcp_measure_rcv_mss`).
    #[inline]
    fn measure(&mut self, segment: &Segment, options: &Options) {
        let (mss, header) =
            (options.mss_bytes, if options.timestamps { HEADER_BYTES_TIMESTAMPS } else { HEADER_BYTES });
        let (bytes, last) = (segment.bytes.min(mss), std::mem::take(&mut self.last_bytes));
        if bytes >= self.rcv_mss {
            self.rcv_mss = bytes;
            if segment.push {
                self.pushed |= 1;
            }
            return;
        }
        // A small segment may still be the peer's full size: above the default, or above the least and without PSH.
        if bytes + header >= MSS_DEFAULT + HEADER_BYTES
            || (bytes + header >= MSS_LEAST + HEADER_BYTES && !segment.push)
        {
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
    /// Takes a segment's data (Linux `tcp_data_queue`, `tcp_event_data_recv`).
    #[inline]
    pub(super) fn process_data(&mut self, now: Ns, segment: &Segment) {
        let (seq, end) = (segment.seq, segment.end());
        if seq > self.rcv_nxt || end <= self.rcv_nxt || end > self.copied + self.options.receive_buffer_bytes
        {
            if seq > self.rcv_nxt && end <= self.copied + self.options.receive_buffer_bytes {
                self.reassembly.insert(seq, end);
            }
            // Out of order, duplicate or beyond the window: acknowledged without delay (RFC 5681 4.2).
            self.ack.is_owed = true;
            self.ack.quick = self.ack.quick.max(1);
            self.ack.pingpong = 0;
            return;
        }
        let fills_gap = !self.reassembly.is_empty();
        self.rcv_nxt = self.reassembly.advance(end);
        let (rto, options) = (self.congestion.rto_ns(), &self.options);
        let budget = self.profile.quick_acks;
        let quick = ((self.options.receive_buffer_bytes / (2 * u64::from(self.ack.rcv_mss))).max(2) as u32)
            .min(budget);
        let ack = &mut self.ack;
        ack.is_owed = true;
        if fills_gap {
            ack.quick = ack.quick.max(1);
        }
        if ack.rule == AckRule::EverySecond {
            ack.arrived_at = Some(now);
            return;
        }
        ack.measure(segment, options);
        match ack.arrived_at.map(|arrived| now - arrived) {
            None => (ack.quick, ack.ato) = (ack.quick.max(quick), ack.ato_min),
            Some(gap) if gap <= ack.ato_min / 2 => ack.ato = ack.ato / 2 + ack.ato_min / 2,
            Some(gap) if gap < ack.ato => ack.ato = (ack.ato / 2 + gap).min(rto),
            // After a pause longer than the time-out the peer may be in slow start, which quick acknowledgements open.
            Some(gap) if gap > rto => ack.quick = ack.quick.max(quick),
            Some(_) => {}
        }
        ack.arrived_at = Some(now);
    }

    /// Sends the owed acknowledgement, or delays it (Linux `__tcp_ack_snd_check`).
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
                    || !self.reassembly.is_empty()
                    || (new > u64::from(self.ack.rcv_mss) && self.edge_now() >= self.ack.edge)
            }
        };
        if is_due { self.send_ack(out) } else { self.delay_ack(now, out) }
    }

    /// Sets the delay timer (Linux `tcp_send_delayed_ack`).
    #[inline]
    fn delay_ack(&mut self, now: Ns, out: &mut Vec<Segment>) {
        if self.ack.rule == AckRule::EverySecond {
            self.ack.due = self.profile.timer(now, self.profile.delay_min_ns);
            return;
        }
        let mut ato = self.ack.ato;
        if ato > self.profile.delay_min_ns {
            let is_long = self.ack.is_pingpong(&self.profile) || self.ack.pushed > 0;
            let mut most = if is_long { self.profile.delay_max_ns } else { DELAY_MAX };
            if let Some(srtt) = self.congestion.srtt_ns() {
                most = most.min(srtt.max(self.profile.delay_min_ns));
            }
            ato = ato.min(most);
        }
        ato = ato.min(self.profile.delay_max_ns);
        let due = self.profile.timer(now, ato);
        if self.ack.due != NEVER {
            // The running delay ends within a quarter of a new one.
            if self.ack.due <= now + ato / 4 {
                return self.send_ack(out);
            }
            self.ack.due = self.ack.due.min(due);
        } else {
            self.ack.due = due;
        }
    }

    /// The delay timer ended (Linux `tcp_delack_timer_handler`).
    pub(super) fn delay_ended(&mut self, out: &mut Vec<Segment>) {
        if self.ack.rule == AckRule::Linux {
            if self.ack.is_pingpong(&self.profile) {
                // No reply within the delay: not a conversation.
                (self.ack.pingpong, self.ack.ato) = (0, self.ack.ato_min);
            } else {
                self.ack.ato = (self.ack.ato * 2).min(self.congestion.rto_ns());
            }
        }
        self.send_ack(out);
    }

    /// Whether an acknowledgement is due after the application read (Linux `__tcp_cleanup_rbuf`).
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
        // The offered window would at least double.
        let left = ack.edge.saturating_sub(self.rcv_nxt);
        2 * left <= self.options.receive_buffer_bytes && self.edge_now() - self.rcv_nxt >= (2 * left).max(1)
    }

    /// Sends an acknowledgement without data.
    pub(super) fn send_ack(&mut self, out: &mut Vec<Segment>) {
        let AckFields { ack, edge } = self.ack_fields();
        out.push(Segment { seq: self.snd_nxt, bytes: 0, ack, edge, push: false, retransmitted: false });
    }

    /// The window edge to offer: never moved back.
    #[inline]
    fn edge_now(&self) -> u64 {
        let edge = self.copied + self.options.receive_buffer_bytes;
        // The window does not open by less than a segment (silly window avoidance, RFC 1122 4.2.3.3; Linux
        // `__tcp_select_window`).
        let least = u64::from(self.options.mss_bytes).min(self.options.receive_buffer_bytes / 2);
        if edge.saturating_sub(self.rcv_nxt) < least { self.ack.edge } else { edge.max(self.ack.edge) }
    }

    /// The acknowledgement that the segment to be sent carries; nothing is owed afterwards (Linux `tcp_event_ack_sent`).
    #[inline]
    pub(super) fn ack_fields(&mut self) -> AckFields {
        let edge = self.edge_now();
        let ack = &mut self.ack;
        if ack.is_owed && ack.quick > 0 {
            ack.quick -= 1;
            if ack.quick == 0 {
                ack.ato = ack.ato_min;
            }
        }
        (ack.acked, ack.edge, ack.is_owed, ack.pushed, ack.due) = (self.rcv_nxt, edge, false, 0, NEVER);
        AckFields { ack: ack.acked, edge }
    }
}
