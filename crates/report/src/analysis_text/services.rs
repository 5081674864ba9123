//! The table of services, and its details.

use std::fmt::Write as _;

use analysis::service::{DetailRow, Figures, ServiceRow};
use analyzer::AnalysisResult;
use output::text::{COLUMNS, cut, filled, wrapped};
use record::units::counted;

use crate::terminal::{cell, number, stacked, table, thousands, us};

/// What the services are divided by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Each connection, size and queue depth.
    Connection,
    /// Each client's address.
    Client,
    /// Each size, in powers of two.
    Size,
    /// Each key: the path, the statement, the prefix of a key.
    Key,
}

/// Services and details that are shown; JSON has them all.
const SERVICES_SHOWN: usize = 15;
const DETAILS_SHOWN: usize = 10;

/// One row for each operation of a service.
pub(super) fn services(result: &AnalysisResult, wide: bool) -> String {
    if wide {
        return services_wide(result);
    }
    let scale = Scale::of(result.services.iter().take(SERVICES_SHOWN).map(|row| &row.figures));
    let mut out = heading("service and operation", scale);
    // Services are in the order of their time, and so are the operations of each.
    let mut names: Vec<Option<&str>> = Vec::new();
    let shown = || result.services.iter().take(SERVICES_SHOWN);
    for row in shown() {
        if !names.contains(&row.service.as_deref()) {
            names.push(row.service.as_deref());
        }
    }
    for name in names {
        let _ = writeln!(out, "{}", cut(name.unwrap_or("others"), COLUMNS));
        for row in shown().filter(|row| row.service.as_deref() == name) {
            let mostly = row.largest_part.map_or(String::new(), |largest| {
                format!("{} {:.0} %", largest.part.name(), largest.share * 100.0)
            });
            narrow(&named(row), &row.figures, &mostly, scale, &mut out);
        }
    }
    let more = result.services.len().saturating_sub(SERVICES_SHOWN);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more (--json has them)");
    }
    out.push_str(
        "flight: operations in flight; time: share of all operations' time; mostly: the\nlargest part of it. --wide: more columns; --by: \
         connection, client, size or key",
    );
    out
}

/// The unit of a table's times: its microseconds, and its sign. One for the table, in which the longest fits its column.
#[derive(Clone, Copy)]
struct Scale(f64, &'static str);

impl Scale {
    fn of<'a>(figures: impl Iterator<Item = &'a Figures>) -> Self {
        match figures.map(|figures| figures.p50_us.max(figures.p99_us)).fold(0.0, f64::max) {
            longest if longest < 999_999.5 => Self(1.0, "us"),
            longest if longest < 999_999_500.0 => Self(1e3, "ms"),
            _ => Self(1e6, "s"),
        }
    }
}

/// The heading of a table of 80 columns.
fn heading(of: &str, Scale(_, sign): Scale) -> String {
    let head = format!(
        "{of:<26}{:>8}{:>7}{:>9}{:>9}{:>6}{:>15}",
        "per s",
        "flight",
        format!("p50 {sign}"),
        format!("p99 {sign}"),
        "time",
        "mostly"
    );
    format!("{head}\n{}\n", "─".repeat(COLUMNS))
}

/// A row of that table.
fn narrow(name: &str, figures: &Figures, mostly: &str, Scale(microseconds, _): Scale, out: &mut String) {
    let us = |value: f64| {
        let value = value / microseconds;
        if value < 100.0 { us(value) } else { thousands(value) }
    };
    let name = filled(name, 24);
    let _ = writeln!(
        out,
        "  {name}{:>8}{:>7}{:>9}{:>9}{:>6}{mostly:>15}",
        per_second(figures.rate),
        short(figures.in_flight),
        us(figures.p50_us),
        us(figures.p99_us),
        format!("{:.0} %", figures.time_share * 100.0),
    );
}

/// What a service does, in a sentence.
pub(super) fn sentence(row: &ServiceRow) -> String {
    let us = |value: f64| if value < 100.0 { us(value) } else { thousands(value) };
    let Figures { operations, rate, p50_us, p99_us, time_share, .. } = row.figures;
    let mostly = row.largest_part.map_or(String::new(), |largest| {
        format!("; {:.0} % of it in the part \"{}\"", largest.share * 100.0, largest.part.name())
    });
    let place = match &row.service {
        Some(service) => format!("{} at {service}", named(row)),
        None => "services beyond those that are told apart".to_owned(),
    };
    format!(
        "Most time ({:.0} %) is in {place}: {} ({} a second), p50 {} us, p99 {} us{mostly}.",
        time_share * 100.0,
        counted(operations, "operation"),
        per_second(rate),
        us(p50_us),
        us(p99_us),
    )
}

/// One row for each service, with everything.
fn services_wide(result: &AnalysisResult) -> String {
    let mut t = table(&[
        "service",
        "operation",
        "conns",
        "ops",
        "per s",
        "flight",
        "max",
        "p50 us",
        "p90",
        "p99",
        "max us",
        "time",
        "mostly",
    ]);
    for row in result.services.iter().take(SERVICES_SHOWN) {
        let mut cells = vec![
            cell(row.service.as_deref().unwrap_or("others")),
            cell(named(row)),
            number(row.figures.connections.to_string()),
            number(thousands(row.figures.operations as f64)),
            number(per_second(row.figures.rate)),
            number(short(row.figures.in_flight)),
            number(row.in_flight_max.to_string()),
        ];
        cells.extend(times(&row.figures));
        cells.push(cell(row.largest_part.map_or(String::new(), |largest| {
            format!("{} {:.0} %", largest.part.name(), largest.share * 100.0)
        })));
        t.add_row(cells);
    }
    let more = result.services.len().saturating_sub(SERVICES_SHOWN);
    let more = if more > 0 { format!("\n  and {more} more (--json has them)") } else { String::new() };
    format!(
        "Services (flight: operations in flight, mean and max; time: share of the time of all operations; mostly: its largest \
         part; --by connection, client, size or key divides them)\n{t}{more}"
    )
}

