//! The model as a drawing, tables, a chart and JSON.

use model::setup::{Outcome, Setup};
use model::transfer::{CopyModel, Post};
use model::what_if::Prediction;
use model::{Band, Known, ModelError, Role, Utilisation, nagle};
use output::text::line;
use serde_json::{Value, json};

use crate::chart::{Area, Curve, band};
use crate::terminal::{cell, fitted, number, stacked, table, thousands, us};

/// One point of the curve.
#[derive(Clone, Debug)]
pub struct Point {
    /// Queue depth of each session.
    pub queue_depth: u32,
    /// The guaranteed band.
    pub band: Band,
    /// The predicted throughput and round trip.
    pub outcome: Outcome,
}

/// What a setup reaches at depth.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Greatest throughput, operations per second.
    pub iops_max: f64,
    /// The queue depth from which a deeper queue gains nothing; `None` where all that was tried gains.
    pub knee: Option<f64>,
    /// How busy each resource then is.
    pub busy: Vec<Utilisation>,
    /// The stages of the busiest one.
    pub bottleneck: String,
}

impl Limits {
    /// The limits of a setup.
    ///
    /// # Errors
    /// None for a valid setup.
    pub fn of(setup: &Setup) -> Result<Self, ModelError> {
        let busy = setup.utilisation_at_limit();
        let busiest = busy.iter().fold(None, |best: Option<&Utilisation>, u| match best {
            Some(best) if best.share >= u.share => Some(best),
            _ => Some(u),
        });
        let bottleneck = busiest.map(|u| u.load.stages.clone()).unwrap_or_default();
        Ok(Self { iops_max: setup.iops_max(), knee: setup.knee()?, busy, bottleneck })
    }
}

/// A value to its first uncertain digit; an exact one as `exact` formats it.
fn known(value: Known, exact: fn(f64) -> String) -> String {
    if value.plus_minus < 5e-4 { exact(value.value) } else { value.to_string() }
}

/// Everything for a terminal.
#[must_use]
pub fn text(setup: &Setup, limits: &Limits, curve: &[Point], predictions: &[Prediction]) -> String {
    let ring = &setup.ring;
    // Where messages share packets the limit is that of full ones.
    let packed = if limits.iops_max > ring.iops_max() * 1.001 { " in full packets" } else { "" };
    let mut out = format!(
        "RTTmin {} us, alone {} us with start latencies; TPTmin {} us{packed} by {}: {}, at most {} IOPS, {}\n",
        us(ring.rtt_min_us()),
        us(ring.rtt_alone_us()),
        us(1e6 / limits.iops_max),
        line(&limits.bottleneck),
        if Role::of(&limits.bottleneck) == Role::Wire { "network bound" } else { "CPU bound" },
        thousands(limits.iops_max),
        match limits.knee {
            Some(knee) => format!("from queue depth {knee:.1} on"),
            None => format!("which it keeps from no queue depth below {} on", model::setup::KNEE_MAX),
        }
    );
    out.push_str(&format!("\n{}\n", drawing(setup)));
    out.push_str(&wire(setup));
    out.push_str(&utilisation(limits));
    out.push_str(&format!("\nThe paper's terms\n{}\n", terms(setup)));
    if ring.is_uncertain() {
        out.push_str("\nTimes and how well two runs let them be known\n");
        out.push_str(&times(setup));
        out.push('\n');
    }
    out.push('\n');
    out.push_str(&curve_table(curve));
    if setup.sessions > 1 {
        out.push_str(
            "\nSeveral sessions by mean value analysis: exact for exponential service times, so below saturation it is a \
             pessimist for stages that are nearly constant; at the limit both agree.",
        );
    }
    out.push_str(&nagle_needs(setup));
    out.push_str(&cycles(curve));
    if !predictions.is_empty() {
        out.push_str(&format!(
            "\n\nAt queue depth {}, the greatest gain first\n{}",
            setup.queue_depth,
            what_if(predictions)
        ));
    }
    fitted(&out)
}

