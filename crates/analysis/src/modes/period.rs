//! Patterns that repeat in time: square waves, sawteeth.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::series::{Series, median, spread};

/// The shape of one period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum Shape {
    /// High for a while, then low.
    Square {
        /// Duration of the high phase, milliseconds.
        high_ms: f64,
    },
    /// It climbs and falls back at once, or falls and jumps up.
    Sawtooth {
        /// Whether it climbs.
        rising: bool,
    },
    /// Another shape.
    Other,
}

impl Shape {
    /// A phrase for reports.
    #[must_use]
    pub fn text(&self, period_ms: f64) -> String {
        match self {
            Shape::Square { high_ms } => {
                format!("{high_ms:.0} ms high, {:.0} ms low", period_ms - high_ms)
            }
            Shape::Sawtooth { rising: true } => "it climbs and falls back at once".to_owned(),
            Shape::Sawtooth { rising: false } => "it falls and jumps up again".to_owned(),
            Shape::Other => "in waves".to_owned(),
        }
    }
}

/// A periodic pattern.
#[derive(Clone, Debug)]
pub(super) struct Period {
    pub(super) period_ms: f64,
    pub(super) shape: Shape,
    pub(super) height_us: f64,
    /// The median of each phase, less that of all phases.
    profile: Vec<f64>,
}

/// A pattern covers a record if each section has at least this share of its height.
const COVERS: f64 = 0.5;
/// Sections that are compared, at most.
const SECTIONS_MAX: usize = 8;

impl Period {
    /// What the pattern adds at a time, microseconds.
    pub(super) fn at(&self, time_ms: f64) -> f64 {
        self.profile[phase(time_ms, self.period_ms)]
    }

    /// Whether all sections of the record have the pattern, not only some of them.
    pub(super) fn covers(&self, series: &Series) -> bool {
        let cycles = series.times_ms.last().map_or(0.0, |lasted| lasted / self.period_ms);
        let sections = ((cycles / 2.0) as usize).clamp(1, SECTIONS_MAX);
        let edge = |i: usize| i * series.values.len() / sections;
        (0..sections).all(|i| {
            let range = edge(i)..edge(i + 1);
            let values = &series.values[range.clone()];
            let expected: Vec<f64> = series.times_ms[range].iter().map(|time| self.at(*time)).collect();
            let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len().max(1) as f64;
            let (mean_value, mean_expected) = (mean(values), mean(&expected));
            let (mut both, mut own) = (0.0, 0.0);
            for (value, expected) in values.iter().zip(&expected) {
                both += (value - mean_value) * (expected - mean_expected);
                own += (expected - mean_expected).powi(2);
            }
            own > 0.0 && both / own >= COVERS
        })
    }
}

/// Bins of time.
const BINS_MAX: usize = 8192;
/// Smallest autocorrelation at one period.
const CORRELATION: f64 = 0.4;
/// Fewest periods in the record.
const CYCLES_MIN: usize = 5;
/// Smallest correlation of the profiles of even and odd periods.
const ALIKE: f64 = 0.85;
/// Operations on which a period is refined.
const REFINED_MAX: usize = 16_384;
/// Bins of one period's profile.
const PHASES: usize = 24;

/// Searches for a period.
pub(super) fn find(series: &Series) -> Option<Period> {
    let lasted = *series.times_ms.last()?;
    let bins = (series.values.len() / 4).min(BINS_MAX);
    if lasted <= 0.0 || bins < 48 {
        return None;
    }
    let width = lasted / bins as f64;
    let binned = bin(series, bins, lasted)?;
    let lag = repeats_after(&binned)?;
    let period_ms = refine(series, lag as f64 * width, width);
    let all = profile(series, period_ms, |_| true)?;
    // A periodic pattern has similar profiles in even and odd periods.
    let [even, odd] = [0, 1].map(|rest| profile(series, period_ms, |cycle| cycle % 2 == rest));
    if alike(&even?, &odd?) < ALIKE {
        return None;
    }
    let profile = all;
    let (shape, height_us) = shape(&profile, period_ms);
    // The profile must exceed the noise of single operations' means.
    let noise =
        spread(&residuals(series, period_ms, &profile)) / (series.values.len() as f64 / PHASES as f64).sqrt();
    let middle = median(profile.clone());
    let profile = profile.into_iter().map(|v| v - middle).collect();
    (height_us > 8.0 * noise).then_some(Period { period_ms, shape, height_us, profile })
}

/// Values in bins of time.
struct Binned {
    /// The median of each bin, less the mean of all; 0 where it is missing.
    values: Vec<f64>,
    /// Whether each bin has one, if not all do.
    is_there: Option<Vec<bool>>,
}

