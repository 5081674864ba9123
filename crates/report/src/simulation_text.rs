//! Simulated runs as tables and a chart.

use policy::Sending;
use record::units::{counted, grouped};
use study::busy_cycles::BusyCycles;
use tcpsim::fit::Measured;
use tcpsim::{Ending, RunResult};

use crate::chart::{Lines, NamedLine, lines};
use crate::terminal::{cell, number, stacked, table, thousands, us};
use output::text::wrapped;

/// Classes of busy cycles with a column of their own.
const CLASSES: u32 = 5;

/// The runs, one per line; `labels` are the swept values of each.
#[must_use]
pub fn runs(runs: &[RunResult], labels: &[String]) -> String {
    let mut heading = vec![
        "policy",
        "block",
        "QD",
        "MTU",
        "sessions",
        "IOPS",
        "RTT us",
        "p50",
        "p99",
        "segments",
        "acks",
        "server CPU us",
        "holds us",
    ];
    let is_swept = labels.iter().any(|label| !label.is_empty());
    if is_swept {
        heading.insert(0, "swept");
    }
    let mut out = table(&heading);
    for (run, label) in runs.iter().zip(labels) {
        let holds: Vec<String> =
            run.stalls_us.iter().map(|(name, time)| format!("{name} {}", us(*time))).collect();
        let mut row = vec![
            number(run.sending().to_string()),
            number(record::units::format_size(run.block_size_bytes)),
            number(run.queue_depth.to_string()),
            number(run.mtu_bytes.to_string()),
            number(run.sessions.to_string()),
            number(thousands(run.iops)),
            number(us(run.rtt_us.mean)),
            number(us(run.rtt_us.p50)),
            number(us(run.rtt_us.p99)),
            number(format!("{:.2}", run.client.segments + run.server.segments)),
            number(format!("{:.2}", run.client.acks + run.server.acks)),
            number(format!("{:.2}", run.server.thread_us + run.server.softirq_us + run.server.transmit_us)),
            cell(if holds.is_empty() { "-".to_owned() } else { holds.join(", ") }),
        ];
        if is_swept {
            row.insert(0, cell(label));
        }
        out.add_row(row);
    }
    let mut text = stacked(&out, if is_swept { 4 } else { 3 });
    for run in runs.iter().filter(|run| !run.is_complete) {
        text.push_str("\n\n");
        text.push_str(wrapped(incomplete(run), "  ").trim_end());
    }
    text
}

/// Why a run ended before all its operations were complete, and what to change.
fn incomplete(run: &RunResult) -> String {
    let RunResult { policy, queue_depth, time_limit_seconds, .. } = run;
    let why = match run.ended_by {
        Ending::Operations => return String::new(),
        Ending::TimeLimit => format!(
            "the limit of simulated time, {time_limit_seconds} s, ended the run; raise it with --set time-limit={}s",
            enough(run)
        ),
        Ending::Observer => "the run was interrupted".to_owned(),
        Ending::Standstill => "the ring stands still: no message is on its way and no timer runs".to_owned(),
    };
    format!(
        "{policy}, queue depth {queue_depth}: only {} of {}: {why}",
        grouped(run.operations),
        counted(run.requested_operations, "operation")
    )
}

/// A time limit within which the operations would be done at the rate so far, seconds; ten times the limit if there is no rate.
fn enough(run: &RunResult) -> u64 {
    let needed = run.requested_operations as f64 / run.iops;
    let seconds =
        if needed.is_finite() { run.time_limit_seconds + needed } else { 10.0 * run.time_limit_seconds };
    (seconds.ceil() as u64).max(1)
}

/// Shares of the busy cycles by the number of requests that they served, percent; `whole` is the share that served the whole
/// queue depth. `labels` are the swept values of each run, `published` the published shares of each, where there are some.
#[must_use]
pub fn busy_counts(runs: &[RunResult], labels: &[String], published: &[Option<&[f64]>]) -> String {
    let is_swept = labels.iter().any(|label| !label.is_empty());
    let is_published = published.iter().any(Option::is_some);
    let mut heading = vec!["policy", "QD", "1", "2", "3", "4", "5", "more", "mean", "whole"];
    if is_swept {
        heading.insert(0, "swept");
    }
    if is_published {
        heading.push("published");
    }
    let mut out = table(&heading);
    for (index, run) in runs.iter().enumerate() {
        let shown: f64 = (1..=CLASSES).map(|count| run.busy_percent(count)).sum();
        let mut row = vec![number(run.sending().to_string()), number(run.queue_depth.to_string())];
        row.extend((1..=CLASSES).map(|count| number(format!("{:.0}", run.busy_percent(count)))));
        row.push(number(format!("{:.0}", (100.0 - shown).max(0.0))));
        row.push(number(format!("{:.1}", run.avg_busy)));
        row.push(number(format!("{:.0}", run.busy_percent(run.queue_depth))));
        if is_swept {
            row.insert(0, cell(labels.get(index).map_or("", String::as_str)));
        }
        if is_published {
            row.push(cell(published.get(index).copied().flatten().map_or_else(String::new, percentages)));
        }
        out.add_row(row);
    }
    stacked(&out, if is_swept { 3 } else { 2 })
}

