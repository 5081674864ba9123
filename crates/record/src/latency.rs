//! Latency distributions.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution of round trips, 1 ns to 100 s, three significant digits.
#[derive(Clone, Debug)]
pub struct Latency {
    histogram: Histogram<u64>,
    /// The exact sum: the histogram's own mean carries its rounding.
    sum_ns: u128,
}

/// The figures of a distribution, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyFigures {
    /// Arithmetic mean, exact.
    pub mean: f64,
    /// Least.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// Greatest.
    pub max: f64,
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

impl Latency {
    const HIGHEST_NS: u64 = 100_000_000_000;

    /// An empty distribution.
    #[must_use]
    pub fn new() -> Self {
        // The bounds are constants within the library's range; were they not, an auto-resizing histogram
        // would hold the same data.
        let histogram = Histogram::new_with_bounds(1, Self::HIGHEST_NS, 3)
            .or_else(|_| Histogram::new(3))
            .unwrap_or_else(|_| unreachable!("three significant digits are always allowed"));
        Self { histogram, sum_ns: 0 }
    }

    /// Adds one round trip, nanoseconds.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.max(1));
        self.sum_ns += u128::from(ns);
    }

    /// Adds another distribution.
    pub fn add(&mut self, other: &Latency) {
        // Same bounds on both sides, so it cannot fail.
        let _ = self.histogram.add(&other.histogram);
        self.sum_ns += other.sum_ns;
    }

    /// How many round trips it holds.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Its figures; zeros when it is empty.
    #[must_use]
    pub fn figures(&self) -> LatencyFigures {
        if self.count() == 0 {
            return LatencyFigures::default();
        }
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |q| us(self.histogram.value_at_quantile(q));
        LatencyFigures {
            mean: self.sum_ns as f64 / self.count() as f64 / 1000.0,
            min: us(self.histogram.min()),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: us(self.histogram.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_known_distribution() {
        let mut latency = Latency::new();
        (1..=1000).for_each(|us| latency.record(us * 1000));
        let f = latency.figures();
        assert!((f.mean - 500.5).abs() < 1e-9);
        assert!((f.p50 - 500.0).abs() < 1.0 && (f.p99 - 990.0).abs() < 1.0);
        assert!((f.max - 1000.0).abs() < 1.0);
        assert_eq!(Latency::new().figures(), LatencyFigures::default());
    }
}
