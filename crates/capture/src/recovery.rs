//! Requests and answers that are paired by their order, behind a hole.
//!
//! A client that sends on without waiting for its answers does not show how many of them a hole held, and one answer too few shifts all
//! that follow. But now and then it has no request in flight. Counted through the hole, requests without an answer are then as
//! many as the hole has made: the fewest there ever are. So nothing is paired until that moment has come again. It is certain when it
//! comes again and again with as many answers in between as there always were; or when both sides are silent then for much longer than
//! any answer has taken. That many answers have passed since shows nothing: a client that has just found more to do may never be
//! without a request in flight again, and captures lose packets just then.

mod silence;
mod unseen;

pub(crate) use silence::Silence;
pub(crate) use unseen::Unseen;

/// Most answers that are kept until they are paired.
pub(crate) const ANSWERS_MAX: usize = 2048;

/// How many answers there are from one moment without a request in flight to the next.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    /// The longest that has ended.
    longest: usize,
    /// The shortest that has ended, of more than one answer, and how many of them have.
    shortest: usize,
    ended: u8,
    /// Answers of the one that goes on.
    current: usize,
    /// Answers, up to as many as show a habit.
    seen: u8,
}

/// Answers that show whether a client has one request in flight at a time: a log-in shows nothing of what follows.
const HABIT: u8 = 8;

impl Bursts {
    /// An answer has come, behind which so many requests are in flight, or more if some may be in a hole that has not shown itself.
    pub(crate) fn answered(&mut self, in_flight: usize) {
        self.current += 1;
        self.seen = self.seen.saturating_add(1);
        if in_flight == 0 {
            self.longest = self.longest.max(self.current);
            if self.current > 1 {
                // The first one may lack what a log-in, or a number of its own, had.
                let is_first = self.ended <= 1;
                self.shortest = if is_first { self.current } else { self.shortest.min(self.current) };
                self.ended = self.ended.saturating_add(1);
            }
            self.current = 0;
        }
    }

    /// Whether there was always one request in flight, as far as is known.
    pub(crate) fn are_single(&self) -> bool {
        self.longest == 1 && self.current <= 1 && self.seen >= HABIT
    }

    /// Whether the client has waited for all answers before, with several requests if several of its requests left together.
    pub(crate) fn have_ended(&self, together: usize) -> bool {
        self.longest > 1 || together <= 1
    }

    /// Answers from one such moment to the next, if there were always as many.
    fn period(&self, in_flight: usize) -> Option<usize> {
        let are_even = self.ended == 0 || self.shortest == self.longest;
        (self.is_known(in_flight) && are_even).then_some(self.longest)
    }

    fn is_known(&self, in_flight: usize) -> bool {
        // What a hole cuts may count twice.
        self.longest > 0 && self.current.saturating_add(in_flight) <= self.longest + self.longest / 4
    }
}

/// The moments that may be without a request in flight: those with the fewest open.
#[derive(Debug)]
pub(crate) struct Moments {
    /// The fewest there have been.
    least: i64,
    /// Answers since the last such moment.
    since: usize,
    period: Option<usize>,
    /// How often it has come after the period.
    regular: usize,
}

/// So often a moment comes after the period, and so many answers pass meanwhile, until it is certain.
const REGULAR: usize = 3;
const REGULAR_ANSWERS: usize = 16;

impl Moments {
    /// Of a client with such bursts, which has so many requests in flight at least.
    pub(crate) fn new(bursts: &Bursts, in_flight: usize) -> Self {
        Self { least: i64::MAX, since: 0, period: bursts.period(in_flight), regular: 0 }
    }

    /// The fewest requests that were open.
    pub(crate) fn least(&self) -> i64 {
        self.least
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self) {
        self.since += 1;
    }

    /// So many requests are open, at a time that is silent or not: neither side has sent for much longer than any answer has taken.
    pub(crate) fn at(&mut self, open: i64, is_silent: bool) -> Moment {
        if open > self.least {
            return Moment::Unknown;
        }
        let are_fewer = open < self.least;
        self.least = open;
        if self.since > 0 {
            let is_regular = !are_fewer && self.period == Some(self.since);
            self.regular = if is_regular { self.regular + 1 } else { 0 };
            self.since = 0;
        }
        let regular_answers = self.regular.saturating_mul(self.period.unwrap_or(0));
        let is_certain = is_silent || self.regular >= REGULAR && regular_answers >= REGULAR_ANSWERS;
        match is_certain {
            true => Moment::Idle,
            false if are_fewer => Moment::Fewer,
            false => Moment::Unknown,
        }
    }
}

/// What is known of the moment before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Nothing.
    Unknown,
    /// Fewer requests are in flight than ever since the hole.
    Fewer,
    /// None is in flight, so that pairing begins again, nor was when they were as few before.
    Idle,
}

