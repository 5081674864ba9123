//! Answers behind a hole where their order does not tell which requests they are of.
//!
//! A client that sends without waiting for answers does not show how many of them a hole held. But now and then none of its requests is
//! in flight, while behind a hole those that were answered in it stay in flight for ever. So the answers are kept until none is, or
//! until many more have come than ever did between two such moments: then the fewest requests that stayed in flight were answered in
//! the hole.

use record::{Passage, Side, Stamp, Status, Verb, Word};

use super::{Open, Passing, Requests};
use crate::http::Mark;
use crate::http::resume;
use crate::packet::At;
use crate::recovery::{ANSWERS_MAX, Moment, Moments};

/// An answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answer {
    pub(super) response: Passage,
    pub(super) bytes: u64,
    pub(super) status: Status,
    /// Sequence number behind it.
    pub(super) end_seq: u32,
    /// Numbers of its last packet.
    pub(super) mark: Mark,
    /// What it says of the kind of its request; empty if nothing.
    pub(super) word: Word,
}

/// Whether an answer that says a word may be that of an operation.
pub(crate) type Fits = fn(&[u8], &str) -> bool;

/// Answers that are kept without their requests.
#[derive(Debug, Default)]
pub(super) struct Answers {
    complete: Vec<Answer>,
    at_hand: Answer,
}

impl Answers {
    /// How many are complete.
    pub(super) fn len(&self) -> usize {
        self.complete.len()
    }

    /// A message of the answer at hand.
    pub(super) fn part(&mut self, [began, ended]: [At; 2], bytes: u64) {
        let response = &mut self.at_hand.response;
        if !response.began.is_known() {
            *response = Passage::begin(began.ns, began.frame);
        }
        (response.ended, response.last_frame) = (Stamp::at(ended.ns), ended.frame);
        self.at_hand.bytes += bytes;
    }

    /// The answer at hand says a word.
    pub(super) fn says(&mut self, word: &[u8]) {
        self.at_hand.word = Word::new(word);
    }

    /// The answer at hand is complete.
    pub(super) fn keep(&mut self, status: Status, end_seq: u32, mark: Mark) {
        let at_hand = std::mem::take(&mut self.at_hand);
        self.complete.push(Answer { status, end_seq, mark, ..at_hand });
    }

    /// Whether they may be those of requests: their server had received these, and what they say fits.
    pub(super) fn do_fit<'a>(&self, fits: Option<Fits>, requests: impl Iterator<Item = &'a Open>) -> bool {
        self.complete.iter().zip(requests).all(|(answer, open)| {
            let do_words_fit = match (fits, open.exchange.op.verb) {
                (Some(fits), Verb::Command(name)) if answer.word != Word::default() => {
                    fits(answer.word.as_str().as_bytes(), name.as_str())
                }
                _ => true,
            };
            do_words_fit && !resume::is_unread(open.mark, answer.mark)
        })
    }
}

impl IntoIterator for Answers {
    type Item = Answer;
    type IntoIter = std::vec::IntoIter<Answer>;

    fn into_iter(self) -> Self::IntoIter {
        self.complete.into_iter()
    }
}

/// Answers to the first requests of the queue, or to those behind them.
#[derive(Debug)]
pub(super) struct Unpaired {
    pub(super) answers: Answers,
    /// By the requests that stayed in flight behind each of them.
    moments: Moments,
}

impl Unpaired {
    /// The answer at hand is complete, behind which so many requests are in flight.
    pub(super) fn keep(&mut self, status: Status, end_seq: u32, mark: Mark, in_flight: usize) -> Moment {
        self.answers.keep(status, end_seq, mark);
        self.moments.answered();
        self.moments.at(in_flight as i64, false)
    }

    /// The fewest requests that stayed in flight.
    pub(super) fn least(&self) -> usize {
        usize::try_from(self.moments.least()).unwrap_or(0)
    }

    /// Whether no more are kept.
    pub(super) fn is_full(&self) -> bool {
        self.answers.len() >= ANSWERS_MAX
    }
}

