//! An analysis of a capture.

use analysis::Part as Measured;
use analysis::service::{DetailRow, Figures, ServiceRow};
use analysis::traffic::TrafficStanza;
use analysis::verdict::{Verdict, name};
use analyzer::AnalysisResult;
use compare::Profile;
use page::{Axis, Cell, Chart, Column, Line, Part, Report, Ring, Row, Stage, Table, Unit, Where};
use record::units::counted;

use crate::analysis_text::{answers, frames, structure_of};
use crate::terminal::thousands;

/// Rings that are shown: of the stanzas with the most time.
const RINGS: usize = 4;
/// Details of a service that are shown.
const DETAILS: usize = 50;

/// The report.
pub(super) fn report(result: &AnalysisResult, profile: Option<&Profile>, unit: Unit) -> Report {
    let names: Vec<&str> = result.inputs.iter().map(|input| input.name.as_str()).collect();
    let mut report = Report {
        heading: format!("{}: where the time of its operations goes", names.join(", ")),
        answer: answers(result),
        place: vec![format!(
            "{} of {} in {}",
            counted(result.operations, "operation"),
            counted(result.services.len() as u64, "kind"),
            counted(result.packets, "packet"),
        )],
        terms: super::terms::parts(),
        ..Report::default()
    };
    verdicts(result, &mut report);
    report.add("Where does the time go?", rings(result, unit));
    if let Some(profile) = profile {
        super::profile::charts(&[("", profile)], &mut report, unit);
    }
    slowest(result, unit, &mut report);
    report.add("The services", services(result, unit));
    report.add("Patterns", super::notes(&structure_of(result)));
    report.add("The parts, connection by connection", stanzas(result, unit));
    report.add("What to know about these figures", super::notes(&result.notes));
    report
}

fn verdicts(result: &AnalysisResult, report: &mut Report) {
    let of = |index: usize, verdict: &Verdict, key: &str| {
        let mut parts = vec![Part::Text(verdict.text.clone())];
        if !verdict.remedy.is_empty() {
            let remedies =
                verdict.remedy.iter().map(|remedy| format!("{}: {}", remedy.system, remedy.action));
            parts.push(Part::Notes(remedies.collect()));
        }
        if let Some(gain) = &verdict.gain {
            parts.push(Part::Text(format!("To gain: {}", gain.text)));
        }
        parts.extend(frames(verdict).map(|frames| Part::Text(format!("Frames: {frames}"))));
        // What is stated without a verdict has no weight, however long it lasts.
        let weight = if verdict.weight > 0.0 {
            format!(", {:.1} % of the operations' time", verdict.weight * 100.0)
        } else {
            String::new()
        };
        let title = format!("{} {}: {}{weight}", key, index + 1, name(verdict.kind));
        Part::fold(title, parts)
    };
    let all = result.verdicts.iter().enumerate().map(|(index, verdict)| of(index, verdict, "Verdict"));
    report.add("What does each verdict rest on, and what mends it?", all.collect());
    let minor = result.minor.iter().enumerate().map(|(index, verdict)| of(index, verdict, "Noted"));
    report.add("Noted, of little weight", minor.collect());
}

/// The rings of the stanzas with the most time.
fn rings(result: &AnalysisResult, unit: Unit) -> Vec<Part> {
    let mut order: Vec<(usize, &TrafficStanza)> = result.stanzas.iter().enumerate().collect();
    let time = |stanza: &TrafficStanza| {
        stanza.mean_us(Measured::RoundTrip).unwrap_or(0.0) * stanza.operations as f64
    };
    order.sort_by(|a, b| time(b.1).total_cmp(&time(a.1)));
    let mut rings =
        order.into_iter().take(RINGS).filter_map(|(index, stanza)| ring(index, stanza, result, unit));
    let mut parts: Vec<Part> = rings.next().map(Part::Ring).into_iter().collect();
    let others: Vec<Part> = rings.map(Part::Ring).collect();
    if !others.is_empty() {
        parts.push(Part::fold(format!("{} more, by their time", others.len()), others));
    }
    parts
}

