//! A study as terminal tables.

use analysis::{ClosureOutcome, PathCost, Stanza, TermValue};
use comfy_table::Cell;
use model::bound::Bound;
use output::text::wrapped;
use study::{Observation, StudyResult};

use crate::closure_text::{self, Rows};
use crate::terminal::{cell, number, stacked, table, thousands, us};

/// The columns of the breakdown, in flow order: terms, and sums that cannot be separated.
pub(crate) const COLUMNS: [(&str, &[&str]); 14] = [
    ("CP+CK", &["CP+CK"]),
    ("CW", &["CW"]),
    ("W1", &["W1", "W1+W2"]),
    ("CT+SR", &["CT+SR", "CT+SR+ST+CR"]),
    ("SX", &["SX"]),
    ("SI", &["SI"]),
    ("SQ", &["SQ", "SW+SQ"]),
    ("SP+SK", &["SP+SK"]),
    ("SW", &["SW"]),
    ("W2", &["W2"]),
    ("ST+CR", &["ST+CR"]),
    ("CX", &["CX"]),
    ("CI", &["CI"]),
    ("CQ", &["CQ", "CW+CQ"]),
];

/// The value of a column in a stanza.
pub(crate) fn column<'a>(stanza: &'a Stanza, names: &[&str]) -> Option<&'a TermValue> {
    stanza
        .breakdown
        .terms
        .iter()
        .find(|t| t.source != analysis::TermSource::Rule && names.contains(&t.terms.as_str()))
}

/// The place and the method of a study, one line each.
#[must_use]
pub fn heading(result: &StudyResult) -> Vec<String> {
    let plan = &result.plan;
    let place = if let Some(client) = &result.client_machine {
        format!(
            "client on another host ({}, {} CPUs, {}), wire taken for {}, MTU {}",
            client.cpu,
            client.cpus,
            client.kernel,
            record::units::format_bit_rate(plan.bits_per_second),
            plan.mtu_bytes
        )
    } else if result.wire {
        format!(
            "two namespaces, {} wire, MTU {}, offloads off",
            record::units::format_bit_rate(plan.bits_per_second),
            plan.mtu_bytes
        )
    } else {
        "loopback".to_owned()
    };
    let seen = match result.observation {
        Observation::Packets => "packets at C1, S1, S2, C2",
        Observation::SocketStamps => "kernel stamps of both sides' sockets",
    };
    let m = &result.machine;
    vec![
        format!(
            "{place}; client on CPU {}, server on CPU {}; {}",
            result.cpus.client,
            result.cpus.server,
            result.congestion.as_deref().unwrap_or(&result.machine.default_congestion)
        ),
        format!(
            "observed: {seen}; {} of {} s each{}; one zero disk, random reads",
            plan.repeats,
            plan.runtime.as_secs_f64(),
            if plan.repeats > 1 { ", interleaved; the run in the middle" } else { "" }
        ),
        format!("{}, {} CPUs, {}, clock {}", m.cpu, m.cpus, m.kernel, m.clock_source),
    ]
}

/// A size with its unit.
pub(crate) fn size(bytes: u64) -> String {
    let text = record::units::format_size(bytes);
    if text.ends_with(|c: char| c.is_ascii_digit()) { format!("{text} B") } else { text }
}

