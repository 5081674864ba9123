//! How much a figure varies by chance: the bootstrap over blocks of time.
//!
//! A figure of a whole run is computed again and again from blocks of time that are drawn with replacement (Künsch, The Jackknife and the
//! Bootstrap for General Stationary Observations, 1989, with blocks that do not overlap). Operations near each other in time share their
//! luck, so blocks must be longer than that lasts: this is done with 32, 16 and 8 blocks, and the largest standard error counts.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::profile::{Block, Profile, Series, quantile};

/// Numbers of blocks.
const GROUPS: [u64; 3] = [32, 16, 8];

/// Draws.
const DRAWS: usize = 300;

/// Fewest operations that say something of themselves.
pub(crate) const OPERATIONS_MIN: u64 = 30;

/// What is computed of operations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Quantity {
    /// Operations a second.
    Rate,
    /// Mean time, microseconds.
    Mean,
    /// A quantile of the times, microseconds.
    Quantile(f64),
    /// Mean of a part of the time, microseconds.
    Part(usize),
    /// Share of the operations that failed.
    Failed,
}

/// A figure with its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Figure {
    pub(crate) value: f64,
    /// Standard error, and its degrees of freedom; `None` where too little is known.
    pub(crate) error: Option<(f64, f64)>,
}

/// Operations of some blocks: their sums, and how many took each of the times.
struct Sample {
    sums: Block,
    seconds: f64,
    times: Vec<(u64, u64)>,
}

impl Sample {
    fn of(&self, quantity: Quantity) -> Option<f64> {
        let Block { operations, failed, total, parts, .. } = &self.sums;
        match quantity {
            Quantity::Rate => (self.seconds > 0.0).then(|| *operations as f64 / self.seconds),
            Quantity::Mean => total.mean().map(|ns| ns / 1e3),
            Quantity::Quantile(share) => {
                quantile(self.times.iter().copied(), share).map(|ns| ns as f64 / 1e3)
            }
            Quantity::Part(part) => parts[part].mean().map(|ns| ns / 1e3),
            Quantity::Failed => (*operations > 0).then(|| *failed as f64 / *operations as f64),
        }
    }
}

/// The figures of a series.
pub(crate) fn figures(profile: &Profile, series: &Series, quantities: &[Quantity]) -> Vec<Option<Figure>> {
    let whole = series.whole();
    let blocks = series.span.unwrap_or_else(|| profile.whole_blocks());
    let seconds = match series.span {
        Some(span) => span as f64 * profile.block_seconds(),
        None => profile.seconds(),
    };
    let keys: Vec<u64> = whole.times.keys().copied().collect();
    let operations = whole.operations;
    let times = whole.times.iter().map(|(&ns, &count)| (ns, count)).collect();
    let whole = Sample { sums: whole, seconds, times };
    let value = |quantity: &Quantity| whole.of(*quantity).map(|value| Figure { value, error: None });
    let mut found: Vec<Option<Figure>> = quantities.iter().map(value).collect();
    if operations < OPERATIONS_MIN {
        return found;
    }
    for groups in GROUPS.into_iter().filter(|&groups| groups <= blocks) {
        let (parts, length) = series.groups(blocks, groups);
        let seconds = (parts.len() as u64 * length) as f64 * profile.block_seconds();
        let parts: Vec<(Block, Vec<u64>)> = parts
            .into_iter()
            .map(|mut group| {
                let times = std::mem::take(&mut group.times);
                (group, keys.iter().map(|key| times.get(key).copied().unwrap_or(0)).collect())
            })
            .collect();
        let mut random = fastrand::Rng::with_seed(groups);
        let mut drawn: Vec<Vec<f64>> = vec![Vec::with_capacity(DRAWS); quantities.len()];
        for _ in 0..DRAWS {
            let mut sample =
                Sample { sums: Block::default(), seconds, times: keys.iter().map(|&key| (key, 0)).collect() };
            for _ in 0..parts.len() {
                let (group, times) = &parts[random.usize(..parts.len())];
                sample.sums.add(group);
                sample.times.iter_mut().zip(times).for_each(|((_, sum), count)| *sum += count);
            }
            drawn
                .iter_mut()
                .zip(quantities)
                .for_each(|(values, &quantity)| values.extend(sample.of(quantity)));
        }
        let drawn_from = parts.len() as f64;
        let freedom = drawn_from - 1.0;
        for (figure, values) in found.iter_mut().zip(&drawn) {
            // Where some draws have none, what there is says nothing of how it varies.
            let Some(figure) = figure.as_mut().filter(|_| values.len() == DRAWS) else { continue };
            let mean = values.iter().sum::<f64>() / DRAWS as f64;
            let variance =
                values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (DRAWS - 1) as f64;
            // Drawing from n blocks loses one of n parts of the variance.
            let error = (variance * drawn_from / freedom).sqrt();
            if figure.error.is_none_or(|(largest, _)| error > largest) {
                figure.error = Some((error, freedom));
            }
        }
    }
    // Times that no block has are of the whole: how they vary is not known.
    if series.blocks.values().all(|block| block.times.is_empty()) {
        let unknown = |(figure, quantity): (&mut Option<Figure>, &Quantity)| {
            if let (Some(figure), Quantity::Quantile(_)) = (figure, quantity) {
                figure.error = None;
            }
        };
        found.iter_mut().zip(quantities).for_each(unknown);
    }
    found
}