/// The wait for a moment without a request in flight.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Requests without an answer: those that the hole has made of answered ones, less those that it held, and those in flight.
    open: i64,
    moments: Moments,
    /// A request has begun and is not complete.
    is_within: bool,
    /// Turns tell nothing.
    is_overlapped: bool,
    /// Requests since the last answer, and turns of as many as left together before that were all answered before the next.
    turn: usize,
    turns: u8,
    together: usize,
}

/// So many turns of requests that were all answered before the next show that the client waits for all answers: one that always has
/// requests in flight would ask again when some have come.
const TURNS: u8 = 3;

impl Recovery {
    /// Behind a hole, of a client with such bursts, which is known to ask before all answers have come or is not.
    /// So many requests are in flight at least; at most `together` have left before any answer to one of them had come.
    pub(crate) fn new(bursts: &Bursts, is_overlapped: bool, in_flight: usize, together: usize) -> Self {
        Self {
            open: 0,
            moments: Moments::new(bursts, in_flight),
            is_within: false,
            is_overlapped,
            turn: 0,
            turns: 0,
            together: together.max(2),
        }
    }

    /// A request begins, or goes on.
    pub(crate) fn begins(&mut self, is_silent: bool) -> Moment {
        if std::mem::replace(&mut self.is_within, true) || self.open > self.moments.least() {
            return Moment::Unknown;
        }
        let moment = self.moments.at(self.open, is_silent);
        if !self.is_overlapped && self.turns >= TURNS { Moment::Idle } else { moment }
    }

    /// A request is complete.
    pub(crate) fn asked(&mut self) {
        self.open += 1;
        self.turn += 1;
        self.is_within = false;
    }

    /// A request that was counted has no answer.
    pub(crate) fn withdrawn(&mut self) {
        self.open -= 1;
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self) {
        if self.turn > 0 {
            let is_turn = self.turn >= self.together
                && self.open == self.moments.least().saturating_add(self.turn as i64);
            self.turns = if is_turn { self.turns + 1 } else { 0 };
            self.turn = 0;
        }
        self.open -= 1;
        self.moments.answered();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests in bursts of a size, of which the answers before the hole are known; `lost` of them are missing then, or as many
    /// requests if it is negative. Returns how many requests begin before pairing does, and whether none was in flight then.
    fn recovered(size: i64, lost: i64, is_overlapped: bool) -> (usize, bool) {
        let mut bursts = Bursts::default();
        for left in (0..size).rev() {
            bursts.answered(left as usize);
        }
        let (mut recovery, mut begun, mut in_flight) = (Recovery::new(&bursts, is_overlapped, 0, 0), 0, 0);
        // The rest of the burst that the hole is in.
        (0..-lost).for_each(|_| recovery.answered());
        (0..lost).for_each(|_| recovery.asked());
        for _ in 0..100 {
            for _ in 0..size {
                if recovery.begins(false) == Moment::Idle {
                    return (begun, in_flight == 0);
                }
                recovery.asked();
                (begun, in_flight) = (begun + 1, in_flight + 1);
            }
            (0..size).for_each(|_| recovery.answered());
            in_flight = 0;
        }
        (begun, false)
    }

    #[test]
    fn pairing_begins_where_none_is_in_flight() {
        for size in [1, 2, 7, 40] {
            for lost in [-3, -1, 0, 1, 5] {
                for is_overlapped in [true, false] {
                    let (begun, is_quiet) = recovered(size, lost, is_overlapped);
                    let least = if is_overlapped || size == 1 { 16 } else { 3 * size as usize };
                    assert!(is_quiet && begun >= least, "{size} {lost} {is_overlapped}: {begun}");
                    assert!(begun <= 4 * size as usize + 20, "{size} {lost} {is_overlapped}: {begun}");
                }
            }
        }
    }

    #[test]
    fn a_hole_within_a_request_is_no_moment() {
        let mut recovery = Recovery::new(&Bursts::default(), false, 1, 0);
        for _ in 0..20 {
            // They began before the hole.
            (0..2).for_each(|_| recovery.asked());
            (0..2).for_each(|_| recovery.answered());
        }
        assert_eq!(recovery.begins(false), Moment::Fewer);
    }

    #[test]
    fn a_client_that_is_never_idle_does_not_recover() {
        for (answers, is_overlapped) in [(1000, true), (20, true), (20, false), (0, false)] {
            let mut bursts = Bursts::default();
            // A log-in, one request at a time.
            (0..3).for_each(|_| bursts.answered(0));
            (0..answers).for_each(|_| bursts.answered(1));
            let mut recovery = Recovery::new(&bursts, is_overlapped, 0, 0);
            for _ in 0..5000 {
                assert!(answers == 0 || recovery.begins(false) != Moment::Idle, "{answers}");
                recovery.asked();
                recovery.answered();
            }
        }
    }
}
