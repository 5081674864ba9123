//! Slow operations at even distances in the order of operations: "every third".

use super::series::{Series, median, split, spread};

/// A pattern in the order of operations.
#[derive(Clone, Debug)]
pub(super) struct EveryNth {
    pub(super) n: u32,
    pub(super) longer_us: f64,
    pub(super) is_slow: Vec<bool>,
}

impl EveryNth {
    /// The residual series after removing the pattern.
    pub(super) fn explained(&self, mut series: Series) -> Series {
        let mean = |slow: bool| {
            let all = series.values.iter().zip(&self.is_slow);
            median(all.filter(|(_, s)| **s == slow).map(|(v, _)| *v).collect())
        };
        let longer = mean(true) - mean(false);
        for (value, slow) in series.values.iter_mut().zip(&self.is_slow) {
            if *slow {
                *value -= longer;
            }
        }
        series
    }
}

/// Largest distance searched.
const DISTANCE_MAX: usize = 64;
/// Share of the slow operations that must be followed by another at that distance.
const EVEN: f64 = 0.8;
/// The slow ones are longer by at least this many spreads of the others.
const APART: f64 = 2.0;

/// Searches for slow operations at even distances.
pub(super) fn find(series: &Series) -> Option<EveryNth> {
    // A few outliers must not determine the split: the fence has clipped them.
    let ceiling = {
        let mut sorted = series.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() - 1) * 985 / 1000]
    };
    let cut: Vec<f64> = series.values.iter().map(|v| v.min(ceiling)).collect();
    let border = split(&cut);
    let is_slow: Vec<bool> = series.values.iter().map(|&v| v > border).collect();
    let slow: Vec<usize> = (0..is_slow.len()).filter(|&i| is_slow[i]).collect();
    if slow.len() < 20 || slow.len() * 3 > is_slow.len() * 2 {
        return None;
    }
    let mut distances = [0_usize; DISTANCE_MAX + 1];
    for pair in slow.windows(2) {
        if let Some(count) = distances.get_mut(pair[1] - pair[0]) {
            *count += 1;
        }
    }
    let (n, &count) = distances.iter().enumerate().skip(2).max_by_key(|(_, count)| **count)?;
    if (count as f64) < EVEN * (slow.len() - 1) as f64 {
        return None;
    }
    let group = |slow: bool| -> Vec<f64> {
        series.values.iter().zip(&is_slow).filter(|(_, s)| **s == slow).map(|(v, _)| *v).collect()
    };
    let (fast, late) = (group(false), group(true));
    let longer_us = median(late) - median(fast.clone());
    (longer_us > APART * spread(&fast)).then_some(EveryNth { n: n as u32, longer_us, is_slow })
}
