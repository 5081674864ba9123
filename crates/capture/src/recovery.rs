//! Requests and answers that are paired by their order, behind a hole.
//!
//! A client that sends on without waiting for its answers does not show how many of them a hole held, and one answer too few shifts all
//! that follow. But now and then it has no request in flight. Counted through the hole, requests without an answer are then as
//! many as the hole has made: the fewest there ever are. So nothing is paired until that moment has come again, which is certain
//! when many more answers have passed than ever did between two such moments before.

/// Longest stretch for which the moment is waited for: clients with longer ones may have none.
pub(crate) const ANSWERS_MAX: usize = 2048;

/// How many answers there are from one moment without a request in flight to the next.
#[derive(Debug, Default)]
pub(crate) struct Bursts {
    longest: usize,
    current: usize,
    /// Answers, up to as many as show a habit.
    seen: u8,
}

/// Answers that show whether a client has one request in flight at a time: a log-in shows nothing of what follows.
const HABIT: u8 = 8;

impl Bursts {
    /// An answer has come, behind which so many requests are in flight.
    pub(crate) fn answered(&mut self, in_flight: usize) {
        self.current += 1;
        self.seen = self.seen.saturating_add(1);
        self.longest = self.longest.max(self.current);
        if in_flight == 0 {
            self.current = 0;
        }
    }

    /// Whether there was always one request in flight, as far as is known.
    pub(crate) fn are_single(&self) -> bool {
        self.longest == 1 && self.seen >= HABIT
    }

    /// Answers behind which a client that has had no moment without a request in flight would have had one; `None` if that cannot
    /// be told.
    pub(crate) fn certain(&self) -> Option<usize> {
        let certain = self.longest.saturating_mul(3).saturating_add(16);
        (certain < ANSWERS_MAX).then_some(certain)
    }
}

/// The wait for a moment without a request in flight.
#[derive(Debug)]
pub(crate) struct Recovery {
    /// Requests without an answer: those that the hole has made of answered ones, less those that it held, and those in flight.
    open: i64,
    /// The fewest there have been.
    least: i64,
    answers: usize,
    certain: Option<usize>,
    /// A request has begun and is not complete.
    is_within: bool,
}

impl Recovery {
    /// Behind a hole, of a client with such bursts.
    pub(crate) fn new(bursts: &Bursts) -> Self {
        Self { open: 0, least: i64::MAX, answers: 0, certain: bursts.certain(), is_within: false }
    }

    /// A request begins, or goes on. Whether none is in flight before it, so that pairing begins again.
    pub(crate) fn begins(&mut self) -> bool {
        if std::mem::replace(&mut self.is_within, true) {
            return false;
        }
        self.least = self.least.min(self.open);
        let is_certain = self.certain.is_some_and(|certain| self.answers >= certain);
        is_certain && self.open == self.least
    }

    /// A request is complete.
    pub(crate) fn asked(&mut self) {
        self.open += 1;
        self.is_within = false;
    }

    /// An answer has come.
    pub(crate) fn answered(&mut self) {
        self.open -= 1;
        self.answers += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests in bursts of a size, of which the answers before the hole are known; `lost` of them are missing then, or as many
    /// requests if it is negative. Returns how many requests begin before pairing does, and whether none was in flight then.
    fn recovered(size: i64, lost: i64) -> (usize, bool) {
        let mut bursts = Bursts::default();
        for left in (0..size).rev() {
            bursts.answered(left as usize);
        }
        let (mut recovery, mut begun, mut in_flight) = (Recovery::new(&bursts), 0, 0);
        // The rest of the burst that the hole is in.
        (0..-lost).for_each(|_| recovery.answered());
        (0..lost).for_each(|_| recovery.asked());
        for _ in 0..100 {
            for _ in 0..size {
                if recovery.begins() {
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
                let (begun, is_quiet) = recovered(size, lost);
                assert!(is_quiet && begun >= 16, "{size} {lost}: {begun}");
                assert!(begun <= 4 * size as usize + 20, "{size} {lost}: {begun}");
            }
        }
    }

    #[test]
    fn a_client_that_is_never_idle_does_not_recover() {
        let mut bursts = Bursts::default();
        (0..1000).for_each(|_| bursts.answered(1));
        let mut recovery = Recovery::new(&bursts);
        for _ in 0..5000 {
            assert!(!recovery.begins());
            recovery.asked();
            recovery.answered();
        }
    }
}
