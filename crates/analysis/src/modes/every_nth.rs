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
/// Share of the slow operations that must be followed by another at that distance; some are slow for another reason.
const EVEN: f64 = 0.7;
/// Multiples of the distance have about the same share: the shortest is the distance.
const SHORTEST: f64 = 0.9;
/// The mean share at shorter distances, over that at the distance: at random all shares are alike.
const OTHERS: f64 = 0.4;
/// Slow operations in each n, with those that are slow for another reason.
const ONE_EACH: std::ops::RangeInclusive<f64> = 0.7..=1.6;
/// The slow ones are longer by at least this many spreads of the others.
const APART: f64 = 2.0;

/// Searches for slow operations at even distances: those above the border of two groups, and, where a few are slower by far
/// than these, of two groups of logarithms.
pub(super) fn find(series: &Series) -> Option<EveryNth> {
    // A few outliers must not determine the split: the fence has clipped them.
    let ceiling = {
        let mut sorted = series.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() - 1) * 985 / 1000]
    };
    let cut: Vec<f64> = series.values.iter().map(|v| v.min(ceiling)).collect();
    let least = cut.iter().copied().fold(f64::INFINITY, f64::min);
    let unit = (median(cut.clone()) - least).max(1e-3);
    let logarithms: Vec<f64> = cut.iter().map(|v| (v - least + unit).ln()).collect();
    let borders = [split(&cut), split(&logarithms).exp() + least - unit];
    borders.into_iter().find_map(|border| above(series, border))
}

/// Searches for operations above a border at even distances.
fn above(series: &Series, border: f64) -> Option<EveryNth> {
    let is_slow: Vec<bool> = series.values.iter().map(|&v| v > border).collect();
    let slow: Vec<usize> = (0..is_slow.len()).filter(|&i| is_slow[i]).collect();
    if slow.len() < 20 || slow.len() * 3 > is_slow.len() * 2 {
        return None;
    }
    // Of the slow ones, those that are followed by another at each distance, whatever is between them.
    let followed = |distance: usize| {
        let all = slow.iter().filter(|&&i| i + distance < is_slow.len());
        let (both, count) = all.fold((0, 0), |(b, n), &i| (b + u32::from(is_slow[i + distance]), n + 1));
        f64::from(both) / f64::from(count.max(1))
    };
    let shares: Vec<f64> = (1..=DISTANCE_MAX).map(followed).collect();
    let most = shares[1..].iter().copied().fold(0.0, f64::max);
    let n = 2 + shares[1..].iter().position(|share| *share >= SHORTEST * most)?;
    let others = &shares[..n - 1];
    let other = others.iter().sum::<f64>() / others.len() as f64;
    let of_each = slow.len() as f64 / is_slow.len() as f64 * n as f64;
    if most < EVEN || other > OTHERS * most || !ONE_EACH.contains(&of_each) {
        return None;
    }
    let group = |slow: bool| -> Vec<f64> {
        series.values.iter().zip(&is_slow).filter(|(_, s)| **s == slow).map(|(v, _)| *v).collect()
    };
    let (fast, late) = (group(false), group(true));
    let longer_us = median(late) - median(fast.clone());
    (longer_us > APART * spread(&fast)).then_some(EveryNth { n: n as u32, longer_us, is_slow })
}
