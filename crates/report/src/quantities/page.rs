//! A page: one run at several scales.

use super::choice::{Choice, Part, choose};
use super::panel::{Closer, FOOT, HEAD, Panel};
use super::run::Run;
use super::summary::Source;
use super::{Clocks, Quantity, legend, panel};
use crate::scene::{Area, Scene};

/// Width of a page, pixels.
const WIDTH: f64 = 1200.0;
/// Place for the labels of values, and the right margin, pixels.
const LEFT: f64 = 72.0;
const RIGHT: f64 = 18.0;
/// Height of a panel's axes, pixels.
const HEIGHT: f64 = 190.0;
/// Distance of panels beside each other, pixels.
const BETWEEN: f64 = 84.0;
/// The axis of a whole run leaves out up to this part of the operations at each end,
const LEFT_OUT: f64 = 0.001;
/// if the others then need less than this part of the time.
const SHORTER: f64 = 0.25;

/// Where the operations come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A study or a simulation: all six stamps.
    Ring,
    /// A capture of these sides.
    Capture {
        /// The client's packets.
        client: bool,
        /// The server's packets.
        server: bool,
    },
}

/// What a page is about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// `512 B reads, nodelay, queue depth 1`.
    pub title: String,
    /// Further lines: where the operations come from, and what is left out.
    pub notes: Vec<String>,
    /// Where the operations come from.
    pub origin: Origin,
    /// How the clocks of both sides relate.
    pub clocks: Clocks,
}

impl Subject {
    /// The formula of a quantity.
    pub(super) fn formula(&self, quantity: Quantity) -> &'static str {
        match (self.origin, quantity) {
            (Origin::Capture { .. }, Quantity::Client) => "C1 - earlier C2",
            _ => quantity.formula(),
        }
    }

    /// Why a quantity is missing.
    pub(super) fn missing(&self, quantity: Quantity) -> &'static str {
        let (client, server) = match self.origin {
            Origin::Capture { client, server } => (client, server),
            Origin::Ring => (true, true),
        };
        match quantity {
            Quantity::Server if !server => "needs a capture of the server's side",
            Quantity::Client if client && self.origin != Origin::Ring => "no request followed a response",
            _ if !client => "needs a capture of the client's side",
            _ if !server => "needs a capture of the server's side",
            Quantity::Request | Quantity::Response if self.clocks == Clocks::Apart => {
                "needs one clock for both sides"
            }
            _ => "not seen",
        }
    }
}

/// Draws a run; `None` if it has no operations.
#[must_use]
pub fn page(subject: &Subject, run: &Run) -> Option<Scene> {
    if run.operations() == 0 {
        return None;
    }
    let stretches = run.stretches();
    let source = match &stretches[..] {
        [all] if run.is_whole() => Source::Operations(all),
        _ => Source::Columns(run),
    };
    let (first, last) = run.span();
    let (from_ns, to_ns) = dense_part(run);
    let choice = choose(&stretches, to_ns - from_ns);
    let mut groups = Vec::new();
    let plot = Area { x: LEFT, y: 0.0, width: WIDTH - LEFT - RIGHT, height: HEIGHT };
    let mut subject = subject.clone();
    if (from_ns, to_ns) != (first, last) {
        let outside = run.operations() - source.operations_within(from_ns, to_ns);
        subject.notes.push(format!(
            "{} began far before or after all others and are beyond the time axes",
            record::units::counted(outside, "operation")
        ));
    }
    let head = Area { x: 18.0, y: 8.0, width: WIDTH - 36.0, height: 0.0 };
    let mut y = 8.0 + legend::draw(&subject, run, &stretches, head, &mut groups);
    let Choice { views, close_ups } = choice;
    let whole = Panel {
        name: "Whole run".into(),
        source,
        from_ns,
        to_ns,
        closer: closer(&views, 0, &close_ups),
        area: Area { y: y + HEAD, ..plot },
    };
    groups.extend(panel::draw(&whole, first));
    y += HEAD + HEIGHT + FOOT;
    for (nth, view) in views.iter().enumerate() {
        let operations = &stretches[view.stretch][view.from..view.to];
        let view = Panel {
            name: format!("Part {} of the run", nth + 1),
            source: Source::Operations(operations),
            from_ns: view.from_ns,
            to_ns: view.to_ns,
            closer: closer(&views, nth + 1, &close_ups),
            area: Area { y: y + HEAD, ..plot },
        };
        groups.extend(panel::draw(&view, first));
        y += HEAD + HEIGHT + FOOT;
    }
    let count = close_ups.len() as f64;
    let width = ((plot.width - BETWEEN * (count - 1.0)) / count.max(1.0) / 2.0).floor() * 2.0;
    for (nth, part) in close_ups.iter().enumerate() {
        let close = Panel {
            name: name(nth, close_ups.len()),
            source: Source::Operations(&stretches[part.stretch][part.from..part.to]),
            from_ns: part.from_ns,
            to_ns: part.to_ns,
            closer: Vec::new(),
            area: Area { x: LEFT + nth as f64 * (width + BETWEEN), y: y + HEAD, width, height: HEIGHT },
        };
        groups.extend(panel::draw(&close, first));
    }
    if !close_ups.is_empty() {
        y += HEAD + HEIGHT + FOOT;
    }
    Some(Scene { width: WIDTH, height: y + 8.0, title: subject.title, groups })
}

/// The name of a close-up.
fn name(nth: usize, count: usize) -> String {
    match (nth, count) {
        (_, 1) => "Close-up".into(),
        (0, _) => "Close-up A, before the greatest change".into(),
        _ => "Close-up B, after it".into(),
    }
}

/// The closer views within a view: the next one, or the close-ups.
fn closer(views: &[Part], next: usize, close_ups: &[Part]) -> Vec<Closer> {
    let of = |name: &str, part: &Part| Closer { name: name.into(), from_ns: part.from_ns, to_ns: part.to_ns };
    match (views.get(next), close_ups) {
        (Some(view), _) => vec![of("", view)],
        (None, [one]) => vec![of("", one)],
        (None, all) => all.iter().zip(["A", "B"]).map(|(part, letter)| of(letter, part)).collect(),
    }
}

/// The span of a run, without a few operations that are far away from all others.
fn dense_part(run: &Run) -> (u64, u64) {
    let (first, last) = run.span();
    let few = (run.operations() as f64 * LEFT_OUT) as u64;
    let all: Vec<(u64, u64)> = run.columns().map(|(middle, column)| (middle, column.operations)).collect();
    let (Some(from), Some(to)) = (nth(few, all.iter()), nth(few, all.iter().rev())) else {
        return (first, last);
    };
    let dense = to.saturating_sub(from);
    if (dense as f64) < (last - first) as f64 * SHORTER && few > 0 {
        (from.saturating_sub(dense / 20).max(first), to.saturating_add(dense / 20).min(last))
    } else {
        (first, last)
    }
}

/// The time of the column that has the operation after so many.
fn nth<'a>(few: u64, mut columns: impl Iterator<Item = &'a (u64, u64)>) -> Option<u64> {
    let mut passed = 0;
    let found = columns.find(|(_, operations)| {
        passed += operations;
        passed > few
    });
    found.map(|(middle, _)| *middle)
}