impl Requests {
    /// Answers of the queue's first requests.
    pub(super) fn kept(&self) -> usize {
        self.unpaired.as_ref().map_or(0, |unpaired| unpaired.answers.len())
    }

    /// Requests in order without an answer.
    pub(super) fn in_flight(&self) -> usize {
        self.queue.len().saturating_sub(self.kept())
    }

    /// Answers are missing, and nothing but their order tells which requests the next ones are of.
    pub(crate) fn lost_answers(&mut self) {
        self.abandon_unpaired();
        if !self.queue.is_empty() {
            let moments = Moments::new(&self.bursts, self.queue.len());
            self.unpaired = Some(Unpaired { answers: Answers::default(), moments });
        }
    }

    /// The answer at hand says what its request may be.
    pub(crate) fn answer_says(&mut self, word: &[u8], fits: Fits) {
        let undecided = self.undecided.as_mut().map(|undecided| &mut undecided.answers);
        if let Some(answers) = self.unpaired.as_mut().map(|unpaired| &mut unpaired.answers).or(undecided) {
            answers.says(word);
            self.fits = Some(fits);
        }
    }

    /// Keeps an answer until its request is certain.
    pub(super) fn keep(&mut self, status: Status) {
        let (Passing { end_seq, ended, .. }, mark) = (self.passing, self.place());
        self.pace.message(Side::Server);
        if self.is_behind_unseen {
            // It may be that of a request which is missing: how many are in flight is not known any more.
            self.counted.unmatched += 1;
            return self.lost_answers();
        }
        let Some(in_flight) = self.in_flight().checked_sub(1) else {
            self.counted.unmatched += 1;
            return;
        };
        self.known_end = Some(end_seq);
        // It is counted with its request.
        self.pace.ended_unseen(ended);
        let Some(unpaired) = &mut self.unpaired else { return };
        let moment = unpaired.keep(status, end_seq, mark, in_flight);
        if in_flight == 0 || moment == Moment::Idle {
            let least = unpaired.least();
            self.pair(least);
        } else if unpaired.is_full() {
            self.lost_answers();
        }
    }

    /// The first requests of the queue were answered in a hole: the kept answers are those of the next ones.
    pub(super) fn pair(&mut self, lost: usize) {
        let answers = self.unpaired.take().map(|unpaired| unpaired.answers).unwrap_or_default();
        self.counted.abandoned += lost as u64;
        if !answers.do_fit(self.fits, self.queue.iter().skip(lost)) {
            // The moment was none without a request in flight: more is missing than one hole showed.
            self.counted.abandoned += answers.len() as u64;
            self.pace.forget(lost, self.passing.ended);
            self.queue.drain(..(lost + answers.len()).min(self.queue.len()));
            return self.lost_answers();
        }
        self.pace.forget(lost, self.passing.ended);
        self.queue.drain(..lost.min(self.queue.len()));
        for answer in answers {
            let Some(open) = self.queue.pop_front() else { break };
            self.pace.ended += 1;
            self.complete(open, answer, true);
        }
        self.order.has_hole &= !self.queue.is_empty();
    }

    /// The client has closed the connection, behind all answers: the requests that are in flight were answered in the hole.
    pub(crate) fn client_closed(&mut self) {
        if self.is_behind_unseen {
            return;
        }
        let in_flight = self.in_flight();
        if self.unpaired.as_ref().is_some_and(|unpaired| unpaired.least() == in_flight) {
            self.pair(in_flight);
        }
        self.pair_undecided();
    }

    /// Nothing has been sent for long: none is in flight if they were never fewer.
    pub(super) fn is_idle(&mut self) {
        let in_flight = self.in_flight();
        if self.unpaired.as_ref().is_some_and(|unpaired| unpaired.least() == in_flight)
            && !self.is_behind_unseen
        {
            self.pair(in_flight);
        }
    }

    /// Drops the kept answers, with as many requests.
    pub(super) fn abandon_unpaired(&mut self) {
        let kept = self.kept();
        self.unpaired = None;
        self.counted.abandoned += kept as u64;
        self.queue.drain(..kept.min(self.queue.len()));
    }
}
