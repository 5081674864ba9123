//! An experiment as a table: what was measured beside what was published.

use comfy_table::Cell;
use study::ExperimentResult;

use crate::terminal::{number, table, us};

/// A figure of a case.
pub(crate) fn figure(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

/// Where it was made.
pub(crate) fn place(result: &ExperimentResult) -> String {
    let rate = ring::units::format_bit_rate(result.bits_per_second);
    let (client, server) = result.cpus;
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

/// Everything for a terminal.
#[must_use]
pub fn experiment(result: &ExperimentResult) -> String {
    let mut out = table(&[
        "case",
        "MTU",
        "figure",
        "",
        "least",
        "greatest",
        "p50 us",
        "to",
        "times",
        "of the limit",
        "observer",
        "published",
    ]);
    for case in &result.cases {
        let or_nothing = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        out.add_row(vec![
            Cell::new(&case.case.label),
            number(case.mtu_bytes.to_string()),
            number(figure(case.median)),
            Cell::new(case.unit),
            number(figure(case.least)),
            number(figure(case.greatest)),
            number(or_nothing(case.p50_us.map(us))),
            Cell::new(case.case.against.as_deref().unwrap_or("-")),
            number(or_nothing(case.ratio.map(|ratio| format!("{ratio:.2}")))),
            number(or_nothing(case.limit.map(|limit| format!("{:.0} %", case.median / limit * 100.0)))),
            number(or_nothing(case.observer_cost.map(|cost| format!("{:+.1} %", -cost * 100.0)))),
            Cell::new(case.case.published.as_deref().unwrap_or("-")),
        ]);
    }
    let mut text = format!(
        "{}: {}\n{}; {} of {:?} each, interleaved; medians\n{} CPUs, {}\n\n{out}",
        result.plan.name,
        result.plan.about,
        place(result),
        result.plan.repeats,
        result.plan.runtime,
        result.machine.cpus,
        result.machine.kernel
    );
    for warning in &result.warnings {
        text.push_str(&format!("\n- {warning}"));
    }
    text
}
