//! An experiment as a table: what was measured beside what was published.

use comfy_table::Cell;
use study::ExperimentResult;

use crate::terminal::{number, table, us};

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
        "published",
    ]);
    let figure = |value: f64| if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    for case in &result.cases {
        let or_nothing = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        out.add_row(vec![
            Cell::new(&case.case.label),
            number(case.case.mtu.to_string()),
            number(figure(case.median)),
            Cell::new(case.unit),
            number(figure(case.least)),
            number(figure(case.greatest)),
            number(or_nothing(case.p50_us.map(us))),
            Cell::new(case.case.against.as_deref().unwrap_or("-")),
            number(or_nothing(case.ratio.map(|ratio| format!("{ratio:.2}")))),
            number(or_nothing(case.limit.map(|limit| format!("{:.0} %", case.median / limit * 100.0)))),
            Cell::new(case.case.published.as_deref().unwrap_or("-")),
        ]);
    }
    let place = if result.wire {
        format!("two namespaces, a wire of {}", ring::units::format_bit_rate(result.plan.rate))
    } else {
        "loopback".into()
    };
    let mut text = format!(
        "{}: {}\n{place}; {} of {:?} each, interleaved; medians\n{} CPUs, Linux {}\n\n{out}",
        result.plan.name,
        result.plan.about,
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
