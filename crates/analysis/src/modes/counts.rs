//! Counts of operations above a level in blocks of operations, and the stretches whose counts differ.

use std::ops::Range;

/// Most blocks of a search.
const BLOCKS_MAX: usize = 256;
/// Fewest operations of a block.
const BLOCK_MIN: usize = 8;
/// Shares of the operations at or below each level.
const SHARES: [f64; 9] = [0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99];
/// Values from which levels are taken.
const RANKED_MAX: usize = 1 << 14;
/// Dispersion that runs of equal neighbours are taken to prove, at most: a run that is as long as a regime is no noise.
const RUNS_MAX: f64 = 8.0;

/// Blocks of consecutive operations; some are set aside.
#[derive(Debug)]
pub(super) struct Blocks {
    edges: Vec<usize>,
    is_aside: Vec<bool>,
}

impl Blocks {
    /// Blocks of as many operations each as is possible.
    pub(super) fn new(operations: usize) -> Self {
        let count = (operations / BLOCK_MIN).clamp(1, BLOCKS_MAX);
        Self { edges: (0..=count).map(|i| i * operations / count).collect(), is_aside: vec![false; count] }
    }

    /// Number of blocks.
    pub(super) fn count(&self) -> usize {
        self.is_aside.len()
    }

    /// Operations of a range of blocks.
    pub(super) fn operations(&self, range: &Range<usize>) -> usize {
        self.edges[range.end.max(range.start)] - self.edges[range.start]
    }

    /// The operations of a range of blocks, by their places.
    pub(super) fn places(&self, range: &Range<usize>) -> Range<usize> {
        self.edges[range.start]..self.edges[range.end]
    }

    /// The shorter one of a window and the rest, if the rest is at one end.
    pub(super) fn shorter_side(&self, window: Window) -> Range<usize> {
        let (own, all) = (window.blocks, 0..self.count());
        let rest = if own.start == 0 { own.end..all.end } else { 0..own.start };
        let is_at_an_end = own.start == 0 || own.end == all.end;
        let is_shorter = is_at_an_end && self.operations(&rest) < self.operations(&own) && !rest.is_empty();
        if is_shorter { rest } else { own }
    }

    /// Leaves blocks out of all later searches.
    pub(super) fn set_aside(&mut self, range: Range<usize>) {
        self.is_aside[range].fill(true);
    }
}

/// A stretch of blocks, and how its count differs from that of the rest.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) blocks: Range<usize>,
    /// The logarithm of the likelihood ratio, in nats, of independent operations as many as these are worth.
    pub(super) score: f64,
    /// Share of the operations above the level, inside and outside.
    shares: Shares,
}

#[derive(Clone, Copy, Debug)]
struct Shares {
    inside: f64,
    outside: f64,
}

/// The operations of a column above a border, counted in blocks.
#[derive(Debug)]
pub(super) struct Level {
    /// The column's number.
    pub(super) column: usize,
    /// Operations above it are counted.
    pub(super) border: f32,
    /// Of each block.
    counts: Vec<u32>,
    /// Variance of the counts, as a multiple of that of independent operations; 1 at least.
    dispersion: f64,
}

/// Sums up to each block, without those that are set aside.
struct Sums {
    above: Vec<f64>,
    operations: Vec<f64>,
}

impl Level {
    /// The levels of a column.
    pub(super) fn all(column: usize, values: &[f32], blocks: &Blocks) -> Vec<Self> {
        let mut random = fastrand::Rng::with_seed(2);
        let stride = values.len().div_ceil(RANKED_MAX).max(1);
        let mut sorted: Vec<f32> =
            values.chunks(stride).map(|c| c[random.usize(..c.len())]).filter(|v| v.is_finite()).collect();
        sorted.sort_by(f32::total_cmp);
        let mut borders: Vec<f32> = SHARES
            .iter()
            .filter_map(|share| sorted.get((sorted.len().saturating_sub(1) as f64 * share) as usize).copied())
            .collect();
        borders.dedup();
        borders.into_iter().map(|border| Self::new(column, border, values, blocks)).collect()
    }

    fn new(column: usize, border: f32, values: &[f32], blocks: &Blocks) -> Self {
        let counts: Vec<u32> = blocks
            .edges
            .windows(2)
            .map(|edge| values[edge[0]..edge[1]].iter().filter(|v| **v > border).count() as u32)
            .collect();
        let mut level = Self { column, border, counts, dispersion: 1.0 };
        level.dispersion = level.dispersion_of_blocks(blocks).max(level.dispersion_of_runs(values)).max(1.0);
        level
    }

