//! Stamps of drifting clocks: one path appears to grow as fast as the other shrinks.

use super::period;
use super::series::{Series, median};

/// A skew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Skew {
    /// Slope of the request path, microseconds per second.
    pub(super) us_per_second: f64,
    pub(super) height_us: f64,
    pub(super) period_ms: Option<f64>,
}

/// Numbers of stretches in which slopes are taken: coarse and fine, because few of them may contain a jump back.
const STRETCHES: [usize; 4] = [16, 32, 64, 128];
/// Share of the stretches in which the slopes must be opposite.
const AGREE: f64 = 0.8;
/// Fewest operations of a stretch.
const OPERATIONS_MIN: usize = 12;

/// Slope of the request path where the response path has the opposite one, microseconds per millisecond.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slope(f64);

/// Searches for opposite slopes.
pub(super) fn slope(request: &Series, response: &Series) -> Option<Slope> {
    let n = request.values.len();
    let mut slopes =
        STRETCHES.into_iter().rev().filter(|&count| n / count >= OPERATIONS_MIN).filter_map(|count| {
            let (ask, answer) = (slopes(request, count), slopes(response, count));
            let (s, r) = (median(ask.clone()), median(answer.clone()));
            let same = |all: &[f64], sign: f64| all.iter().filter(|v| **v * sign > 0.0).count() as f64;
            let is_opposite = s * r < 0.0 && (s + r).abs() <= 0.3 * s.abs().max(r.abs());
            let agrees = same(&ask, s) >= AGREE * count as f64 && same(&answer, r) >= AGREE * count as f64;
            (is_opposite && agrees).then_some(Slope((s - r) / 2.0))
        });
    slopes.next()
}

impl Slope {
    /// The skew of paths with this slope.
    pub(super) fn skew(self, request: &Series, response: &Series) -> Skew {
        let Self(per_ms) = self;
        let again = period::find(request).or_else(|| period::find(response));
        let height_us = match &again {
            Some(found) => found.height_us,
            None => per_ms.abs() * request.times_ms.last().copied().unwrap_or_default(),
        };
        Skew { us_per_second: per_ms * 1000.0, height_us, period_ms: again.map(|p| p.period_ms) }
    }
}

/// The slopes of stretches, microseconds per millisecond: the median of the second half less that of the
/// first, so that neither outliers nor a jump at the edge count.
fn slopes(series: &Series, count: usize) -> Vec<f64> {
    series
        .stretches(2 * count)
        .chunks_exact(2)
        .map(|halves| {
            let ((t0, v0), (t1, v1)) = (halves[0], halves[1]);
            if t1 > t0 { (v1 - v0) / (t1 - t0) } else { 0.0 }
        })
        .collect()
}
