//! A study: a ring at each point, its throughput over queue depth, and what it is checked against.

use ::study::StudyResult;
use ::study::machine::Machine;
use analysis::{ClosureOutcome, Stanza, TermSource};
use page::{Axis, Cell, Chart, Column, Line, Look, Mark, Part, Report, Ring, Row, Stage, Table, Unit, Where};
use record::units::{counted, format_size};

use super::Figure;
use crate::closure_text::{self, Rows, closure};
use crate::study_text::{
    COLUMNS, PUBLISHED_COLUMNS, answers, column, heading, prediction_errors, published_rows, size, spread,
};
use crate::terminal::thousands;

/// The report.
pub(super) fn report(result: &StudyResult, figures: &[Figure], unit: Unit) -> Report {
    let mut report = Report {
        heading: "Where the round trip goes".to_owned(),
        answer: answers(result),
        place: heading(result),
        terms: super::terms::ring(),
        ..Report::default()
    };
    let is_wrong = result.with(ClosureOutcome::Fails).next().is_some();
    let closed = closure(result);
    // The reasons are many where a machine was busy.
    let (why, said): (Vec<&str>, Vec<&str>) = closed.lines().partition(|line| line.starts_with("- "));
    let say = |line: &&str| {
        if is_wrong { Part::Warning((*line).to_owned()) } else { Part::Text((*line).to_owned()) }
    };
    let mut parts: Vec<Part> = said.iter().map(say).collect();
    if !why.is_empty() {
        let why: Vec<String> = why.iter().map(|line| line.trim_start_matches("- ").to_owned()).collect();
        parts.push(Part::fold(
            format!("Why: {}", counted(why.len() as u64, "reason")),
            vec![Part::Notes(why)],
        ));
    }
    report.add("Can these figures be relied upon?", parts);
    report.add("Where does the time of a round trip go?", rings(result, unit));
    report.add("What does queue depth give, and what does it cost?", curves(result, unit));
    report.add("Throughput and limits", vec![Part::Table(summary(result, unit))]);
    report.add("What was published, and what came out here", published(result));
    report.add("The stages of the round trip", vec![Part::Table(breakdown(result, unit))]);
    let mut predicted = vec![Part::Text(prediction_errors(&result.stanzas))];
    predicted.extend(predictions(result));
    report.add("What does the model predict from queue depth 1 and the CPU-bound run alone?", predicted);
    let title = "Evidence from the kernel's own events, and predictions from other points";
    report.add(title, rows(title, &closure_text::evidence(result)));
    let title = "Stages by the kernel's events, microseconds";
    report.add(title, rows(title, &closure_text::stages(result)));
    report
        .add("How many requests does a wake-up of the server serve?", vec![Part::Table(busy_counts(result))]);
    report.add("Intervals of single operations over time", super::pictures(figures));
    report.add("What to know about these figures", super::notes(&result.warnings));
    report.add("Machines", machines(&result.machine, result.client_machine.as_ref()));
    report
}

/// The name of a point.
fn point(stanza: &Stanza) -> String {
    format!("{} reads, {}, queue depth {}", size(stanza.block_size_bytes), stanza.policy, stanza.queue_depth)
}

/// The ring of each end of each size and policy; the first two are open.
fn rings(result: &StudyResult, unit: Unit) -> Vec<Part> {
    let ends = result.stanzas.iter().enumerate().filter(|(_, stanza)| result.is_end(stanza.queue_depth));
    let parts = ends.enumerate().map(|(nth, (index, stanza))| {
        let mut parts = vec![Part::Ring(ring(index, stanza, unit))];
        parts.extend(closure_text::not_drawn(stanza).into_iter().map(|(text, is_contradiction)| {
            if is_contradiction { Part::Warning(text) } else { Part::Text(text) }
        }));
        let title = format!("{}: {} {}", point(stanza), unit.text(stanza.rtt_us), unit.sign());
        Part::Fold { title, is_open: nth < 2, parts }
    });
    parts.collect()
}

/// The terms from the client to the server; the others are on the way back.
const THERE: usize = 7;

