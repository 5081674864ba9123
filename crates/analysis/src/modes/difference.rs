//! How a stretch of values differs from the rest.

use std::ops::Range;

use super::counts::likelihood;

/// Values of which a difference is taken, at most, on each side.
const RANKED_MAX: usize = 1 << 15;
/// Borders that are tried on each side.
const BORDERS: usize = 200;

/// How the values of a stretch differ from the rest, at the quantile where a border separates them.
pub(super) struct Difference {
    /// Shares of the operations above a level.
    within: f64,
    without: f64,
    /// The quantile halfway between both shares, microseconds.
    pub(super) inside_us: f64,
    pub(super) outside_us: f64,
    /// Width of the middle half of the rest, microseconds.
    pub(super) spread_us: f64,
}

impl Difference {
    /// The differences of the values of `found` from the rest: by the shares above the border that separates them best, and by
    /// those above another border. The first may be that of a small step of most operations where a few became slow by far.
    pub(super) fn all(values: &[f32], found: &Range<usize>, other: f32) -> [Self; 2] {
        let inside = ranked(values[found.clone()].iter().copied(), found.len());
        let (before, behind) = (&values[..found.start], &values[found.end..]);
        let rest = ranked(before.iter().chain(behind).copied(), before.len() + behind.len());
        let (all, own) = (f64::max(rest.len() as f64, 1.0), f64::max(inside.len() as f64, 1.0));
        let above =
            |sorted: &[f32], border: f32| (sorted.len() - sorted.partition_point(|v| *v <= border)) as f64;
        let likely = |border: f32| {
            let (a, b) = (above(&inside, border), above(&rest, border));
            likelihood(a, own) + likelihood(b, all) - likelihood(a + b, own + all)
        };
        let borders = (0..BORDERS).filter_map(|i| inside.get(i * inside.len() / BORDERS).copied());
        let borders = borders.chain((0..BORDERS).filter_map(|i| rest.get(i * rest.len() / BORDERS).copied()));
        let best = borders.map(|border| (likely(border), border)).max_by(|a, b| a.0.total_cmp(&b.0));
        let at = |sorted: &[f32], share: f64| {
            let place = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
            f64::from(sorted.get(place).copied().unwrap_or_default())
        };
        [best.map_or(0.0, |(_, border)| border), other].map(|border| {
            let (within, without) = (above(&inside, border) / own, above(&rest, border) / all);
            let share = 1.0 - (within + without) / 2.0;
            Self {
                within,
                without,
                inside_us: at(&inside, share),
                outside_us: at(&rest, share),
                spread_us: at(&rest, 0.75) - at(&rest, 0.25),
            }
        })
    }

    /// The difference of the shares.
    pub(super) fn apart(&self) -> f64 {
        (self.within - self.without).abs()
    }

    /// The quantile of other values.
    pub(super) fn at(&self, values: &[f32]) -> f64 {
        quantile(values, 1.0 - (self.within + self.without) / 2.0)
    }

    /// The step that is exceeded by two in five pairs of neighbouring stretches of `near` operations, microseconds.
    pub(super) fn usual_step_us(&self, values: &[f32], near: usize) -> f64 {
        let levels: Vec<f64> = values.chunks_exact(near).map(|part| self.at(part)).collect();
        let steps: Vec<f32> = levels.windows(2).map(|pair| (pair[1] - pair[0]).abs() as f32).collect();
        if steps.len() < 5 { 0.0 } else { quantile(&steps, 0.6) }
    }

    /// The borders where the likelihood of both sides is greatest, of operations above the middle of both quantiles. A border
    /// is searched in `blocks` operations around it at least, and in those of some that are above.
    pub(super) fn refined(&self, values: &[f32], found: &Range<usize>, blocks: usize) -> Range<usize> {
        let border = ((self.inside_us + self.outside_us) / 2.0) as f32;
        let sure = |share: f64| share.clamp(1e-3, 1.0 - 1e-3);
        let (inside, outside) = (sure(self.within), sure(self.without));
        let weights = [((1.0 - inside) / (1.0 - outside)).ln(), (inside / outside).ln()];
        let around = blocks.max((8.0 / self.apart().max(1e-3)) as usize).min(found.len() / 2);
        let edge = |at: usize, is_start: bool| {
            if at == 0 || at == values.len() {
                return at;
            }
            let (from, to) = (at.saturating_sub(around), (at + around).min(values.len()));
            let (mut sum, mut best, mut place) = (0.0, 0.0, from);
            for (index, value) in values[from..to].iter().enumerate() {
                let weight = weights[usize::from(*value > border)];
                sum += if is_start { -weight } else { weight };
                if sum > best {
                    (best, place) = (sum, from + index + 1);
                }
            }
            place
        };
        let (start, end) = (edge(found.start, true), edge(found.end, false));
        if start < end { start..end } else { found.clone() }
    }
}

/// Finite values in ascending order: all, or some chosen by chance, because a pattern may have any distance.
fn ranked(values: impl Iterator<Item = f32>, count: usize) -> Vec<f32> {
    let mut random = fastrand::Rng::with_seed(4);
    let keep = (RANKED_MAX as f64 / count.max(1) as f64).min(1.0);
    let mut sorted: Vec<f32> =
        values.filter(|v| v.is_finite() && (keep >= 1.0 || random.f64() < keep)).collect();
    sorted.sort_by(f32::total_cmp);
    sorted
}

/// A quantile of values; 0 if there are none.
fn quantile(values: &[f32], share: f64) -> f64 {
    let mut values: Vec<f32> = values.iter().copied().filter(|v| v.is_finite()).collect();
    if values.is_empty() {
        return 0.0;
    }
    let place = ((values.len() - 1) as f64 * share.clamp(0.0, 1.0)).round() as usize;
    f64::from(*values.select_nth_unstable_by(place, f32::total_cmp).1)
}
