//! An experiment as a table: what was measured beside what was published.

use analysis::verdict::{Verdict, name};
use output::text::{line, wrapped};
use study::ExperimentResult;
use study::experiment::CaseResult;
use study::sides::Sides;

use crate::analysis_text::structure_lines;
use crate::terminal::{cell, number, stacked, table, us};

/// A figure of a case.
pub(crate) fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// The place of the experiment.
pub(crate) fn place(result: &ExperimentResult) -> String {
    let rate = record::units::format_bit_rate(result.bits_per_second);
    let Sides { client, server } = result.cpus;
    match (&result.client_machine, result.wire) {
        (Some(client), _) => {
            format!("client on another host ({}, {}), wire taken for {rate}", client.cpu, client.kernel)
        }
        (None, true) => {
            format!("two namespaces, a wire of {rate}; client on CPU {client}, server on CPU {server}")
        }
        (None, false) => format!("loopback; client on CPU {client}, server on CPU {server}"),
    }
}

/// A column of the table.
pub(crate) struct Column {
    pub(crate) title: &'static str,
    pub(crate) is_text: bool,
    /// One for each case.
    pub(crate) cells: Vec<String>,
}

/// The table's columns, without empty ones.
pub(crate) fn columns(result: &ExperimentResult) -> Vec<Column> {
    /// The text of a case's cell.
    type CellText = fn(&CaseResult) -> Option<String>;
    let all: [(&str, bool, CellText); 12] = [
        ("case", true, |case| Some(case.case.label.clone())),
        ("MTU", false, |case| Some(case.mtu_bytes.to_string())),
        ("figure", false, |case| Some(figure(case.median))),
        ("unit", true, |case| Some(case.unit.name().to_owned())),
        ("least", false, |case| Some(figure(case.least))),
        ("greatest", false, |case| Some(figure(case.greatest))),
        ("p50 us", false, |case| case.p50_us.map(us)),
        ("compared with", true, |case| case.case.against.clone()),
        ("times", false, |case| case.ratio.map(|ratio| format!("{ratio:.2}"))),
        ("of the limit", false, |case| {
            case.limit.map(|limit| format!("{:.0} %", case.median / limit * 100.0))
        }),
        ("observer", false, |case| case.observer_cost.map(|cost| format!("{:+.1} %", -cost * 100.0))),
        ("published", true, |case| case.case.published.clone()),
    ];
    all.into_iter()
        .map(|(title, is_text, text)| (title, is_text, result.cases.iter().map(text).collect::<Vec<_>>()))
        .filter(|(_, _, cells)| cells.iter().any(Option::is_some))
        .map(|(title, is_text, cells)| {
            let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "-".into())).collect();
            Column { title, is_text, cells }
        })
        .collect()
}

/// The verdicts on the packets of each case, with the case's label.
pub(crate) fn verdicts(result: &ExperimentResult) -> impl Iterator<Item = (&str, &Verdict)> {
    result.cases.iter().flat_map(|case| case.verdicts.iter().map(|verdict| (&*case.case.label, verdict)))
}

/// A case whose operations were followed.
pub(crate) struct Found<'a> {
    pub(crate) label: &'a str,
    /// A sentence for each.
    pub(crate) planted: Vec<String>,
    pub(crate) published: &'a str,
    /// A sentence for each regime, or for each pattern of the whole run.
    pub(crate) found: Vec<String>,
    pub(crate) operations: u64,
}

/// What was planted, published and found, of the cases whose operations were followed.
pub(crate) fn found(result: &ExperimentResult) -> impl Iterator<Item = Found<'_>> {
    result.cases.iter().filter_map(|case| {
        let structure = case.structure.as_ref()?;
        let or_nothing = |mut texts: Vec<String>| {
            if texts.is_empty() {
                texts.push("nothing".to_owned());
            }
            texts
        };
        Some(Found {
            label: &case.case.label,
            planted: or_nothing(case.case.planted()),
            published: case.case.published.as_deref().unwrap_or("-"),
            found: or_nothing(structure_lines(&structure.findings)),
            operations: structure.operations,
        })
    })
}

/// Why a planted pattern is found elsewhere than the published one.
pub(crate) const PLANTED_PLACE: &str = "A disk is on the server: what is planted there is found in the server's time, wherever the published \
                                        one was (the network's two ways have no layers).";

