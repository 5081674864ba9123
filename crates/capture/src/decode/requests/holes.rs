//! What a hole in a connection's bytes says of its requests and answers.

use record::Side;

use super::Requests;
use crate::http::{Mark, resume};

impl Requests {
    /// Bytes of a side are missing.
    pub(in crate::decode) fn has_hole(&mut self, side: Side) {
        self.has_unseen_request |= side == Side::Client && !self.queue.is_empty();
        if self.recovery.is_some() {
            // What is in flight is counted anew.
            self.recover();
        } else if side == Side::Client {
            // A hole of answers leaves requests in flight for ever, by which it is measured; one of requests does not.
            self.lost_order();
        }
        if side == Side::Client {
            self.is_unit_cut |= self.has_units && self.is_within_unit;
        } else {
            self.unseen.forget();
            self.has_lost_answers = true;
        }
        let has_hole = self.order.has_hole;
        self.interrupted();
        if side == Side::Client {
            // No answer is in it.
            self.order.has_hole = has_hole;
        }
    }

    /// The server sends: the missing requests are answered, and the next ones do not leave with them.
    pub(in crate::decode) fn is_answering(&mut self, packet: Mark) {
        self.has_lost_requests = false;
        self.answering = Some(packet);
    }

    /// Bytes of the client in which requests may begin, up to a sequence number if that is known, are missing or tell nothing: a hole, or
    /// what a snap length has cut (`is_cut`).
    pub(in crate::decode) fn misses_requests(&mut self, end_seq: Option<u32>, is_cut: bool) {
        // A client that always waits for its answer sends no request together with another one; but what shows that may be cut.
        let may_leave_together = is_cut || !self.bursts.are_single();
        // Answers that none of those seen has are theirs, as far as the server had them.
        let has_had = |ack: u32| end_seq.is_none_or(|end| resume::distance(ack, end) >= 0);
        let are_answered = self.unasked_ack.is_some_and(has_had);
        self.has_lost_requests |= may_leave_together && !are_answered;
        self.received_lost = self.answering.filter(|answering| has_had(answering.ack));
        let is_certain = !self.order.has_hole
            && !self.has_lost_answers
            && self.recovery.is_none()
            && self.beginning.is_none();
        if !are_answered && is_certain {
            let in_flight = if self.has_units { self.units } else { self.in_flight() };
            // At least one is in the hole, unless it may hold no more than the rest of the newest.
            self.unseen.missing(in_flight + usize::from(!self.is_asking));
        }
    }

    /// Notes a hole, behind which answers may be those of requests that were not seen. Requests with numbers find theirs.
    pub(crate) fn interrupted(&mut self) {
        self.is_resuming = true;
        self.is_orphan = false;
        self.order.has_hole |= !self.queue.is_empty();
        self.pace.interrupted();
    }
}