fn ring(index: usize, stanza: &Stanza, unit: Unit) -> Ring {
    let terms = &stanza.breakdown.terms;
    let stages: Vec<(usize, Stage)> = COLUMNS
        .into_iter()
        .enumerate()
        .filter_map(|(number, (_, names))| {
            let value = column(stanza, names)?;
            let at = terms.iter().position(|term| std::ptr::eq(term, value))?;
            // What starts a side's receiving is between the two.
            let place = match value.terms.as_bytes().first() {
                Some(b'W') => Where::Wire,
                _ if value.terms.contains("SR") || value.terms.contains("CR") => Where::Wire,
                Some(b'C') => Where::Client,
                _ => Where::Server,
            };
            let stage = Stage {
                name: value.terms.clone(),
                place,
                us: value.mean_us,
                at: Some(format!("/stanzas/{index}/breakdown/terms/{at}/mean_us")),
                is_limit: limits(stanza, &value.terms) && value.source != TermSource::Remainder,
                remark: closure_text::is_contradiction(stanza, value).then(|| "contradiction".to_owned()),
            };
            Some((number, stage))
        })
        .collect();
    let (there, back): (Vec<_>, Vec<_>) = stages.into_iter().partition(|(number, _)| *number < THERE);
    let limit = &stanza.breakdown.limit;
    Ring {
        title: point(stanza),
        middle: vec![
            format!("round trip {} {}", unit.text(stanza.rtt_us), unit.sign()),
            format!("{} a second", thousands(stanza.iops)),
            format!(
                "at depth: {}, {} {} a request",
                limit.bound.text(),
                unit.text(limit.tpt_min_us),
                unit.sign()
            ),
        ],
        there: there.into_iter().map(|(_, stage)| stage).collect(),
        back: back.into_iter().map(|(_, stage)| stage).collect(),
    }
}

/// Whether a term is one of those that limit the ring at depth.
fn limits(stanza: &Stanza, terms: &str) -> bool {
    terms.split('+').any(|term| stanza.breakdown.limit.bottleneck.split('+').any(|limit| limit == term))
}

/// Throughput and time over queue depth, with the model's band and its points, and the simulated ones.
fn curves(result: &StudyResult, unit: Unit) -> Vec<Part> {
    if result.plan.queue_depths.len() < 2 {
        return Vec::new();
    }
    let mut parts = Vec::new();
    for &bytes in &result.plan.block_bytes {
        let mut rate = Chart {
            title: format!("{}: operations a second", size(bytes)),
            x: Axis { label: "queue depth".to_owned(), is_logarithmic: true },
            y: Axis { label: "operations a second".to_owned(), is_logarithmic: false },
            ..Chart::default()
        };
        let mut time = Chart {
            title: format!("{}: round trip", size(bytes)),
            x: rate.x.clone(),
            y: Axis { label: format!("round trip, {}", unit.sign()), is_logarithmic: true },
            ..Chart::default()
        };
        for (colour, policy) in result.plan.policies.iter().enumerate() {
            let name = policy.to_string();
            let mut own: Vec<&Stanza> =
                result.stanzas.iter().filter(|s| s.block_size_bytes == bytes && s.policy == name).collect();
            own.sort_by_key(|stanza| stanza.queue_depth);
            let depth = |stanza: &Stanza| f64::from(stanza.queue_depth);
            let mut add = |line: Line| rate.lines.push(line.coloured(colour));
            add(Line::new(name.clone(), own.iter().map(|s| (depth(s), s.iops))));
            let band = own.iter().filter_map(|s| s.predicted.map(|p| (depth(s), p.band_low, p.band_high)));
            add(Line::band(format!("{name}: the model's band"), band));
            let predicted = own.iter().filter_map(|s| s.predicted.map(|p| (depth(s), p.iops)));
            add(Line::points(format!("{name}: the model"), predicted).looking(Look::Hollow));
            let simulated = own.iter().filter_map(|s| s.simulated_iops.map(|iops| (depth(s), iops)));
            add(Line::points(format!("{name}: simulated"), simulated));
            let times = own.iter().map(|s| (depth(s), unit.value(s.rtt_us)));
            time.lines.push(Line::new(name, times).coloured(colour));
        }
        rate.lines.retain(|line| !line.x.is_empty());
        parts.push(Part::Chart(rate));
        parts.push(Part::Chart(time));
    }
    parts
}