/// What limits, at which rate, and whether the model knew, in sentences; first whether the figures can be relied upon, if they cannot.
#[must_use]
pub fn answers(result: &StudyResult) -> Vec<String> {
    let mut out = Vec::new();
    let points = result.stanzas.len();
    let of = |outcome| result.with(outcome).count();
    let (fails, unreliable) = (of(ClosureOutcome::Fails), of(ClosureOutcome::Unreliable));
    if fails > 0 {
        out.push(format!("These figures contradict each other at {fails} of {points} points: see Closure before they are used."));
    } else if unreliable == points && points > 0 {
        out.push("The machine was disturbed at every point: no figure is reliable.".to_owned());
    }
    for &bytes in &result.plan.block_bytes {
        let own: Vec<&Stanza> = result.stanzas.iter().filter(|s| s.block_size_bytes == bytes).collect();
        let fastest = |at_one: bool| {
            let these = own.iter().filter(|s| (s.queue_depth == 1) == at_one);
            these.max_by(|a, b| a.iops.total_cmp(&b.iops))
        };
        let (one, deep) = (fastest(true), fastest(false));
        let Some(most) = deep.or(one) else { continue };
        let mut text = format!("{} reads: ", size(bytes));
        if let Some(one) = one {
            let other = deep.is_some_and(|deep| deep.policy != one.policy);
            let policy = if other { format!(" with {}", one.policy) } else { String::new() };
            text.push_str(&format!("{} a second at depth 1{policy}", thousands(one.iops)));
        }
        if let Some(deep) = deep {
            let comma = if one.is_some() { ", " } else { "" };
            text.push_str(&format!(
                "{comma}{} at {} with {}",
                thousands(deep.iops),
                deep.queue_depth,
                deep.policy
            ));
        }
        let limit = &most.breakdown.limit;
        let what = match limit.bound {
            Bound::Network => "the network is",
            Bound::ServerCpu => "the server's CPU is",
            Bound::ClientCpu => "the client's CPU is",
        };
        text.push_str(&format!("; {what} the limit ({} us a request)", us(limit.tpt_min_us)));
        let errors = own.iter().filter(|s| is_predicted(s, &result.stanzas)).filter_map(|s| s.predicted);
        if let Some(worst) = errors.map(|p| p.error.abs()).max_by(f64::total_cmp) {
            text.push_str(&format!("; the model predicted it within {:.0} %", (worst * 100.0).ceil()));
        }
        text.push('.');
        out.push(text);
    }
    out
}

/// Whether the model knew nothing of this point: it is calibrated from queue depth 1 and the deepest one.
fn is_predicted(stanza: &Stanza, stanzas: &[Stanza]) -> bool {
    stanza.queue_depth > 1 && !is_deepest(stanza, stanzas)
}

/// The study: answers, the points, whether they can be relied upon. All tables, wider than 80 columns, if `wide`.
#[must_use]
pub fn study(result: &StudyResult, wide: bool) -> String {
    let mut text: String = answers(result).into_iter().map(|answer| wrapped(answer, "  ")).collect();
    text.push('\n');
    if wide {
        text.push_str(&tables(result));
    } else {
        text.push_str(&points(result));
        text.push('\n');
    }
    text.push('\n');
    for line in closure_text::closure(result).lines() {
        text.push_str(&wrapped(line, "  "));
    }
    for warning in &result.warnings {
        text.push_str(&wrapped(format_args!("- {warning}"), "  "));
    }
    text.push('\n');
    for line in heading(result) {
        text.push_str(&wrapped(line, "  "));
    }
    if !wide {
        text.push_str(&wrapped(
            "--wide: the stages of the round trip, predictions of the model, evidence from the kernel; the page has all of it",
            "  ",
        ));
    }
    text.trim_end().to_owned()
}

/// The points in 80 columns.
fn points(result: &StudyResult) -> String {
    let mut t = table(&["block", "send", "QD", "IOPS", "RTT us", "limit", "model", "closure"]);
    for s in &result.stanzas {
        let mut row = name_cells(s);
        let predicted = s.predicted.filter(|_| is_predicted(s, &result.stanzas));
        row.extend([
            number(thousands(s.iops)),
            number(us(s.rtt_us)),
            cell(match s.breakdown.limit.bound {
                Bound::Network => "network",
                Bound::ServerCpu => "server CPU",
                Bound::ClientCpu => "client CPU",
            }),
            number(predicted.map_or_else(|| "-".to_owned(), |p| format!("{:+.1}%", p.error * 100.0))),
            cell(s.closure.outcome.text()),
        ]);
        t.add_row(row);
    }
    stacked(&t, 3)
}

