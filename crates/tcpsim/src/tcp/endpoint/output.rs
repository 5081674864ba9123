//! When written bytes are sent (Linux `tcp_write_xmit` and the tests that it makes).

use super::ack::AckFields;
use super::{Endpoint, InDevice, InFlight, NEVER};
use crate::Ns;
use crate::profile::NagleForm;
use crate::tcp::Segment;
use crate::tcp::hold::Hold;

/// The memory that the kernel counts for a buffer besides its data (`skb->truesize`), for each segment in a device.
pub(super) const SKB_BYTES: u32 = 768;

/// A large segment is deferred no longer than this after the last one was sent (Linux `tcp_tso_should_defer`).
const DEFER_NS: Ns = 1_000_000;

/// What holds a small last segment back during one push.
#[derive(Clone, Copy, Debug)]
pub(super) struct Push {
    /// Nagle's algorithm is off.
    pub(super) nodelay: bool,
    /// TCP_CORK or MSG_MORE.
    pub(super) corked: bool,
    /// Nothing does (Linux `TCP_NAGLE_PUSH`).
    pub(super) forced: bool,
}

impl Endpoint {
    #[inline]
    pub(super) fn push_mode(&self) -> Push {
        Push { nodelay: self.nodelay, corked: self.cork, forced: self.forces_push }
    }

    /// Sends what may be sent, and records what holds the rest.
    #[inline]
    pub(super) fn push(&mut self, now: Ns, push: Push, out: &mut Vec<Segment>) {
        self.restart_after_idle(now);
        let hold = loop {
            if self.snd_end == self.snd_nxt {
                break None;
            }
            match self.next_bytes(now, push) {
                Ok(bytes) => self.emit(now, bytes, out),
                Err(hold) => break Some(hold),
            }
        };
        if hold != self.hold.present() {
            self.hold.set(now, hold);
        }
        // With nothing in flight no acknowledgement will trigger a push: the probe timer does (Linux
        // `tcp_check_probe_timer`).
        if hold.is_none() || !self.in_flight.is_empty() || hold == Some(Hold::Device) {
            self.probe_at = NEVER;
        } else if self.probe_at == NEVER {
            self.probe_at = self.profile.timer(now, self.congestion.rto_ns());
        }
    }

    /// Reduces the congestion window when nothing was sent for a time-out (Linux `tcp_cwnd_restart`).
    #[inline]
    fn restart_after_idle(&mut self, now: Ns) {
        if self.options.slow_start_after_idle
            && self.in_flight.is_empty()
            && self.snd_end > self.snd_nxt
            && let Some(sent_at) = self.sent_at
            && now - sent_at > self.congestion.rto_ns()
        {
            self.congestion.restart(self.options.initial_window);
        }
    }

    /// Bytes of the next segment, or what holds it back.
    #[inline]
    fn next_bytes(&mut self, now: Ns, push: Push) -> Result<u64, Hold> {
        let mss = u64::from(self.options.mss_bytes);
        let unsent = self.snd_end - self.snd_nxt;
        self.update_device(now);
        if self.in_device > self.options.device_bytes {
            return Err(Hold::Device);
        }
        let segments = u64::from(self.congestion.room(self.in_flight.len()));
        if segments == 0 {
            self.congestion.was_limited();
            return Err(Hold::Congestion);
        }
        let window = self.peer_edge.saturating_sub(self.snd_nxt);
        // A segment is not cut because the window is small (RFC 1122 4.2.3.4; Linux `tcp_snd_wnd_test`).
        if window < unsent.min(mss) {
            return Err(Hold::Window);
        }
        let bytes = unsent.min(mss * segments.min(self.options.offload_segments.into())).min(window);
        let part = bytes % mss;
        if bytes < unsent {
            // Cut by the offload's size or a window: only full segments are sent.
            if self.defers(now, bytes, unsent) {
                return Err(Hold::Congestion);
            }
            return Ok(if bytes > mss { bytes - part } else { bytes });
        }
        if part == 0 {
            return Ok(bytes);
        }
        match self.holds_small(push) {
            None => Ok(bytes),
            Some(_) if bytes > mss => Ok(bytes - part),
            Some(hold) => Err(hold),
        }
    }

