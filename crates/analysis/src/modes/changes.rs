//! Stretches of a record with a distribution of their own: change points of the distribution of any part.
//!
//! Circular binary segmentation (Olshen, Venkatraman, Lucito, Wigler 2004) on counts: for each part and each of several
//! levels, the operations above the level are counted in blocks, and the stretch whose share of them differs most from that
//! of the rest is a candidate. Counts ignore how far outliers are away, and a pattern of a few slow operations changes
//! a count at a high level where it leaves the median alone. A candidate must be longer than a burst, change throughout and
//! at once (a drift does not), and matter.

use std::ops::Range;

use super::counts::{Blocks, Level, Window};
use super::difference::Difference;
use super::{Point, period, series};
use crate::parts::Part;

/// Shortest regime, as a share of the operations, and in operations.
pub(super) const SHARE_MIN: f64 = 0.02;
const OPERATIONS_MIN: usize = 64;
/// Most regimes.
const REGIMES_MAX: usize = 48;
/// A change must be this likely, nats: the pairs of borders (2^15), parts and levels (2^5) and another 30 dB.
const CRITICAL: f64 = 30.0;
/// Shortest period of a pattern that is taken out, in operations.
const PERIOD_MIN: f64 = 64.0;
/// Bursts and other short stretches that are set aside in one search.
const SET_ASIDE_MAX: usize = 16;
/// Each quarter of a regime differs from the rest by this share of what the whole regime does.
const THROUGHOUT: f64 = 0.35;
/// The values right before and right behind a border differ by this share of what the regimes do.
const AT_ONCE: f64 = 0.7;
/// They differ by this many times what neighbouring stretches elsewhere do: a level that wanders has no borders.
const UNUSUAL: f64 = 4.5;
/// A change of this share of the round trip matters, as does a smaller one of more than the usual spread.
const CHANGE: f64 = 0.12;
const CHANGE_MIN: f64 = 0.04;

/// The values of a part; repeating patterns that cover a stretch are taken out of it.
struct Column {
    values: Vec<f32>,
}

/// The borders between regimes, ascending; empty where there is one regime.
pub(super) fn borders(points: &[Point]) -> Vec<usize> {
    let least = OPERATIONS_MIN.max((points.len() as f64 * SHARE_MIN) as usize);
    let observed =
        |part: Part| points.iter().filter(|p| p.part(part).is_finite()).count() * 20 >= points.len() * 19;
    let parts: &[Part] = match (observed(Part::RequestPath), observed(Part::Server)) {
        (true, true) => &[Part::RequestPath, Part::ResponsePath, Part::Server, Part::Client],
        (_, true) => &[Part::Network, Part::Server, Part::Client],
        _ => &[Part::RoundTrip, Part::Client],
    };
    let columns: Vec<Column> = parts
        .iter()
        .filter(|&&part| observed(part))
        .map(|&part| Column { values: points.iter().map(|p| p.part(part) as f32).collect() })
        .collect();
    let sample: Vec<f64> = points
        .iter()
        .step_by(points.len().div_ceil(1 << 15).max(1))
        .map(|p| p.part(Part::RoundTrip))
        .filter(|v| v.is_finite())
        .collect();
    let usual_us = series::median(sample);
    let mut search = Search { points, columns, least, usual_us, borders: Vec::new() };
    search.divide(0..points.len());
    search.borders.sort_unstable();
    search.borders
}

/// A search for borders.
struct Search<'a> {
    points: &'a [Point],
    columns: Vec<Column>,
    /// Operations of the shortest regime.
    least: usize,
    /// The median round trip, microseconds.
    usual_us: f64,
    borders: Vec<usize>,
}

