//! Requests with numbers whose answers may be in a hole, or come still.

use record::Verb;

use super::{Of, Requests};

impl Requests {
    /// Answers are in a hole, perhaps those of the requests with numbers that are in flight. A number tells whose answer comes behind it,
    /// unless the client may have used it again in a hole of its own; requests of which a part of the answer is missing, or of an
    /// operation that has several messages of answer (`has_parts`), are dropped: what is seen of it may not be its first.
    pub(crate) fn lost_numbered_answers(&mut self, has_parts: impl Fn(&str) -> bool) {
        let is_unsure = self.has_unseen;
        self.drop_numbered(|open| {
            let has_parts = match open.exchange.op.verb {
                Verb::Command(operation) => has_parts(operation.as_str()),
                _ => true,
            };
            is_unsure || open.exchange.response.began.is_known() || has_parts
        });
        self.by_id.values_mut().for_each(|open| open.is_doubtful = true);
        self.has_doubtful = !self.by_id.is_empty();
    }

    /// Requests with numbers are in a hole: the numbers of those whose answers may have been missed may be used again in it.
    pub(crate) fn lost_numbered_requests(&mut self) {
        self.drop_numbered(|open| open.is_doubtful);
        self.has_doubtful = false;
        self.has_unseen = !self.by_id.is_empty();
    }

    /// Whether the request's answer may be in a hole.
    pub(crate) fn is_doubtful(&self, of: Of) -> bool {
        matches!(of, Of::Id(id) if self.has_doubtful && self.by_id.get(&id).is_some_and(|open| open.is_doubtful))
    }

    /// What is seen of a request's answer may not be its first part.
    pub(crate) fn drop_doubtful(&mut self, of: Of) {
        self.counted.abandoned += u64::from(self.is_open(of));
        self.forget(of);
    }

    /// A request is answered: those in doubt that were sent before it were answered in the hole, most likely.
    pub(super) fn settle_doubt(&mut self, id: u64) {
        let Some(tag) = self.by_id.get(&id).map(|open| open.exchange.op.tag) else { return };
        self.drop_numbered(|open| open.is_doubtful && open.exchange.op.tag < tag);
        if let Some(open) = self.by_id.get_mut(&id) {
            open.is_doubtful = false;
        }
        self.has_doubtful = self.by_id.values().any(|open| open.is_doubtful);
    }

    fn drop_numbered(&mut self, is_dropped: impl Fn(&super::Open) -> bool) {
        let before = self.by_id.len();
        self.by_id.retain(|_, open| !is_dropped(open));
        let dropped = before - self.by_id.len();
        self.counted.abandoned += dropped as u64;
        self.pace.forget(dropped, self.passing.ended);
    }
}