/// The rows of each service, divided.
pub(super) fn details(
    result: &AnalysisResult,
    by: &str,
    rows: impl Fn(&ServiceRow) -> &Vec<DetailRow>,
    wide: bool,
    out: &mut String,
) {
    for service in result.services.iter().take(SERVICES_SHOWN) {
        let rows = rows(service);
        // Not every protocol has keys.
        if rows.is_empty() {
            continue;
        }
        let name = service.service.as_deref().unwrap_or("others");
        out.push('\n');
        out.push_str(&wrapped(format_args!("{name}, {}, by {by}", named(service)), "  "));
        if wide {
            let _ = writeln!(out, "{}", details_wide(by, rows));
        } else {
            let scale = Scale::of(rows.iter().take(DETAILS_SHOWN).map(|row| &row.figures));
            out.push_str(&heading(by, scale));
            rows.iter().take(DETAILS_SHOWN).for_each(|row| narrow(&row.name, &row.figures, "", scale, out));
        }
        let more = rows.len().saturating_sub(DETAILS_SHOWN);
        if more > 0 {
            let _ = writeln!(out, "  and {more} more (--json has them)");
        }
    }
}

/// The rows of a service, divided, with everything.
fn details_wide(by: &str, rows: &[DetailRow]) -> String {
    let mut t = table(&[by, "conns", "ops", "per s", "flight", "p50 us", "p90", "p99", "max us", "time"]);
    for row in rows.iter().take(DETAILS_SHOWN) {
        let mut cells = vec![
            cell(&row.name),
            number(row.figures.connections.to_string()),
            number(thousands(row.figures.operations as f64)),
            number(per_second(row.figures.rate)),
            number(short(row.figures.in_flight)),
        ];
        cells.extend(times(&row.figures));
        t.add_row(cells);
    }
    t.to_string()
}

/// Keys that are shown below the services.
const KEYS_SHOWN: usize = 5;

/// The keys with the most time, where operations have several: their shares of the requests and of the time.
pub(super) fn keys(result: &AnalysisResult, out: &mut String) {
    let all: f64 = result.services.iter().map(|row| row.figures.operations as f64).sum();
    let several = |row: &&ServiceRow| row.keys.len() > 1;
    let mut rows: Vec<(&ServiceRow, &DetailRow)> = result
        .services
        .iter()
        .filter(several)
        .flat_map(|row| row.keys.iter().map(move |key| (row, key)))
        .collect();
    rows.sort_by(|(_, a), (_, b)| b.figures.time_share.total_cmp(&a.figures.time_share));
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(out, "Keys with the most time (--by key has all of a service)");
    for (service, key) in rows.iter().take(KEYS_SHOWN) {
        let Figures { operations, time_share, p50_us, p99_us, .. } = key.figures;
        let text = format!(
            "  {} {}: {:.0} % of the requests, {:.0} % of the time (p50 {} us, p99 {} us)",
            service.operation,
            key.name,
            operations as f64 / all.max(1.0) * 100.0,
            time_share * 100.0,
            thousands(p50_us),
            thousands(p99_us)
        );
        out.push_str(&wrapped(text, "    "));
    }
}

/// Columns of a key in a table of 80.
const KEY_COLUMNS: usize = 28;

/// The slowest operations.
pub(super) fn slowest(result: &AnalysisResult, wide: bool) -> String {
    let mut t = table(&[
        "service",
        "operation",
        "key",
        "status",
        "conn",
        "stream",
        "frames",
        "whole us",
        "first byte",
    ]);
    for row in &result.slowest {
        let time = |value: f64| number(if value < 100.0 { us(value) } else { thousands(value) });
        let [first, last] = row.frames;
        t.add_row(vec![
            cell(row.service.as_deref().unwrap_or("others")),
            cell(&row.operation),
            cell(if wide { row.key.clone() } else { cut(&row.key, KEY_COLUMNS) }),
            cell(if wide { row.status.clone() } else { cut(&row.status, KEY_COLUMNS) }),
            number(row.connection.to_string()),
            number(row.stream.map_or(String::new(), |stream| stream.to_string())),
            number(format!("{first}-{last}")),
            time(row.whole_us),
            row.first_byte_us.map_or(number(String::new()), time),
        ]);
    }
    let text = if wide { t.to_string() } else { stacked(&t, 2) };
    format!("The {} slowest operations\n{text}", result.slowest.len())
}

/// The operation with its protocol, where its name does not show it, and the failed ones.
fn named(row: &ServiceRow) -> String {
    let operation = match row.protocol.as_deref() {
        None | Some("http" | "iscsi" | "turns" | "unknown") => row.operation.clone(),
        Some(protocol) => format!("{protocol} {}", row.operation),
    };
    match row.figures.failed {
        0 => operation,
        failed => format!("{operation} ({} failed)", thousands(failed as f64)),
    }
}

fn times(figures: &Figures) -> Vec<comfy_table::Cell> {
    let us = |value: f64| number(if value < 100.0 { us(value) } else { thousands(value) });
    vec![
        us(figures.p50_us),
        us(figures.p90_us),
        us(figures.p99_us),
        us(figures.max_us),
        number(format!("{:.0} %", figures.time_share * 100.0)),
    ]
}

fn per_second(rate: f64) -> String {
    if rate < 100.0 { short(rate) } else { thousands(rate) }
}

/// Two digits behind the point for small values.
fn short(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => thousands(v),
    }
}
