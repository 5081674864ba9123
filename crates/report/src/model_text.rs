//! The model as a drawing, tables, a chart and JSON.

use comfy_table::Cell;
use ring::model::Band;
use ring::model::recursion::Exact;
use ring::model::what_if::{Prediction, Setup};
use serde_json::{Value, json};

use crate::chart::{Dots, dots};
use crate::terminal::{number, table, thousands, us};

/// One point of the curve.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// What no start phase can leave.
    pub band: Band,
    /// What the recursion gives.
    pub exact: Exact,
}

/// Everything for a terminal.
#[must_use]
pub fn text(setup: &Setup, curve: &[Point], predictions: &[Prediction]) -> String {
    let ring = &setup.ring;
    let bottleneck = ring.bottleneck();
    let mut out = drawing(setup);
    out.push_str(&format!(
        "\nRTTmin {} us, alone {} us with start latencies; TPTmin {} us by {}: at most {} IOPS, from queue depth {:.1} on\n",
        us(ring.rtt_min_us()),
        us(ring.rtt_alone_us()),
        us(bottleneck.service_us),
        bottleneck.stages,
        thousands(ring.iops_max()),
        ring.knee()
    ));
    let mut t = table(&["QD", "IOPS", "over start phases", "guaranteed band", "RTT us", "busiest"]);
    for p in curve {
        let e = &p.exact;
        let range = |low: f64, high: f64| {
            if high - low < 0.005 * high {
                thousands(low)
            } else {
                format!("{} to {}", thousands(low), thousands(high))
            }
        };
        let busiest = ring.utilisation(e.iops).into_iter().map(|(_, share)| share).fold(0.0, f64::max);
        t.add_row(vec![
            number(e.queue_depth.to_string()),
            number(thousands(e.iops)),
            number(range(e.iops_low, e.iops_high)),
            number(range(p.band.low, p.band.high)),
            number(us(e.rtt_us)),
            number(format!("{:.0}%", busiest * 100.0)),
        ]);
    }
    out.push('\n');
    out.push_str(&t.to_string());
    if !predictions.is_empty() {
        let mut t =
            table(&["what if", "IOPS before", "after", "RTT us before", "after", "bottleneck", "gain"]);
        for p in predictions {
            t.add_row(vec![
                Cell::new(&p.change),
                number(thousands(p.iops_before)),
                number(thousands(p.iops_after)),
                number(us(p.rtt_us_before)),
                number(us(p.rtt_us_after)),
                Cell::new(&p.bottleneck_after),
                number(format!("{:+.1}%", p.gain * 100.0)),
            ]);
        }
        out.push_str(&format!("\n\nAt queue depth {}, the greatest gain first\n{t}", setup.queue_depth));
    }
    out
}

/// The ring, drawn: service times, and below them the start latencies; the bottleneck in brackets.
fn drawing(setup: &Setup) -> String {
    let bottleneck = setup.ring.bottleneck().resource;
    let boxes: Vec<(String, String)> = setup
        .ring
        .stages()
        .iter()
        .map(|s| {
            let name = if s.resource == bottleneck {
                format!("[{} {}]", s.name, us(s.service_us))
            } else {
                format!("{} {}", s.name, us(s.service_us))
            };
            (name, format!("+{}", us(s.start_latency_us)))
        })
        .collect();
    let (mut top, mut below) = (String::from("╭─►"), String::from("│  "));
    for (index, (name, latency)) in boxes.iter().enumerate() {
        if index > 0 {
            top.push_str(" ─►");
            below.push_str("   ");
        }
        let width = name.chars().count().max(latency.chars().count());
        top.push_str(&format!(" {name:<width$}"));
        below.push_str(&format!(" {latency:<width$}"));
    }
    let width = top.chars().count();
    format!("{top} ─╮\n{below}  │\n╰{}╯\n", "─".repeat(width + 1))
}

/// The curve with its band.
#[must_use]
pub fn chart(setup: &Setup, curve: &[Point]) -> Option<String> {
    let line = |label: &str, colour, of: &dyn Fn(&Point) -> f64| Dots {
        label: label.to_owned(),
        colour,
        points: curve.iter().map(|p| (p.exact.queue_depth.into(), of(p) / 1000.0)).collect(),
    };
    let all = [
        line("band", "#c3cad5", &|p| p.band.low),
        line("band", "#c3cad5", &|p| p.band.high),
        line("least", "#0e7490", &|p| p.exact.iops_low),
        line("most", "#0e7490", &|p| p.exact.iops_high),
        line("mean", "#c2410c", &|p| p.exact.iops),
    ];
    let title =
        format!("queue depth (grey: guaranteed band; at most {} IOPS)", thousands(setup.ring.iops_max()));
    dots(&title, "thousand IOPS", &all)
}

/// The documented keys.
#[must_use]
pub fn json(setup: &Setup, curve: &[Point], predictions: &[Prediction]) -> Value {
    let ring = &setup.ring;
    json!({
        "rtt_min_us": ring.rtt_min_us(),
        "rtt_alone_us": ring.rtt_alone_us(),
        "tpt_min_us": ring.tpt_min_us(),
        "bottleneck": ring.bottleneck().stages,
        "iops_max": ring.iops_max(),
        "knee_queue_depth": ring.knee(),
        "stages": ring.stages(),
        "curve": curve.iter().map(|p| json!({
            "queue_depth": p.exact.queue_depth,
            "iops_low": p.band.low,
            "iops_high": p.band.high,
            "iops": p.exact.iops,
            "exact_iops_low": p.exact.iops_low,
            "exact_iops_high": p.exact.iops_high,
            "rtt_us": p.exact.rtt_us,
        })).collect::<Vec<_>>(),
        "what_if": predictions,
    })
}