/// Shares in percent, one after another.
fn percentages(shares: &[f64]) -> String {
    shares.iter().map(|share| format!("{share:.0}")).collect::<Vec<_>>().join(" ")
}

/// The paper's table of busy cycles beside the simulation, and how well each way to send explains its half.
#[must_use]
pub fn paper(found: &BusyCycles) -> String {
    let BusyCycles { seeds, operations, rows, explanations } = found;
    let mut out = table(&["send", "QD", "published", "simulated", "misplaced", "least", "greatest"]);
    for row in rows {
        out.add_row(vec![
            cell(row.sending.to_string()),
            number(row.queue_depth.to_string()),
            cell(percentages(&row.published_percent)),
            cell(percentages(&row.mean_percent)),
            number(format!(
                "{:.0} ({:.0} to {:.0})",
                row.misplaced_percent, row.misplaced_least_percent, row.misplaced_greatest_percent
            )),
            cell(percentages(&row.least_percent)),
            cell(percentages(&row.greatest_percent)),
        ]);
    }
    let explained = explanations
        .iter()
        .map(|found| format!("{} {:.0} %", found.sending, found.misplaced_percent))
        .collect::<Vec<_>>()
        .join(", ");
    let explained =
        format!("Cycles in another class than published, mean of the depths above 1: {explained}.");
    let title = format!(
        "Busy cycles of the server by the requests served, %: mean, least and greatest of {seeds} seeds, {} each",
        counted(*operations, "operation")
    );
    format!("{}\n{}{}", wrapped(explained, "  "), wrapped(title, "  "), stacked(&out, 2))
}

/// The time of one run's operations, by part.
#[must_use]
pub fn parts(run: &RunResult) -> String {
    let mut out = table(&["part", "request us", "response us"]);
    for part in tcpsim::Part::ALL {
        let of =
            |times: &std::collections::BTreeMap<&str, f64>| times.get(part.name()).copied().unwrap_or(0.0);
        let (request, response) = (of(&run.request_us), of(&run.response_us));
        if request + response > 0.0 {
            out.add_row(vec![cell(part.name()), number(us(request)), number(us(response))]);
        }
    }
    let sum: f64 = run.request_us.values().chain(run.response_us.values()).sum();
    format!("{out}\nsum {} us, RTT {} us", us(sum), us(run.rtt_us.mean))
}

/// Measured points beside simulated ones; `is_shown` returns whether the simulation was fitted to a point.
#[must_use]
pub fn fitted(points: &[Measured], runs: &[RunResult], is_shown: &dyn Fn(&Measured) -> bool) -> String {
    let mut out = table(&["policy", "QD", "measured IOPS", "simulated", "error", ""]);
    let mut errors = Vec::new();
    for (point, run) in points.iter().zip(runs) {
        let (error, shown) = (run.iops / point.iops - 1.0, is_shown(point));
        if !shown {
            errors.push(error.abs());
        }
        out.add_row(vec![
            number(point.sending.to_string()),
            number(point.queue_depth.to_string()),
            number(thousands(point.iops)),
            number(thousands(run.iops)),
            number(format!("{:+.1} %", error * 100.0)),
            cell(if shown { "shown" } else { "" }),
        ]);
    }
    errors.sort_by(f64::total_cmp);
    match errors.last() {
        None => stacked(&out, 4),
        Some(worst) => format!(
            "{out}\nOf the points that were not shown: median error {:.1} %, worst {:.1} %",
            errors[errors.len() / 2] * 100.0,
            worst * 100.0
        ),
    }
}

/// IOPS over the queue depth, a line for each policy.
#[must_use]
pub fn chart(runs: &[RunResult]) -> Option<String> {
    let mut all: Vec<Sending> = Vec::new();
    for run in runs {
        if !all.contains(&run.sending()) {
            all.push(run.sending());
        }
    }
    let series = all
        .iter()
        .map(|sending| {
            let own = runs.iter().filter(|run| run.sending() == *sending);
            let points = own.map(|run| (f64::from(run.queue_depth), run.iops)).collect();
            NamedLine { name: sending.to_string(), points }
        })
        .collect();
    lines(&Lines {
        title: "Simulated throughput".into(),
        x_label: "queue depth".into(),
        y_label: "IOPS".into(),
        series,
    })
}
