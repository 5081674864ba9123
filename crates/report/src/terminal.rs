//! Tables for a terminal.

use comfy_table::{Cell, CellAlignment, LineStyle, Table, TableStyle};
use iscsi_target::{ConnectionStatistics, Stages};
use load::{KindResult, RunResult};
use output::text::{COLUMNS, line, width, wrapped};
use record::units::{counted, grouped};
use store::Operation;
use store::layer::Passed;

/// Rows of a table of connections.
const CONNECTIONS_SHOWN: usize = 50;

/// A table with a heading, numbers to the right.
pub(crate) fn table(heading: &[&str]) -> Table {
    let mut table = Table::new();
    // Only a line under the heading: rows are read across.
    table.load_style(TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')));
    table.set_header(heading.to_vec());
    table
}

/// A table in 80 columns: if it is wider, as several one below the other, each with the first `keys` columns.
pub(crate) fn stacked(table: &Table, keys: usize) -> String {
    let whole = table.to_string();
    if is_narrow(&whole) {
        return whole;
    }
    let heading: Vec<&Cell> = table.header().into_iter().flat_map(|row| row.cell_iter()).collect();
    let part = |columns: &[usize]| {
        let mut part = self::table(&[]);
        part.set_header(columns.iter().filter_map(|at| heading.get(*at).copied().cloned()));
        for row in table.row_iter() {
            let cells: Vec<&Cell> = row.cell_iter().collect();
            part.add_row(columns.iter().filter_map(|at| cells.get(*at).copied().cloned()));
        }
        part.to_string()
    };
    let named: Vec<usize> = (0..keys).collect();
    let mut parts: Vec<String> = Vec::new();
    let mut columns = named.clone();
    for at in keys..heading.len() {
        columns.push(at);
        if columns.len() > keys + 1 && !is_narrow(&part(&columns)) {
            columns.pop();
            parts.push(part(&columns));
            columns = named.clone();
            columns.push(at);
        }
    }
    parts.push(part(&columns));
    parts.join("\n\n")
}

fn is_narrow(text: &str) -> bool {
    text.lines().all(|line| width(line.trim_end()) <= COLUMNS)
}

/// Text of which sentences that are longer than 80 columns are broken; tables are [`stacked`] before. Drawings stay as they are.
pub(crate) fn fitted(text: &str) -> String {
    let is_drawn = |line: &str| line.contains(['│', '╭', '╰', '─', '┌', '└']);
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if width(line.trim_end()) <= COLUMNS || is_drawn(line) {
            out.push_str(line.trim_end());
            out.push('\n');
            continue;
        }
        let spaces = line.len() - line.trim_start().len();
        out.push_str(&wrapped(line, &" ".repeat(spaces + 2)));
    }
    if !text.ends_with('\n') {
        out.pop();
    }
    out
}

/// A text's cell: one line, control characters escaped.
#[allow(clippy::disallowed_methods, reason = "here it is escaped")]
pub(crate) fn cell(text: impl std::fmt::Display) -> Cell {
    Cell::new(line(text))
}

/// A number's cell.
pub(crate) fn number(text: String) -> Cell {
    cell(text).set_alignment(CellAlignment::Right)
}

/// A whole number with its thousands apart, as 63 104.
#[must_use]
pub fn thousands(value: f64) -> String {
    let text = record::units::grouped(value.abs().round() as u64);
    if value < 0.0 { format!("-{text}") } else { text }
}

/// Microseconds with the digits that a measurement supports.
#[must_use]
pub fn us(value: f64) -> String {
    format!("{value:.1}")
}

/// The runs of `bench` with all columns, wider than 80.
#[must_use]
pub fn runs_wide(runs: &[RunResult]) -> String {
    // The rate that an open loop was asked for, and the operations that had not begun at its end.
    let is_open = runs.iter().any(|run| run.rate.is_some());
    let open: &[&str] = if is_open { &["asked/s", "behind"] } else { &[] };
    let columns =
        ["rw", "block", "QD", "IOPS", "MB/s", "mean us", "p50", "p90", "p99", "p99.9", "max", "errors"];
    let mut t = table(&[&columns[..], open].concat());
    for r in runs {
        let l = &r.latency_us;
        let mut row = vec![
            cell(r.rw.name()),
            number(block(r)),
            number(r.queue_depth.to_string()),
            number(thousands(r.iops)),
            number(format!("{:.1}", r.bytes_per_second / 1e6)),
        ];
        row.extend([l.mean, l.p50, l.p90, l.p99, l.p999, l.max].map(|v| number(us(v))));
        row.push(number(r.errors.to_string()));
        if is_open {
            row.push(number(r.rate.map_or("-".into(), thousands)));
            row.push(number(r.behind.map_or("-".into(), |behind| thousands(behind as f64))));
        }
        t.add_row(row);
        if r.kinds.len() > 1 {
            r.kinds.iter().for_each(|kind| {
                t.add_row(kind_row(kind, is_open));
            });
        }
    }
    t.to_string()
}

