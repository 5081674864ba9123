//! How long a turn of a connection may last while others wait for the same thread.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Connections of a round among which one with little to do is likely to wait for one with much: turns are short then. One alone
/// keeps nobody waiting, and among many each waits for many turns, so that what counts is what a turn costs.
const FEW: Range<f32> = 1.005..2.5;
/// Time of a turn, and the most bytes that are sent at once: the kernel copies them, and often does all of the receiver's work on
/// them, before a send returns. What is under way when the time ends is finished: up to [`STEPS`] PDUs, or a send.
const SHORT: (Duration, usize) = (Duration::from_micros(50), 128 << 10);
const LONG: (Duration, usize) = (Duration::from_micros(100), 256 << 10);
/// Short PDUs between two looks at the clock: a look costs a twentieth of a short read.
const STEPS: u64 = 16;
/// So many bytes take as long as another short PDU.
const STEP_BYTES: u64 = 4 << 10;

/// What is left of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// When it is over; `None` for a connection that shares its thread with none.
    until: Option<Instant>,
    steps: u64,
    at_once_bytes: usize,
    is_over: bool,
}

impl Budget {
    /// Of a turn that nothing waits for. Sends are cut all the same: shorter ones lend memory faster than a copy (docs/durability.md).
    #[inline]
    pub(crate) fn unlimited() -> Self {
        Self { until: None, steps: 0, at_once_bytes: LONG.1, is_over: false }
    }

    /// Of a turn that begins now, where so many connections have one in a round.
    #[inline]
    pub(crate) fn new(crowd: f32) -> Self {
        let (turn, at_once_bytes) = limits(crowd);
        Self { until: Some(Instant::now() + turn), steps: 0, at_once_bytes, is_over: false }
    }

    /// A PDU was handled, and moved so many bytes.
    #[inline]
    pub(crate) fn step(&mut self, moved_bytes: u64) {
        self.steps += 1 + moved_bytes / STEP_BYTES;
        if self.steps >= STEPS {
            self.look();
        }
    }

    /// Something was done that takes as long as several PDUs.
    #[inline]
    pub(crate) fn look(&mut self) {
        self.steps = 0;
        if let Some(until) = self.until {
            self.is_over |= Instant::now() >= until;
        }
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

/// The time of a turn and the bytes of a send.
#[inline]
fn limits(crowd: f32) -> (Duration, usize) {
    if FEW.contains(&crowd) { SHORT } else { LONG }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_behind_its_time() {
        let mut budget = Budget { until: Some(Instant::now()), ..Budget::unlimited() };
        for _ in 1..STEPS {
            budget.step(STEP_BYTES - 1);
            assert!(!budget.is_over(), "the clock is not read for each PDU");
        }
        budget.step(STEP_BYTES - 1);
        assert!(budget.is_over());
        let mut budget = Budget { until: Some(Instant::now()), ..Budget::unlimited() };
        budget.look();
        assert!(budget.is_over());
        budget.until = Some(Instant::now() + LONG.0);
        budget.look();
        assert!(budget.is_over(), "it stays over");
        let mut budget = Budget { until: Some(Instant::now()), ..Budget::unlimited() };
        budget.step(STEPS * STEP_BYTES);
        assert!(budget.is_over(), "a long PDU counts as many");
    }

    #[test]
    fn a_turn_that_nothing_waits_for_has_no_end() {
        let mut budget = Budget::unlimited();
        (0..10 * STEPS).for_each(|_| budget.step(STEP_BYTES));
        budget.look();
        assert!(!budget.is_over());
    }

    #[test]
    fn turns_are_short_where_few_wait() {
        for (crowd, expected) in
            [(0.0, LONG), (1.0, LONG), (1.3, SHORT), (2.0, SHORT), (3.0, LONG), (64.0, LONG)]
        {
            assert_eq!(limits(crowd), expected, "{crowd}");
        }
        let budget = Budget::new(1.3);
        assert_eq!(budget.at_once_bytes(), SHORT.1);
    }
}