/// All tables.
fn tables(result: &StudyResult) -> String {
    let mut text = String::new();
    let published = ("What was published, and what came out here", published(result));
    for (title, table) in [
        ("Throughput and limits", summary(&result.stanzas)),
        published,
        (
            "Breakdown of the round trip, microseconds (means; in brackets: how far apart the wire keeps frames)",
            breakdown(result.stanzas.iter().filter(|s| result.is_end(s.queue_depth))),
        ),
        (
            "Throughput as the model predicts it from the queue depth 1 run and the CPU-bound run alone",
            predictions(&result.stanzas),
        ),
        (
            "Evidence from the kernel's own events (a run of each point with all observers), and predictions from other points",
            rows(closure_text::evidence(result)),
        ),
        ("Stages by the kernel's events, microseconds (in that run)", rows(closure_text::stages(result))),
        ("Busy cycles that ended having served n requests", busy_counts(&result.stanzas)),
    ] {
        if !table.is_empty() {
            text.push_str(&format!("{title}\n{table}\n\n"));
        }
    }
    text
}

fn name_cells(s: &Stanza) -> Vec<Cell> {
    vec![
        number(record::units::format_size(s.block_size_bytes)),
        cell(&s.policy),
        number(s.queue_depth.to_string()),
    ]
}

/// Throughput, with the least and the greatest of several runs.
pub(crate) fn spread(s: &Stanza) -> String {
    let (least, greatest) = s.spread();
    if s.runs.len() > 1 {
        format!("{} ({} to {})", thousands(s.iops), thousands(least), thousands(greatest))
    } else {
        thousands(s.iops)
    }
}

/// The figures that are compared with published ones.
pub(crate) const PUBLISHED_COLUMNS: [&str; 5] =
    ["IOPS", "RTT us", "outside the client us", "in the server us", "busy cycles of 1, 2, ... %"];

/// The points with published figures, and their cells: published, measured.
pub(crate) fn published_rows(result: &StudyResult) -> Vec<(&Stanza, Vec<String>)> {
    let pair = |published: Option<f64>, measured: String, of: fn(f64) -> String| {
        published.map_or("-".to_owned(), |published| format!("{}, {measured}", of(published)))
    };
    let row = |s| -> Option<(&Stanza, Vec<String>)> {
        let stanza: &Stanza = s;
        let known = result.plan.published(stanza.block_size_bytes, &stanza.policy, stanza.queue_depth)?;
        let segments = &stanza.segments;
        let outside = segments.rtt.mean_us - segments.client.mean_us;
        let busy = |shares: &mut dyn Iterator<Item = f64>| {
            shares.map(|share| format!("{share:.0}")).collect::<Vec<_>>().join(" ")
        };
        let cycles = if known.busy_percent.is_empty() {
            "-".to_owned()
        } else {
            let own = stanza.busy_count_share.iter().take(known.busy_percent.len().max(2));
            format!(
                "{}, {}",
                busy(&mut known.busy_percent.iter().copied()),
                busy(&mut own.map(|share| share * 100.0))
            )
        };
        let cells = vec![
            pair(known.iops, thousands(stanza.iops), thousands),
            pair(known.rtt_us, us(stanza.rtt_us), us),
            pair(known.outside_client_us, us(outside), us),
            pair(known.server_us, us(segments.server.mean_us), us),
            cycles,
        ];
        Some((stanza, cells))
    };
    result.stanzas.iter().filter_map(row).collect()
}

fn published(result: &StudyResult) -> String {
    let rows = published_rows(result);
    if rows.is_empty() {
        return String::new();
    }
    let mut t = table(&[&["block", "send", "QD"][..], &PUBLISHED_COLUMNS].concat());
    for (stanza, cells) in rows {
        t.add_row([name_cells(stanza), cells.into_iter().map(number).collect()].concat());
    }
    t.to_string()
}