/// What the wire carries, and what it bounds.
fn wire(setup: &Setup) -> String {
    let wire = setup.link.wire();
    let (request, response) = (setup.messages.request_bytes(), setup.messages.response_bytes());
    let (raw, packed) = (wire.bits_per_second as f64 / 8.0 / response as f64, wire.iops_limit(response));
    format!(
        "Wire: {} at MTU {}, {:.2} % of it for payload; requests of {request} B, responses of {response} B, {:.2} to a packet\n      \
         W1 {:.3} us in a packet of its own, {:.3} us packed; W2 {:.3} and {:.3} us\n      \
         BW/(IOSIZE+H) = {} IOPS, {} in full packets; RTT stays below TI only while QD < TI x BW/(IOSIZE+H): {:.0} for 1 ms\n",
        record::units::format_bit_rate(setup.link.bits_per_second),
        setup.link.mtu_bytes,
        wire.efficiency() * 100.0,
        setup.responses_per_packet(),
        wire.own_packets_us(request),
        wire.packed_us(request),
        wire.own_packets_us(response),
        wire.packed_us(response),
        thousands(raw),
        thousands(packed),
        raw / 1000.0,
    )
}

/// How busy each resource is at the limit: W2/SP is the wire's share where the server's CPU limits.
fn utilisation(limits: &Limits) -> String {
    let shares: Vec<String> = limits
        .busy
        .iter()
        .map(|u| format!("{} {:.1} %", line(&u.load.stages), (u.share * 100.0).min(100.0)))
        .collect();
    format!("Busy at the limit: {}\n", shares.join(", "))
}

/// The ring's times by the paper's names.
fn terms(setup: &Setup) -> String {
    let mut t = table(&["term", "us"]);
    for term in setup.terms() {
        t.add_row(vec![cell(term.term), number(known(term.us, us))]);
    }
    t.to_string()
}

fn curve_table(curve: &[Point]) -> String {
    let mut t = table(&["QD", "IOPS", "may settle at", "guaranteed band", "RTT us", "p50", "p99", "busiest"]);
    let range = |low: f64, high: f64| {
        if high - low < 0.005 * high {
            thousands(low)
        } else {
            format!("{} to {}", thousands(low), thousands(high))
        }
    };
    for p in curve {
        let o = &p.outcome;
        let percentile = |of: Option<f64>| number(of.map(us).unwrap_or_default());
        t.add_row(vec![
            number(p.queue_depth.to_string()),
            number(known(o.iops, thousands)),
            number(if o.iops_high - o.iops_low < 0.005 * o.iops_high {
                thousands(o.iops.value)
            } else {
                range(o.iops_low, o.iops_high)
            }),
            number(range(p.band.low, p.band.high)),
            number(known(o.rtt_us, us)),
            percentile(o.exact.as_ref().map(|e| e.rtt_p50_us)),
            percentile(o.exact.as_ref().map(|e| e.rtt_p99_us)),
            number(format!("{:.0}%", o.busiest * 100.0)),
        ]);
    }
    stacked(&t, 1)
}

fn times(setup: &Setup) -> String {
    let mut t = table(&["stage", "service us", "start latency us", "runs on"]);
    for s in setup.ring.stages() {
        let of = |value, within| number(known(Known::within(value, within), us));
        t.add_row(vec![
            cell(&s.name),
            of(s.service_us, s.service_within_us),
            of(s.start_latency_us, s.latency_within_us),
            cell(if s.paced { "a token bucket" } else { &s.resource }),
        ]);
    }
    t.to_string()
}

/// What Nagle's algorithm needs, if the server's CPU is the bottleneck.
fn nagle_needs(setup: &Setup) -> String {
    if setup.ring.bottleneck().role() != Role::Server {
        return String::new();
    }
    let Some(needs) = setup.nagle_needs() else { return String::new() };
    let why = match needs.delay.until_ack_us {
        Some(ack) if ack < needs.delay.until_full_us => {
            format!("until the ACK comes; {} us until the packet is full", us(needs.delay.until_full_us))
        }
        _ => "until the packet is full".to_owned(),
    };
    format!(
        "\n\nWith Nagle's algorithm{}: SN up to {} us ({why}); CPU bound from a backlog of {:.1} on [3], \
         {:.1} operations more than with NODELAY.{}",
        if setup.nagle.is_some() { " (on here)" } else { "" },
        us(needs.delay.sn_max_us()),
        needs.backlog,
        needs.more_operations,
        packet_costs(setup)
    )
}

/// What a packet costs, which messages that share one pay once: the gain of Nagle's algorithm at depth.
fn packet_costs(setup: &Setup) -> String {
    if setup.nagle.is_none() && setup.client_nagle.is_none() {
        return String::new();
    }
    let costs: Vec<String> = setup
        .ring
        .stages()
        .iter()
        .filter(|stage| stage.per_received_us + stage.per_sent_us > 0.0)
        .map(|stage| {
            format!(
                "{} {} us received, {} us sent",
                line(&stage.name),
                us(stage.per_received_us),
                us(stage.per_sent_us)
            )
        })
        .collect();
    if costs.is_empty() {
        return "\nWhat a packet costs the CPUs is not given (per-packet-received, per-packet-sent), so messages that share one save only \
                headers on the wire."
            .to_owned();
    }
    format!(
        "\nOf these times a packet costs, once for all its messages: {}. Not published: chosen in presets.",
        costs.join("; ")
    )
}

