//! How long a turn of a connection may last while others wait for the same thread.

use std::time::Instant;

use policy::Turn;

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
        Self { until: None, steps: 0, at_once_bytes: Turn::LONG.send_bytes, is_over: false }
    }

    /// Of a turn that begins now. When its time ends, what is under way is finished: up to [`STEPS`] PDUs, or a send.
    #[inline]
    pub(crate) fn new(turn: Turn) -> Self {
        let until = Some(Instant::now() + turn.time);
        Self { until, steps: 0, at_once_bytes: turn.send_bytes, is_over: false }
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
        budget.until = Some(Instant::now() + Turn::LONG.time);
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
}
