//! Turns of messages: a request whose answer may go on until the next request begins, because nothing in its messages says where it ends.

use record::{Key, Status, Word};

use super::{Asked, Of, Passing, Requests};
use crate::http::{Mark, resume};

impl Requests {
    /// As [`Requests::ask`], with a key that has been named.
    pub(crate) fn ask_for(&mut self, of: Of, operation: Word, key: Key) {
        self.ask(of, &Asked::only(operation));
        if let Some(open) = self.newest(of) {
            open.exchange.key = key;
        }
    }

    /// Whether the packet of the message at hand left its server behind the request: earlier ones answer something else.
    pub(crate) fn is_received(&self, of: Of) -> bool {
        let open = match of {
            Of::Order => self.queue.front(),
            Of::Id(id) => self.by_id.get(&id),
        };
        open.is_some_and(|open| !resume::is_unread(open.mark, self.passing.mark))
    }

    /// Where the message at hand begins in its sender's stream, and what that had received of the other one.
    pub(crate) fn place(&self) -> Mark {
        let Passing { begin_seq, mark, .. } = self.passing;
        Mark { seq: begin_seq, ack: mark.ack }
    }

    /// Whether the sender of the message at hand had received what is not in the capture.
    pub(crate) fn is_behind_unseen(&self) -> bool {
        self.is_behind_unseen
    }

    /// The request may be several, or none.
    pub(crate) fn overlaps(&mut self, of: Of) {
        if let Some(open) = self.newest(of) {
            open.exchange.overlaps = true;
        }
    }

    /// As [`Requests::answered`], with what is told only when [`Requests::settle`] says that the answer has no further message.
    pub(crate) fn answered_so_far(&mut self, of: Of, status: Status, overlaps: bool) {
        let before = self.done.len();
        self.answered(of, status);
        if self.done.len() > before {
            self.settle_before(before);
            self.latest = self.done.pop();
        }
        if let Some(latest) = &mut self.latest {
            latest.overlaps = overlaps;
        }
    }

    /// The message at hand is a further one of the last answer.
    pub(crate) fn answer_more(&mut self) {
        let super::Passing { ended, bytes, end_seq, .. } = self.passing;
        let Some(latest) = &mut self.latest else { return };
        latest.overlaps = true;
        let op = &mut latest.op;
        op.response_bytes = op.response_bytes.saturating_add(super::saturated(bytes));
        op.data_bytes = op.data_bytes.max(op.response_bytes);
        op.kind = super::kind_of(op.request_bytes, op.response_bytes);
        (latest.response.ended, latest.response.last_frame) = (record::Stamp::at(ended.ns), ended.frame);
        latest.response_end_seq = end_seq;
    }

    /// Whether the client had received the last answer when it sent the message at hand. If it had not, the answer may be several.
    pub(crate) fn has_waited(&mut self) -> bool {
        let ack = self.passing.mark.ack;
        let Some(latest) = &mut self.latest else { return true };
        let has_waited = ack.wrapping_sub(latest.response_end_seq).cast_signed() >= 0;
        latest.overlaps |= !has_waited;
        has_waited
    }

    /// The last answer has no further message.
    pub(crate) fn settle(&mut self) {
        self.done.extend(self.latest.take());
    }

    /// The same, where another one has ended behind so many.
    fn settle_before(&mut self, place: usize) {
        if let Some(latest) = self.latest.take() {
            self.done.insert(place, latest);
        }
    }
}
