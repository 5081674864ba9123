//! How long a turn of a connection may last while others wait for the same thread.

use std::time::Instant;

use policy::Turn;

/// Most short PDUs between two looks at the clock: a look costs a twentieth of a short read.
const STEPS_MAX: u64 = 16;
/// So many bytes take as long as another short PDU.
const STEP_BYTES: u64 = 4 << 10;

/// What is left of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    times: Option<Times>,
    /// Steps so far, and how many there are at the next look.
    steps: u64,
    looks_at: u64,
    at_once_bytes: usize,
    is_over: bool,
}

/// When a turn began, when it is over, and when and at which step the clock was last read.
#[derive(Clone, Copy, Debug)]
struct Times {
    begun: Instant,
    until: Instant,
    looked: (Instant, u64),
}

impl Budget {
    /// Of a turn that nothing waits for. Sends are cut all the same: shorter ones lend memory faster than a copy (docs/durability.md).
    #[inline]
    pub(crate) fn unlimited() -> Self {
        Self { times: None, steps: 0, looks_at: 1, at_once_bytes: Turn::LONG.send_bytes, is_over: false }
    }

    /// Of a turn that begins now. When its time ends, what is under way is finished: a PDU, or a send; and up to [`STEPS_MAX`] PDUs
    /// if they take far longer than those before them.
    #[inline]
    pub(crate) fn new(turn: Turn) -> Self {
        let now = Instant::now();
        let times = Times { begun: now, until: now + turn.time, looked: (now, 0) };
        Self { times: Some(times), at_once_bytes: turn.send_bytes, ..Self::unlimited() }
    }

    /// A PDU was handled, and moved so many bytes.
    #[inline]
    pub(crate) fn step(&mut self, moved_bytes: u64) {
        self.steps += 1 + moved_bytes / STEP_BYTES;
        if self.steps >= self.looks_at {
            self.look();
        }
    }

    /// Something was received, which takes as long as several PDUs: but for the first reception, it is time to look at the clock. When
    /// the clock was last read.
    #[inline]
    pub(crate) fn received(&mut self) -> Option<Instant> {
        if self.steps > 0 {
            self.look();
        }
        self.looked()
    }

    /// Looks at the clock: something was done that takes as long as several PDUs. The next look is behind the first PDU, and later
    /// where half of what is left of the turn will have passed, at the speed so far or since the last look, whichever is less.
    #[inline]
    pub(crate) fn look(&mut self) {
        let Some(times) = &mut self.times else {
            self.looks_at = self.steps + STEPS_MAX;
            return;
        };
        let now = Instant::now();
        self.is_over |= now >= times.until;
        let ns_each = |since: Instant, steps: u64| (now - since).as_nanos() as u64 / steps.max(1);
        let each = ns_each(times.begun, self.steps).max(ns_each(times.looked.0, self.steps - times.looked.1));
        let left = times.until.saturating_duration_since(now).as_nanos() as u64;
        // A send tells nothing of what the first PDU takes.
        let steps = if self.steps == 0 { 1 } else { (left / (2 * each).max(1)).clamp(1, STEPS_MAX) };
        self.looks_at = self.steps + steps;
        times.looked = (now, self.steps);
    }

    /// When the clock was last read.
    #[inline]
    pub(crate) fn looked(&self) -> Option<Instant> {
        self.times.map(|times| times.looked.0)
    }

    /// The most bytes that are sent at once.
    #[inline]
    pub(crate) fn at_once_bytes(&self) -> usize {
        self.at_once_bytes
    }

    /// Whether the turn is to end.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A turn whose time is over, or will not be soon, at any speed.
    fn of(time: Duration) -> Budget {
        Budget::new(Turn { time, ..Turn::LONG })
    }

    #[test]
    fn a_turn_is_over_behind_its_time() {
        let mut budget = of(Duration::ZERO);
        assert!(!budget.is_over());
        budget.step(0);
        assert!(budget.is_over(), "the first PDU may take long");
        budget.times = of(Turn::LONG.time).times;
        budget.look();
        assert!(budget.is_over(), "it stays over");
        // A turn begins with a reception or a send, which tell nothing of what a command takes.
        for is_reception in [true, false] {
            let mut budget = of(Duration::from_millis(1));
            if is_reception {
                budget.received();
            } else {
                budget.look();
            }
            std::thread::sleep(Duration::from_millis(2));
            budget.step(0);
            assert!(budget.is_over(), "the first command took all of it");
        }
        // A later reception is looked at.
        let mut budget = of(Duration::from_millis(1));
        budget.step(0);
        std::thread::sleep(Duration::from_millis(2));
        budget.received();
        assert!(budget.is_over());
    }

    #[test]
    fn the_clock_is_read_rarely_while_there_is_time_and_often_when_there_is_not() {
        let looks = |time: Duration, each: Duration, steps: u64, bytes: u64| {
            let (mut budget, mut looks, mut last) = (of(time), 0, 0);
            for _ in 0..steps {
                std::thread::sleep(each);
                budget.step(bytes);
                looks += u64::from(budget.looks_at != last);
                last = budget.looks_at;
            }
            looks
        };
        let hour = Duration::from_secs(3600);
        assert_eq!(looks(hour, Duration::ZERO, 1 + 160, 0), 11, "once for sixteen");
        assert_eq!(looks(hour, Duration::ZERO, 161, STEP_BYTES - 1), 11);
        assert_eq!(looks(hour, Duration::ZERO, 21, 15 * STEP_BYTES), 21, "a long PDU counts as many");
        // Two milliseconds each, and ten in all: after one, two are half of what is left, then one.
        let slow = looks(Duration::from_millis(10), Duration::from_millis(2), 6, 0);
        assert!(slow >= 4, "{slow}");
        // Quick ones, and then slow ones: the speed since the last look counts.
        let mut budget = of(Duration::from_millis(20));
        (0..100).for_each(|_| budget.step(0));
        for _ in 0..=2 * STEPS_MAX {
            std::thread::sleep(Duration::from_millis(1));
            budget.step(0);
            if budget.is_over() {
                break;
            }
        }
        assert!(budget.is_over() && budget.steps < 100 + STEPS_MAX + 8, "{budget:?}");
    }

    #[test]
    fn a_turn_that_nothing_waits_for_has_no_end() {
        let mut budget = Budget::unlimited();
        (0..10 * STEPS_MAX).for_each(|_| budget.step(STEP_BYTES));
        budget.look();
        assert!(!budget.is_over());
    }

    #[test]
    fn sends_are_cut_to_the_bytes_of_the_turn() {
        assert_eq!(Budget::new(Turn::SHORT).at_once_bytes(), Turn::SHORT.send_bytes);
    }
}