/// The stages of a stanza: those that both sides, or the one side, could see.
fn ring(index: usize, stanza: &TrafficStanza, result: &AnalysisResult, unit: Unit) -> Option<Ring> {
    let stage = |part: Measured, place: Where| {
        let number = stanza.parts.iter().position(|own| own.part == part)?;
        Some(Stage {
            name: part.name().to_owned(),
            place,
            us: stanza.parts[number].mean_us,
            at: Some(format!("/stanzas/{index}/parts/{number}/mean_us")),
            is_limit: false,
            remark: None,
        })
    };
    let (there, back): (Vec<_>, Vec<_>) = if stanza.part(Measured::RequestPath).is_some() {
        (
            [
                stage(Measured::Client, Where::Client),
                stage(Measured::Sending, Where::Client),
                stage(Measured::RequestPath, Where::Wire),
            ]
            .into(),
            [stage(Measured::Server, Where::Server), stage(Measured::ResponsePath, Where::Wire)].into(),
        )
    } else {
        (
            [stage(Measured::Client, Where::Client), stage(Measured::Sending, Where::Client)].into(),
            [
                stage(Measured::FirstByte, Where::Server),
                stage(Measured::Server, Where::Server),
                stage(Measured::Transfer, Where::Wire),
            ]
            .into(),
        )
    };
    let there: Vec<Stage> = there.into_iter().flatten().collect();
    let back: Vec<Stage> = back.into_iter().flatten().collect();
    // Where no more is known than when the response had come.
    let back =
        if back.is_empty() { stage(Measured::RoundTrip, Where::Server).into_iter().collect() } else { back };
    if back.is_empty() {
        return None;
    }
    let of =
        stanza.connection.and_then(|number| result.connections.iter().find(|row| row.connection == number));
    let connection = of.map_or_else(String::new, |row| format!(", {} to {}", row.client, row.server));
    let (_, depth, _) = stanza.queue_depth;
    let mut middle = vec![counted(stanza.operations, "operation")];
    if let Some(us) = stanza.mean_us(Measured::RoundTrip) {
        middle.push(format!("round trip {} {}", unit.text(us), unit.sign()));
    }
    middle.push(format!("{} a second", super::rate(stanza.iops)));
    middle.push(format!("{depth:.1} in flight"));
    Some(Ring { title: format!("{}{connection}", stanza.operation), middle, there, back })
}

/// The details of a service of one kind.
type Details = fn(&ServiceRow) -> &[DetailRow];

const FIGURES: [&str; 9] =
    ["operations", "failed", "a second", "in flight", "p50", "p90", "p99", "max", "time"];

fn figures(figures: &Figures, at: &str, unit: Unit) -> Vec<Cell> {
    let pointer = |key: &str| format!("{at}/{key}");
    let time = |us: f64, key: &str| Cell::at(unit.text(us), pointer(key));
    vec![
        Cell::at(thousands(figures.operations as f64), pointer("operations")),
        Cell::at(thousands(figures.failed as f64), pointer("failed")),
        Cell::at(format!("{:.1}", figures.rate), pointer("rate")),
        Cell::at(format!("{:.2}", figures.in_flight), pointer("in_flight")),
        time(figures.p50_us, "p50_us"),
        time(figures.p90_us, "p90_us"),
        time(figures.p99_us, "p99_us"),
        time(figures.max_us, "max_us"),
        format!("{:.0} %", figures.time_share * 100.0).into(),
    ]
}

fn services(result: &AnalysisResult, unit: Unit) -> Vec<Part> {
    if result.services.is_empty() {
        return Vec::new();
    }
    let rows = result.services.iter().enumerate().map(|(index, row)| {
        let mut cells: Vec<Cell> =
            vec![row.service.as_deref().unwrap_or("others").into(), row.operation.as_str().into()];
        cells.extend(figures(&row.figures, &format!("/services/{index}"), unit));
        Row { cells, ..Row::default() }
    });
    let mut columns = vec![Column::text("service"), Column::text("operation")];
    columns.extend(FIGURES.map(Column::number));
    let table = Table {
        caption: format!("Each kind of operation; times in {}", unit.sign()),
        columns,
        rows: rows.collect(),
    };
    let mut parts = vec![Part::Table(table)];
    let details: [(&str, &str, Details); 3] = [
        ("client", "clients", |row| &row.clients),
        ("size of the data, B", "sizes", |row| &row.sizes),
        ("key", "keys", |row| &row.keys),
    ];
    for (title, key, of) in details {
        let mut rows = Vec::new();
        for (index, row) in result.services.iter().enumerate() {
            // One alone says nothing that the service does not.
            let own = of(row);
            for (nth, detail) in own.iter().take(DETAILS).enumerate().filter(|_| own.len() > 1) {
                let mut cells: Vec<Cell> = vec![
                    row.service.as_deref().unwrap_or("others").into(),
                    row.operation.as_str().into(),
                    detail.name.as_str().into(),
                ];
                cells.extend(figures(&detail.figures, &format!("/services/{index}/{key}/{nth}"), unit));
                rows.push(Row { cells, is_first: nth == 0, ..Row::default() });
            }
        }
        if rows.is_empty() {
            continue;
        }
        let mut columns = vec![Column::text("service"), Column::text("operation"), Column::text(title)];
        columns.extend(FIGURES.map(Column::number));
        let caption = format!("By {title}; times in {}", unit.sign());
        parts.push(Part::fold(format!("By {title}"), vec![Part::Table(Table { caption, columns, rows })]));
    }
    parts
}