fn summary(stanzas: &[Stanza]) -> String {
    let mut t = table(&[
        "block",
        "send",
        "QD",
        "IOPS",
        "observed",
        "TPT us",
        "RTT us",
        "CPU c/s",
        "at depth",
        "bottleneck",
        "TPTmin us",
        "QD needed",
        "closure",
    ]);
    for s in stanzas {
        let l = &s.breakdown.limit;
        let mut row = name_cells(s);
        row.extend([
            number(thousands(s.iops)),
            number(format!("{:+.1}%", -s.observer_cost() * 100.0)),
            number(us(s.tpt_us)),
            number(us(s.rtt_us)),
            number(format!("{:.0}/{:.0}%", s.cpu_busy.0 * 100.0, s.cpu_busy.1 * 100.0)),
            cell(l.bound.text()),
            cell(&l.bottleneck),
            number(us(l.tpt_min_us)),
            number(format!("{:.1}", l.queue_depth_needed)),
            cell(s.closure.outcome.text()),
        ]);
        t.add_row(row);
    }
    format!("{t}{}", user_mode(stanzas))
}

/// How the threads' time is divided between user mode and system calls, at the deepest point of each size and policy.
fn user_mode(stanzas: &[Stanza]) -> String {
    let shares: Vec<String> = stanzas
        .iter()
        .filter(|s| is_deepest(s, stanzas))
        .filter_map(|s| {
            let (client, server) = (s.user_share.0?, s.user_share.1?);
            let size = record::units::format_size(s.block_size_bytes);
            let (client, server) = (client * 100.0, server * 100.0);
            Some(format!("{size} {} QD {}: {client:.0}/{server:.0} %", s.policy, s.queue_depth))
        })
        .collect();
    if shares.is_empty() {
        return String::new();
    }
    format!("\nThreads in user mode, c/s, the rest in system calls (sampled): {}", shares.join("; "))
}

/// Whether no point of the same size and policy is deeper.
fn is_deepest(stanza: &Stanza, stanzas: &[Stanza]) -> bool {
    let of_group = |s: &&Stanza| s.block_size_bytes == stanza.block_size_bytes && s.policy == stanza.policy;
    stanzas.iter().filter(of_group).all(|s| s.queue_depth <= stanza.queue_depth)
}

fn breakdown<'a>(stanzas: impl Iterator<Item = &'a Stanza>) -> String {
    let mut heading = vec!["block", "send", "QD"];
    heading.extend(COLUMNS.iter().map(|(name, _)| *name));
    heading.extend(["sum", "RTT"]);
    let mut t = table(&heading);
    for s in stanzas {
        let mut row = name_cells(s);
        for (title, names) in COLUMNS {
            // A token bucket takes no time of an operation: it keeps frames apart.
            let bucket: Option<PathCost> = s.path.filter(|p| p.token_bucket);
            row.push(number(match column(s, names) {
                Some(v) if title == "W1" && bucket.is_some() => apart(v.mean_us, bucket.map(|p| p.w1_us)),
                Some(v) if title == "W2" && bucket.is_some() => apart(v.mean_us, bucket.map(|p| p.w2_us)),
                // A sum of which a rule leaves one term is printed with that term.
                Some(v) if closure_text::is_contradiction(s, v) => {
                    format!("{} {} CONTRADICTION", v.terms, us(v.mean_us))
                }
                Some(v) if v.terms == title => us(v.mean_us),
                Some(v) => format!("{} {}", v.terms, us(v.mean_us)),
                None => String::new(),
            }));
        }
        row.push(number(us(s.breakdown.joined.rtt_us)));
        row.push(number(us(s.rtt_us)));
        t.add_row(row);
    }
    t.to_string()
}

