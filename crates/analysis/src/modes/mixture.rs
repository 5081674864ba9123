//! Whether a segment has more than one mode, and which.
//!
//! The dip decides whether there is more than one mode; a mixture of log-normal components (EM; their number by the
//! Bayesian information criterion) locates the modes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dip::dip;
use super::series::Series;

/// A mode.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Mode {
    /// The centre of its distribution (the median of a log-normal), microseconds.
    pub centre_us: f64,
    /// Arithmetic mean of its operations, microseconds: those nearer to this centre than to another, on a logarithmic scale.
    pub mean_us: f64,
    /// Share of the operations.
    pub share: f64,
    /// Standard deviation, as a share of the centre.
    pub spread: f64,
}

impl Mode {
    /// A phrase for reports.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{:.0} us ({:.0} %)", self.mean_us, self.share * 100.0)
    }
}

/// The modes of a segment.
#[derive(Clone, Debug)]
pub(super) struct Mixture {
    pub(super) modes: Vec<Mode>,
    pub(super) is_slow: Vec<bool>,
}

/// The dip times the square root of the number of independent values must exceed this: uniform values reach
/// it less than once in ten thousand times.
pub(super) const CRITICAL: f64 = 0.9;
/// Number of values for the dip.
const VALUES_MAX: usize = 2000;
/// Smallest share of a mode.
const SHARE_MIN: f64 = 0.03;
/// Smallest distance between modes, in their standard deviations (Ashman, Bird, Zepf 1994).
const APART: f64 = 2.5;

/// Searches for modes.
pub(super) fn find(series: &Series) -> Option<Mixture> {
    let values = dithered(&series.values);
    let stride = values.len().div_ceil(VALUES_MAX);
    let sample: Vec<f64> = values.iter().step_by(stride).copied().collect();
    // Autocorrelated values count for less.
    let similar = autocorrelation(&sample).clamp(0.0, 0.95);
    let independent = sample.len() as f64 * (1.0 - similar) / (1.0 + similar);
    if dip(&sample) * independent.sqrt() < CRITICAL {
        return None;
    }
    let least = sample.iter().copied().fold(f64::INFINITY, f64::min);
    // Logarithms need positive values; clock differences may be negative.
    let shift = if least <= 0.0 { 1.0 - least } else { 0.0 };
    let logs: Vec<f64> = sample.iter().map(|v| (v + shift).ln()).collect();
    let (two, three) = (fit(&logs, 2)?, fit(&logs, 3));
    let best = three.filter(|t| is_apart(t) && t.information < two.information - 10.0).unwrap_or(two);
    if !is_apart(&best) {
        return None;
    }
    let mut modes: Vec<Mode> = best
        .components
        .iter()
        .map(|c| Mode { centre_us: c.mean.exp() - shift, mean_us: 0.0, share: c.weight, spread: c.deviation })
        .collect();
    modes.sort_by(|a, b| a.centre_us.total_cmp(&b.centre_us));
    let borders: Vec<f64> = modes.windows(2).map(|pair| border(pair[0], pair[1], shift)).collect();
    let &last = borders.last()?;
    for (place, mode) in modes.iter_mut().enumerate() {
        let own = |value: &&f64| borders.iter().filter(|border| *value > border).count() == place;
        let (sum, count) = series.values.iter().filter(own).fold((0.0, 0.0), |(s, n), v| (s + v, n + 1.0));
        mode.mean_us = if count > 0.0 { sum / count } else { mode.centre_us };
    }
    let is_slow = series.values.iter().map(|&v| v > last).collect();
    Some(Mixture { modes, is_slow })
}

/// The border between two modes, at the same number of their deviations from both centres.
fn border(a: Mode, b: Mode, shift: f64) -> f64 {
    let (low, high) = ((a.centre_us + shift).max(1e-9).ln(), (b.centre_us + shift).max(1e-9).ln());
    (low + (high - low) * a.spread / (a.spread + b.spread).max(1e-9)).exp() - shift
}

