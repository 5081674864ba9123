//! Values of a quantity in the cells of a panel. Each cell that any operation is in is drawn, however many others there are.

use std::collections::BTreeMap;

use super::Quantity;
use super::axis::Range;
use super::summary::Source;
use crate::scene::CellRun;

/// Side of a cell, pixels.
pub(super) const CELL: f64 = 2.0;
/// Most runs of cells of a quantity in a panel, which bounds the size of a picture.
const RUNS_MAX: usize = 7_000;
/// Values beyond an edge that are so near, pixels, are marked together.
const MARK: f64 = 10.0;
/// A cell with less than this part of its column's fullest cell is lighter.
const LIGHTER: u64 = 24;

/// The scales of a panel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scales {
    /// Times, nanoseconds since the epoch.
    pub(super) from_ns: u64,
    /// See `from_ns`.
    pub(super) to_ns: u64,
    /// Values.
    pub(super) range: Range,
    /// Size, pixels.
    pub(super) width: f64,
    /// See `width`.
    pub(super) height: f64,
}

impl Scales {
    /// The distance of a time from the left edge, pixels; `None` beyond the edges.
    pub(super) fn x(&self, at_ns: u64) -> Option<f64> {
        if !(self.from_ns..=self.to_ns).contains(&at_ns) {
            return None;
        }
        let whole = (self.to_ns - self.from_ns).max(1) as f64;
        Some((at_ns - self.from_ns) as f64 / whole * self.width)
    }

    fn columns(&self) -> usize {
        (self.width / CELL) as usize
    }

    fn rows(&self) -> usize {
        (self.height / CELL) as usize
    }
}

/// Values beyond an edge, near one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Beyond {
    /// Its distance from the left edge, pixels.
    pub(super) x: f64,
    /// Number of values.
    pub(super) count: u64,
    /// The most extreme one, microseconds.
    pub(super) extreme_us: f64,
}

/// The values of a quantity in a panel.
#[derive(Clone, Debug, Default)]
pub(super) struct Raster {
    /// Cells with many of their column's values.
    pub(super) full: Vec<CellRun>,
    /// Cells with few of them.
    pub(super) light: Vec<CellRun>,
    /// Cells with few of them and no neighbour above or below.
    pub(super) single: Vec<CellRun>,
    /// Values above the upper edge.
    pub(super) above: Vec<Beyond>,
    /// Values below the lower edge.
    pub(super) below: Vec<Beyond>,
}

/// How a cell is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Empty,
    Full,
    Light,
    Single,
}

/// Sorts the values of a quantity into cells.
pub(super) fn raster(source: &Source<'_>, quantity: Quantity, scales: &Scales) -> Raster {
    let (columns, rows) = (scales.columns(), scales.rows());
    let mut cells = vec![0_u64; columns * rows];
    let mut beyond = [BTreeMap::new(), BTreeMap::new()];
    source.each(quantity, &mut |at_ns, us, count| {
        let Some(x) = scales.x(at_ns) else { return };
        let us = f64::from(us);
        let depth = scales.range.depth(us);
        if (0.0..=1.0).contains(&depth) {
            let column = ((x / CELL) as usize).min(columns - 1);
            let row = ((depth * rows as f64) as usize).min(rows - 1);
            cells[column * rows + row] += count;
            return;
        }
        let edge: &mut BTreeMap<u64, Beyond> = &mut beyond[usize::from(depth > 1.0)];
        let mark = edge.entry((x / MARK) as u64).or_insert(Beyond { x, count: 0, extreme_us: us });
        mark.count += count;
        if us.abs() > mark.extreme_us.abs() {
            *mark = Beyond { x, extreme_us: us, ..*mark };
        }
    });
    let [above, below] = beyond.map(|edge| edge.into_values().collect());
    let mut raster = Raster { above, below, ..Raster::default() };
    let looks: Vec<Look> = cells.chunks(rows).flat_map(looks).collect();
    raster.add_runs(&looks, rows);
    let mut gap = 1;
    while raster.full.len() + raster.light.len() + raster.single.len() > RUNS_MAX {
        // A cloud: its single cells would not be told apart.
        let bridged: Vec<Look> = cells.chunks(rows).flat_map(|column| bridged(column, gap)).collect();
        raster = Raster { above: raster.above, below: raster.below, ..Raster::default() };
        raster.add_runs(&bridged, rows);
        gap *= 2;
    }
    raster
}

/// How the cells of a column are drawn.
fn looks(column: &[u64]) -> Vec<Look> {
    let fullest = column.iter().copied().max().unwrap_or(0);
    let is_empty = |row: Option<&u64>| row.is_none_or(|count| *count == 0);
    let look = |(row, count): (usize, &u64)| match *count {
        0 => Look::Empty,
        count if count * LIGHTER >= fullest => Look::Full,
        _ if is_empty(row.checked_sub(1).and_then(|above| column.get(above))) && is_empty(column.get(row + 1)) => {
            Look::Single
        }
        _ => Look::Light,
    };
    column.iter().enumerate().map(look).collect()
}

/// The cells of a column without differences, and with gaps of up to `gap` cells filled.
fn bridged(column: &[u64], gap: usize) -> Vec<Look> {
    let mut looks = vec![Look::Empty; column.len()];
    let mut last: Option<usize> = None;
    for (row, _) in column.iter().enumerate().filter(|(_, count)| **count > 0) {
        let from = last.filter(|last| row - last <= gap + 1).map_or(row, |last| last + 1);
        looks[from..=row].fill(Look::Full);
        last = Some(row);
    }
    looks
}

impl Raster {
    /// Joins neighbouring cells of one look in a column.
    fn add_runs(&mut self, looks: &[Look], rows: usize) {
        for (column, looks) in looks.chunks(rows).enumerate() {
            let mut row = 0;
            for same in looks.chunk_by(|a, b| a == b) {
                let run = CellRun { column: column as u16, row: row as u16, rows: same.len() as u16 };
                row += same.len();
                match same[0] {
                    Look::Empty => {}
                    Look::Full => self.full.push(run),
                    Look::Light => self.light.push(run),
                    Look::Single => self.single.push(run),
                }
            }
        }
    }
}
