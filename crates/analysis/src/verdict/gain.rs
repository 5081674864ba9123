//! The gain to expect from a remedy, limited to what is possible.

use super::Gain;
use super::case::{Case, duration, significant};
use crate::ledger::Class;

/// A gain below this factor is none.
const FACTOR_MIN: f64 = 1.005;

impl Case<'_> {
    /// The expected gain from removing `cost_ns` of the total duration of connections that had these exchanges. The time
    /// of an operation does not become shorter than the fastest one seen without waits, divided by the operations in
    /// flight, nor than its bytes take on the link.
    pub(super) fn gain(&self, cost_ns: u64, lasted_ns: u64, exchanges: u64) -> Option<Gain> {
        if lasted_ns == 0 || exchanges == 0 {
            return None;
        }
        let now_us = lasted_ns as f64 / exchanges as f64 / 1000.0;
        let left_us = lasted_ns.saturating_sub(cost_ns) as f64 / exchanges as f64 / 1000.0;
        let least_us = self.least_us();
        let then_us = left_us.max(least_us);
        let factor = now_us / then_us.max(f64::MIN_POSITIVE);
        if factor < FACTOR_MIN || !factor.is_finite() {
            return None;
        }
        let bound = if left_us < least_us { "at most " } else { "" };
        Some(Gain {
            throughput_factor: factor,
            operation_us: Some((now_us, then_us)),
            text: format!(
                "{bound}one operation every {} instead of every {} on the connections concerned: {} times as many",
                duration(then_us),
                duration(now_us),
                significant(factor)
            ),
        })
    }

    /// The shortest mean time between the operations of a connection that is possible, microseconds.
    pub(super) fn least_us(&self) -> f64 {
        let classes = self.evidence.ledger.classes();
        let fastest = classes
            .iter()
            .map(|class| class.fastest_ns() as f64 / 1000.0 / class.queue_depth().max(1.0))
            .reduce(f64::min)
            .unwrap_or(0.0);
        fastest.max(self.wire_us())
    }

    /// The least time that an operation's data takes on the link, microseconds; 0 if the rate is unknown.
    fn wire_us(&self) -> f64 {
        let Some(link) = self.link else { return 0.0 };
        let bytes_per_us = link.bits_per_second / 8e6 * link.efficiency;
        let least = self.evidence.ledger.classes().iter().map(Class::block_size_bytes).reduce(f64::min);
        least.unwrap_or(0.0) / bytes_per_us.max(f64::MIN_POSITIVE)
    }
}
