//! Cases that differ in one property.

use ::study::ExperimentResult;
use ::study::experiment::{CaseResult, Unit as FigureUnit};
use ::study::trace::TraceFrame;
use analysis::verdict::name;
use page::{Axis, Bar, Bars, Cell, Chart, Column, Line, Mark, Part, Report, Row, Table, Unit};

use super::Figure;
use crate::experiment_text::{PLANTED_PLACE, answers, columns, figure, found, place, verdicts};

/// A wait between frames that stands out, microseconds.
const WAIT_US: f64 = 10_000.0;

/// The report.
pub(super) fn report(result: &ExperimentResult, figures: &[Figure], unit: Unit) -> Report {
    let plan = &result.plan;
    let mut report = Report {
        heading: format!("{}: {}", plan.name, plan.about),
        answer: answers(result),
        place: vec![format!(
            "{}; {} runs of {:?} for each case, interleaved; medians, least and greatest",
            place(result),
            plan.repeats,
            plan.runtime
        )],
        terms: super::terms::percentiles(),
        ..Report::default()
    };
    report.add("What came out?", bars(result));
    report.add(
        "All cases",
        vec![
            Part::Table(table(result)),
            Part::Text(
                "Observer: what keeping the packets at one end of the wire does to the figure, each run beside one without."
                    .to_owned(),
            ),
        ],
    );
    report.add(
        "Exchanges one after another: when did each begin, and how long did it take?",
        series(result, unit),
    );
    report.add("What was planted, what was published, what was found", structure(result));
    report.add("Intervals of single operations over time", super::pictures(figures));
    report.add("What the packets say", judged(result));
    let end = if result.client_machine.is_some() { "server" } else { "client" };
    report.add(
        format!("Two exchanges frame by frame, as the {end}'s end of the wire saw them"),
        traces(result, unit),
    );
    report.add("What to know about these figures", super::notes(&result.warnings));
    report.add("Machines", super::study::machines(&result.machine, result.client_machine.as_ref()));
    report
}

fn table(result: &ExperimentResult) -> Table {
    let all = columns(result);
    let title = |column: &crate::experiment_text::Column| {
        if column.is_text { Column::text(column.title) } else { Column::number(column.title) }
    };
    let rows = (0..result.cases.len())
        .map(|row| all.iter().map(|column| column.cells[row].clone()).collect::<Row>());
    Table { caption: "Each case".to_owned(), columns: all.iter().map(title).collect(), rows: rows.collect() }
}

/// Each figure as a bar, with the spread of its runs.
fn bars(result: &ExperimentResult) -> Vec<Part> {
    let of = |unit: FigureUnit| {
        let cases = result.cases.iter().enumerate().filter(|(_, case)| case.unit == unit);
        let bars = cases.map(|(index, case)| Bar {
            name: case.case.label.clone(),
            value: case.median,
            spread: Some((case.least, case.greatest)),
            text: figure(case.median),
            at: Some(format!("/cases/{index}/median")),
        });
        Bars { title: unit.name().to_owned(), bars: bars.collect() }
    };
    FigureUnit::ALL.map(of).into_iter().filter(|bars| !bars.bars.is_empty()).map(Part::Bars).collect()
}

/// The times of single exchanges, one after another.
fn series(result: &ExperimentResult, unit: Unit) -> Vec<Part> {
    let with = result.cases.iter().filter(|case| case.samples().len() > 1);
    with.map(|case| {
        let points = case.samples().iter().map(|(at_ms, took_us)| (*at_ms, unit.value(*took_us)));
        let mut points: Vec<(f64, f64)> = points.collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Part::Chart(Chart {
            title: case.case.label.clone(),
            x: Axis { label: "began, ms".to_owned(), is_logarithmic: false },
            y: Axis { label: format!("took, {}", unit.sign()), is_logarithmic: false },
            lines: vec![Line::points("exchange", points)],
            heat: None,
        })
    })
    .collect()
}

/// What was planted, published and found.
fn structure(result: &ExperimentResult) -> Vec<Part> {
    let rows: Vec<Row> = found(result)
        .map(|case| {
            [case.label.to_owned(), case.planted.join("; "), case.published.to_owned(), case.found.join("; ")]
                .into_iter()
                .collect()
        })
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let columns = ["case", "planted", "published", "found"].map(Column::text).into();
    let table = Table { caption: "Patterns of single operations".to_owned(), columns, rows };
    vec![Part::Table(table), Part::Text(PLANTED_PLACE.to_owned())]
}

/// The verdicts of the analysis of each case's packets.
fn judged(result: &ExperimentResult) -> Vec<Part> {
    if result.cases.iter().all(|case| case.trace.is_none()) {
        return Vec::new();
    }
    let rows: Vec<Row> = verdicts(result)
        .map(|(case, verdict)| {
            let gain = verdict.gain.as_ref().map_or("-", |gain| &gain.text);
            [case, name(verdict.kind), &verdict.text, gain].into_iter().collect()
        })
        .collect();
    let mut parts = Vec::new();
    if !rows.is_empty() {
        let columns = ["case", "verdict", "what happened", "what there is to gain"].map(Column::text).into();
        parts.push(Part::Table(Table { caption: "Verdicts".to_owned(), columns, rows }));
    }
    let calm = "In the packets of a case that is not named here nothing was found that made operations slow.";
    parts.push(Part::Text(calm.to_owned()));
    parts
}

/// Two exchanges of each case, frame by frame.
fn traces(result: &ExperimentResult, unit: Unit) -> Vec<Part> {
    let with = result.cases.iter().filter(|case| !case.frames.is_empty());
    with.map(|case: &CaseResult| {
        let mut before: Option<&TraceFrame> = None;
        let rows = case.frames.iter().map(|frame| {
            let after = before.map(|earlier| frame.at_us - earlier.at_us);
            let waited = after.is_some_and(|after| after >= WAIT_US);
            before = Some(frame);
            let after = Cell::from(after.map_or_else(|| "-".to_owned(), |after| unit.text(after)));
            Row::from_iter([
                unit.text(frame.at_us).into(),
                if waited { after.marked(Mark::Limit) } else { after },
                Cell::from(if frame.is_clients { "client → server" } else { "client ← server" }),
                frame.bytes.to_string().into(),
                frame.what.as_str().into(),
                if waited { remark(frame) } else { "" }.into(),
            ])
        });
        let table = Table {
            caption: format!("{}: times in {}", case.case.label, unit.sign()),
            rows: rows.collect(),
            columns: vec![
                Column::number("at"),
                Column::number("after"),
                Column::text("way"),
                Column::number("bytes"),
                Column::text("what"),
                Column::text("why so late"),
            ],
        };
        let mut parts = vec![Part::Table(table)];
        parts.extend(case.trace.as_ref().map(|file| Part::File("All packets:".to_owned(), file.clone())));
        Part::Fold { title: case.case.label.clone(), is_open: has_wait(&case.frames), parts }
    })
    .collect()
}

fn has_wait(frames: &[TraceFrame]) -> bool {
    frames.windows(2).any(|pair| pair[1].at_us - pair[0].at_us >= WAIT_US)
}

/// The reason for a late frame.
fn remark(frame: &TraceFrame) -> &'static str {
    match (frame.bytes, frame.is_clients) {
        (0, true) => {
            "the client's acknowledgement was delayed: what it acknowledges had no answer to ride on"
        }
        (0, false) => {
            "the server's acknowledgement was delayed: it waited for the rest of the request, which waited for it"
        }
        (_, true) => "the client held this back",
        (_, false) => "the server held this back",
    }
}
