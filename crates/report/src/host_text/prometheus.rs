//! The text format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;

use host::report::Checked;

const BITS_PER_MEGABIT: u64 = 1_000_000;

/// Findings and counters of a check.
#[must_use]
pub fn prometheus(checked: &Checked) -> String {
    let mut metrics = Metrics::default();
    let [broken, slow, note] = ["broken", "slow", "note"].map(|severity| [("severity", severity)]);
    let findings = Metric { name: "roundtrip_host_findings", kind: "gauge", help: "Findings by severity." };
    for labels in [&broken, &slow, &note] {
        metrics.add(&findings, labels, 0);
    }
    let each =
        Metric { name: "roundtrip_host_finding", kind: "gauge", help: "Findings by name and subject." };
    for found in &checked.findings {
        let severity = super::severity(found.severity);
        metrics.add(&findings, &[("severity", severity)], 1);
        metrics.add(&each, &[("id", &found.id), ("subject", &found.subject), ("severity", severity)], 1);
    }
    let unseen =
        Metric { name: "roundtrip_host_unseen", kind: "gauge", help: "Things that could not be read." };
    metrics.add(&unseen, &[], checked.facts.unseen.len() as u64);
    links(&mut metrics, checked);
    load(&mut metrics, checked);
    metrics.text()
}

fn links(metrics: &mut Metrics, checked: &Checked) {
    let gauge = |name, help| Metric { name, kind: "gauge", help };
    let counter = |name, help| Metric { name, kind: "counter", help };
    let up = gauge("roundtrip_host_link_up", "Whether the interface has a link.");
    let speed = gauge("roundtrip_host_link_speed_bits_per_second", "Speed of the link.");
    let duplex = gauge("roundtrip_host_link_full_duplex", "Whether the link is full duplex.");
    let mtu = gauge("roundtrip_host_link_mtu_bytes", "MTU of the interface.");
    let carrier = counter("roundtrip_host_link_carrier_changes_total", "How often the carrier came or went.");
    let errors = counter("roundtrip_host_link_errors_total", "Errors and drops by counter.");
    for facts in &checked.facts.links {
        let interface = [("interface", facts.name())];
        metrics.add(&up, &interface, u64::from(facts.has_link()));
        metrics.add(&mtu, &interface, u64::from(facts.link.mtu));
        if let Some(modes) = facts.modes.as_ref().filter(|_| facts.has_link()) {
            if let Some(mbps) = modes.speed_mbps {
                metrics.add(&speed, &interface, u64::from(mbps) * BITS_PER_MEGABIT);
            }
            if let Some(is) = modes.duplex {
                metrics.add(&duplex, &interface, u64::from(is == netlink::ethtool::Duplex::Full));
            }
        }
        if let Some(changes) = facts.link.carrier_changes {
            metrics.add(&carrier, &interface, u64::from(changes));
        }
        for (name, value) in facts.link.counters.map(|counters| counters.all()).unwrap_or_default() {
            if name.ends_with("errors") || name.ends_with("dropped") || name == "collisions" {
                metrics.add(&errors, &[("interface", facts.name()), ("counter", name)], value);
            }
        }
    }
}

fn load(metrics: &mut Metrics, checked: &Checked) {
    let gauge = |name, help| Metric { name, kind: "gauge", help };
    let rate = gauge("roundtrip_host_load_bits_per_second", "What arrived in a run of the load test.");
    let again =
        gauge("roundtrip_host_load_retransmitted_segments", "Segments sent again in a run of the load test.");
    for (run, measured) in checked.facts.load.iter().flat_map(host::facts::load::LoadFacts::runs) {
        for (direction, stream) in [("to", &measured.to_peer), ("from", &measured.from_peer)] {
            let Some(stream) = stream else { continue };
            let labels = [("run", run), ("direction", direction)];
            if let Some(bits) = stream.received.rate() {
                metrics.add(&rate, &labels, bits.round() as u64);
            }
            if let Some(sent) = stream.sender {
                metrics.add(&again, &labels, u64::from(sent.retransmitted_segments));
            }
        }
    }
}

struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

