//! When written bytes leave (Linux `tcp_write_xmit` and what it asks).

use super::Segment;
use super::endpoint::{Endpoint, Flying, NEVER};
use super::hold::Hold;
use crate::Ns;
use crate::profile::NagleForm;

/// What the kernel counts for a buffer besides its bytes, and adds for each segment in a device.
pub(super) const SKB_BYTES: u32 = 768;

/// Deferred offloads wait no longer than this after the last segment left (Linux `tcp_tso_should_defer`).
const DEFER_NS: Ns = 1_000_000;

/// How a push may send a small last segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Push {
    pub(super) nodelay: bool,
    pub(super) corked: bool,
    pub(super) at_once: bool,
}

impl Endpoint {
    #[inline]
    pub(super) fn push_mode(&self) -> Push {
        Push { nodelay: self.nodelay, corked: self.cork, at_once: self.pushes }
    }

    /// Sends what may leave; what may not is held, and why is noted.
    #[inline]
    pub(super) fn push(&mut self, now: Ns, push: Push, out: &mut Vec<Segment>) {
        let hold = loop {
            if self.end == self.nxt {
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
        // Nothing in flight, so no acknowledgement will come: a timer sends what waits (Linux
        // `tcp_check_probe_timer`).
        if hold.is_none() || !self.flying.is_empty() || hold == Some(Hold::Device) {
            self.probe_at = NEVER;
        } else if self.probe_at == NEVER {
            self.probe_at = self.profile.timer(now, self.congestion.rto_ns());
        }
    }

    /// Bytes of the next segment, or what holds it.
    #[inline]
    fn next_bytes(&mut self, now: Ns, push: Push) -> Result<u64, Hold> {
        let mss = u64::from(self.options.mss_bytes);
        let unsent = self.end - self.nxt;
        self.device_done(now);
        if self.in_device > self.options.device_bytes {
            return Err(Hold::Device);
        }
        let segments = u64::from(self.congestion.room(self.flying.len()));
        if segments == 0 {
            self.congestion.was_limited();
            return Err(Hold::Congestion);
        }
        let window = self.peer_edge.saturating_sub(self.nxt);
        // No smaller segment than there is, for want of window (RFC 1122 4.2.3.4; Linux `tcp_snd_wnd_test`).
        if window < unsent.min(mss) {
            return Err(Hold::Window);
        }
        let bytes = unsent.min(mss * segments.min(self.options.offload_segments.into())).min(window);
        let part = bytes % mss;
        if bytes < unsent {
            // Cut by an offload's size or a window: whole segments only.
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

    /// What holds a small last segment (Linux `tcp_nagle_test`, `tcp_nagle_check`).
    #[inline]
    fn holds_small(&self, push: Push) -> Option<Hold> {
        if push.at_once {
            return None;
        }
        if push.corked {
            return Some(Hold::Cork);
        }
        let waits_for_ack = match self.profile.nagle {
            NagleForm::Rfc896 => !self.flying.is_empty(),
            NagleForm::Minshall => !self.flying.is_empty() && self.small_end > self.una,
        };
        (!push.nodelay && waits_for_ack).then_some(Hold::Nagle)
    }

    /// A large segment that an acknowledgement would soon make larger waits for it (Linux `tcp_tso_should_defer`).
    fn defers(&self, now: Ns, bytes: u64, unsent: u64) -> bool {
        let mss = u64::from(self.options.mss_bytes);
        let full = mss * u64::from(self.options.offload_segments);
        let wanted = full.min(unsent);
        let Some(last) = self.flying.back() else { return false };
        // A third of what may be in flight is worth a send of its own.
        let third = (u64::from(self.congestion.window()) * mss).min(self.peer_edge - self.una) / 3;
        self.options.offload_segments > 1 && bytes < wanted && bytes < third && now - last.sent_at < DEFER_NS
    }

    #[inline]
    fn emit(&mut self, now: Ns, bytes: u64, out: &mut Vec<Segment>) {
        let (seq, mss) = (self.nxt, u64::from(self.options.mss_bytes));
        let was_idle = self.flying.is_empty();
        while self.nxt < seq + bytes {
            self.nxt = (self.nxt + mss).min(seq + bytes);
            self.flying.push_back(Flying { end: self.nxt, sent_at: now, again: false });
        }
        self.congestion.flies(self.flying.len());
        if !bytes.is_multiple_of(mss) {
            self.small_end = self.nxt;
        }
        if was_idle {
            self.rto_at = self.profile.timer(now, self.congestion.rto_ns());
        }
        let push = self.nxt == self.end;
        self.ack.data_sent(now);
        let (ack, edge) = self.ack_fields();
        out.push(Segment { seq, bytes: bytes as u32, ack, edge, push, again: false });
    }

    /// Sends the first segment that is not acknowledged again.
    pub(super) fn send_again(&mut self, now: Ns, out: &mut Vec<Segment>) {
        let Some(first) = self.flying.front_mut() else { return };
        (first.again, first.sent_at) = (true, now);
        let (seq, bytes, push) = (self.una, (first.end - self.una) as u32, first.end == self.end);
        let (ack, edge) = self.ack_fields();
        out.push(Segment { seq, bytes, ack, edge, push, again: true });
    }

    /// What waited without hope of an acknowledgement leaves (Linux `tcp_write_wakeup`).
    pub(super) fn probe(&mut self, now: Ns, out: &mut Vec<Segment>) {
        self.probe_at = NEVER;
        let window = self.peer_edge.saturating_sub(self.nxt);
        let bytes = (self.end - self.nxt).min(self.options.mss_bytes.into()).min(window);
        if bytes > 0 {
            self.emit(now, bytes, out);
            self.push(now, self.push_mode(), out);
        } else if self.end > self.nxt {
            // Asks for the window: a segment of nothing, which is answered.
            let (ack, edge) = self.ack_fields();
            out.push(Segment { seq: self.nxt, bytes: 0, ack, edge, push: false, again: true });
            self.probe_at = self.profile.timer(now, self.congestion.backed_off_ns());
        }
    }

    /// The device sends one thing after another.
    #[inline]
    fn device_done(&mut self, now: Ns) {
        while let Some(&(done, counted)) = self.device.front()
            && done <= now
        {
            self.device.pop_front();
            self.in_device -= u64::from(counted);
        }
    }

    /// A small write waits for the device to be done with what it has (Linux `tcp_should_autocork`).
    #[inline]
    pub(super) fn autocorks(&mut self, now: Ns) -> bool {
        if !self.profile.autocork || self.flying.is_empty() {
            return false;
        }
        let waits = self.end - self.nxt;
        self.device_done(now);
        waits < u64::from(self.options.mss_bytes) && self.in_device >= waits + u64::from(SKB_BYTES)
    }
}
