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
            "Marked is what differs by more than noise: the chance that the same service would differ as much is told beside it."
                .to_owned(),
        ],
        terms: super::terms::percentiles(),
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
    report.add("All figures", vec![Part::Table(table(compared))]);
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
                value: us,
                spread: None,
                text: unit.text(us),
                at: Some(format!("/rows/{index}/parts/{number}/{key}")),
            });
        }
    }
    Bars { title: format!("{name}: means of the parts, {}", unit.sign()), bars }
}

fn table(compared: &Comparison) -> Table {
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
                let unit = if key == "parts" { ", us" } else { "" };
                rows.push(Row {
                    cells: vec![
                        row.name.as_str().into(),
                        format!("{}{unit}", change.name).into(),
                        Cell::at(format!("{:.1}", change.before), at("before")),
                        Cell::at(format!("{:.1}", change.after), at("after")),
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
        caption: "Before and after; times in microseconds (us), as in the JSON".to_owned(),
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
