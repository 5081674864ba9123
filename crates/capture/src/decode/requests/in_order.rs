//! Requests that are answered in their order: which of them are paired, behind holes and where packets were captured in another order.

use super::Requests;
use super::undecided::Undecided;
use crate::http::Mark;
use crate::http::resume::{self, Begun};
use crate::recovery::{Moment, Recovery};

impl Requests {
    /// Whether the request that begins in a packet with this mark is paired with its answer.
    pub(super) fn is_paired(&mut self, mark: Mark) -> bool {
        if self.is_silent && self.unpaired.is_some() {
            self.is_idle();
        }
        if let Some(recovery) = &mut self.recovery {
            match recovery.begins(self.is_silent) {
                Moment::Unknown => return false,
                Moment::Fewer => {
                    self.drop_undecided();
                    return false;
                }
                Moment::Idle => self.pair_undecided(),
            }
            self.recovery = None;
            (self.order.has_hole, self.has_skipped, self.is_resuming) = (false, true, false);
            self.known_end = None;
        }
        if self.leaves_with_lost() || self.is_unit_cut {
            return false;
        }
        if self.has_units && std::mem::replace(&mut self.is_within_unit, true) {
            // Further requests of what has one answer together.
            return true;
        }
        if self.is_asking_again && self.unseen.is_asked_before_all_answers(self.is_behind_unseen) {
            self.order.is_overlapped = true;
            self.recover();
            return false;
        }
        let newest = self.queue.back().map(|open| [open.mark, open.last_mark]);
        if newest.is_none() {
            self.units = 0;
            if self.known_end.is_some() {
                self.end_beginning();
            }
        }
        let marks = self.queue.iter().map(|open| open.mark);
        let waits = || match self.has_units {
            true => self.unit_bursts.have_ended(self.units),
            false => self.bursts.have_ended(resume::most_together(marks)),
        };
        match self.order.begins(mark, newest, self.known_end, waits) {
            Begun::AllAnswered => {
                if self.is_behind_unseen {
                    // Some are missing behind those that are kept, too: which requests these are of does not show.
                    self.abandon_unpaired();
                }
                self.pair(self.in_flight());
                self.units = 0;
                self.known_end = Some(mark.ack);
                (self.has_skipped, self.is_resuming) = (true, true);
                true
            }
            Begun::Late => {
                self.has_skipped = true;
                false
            }
            Begun::Unsure if self.unpaired.is_none() => {
                self.recover();
                false
            }
            Begun::Plain | Begun::Unsure => true,
        }
    }

    /// Whether the request at hand may have left together with others that are missing: which of the next answers are those does not show.
    pub(crate) fn leaves_with_lost(&mut self) -> bool {
        let ack = self.place().ack;
        // A client that has received what the server sent when it had had them has sent them before.
        let are_before = self.received_lost.is_some_and(|packet| resume::distance(ack, packet.seq) > 0);
        if std::mem::take(&mut self.has_lost_requests) && !are_before {
            self.left_with_lost = Some(ack);
        }
        self.left_with_lost = self.left_with_lost.filter(|&with| with == ack);
        self.left_with_lost.is_some()
    }

    /// The request at hand is not paired.
    pub(crate) fn leave_out(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.counted.abandoned += 1;
    }

    /// Nothing but their order tells which requests the next answers are of, and some are missing, or some requests: if the client
    /// sends on without waiting, none is paired until none is in flight. The decoder says then where requests end and
    /// answers are ([`Requests::unit_asked`], [`Requests::unit_answered`]).
    pub(crate) fn lost_order(&mut self) {
        if self.order.is_overlapped {
            self.recover();
        }
    }

    /// A request in order leaves.
    pub(super) fn leaves(&mut self, mark: Mark) {
        self.together = if self.together > 0 && self.last_ack == mark.ack { self.together + 1 } else { 1 };
        self.is_asking_again = self.last_ack != mark.ack;
        self.last_ack = mark.ack;
        self.most_together = self.most_together.max(self.together);
    }

    /// The answer at hand, which is complete, is of none of the requests.
    pub(crate) fn answered_none(&mut self) {
        if !self.has_units {
            self.unseen.answered();
        }
    }

    /// Whether requests that were not seen may be in flight: 1 or 0.
    pub(super) fn more_in_flight(&self) -> usize {
        usize::from(self.is_behind_unseen || self.unseen.are_any())
    }

    pub(super) fn recover(&mut self) {
        let open = match (self.order.has_hole, self.has_units) {
            // Some of those that seem to be in flight may have been answered in it.
            (true, _) => 0,
            (false, true) => self.units,
            (false, false) => self.in_flight(),
        };
        let open = open.max(self.unseen.take());
        self.counted.abandoned += self.in_flight() as u64;
        self.forget_queue();
        let bursts = if self.has_units { &self.unit_bursts } else { &self.bursts };
        let together = if self.has_units { 0 } else { self.most_together };
        self.recovery = Some(Recovery::new(bursts, self.order.is_overlapped, open, together));
        self.drop_undecided();
        self.undecided = (!self.has_units).then(Undecided::default);
        self.is_orphan = false;
    }

    /// Behind a hole, a request in order has been asked, answered or withdrawn, where the decoder does not count what has one answer.
    pub(super) fn unit_of(&mut self, count: fn(&mut Recovery)) {
        if let Some(recovery) = self.recovery.as_mut().filter(|_| !self.has_units) {
            count(recovery);
        }
    }

    /// Whether the client sends on without waiting for its answers.
    pub(crate) fn is_pipelining(&self) -> bool {
        self.order.is_overlapped
    }

    /// Whether nothing is paired, behind a hole.
    pub(crate) fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// What has one answer has been sent as a whole.
    pub(crate) fn unit_asked(&mut self) {
        (self.has_units, self.is_within_unit, self.is_unit_cut) = (true, false, false);
        self.unseen.asked();
        match &mut self.recovery {
            Some(recovery) => recovery.asked(),
            None => self.units += 1,
        }
    }

    /// An answer to what was sent as a whole has come.
    pub(crate) fn unit_answered(&mut self) {
        self.unseen.answered();
        if let Some(recovery) = &mut self.recovery {
            recovery.answered();
        } else {
            self.units = self.units.saturating_sub(1);
            self.unit_bursts.answered(self.units + self.more_in_flight());
        }
    }

    /// The message at hand of the server is there while no request is in flight.
    pub(crate) fn note_unasked(&mut self) {
        let is_idle = self.queue.is_empty() && self.by_id.is_empty() && self.given_up == 0;
        if is_idle && !self.has_units {
            self.unasked();
        }
        if is_idle && self.recovery.is_none() && !self.is_resuming {
            self.order.unasked(self.place());
        }
    }
}
