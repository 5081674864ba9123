//! Changes over the whole record: ramps and jumps.

use super::series::{Series, median, spread};

/// A drift.
#[derive(Clone, Debug)]
pub(super) enum Drift {
    /// It grows or falls steadily.
    Ramp { change_us: f64 },
    /// It jumps and stays.
    Jumps(Vec<Jump>),
}

/// A jump.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jump {
    /// At which operation.
    pub(super) at: usize,
    pub(super) levels_us: (f64, f64),
}

/// Number of stretches whose medians are compared.
const STRETCHES: usize = 100;
/// The largest cumulated deviation of independent values, over their spread and the root of their number,
/// exceeds 1.95 once in a thousand times (Kolmogorov); values from queues are autocorrelated.
const CRITICAL: f64 = 3.2;
/// A change of less than this share of the level is not reported.
const CHANGE: f64 = 0.12;
/// The means on both sides of a jump differ by this share of what the medians do, at least.
const MEAN_SHARE: f64 = 0.5;
/// Most jumps; a series with more is not reported as jumps.
const JUMPS_MAX: usize = 5;

/// Searches for a drift.
pub(super) fn find(series: &Series) -> Option<Drift> {
    let count = (series.values.len() / 10).clamp(20, STRETCHES);
    let medians: Vec<f64> = series.stretches(count).into_iter().map(|(_, m)| m).collect();
    let level = median(medians.clone()).abs();
    let mut places = Vec::new();
    jumps(&medians, 0, &mut places);
    if places.is_empty() {
        return None;
    }
    // A straight line fits steady growth better than a few steps do.
    let (slope, line_error) = line(&medians);
    places.sort_unstable();
    let steps_error = steps(&medians, &places);
    let change_us = slope * (count - 1) as f64;
    if line_error < 1.5 * steps_error || places.len() > JUMPS_MAX {
        return (change_us.abs() > CHANGE * level && line_error < 0.4 * line_error_of_mean(&medians))
            .then_some(Drift::Ramp { change_us });
    }
    let edges: Vec<usize> = std::iter::once(0).chain(places.iter().copied()).chain([count]).collect();
    let place = |edge: usize| edge * series.values.len() / count;
    let mean = |from: usize, to: usize| {
        let values = &series.values[place(from)..place(to)];
        values.iter().sum::<f64>() / values.len().max(1) as f64
    };
    let found: Vec<Jump> = edges
        .windows(3)
        // Of two modes with similar shares, a stretch has one or the other as its median by chance; its mean hardly differs.
        .filter(|e| {
            let of_medians = median(medians[e[1]..e[2]].to_vec()) - median(medians[e[0]..e[1]].to_vec());
            let of_means = mean(e[1], e[2]) - mean(e[0], e[1]);
            of_means / of_medians >= MEAN_SHARE
        })
        .map(|e| {
            let (before, behind) =
                (median(medians[e[0]..e[1]].to_vec()), median(medians[e[1]..e[2]].to_vec()));
            Jump { at: place(e[1]), levels_us: (before, behind) }
        })
        .filter(|jump| (jump.levels_us.1 - jump.levels_us.0).abs() > CHANGE * level)
        .collect();
    (!found.is_empty()).then_some(Drift::Jumps(found))
}

/// Places where the level changes, by halving (Scott and Knott 1974).
fn jumps(values: &[f64], from: usize, places: &mut Vec<usize>) {
    if values.len() < 8 || places.len() > JUMPS_MAX {
        return;
    }
    let steps: Vec<f64> = values.windows(2).map(|p| p[1] - p[0]).collect();
    // The noise of differences, so that a changing level does not count as noise.
    let noise = (spread(&steps) / std::f64::consts::SQRT_2).max(1e-9);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let (mut sum, mut best, mut place) = (0.0, 0.0_f64, 0);
    for (index, value) in values.iter().enumerate().take(values.len() - 1) {
        sum += value - mean;
        if f64::abs(sum) > best {
            (best, place) = (f64::abs(sum), index + 1);
        }
    }
    if best / (noise * (values.len() as f64).sqrt()) < CRITICAL {
        return;
    }
    places.push(from + place);
    jumps(&values[..place], from, places);
    jumps(&values[place..], from + place, places);
}

/// Slope of the regression line, and its residual sum of squares.
fn line(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let (mut covariance, mut variance) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let x = index as f64 - mean_x;
        covariance += x * (value - mean_y);
        variance += x * x;
    }
    let slope = covariance / variance;
    let error = |(index, value): (usize, &f64)| (value - mean_y - slope * (index as f64 - mean_x)).powi(2);
    (slope, values.iter().enumerate().map(error).sum())
}

/// The residual sum of squares of a constant.
fn line_error_of_mean(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|v| (v - mean).powi(2)).sum()
}

/// The residual sum of squares of levels between the given places.
fn steps(values: &[f64], places: &[usize]) -> f64 {
    let edges: Vec<usize> = std::iter::once(0).chain(places.iter().copied()).chain([values.len()]).collect();
    edges.windows(2).map(|e| line_error_of_mean(&values[e[0]..e[1]])).sum()
}
