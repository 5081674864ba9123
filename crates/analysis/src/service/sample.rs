//! An even sample of a long sequence of times, for quantiles finer than the buckets of a histogram.

/// Values kept.
const KEPT: usize = 1024;

/// Every n-th value, where n doubles whenever the sample is full.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    values: Vec<f32>,
    seen: u64,
    spacing_log: u32,
}

impl Sample {
    #[inline]
    pub(crate) fn add(&mut self, ns: u64) {
        let is_kept = self.seen.trailing_zeros() >= self.spacing_log;
        self.seen += 1;
        if !is_kept {
            return;
        }
        self.values.push(ns as f32);
        if self.values.len() == KEPT {
            let mut place = 0;
            self.values.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.spacing_log += 1;
        }
    }

    /// All values, kept or not.
    pub(crate) fn count(&self) -> u64 {
        self.seen
    }

    /// A function of its quantiles, ns.
    pub(crate) fn quantiles(&self) -> impl Fn(f64) -> Option<f64> {
        let mut sorted = self.values.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        move |share| {
            let place = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
            sorted.get(place).map(|&ns| f64::from(ns))
        }
    }

    /// The quartiles, ns.
    pub(crate) fn quartiles(&self) -> Option<Quartiles> {
        let at = self.quantiles();
        Some(Quartiles { lower: at(0.25)?, median: at(0.5)?, upper: at(0.75)?, values: self.values.len() })
    }
}

/// The quartiles of a sample, ns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quartiles {
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
    /// Values that they are of.
    pub(crate) values: usize,
}

impl Quartiles {
    /// The distance of the quartiles.
    pub(crate) fn spread(&self) -> f64 {
        self.upper - self.lower
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_of_the_whole_sequence() {
        let mut sample = Sample::default();
        (0..100_000_u64).for_each(|i| sample.add(i));
        let quartiles = sample.quartiles().unwrap();
        assert!(sample.values.len() < KEPT && sample.count() == 100_000);
        for (value, truth) in [(quartiles.lower, 25e3), (quartiles.median, 50e3), (quartiles.upper, 75e3)] {
            assert!((value - truth).abs() < 600.0, "{value}");
        }
        assert_eq!(Sample::default().quartiles(), None);
    }
}
