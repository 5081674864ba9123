//! An experiment as one self-contained HTML file.

use std::fmt::Write as _;

use analysis::verdict::name;
use study::ExperimentResult;
use study::experiment::{CaseResult, Unit};
use study::trace::TraceFrame;

use crate::chart::{Dots, dots};
use crate::experiment_text::{Column, PLANTED_PLACE, columns, figure, found, place, verdicts};
use crate::html::{Figure, figures};
use crate::page::{Title, begin, end, escape, machines, notes, table_head};
use crate::terminal::us;

/// Ratio of the greatest to the least figure above which bars have a logarithmic scale.
const LOGARITHMIC_FROM: f64 = 30.0;

/// A time between two frames that is marked as a wait, us; shorter ones are work.
const WAIT_US: f64 = 10_000.0;

/// The whole page.
#[must_use]
pub fn experiment(result: &ExperimentResult, pictures: &[Figure]) -> String {
    let plan = &result.plan;
    let mut page = begin(&format!("Roundtrip: {}", plan.name), &plan.about);
    let _ = write!(
        page,
        "<p class=\"where\">{}; {} runs of {:?} for each case, interleaved; medians, least and greatest</p>",
        escape(place(result)),
        plan.repeats,
        plan.runtime
    );
    table(result, &mut page);
    bars(result, &mut page);
    series(result, &mut page);
    structure(result, &mut page);
    figures(pictures, &mut page);
    judged(result, &mut page);
    traces(result, &mut page);
    notes(&result.warnings, &mut page);
    machines(&result.machine, result.client_machine.as_ref(), &mut page);
    end(page)
}

fn table(result: &ExperimentResult, page: &mut String) {
    page.push_str("<h2>What came out</h2>");
    let columns = columns(result);
    table_head(&columns.iter().map(Column::heading).collect::<Vec<_>>(), page);
    for row in 0..result.cases.len() {
        page.push_str("<tr>");
        for column in &columns {
            let class = if column.is_text { " class=\"t\"" } else { "" };
            let _ = write!(page, "<td{class}>{}</td>", escape(&column.cells[row]));
        }
        page.push_str("</tr>");
    }
    page.push_str(
        "</tbody></table></div><p class=\"where\">Observer: what keeping the packets at one end of the wire does to the figure, each \
         run beside one without.</p>",
    );
}

/// Each figure as a bar, with the spread of its runs.
fn bars(result: &ExperimentResult, page: &mut String) {
    for unit in Unit::ALL {
        let cases: Vec<&CaseResult> = result.cases.iter().filter(|case| case.unit == unit).collect();
        let greatest = cases.iter().map(|case| case.greatest).fold(0.0, f64::max);
        let least = cases.iter().map(|case| case.median).fold(f64::INFINITY, f64::min);
        if cases.is_empty() || greatest <= 0.0 {
            continue;
        }
        let is_logarithmic = least > 0.0 && greatest / least > LOGARITHMIC_FROM;
        // On a logarithmic scale the least figure has a tenth of the width.
        let share = |value: f64| {
            let linear = value / greatest;
            let power = 0.1 + 0.9 * (value.max(least) / least).ln() / (greatest / least).ln();
            (if is_logarithmic { power } else { linear }).clamp(0.0, 1.0) * 100.0
        };
        let scale = if is_logarithmic { ", on a scale of powers" } else { "" };
        let _ = write!(page, "<h2>{}{scale}</h2><div class=\"figures\">", unit.name());
        for case in cases {
            let (width, from, to) = (share(case.median), share(case.least), share(case.greatest));
            let _ = write!(
                page,
                "<div class=\"name\">{}</div><div class=\"track\"><i style=\"width:{width:.2}%\"></i>\
                 <u style=\"left:{from:.2}%;width:{:.2}%\"></u><b style=\"left:{:.2}%\">{}</b></div>",
                escape(&case.case.label),
                (to - from).max(0.1),
                to.max(width),
                figure(case.median),
            );
        }
        page.push_str("</div>");
    }
}