/// An operation's time on the wire, and the spacing of frames.
fn apart(way_us: f64, spacing_us: Option<f64>) -> String {
    format!("{} ({})", us(way_us), us(spacing_us.unwrap_or(0.0)))
}

fn predictions(stanzas: &[Stanza]) -> String {
    let heading = [
        "block",
        "send",
        "QD",
        "measured",
        "predicted",
        "over start phases",
        "guaranteed band",
        "error",
        "repeats",
        "inside",
    ];
    let mut t = table(&heading);
    for s in stanzas {
        let Some(p) = s.predicted else { continue };
        let mut row = name_cells(s);
        row.extend([
            number(thousands(s.iops)),
            number(thousands(p.iops)),
            number(format!("{} to {}", thousands(p.iops_low), thousands(p.iops_high))),
            number(format!("{} to {}", thousands(p.band_low), thousands(p.band_high))),
            number(format!("{:+.1}%", p.error * 100.0)),
            number(s.repeatability.map_or_else(|| "-".to_owned(), |r| format!("±{:.1}%", r * 100.0))),
            cell(if p.in_band { "yes" } else { "NO" }),
        ]);
        t.add_row(row);
    }
    format!("{t}\n{}", prediction_errors(stanzas))
}

/// The errors of the predictions, in one sentence.
#[must_use]
pub fn prediction_errors(stanzas: &[Stanza]) -> String {
    let mut errors: Vec<(f64, &Stanza)> = stanzas
        .iter()
        .filter(|s| is_predicted(s, stanzas))
        .filter_map(|s| s.predicted.map(|p| (p.error.abs(), s)))
        .collect();
    errors.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(middle), Some(worst)) = (errors.get(errors.len() / 2), errors.last()) else {
        return "Every point here calibrates the model: more than two depths (--iodepth 1,2,4,8,16,32,128) show its error."
            .to_owned();
    };
    let repeated: Vec<(f64, f64)> =
        errors.iter().filter_map(|(error, s)| Some((*error, s.repeatability?))).collect();
    let repeats = if repeated.is_empty() {
        " How well the points repeat is not known: --repeats 3 measures it.".to_owned()
    } else {
        let within = repeated.iter().filter(|(error, repeats)| *error <= 2.0 * repeats).count();
        format!(" {} of {} within twice the point's own repeatability.", within, repeated.len())
    };
    let outside = errors.iter().filter(|(_, s)| s.predicted.is_some_and(|p| !p.in_band)).count();
    format!(
        "Predicted against measured between the two points that calibrate: median error {:.1} %, worst {:.1} % ({} B, {}, queue depth {}); {} of {} outside the band.{repeats}",
        middle.0 * 100.0,
        worst.0 * 100.0,
        worst.1.block_size_bytes,
        worst.1.policy,
        worst.1.queue_depth,
        outside,
        errors.len()
    )
}

/// A table of stanzas.
fn rows(rows: Rows<'_>) -> String {
    if rows.rows.is_empty() {
        return String::new();
    }
    let headings: Vec<&str> =
        ["block", "send", "QD"].into_iter().chain(rows.headings.iter().map(String::as_str)).collect();
    let mut t = table(&headings);
    for (stanza, cells) in rows.rows {
        t.add_row([name_cells(stanza), cells.into_iter().map(number).collect()].concat());
    }
    t.to_string()
}

fn busy_counts(stanzas: &[Stanza]) -> String {
    let mut t = table(&["block", "send", "QD", "avg", "n=1", "2", "3", "4", "5", "6", "7", "8", "more"]);
    for s in stanzas {
        let mut row = name_cells(s);
        row.push(number(format!("{:.1}", s.avg_busy)));
        let rest = (1.0 - s.busy_count_share.iter().sum::<f64>()).max(0.0);
        row.extend(
            s.busy_count_share.iter().chain([&rest]).map(|share| number(format!("{:.0}%", share * 100.0))),
        );
        t.add_row(row);
    }
    t.to_string()
}