/// The server's busy cycles.
fn cycles(curve: &[Point]) -> String {
    let mut t = table(&["QD", "stage", "operations per busy cycle", "then idle us", "backlog"]);
    let mut rows = 0;
    for p in curve {
        let Some(exact) = &p.outcome.exact else { continue };
        for c in exact.cycles.iter().filter(|c| {
            Role::of(&c.stage) == Role::Server && c.stage != nagle::STAGE && c.stage != nagle::SERVER_TRANSMIT
        }) {
            rows += 1;
            t.add_row(vec![
                number(p.queue_depth.to_string()),
                cell(&c.stage),
                number(c.operations.map_or_else(|| "never idle".to_owned(), |n| format!("{n:.2}"))),
                number(c.operations.map(|_| us(c.idle_us)).unwrap_or_default()),
                number(format!("{:.1}", c.backlog)),
            ]);
        }
    }
    if rows == 0 { String::new() } else { format!("\n\nThe server between two sleeps\n{t}") }
}

fn what_if(predictions: &[Prediction]) -> String {
    let mut t = table(&["what if", "IOPS before", "after", "RTT us before", "after", "bottleneck", "gain"]);
    for p in predictions {
        t.add_row(vec![
            cell(&p.change),
            number(known(p.iops_before, thousands)),
            number(known(p.iops_after, thousands)),
            number(known(p.rtt_us_before, us)),
            number(known(p.rtt_us_after, us)),
            cell(&p.bottleneck_after),
            number(format!("{:+.1}%", p.gain * 100.0)),
        ]);
    }
    stacked(&t, 1)
}

