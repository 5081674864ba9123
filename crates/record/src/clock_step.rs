//! A step of the capturing clock.

use crate::exchange::Exchange;

/// The capturing clock was set while it captured: times across the step are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// The last packet before it, and the first after it that shows it, nanoseconds since the epoch by the capturing clock.
    pub before_ns: u64,
    /// See `before_ns`.
    pub after_ns: u64,
    /// The frame of the first packet after it that shows it.
    pub frame: u64,
    /// How far the clock was set, nanoseconds: forward if positive.
    pub by_ns: i64,
}

impl ClockStep {
    /// Whether the clock was set between two events, which are in this order.
    #[must_use]
    pub fn is_between(&self, first_ns: u64, second_ns: u64) -> bool {
        first_ns <= self.before_ns && second_ns >= self.after_ns
    }

    /// Whether an operation began before the step and ended after it.
    #[must_use]
    pub fn is_within(&self, exchange: &Exchange) -> bool {
        let ends = exchange.request.began.ns().zip(exchange.response.ended.ns());
        ends.is_some_and(|(began, ended)| self.is_between(began, ended))
    }

    /// Whether two connections saw the same step.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let most_ns = (self.by_ns.unsigned_abs() / 10).saturating_add(100_000_000);
        let near = |a: u64, b: u64| a.abs_diff(b) <= 5_000_000_000;
        self.by_ns.abs_diff(other.by_ns) <= most_ns
            && near(self.before_ns, other.before_ns)
            && near(self.after_ns, other.after_ns)
    }
}