    /// What holds a small last segment back (Linux `tcp_nagle_test`, `tcp_nagle_check`).
    #[inline]
    fn holds_small(&self, push: Push) -> Option<Hold> {
        if push.forced {
            return None;
        }
        if push.corked {
            return Some(Hold::Cork);
        }
        let waits_for_ack = match self.profile.nagle {
            NagleForm::Rfc896 => !self.in_flight.is_empty(),
            NagleForm::Minshall => !self.in_flight.is_empty() && self.small_end > self.snd_una,
        };
        (!push.nodelay && waits_for_ack).then_some(Hold::Nagle)
    }

    /// Whether a large segment waits for the acknowledgement that lets it grow (Linux `tcp_tso_should_defer`).
    fn defers(&self, now: Ns, bytes: u64, unsent: u64) -> bool {
        let mss = u64::from(self.options.mss_bytes);
        let full = mss * u64::from(self.options.offload_segments);
        let wanted = full.min(unsent);
        let Some(last) = self.in_flight.back() else { return false };
        // A third of the usable window is sent without waiting (Linux `tcp_tso_win_divisor`).
        let third = (u64::from(self.congestion.window()) * mss).min(self.peer_edge - self.snd_una) / 3;
        self.options.offload_segments > 1 && bytes < wanted && bytes < third && now - last.sent_at < DEFER_NS
    }

    /// Sends `bytes` as one segment, or as one offload of several.
    #[inline]
    fn emit(&mut self, now: Ns, bytes: u64, out: &mut Vec<Segment>) {
        let (seq, mss) = (self.snd_nxt, u64::from(self.options.mss_bytes));
        let was_idle = self.in_flight.is_empty();
        while self.snd_nxt < seq + bytes {
            self.snd_nxt = (self.snd_nxt + mss).min(seq + bytes);
            self.in_flight.push_back(InFlight { end: self.snd_nxt, sent_at: now, retransmitted: false });
        }
        self.congestion.sent(self.in_flight.len());
        self.sent_at = Some(now);
        if !bytes.is_multiple_of(mss) {
            self.small_end = self.snd_nxt;
        }
        if was_idle {
            self.rto_at = self.profile.timer(now, self.congestion.rto_ns());
        }
        let push = self.snd_nxt == self.snd_end;
        self.ack.data_sent(now);
        let AckFields { ack, edge } = self.ack_fields();
        out.push(Segment { seq, bytes: bytes as u32, ack, edge, push, retransmitted: false });
    }

    /// The probe timer ended: sends what the window allows, or asks for window (Linux `tcp_write_wakeup`).
    pub(super) fn probe(&mut self, now: Ns, out: &mut Vec<Segment>) {
        self.probe_at = NEVER;
        let window = self.peer_edge.saturating_sub(self.snd_nxt);
        let bytes = (self.snd_end - self.snd_nxt).min(self.options.mss_bytes.into()).min(window);
        if bytes > 0 {
            self.emit(now, bytes, out);
            self.push(now, self.push_mode(), out);
        } else if self.snd_end > self.snd_nxt {
            // An empty segment: the peer answers it with its present window.
            let AckFields { ack, edge } = self.ack_fields();
            out.push(Segment { seq: self.snd_nxt, bytes: 0, ack, edge, push: false, retransmitted: true });
            self.probe_at = self.profile.timer(now, self.congestion.backed_off_ns());
        }
    }

    /// Drops what the device has sent by now.
    #[inline]
    fn update_device(&mut self, now: Ns) {
        while let Some(&InDevice { done, counted }) = self.device.front()
            && done <= now
        {
            self.device.pop_front();
            self.in_device -= u64::from(counted);
        }
    }

    /// Whether a small write waits until the device has sent what it holds (Linux `tcp_should_autocork`).
    #[inline]
    pub(super) fn autocorks(&mut self, now: Ns) -> bool {
        if !self.profile.autocork || self.in_flight.is_empty() {
            return false;
        }
        let unsent = self.snd_end - self.snd_nxt;
        self.update_device(now);
        unsent < u64::from(self.options.mss_bytes) && self.in_device >= unsent + u64::from(SKB_BYTES)
    }
}