/// The ring as a drawing: service times above start latencies, the bottleneck in brackets.
fn drawing(setup: &Setup) -> String {
    let bottleneck = setup.ring.bottleneck().resource;
    let boxes: Vec<(String, String)> = setup
        .ring
        .stages()
        .iter()
        .map(|s| {
            let name = if s.resource == bottleneck {
                format!("[{} {}]", line(&s.name), us(s.service_us))
            } else {
                format!("{} {}", line(&s.name), us(s.service_us))
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

/// A copy's costs and predictions.
#[must_use]
pub fn copy(model: &CopyModel) -> String {
    let mut t = table(&[&model.unit, "MB/s", ""]);
    for m in &model.measured {
        t.add_row(vec![
            number(thousands(m.unit_bytes)),
            number(format!("{:.1}", m.bytes_per_second / 1e6)),
            cell("measured"),
        ]);
    }
    for m in &model.predicted {
        t.add_row(vec![
            number(thousands(m.unit_bytes)),
            number(format!("{:.1}", m.bytes_per_second / 1e6)),
            cell("predicted"),
        ]);
    }
    let text = format!(
        "Every byte costs {:.2} ns, every {} {} us: no unit gets more than {:.1} MB/s\n\n{t}",
        model.costs.per_byte_us * 1000.0,
        line(&model.unit),
        us(model.costs.per_unit_us),
        1.0 / model.costs.per_byte_us
    );
    fitted(&text)
}

/// A post with and without Nagle's algorithm.
#[must_use]
pub fn post(model: &Post) -> String {
    let mut t = table(&["Nagle", "request ms", "requests per second"]);
    for (name, request) in [("on", model.nagle_request_us()), ("off", model.nodelay_request_us())] {
        t.add_row(vec![
            cell(name),
            number(format!("{:.1}", request / 1000.0)),
            number(format!("{:.1}", 1e6 / request)),
        ]);
    }
    let text = format!(
        "Header and body in two segments: the body leaves {:.1} ms behind the header, or when its ACK comes after {:.1} ms\n\n{t}",
        model.gap_us / 1000.0,
        model.ack_delay_us / 1000.0
    );
    fitted(&text)
}

/// The curve with its band.
#[must_use]
pub fn chart(setup: &Setup, limits: &Limits, curve: &[Point]) -> Option<String> {
    let of = |f: &dyn Fn(&Point) -> f64| -> Vec<(f64, f64)> {
        curve.iter().map(|p| (p.queue_depth.into(), f(p) / 1000.0)).collect()
    };
    band(&Curve {
        title: format!("at most {} IOPS, by {}", thousands(limits.iops_max), setup.ring.bottleneck().stages),
        x_label: "queue depth".to_owned(),
        y_label: "thousand IOPS".to_owned(),
        guaranteed: Area { low: of(&|p| p.band.low), high: of(&|p| p.band.high) },
        settles: Area { low: of(&|p| p.outcome.iops_low), high: of(&|p| p.outcome.iops_high) },
        mean: of(&|p| p.outcome.iops.value),
    })
}

/// The JSON object of a ring, with its documented keys.
#[must_use]
pub fn json(setup: &Setup, limits: &Limits, curve: &[Point], predictions: &[Prediction]) -> Value {
    let ring = &setup.ring;
    let wire = setup.link.wire();
    json!({
        "rtt_min_us": ring.rtt_min_us(),
        "rtt_alone_us": ring.rtt_alone_us(),
        "tpt_min_us": 1e6 / limits.iops_max,
        "bottleneck": limits.bottleneck,
        "iops_max": limits.iops_max,
        "knee_queue_depth": limits.knee,
        "terms": setup.terms().iter().map(|t| {
            (t.term.to_owned(), json!({ "us": t.us.value, "plus_minus_us": t.us.plus_minus }))
        }).collect::<serde_json::Map<_, _>>(),
        "utilisation": limits.busy.iter().map(|u| json!({
            "stages": u.load.stages,
            "share": u.share.min(1.0),
        })).collect::<Vec<_>>(),
        "stages": ring.stages(),
        "wire": {
            "bits_per_second": setup.link.bits_per_second,
            "mtu_bytes": setup.link.mtu_bytes,
            "efficiency": wire.efficiency(),
            "request_bytes": setup.messages.request_bytes(),
            "response_bytes": setup.messages.response_bytes(),
            "responses_per_packet": setup.responses_per_packet(),
            "w1_own_packet_us": wire.own_packets_us(setup.messages.request_bytes()),
            "w1_packed_us": wire.packed_us(setup.messages.request_bytes()),
            "w2_own_packet_us": wire.own_packets_us(setup.messages.response_bytes()),
            "w2_packed_us": wire.packed_us(setup.messages.response_bytes()),
            "iops_limit": wire.bits_per_second as f64 / 8.0 / setup.messages.response_bytes() as f64,
            "iops_limit_packed": wire.iops_limit(setup.messages.response_bytes()),
        },
        "nagle": setup.nagle_needs(),
        "sessions": setup.sessions,
        "curve": curve.iter().map(|p| json!({
            "queue_depth": p.queue_depth,
            "iops_low": p.band.low,
            "iops_high": p.band.high,
            "iops": p.outcome.iops.value,
            "iops_plus_minus": p.outcome.iops.plus_minus,
            "exact_iops_low": p.outcome.iops_low,
            "exact_iops_high": p.outcome.iops_high,
            "rtt_us": p.outcome.rtt_us.value,
            "rtt_plus_minus_us": p.outcome.rtt_us.plus_minus,
            "rtt_p50_us": p.outcome.exact.as_ref().map(|e| e.rtt_p50_us),
            "rtt_p99_us": p.outcome.exact.as_ref().map(|e| e.rtt_p99_us),
            "rtt_max_us": p.outcome.exact.as_ref().map(|e| e.rtt_max_us),
            "cycles": p.outcome.exact.as_ref().map(|e| &e.cycles),
        })).collect::<Vec<_>>(),
        "what_if": predictions.iter().map(|p| json!({
            "change": p.change,
            "iops_before": p.iops_before.value,
            "iops_after": p.iops_after.value,
            "iops_after_plus_minus": p.iops_after.plus_minus,
            "rtt_before_us": p.rtt_us_before.value,
            "rtt_after_us": p.rtt_us_after.value,
            "bottleneck_after": p.bottleneck_after,
            "gain": p.gain,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn the_limit_under_nagle_is_that_of_full_packets() {
        let Some(Ok(model::Model::Ring(setup))) = model::preset::named("seed-512-nagle") else { panic!() };
        let limits = Limits::of(&setup).unwrap();
        let text = text(&setup, &limits, &[], &[]);
        // 15.9 us less what 14.98 of 15.98 responses save of the 6 us for a packet sent: 1.9 us come with each request.
        let us = 15.9 - 6.0 * (1.0 - 560.0 / 8948.0);
        assert!((limits.iops_max * us / 1e6 - 1.0).abs() < 1e-6, "{limits:?}");
        let said = format!("TPTmin {us:.1} us in full packets by SI+SP+SK");
        assert!(text.replace("\n  ", " ").contains(&said), "{text}");
    }

    #[test]
    #[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    fn json_has_the_figures_of_the_model() {
        let Some(Ok(model::Model::Ring(setup))) = model::preset::named("seed-512") else { panic!() };
        let curve: Vec<Point> = [3, 64]
            .map(|queue_depth| Point {
                queue_depth,
                band: setup.band(queue_depth).unwrap(),
                outcome: setup.outcome(queue_depth).unwrap(),
            })
            .into();
        let json = json(&setup, &Limits::of(&setup).unwrap(), &curve, &[]);
        let same = |place: &str, expected: f64| {
            let found = json.pointer(place).and_then(Value::as_f64);
            assert!(
                found.is_some_and(|found| (found - expected).abs() < 1e-9),
                "{place}: {found:?} {expected}"
            );
        };
        let ring = &setup.ring;
        same("/rtt_min_us", ring.stages().iter().map(|stage| stage.service_us).sum());
        let latencies: f64 = ring.stages().iter().map(|stage| stage.start_latency_us).sum();
        same("/rtt_alone_us", ring.rtt_min_us() + latencies);
        same("/iops_max", 1e6 / json["tpt_min_us"].as_f64().unwrap());
        same("/knee_queue_depth", ring.knee());
        let term = |name: &str| json["terms"][name]["us"].as_f64().unwrap();
        for (name, published) in [("SL", 16.7), ("CL", 23.7), ("(CT+SR)+(ST+CR)", 204.5)] {
            assert!((term(name) - published).abs() < 0.05, "{name}");
        }
        // "about 388 nanoseconds"; "about 1.1 microseconds"; "Network utilization averages (W2 / SP)".
        same("/wire/w1_packed_us", 0.048 * 8.0 * 9038.0 / 8948.0);
        same("/wire/w1_own_packet_us", 1.104);
        same("/wire/w2_own_packet_us", 5.2);
        same("/wire/w2_packed_us", 0.56 * 8.0 * 9038.0 / 8948.0);
        same("/wire/iops_limit", 125e6 / 560.0);
        same("/wire/iops_limit_packed", 125e6 / 560.0 * 8948.0 / 9038.0);
        let share = |stages: &str| {
            let all = json["utilisation"].as_array().unwrap();
            all.iter().find(|u| u["stages"] == stages).unwrap()["share"].as_f64().unwrap()
        };
        assert!((share("W2") - 5.2 / 15.9).abs() < 1e-6 && (share("SI+SP+SK") - 1.0).abs() < 1e-9);
        same("/wire/mtu_bytes", setup.link.mtu_bytes.into());
        same("/wire/bits_per_second", setup.link.bits_per_second as f64);
        same("/wire/efficiency", setup.link.wire().efficiency());
        same("/wire/request_bytes", setup.messages.request_bytes() as f64);
        same("/wire/response_bytes", setup.messages.response_bytes() as f64);
        for (index, point) in curve.iter().enumerate() {
            let at = |key: &str| format!("/curve/{index}/{key}");
            let (outcome, exact) = (&point.outcome, point.outcome.exact.as_ref().unwrap());
            same(&at("queue_depth"), point.queue_depth.into());
            same(&at("iops_low"), point.band.low);
            same(&at("iops_high"), point.band.high);
            same(&at("iops"), outcome.iops.value);
            same(&at("iops_plus_minus"), outcome.iops.plus_minus);
            same(&at("exact_iops_low"), outcome.iops_low);
            same(&at("exact_iops_high"), outcome.iops_high);
            same(&at("rtt_us"), outcome.rtt_us.value);
            same(&at("rtt_plus_minus_us"), outcome.rtt_us.plus_minus);
            same(&at("rtt_p50_us"), exact.rtt_p50_us);
            same(&at("rtt_p99_us"), exact.rtt_p99_us);
            same(&at("rtt_max_us"), exact.rtt_max_us);
            // Little's law, and the exact throughputs within the band.
            let depth = outcome.iops.value * outcome.rtt_us.value / 1e6;
            assert!((depth / f64::from(point.queue_depth) - 1.0).abs() < 0.01, "{depth}");
            assert!(
                point.band.low <= outcome.iops_low * 1.0001 && outcome.iops_high <= point.band.high * 1.0001
            );
        }
    }
}
