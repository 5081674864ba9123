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

/// A bin of a distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bin {
    /// The greatest round trip in it, nanoseconds; the bin begins above the end of the one before.
    pub up_to_ns: u64,
    /// Round trips in it.
    pub count: u64,
}

/// Bits of a round trip that a bin keeps below the leading one: 64 bins for each doubling.
const BIN_BITS: u32 = 6;

/// The last nanosecond of the bin that holds `ns`.
fn bin_end(ns: u64) -> u64 {
    let width_bits = (u64::BITS - ns.leading_zeros()).saturating_sub(BIN_BITS + 1);
    ns | ((1_u64 << width_bits) - 1)
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

    /// The sum of all round trips, nanoseconds.
    #[must_use]
    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    /// The round trip at a quantile, 0 to 1, nanoseconds; 0 when it is empty.
    #[must_use]
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        if self.count() == 0 { 0 } else { self.histogram.value_at_quantile(quantile) }
    }

    /// Standard deviation of the population, nanoseconds, from values with three significant digits.
    #[must_use]
    pub fn deviation_ns(&self) -> f64 {
        if self.count() == 0 { 0.0 } else { self.histogram.stdev() }
    }

    /// Its bins in ascending order, without empty ones: 64 for each doubling, as in fio's output.
    #[must_use]
    pub fn bins(&self) -> Vec<Bin> {
        let mut bins: Vec<Bin> = Vec::new();
        for value in self.histogram.iter_recorded() {
            let up_to_ns = bin_end(value.value_iterated_to());
            match bins.last_mut() {
                Some(bin) if bin.up_to_ns == up_to_ns => bin.count += value.count_since_last_iteration(),
                _ => bins.push(Bin { up_to_ns, count: value.count_since_last_iteration() }),
            }
        }
        bins
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
    fn bins_hold_every_round_trip_once_and_end_above_it() {
        let mut latency = Latency::new();
        let values: Vec<u64> = (0..2000_u64).map(|i| 1 + i * i * 7).collect();
        values.iter().for_each(|&ns| latency.record(ns));
        let bins = latency.bins();
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 2000);
        let mut from = 0;
        for bin in &bins {
            assert!(bin.up_to_ns > from || from == 0, "ascending");
            let inside = |ns: u64| bin_end(ns) == bin.up_to_ns;
            // Three digits of the recorder may move a value at the edge into the neighbour.
            let exact = values.iter().filter(|&&ns| inside(ns)).count() as u64;
            assert!(exact.abs_diff(bin.count) <= 2, "{bin:?}: {exact}");
            from = bin.up_to_ns;
        }
        assert_eq!((bin_end(1), bin_end(127), bin_end(128), bin_end(1000)), (1, 127, 129, 1007));
    }

    #[test]
    fn deviation_is_that_of_the_population() {
        let mut latency = Latency::new();
        [2, 4, 4, 4, 5, 5, 7, 9].into_iter().for_each(|ns| latency.record(ns * 1000));
        assert!((latency.deviation_ns() / 2000.0 - 1.0).abs() < 0.001, "{}", latency.deviation_ns());
        assert_eq!((Latency::new().deviation_ns(), Latency::new().quantile_ns(0.5)), (0.0, 0));
    }

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
