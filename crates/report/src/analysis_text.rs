//! The result of an analysis as text.

mod services;

use std::fmt::Write as _;

use analysis::Part;
use analysis::modes::{Finding, FindingKind, Regime};
use analysis::verdict::{Verdict, name};
use analyzer::{AnalysisResult, InputRow, ModeRow};
use output::text::{line, wrapped};
use record::units::counted;

use crate::terminal::{cell, number, stacked, table, thousands, us};

pub use services::Detail;

/// Stanzas, connections and holes that are shown; JSON has them all.
const STANZAS_SHOWN: usize = 20;
const CONNECTIONS_SHOWN: usize = 10;
const HOLES_SHOWN: usize = 5;
const SERVICES_SHOWN: usize = 10;
/// Ports and protocols that are named where no operation was found.
const CONTENTS_SHOWN: usize = 8;
/// Frames that are named with a verdict.
const FRAMES_SHOWN: usize = 12;

/// What of a result is shown besides the services, the verdicts and the notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The services, divided.
    pub detail: Option<Detail>,
    /// The slowest operations.
    pub slowest: bool,
    /// Tables with all columns, wider than 80.
    pub wide: bool,
    /// What each verdict rests on, and all of its remedies.
    pub explain: bool,
}

/// The whole report: the answer, the services, what was asked for, notes, and what was read.
#[must_use]
pub fn analysis(result: &AnalysisResult, shown: Shown) -> String {
    let mut out = String::new();
    answers(result).into_iter().for_each(|answer| out.push_str(&wrapped(answer, "  ")));
    if !result.services.is_empty() {
        let _ = writeln!(out, "\n{}", services::services(result, shown.wide));
        services::keys(result, &mut out);
    }
    if shown.slowest && !result.slowest.is_empty() {
        let _ = writeln!(out, "\n{}", services::slowest(result, shown.wide));
    }
    match shown.detail {
        Some(Detail::Connection) => {
            stanza_table(result, shown.wide, &mut out);
            if result.connections.iter().any(|c| c.operations > 0) {
                let _ = writeln!(out, "\nConnections\n{}", connections(result, shown.wide));
            }
        }
        Some(Detail::Client) => services::details(result, "client", |row| &row.clients, shown.wide, &mut out),
        Some(Detail::Size) => services::details(result, "bytes", |row| &row.sizes, shown.wide, &mut out),
        Some(Detail::Key) if result.services.iter().all(|row| row.keys.is_empty()) => {
            out.push_str(
                "\nNo request has a key: neither a path, nor a statement, nor the key of a store.\n",
            );
        }
        Some(Detail::Key) => services::details(result, "key", |row| &row.keys, shown.wide, &mut out),
        None => {}
    }
    left_out(result, &mut out);
    structure(result, &mut out);
    holes(result, &mut out);
    for note in &result.notes {
        out.push_str(&wrapped(format_args!("- {note}"), "  "));
    }
    for minor in &result.minor {
        let (kind, text) = (name(minor.kind), &minor.text);
        // What is stated without a verdict has no weight, however long it lasts.
        let text = if minor.weight > 0.0 {
            let percent = minor.weight * 100.0;
            format!("- of little weight ({percent:.1} % of the operations' time): {kind}: {text}")
        } else {
            format!("- noted, no verdict: {kind}: {text}")
        };
        out.push_str(&wrapped(text, "  "));
    }
    if shown.explain {
        for (index, verdict) in result.verdicts.iter().enumerate() {
            out.push('\n');
            self::verdict(index + 1, verdict, &mut out);
        }
    } else if !result.verdicts.is_empty() {
        out.push_str("--explain: what each verdict rests on, its frames, and all remedies\n");
    }
    out.push('\n');
    excess(result, &mut out);
    seen(result, &mut out);
    out
}