/// The times of single exchanges, one after another.
fn series(result: &ExperimentResult, page: &mut String) {
    let with: Vec<&CaseResult> = result.cases.iter().filter(|case| case.samples().len() > 1).collect();
    if with.is_empty() {
        return;
    }
    page.push_str(
        "<h2>Exchanges one after another: when each began, and how long it took</h2><div class=\"pair\">",
    );
    for case in with {
        let slow = case.samples().iter().map(|(_, took_us)| *took_us).fold(0.0, f64::max) > 5000.0;
        let (unit, label) = if slow { (1e3, "took, ms") } else { (1.0, "took, µs") };
        let points = case.samples().iter().map(|(at_ms, took_us)| (*at_ms, took_us / unit)).collect();
        let one = [Dots { label: case.case.label.clone(), colour: "#0e7490", points }];
        if let Some(svg) = dots("began, ms", label, &one) {
            let _ =
                write!(page, "<figure><figcaption>{}</figcaption>{svg}</figure>", escape(&case.case.label));
        }
    }
    page.push_str("</div>");
}

/// What was planted, published and found.
fn structure(result: &ExperimentResult, page: &mut String) {
    if found(result).next().is_none() {
        return;
    }
    page.push_str("<h2>What was planted, what was published, what was found</h2>");
    table_head(&["case", "planted", "published", "found"].map(Title::text), page);
    for case in found(result) {
        page.push_str("<tr class=\"said\">");
        let lines = |lines: &[String]| lines.iter().map(escape).collect::<Vec<_>>().join("<br>");
        for text in [escape(case.label), lines(&case.planted), escape(case.published), lines(&case.found)] {
            let _ = write!(page, "<td class=\"t\">{text}</td>");
        }
        page.push_str("</tr>");
    }
    let _ = write!(page, "</tbody></table></div><p class=\"where\">{}</p>", escape(PLANTED_PLACE));
}

/// The verdicts of the analysis of each case's packets.
fn judged(result: &ExperimentResult, page: &mut String) {
    if result.cases.iter().all(|case| case.trace.is_none()) {
        return;
    }
    page.push_str("<h2>What the packets say</h2>");
    if verdicts(result).next().is_some() {
        let titles = ["case", "verdict", "what happened", "what there is to gain"];
        table_head(&titles.map(Title::text), page);
        for (case, verdict) in verdicts(result) {
            let gain = verdict.gain.as_ref().map_or("-", |gain| &gain.text);
            let _ = write!(page, "<tr class=\"said\"><td class=\"t\">{}</td>", escape(case));
            for text in [name(verdict.kind), &verdict.text, gain] {
                let _ = write!(page, "<td class=\"t\">{}</td>", escape(text));
            }
            page.push_str("</tr>");
        }
        page.push_str("</tbody></table></div>");
    }
    page.push_str(
        "<p class=\"where\">In the packets of a case that is not named here nothing was found that made operations slow.</p>",
    );
}

/// Two exchanges of each case, frame by frame.
fn traces(result: &ExperimentResult, page: &mut String) {
    if result.cases.iter().all(|case| case.frames.is_empty()) {
        return;
    }
    let end = if result.client_machine.is_some() { "server" } else { "client" };
    let _ = write!(page, "<h2>Two exchanges frame by frame, as the {end}'s end of the wire saw them</h2>");
    for case in result.cases.iter().filter(|case| !case.frames.is_empty()) {
        let file = case
            .trace
            .as_ref()
            .map_or(String::new(), |file| format!(" <a href=\"{0}\">{0}</a>", escape(file)));
        let _ = write!(
            page,
            "<details{}><summary>{}</summary><p class=\"where\">All packets:{file}</p>",
            if has_wait(&case.frames) { " open" } else { "" },
            escape(&case.case.label)
        );
        table_head(
            &[
                Title::number("µs"),
                Title::number("after"),
                Title::text(""),
                Title::number("bytes"),
                Title::text("what"),
                Title::text(""),
            ],
            page,
        );
        let mut before = None;
        for frame in &case.frames {
            let after = before.map(|earlier: &TraceFrame| frame.at_us - earlier.at_us);
            let waited = after.is_some_and(|after| after >= WAIT_US);
            let _ = write!(
                page,
                "<tr{}><td>{}</td><td>{}</td><td class=\"t\">{}</td><td>{}</td><td class=\"t\">{}</td><td class=\"t\">{}</td></tr>",
                if waited { " class=\"waited\"" } else { "" },
                us(frame.at_us),
                after.map_or("-".into(), us),
                if frame.is_clients { "client → server" } else { "client ← server" },
                frame.bytes,
                escape(&frame.what),
                if waited { remark(frame) } else { "" },
            );
            before = Some(frame);
        }
        page.push_str("</tbody></table></div></details>");
    }
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