/// The slowest operations: when, and which packets have them.
fn slowest(result: &AnalysisResult, unit: Unit, report: &mut Report) {
    let begin = match result.span_ns.0 {
        0 => result.slowest.iter().map(|row| row.began_ns).min().unwrap_or(0),
        begin => begin,
    };
    let id = |index: usize| format!("operation-{index}");
    let mut points: Vec<(f64, f64, String)> = result
        .slowest
        .iter()
        .enumerate()
        .map(|(index, row)| {
            (row.began_ns.saturating_sub(begin) as f64 / 1e9, unit.value(row.whole_us), id(index))
        })
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut line = Line::points("operation", points.iter().map(|(x, y, _)| (*x, *y)));
    line.links = points.into_iter().map(|(_, _, link)| link).collect();
    let chart = Chart {
        title: "When were the slowest operations? (A click leads to the operation's row.)".to_owned(),
        x: Axis { label: "time since the beginning, s".to_owned(), is_logarithmic: false },
        y: Axis { label: format!("time, {}", unit.sign()), is_logarithmic: false },
        lines: vec![line],
        heat: None,
    };
    let longest_us = result.slowest.iter().map(|row| row.whole_us).fold(0.0, f64::max);
    let rows = result.slowest.iter().enumerate().map(|(index, row)| {
        let [first, last] = row.frames;
        let at = |key: &str| format!("/slowest/{index}/{key}");
        let before =
            row.first_byte_us.map_or_else(Cell::default, |us| Cell::at(unit.text(us), at("first_byte_us")));
        let after = row.first_byte_us.map_or_else(String::new, |us| unit.text((row.whole_us - us).max(0.0)));
        let first_us = row.first_byte_us.unwrap_or(row.whole_us).min(row.whole_us);
        let share = |us: f64| if longest_us > 0.0 { us / longest_us } else { 0.0 };
        let ladder = Cell::lengths(
            format!(
                "{} until the first byte, {} from then on",
                unit.text(first_us),
                unit.text(row.whole_us - first_us)
            ),
            vec![share(first_us), share(row.whole_us - first_us)],
        );
        Row {
            cells: vec![
                row.service.as_deref().unwrap_or("others").into(),
                row.operation.as_str().into(),
                row.key.as_str().into(),
                row.status.as_str().into(),
                Cell::at(unit.text(row.whole_us), at("whole_us")),
                before,
                after.into(),
                ladder,
                format!("frame.number in {{{first}..{last}}}").into(),
            ],
            id: Some(id(index)),
            is_first: false,
        }
    });
    let table = Table {
        caption: format!(
            "The {} slowest operations, times in {}; the filter shows an operation's packets in Wireshark",
            result.slowest.len(),
            unit.sign()
        ),
        columns: vec![
            Column::text("service"),
            Column::text("operation"),
            Column::text("key"),
            Column::text("status"),
            Column::number("whole"),
            Column::number("until the first byte"),
            Column::number("from then on"),
            Column::text("ladder"),
            Column::text("its packets"),
        ],
        rows: rows.collect(),
    };
    if !table.rows.is_empty() {
        report.add(
            "Which operations were the slowest?",
            vec![Part::Chart(chart), Part::Table(table.without_empty())],
        );
    }
}

fn stanzas(result: &AnalysisResult, unit: Unit) -> Vec<Part> {
    let parts: Vec<Measured> = Measured::ALL
        .into_iter()
        .filter(|part| result.stanzas.iter().any(|stanza| stanza.part(*part).is_some()))
        .collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let mut columns = vec![Column::number("connection"), Column::text("operation"), Column::number("QD")];
    columns.push(Column::number("operations"));
    columns.extend(parts.iter().map(|part| Column::number(part.name())));
    let rows = result.stanzas.iter().enumerate().map(|(index, stanza)| {
        let mut cells: Vec<Cell> = vec![
            stanza.connection.map_or_else(|| "others".to_owned(), |number| number.to_string()).into(),
            stanza.operation.as_str().into(),
            format!("{:.1}", stanza.queue_depth.1).into(),
            Cell::at(thousands(stanza.operations as f64), format!("/stanzas/{index}/operations")),
        ];
        for part in &parts {
            let number = stanza.parts.iter().position(|own| own.part == *part);
            cells.push(number.map_or_else(Cell::default, |number| {
                let at = format!("/stanzas/{index}/parts/{number}/mean_us");
                Cell::at(unit.text(stanza.parts[number].mean_us), at)
            }));
        }
        Row { cells, ..Row::default() }
    });
    let caption = format!("Means of the parts, {}", unit.sign());
    vec![Part::Table(Table { caption, columns, rows: rows.collect() })]
}
