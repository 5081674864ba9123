//! Requests and answers behind a hole, until it is certain which belong together.
//!
//! [`Recovery`](crate::recovery::Recovery) finds the moments without a request in flight: those with the fewest requests open that there
//! ever are. From the first of them on, requests and answers belong together in their order. But that it was one only shows when many
//! more answers have passed without fewer. So they are kept until then, and dropped where fewer are open after all.

use std::collections::VecDeque;

use record::{Side, Status};

use super::unpaired::Answers;
use super::{Open, Passing, Requests};
use crate::recovery::ANSWERS_MAX;

/// Most requests that are kept: those of more answers than are waited for, and as many in flight.
const UNDECIDED_MAX: usize = 2 * ANSWERS_MAX;

/// Since the last moment that may have been without a request in flight.
#[derive(Debug, Default)]
pub(super) struct Undecided {
    pub(super) requests: VecDeque<Open>,
    pub(super) answers: Answers,
}

impl Undecided {
    /// Requests without an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.requests.len().saturating_sub(self.answers.len())
    }

    /// The request that the answer at hand is of.
    pub(super) fn at_hand(&mut self) -> Option<&mut Open> {
        self.requests.get_mut(self.answers.len())
    }
}

impl Requests {
    /// Keeps a request that is not paired yet. False if it is not kept.
    pub(super) fn keep_undecided(&mut self, open: Open) -> bool {
        let beside = self.undecided.as_ref().map_or(0, |undecided| undecided.requests.len());
        if beside >= UNDECIDED_MAX || !self.pace.room.has_place(beside) {
            self.drop_undecided();
            self.undecided = None;
        }
        let Some(undecided) = &mut self.undecided else { return false };
        undecided.requests.push_back(open);
        true
    }

    /// Keeps an answer that is not paired yet.
    pub(super) fn keep_undecided_answer(&mut self, status: Status) {
        let (Passing { end_seq, ended, .. }, mark) = (self.passing, self.place());
        let Some(undecided) = &mut self.undecided else { return };
        undecided.answers.keep(status, end_seq, mark);
        if undecided.answers.len() <= undecided.requests.len() {
            self.pace.message(Side::Server);
            self.pace.ended_unseen(ended);
        }
    }

    /// Requests were in flight when the first of those that are kept was asked, or answers are missing.
    pub(super) fn drop_undecided(&mut self) {
        if let Some(undecided) = &mut self.undecided {
            let dropped = std::mem::take(undecided);
            self.drop_these(&dropped);
        }
    }

    fn drop_these(&mut self, dropped: &Undecided) {
        self.pace.forget(dropped.in_flight(), self.passing.ended);
        self.counted.abandoned += dropped.requests.len() as u64;
    }

    /// No request is in flight, and none was when the first of those that are kept was asked.
    pub(super) fn pair_undecided(&mut self) {
        let Some(undecided) = self.undecided.take() else { return };
        let are_all = undecided.requests.len() == undecided.answers.len();
        if !are_all || !undecided.answers.do_fit(self.fits, undecided.requests.iter()) {
            return self.drop_these(&undecided);
        }
        for (open, answer) in undecided.requests.into_iter().zip(undecided.answers) {
            self.pace.ended += 1;
            self.complete(open, answer, true);
        }
    }
}
