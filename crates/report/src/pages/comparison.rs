//! Before against after.

use compare::comparison::{Change, Only};
use compare::{Comparison, Profile};
use page::{Bar, Bars, Cell, Column, Mark, Part, Report, Row, Table, Unit};

/// Kinds of operations whose parts are drawn.
const DRAWN: usize = 4;

/// The report.
pub(super) fn report(compared: &Comparison, profiles: Option<(&Profile, &Profile)>, unit: Unit) -> Report {
    let mut report = Report {
        heading: format!("{} against {}", compared.before, compared.after),
        answer: compare::text::sentences(compared),
        place: vec![
            "What differs by more than noise is marked; beside it is the chance that equal services differ as much.".to_owned(),
        ],
        terms: super::terms::compared(),
        ..Report::default()
    };
    let lists =
        [("Causes that are new", &compared.causes_new), ("Causes that are gone", &compared.causes_gone)];
    for (title, causes) in lists {
        report.add(title, super::notes(causes));
    }
    let drawn = compared.rows.iter().enumerate().filter(|(_, row)| !row.parts.is_empty()).take(DRAWN);
    let bars: Vec<Part> =
        drawn.map(|(index, row)| Part::Bars(parts(index, &row.name, &row.parts, unit))).collect();
    report.add("Which part of the time carries the change?", bars);
    if let Some((before, after)) = profiles {
        super::profile::charts(&[("before", before), ("after", after)], &mut report, unit);
    }
    report.add("All figures", vec![Part::Table(table(compared, unit))]);
    let only = |all: &[Only]| -> Vec<String> {
        all.iter().map(|one| format!("{}: {} operations", one.name, one.operations)).collect()
    };
    report.add("Only before", super::notes(&only(&compared.gone)));
    report.add("Only after", super::notes(&only(&compared.new)));
    report
}

/// The parts, before and after.
fn parts(index: usize, name: &str, parts: &[Change], unit: Unit) -> Bars {
    let mut bars = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        for (when, us, key) in [("before", part.before, "before"), ("after", part.after, "after")] {
            bars.push(Bar {
                name: format!("{}, {when}", part.name),
                value: unit.value(us),
                spread: None,
                text: unit.text(us),
                at: Some(format!("/rows/{index}/parts/{number}/{key}")),
            });
        }
    }
    Bars { title: format!("{name}: means of the parts, {}", unit.sign()), bars }
}

fn table(compared: &Comparison, unit: Unit) -> Table {
    let mut rows = Vec::new();
    for (index, row) in compared.rows.iter().enumerate() {
        let changes = [("quantities", &row.quantities), ("parts", &row.parts)];
        let mut is_first = true;
        for (key, changes) in changes {
            for (number, change) in changes.iter().enumerate() {
                let at = |end: &str| format!("/rows/{index}/{key}/{number}/{end}");
                let share =
                    change.share().map_or_else(|| "-".to_owned(), |share| format!("{:+.1} %", share * 100.0));
                let share = Cell::from(share);
                // Times have " us" in their name, and parts are times.
                let (what, is_time) = match change.name.strip_suffix(" us") {
                    Some(name) => (name, true),
                    None => (change.name.as_str(), key == "parts"),
                };
                let shown = |value: f64| if is_time { unit.text(value) } else { format!("{value:.2}") };
                rows.push(Row {
                    cells: vec![
                        row.name.as_str().into(),
                        what.into(),
                        Cell::at(shown(change.before), at("before")),
                        Cell::at(shown(change.after), at("after")),
                        if change.differs { share.marked(Mark::Limit) } else { share },
                        change.chance.map_or_else(|| "-".to_owned(), |chance| format!("{chance:.4}")).into(),
                    ],
                    id: None,
                    is_first,
                });
                is_first = false;
            }
        }
    }
    Table {
        caption: format!("Before and after; times in {}", unit.sign()),
        columns: vec![
            Column::text("operation"),
            Column::text("what"),
            Column::number("before"),
            Column::number("after"),
            Column::number("change"),
            Column::number("chance"),
        ],
        rows,
    }
}