/// Series in the order of their first mention; one that is added twice is summed, as a series may appear once only.
#[derive(Default)]
struct Metrics {
    order: Vec<&'static str>,
    heads: BTreeMap<&'static str, String>,
    series: BTreeMap<&'static str, BTreeMap<String, u64>>,
}

impl Metrics {
    fn add(&mut self, metric: &Metric, labels: &[(&str, &str)], value: u64) {
        let Metric { name, kind, help } = *metric;
        if self.heads.insert(name, format!("# HELP {name} {help}\n# TYPE {name} {kind}\n")).is_none() {
            self.order.push(name);
        }
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let place = self.series.entry(name).or_default().entry(labels).or_default();
        *place = place.saturating_add(value);
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for name in &self.order {
            text += self.heads.get(name).map(String::as_str).unwrap_or_default();
            for (labels, value) in self.series.get(name).into_iter().flatten() {
                text += &format!("{name}{labels} {value}\n");
            }
        }
        text
    }
}

/// A label's value. Backslash, quote and line feed have escapes; other control characters have none and become spaces.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\\' => text += "\\\\",
            '"' => text += "\\\"",
            '\n' => text += "\\n",
            other if other.is_control() => text.push(' '),
            other => text.push(other),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use host::facts::Facts;
    use host::facts::link::LinkFacts;
    use host::finding::{Finding, Severity};
    use netlink::ethtool::{Duplex, LinkModes};
    use netlink::route::{Counters, Link};

    use super::*;

    fn found(id: &str, subject: &str, severity: Severity) -> Finding {
        Finding {
            id: id.to_owned(),
            severity,
            subject: subject.to_owned(),
            measured: String::new(),
            why: String::new(),
            cost: None,
            commands: Vec::new(),
            changes: Vec::new(),
            other_end: None,
        }
    }

    #[test]
    fn series_appear_once_and_hostile_names_are_escaped() {
        let link = LinkFacts {
            link: Link {
                name: "a\"b\\c\nd\u{1b}".to_owned(),
                is_up: true,
                has_carrier: Some(true),
                mtu: 9000,
                carrier_changes: Some(3),
                counters: Some(Counters { rx_crc_errors: 7, ..Counters::default() }),
                ..Link::default()
            },
            modes: Some(LinkModes {
                speed_mbps: Some(1000),
                duplex: Some(Duplex::Full),
                ..LinkModes::default()
            }),
            ..LinkFacts::default()
        };
        let findings = vec![
            found("link-errors", "eth0", Severity::Broken),
            found("link-errors", "eth0", Severity::Broken),
            found("coalescing", "eth0", Severity::Slow),
        ];
        let text = prometheus(&Checked { facts: Facts { links: vec![link], ..Facts::default() }, findings });
        for line in [
            "roundtrip_host_findings{severity=\"broken\"} 2",
            "roundtrip_host_findings{severity=\"note\"} 0",
            "roundtrip_host_finding{id=\"link-errors\",subject=\"eth0\",severity=\"broken\"} 2",
            "roundtrip_host_unseen 0",
            "roundtrip_host_link_up{interface=\"a\\\"b\\\\c\\nd \"} 1",
            "roundtrip_host_link_speed_bits_per_second{interface=\"a\\\"b\\\\c\\nd \"} 1000000000",
            "roundtrip_host_link_full_duplex{interface=\"a\\\"b\\\\c\\nd \"} 1",
            "roundtrip_host_link_mtu_bytes{interface=\"a\\\"b\\\\c\\nd \"} 9000",
            "roundtrip_host_link_carrier_changes_total{interface=\"a\\\"b\\\\c\\nd \"} 3",
            "roundtrip_host_link_errors_total{interface=\"a\\\"b\\\\c\\nd \",counter=\"rx_crc_errors\"} 7",
        ] {
            assert_eq!(text.lines().filter(|l| *l == line).count(), 1, "{line}\n{text}");
        }
        let heads =
            text.lines().filter(|line| line.starts_with("# TYPE roundtrip_host_link_errors_total ")).count();
        assert_eq!(heads, 1);
    }
}
