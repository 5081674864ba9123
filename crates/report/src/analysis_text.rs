//! The result of an analysis as text.

use std::fmt::Write as _;

use analysis::Part;
use analysis::verdict::{Verdict, name};
use analyzer::AnalysisResult;
use output::text::line;

use crate::terminal::{cell, number, table, thousands, us};

/// Stanzas, connections and holes that are shown; JSON has them all.
const STANZAS_SHOWN: usize = 20;
const CONNECTIONS_SHOWN: usize = 10;
const HOLES_SHOWN: usize = 5;
/// Frames that are named with a verdict.
const FRAMES_SHOWN: usize = 12;

/// The whole report.
#[must_use]
pub fn analysis(result: &AnalysisResult) -> String {
    let mut out = String::new();
    for input in &result.inputs {
        let at = if input.interfaces.is_empty() {
            String::new()
        } else {
            format!(" ({})", line(input.interfaces.join(", ")))
        };
        let _ = writeln!(out, "{}{at}: {} frames", line(&input.name), thousands(input.frames as f64));
    }
    let _ = writeln!(
        out,
        "{} packets of {} connections, {} bytes, {} operations{}",
        thousands(result.packets as f64),
        result.connections.len() as u64 + result.connections_not_listed,
        thousands(result.bytes as f64),
        thousands(result.operations as f64),
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
    if let Some(clocks) = result.clocks {
        let drift = clocks.drift_ppm.map_or(String::new(), |d| format!(", running {d:+.2} ppm faster"));
        let _ = writeln!(
            out,
            "the server's clock is {:+.1} us +- {:.1} us ahead of the client's{drift}; no figure below subtracts one \
             from the other",
            clocks.offset_us, clocks.uncertainty_us
        );
    }
    if !result.stanzas.is_empty() {
        let _ = writeln!(
            out,
            "\nWhere the time goes, microseconds (mean; 99th percentile of the whole)\n{}",
            stanzas(result)
        );
    }
    if result.connections.iter().any(|c| c.operations > 0) {
        let _ = writeln!(out, "\nConnections\n{}", connections(result));
    }
    for mode in &result.modes {
        let _ = writeln!(
            out,
            "Structure in {} of {:.0} bytes: {}",
            line(&mode.operation),
            mode.block_size_bytes,
            line(&mode.finding.text)
        );
    }
    holes(result, &mut out);
    for note in &result.notes {
        let _ = writeln!(out, "- {}", line(note));
    }
    out.push('\n');
    if result.verdicts.is_empty() {
        out.push_str("Verdict: nothing found that made these operations slow.\n");
    }
    for (index, verdict) in result.verdicts.iter().enumerate() {
        self::verdict(index + 1, verdict, &mut out);
    }
    out
}

fn stanzas(result: &AnalysisResult) -> String {
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
        let whole = s.part(Part::RoundTrip).or(s.part(Part::Server));
        row.push(number(whole.map_or(String::new(), |p| us(p.p99_us))));
        row.push(number(s.failed.to_string()));
        let residual =
            [s.stages_error, s.queue_depth_error].into_iter().flatten().fold(0.0, |a: f64, b| a.max(b.abs()));
        row.push(cell(match s.closes {
            Some(true) => format!("yes ({:.2} %)", residual * 100.0),
            Some(false) => format!("no ({:.1} %)", residual * 100.0),
            None => "-".to_owned(),
        }));
        t.add_row(row);
    }
    let more = result.stanzas.len().saturating_sub(STANZAS_SHOWN);
    if more > 0 { format!("{t}\n  and {more} more (--json has them)") } else { t.to_string() }
}

fn connections(result: &AnalysisResult) -> String {
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
    if more > 0 { format!("{t}\n  and {more} more") } else { t.to_string() }
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
        let missing = hole.hole.missing;
        let _ = writeln!(
            out,
            "  connection {}, {:?}, byte {}: {} bytes, about {:.1} operations ({:?})",
            hole.connection.map_or("?".to_owned(), |c| c.to_string()),
            hole.hole.flow,
            missing.offset,
            missing.bytes,
            hole.operations,
            missing.reason
        );
    }
}

fn verdict(index: usize, verdict: &Verdict, out: &mut String) {
    let _ = writeln!(out, "Verdict {index}: {}", name(verdict.kind));
    let wrap = |out: &mut String, label: &str, text: &str| {
        let _ = writeln!(out, "  {label:<10}{}", line(text));
    };
    wrap(out, "what", &verdict.text);
    let cost =
        if verdict.cost_us > 0.0 { format!(", {:.3} s lost", verdict.cost_us / 1e6) } else { String::new() };
    let operations = thousands(verdict.operations as f64);
    wrap(out, "concerns", &format!("{operations} operations ({:.1} %){cost}", verdict.share * 100.0));
    if !verdict.frames.numbers.is_empty() {
        let numbers = &verdict.frames.numbers;
        let first: Vec<String> = numbers.iter().take(FRAMES_SHOWN).map(u64::to_string).collect();
        let more = if numbers.len() > FRAMES_SHOWN { ", ..." } else { "" };
        wrap(out, "frames", &format!("{}{more}", first.join(", ")));
    }
    for remedy in &verdict.remedy {
        wrap(out, "remedy", &format!("{}: {}", remedy.system, remedy.action));
    }
    if let Some(gain) = &verdict.gain {
        wrap(out, "gain", &gain.text);
    }
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
    let mut text =
        format!("{:.1} s, {} bytes written\n{t}\n", recorded.seconds, thousands(recorded.file_bytes as f64));
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