/// The answer: what makes the operations slow, what to change and what that gains, or that nothing does. A sentence or two each.
pub(crate) fn answers(result: &AnalysisResult) -> Vec<String> {
    if result.verdicts.is_empty() && result.operations == 0 {
        return vec!["Verdict: none, as no operation ended in the capture.".to_owned()];
    }
    let mut out = Vec::new();
    let asked = result.operations.saturating_add(result.unanswered);
    if result.verdicts.is_empty() {
        out.push("Verdict: nothing found that made these operations slow.".to_owned());
        out.extend(result.services.first().map(services::sentence));
    }
    for (index, verdict) in result.verdicts.iter().enumerate() {
        let mut text = format!("Verdict {}: {}: ", index + 1, name(verdict.kind));
        let mut parts = Vec::new();
        if verdict.cost_us > 0.0 {
            parts.push(format!(
                "{:.3} s lost, {:.1} % of the operations' time",
                verdict.cost_us / 1e6,
                verdict.weight * 100.0
            ));
        }
        if verdict.pauses_us > 0.0 {
            parts.push(format!("{:.3} s between operations", verdict.pauses_us / 1e6));
        }
        let operations = counted(verdict.operations, "operation");
        parts.push(format!("{operations} ({:.1} %)", verdict.share * 100.0));
        text.push_str(&parts.join(", "));
        // Of several systems the one that any has; the others are explained.
        let remedies = &verdict.remedy;
        if let Some(remedy) = remedies.iter().find(|remedy| remedy.system == "any").or(remedies.first()) {
            let _ = write!(text, ". Change: {}", remedy.action);
        }
        if let Some(gain) = &verdict.gain {
            let _ = write!(text, ". Gain: {}", gain.text);
        }
        out.push(text);
    }
    // They have no time that a verdict could count, and are what their clients notice.
    if result.unanswered * 100 > asked {
        let share = result.unanswered as f64 / asked as f64 * 100.0;
        let requests = counted(result.unanswered, "request");
        out.push(format!("{requests} ({share:.1} %) without a response in the capture."));
    }
    out
}

/// What was read.
fn seen(result: &AnalysisResult, out: &mut String) {
    for input in &result.inputs {
        let frames = thousands(input.frames as f64);
        out.push_str(&wrapped(format_args!("{}: {frames} frames", named(input)), "  "));
    }
    let text = format!(
        "{} of {}, {}, {}{}",
        counted(result.packets, "packet"),
        counted(result.connections.len() as u64 + result.connections_not_listed, "connection"),
        counted(result.bytes, "byte"),
        counted(result.operations, "operation"),
        if result.operations_both_sides > 0 {
            format!(
                " ({} seen at both sides, {} at one only)",
                thousands(result.operations_both_sides as f64),
                thousands(result.operations_one_side as f64)
            )
        } else {
            String::new()
        }
    );
    out.push_str(&wrapped(text, "  "));
    if let Some(clocks) = result.clocks {
        let drift = clocks.drift_ppm.map_or(String::new(), |d| {
            format!(", running {:.2} ppm {}", d.abs(), if d < 0.0 { "slower" } else { "faster" })
        });
        let text = format!(
            "the server's clock is {:+.1} us +- {:.1} us ahead of the client's{drift}; no figure below subtracts one \
             from the other",
            clocks.offset_us, clocks.uncertainty_us
        );
        out.push_str(&wrapped(text, "  "));
    }
}

/// The breakdown by connection, size and queue depth.
fn stanza_table(result: &AnalysisResult, wide: bool, out: &mut String) {
    if result.stanzas.is_empty() {
        return;
    }
    out.push('\n');
    out.push_str(&wrapped(
        "Where the time goes by connection, microseconds (means; the whole is sending and round trip, from the request's first byte on \
         the wire to the response's last, and p99 its 99th percentile; where TCP held the request before, the whole begins with the \
         hold, at most when the response came that it replaces)",
        "  ",
    ));
    let _ = writeln!(out, "{}", stanzas(result, wide));
}

/// The operations that the times leave out.
fn left_out(result: &AnalysisResult, out: &mut String) {
    let left_out: u64 = result.stanzas.iter().map(|stanza| stanza.left_out).sum();
    if left_out > 0 {
        let _ = writeln!(
            out,
            "{} operations were seen at one of two capture points only; no time above includes them",
            thousands(left_out as f64)
        );
    }
}

/// The account of the operations' time: the verdicts and the unexplained rest are the excess.
fn excess(result: &AnalysisResult, out: &mut String) {
    let all = result.excess;
    if all.operations_us <= 0.0 {
        return;
    }
    let seconds = |us: f64| format!("{:.6} s", us / 1e6);
    let costs = result.verdicts.iter().enumerate().filter(|(_, verdict)| verdict.cost_us > 0.0);
    let mut parts: Vec<String> =
        costs.map(|(index, verdict)| format!("{} verdict {}", seconds(verdict.cost_us), index + 1)).collect();
    if all.minor_us > 0.0 {
        parts.push(format!("{} of little weight", seconds(all.minor_us)));
    }
    parts.push(format!("{} unexplained", seconds(all.unexplained_us)));
    let text = format!(
        "Excess: the operations took {}, of which {} exceed their references: {}",
        seconds(all.operations_us),
        seconds(all.excess_us),
        parts.join(" + ")
    );
    out.push_str(&wrapped(text, "  "));
}

