//! The head of a page: title, what is drawn, and what is not.

use record::units::counted;

use super::axis::time;
use super::page::Subject;
use super::run::Run;
use super::summary::median;
use super::{Quantity, Timed};
use crate::scene::{Anchor, Area, FAINT, Group, INK, Place, Size};

/// Height of a line of text, pixels.
const LINE: f64 = 18.0;
/// Entries of the legend in a row.
const ENTRIES: usize = 3;

/// Draws the head of a page between these edges and returns its height, pixels.
pub(super) fn draw(
    subject: &Subject,
    run: &Run,
    stretches: &[Vec<Timed>],
    area: Area,
    groups: &mut Vec<Group>,
) -> f64 {
    let mut head = Group { data: vec![("head", "page".into())], shapes: Vec::new() };
    let mut y = area.y + 20.0;
    head.text(Place { x: area.x, y }, Size::Title, Anchor::Start, INK, subject.title.clone());
    let (first, last) = run.span();
    // One operation begins at one time: there is nothing that it is spread over.
    let spread = (last > first).then(|| format!(" over {}", time((last - first) as f64 / 1e3)));
    let summary = format!(
        "{}{} from {}.{:09} s since 1970; X: time at which an operation began, Y: its intervals",
        counted(run.operations(), "operation"),
        spread.unwrap_or_default(),
        first / 1_000_000_000,
        first % 1_000_000_000
    );
    for line in subject.notes.iter().chain([&summary]) {
        y += LINE;
        head.text(Place { x: area.x, y }, Size::Normal, Anchor::Start, FAINT, line.clone());
    }
    groups.push(head);
    let wide = area.width / ENTRIES as f64;
    y += 6.0;
    for (nth, quantity) in Quantity::ALL.into_iter().enumerate() {
        let x = area.x + (nth % ENTRIES) as f64 * wide;
        if nth % ENTRIES == 0 {
            y += LINE;
        }
        let found = median(run, stretches, quantity);
        let mut entry = Group { data: vec![("legend", quantity.key().to_owned())], shapes: Vec::new() };
        let words = match found {
            Some(us) => {
                format!("{} {}, median {}", quantity.name(), subject.formula(quantity), time(f64::from(us)))
            }
            None => format!("{}: {}", quantity.name(), subject.missing(quantity)),
        };
        let colour = if found.is_some() { INK } else { FAINT };
        if let Some(us) = found {
            entry.data.push(("median-us", us.to_string()));
            entry.fill(Area { x, y: y - 9.0, width: 10.0, height: 10.0 }, quantity.colour());
        } else {
            entry.fill(Area { x, y: y - 4.5, width: 10.0, height: 2.0 }, quantity.colour());
        }
        entry.text(Place { x: x + 16.0, y }, Size::Normal, Anchor::Start, colour, words);
        groups.push(entry);
    }
    y - area.y + 6.0
}
