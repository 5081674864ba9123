//! Values of quantities in the cells of a panel. Each cell that any operation is in is drawn, however many others there are.

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

/// The number of values in each cell, columns from the left, each from the top, and values beyond the edges.
struct Counted {
    cells: Vec<u64>,
    above: Vec<Beyond>,
    below: Vec<Beyond>,
}

/// Sorts the values of all quantities into cells.
pub(super) fn rasters(source: &Source<'_>, scales: &Scales) -> [Raster; Quantity::COUNT] {
    let rows = scales.rows();
    let counted = Quantity::ALL.map(|quantity| count(source, quantity, scales));
    let hidden = hidden(&counted, rows);
    let mut hidden = hidden.iter();
    counted.map(|Counted { cells, above, below }| {
        let mut raster = Raster { above, below, ..Raster::default() };
        let Some(hidden) = hidden.next() else { return raster };
        raster.draw(cells.chunks(rows).flat_map(looks).collect(), hidden, rows);
        let mut gap = 1;
        while raster.runs() > RUNS_MAX && gap < 2 * rows {
            // A cloud: its single cells would not be told apart.
            raster.draw(cells.chunks(rows).flat_map(|column| bridged(column, gap)).collect(), hidden, rows);
            gap *= 2;
        }
        raster
    })
}

fn count(source: &Source<'_>, quantity: Quantity, scales: &Scales) -> Counted {
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
    Counted { cells, above, below }
}

/// Which cells of each quantity are left to others. Where several share a cell, those with neighbours on both sides alternate from
/// column to column, so that none hides another; one without, which is rare, comes before them.
fn hidden(counted: &[Counted; Quantity::COUNT], rows: usize) -> [Vec<bool>; Quantity::COUNT] {
    let mut hidden = counted.each_ref().map(|own| vec![false; own.cells.len()]);
    for (at, _) in counted[0].cells.iter().enumerate() {
        let all: Vec<usize> = (0..Quantity::COUNT).filter(|n| counted[*n].cells[at] > 0).collect();
        if all.len() < 2 {
            continue;
        }
        let (inner, rare): (Vec<usize>, Vec<usize>) =
            all.into_iter().partition(|n| has_neighbours(&counted[*n].cells, at, rows));
        let shown = inner.get(at / rows % inner.len().max(1)).filter(|_| rare.is_empty());
        for nth in &inner {
            hidden[*nth][at] = shown != Some(nth);
        }
    }
    hidden
}

/// Whether there are values in the columns to the left and to the right, as high or one cell away.
fn has_neighbours(cells: &[u64], at: usize, rows: usize) -> bool {
    let (column, row) = (at / rows, at % rows);
    let is_used = |column: usize| {
        let first = column * rows;
        cells
            .get(first + row.saturating_sub(1)..=first + (row + 1).min(rows - 1))
            .is_some_and(|near| near.iter().any(|count| *count > 0))
    };
    column > 0 && is_used(column - 1) && is_used(column + 1)
}

/// How the cells of a column are drawn.
fn looks(column: &[u64]) -> Vec<Look> {
    let fullest = column.iter().copied().max().unwrap_or(0);
    let is_empty = |row: Option<&u64>| row.is_none_or(|count| *count == 0);
    let look = |(row, count): (usize, &u64)| match *count {
        0 => Look::Empty,
        count if count * LIGHTER >= fullest => Look::Full,
        _ if is_empty(row.checked_sub(1).and_then(|above| column.get(above)))
            && is_empty(column.get(row + 1)) =>
        {
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
    fn runs(&self) -> usize {
        self.full.len() + self.light.len() + self.single.len()
    }

    /// Draws cells that look like this, but for the hidden ones.
    fn draw(&mut self, mut looks: Vec<Look>, hidden: &[bool], rows: usize) {
        for (look, is_hidden) in looks.iter_mut().zip(hidden) {
            if *is_hidden {
                *look = Look::Empty;
            }
        }
        self.full.clear();
        self.light.clear();
        self.single.clear();
        self.add_runs(&looks, rows);
    }

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