/// The median of each bin of time, less the mean of all. A bin without operations has the median of all, because
/// the operation that blocked others says nothing about neighbouring bins. Where most bins have none (operations were left
/// out), they are missing.
fn bin(series: &Series, bins: usize, lasted: f64) -> Option<Binned> {
    let mut binned = vec![Vec::new(); bins];
    for (time, value) in series.times_ms.iter().zip(&series.values) {
        binned[((time / lasted * bins as f64) as usize).min(bins - 1)].push(*value);
    }
    let is_there: Vec<bool> = binned.iter().map(|values| !values.is_empty()).collect();
    let present = is_there.iter().filter(|is| **is).count();
    if present < 48 {
        return None;
    }
    let is_thinned = present * 2 < bins;
    let usual = median(series.values.clone());
    let mut medians: Vec<f64> =
        binned.into_iter().map(|values| if values.is_empty() { usual } else { median(values) }).collect();
    // A few bins dominated by an outlier must not mask the others.
    let counts = |place: usize| !is_thinned || is_there[place];
    let mut sorted: Vec<f64> = (0..bins).filter(|&i| counts(i)).map(|i| medians[i]).collect();
    sorted.sort_by(f64::total_cmp);
    let (low, high) = (sorted[sorted.len() / 20], sorted[sorted.len() - 1 - sorted.len() / 20]);
    let margin = (high - low) / 2.0;
    for value in &mut medians {
        *value = value.clamp(low - margin, high + margin);
    }
    let of = |i: usize| if counts(i) { medians[i] } else { 0.0 };
    let mean = (0..bins).map(of).sum::<f64>() / sorted.len() as f64;
    let values = (0..bins).map(|i| if counts(i) { medians[i] - mean } else { 0.0 }).collect();
    Some(Binned { values, is_there: is_thinned.then_some(is_there) })
}

/// Sums of a product that do not wait for each other: one sum alone waits for each of its additions.
const SUMS: usize = 8;

/// The scalar product of the values that both have.
fn product(a: &[f64], b: &[f64]) -> f64 {
    let common = a.len().min(b.len());
    let (a, b) = (a[..common].chunks_exact(SUMS), b[..common].chunks_exact(SUMS));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0; SUMS];
    for (a, b) in a.zip(b) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum::<f64>() + rest
}

/// After how many bins the values repeat themselves.
fn repeats_after(binned: &Binned) -> Option<usize> {
    let values = &binned.values;
    let present = binned.is_there.as_ref().map_or(values.len(), |is| is.iter().filter(|is| **is).count());
    let n = values.len();
    let power: f64 = values.iter().map(|v| v * v).sum::<f64>() / present as f64;
    if power <= 0.0 {
        return None;
    }
    let pairs = |lag: usize| match &binned.is_there {
        None => n - lag,
        Some(is) => is[lag..].iter().zip(is).filter(|(a, b)| **a && **b).count(),
    };
    let correlation = |lag: usize| {
        let sum = product(&values[lag..], values);
        let pairs = pairs(lag);
        // Too few pairs say nothing.
        if pairs * 20 < present { 0.0 } else { sum / pairs as f64 / power }
    };
    let n = present.min(n);
    let all: Vec<f64> = (0..values.len() / CYCLES_MIN).map(correlation).collect();
    // Correlation between neighbours is not a period: the autocorrelation must first fall.
    let unlike = all.iter().position(|&c| c < 0.1)?;
    let highest = all[unlike..].iter().copied().fold(f64::NEG_INFINITY, f64::max);
    // For independent values it is one over the root of their number.
    if highest < CORRELATION.max(6.0 / (n as f64).sqrt()) {
        return None;
    }
    let is_peak = |lag: usize| {
        all[lag] >= 0.75 * highest
            && all[lag] >= all[lag - 1]
            && all.get(lag + 1).is_none_or(|next| all[lag] >= *next)
    };
    let lag = (unlike.max(1)..all.len()).find(|&lag| is_peak(lag))?;
    // It must recur after the same time, if the record is long enough.
    let again = all.get(2 * lag).is_none_or(|&c| c > 0.5 * highest);
    (lag >= 4 && again).then_some(lag)
}

/// The period near `about` for which the operations' phases explain most of the variance.
fn refine(series: &Series, about: f64, width: f64) -> f64 {
    let lasted = series.times_ms.last().copied().unwrap_or_default();
    // The steps of one search must not add up to more than a phase: else over few periods first, then over more.
    let is_fine = |width: f64, span: f64| 1.5 * width / STEPS * span / about < about / PHASES as f64;
    let mut span = if is_fine(width, lasted) { lasted } else { FIRST_PERIODS * about };
    let sample = sampled(series, span);
    let (most, period) = best_near(&sample, about, 1.5 * width);
    // Multiples of the period explain as much: choose the shortest.
    let shorter = [3.0, 2.0].map(|part| best_near(&sample, period / part, 1.5 * width));
    let mut period = shorter.into_iter().find(|(s, _)| *s > 0.8 * most).map_or(period, |(_, period)| period);
    while span < lasted {
        let width = 2.0 * period / PHASES as f64 * period / span;
        span *= 2.0;
        period = best_near(&sampled(series, span), period, width).1;
    }
    period
}

/// Periods over which a long record is searched first.
const FIRST_PERIODS: f64 = 16.0;
/// Steps of a search on each side.
const STEPS: f64 = 60.0;

