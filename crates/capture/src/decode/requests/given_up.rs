//! Requests that their client gave up, or whose answers were in a hole.

use super::unpaired::Unpaired;
use super::{Of, Requests};

impl Requests {
    /// The client has stopped waiting for the request of this number, or for all in order: they are told as such without an answer,
    /// unless a hole may have held it.
    pub(crate) fn give_up(&mut self, of: Of) {
        if let Some(least) = self.unpaired.as_ref().map(Unpaired::least)
            && of == Of::Order
        {
            // Those that are kept are answers to the others.
            self.pair(least.min(self.in_flight()));
            self.abandon_unpaired();
        }
        let (before, in_flight) = (self.given_up_on.len(), self.queue.len() + self.by_id.len());
        match of {
            Of::Order => {
                let open = self.queue.drain(..).filter(|_| !self.is_resuming);
                self.given_up_on.extend(open.map(|open| open.exchange));
            }
            Of::Id(id) => {
                let open = self.by_id.remove(&id);
                self.given_up_on.extend(open.filter(|open| !open.is_excused).map(|open| open.exchange));
            }
        }
        let told = self.given_up_on.len() - before;
        self.counted.unanswered += told as u64;
        let gone = in_flight - self.queue.len() - self.by_id.len();
        self.counted.abandoned += (gone - told) as u64;
        self.pace.forget(gone, self.passing.ended);
    }

    /// Gives the one request in order the number that it carries; false if that is not all that is known of the order.
    pub(crate) fn number_order(&mut self, id: u64) -> bool {
        let is_certain = self.queue.len() == 1 && self.unpaired.is_none() && !self.is_resuming;
        if !is_certain || self.by_id.contains_key(&id) {
            return false;
        }
        self.queue.pop_front().is_some_and(|open| self.by_id.insert(id, open).is_none())
    }

    /// Drops the requests in order, which have no answers, by their protocol.
    pub(crate) fn forget_queue(&mut self) {
        self.abandon_unpaired();
        self.pace.forget(self.queue.len(), self.passing.ended);
        self.queue.clear();
    }

    /// As [`Requests::forget_queue`], but for the newest one, unless others left with it.
    pub(crate) fn forget_before_newest(&mut self) {
        self.abandon_unpaired();
        let newest = self.queue.back().map(|open| open.mark.ack);
        let is_together = self.queue.iter().rev().nth(1).map(|open| open.mark.ack) == newest;
        let before = if is_together { self.queue.len() } else { self.queue.len().saturating_sub(1) };
        self.pace.forget(before, self.passing.ended);
        self.queue.drain(..before);
    }

    /// Drops the excused requests with numbers that were sent before this one, which is answered: their answers were in a hole, or there
    /// are none. Returns whether there still are excused ones.
    pub(crate) fn forget_excused_before(&mut self, of: Of) -> bool {
        let Of::Id(id) = of else { return true };
        let Some(tag) = self.by_id.get(&id).map(|open| open.exchange.op.tag) else { return true };
        let (before, mut is_left) = (self.by_id.len(), false);
        self.by_id.retain(|_, open| {
            let is_earlier = open.exchange.op.tag < tag;
            is_left |= open.is_excused && !is_earlier;
            !(open.is_excused && is_earlier)
        });
        let dropped = before - self.by_id.len();
        self.counted.abandoned += dropped as u64;
        self.pace.forget(dropped, self.passing.ended);
        is_left
    }
}