/// The sizes of a run's operations.
pub(crate) fn block(run: &RunResult) -> String {
    match &run.block_split[..] {
        [] => record::units::format_size(run.block_size_bytes),
        split => load::initiator::workload::block_split(split),
    }
}

/// The name of a kind of operation, below its run.
pub(crate) fn kind_name(kind: load::Operation) -> &'static str {
    match kind {
        load::Operation::Read => "  read",
        load::Operation::Write => "  write",
        load::Operation::Trim => "  trim",
        load::Operation::WriteZeroes => "  zeroes",
    }
}

/// The row of one kind of operation, below that of its run.
fn kind_row(kind: &KindResult, is_open: bool) -> Vec<Cell> {
    let l = &kind.latency_us;
    let name = kind_name(kind.kind);
    let mut row = vec![
        cell(name),
        cell(""),
        cell(""),
        number(thousands(kind.iops)),
        number(format!("{:.1}", kind.bytes_per_second / 1e6)),
    ];
    row.extend([l.mean, l.p50, l.p90, l.p99, l.p999, l.max].map(|v| number(us(v))));
    row.push(number(kind.errors.to_string()));
    if is_open {
        row.extend([cell(""), cell("")]);
    }
    row
}

/// The failed operations of a run by class; empty if there are none.
#[must_use]
pub fn failures(run: &RunResult) -> String {
    let name = format!("{} {}, queue depth {}", run.rw.name(), run.sizes(), run.queue_depth);
    let mut text = String::new();
    if run.errors > 0 {
        let most = if run.errors > run.operations { "; MOST OPERATIONS FAILED" } else { "" };
        text = format!(
            "{name}: {} failed, {} succeeded in the measured time{most}",
            counted(run.errors, "operation"),
            grouped(run.operations)
        );
    }
    for failure in &run.failures {
        // A class has names of ours only, but costs nothing to escape.
        text.push_str(&format!("\n  {:>10}  {}", grouped(failure.count), line(&failure.class)));
    }
    if let Some(mean) = run.failed_mean_us {
        text.push_str(&format!("\n  mean time until a failure: {} us", us(mean)));
    }
    if run.unmeasured_errors > 0 {
        let separator = if text.is_empty() { "" } else { "\n" };
        text.push_str(&format!(
            "{separator}{name}: {} failed outside the measured time (--ramp, or in flight at its end)",
            counted(run.unmeasured_errors, "operation")
        ));
    }
    text
}

/// A table of texts.
#[must_use]
pub fn rows(headings: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut t = table(headings);
    for row in rows {
        t.add_row(row.iter().map(cell).collect::<Vec<_>>());
    }
    stacked(&t, 2)
}

/// The operations that passed the `stats` layers of a target's disks, by LUN.
#[must_use]
pub fn disks<K: std::fmt::Display>(all: &[(K, Vec<Passed>)]) -> String {
    let mut t = table(&["disk", "operation", "count", "MB", "mean us", "p50", "p99", "max", "errors"]);
    for (lun, passed) in all.iter().flat_map(|(lun, rows)| rows.iter().map(move |row| (lun, row))) {
        let name = match passed.operation {
            store::Operation::Map => "map",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Discard => "unmap",
            Operation::Flush => "flush",
        };
        let mut row = vec![
            cell(lun),
            cell(name),
            number(thousands(passed.count as f64)),
            number(format!("{:.1}", passed.bytes as f64 / 1e6)),
        ];
        row.extend([passed.mean_us, passed.p50_us, passed.p99_us, passed.max_us].map(|v| number(us(v))));
        row.push(number(passed.errors.to_string()));
        t.add_row(row);
    }
    t.to_string()
}