/// One line for each service: the pattern of the size with the most operations.
fn structure(result: &AnalysisResult, out: &mut String) {
    for text in structure_of(result) {
        // Regimes are told below their service.
        let indent = if text.starts_with(' ') { "    " } else { "  " };
        out.push_str(&wrapped(text, indent));
    }
}

/// The same, one text for each line.
pub(crate) fn structure_of(result: &AnalysisResult) -> Vec<String> {
    let mut out = Vec::new();
    let mut services: Vec<(Option<&str>, Vec<&ModeRow>)> = Vec::new();
    for row in &result.modes {
        let service = row.service.as_deref();
        match services.iter_mut().find(|(known, _)| *known == service) {
            Some((_, rows)) => rows.push(row),
            None => services.push((service, vec![row])),
        }
    }
    for (service, rows) in services.iter().take(SERVICES_SHOWN) {
        let Some(first) = rows.iter().max_by_key(|row| row.stanza_operations) else { continue };
        let own: Vec<Finding> =
            rows.iter().filter(|row| is_of_one_stanza(row, first)).map(|row| row.finding.clone()).collect();
        let texts = structure_lines(&own);
        let others = rows.iter().filter(|row| !is_of_one_stanza(row, first)).count();
        let more = if others > 0 {
            format!(" ({others} more in other stanzas; --json has them)")
        } else {
            String::new()
        };
        let text = format!(
            "Structure at {}, {} of {:.0} bytes: {}{more}",
            service.unwrap_or("several services"),
            first.operation,
            first.block_size_bytes,
            texts.first().map_or("", String::as_str)
        );
        out.push(text);
        out.extend(texts.iter().skip(1).map(|text| format!("  {text}")));
    }
    let more = services.len().saturating_sub(SERVICES_SHOWN);
    if more > 0 {
        out.push(format!("  and {more} more services with structure (--json has them)"));
    }
    out
}

/// The findings of a stanza: a line for each regime, or one for all patterns where there is one regime.
pub(crate) fn structure_lines(findings: &[Finding]) -> Vec<String> {
    let regimes = findings.iter().find_map(|finding| match &finding.kind {
        FindingKind::Regimes { regimes } => Some(regimes),
        _ => None,
    });
    let Some(regimes) = regimes else {
        let texts: Vec<&str> = findings.iter().map(|finding| finding.text.as_str()).collect();
        return if texts.is_empty() { Vec::new() } else { vec![texts.join("; ")] };
    };
    // The regimes say where the level changes, too.
    let head = format!("{} regimes", regimes.len());
    std::iter::once(head).chain(regimes.iter().map(Regime::text)).collect()
}

fn is_of_one_stanza(a: &ModeRow, b: &ModeRow) -> bool {
    (a.connection, &a.operation, a.stanza_operations) == (b.connection, &b.operation, b.stanza_operations)
        && a.block_size_bytes.total_cmp(&b.block_size_bytes).is_eq()
}

/// The content of captures in which no operation was found, and what to do: one line.
#[must_use]
pub fn nothing_found(result: &AnalysisResult, port: Option<u16>) -> String {
    let names: Vec<String> = result.inputs.iter().map(named).collect();
    let frames: u64 = result.inputs.iter().map(|input| input.frames).sum();
    let mut all: Vec<(u64, String)> = result
        .contents
        .tcp_packets
        .iter()
        .map(|(port, count)| (*count, format!("{} of TCP port {port}", thousands(*count as f64))))
        .chain(
            result
                .contents
                .other_frames
                .iter()
                .map(|(name, count)| (*count, format!("{} {name}", thousands(*count as f64)))),
        )
        .collect();
    all.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let more = all.len().saturating_sub(CONTENTS_SHOWN);
    let mut shown: Vec<String> = all.into_iter().take(CONTENTS_SHOWN).map(|(_, text)| text).collect();
    if result.packets > 0 {
        let ends: Vec<String> =
            result.connections.iter().take(3).map(|c| format!("{} to {}", c.client, c.server)).collect();
        let ends = if ends.is_empty() { String::new() } else { format!(" ({})", ends.join(", ")) };
        shown.insert(
            0,
            format!(
                "{} selected TCP packets{ends} without a request and its response",
                thousands(result.packets as f64)
            ),
        );
    }
    if more > 0 {
        shown.push(format!("{more} more kinds"));
    }
    let held = if shown.is_empty() { String::new() } else { format!(": {}", shown.join(", ")) };
    let advice = match port {
        _ if frames == 0 => "; the capture is empty".to_owned(),
        Some(port) if result.packets == 0 => format!("; none has port {port}: name another --port, or none"),
        _ if result.packets == 0 => "; there is no TCP to analyse".to_owned(),
        _ => "; both directions of a connection and the beginning of its messages are needed (--protocol turns follows any \
              protocol)"
            .to_owned(),
    };
    let notes: Vec<&str> = result.notes.iter().map(String::as_str).collect();
    let notes = if notes.is_empty() { String::new() } else { format!(" ({})", notes.join("; ")) };
    format!("no operation in {}: {} frames{held}{advice}{notes}", names.join(", "), thousands(frames as f64))
}

