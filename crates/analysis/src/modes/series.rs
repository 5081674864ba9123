//! One part of consecutive operations, prepared for statistics: finite, ordered in time, outliers clipped.

use super::Point;
use crate::parts::Part;

/// A part's values.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Milliseconds since the first operation, never falling.
    pub(super) times_ms: Vec<f64>,
    /// Microseconds; outliers are clipped to the fence, so that a few cannot move a mean.
    pub(super) values: Vec<f64>,
}

/// The distance of the fence from the values that are not rare, in widths of the middle 80 % of them.
const FENCE: f64 = 6.0;
/// Values that occur less often are outliers if they are beyond the fence: a mode of 2 % of the operations is none.
const RARE: f64 = 0.015;
/// Values from which the fence is taken; more add nothing to it.
const RANKED_MAX: usize = 1 << 15;

/// Finite values in ascending order: all, or a sample of them whose distances follow no pattern.
fn ranked(values: &[f64]) -> Vec<f64> {
    let mut random = fastrand::Rng::with_seed(1);
    let stride = values.len().div_ceil(RANKED_MAX).max(1);
    let mut sorted: Vec<f64> =
        values.chunks(stride).map(|c| c[random.usize(..c.len())]).filter(|v| v.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

impl Series {
    /// The values of a part; `None` unless it was observed in nearly all operations and varies.
    pub(super) fn of(points: &[Point], part: Part) -> Option<Self> {
        Self::new(points, points.iter().map(|p| p.part(part)).collect())
    }

    /// Values of these operations, with the conditions of [`Series::of`].
    pub(super) fn new(points: &[Point], mut values: Vec<f64>) -> Option<Self> {
        let good = values.iter().filter(|v| v.is_finite()).count();
        if good * 20 < values.len() * 19 || good == 0 {
            return None;
        }
        let sorted = ranked(&values);
        let at = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
        let (low, median, high) = (at(RARE), at(0.5), at(1.0 - RARE));
        // Of values that are mostly alike, the others are the spread.
        let spread = if at(0.9) > at(0.1) { at(0.9) - at(0.1) } else { high - low };
        if spread <= 0.0 || !spread.is_finite() {
            return None;
        }
        let (floor, ceiling) = (low - FENCE * spread, high + FENCE * spread);
        for value in &mut values {
            *value = if value.is_finite() { value.clamp(floor, ceiling) } else { median };
        }
        let first = points.first()?.time_ns;
        let mut latest = 0.0_f64;
        let times_ms = points
            .iter()
            .map(|p| {
                latest = latest.max(p.time_ns.saturating_sub(first) as f64 / 1e6);
                latest
            })
            .collect();
        Some(Self { times_ms, values })
    }

    /// Medians of `count` stretches with equal numbers of operations, and the mean time of each.
    pub(super) fn stretches(&self, count: usize) -> Vec<(f64, f64)> {
        let count = count.clamp(1, self.values.len());
        let edge = |i: usize| i * self.values.len() / count;
        (0..count)
            .map(|i| {
                let range = edge(i)..edge(i + 1).max(edge(i) + 1);
                let times = &self.times_ms[range.clone()];
                let time = times.iter().sum::<f64>() / times.len() as f64;
                (time, median(self.values[range].to_vec()))
            })
            .collect()
    }
}

/// The median of values; 0 if empty.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    let middle = values.len() / 2;
    *values.select_nth_unstable_by(middle, f64::total_cmp).1
}

/// Median distance from the median, scaled to a standard deviation of normal noise.
pub(super) fn spread(values: &[f64]) -> f64 {
    let middle = median(values.to_vec());
    1.4826 * median(values.iter().map(|v| (v - middle).abs()).collect())
}

/// The border that splits values into two groups with the least variance (Otsu 1979).
pub(super) fn split(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let total: f64 = sorted.iter().sum();
    let count = sorted.len() as f64;
    let (mut below, mut best, mut border) = (0.0, f64::NEG_INFINITY, f64::NAN);
    for (index, pair) in sorted.windows(2).enumerate() {
        below += pair[0];
        let n = (index + 1) as f64;
        let (low, high) = (below / n, (total - below) / (count - n));
        let between = n * (count - n) * (high - low).powi(2);
        if between > best && pair[1] > pair[0] {
            (best, border) = (between, (pair[0] + pair[1]) / 2.0);
        }
    }
    border
}