/// The cells that name a point.
fn named(stanza: &Stanza) -> Vec<Cell> {
    vec![
        format_size(stanza.block_size_bytes).into(),
        stanza.policy.as_str().into(),
        stanza.queue_depth.to_string().into(),
    ]
}

fn name_columns() -> Vec<Column> {
    vec![Column::number("block"), Column::text("send"), Column::number("QD")]
}

/// A row of a point: what names it, and these cells.
fn row(stanza: &Stanza, cells: impl IntoIterator<Item = Cell>) -> Row {
    let mut all = named(stanza);
    all.extend(cells);
    Row { cells: all, id: None, is_first: stanza.queue_depth == 1 }
}

fn summary(result: &StudyResult, unit: Unit) -> Table {
    let mut columns = name_columns();
    columns.extend(["IOPS", "with capture", "TPT", "RTT", "CPU client", "CPU server"].map(Column::number));
    columns.extend(["at depth", "bottleneck"].map(Column::text));
    columns.extend(["TPTmin", "QD needed"].map(Column::number));
    columns.push(Column::text("closure"));
    let rows = result.stanzas.iter().enumerate().map(|(index, s)| {
        let at = |key: &str| format!("/stanzas/{index}/{key}");
        let l = &s.breakdown.limit;
        let closure = Cell::from(s.closure.outcome.text());
        let is_wrong = s.closure.outcome == ClosureOutcome::Fails;
        row(
            s,
            [
                Cell::at(spread(s), at("iops")),
                format!("{:+.1} %", -s.observer_cost() * 100.0).into(),
                Cell::at(unit.text(s.tpt_us), at("tpt_us")),
                Cell::at(unit.text(s.rtt_us), at("rtt_us")),
                format!("{:.0} %", s.cpu_busy.0 * 100.0).into(),
                format!("{:.0} %", s.cpu_busy.1 * 100.0).into(),
                l.bound.text().into(),
                l.bottleneck.as_str().into(),
                Cell::at(unit.text(l.tpt_min_us), at("breakdown/limit/tpt_min_us")),
                format!("{:.1}", l.queue_depth_needed).into(),
                if is_wrong { closure.marked(Mark::Bad) } else { closure },
            ],
        )
    });
    Table { caption: format!("Each point; times in {}", unit.sign()), columns, rows: rows.collect() }
}

/// Published figures beside the measured ones.
fn published(result: &StudyResult) -> Vec<Part> {
    let rows: Vec<Row> = published_rows(result)
        .into_iter()
        .map(|(stanza, cells)| row(stanza, cells.into_iter().map(Cell::from)))
        .collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut columns = name_columns();
    columns.extend(PUBLISHED_COLUMNS.map(Column::number));
    vec![Part::Table(Table { caption: "Each cell: published, then measured".to_owned(), columns, rows })]
}

fn breakdown(result: &StudyResult, unit: Unit) -> Table {
    let mut columns = name_columns();
    columns.extend(COLUMNS.iter().map(|(name, _)| Column::number(*name)));
    columns.extend(["sum", "RTT"].map(Column::number));
    let ends = result.stanzas.iter().filter(|stanza| result.is_end(stanza.queue_depth));
    let rows = ends.map(|s| {
        let mut cells: Vec<Cell> = Vec::new();
        for (title, names) in COLUMNS {
            let Some(value) = column(s, names) else {
                cells.push(Cell::default());
                continue;
            };
            // A token bucket takes no time of an operation: it keeps frames apart.
            let apart = s.path.filter(|p| p.token_bucket).and_then(|p| match title {
                "W1" => Some(p.w1_us),
                "W2" => Some(p.w2_us),
                _ => None,
            });
            let mut text = unit.text(value.mean_us);
            if let Some(apart) = apart {
                text.push_str(&format!(" ({} apart)", unit.text(apart)));
            }
            // A sum of which a rule leaves one term is told with that term.
            if value.terms != title {
                text.insert_str(0, &format!("{} ", value.terms));
            }
            let mark = if closure_text::is_contradiction(s, value) {
                Mark::Bad
            } else if limits(s, &value.terms) && value.source != TermSource::Remainder {
                Mark::Limit
            } else {
                Mark::None
            };
            cells.push(Cell::from(text).marked(mark));
        }
        cells.extend([unit.text(s.breakdown.joined.rtt_us).into(), unit.text(s.rtt_us).into()]);
        row(s, cells)
    });
    Table {
        caption: format!("Means, {}; marked: the stages that limit the ring at depth", unit.sign()),
        columns,
        rows: rows.collect(),
    }
}