/// An input's name with those of its interfaces.
fn named(input: &InputRow) -> String {
    let at = match &input.interfaces[..] {
        [] => String::new(),
        interfaces => format!(" ({})", line(interfaces.join(", "))),
    };
    format!("{}{at}", line(&input.name))
}

fn stanzas(result: &AnalysisResult, wide: bool) -> String {
    let shown = || result.stanzas.iter().take(STANZAS_SHOWN);
    // Columns that no stanza fills are left out.
    let parts: Vec<Part> =
        Part::ALL.into_iter().filter(|&part| shown().any(|s| s.part(part).is_some())).collect();
    let mut heading = vec!["conn", "operation", "bytes", "QD", "ops", "IOPS"];
    heading.extend(parts.iter().map(|p| p.name()));
    let has_wire = shown().any(|s| s.wire_us.is_some());
    if has_wire {
        heading.push("wire");
    }
    heading.extend(["p99", "failed", "closes"]);
    let mut t = table(&heading);
    for s in shown() {
        let (least, mean, most) = s.queue_depth;
        let depth = if least == most { most.to_string() } else { format!("{mean:.1} ({least}-{most})") };
        let mut row = vec![
            number(s.connection.map_or("-".to_owned(), |c| c.to_string())),
            cell(&s.operation),
            number(format!("{:.0}", s.block_size_bytes)),
            number(depth),
            number(thousands(s.operations as f64)),
            number(thousands(s.iops)),
        ];
        row.extend(parts.iter().map(|&part| number(s.mean_us(part).map_or(String::new(), us))));
        if has_wire {
            row.push(number(s.wire_us.map_or(String::new(), us)));
        }
        let whole = s.part(Part::Whole);
        row.push(number(whole.map_or(String::new(), |p| us(p.p99_us))));
        row.push(number(s.failed.to_string()));
        let residual =
            [s.stages_error, s.queue_depth_error].into_iter().flatten().fold(0.0, |a: f64, b| a.max(b.abs()));
        row.push(cell(match s.closes {
            Some(true) if s.queue_depth_error.is_none() => format!("sum only ({:.2} %)", residual * 100.0),
            Some(true) => format!("yes ({:.2} %)", residual * 100.0),
            Some(false) => format!("no ({:.1} %)", residual * 100.0),
            None => "-".to_owned(),
        }));
        t.add_row(row);
    }
    let more = result.stanzas.len().saturating_sub(STANZAS_SHOWN);
    let text = if wide { t.to_string() } else { stacked(&t, 4) };
    if more > 0 { format!("{text}\n  and {more} more (--json has them)") } else { text }
}

fn connections(result: &AnalysisResult, wide: bool) -> String {
    let mut t = table(&[
        "conn",
        "client",
        "server",
        "speaks",
        "ops",
        "seconds",
        "in flight",
        "handshake us",
        "ack min us c/s",
        "sent again c/s",
        "segment c/s",
    ]);
    for c in result.connections.iter().take(CONNECTIONS_SHOWN) {
        t.add_row(vec![
            number(c.connection.to_string()),
            cell(&c.client),
            cell(&c.server),
            cell(&c.protocol),
            number(thousands(c.operations as f64)),
            number(format!("{:.3}", c.seconds)),
            number(format!("{:.2}", c.in_flight)),
            number(c.handshake_us.map_or(String::new(), us)),
            number(format!("{:.0}/{:.0}", c.ack_min_us.0, c.ack_min_us.1)),
            number(format!("{}/{}", c.retransmitted.0, c.retransmitted.1)),
            number(format!("{}/{}", c.mss_bytes.0, c.mss_bytes.1)),
        ]);
    }
    let all = result.connections.len() as u64 + result.connections_not_listed;
    let more = all.saturating_sub(CONNECTIONS_SHOWN as u64);
    let text = if wide { t.to_string() } else { stacked(&t, 1) };
    if more > 0 { format!("{text}\n  and {more} more") } else { text }
}