/// The statistics of a target's connections, the last ones where there are many.
#[must_use]
pub fn connections(all: &[ConnectionStatistics]) -> String {
    let all = &all[all.len().saturating_sub(CONNECTIONS_SHOWN)..];
    let mut t = table(&[
        "initiator",
        "peer",
        "send",
        "commands",
        "sends",
        "nodelay",
        "nagle",
        "batch",
        "busy",
        "max",
        "avg",
        "idles",
        "1",
        "2",
        "3",
        "4",
        "5",
        ">5",
    ]);
    for c in all {
        let b = &c.busy_count;
        let mut row = vec![
            cell(&c.initiator_name),
            cell(c.peer),
            cell(c.send),
            number(thousands(c.commands as f64)),
            number(thousands(c.sends as f64)),
            number(format!("{:.0}%", c.modes.percent(c.modes.nodelay))),
            number(format!("{:.0}%", c.modes.percent(c.modes.nagle))),
            number(format!("{:.0}%", c.modes.percent(c.modes.batch))),
            number(b.busy.to_string()),
            number(b.max_busy.to_string()),
            number(format!("{:.2}", b.avg_busy())),
            number(thousands(b.idles as f64)),
        ];
        let shares: Vec<f64> = (1..=5).map(|n| b.share(n)).collect();
        let rest = if b.idles == 0 { 0.0 } else { (1.0 - shares.iter().sum::<f64>()).max(0.0) };
        row.extend(shares.into_iter().chain([rest]).map(|s| number(format!("{:.0}%", s * 100.0))));
        t.add_row(row);
    }
    t.to_string()
}

/// Where the time of a target's commands goes: the mean of each stage, of the last connections where there are many.
#[must_use]
pub fn stages(all: &[ConnectionStatistics]) -> String {
    let all = &all[all.len().saturating_sub(CONNECTIONS_SHOWN)..];
    let names = Stages::default().named().map(|(name, _)| format!("{name} us"));
    let mut t = table(&[&["initiator", "peer"], names.each_ref().map(String::as_str).as_slice()].concat());
    for c in all {
        let means = c
            .stages
            .named()
            .map(|(_, stage)| number(if stage.count == 0 { "-".to_owned() } else { us(stage.mean_us()) }));
        t.add_row([cell(&c.initiator_name), cell(c.peer)].into_iter().chain(means));
    }
    t.to_string()
}

/// A wire that is up.
#[derive(Clone, Debug)]
pub struct Wire {
    /// Its configuration.
    pub record: testbed::WireRecord,
    /// The client's and the server's end.
    pub ends: [testbed::EndState; 2],
    /// Proof that packets cross it.
    pub crossing: testbed::Crossing,
}

/// Wires that are up: the settings of their ends, and whether packets cross.
#[must_use]
pub fn wires(all: &[Wire]) -> String {
    let mut out = table(&[
        "wire",
        "side",
        "interface",
        "address",
        "MTU",
        "link",
        "queue",
        "offloads on",
        "sent",
        "received",
    ]);
    let mut proofs = String::new();
    for Wire { record, ends, crossing } in all {
        for end in ends {
            let offloads =
                if end.offloads_on.is_empty() { "none".into() } else { end.offloads_on.join(", ") };
            out.add_row(vec![
                cell(&record.name),
                cell(end.side),
                cell(&end.interface),
                cell(&end.address),
                number(end.mtu_bytes.to_string()),
                cell(&end.link),
                cell(&end.queue),
                cell(offloads),
                number(thousands(end.packets[0] as f64)),
                number(thousands(end.packets[1] as f64)),
            ]);
        }
        let [client, server] = [crossing.client, crossing.server];
        proofs.push_str(&format!(
            "\n{}: {} exchanges {}: the client's end sent {} packets and the server's received {}; back {} and {}",
            record.name,
            crossing.exchanges,
            if crossing.holds() { "cross it" } else { "DO NOT ALL CROSS IT" },
            client[0],
            server[1],
            server[0],
            client[1]
        ));
    }
    format!("{out}\n{proofs}")
}

/// Copies over plain TCP.
#[must_use]
pub fn copies(bytes_each: u64, runs: &[RunResult]) -> String {
    let mut t = table(&["block", "at once", "each", "seconds", "MB/s"]);
    for run in runs {
        t.add_row(vec![
            number(record::units::format_size(run.block_size_bytes)),
            number(run.sessions.to_string()),
            number(record::units::format_size(bytes_each)),
            number(format!("{:.2}", run.seconds)),
            number(format!("{:.1}", run.bytes_per_second / 1e6)),
        ]);
    }
    t.to_string()
}

#[cfg(test)]
#[path = "terminal_tests.rs"]
mod tests;