/// A table of points.
fn rows(title: &str, of: &Rows<'_>) -> Vec<Part> {
    if of.rows.is_empty() {
        return Vec::new();
    }
    let mut columns = name_columns();
    columns.extend(of.headings.iter().map(|name| Column::number(name.replace('\n', " "))));
    let rows =
        of.rows.iter().map(|(stanza, cells)| row(stanza, cells.iter().map(|cell| Cell::from(cell.as_str()))));
    vec![Part::Table(Table { caption: title.to_owned(), columns, rows: rows.collect() })]
}

fn predictions(result: &StudyResult) -> Option<Part> {
    let mut columns = name_columns();
    let names = ["measured", "predicted", "least phase", "greatest phase", "band from", "to", "error"];
    columns.extend(names.map(Column::number));
    let rows: Vec<Row> = result
        .stanzas
        .iter()
        .enumerate()
        .filter_map(|(index, s)| {
            let p = s.predicted?;
            let at = |key: &str| format!("/stanzas/{index}/{key}");
            let error = Cell::from(format!("{:+.1} %", p.error * 100.0));
            Some(row(
                s,
                [
                    Cell::at(thousands(s.iops), at("iops")),
                    Cell::at(thousands(p.iops), at("predicted/iops")),
                    thousands(p.iops_low).into(),
                    thousands(p.iops_high).into(),
                    thousands(p.band_low).into(),
                    thousands(p.band_high).into(),
                    if p.in_band { error } else { error.marked(Mark::Bad) },
                ],
            ))
        })
        .collect();
    let caption = "Operations a second; marked: outside the band".to_owned();
    (!rows.is_empty()).then_some(Part::Table(Table { caption, columns, rows }))
}

fn busy_counts(result: &StudyResult) -> Table {
    let mut columns = name_columns();
    columns.extend(["mean", "n = 1", "2", "3", "4", "5", "6", "7", "8", "more"].map(Column::number));
    let rows = result.stanzas.iter().map(|s| {
        let rest = (1.0 - s.busy_count_share.iter().sum::<f64>()).max(0.0);
        let shares = s
            .busy_count_share
            .iter()
            .chain([&rest])
            .map(|share| Cell::from(format!("{:.0} %", share * 100.0)));
        row(s, std::iter::once(Cell::from(format!("{:.1}", s.avg_busy))).chain(shares))
    });
    Table {
        caption: "Busy cycles of the server's thread that ended having served n requests".to_owned(),
        columns,
        rows: rows.collect(),
    }
}

/// The machines, with the settings that matter.
pub(super) fn machines(server: &Machine, client: Option<&Machine>) -> Vec<Part> {
    let name = if client.is_some() { "server" } else { "client and server" };
    let of = |(name, m): (&str, &Machine)| {
        let mut rows: Vec<Row> = [
            ("CPU", format!("{}, {} of them", m.cpu, m.cpus)),
            ("kernel", m.kernel.clone()),
            ("memory", format!("{} GiB", m.memory_bytes >> 30)),
            ("clock source", m.clock_source.clone()),
            ("congestion control", format!("{} by default", m.default_congestion)),
            ("roundtrip", m.version.clone()),
        ]
        .into_iter()
        .map(|(key, value)| Row::from_iter([key.to_owned(), value]))
        .collect();
        rows.extend(m.settings.iter().map(|(key, value)| Row::from_iter([key.as_str(), value.as_str()])));
        Part::Table(Table {
            caption: name.to_owned(),
            columns: ["what", "is"].map(Column::text).into(),
            rows,
        })
    };
    [(name, Some(server)), ("client", client)]
        .into_iter()
        .filter_map(|(name, m)| Some((name, m?)))
        .map(of)
        .collect()
}