/// The probability that two figures differ at least this much by chance (Welch's test).
pub(crate) fn chance(a: &Figure, b: &Figure) -> Option<f64> {
    let (error, freedom) = both(a, b)?;
    let difference = (b.value - a.value).abs();
    if error <= 0.0 {
        return Some(if difference > 0.0 { 0.0 } else { 1.0 });
    }
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(2.0 * student.sf(difference / error))
}

/// The least difference that would be told from noise when so many figures are compared with this chance of an error among them all.
pub(crate) fn least(a: &Figure, b: &Figure, figures: usize, chance: f64) -> Option<f64> {
    let (error, freedom) = both(a, b)?;
    let student = StudentsT::new(0.0, 1.0, freedom).ok()?;
    Some(error * student.inverse_cdf(1.0 - chance / 2.0 / figures.max(1) as f64))
}

/// The standard error of the difference, and its degrees of freedom (Welch-Satterthwaite).
fn both(a: &Figure, b: &Figure) -> Option<(f64, f64)> {
    let ((ea, na), (eb, nb)) = (a.error?, b.error?);
    let variance = ea * ea + eb * eb;
    let freedom = variance * variance / (ea.powi(4) / na + eb.powi(4) / nb).max(f64::MIN_POSITIVE);
    Some((variance.sqrt(), freedom.clamp(na.min(nb), na + nb)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Operation, Profile};

    /// A run of 10 s with 1000 operations a second, whose times vary, and whose level changes every so many milliseconds.
    fn run(seed: u64, level_ms: u64) -> Profile {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut profile = Profile::new("x");
        let mut level = 0.0;
        for ms in 0..10_000 {
            if level_ms > 0 && ms % level_ms == 0 {
                level = random.f64() * 40.0;
            }
            let us = 80.0 + random.f64() * 40.0 + level;
            let total_ns = Some((us * 1000.0) as u64);
            profile.add(
                "a",
                "GET",
                &Operation { ended_ns: ms * 1_000_000, total_ns, ..Operation::default() },
            );
        }
        profile
    }

    fn mean(profile: &Profile) -> Figure {
        figures(profile, &profile.series[0], &[Quantity::Mean])[0].unwrap()
    }

    /// The standard error is that of many runs, also where times near each other are alike.
    #[test]
    fn the_error_is_the_one_that_runs_have() {
        for level_ms in [0, 50, 300] {
            let runs: Vec<Figure> = (0..60).map(|seed| mean(&run(seed, level_ms))).collect();
            let values: Vec<f64> = runs.iter().map(|run| run.value).collect();
            let mean = values.iter().sum::<f64>() / 60.0;
            let true_error = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 59.0).sqrt();
            let told = runs.iter().map(|run| run.error.unwrap().0).sum::<f64>() / 60.0;
            let ratio = told / true_error;
            assert!((0.8..2.0).contains(&ratio), "{level_ms}: {told} told, {true_error} true");
        }
    }

    /// One pair in twenty has a chance below one in twenty, and not many more.
    #[test]
    fn equal_runs_differ_as_often_as_is_said() {
        for level_ms in [0, 50, 300] {
            let pairs =
                (0..200).map(|seed| (mean(&run(2 * seed, level_ms)), mean(&run(2 * seed + 1, level_ms))));
            let below = pairs.filter(|(a, b)| chance(a, b).unwrap() < 0.05).count();
            assert!(below <= 18, "{level_ms}: {below} of 200");
        }
    }

    /// The rate of a steady load is known well: the last block, which is not whole, says nothing of it.
    #[test]
    fn a_broken_last_block_is_no_noise() {
        let mut profile = Profile::new("x");
        for number in 0..2000 {
            let ended_ns = 7_300_000 + number * 9_700;
            profile.add("a", "GET", &Operation { ended_ns, total_ns: Some(9000), ..Operation::default() });
        }
        let rate = figures(&profile, &profile.series[0], &[Quantity::Rate])[0].unwrap();
        let (error, _) = rate.error.unwrap();
        assert!((rate.value / 103_093.0 - 1.0).abs() < 0.01 && error / rate.value < 0.01, "{rate:?}");
    }

    #[test]
    fn too_little_has_no_error() {
        let mut profile = Profile::new("x");
        for ms in 0..20 {
            let one = Operation { ended_ns: ms * 100_000_000, total_ns: Some(1000), ..Operation::default() };
            profile.add("a", "GET", &one);
        }
        assert_eq!(mean(&profile).error, None, "20 operations");
        let figure = |value, error| Figure { value, error };
        assert_eq!(chance(&figure(1.0, None), &figure(2.0, Some((0.1, 7.0)))), None);
        assert_eq!(chance(&figure(1.0, Some((0.0, 7.0))), &figure(2.0, Some((0.0, 7.0)))), Some(0.0));
    }
}