/// Times and values of operations of the first `span_ms`, and no more than a search has time for.
fn sampled(series: &Series, span_ms: f64) -> Vec<(f64, f64)> {
    let count = series.times_ms.partition_point(|time| *time <= span_ms);
    let stride = count.div_ceil(REFINED_MAX).max(1);
    let all = series.times_ms[..count].iter().copied().zip(series.values.iter().copied());
    all.step_by(stride).collect()
}

/// The period within `width` of `about` that explains most of the variance, and how much.
fn best_near(sample: &[(f64, f64)], about: f64, width: f64) -> (f64, f64) {
    let mean = sample.iter().map(|(_, value)| value).sum::<f64>() / sample.len().max(1) as f64;
    let strength = |period: f64| {
        let mut sums = [(0.0, 0.0); PHASES];
        for (time, value) in sample {
            let sum = &mut sums[phase(*time, period)];
            *sum = (sum.0 + value, sum.1 + 1.0);
        }
        sums.iter().filter(|s| s.1 > 0.0).map(|s| (s.0 / s.1 - mean).powi(2) * s.1).sum::<f64>()
    };
    (-(STEPS as i32)..=STEPS as i32)
        .map(|step| about + f64::from(step) / STEPS * width)
        .filter(|&period| period > 0.0)
        .map(|period| (strength(period), period))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .unwrap_or((0.0, about))
}

/// The phase of a time within its period.
fn phase(time: f64, period: f64) -> usize {
    (((time / period).fract() * PHASES as f64) as usize).min(PHASES - 1)
}

/// The median of each phase, over the selected periods.
fn profile(series: &Series, period: f64, wanted: impl Fn(u64) -> bool) -> Option<Vec<f64>> {
    let mut phases = vec![Vec::new(); PHASES];
    for (time, value) in series.times_ms.iter().zip(&series.values) {
        if wanted((time / period) as u64) {
            phases[phase(*time, period)].push(*value);
        }
    }
    phases.iter().all(|p| p.len() >= 3).then(|| phases.into_iter().map(median).collect())
}

/// Correlation of two profiles.
fn alike(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let mean = |v: &[f64]| v.iter().sum::<f64>() / n;
    let (mean_a, mean_b) = (mean(a), mean(b));
    let covariance: f64 = a.iter().zip(b).map(|(x, y)| (x - mean_a) * (y - mean_b)).sum();
    let power = |v: &[f64], m: f64| v.iter().map(|x| (x - m).powi(2)).sum::<f64>();
    covariance / (power(a, mean_a) * power(b, mean_b)).sqrt().max(1e-12)
}

/// The variance that the phases leave unexplained.
fn residuals(series: &Series, period: f64, profile: &[f64]) -> Vec<f64> {
    series.times_ms.iter().zip(&series.values).map(|(t, v)| v - profile[phase(*t, period)]).collect()
}

/// The shape of a profile, and its height.
fn shape(profile: &[f64], period_ms: f64) -> (Shape, f64) {
    let low = profile.iter().copied().fold(f64::INFINITY, f64::min);
    let high = profile.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let height = high - low;
    let near = |level: f64| profile.iter().filter(|&&v| (v - level).abs() < 0.25 * height).count();
    let n = profile.len();
    if near(low) + near(high) >= n - 3 {
        // Levels, not extremes, and the share of the time above their middle.
        let middle = (low + high) / 2.0;
        let level =
            |above: bool| median(profile.iter().copied().filter(|v| (*v > middle) == above).collect());
        let above: f64 =
            profile.iter().map(|v| ((v - level(false)) / (level(true) - level(false))).clamp(0.0, 1.0)).sum();
        let high_ms = above / n as f64 * period_ms;
        return (Shape::Square { high_ms }, level(true) - level(false));
    }
    // One jump of most of the height (over two steps, as it may fall inside a phase), and changes in the opposite
    // direction elsewhere.
    let step = |i: usize| profile[(i + 1) % n] - profile[i];
    let jump = |i: usize| profile[(i + 2) % n] - profile[i];
    let widest = (0..n).max_by(|&a, &b| jump(a).abs().total_cmp(&jump(b).abs())).unwrap_or(0);
    let falls = jump(widest) < 0.0;
    let against =
        (0..n).filter(|&i| i != widest && i != (widest + 1) % n && (step(i) < 0.0) == falls).count();
    if jump(widest).abs() > 0.6 * height && against <= n / 5 {
        // The first and last phase lie within the jump.
        return (Shape::Sawtooth { rising: falls }, height * n as f64 / (n as f64 - 1.0));
    }
    (Shape::Other, height)
}

#[cfg(test)]
mod tests {
    use super::product;

    #[test]
    fn a_product_is_that_of_all_common_values() {
        let values: Vec<f64> = (1..=40).map(f64::from).collect();
        for count in 0..values.len() {
            let plain: f64 = values[..count].iter().zip(&values).map(|(a, b)| a * b).sum();
            assert_eq!(
                (product(&values[..count], &values), product(&values, &values[..count])),
                (plain, plain)
            );
        }
    }
}
