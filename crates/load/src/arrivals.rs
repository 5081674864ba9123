//! When the operations of an open loop are due.

use std::str::FromStr;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// The process of arrivals of an open loop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arrival {
    /// Equal intervals.
    #[default]
    Constant,
    /// Independent, exponentially distributed intervals: the arrivals of many independent users.
    Poisson,
}

impl FromStr for Arrival {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            _ => Err(format!("'{text}' is not a process of arrivals; use constant or poisson")),
        }
    }
}

/// The times at which operations are due, nanoseconds from the start of the loop.
#[derive(Clone, Debug)]
pub struct Arrivals {
    process: Arrival,
    per_second: f64,
    rng: Rng,
    /// Times taken.
    taken: u64,
    /// The next one. The sum of Poisson's intervals is kept as a real number, so that roundings do not add up.
    next_ns: f64,
}

impl Arrivals {
    /// Creates arrivals of `per_second` on average, deterministic for a seed. The first of equal intervals is at the start,
    /// the first of a Poisson process one interval later.
    #[must_use]
    pub fn new(process: Arrival, per_second: f64, seed: u64) -> Self {
        let mut arrivals = Self { process, per_second, rng: Rng::with_seed(seed), taken: 0, next_ns: 0.0 };
        if process == Arrival::Poisson {
            arrivals.next_ns = arrivals.interval_ns();
        }
        arrivals
    }

    /// Returns the time of the next operation, nanoseconds, without taking it.
    #[must_use]
    #[inline]
    pub fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    /// Takes the next time, nanoseconds.
    #[inline]
    pub fn take(&mut self) -> u64 {
        let due = self.next_ns();
        self.taken += 1;
        self.next_ns = match self.process {
            Arrival::Constant => self.taken as f64 * 1e9 / self.per_second,
            Arrival::Poisson => self.next_ns + self.interval_ns(),
        };
        due
    }

    /// Returns how many times lie at or before `now_ns` and have not been taken: of equal intervals exactly, of a Poisson
    /// process the expected number.
    #[must_use]
    pub fn overdue(&self, now_ns: u64) -> u64 {
        let late_ns = now_ns as f64 - self.next_ns;
        if late_ns < 0.0 { 0 } else { (late_ns * self.per_second / 1e9) as u64 + 1 }
    }

    fn interval_ns(&mut self) -> f64 {
        // 1 - u is above zero, so the logarithm is finite.
        -(1.0 - self.rng.f64()).ln() * 1e9 / self.per_second
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intervals(arrivals: &mut Arrivals, count: usize) -> Vec<f64> {
        let mut before = 0.0;
        (0..count)
            .map(|_| {
                let due = arrivals.take() as f64;
                let interval = due - before;
                before = due;
                interval
            })
            .collect()
    }

    #[test]
    fn equal_intervals_do_not_drift() {
        let mut arrivals = Arrivals::new(Arrival::Constant, 3.0, 1);
        let due: Vec<u64> = (0..4).map(|_| arrivals.take()).collect();
        assert_eq!(due, [0, 333_333_333, 666_666_666, 1_000_000_000]);
        assert_eq!((arrivals.overdue(1_000_000_000), arrivals.overdue(2_000_000_000)), (0, 3));
    }

    /// The Kolmogorov-Smirnov distance from the exponential distribution at a level of 0.1 %, the mean, the variance, and the
    /// correlation of successive intervals.
    #[test]
    fn poisson_intervals_are_exponential_and_independent() {
        const COUNT: usize = 50_000;
        let mut arrivals = Arrivals::new(Arrival::Poisson, 2_000.0, 7);
        let intervals = intervals(&mut arrivals, COUNT);
        let mean = 500_000.0;
        let n = COUNT as f64;
        let average = intervals.iter().sum::<f64>() / n;
        assert!((average / mean - 1.0).abs() < 4.0 / n.sqrt(), "{average}");
        let variance = intervals.iter().map(|x| (x - average).powi(2)).sum::<f64>() / n;
        assert!((variance / (mean * mean) - 1.0).abs() < 4.0 * (8.0 / n).sqrt(), "{variance}");
        let pairs = intervals.windows(2).map(|pair| (pair[0] - average) * (pair[1] - average));
        let correlation = pairs.sum::<f64>() / n / variance;
        assert!(correlation.abs() < 4.0 / n.sqrt(), "{correlation}");
        let mut sorted = intervals;
        sorted.sort_by(f64::total_cmp);
        let distance = sorted
            .iter()
            .enumerate()
            .map(|(index, x)| (1.0 - (-x / mean).exp() - index as f64 / n).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / n.sqrt(), "{distance}");
    }

    #[test]
    fn seeds_decide_the_arrivals() {
        let of = |seed| intervals(&mut Arrivals::new(Arrival::Poisson, 10.0, seed), 5);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }
}