fn structure(result: &ExperimentResult, text: &mut String) {
    for case in found(result) {
        text.push_str(&format!("\n{} ({} operations followed)\n", line(case.label), case.operations));
        let published = [case.published.to_owned()];
        for (title, lines) in
            [("planted", &case.planted[..]), ("published", &published), ("found", &case.found)]
        {
            for (index, own) in lines.iter().enumerate() {
                let title = if index == 0 { title } else { "" };
                text.push_str(&wrapped(format_args!("  {title:10} {own}"), "             "));
            }
        }
    }
    if found(result).next().is_some() && result.cases.iter().any(|case| !case.case.layers.is_empty()) {
        text.push_str(&format!("\n{}", wrapped(PLANTED_PLACE, "  ")));
    }
}

/// What came out, in sentences: the greatest ratio of two cases, and what the packets say.
pub(crate) fn answers(result: &ExperimentResult) -> Vec<String> {
    let mut out = Vec::new();
    // The ratio that is farthest from one, whichever way.
    let ratios =
        result.cases.iter().filter_map(|case| Some((case, case.case.against.as_deref()?, case.ratio?)));
    let far = |ratio: f64| ratio.ln().abs();
    let greatest = ratios.filter(|(_, _, ratio)| *ratio > 0.0).max_by(|a, b| far(a.2).total_cmp(&far(b.2)));
    let unit = |case: &CaseResult| if case.unit.name() == "1/s" { "a second" } else { "MB/s" };
    if let Some((case, against, ratio)) = greatest {
        let other = result.cases.iter().find(|other| other.case.label == against);
        let other =
            other.map_or_else(String::new, |other| format!(", {} {}", figure(other.median), unit(other)));
        // What the runs of both scatter over says how much of it is noise.
        let overlaps = result.cases.iter().find(|other| other.case.label == against).filter(|other| {
            case.runs.len() > 1 && case.least <= other.greatest && other.least <= case.greatest
        });
        let noise = overlaps.map_or_else(String::new, |other| {
            let range = |case: &CaseResult| format!("{} to {}", figure(case.least), figure(case.greatest));
            format!(" Their runs overlap ({}, and {}): that may be noise.", range(case), range(other))
        });
        out.push(format!(
            "{}: {} {}, {ratio:.2} times \"{against}\"{other}.{noise}",
            case.case.label,
            figure(case.median),
            unit(case)
        ));
    } else if let Some(case) = result.cases.first() {
        out.push(format!("{}: {} {}.", case.case.label, figure(case.median), unit(case)));
    }
    let mut named: Vec<(&str, Vec<&str>)> = Vec::new();
    for (case, verdict) in verdicts(result) {
        let kind = name(verdict.kind);
        match named.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, cases)) if cases.contains(&case) => {}
            Some((_, cases)) => cases.push(case),
            None => named.push((kind, vec![case])),
        }
    }
    out.extend(named.into_iter().map(|(kind, cases)| match cases.as_slice() {
        [one] => format!("The packets say: {kind} ({one})."),
        [one, rest @ ..] => format!("The packets say: {kind} ({one} and {} more).", rest.len()),
        [] => String::new(),
    }));
    out
}

/// Everything for a terminal, the answer first.
#[must_use]
pub fn experiment(result: &ExperimentResult, wide: bool) -> String {
    let columns = columns(result);
    let mut out = table(&columns.iter().map(|column| column.title).collect::<Vec<_>>());
    for row in 0..result.cases.len() {
        let cell = |column: &Column| {
            let text = column.cells[row].clone();
            if column.is_text { cell(text) } else { number(text) }
        };
        out.add_row(columns.iter().map(cell).collect::<Vec<_>>());
    }
    let out = if wide { out.to_string() } else { stacked(&out, 1) };
    let mut text: String = answers(result).into_iter().map(|answer| wrapped(answer, "  ")).collect();
    text.push_str(&format!("\n{out}\n"));
    for (case, verdict) in verdicts(result) {
        let gain = verdict.gain.as_ref().map_or(String::new(), |gain| format!("; gain: {}", gain.text));
        let said = format!("{case}: {}: {}{gain}", name(verdict.kind), verdict.text);
        text.push_str(&format!("\n{}", wrapped(said, "  ")));
    }
    structure(result, &mut text);
    for warning in &result.warnings {
        text.push_str(&wrapped(format_args!("- {warning}"), "  "));
    }
    text.push('\n');
    for line in [
        format!("{}: {}", result.plan.name, result.plan.about),
        format!(
            "{}; {} of {:?} each, interleaved; medians",
            place(result),
            result.plan.repeats,
            result.plan.runtime
        ),
        format!("{} CPUs, {}", result.machine.cpus, result.machine.kernel),
    ] {
        text.push_str(&wrapped(line, "  "));
    }
    text.trim_end().to_owned()
}