    /// Variance of the differences of neighbouring blocks over that of independent operations, at several scales: neither a
    /// few borders of regimes nor a level that changes slowly count.
    fn dispersion_of_blocks(&self, blocks: &Blocks) -> f64 {
        let operations = blocks.operations(&(0..blocks.count())) as f64;
        let share = self.counts.iter().map(|&c| f64::from(c)).sum::<f64>() / operations;
        let each = share * (1.0 - share) * operations / blocks.count() as f64;
        let at = |scale: usize| {
            let sums: Vec<f64> =
                self.counts.chunks_exact(scale).map(|c| c.iter().map(|&n| f64::from(n)).sum()).collect();
            let mut squares: Vec<f64> = sums.windows(2).map(|p| (p[1] - p[0]).powi(2)).collect();
            squares.sort_by(f64::total_cmp);
            squares.truncate(squares.len() * 9 / 10);
            // The mean of the lower 90 % of a chi-squared variable of one degree is 0.623.
            squares.iter().sum::<f64>()
                / squares.len().max(1) as f64
                / 0.623
                / (2.0 * scale as f64 * each).max(1e-9)
        };
        [1, 2, 4].into_iter().filter(|scale| blocks.count() / scale >= 16).map(at).fold(1.0, f64::max)
    }

    /// The same from runs of operations above the border: of a chain of two states that has runs of this length.
    fn dispersion_of_runs(&self, values: &[f32]) -> f64 {
        let (mut runs, mut above, mut was) = (0_u32, 0_u32, false);
        for value in values {
            let is = *value > self.border;
            runs += u32::from(is && !was);
            above += u32::from(is);
            was = is;
        }
        if runs == 0 {
            return 1.0;
        }
        let share = f64::from(above) / values.len() as f64;
        let length = f64::from(above) / f64::from(runs);
        let similar = 1.0 - 1.0 / (length * (1.0 - share)).max(1e-9);
        ((1.0 + similar) / (1.0 - similar).max(1e-9)).clamp(1.0, RUNS_MAX)
    }

    fn sums(&self, blocks: &Blocks) -> Sums {
        let (mut above, mut operations) = (vec![0.0], vec![0.0]);
        let (mut a, mut n) = (0.0, 0.0);
        for (block, count) in self.counts.iter().enumerate() {
            if !blocks.is_aside[block] {
                a += f64::from(*count);
                n += (blocks.edges[block + 1] - blocks.edges[block]) as f64;
            }
            above.push(a);
            operations.push(n);
        }
        Sums { above, operations }
    }

    /// The window within `among` that differs most from the rest of it, if the difference exceeds `critical`.
    pub(super) fn widest(&self, blocks: &Blocks, among: Range<usize>, critical: f64) -> Option<Window> {
        let sums = self.sums(blocks);
        let of =
            |i: usize, j: usize| (sums.above[j] - sums.above[i], sums.operations[j] - sums.operations[i]);
        let (all_above, all) = of(among.start, among.end);
        let share = all_above / all.max(1.0);
        let variance = share * (1.0 - share);
        if variance <= 0.0 {
            return None;
        }
        let (mut best, mut found) = (critical * self.dispersion, None);
        for i in among.clone() {
            for j in i + 1..=among.end {
                let (above, count) = of(i, j);
                let rest = all - count;
                if count <= 0.0 || rest <= 0.0 {
                    continue;
                }
                // Half the square of the normal deviate is near the likelihood ratio, and quick.
                let rough = (above - share * count).powi(2) / (2.0 * variance * count * rest / all);
                if rough < best / 3.0 {
                    continue;
                }
                let exact = likelihood(above, count) + likelihood(all_above - above, rest)
                    - likelihood(all_above, all);
                if exact > best {
                    best = exact;
                    found = Some(i..j);
                }
            }
        }
        found.map(|found| self.window(blocks, found))
    }

    /// A window of these blocks.
    pub(super) fn window(&self, blocks: &Blocks, range: Range<usize>) -> Window {
        let sums = self.sums(blocks);
        let count = blocks.count();
        let (above, operations) = (
            sums.above[range.end] - sums.above[range.start],
            sums.operations[range.end] - sums.operations[range.start],
        );
        let (all_above, all) = (sums.above[count], sums.operations[count]);
        let exact = likelihood(above, operations) + likelihood(all_above - above, all - operations)
            - likelihood(all_above, all);
        Window {
            blocks: range,
            score: exact / self.dispersion,
            shares: Shares {
                inside: above / operations.max(1.0),
                outside: (all_above - above) / (all - operations).max(1.0),
            },
        }
    }

    /// Whether each quarter of a window differs from the rest by `least` of what all of it does.
    pub(super) fn is_throughout(&self, blocks: &Blocks, window: &Window, least: f64) -> bool {
        let sums = self.sums(blocks);
        let (start, length) = (window.blocks.start, window.blocks.len());
        let Shares { inside, outside } = window.shares;
        let quarters = length.min(4);
        (0..quarters).all(|quarter| {
            let (i, j) = (start + quarter * length / quarters, start + (quarter + 1) * length / quarters);
            let operations = sums.operations[j] - sums.operations[i];
            let share = (sums.above[j] - sums.above[i]) / operations.max(1.0);
            operations <= 0.0 || (share - outside) / (inside - outside) >= least
        })
    }
}

/// The logarithm of the greatest likelihood of a count among operations.
pub(super) fn likelihood(above: f64, operations: f64) -> f64 {
    let term = |part: f64| if part > 0.0 { part * (part / operations).ln() } else { 0.0 };
    term(above) + term(operations - above)
}