impl Search<'_> {
    /// Divides a stretch wherever its distribution changes.
    fn divide(&mut self, range: Range<usize>) {
        if range.len() < 2 * self.least || self.borders.len() + 2 > REGIMES_MAX {
            return;
        }
        self.take_out_periods(range.clone());
        let Some(found) = self.change(&range) else { return };
        let inner = [found.start, found.end].into_iter().filter(|at| range.start < *at && *at < range.end);
        self.borders.extend(inner);
        for part in [range.start..found.start, found.clone(), found.end..range.end] {
            if part.len() < range.len() {
                self.divide(part);
            }
        }
    }

    /// Takes patterns that repeat in time throughout a stretch out of its values.
    fn take_out_periods(&mut self, range: Range<usize>) {
        let points = &self.points[range.clone()];
        for column in &mut self.columns {
            let values = &mut column.values[range.clone()];
            // What is left of the values: a longer stretch may have lost a pattern before.
            let left = values.iter().copied().map(f64::from).collect();
            let Some(series) = series::Series::new(points, left) else { continue };
            let each_ms = series.times_ms.last().map_or(0.0, |ms| ms / range.len() as f64);
            // Every n-th operation repeats in time, too, and is the same in all blocks.
            let is_long = |found: &period::Period| found.period_ms >= PERIOD_MIN * each_ms;
            let found = period::find(&series).filter(|found| is_long(found) && found.covers(&series));
            let Some(found) = found else { continue };
            for (value, time) in values.iter_mut().zip(&series.times_ms) {
                *value -= found.at(*time) as f32;
            }
        }
    }

    /// The stretch whose distribution differs most from that of the rest of a range, if any is a regime.
    fn change(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let columns: Vec<&[f32]> = self.columns.iter().map(|column| &column.values[range.clone()]).collect();
        let mut blocks = Blocks::new(range.len());
        let levels: Vec<Level> = columns
            .iter()
            .enumerate()
            .flat_map(|(column, values)| Level::all(column, values, &blocks))
            .collect();
        for _ in 0..SET_ASIDE_MAX {
            let mut candidates: Vec<(usize, Window)> = (0..levels.len())
                .filter_map(|level| {
                    Some((level, levels[level].widest(&blocks, 0..blocks.count(), CRITICAL)?))
                })
                .collect();
            candidates.sort_by(|a, b| b.1.score.total_cmp(&a.1.score));
            let mut aside = None;
            for (level, window) in candidates {
                let level = &levels[level];
                let Some(window) = self.long_enough(&blocks, level, window.clone()) else {
                    aside = Some(blocks.shorter_side(window));
                    break;
                };
                if window.score < CRITICAL {
                    continue;
                }
                if !level.is_throughout(&blocks, &window, THROUGHOUT) {
                    // A burst inside it makes it differ.
                    aside = level
                        .widest(&blocks, window.blocks.clone(), CRITICAL)
                        .map(|inner| inner.blocks)
                        .filter(|inner| blocks.operations(inner) < self.least);
                    if aside.is_some() {
                        break;
                    }
                    continue;
                }
                let values = columns[level.column];
                let differences = Difference::all(values, &blocks.places(&window.blocks), level.border);
                let judged = |difference| self.judged(&blocks, &window, values, difference);
                if let Some(found) = differences.iter().find_map(judged) {
                    return Some(range.start + found.start..range.start + found.end);
                }
            }
            blocks.set_aside(aside?);
        }
        None
    }

    /// A window without remainders at the ends of the range that are shorter than a regime; `None` if it, or all of the
    /// rest, is shorter.
    fn long_enough(&self, blocks: &Blocks, level: &Level, mut window: Window) -> Option<Window> {
        let count = blocks.count();
        let is_short = |range: &Range<usize>| !range.is_empty() && blocks.operations(range) < self.least;
        let (before, behind) = (0..window.blocks.start, window.blocks.end..count);
        if blocks.operations(&window.blocks) < self.least
            || blocks.operations(&before) + blocks.operations(&behind) < self.least
        {
            return None;
        }
        if is_short(&before) {
            window.blocks.start = 0;
        }
        if is_short(&behind) {
            window.blocks.end = count;
        }
        if window.blocks == (0..count) {
            return None;
        }
        Some(level.window(blocks, window.blocks))
    }

    /// The operations of a window, if their values differ from the rest by enough to matter, and at once at both borders.
    fn judged(
        &self,
        blocks: &Blocks,
        window: &Window,
        values: &[f32],
        difference: &Difference,
    ) -> Option<Range<usize>> {
        let found = blocks.places(&window.blocks);
        let change_us = (difference.inside_us - difference.outside_us).abs();
        let (large, small) = (CHANGE * self.usual_us, CHANGE_MIN * self.usual_us);
        if change_us < large && (change_us < small || change_us < difference.spread_us) {
            return None;
        }
        let mut found = difference.refined(values, &found, 2 * blocks.operations(&(0..1)));
        // What is left at an end must not be shorter than a regime.
        if found.start < self.least {
            found.start = 0;
        }
        if values.len() - found.end < self.least {
            found.end = values.len();
        }
        if found == (0..values.len()) {
            return None;
        }
        // Enough operations to see the difference, and few compared with both sides: a drift is slow only over some time.
        let noise = (difference.spread_us / change_us.max(1e-9)).min(8.0);
        let enough = (16.0 / difference.apart()).max(16.0 * noise * noise) as usize;
        let shorter = found.len().min(values.len() - found.len());
        let near = enough.clamp(24, (shorter / 4).max(24));
        let usual_us = difference.usual_step_us(values, near);
        let is_at_once =
            [found.start, found.end].into_iter().filter(|&at| at > 0 && at < values.len()).all(|at| {
                let before = difference.at(&values[at.saturating_sub(near)..at]);
                let behind = difference.at(&values[at..(at + near).min(values.len())]);
                let step = if at == found.start { behind - before } else { before - behind };
                let share = step / (difference.inside_us - difference.outside_us);
                share >= AT_ONCE && step.abs() >= UNUSUAL * usual_us
            });
        is_at_once.then_some(found)
    }
}