/// Spreads values evenly within the resolution of their clock, because ties look like modes.
fn dithered(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let step = sorted.windows(2).map(|p| p[1] - p[0]).filter(|&d| d > 1e-6).fold(f64::INFINITY, f64::min);
    let ties = sorted.windows(2).filter(|p| p[1] - p[0] <= 1e-6).count();
    if ties * 10 < sorted.len() || !step.is_finite() {
        return values.to_vec();
    }
    let mut random = fastrand::Rng::with_seed(1);
    values.iter().map(|v| v + (random.f64() - 0.5) * step).collect()
}

/// Correlation of values with their successors.
fn autocorrelation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let variance: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    let covariance: f64 = values.windows(2).map(|p| (p[0] - mean) * (p[1] - mean)).sum();
    if variance > 0.0 { covariance / variance } else { 1.0 }
}

#[derive(Clone, Copy, Debug)]
struct Component {
    weight: f64,
    mean: f64,
    deviation: f64,
}

#[derive(Debug)]
struct Fit {
    components: Vec<Component>,
    /// Bayesian information criterion: less is better.
    information: f64,
}

/// Whether all components are separate modes.
fn is_apart(fit: &Fit) -> bool {
    let mut sorted = fit.components.clone();
    sorted.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    sorted.iter().all(|c| c.weight >= SHARE_MIN)
        && sorted.windows(2).all(|p| {
            let deviation = ((p[0].deviation.powi(2) + p[1].deviation.powi(2)) / 2.0).sqrt();
            p[1].mean - p[0].mean >= APART * deviation
        })
}

/// Fits a mixture of normal components (Dempster, Laird, Rubin 1977).
fn fit(values: &[f64], count: usize) -> Option<Fit> {
    let n = values.len() as f64;
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let quantile = |share: f64| sorted[((sorted.len() - 1) as f64 * share) as usize];
    let floor = ((quantile(0.95) - quantile(0.05)) / 200.0).max(1e-6);
    let starts: &[&[f64]] = match count {
        2 => &[&[0.1, 0.9], &[0.3, 0.95], &[0.05, 0.6]],
        _ => &[&[0.1, 0.5, 0.9], &[0.2, 0.8, 0.97]],
    };
    let mut best: Option<Fit> = None;
    for start in starts {
        let deviation = ((quantile(0.9) - quantile(0.1)) / 4.0).max(floor);
        let mut components: Vec<Component> = start
            .iter()
            .map(|&share| Component { weight: 1.0 / count as f64, mean: quantile(share), deviation })
            .collect();
        let mut likelihood = f64::NEG_INFINITY;
        for _ in 0..100 {
            let mut sums = vec![(0.0, 0.0, 0.0); count];
            let mut now = 0.0;
            for &v in values {
                let density = |c: &Component| {
                    c.weight / c.deviation * (-((v - c.mean) / c.deviation).powi(2) / 2.0).exp()
                };
                let all: f64 = components.iter().map(density).sum::<f64>().max(1e-300);
                now += all.ln();
                for (sum, c) in sums.iter_mut().zip(&components) {
                    let share = density(c) / all;
                    *sum = (sum.0 + share, sum.1 + share * v, sum.2 + share * v * v);
                }
            }
            for (c, (weight, sum, squares)) in components.iter_mut().zip(sums) {
                if weight > 1e-9 {
                    let mean = sum / weight;
                    let deviation = (squares / weight - mean * mean).max(0.0).sqrt().max(floor);
                    *c = Component { weight: weight / n, mean, deviation };
                }
            }
            let is_still = (now - likelihood).abs() < 1e-6 * n;
            likelihood = now;
            if is_still {
                break;
            }
        }
        let information = (3 * count - 1) as f64 * n.ln() - 2.0 * likelihood;
        if information.is_finite() && best.as_ref().is_none_or(|b| information < b.information) {
            best = Some(Fit { components, information });
        }
    }
    best
}
