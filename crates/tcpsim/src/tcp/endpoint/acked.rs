//! The send side's reaction to the peer's acknowledgements and to their absence.

use super::ack::AckFields;
use super::{Endpoint, NEVER};
use crate::Ns;
use crate::tcp::Segment;
use crate::tcp::congestion::Reaction;

impl Endpoint {
    /// Takes what a segment acknowledges, and the window that it offers (Linux `tcp_ack`).
    #[inline]
    pub(super) fn process_ack(&mut self, now: Ns, segment: &Segment, out: &mut Vec<Segment>) {
        let edge = self.peer_edge.max(segment.edge);
        let is_window_update = edge > self.peer_edge;
        self.peer_edge = edge;
        let ack = segment.ack.min(self.snd_nxt);
        if ack > self.snd_una {
            self.snd_una = ack;
            let (mut segments, mut rtt) = (0, None);
            while let Some(first) = self.in_flight.front()
                && first.end <= ack
            {
                // A retransmitted segment gives no round trip: which copy was acknowledged is unknown (RFC 6298 3).
                rtt = (!first.retransmitted).then(|| now - first.sent_at);
                segments += 1;
                self.in_flight.pop_front();
            }
            if let Some(rtt) = rtt {
                self.congestion.measured(rtt);
            }
            if self.congestion.acknowledged(ack, segments) == Reaction::Retransmit {
                self.retransmit(now, out);
            }
            self.rto_at = if self.in_flight.is_empty() {
                NEVER
            } else {
                self.profile.timer(now, self.congestion.rto_ns())
            };
        } else if segment.bytes == 0
            && !is_window_update
            && ack == self.snd_una
            && !self.in_flight.is_empty()
            && self.congestion.duplicate(self.in_flight.len(), self.snd_nxt) == Reaction::Retransmit
        {
            self.retransmit(now, out);
        }
    }

    /// The retransmission timer ended (RFC 6298 5).
    pub(super) fn time_out(&mut self, now: Ns, out: &mut Vec<Segment>) {
        self.congestion.timed_out(self.in_flight.len(), self.snd_nxt);
        self.retransmit(now, out);
        self.rto_at = self.profile.timer(now, self.congestion.backed_off_ns());
    }

    /// Sends the first segment that is not acknowledged once more.
    fn retransmit(&mut self, now: Ns, out: &mut Vec<Segment>) {
        let Some(first) = self.in_flight.front_mut() else { return };
        (first.retransmitted, first.sent_at) = (true, now);
        let (seq, bytes, push) = (self.snd_una, (first.end - self.snd_una) as u32, first.end == self.snd_end);
        let AckFields { ack, edge } = self.ack_fields();
        out.push(Segment { seq, bytes, ack, edge, push, retransmitted: true });
    }
}
