//! A panel: values of all quantities over a span of time.

use record::units::{counted, grouped};

use super::Quantity;
use super::axis::{Range, label, ticks, time};
use super::raster::{Beyond, CELL, Raster, Scales, rasters};
use super::summary::Source;
use crate::scene::{Anchor, Area, BAND, FAINT, GRID, Group, INK, Place, Shape, Size, TIP};

/// Panels with fewer operations have a dot for each.
const DOTS_MAX: u64 = 500;
/// Panels with fewer operations have large dots.
const FEW: u64 = 120;
/// Opacity of cells with few of their column's values.
const LIGHT: f64 = 0.45;
/// Height of the lines above a panel's axes, pixels.
pub(super) const HEAD: f64 = 40.0;
/// Height of the labels below them, pixels.
pub(super) const FOOT: f64 = 24.0;

/// What a panel shows.
#[derive(Clone, Debug)]
pub(super) struct Panel<'a> {
    /// Its name: `whole run`.
    pub(super) name: String,
    /// Its operations, and maybe others.
    pub(super) source: Source<'a>,
    /// Its span, nanoseconds since the epoch.
    pub(super) from_ns: u64,
    /// See `from_ns`.
    pub(super) to_ns: u64,
    /// Where closer views are: name and span.
    pub(super) closer: Vec<Closer>,
    /// Its axes, pixels.
    pub(super) area: Area,
}

/// Where a closer view is.
#[derive(Clone, Debug)]
pub(super) struct Closer {
    /// A letter, or nothing.
    pub(super) name: String,
    /// Its span, nanoseconds since the epoch.
    pub(super) from_ns: u64,
    /// See `from_ns`.
    pub(super) to_ns: u64,
}

/// Draws a panel; times are relative to `begin_ns`.
pub(super) fn draw(panel: &Panel<'_>, begin_ns: u64) -> Vec<Group> {
    let area = panel.area;
    let range = Range::of(&panel.source);
    let scales =
        Scales { from_ns: panel.from_ns, to_ns: panel.to_ns, range, width: area.width, height: area.height };
    let operations = panel.source.operations_within(panel.from_ns, panel.to_ns);
    let mut frame = Group {
        data: vec![
            ("panel", panel.name.clone()),
            ("operations", operations.to_string()),
            ("from-ns", panel.from_ns.saturating_sub(begin_ns).to_string()),
            ("to-ns", panel.to_ns.saturating_sub(begin_ns).to_string()),
            ("low-us", range.low.to_string()),
            ("high-us", range.high.to_string()),
            ("x", area.x.to_string()),
            ("y", area.y.to_string()),
            ("width", area.width.to_string()),
            ("height", area.height.to_string()),
        ],
        shapes: Vec::new(),
    };
    let length = time((panel.to_ns - panel.from_ns) as f64 / 1e3);
    let title = format!("{}, {length}: {}", panel.name, counted(operations, "operation"));
    frame.text(Place { x: area.x, y: area.y - 22.0 }, Size::Bold, Anchor::Start, INK, title);
    bands(panel, &scales, &mut frame);
    axes(panel, &scales, begin_ns, &mut frame);
    let mut groups = vec![frame];
    let mut marks = Group::default();
    let mut pen = area.x;
    for (quantity, all) in Quantity::ALL.into_iter().zip(rasters(&panel.source, &scales)) {
        let mut group = Group { data: vec![("quantity", quantity.key().to_owned())], shapes: Vec::new() };
        if operations <= DOTS_MAX {
            group.shapes.extend(dots(panel, quantity, &scales, operations));
        } else {
            group.shapes.extend(cells(&all, quantity, area));
        }
        groups.push(group);
        for (edge, points_up) in [(&all.above, true), (&all.below, false)] {
            pen = beyond(edge, points_up, quantity, area, pen, &mut marks);
        }
    }
    marks.data.push(("beyond", panel.name.clone()));
    groups.push(marks);
    groups
}

/// The backgrounds of what closer views show.
fn bands(panel: &Panel<'_>, scales: &Scales, frame: &mut Group) {
    let area = panel.area;
    for closer in &panel.closer {
        let span = (closer.from_ns.max(panel.from_ns), closer.to_ns.min(panel.to_ns));
        let (Some(from), Some(to)) = (scales.x(span.0), scales.x(span.1)) else { continue };
        let width = (to - from).max(3.0).min(area.width - from.min(area.width - 3.0));
        frame.fill(Area { x: area.x + from.min(area.width - 3.0), width, ..area }, BAND);
        let middle = Place { x: area.x + from + width / 2.0, y: area.y + 20.0 };
        frame.text(middle, Size::Bold, Anchor::Middle, FAINT, closer.name.clone());
    }
}

