//! Requests with numbers whose answers may be in a hole, or come still.

use record::Verb;

use super::{IN_FLIGHT_MAX, Of, Open, Requests};

/// Shortest answer of a protocol with numbers, bytes: LDAP's have 14, those of DNS as well.
const ANSWER_MIN: u64 = 14;
/// Shortest part of an answer that others follow: an entry of LDAP with a short name.
const PART_MIN: u64 = 20;

/// Whether a part of the request's answer may be missing and another one be seen.
fn may_lack_part(open: &Open, has_parts: impl Fn(&str) -> bool) -> bool {
    let has_parts = match open.exchange.op.verb {
        Verb::Command(operation) => has_parts(operation.as_str()),
        _ => true,
    };
    open.exchange.response.began.is_known() || has_parts
}

impl Requests {
    /// Answers are in a hole, perhaps those of the requests with numbers that are in flight. A number tells whose answer comes behind it,
    /// unless the client may have used it again in a hole of its own; requests of which a part of the answer is missing, or of an
    /// operation that has several messages of answer (`has_parts`), are dropped: what is seen of it may not be its first.
    pub(crate) fn lost_numbered_answers(&mut self, has_parts: impl Fn(&str) -> bool) {
        self.drop_numbered(|open| may_lack_part(open, &has_parts));
        let before = self.set_aside.len();
        self.set_aside.retain(|_, open| !may_lack_part(open, &has_parts));
        self.counted.abandoned += (before - self.set_aside.len()) as u64;
        self.doubt();
    }

    /// The same, for a protocol that sends the parts of an answer one behind the other, so that a hole leaves a part of one answer at
    /// most: that is the first one which is seen behind it.
    pub(crate) fn lost_parts_of_answers(&mut self, has_parts: impl Fn(&str) -> bool) {
        for open in self.by_id.values_mut().chain(self.set_aside.values_mut()) {
            open.may_lack_part = may_lack_part(open, &has_parts);
        }
        self.doubt();
    }

    fn doubt(&mut self) {
        if self.has_unseen {
            self.forget_set_aside();
            self.drop_numbered(|_| true);
        }
        self.by_id.values_mut().for_each(|open| open.is_doubtful = true);
        self.has_doubtful = !self.by_id.is_empty();
        self.is_missing_answers = true;
    }

    /// Requests with numbers are in a hole: the numbers of those whose answers may have been missed may be used again in it.
    pub(crate) fn lost_numbered_requests(&mut self) {
        self.drop_numbered(|open| open.is_doubtful);
        self.forget_set_aside();
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

    /// Answers are seen again, behind so many bytes that were lost or told nothing.
    pub(crate) fn found_numbered_answers(&mut self, lost_bytes: u64) {
        if !std::mem::take(&mut self.is_missing_answers) {
            return;
        }
        self.drop_numbered(|open| open.may_lack_part && open.exchange.response.began.is_known());
        for open in self.by_id.values_mut() {
            open.is_doubtful = true;
            open.may_lack_part &= lost_bytes >= PART_MIN;
        }
        let lost = usize::try_from(lost_bytes / ANSWER_MIN).unwrap_or(usize::MAX).max(1);
        self.has_doubtful = !self.by_id.is_empty();
        self.answered_unseen = if self.has_doubtful { self.answered_unseen.saturating_add(lost) } else { 0 };
    }

    /// A request is answered. Those in doubt that were sent before it were answered in the hole, most likely, if as many as are in doubt
    /// can have been. They are set aside, where an answer finds them still: a server may answer in another order.
    pub(super) fn settle_doubt(&mut self, id: u64) {
        let Some(&Open { exchange, may_lack_part, is_doubtful, .. }) = self.by_id.get(&id) else { return };
        let tag = exchange.op.tag;
        if is_doubtful && self.is_behind_unseen {
            // The client may have used the number again, for a request that the capture has not.
            self.drop_numbered(|open| open.exchange.op.tag == tag);
        } else if may_lack_part {
            self.found_whole();
            self.drop_numbered(|open| open.exchange.op.tag == tag);
        }
        if self.by_id.values().filter(|open| open.is_doubtful).count() <= self.answered_unseen + 1 {
            let overtaken = self.by_id.extract_if(|_, open| open.is_doubtful && open.exchange.op.tag < tag);
            let before = self.set_aside.len();
            self.set_aside.extend(overtaken);
            self.pace.forget(self.set_aside.len() - before, self.passing.ended);
        }
        if self.set_aside.len() > IN_FLIGHT_MAX {
            self.forget_set_aside();
        }
        if let Some(open) = self.by_id.get_mut(&id) {
            open.is_doubtful = false;
        }
        self.has_doubtful = self.by_id.values().any(|open| open.is_doubtful);
    }

    /// A request that was set aside is answered after all.
    pub(super) fn take_back(&mut self, id: u64) {
        let Some(open) = self.set_aside.remove(&id) else { return };
        if open.may_lack_part {
            self.found_whole();
        }
        if open.may_lack_part || self.is_behind_unseen {
            self.counted.abandoned += 1;
        } else {
            self.pace.is_back(self.passing.ended);
            self.by_id.insert(id, open);
        }
    }

    /// What may lack a part has been seen: all others are whole.
    fn found_whole(&mut self) {
        self.by_id
            .values_mut()
            .chain(self.set_aside.values_mut())
            .for_each(|open| open.may_lack_part = false);
    }

    pub(super) fn forget_set_aside(&mut self) {
        self.counted.abandoned += self.set_aside.len() as u64;
        self.set_aside.clear();
    }

    fn drop_numbered(&mut self, is_dropped: impl Fn(&Open) -> bool) {
        let before = self.by_id.len();
        self.by_id.retain(|_, open| !is_dropped(open));
        let dropped = before - self.by_id.len();
        self.counted.abandoned += dropped as u64;
        self.pace.forget(dropped, self.passing.ended);
    }
}