fn holes(result: &AnalysisResult, out: &mut String) {
    if result.streams.holes == 0 {
        return;
    }
    let _ = writeln!(
        out,
        "{} holes in the streams, {} bytes in all; the first:",
        thousands(result.streams.holes as f64),
        thousands(result.streams.hole_bytes as f64)
    );
    for hole in result.holes.iter().take(HOLES_SHOWN) {
        let missing = hole.missing;
        let text = format!(
            "  connection {}, {:?}, byte {}: {} bytes, {} ({:?})",
            hole.connection.map_or("?".to_owned(), |c| c.to_string()),
            hole.flow,
            missing.offset,
            missing.bytes,
            hole.operations
                .map_or("unknown number of operations".to_owned(), |n| format!("about {n:.1} operations")),
            missing.reason
        );
        out.push_str(&wrapped(text, "    "));
    }
}

fn verdict(index: usize, verdict: &Verdict, out: &mut String) {
    let _ = writeln!(out, "Verdict {index}: {}", name(verdict.kind));
    let wrap = |out: &mut String, label: &str, text: &str| {
        out.push_str(&wrapped(format_args!("  {label:<10}{}", line(text)), "            "));
    };
    wrap(out, "what", &verdict.text);
    let mut cost = String::new();
    if verdict.cost_us > 0.0 {
        let _ = write!(cost, ", {:.3} s lost", verdict.cost_us / 1e6);
    }
    if verdict.pauses_us > 0.0 {
        let _ = write!(cost, ", {:.3} s between operations", verdict.pauses_us / 1e6);
    }
    let operations = thousands(verdict.operations as f64);
    wrap(out, "concerns", &format!("{operations} operations ({:.1} %){cost}", verdict.share * 100.0));
    if let Some(frames) = frames(verdict) {
        wrap(out, "frames", &frames);
    }
    for remedy in &verdict.remedy {
        wrap(out, "remedy", &format!("{}: {}", remedy.system, remedy.action));
    }
    if let Some(gain) = &verdict.gain {
        wrap(out, "gain", &gain.text);
    }
}

/// The frames that a verdict rests on, the first of them.
pub(crate) fn frames(verdict: &Verdict) -> Option<String> {
    let numbers = &verdict.frames.numbers;
    let first: Vec<String> = numbers.iter().take(FRAMES_SHOWN).map(u64::to_string).collect();
    let more = if numbers.len() > FRAMES_SHOWN { ", ..." } else { "" };
    (!first.is_empty()).then(|| format!("{}{more}", first.join(", ")))
}

/// The summary of a capture.
#[must_use]
pub fn recorded(recorded: &capture::record_to_file::Recorded) -> String {
    let mut t =
        table(&["interface", "packets", "dropped", "CPU s", "packets/s before", "while", "after", "cost"]);
    for i in &recorded.interfaces {
        let (before, during, after) = i.packets_per_second;
        t.add_row(vec![
            cell(&i.interface),
            number(thousands(i.packets as f64)),
            number(thousands(i.drops as f64)),
            number(format!("{:.2}", i.cpu_seconds)),
            number(thousands(before)),
            number(thousands(during)),
            number(thousands(after)),
            cell(i.cost.map_or("unknown (no steady traffic)".to_owned(), |c| {
                format!("{:.0} % of the operations per second", c * 100.0)
            })),
        ]);
    }
    let mut text = format!(
        "{:.1} s, {} bytes written\n{}\n",
        recorded.seconds,
        thousands(recorded.file_bytes as f64),
        stacked(&t, 1)
    );
    for i in recorded.interfaces.iter().filter(|i| i.drops > 0) {
        let _ = writeln!(
            text,
            "{}: {} of {} packets were dropped: a shorter --snap or a larger --ring keeps them",
            line(&i.interface),
            i.drops,
            i.packets
        );
    }
    text
}