/// The axes with their ticks.
fn axes(panel: &Panel<'_>, scales: &Scales, begin_ns: u64, frame: &mut Group) {
    let area = panel.area;
    let range = scales.range;
    let levels = ticks(range.low, range.high, 5.0);
    let step = levels.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or(range.high - range.low);
    for us in levels {
        let y = area.y + range.depth(us) * area.height;
        frame.fill(Area { x: area.x, y: y - 0.5, width: area.width, height: 1.0 }, GRID);
        let words = label(if us.abs() < step * 1e-6 { 0.0 } else { us }, step, range.high.max(-range.low));
        frame.text(Place { x: area.x - 6.0, y: y + 4.0 }, Size::Small, Anchor::End, FAINT, words);
    }
    let since = |ns: u64| (ns as f64 - begin_ns as f64) / 1e3;
    // Exact also where the times are large.
    let (from, to) = (ns_between(begin_ns, panel.from_ns) / 1e3, ns_between(begin_ns, panel.to_ns) / 1e3);
    debug_assert!((since(panel.from_ns) - from).abs() <= from.abs().max(1.0));
    let times = ticks(from, to, area.width / 110.0);
    let step = times.windows(2).map(|pair| pair[1] - pair[0]).next().unwrap_or((to - from).max(1.0));
    for us in times {
        let x = area.x + (us - from) / (to - from).max(f64::MIN_POSITIVE) * area.width;
        frame.fill(Area { x: x - 0.5, y: area.y + area.height, width: 1.0, height: 4.0 }, FAINT);
        let words = label(if us.abs() < step * 1e-6 { 0.0 } else { us }, step, to);
        let at = Place { x, y: area.y + area.height + 16.0 };
        let anchor = if x > area.x + area.width - 40.0 { Anchor::End } else { Anchor::Middle };
        frame.text(at, Size::Small, anchor, FAINT, words);
    }
    let zero = area.y + range.depth(0.0).min(1.0) * area.height;
    for line in [
        Area { x: area.x - 0.5, y: area.y, width: 1.0, height: area.height },
        Area { x: area.x, y: zero - 0.5, width: area.width, height: 1.0 },
    ] {
        frame.fill(line, FAINT);
    }
}

fn ns_between(from: u64, to: u64) -> f64 {
    if to >= from { (to - from) as f64 } else { -((from - to) as f64) }
}

/// A dot for each operation.
fn dots(panel: &Panel<'_>, quantity: Quantity, scales: &Scales, operations: u64) -> Option<Shape> {
    let area = panel.area;
    let mut places = Vec::new();
    panel.source.each(quantity, &mut |at_ns, us, _| {
        let depth = scales.range.depth(f64::from(us));
        if let Some(x) = scales.x(at_ns).filter(|_| (0.0..=1.0).contains(&depth)) {
            places.push(Place { x: area.x + x, y: area.y + depth * area.height });
        }
    });
    let width = if operations < FEW { 5.0 } else { 3.5 };
    (!places.is_empty()).then(|| Shape::Dots { places, width, colour: quantity.colour() })
}

fn cells(all: &Raster, quantity: Quantity, area: Area) -> Vec<Shape> {
    let (at, colour) = (Place { x: area.x, y: area.y }, quantity.colour());
    let looks = [(&all.light, LIGHT), (&all.single, 0.75), (&all.full, 1.0)];
    let shape = |(runs, opacity): (&Vec<_>, f64)| {
        (!runs.is_empty()).then(|| Shape::Cells { at, cell: CELL, runs: runs.clone(), colour, opacity })
    };
    looks.into_iter().filter_map(shape).collect()
}

/// Marks values beyond an edge, and writes how many there are; returns where the next words may begin.
fn beyond(
    edge: &[Beyond],
    points_up: bool,
    quantity: Quantity,
    area: Area,
    pen: f64,
    marks: &mut Group,
) -> f64 {
    let Some(most) = edge.iter().max_by(|a, b| a.extreme_us.abs().total_cmp(&b.extreme_us.abs())) else {
        return pen;
    };
    let colour = quantity.colour();
    let y = if points_up { area.y + 1.0 } else { area.y + area.height - 1.0 };
    for Beyond { x, count, extreme_us } in edge {
        let words = format!("{}: {}, up to {}", quantity.name(), grouped(*count), time(*extreme_us));
        marks.shapes.push(Shape::Tip { at: Place { x: area.x + x, y }, points_up, colour, words });
    }
    let count: u64 = edge.iter().map(|mark| mark.count).sum();
    let words = format!("{} to {}", grouped(count), time(most.extreme_us));
    let baseline = area.y - 7.0;
    let tip = Place { x: pen + TIP.0 / 2.0, y: if points_up { baseline - 7.0 } else { baseline - 1.0 } };
    marks.shapes.push(Shape::Tip { at: tip, points_up, colour, words: quantity.name().to_owned() });
    let width = Size::Small.width(&words);
    marks.text(Place { x: pen + TIP.0 + 4.0, y: baseline }, Size::Small, Anchor::Start, FAINT, words);
    pen + TIP.0 + width + 16.0
}
