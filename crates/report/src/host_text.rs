//! What a host does to a round trip, as text: the result of `roundtrip host check`, one interface, and the format of Prometheus.

use host::facts::peer::PeerFacts;
use host::finding::{Cost, Finding, Severity};
use host::report::Checked;
use output::text::{line, wrapped};
use record::units::{counted, format_bit_rate, grouped};

use crate::terminal::{cell, number, stacked, table};

mod interface;
mod load;
mod prometheus;

pub use interface::link;
pub use prometheus::prometheus;

/// Width of the names before the lines of a finding.
const NAME: usize = 9;

/// The result of a check.
#[must_use]
pub fn check(checked: &Checked) -> String {
    let mut text = format!("{}\n\n", summary(&checked.findings));
    if !checked.facts.links.is_empty() {
        text += &format!("{}\n\n", links(checked));
    }
    for peer in &checked.facts.peers {
        text += &format!("{}\n", other_end(peer));
    }
    if !checked.facts.peers.is_empty() {
        text.push('\n');
    }
    if let Some(load) = &checked.facts.load {
        text += &format!("{}\n", load::load(load));
    }
    for (index, found) in checked.findings.iter().enumerate() {
        text += &format!("{}\n", finding(index + 1, found));
    }
    for unseen in &checked.facts.unseen {
        text += &wrapped(format_args!("not seen: {}: {}", unseen.what, unseen.why), "  ");
    }
    text.trim_end().to_owned()
}

/// A row for each interface.
fn links(checked: &Checked) -> String {
    let heading =
        ["interface", "driver", "link", "Mb/s", "duplex", "negotiates", "MTU", "carrier changes", "errors"];
    let mut table = table(&heading);
    for facts in &checked.facts.links {
        let modes = facts.modes.as_ref();
        let speed = modes.and_then(|modes| modes.speed_mbps).filter(|_| facts.has_link());
        let duplex = modes.and_then(|modes| modes.duplex).filter(|_| facts.has_link());
        let counters = facts.link.counters.unwrap_or_default();
        table.add_row(vec![
            cell(facts.name()),
            cell(facts.driver.as_deref().unwrap_or("-")),
            cell(interface::state(facts)),
            number(speed.map_or("-".to_owned(), |speed| grouped(u64::from(speed)))),
            cell(duplex.map_or("-".to_owned(), |duplex| duplex.to_string())),
            cell(interface::switch(modes.and_then(|modes| modes.autoneg))),
            number(facts.link.mtu.to_string()),
            number(facts.link.carrier_changes.map_or("-".to_owned(), |changes| grouped(u64::from(changes)))),
            number(grouped(counters.rx_errors + counters.tx_errors)),
        ]);
    }
    stacked(&table, 1)
}

/// A line about the other end.
fn other_end(peer: &PeerFacts) -> String {
    match peer {
        PeerFacts::Lldp { interface, neighbour } => {
            let system = neighbour.system_name.as_deref().unwrap_or(&neighbour.chassis);
            let mut text =
                format!("{} leads to port {} of {}", line(interface), line(&neighbour.port), line(system));
            if let Some(mac_phy) = &neighbour.mac_phy {
                let operating = match &mac_phy.operating {
                    Some(operating) => line(&operating.name).to_string(),
                    None => format!("operating type {}", mac_phy.mau_type),
                };
                let negotiates = if mac_phy.negotiates { "negotiates" } else { "does not negotiate" };
                text += &format!(", which {negotiates}: {operating}");
            }
            if let Some(bytes) = neighbour.max_frame_bytes {
                text += &format!(", frames up to {bytes} bytes");
            }
            text
        }
        PeerFacts::Ssh { destination, host } => {
            let findings = counted(host.findings.len() as u64, "finding");
            format!("{} ({}) was checked over ssh: {findings}", line(destination), line(&host.hostname))
        }
    }
}

/// A finding with its number, which `roundtrip host tune` does not need: it takes the name.
fn finding(number: usize, found: &Finding) -> String {
    let severity = severity(found.severity);
    let mut text = format!("{number}. {severity}: {} ({})\n", line(&found.id), line(&found.subject));
    let mut said = |name: &str, value: &str| {
        text += &wrapped(format_args!("   {name:NAME$}  {value}"), &" ".repeat(NAME + 5));
    };
    said("measured", &found.measured);
    said("why", &found.why);
    if let Some(cost) = found.cost.as_ref().and_then(cost) {
        said("costs", &cost);
    }
    // A command that is broken into lines could not be copied.
    let mut row = |name: &str, value: &str| text += &format!("   {name:NAME$}  {}\n", line(value));
    for (index, command) in found.commands.iter().enumerate() {
        row(if index == 0 { "remedy" } else { "" }, command);
    }
    if !found.changes.is_empty() {
        row("or", &format!("roundtrip host tune {}", found.id));
    }
    if let Some(other_end) = &found.other_end {
        row("other end", other_end);
    }
    text
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Slow => "slow",
        Severity::Broken => "broken",
    }
}

fn cost(cost: &Cost) -> Option<String> {
    let time = cost.us_per_round_trip.map(|us| format!("up to {us:.1} us for each round trip"));
    let rate = cost
        .bits_per_second_at_most
        .map(|bits| format!("at most {}/s", format_bit_rate(bits.round() as u64)));
    let parts: Vec<String> = time.into_iter().chain(rate).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn summary(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "nothing found".to_owned();
    }
    let of = |severity: Severity| findings.iter().filter(|found| found.severity == severity).count();
    format!(
        "{}: {} broken, {} slow, {} to note",
        counted(findings.len() as u64, "finding"),
        of(Severity::Broken),
        of(Severity::Slow),
        of(Severity::Note)
    )
}

#[cfg(test)]
mod tests {
    use host::facts::Facts;
    use host::facts::link::LinkFacts;
    use host::facts::peer::{MacPhy, Neighbour, Operating};
    use netlink::route::{Counters, Link};

    use super::*;

    fn found(severity: Severity) -> Finding {
        Finding {
            id: "half-duplex".to_owned(),
            severity,
            subject: "eth0".to_owned(),
            measured: "100 Mb/s, half duplex".to_owned(),
            why: "because".to_owned(),
            cost: Some(Cost { us_per_round_trip: Some(33.0), bits_per_second_at_most: Some(100e6) }),
            commands: vec!["first".to_owned(), "second".to_owned()],
            changes: Vec::new(),
            other_end: Some("likewise".to_owned()),
        }
    }

    #[test]
    fn findings_are_counted_by_severity() {
        let findings = [Severity::Broken, Severity::Slow, Severity::Slow, Severity::Note].map(found).to_vec();
        let text = check(&Checked { facts: Facts::default(), findings });
        assert_eq!(text.lines().next(), Some("4 findings: 1 broken, 2 slow, 1 to note"));
        let first = "\n\n1. broken: half-duplex (eth0)\n   \
                     measured   100 Mb/s, half duplex\n   \
                     why        because\n   \
                     costs      up to 33.0 us for each round trip; at most 100mbit/s\n   \
                     remedy     first\n   \
                     \x20          second\n   \
                     other end  likewise\n";
        assert!(text.contains(first), "{text}");
        assert_eq!(check(&Checked::default()), "nothing found");
    }

    #[test]
    fn errors_of_both_directions_are_summed() {
        let counters = Counters { rx_errors: 1200, tx_errors: 34, ..Counters::default() };
        let link = Link { name: "eth0".to_owned(), mtu: 9000, counters: Some(counters), ..Link::default() };
        let facts = Facts { links: vec![LinkFacts { link, ..LinkFacts::default() }], ..Facts::default() };
        let text = check(&Checked { facts, findings: Vec::new() });
        let rows: Vec<&str> = text.lines().filter(|line| line.contains("eth0")).collect();
        let has = |text: &str| rows.iter().any(|row| row.trim_end().ends_with(text));
        assert!(has("1 234") && has("9000"), "{text}");
    }

    #[test]
    fn a_neighbour_is_told_in_one_line() {
        let operating = Operating {
            name: "1000BASE-T".to_owned(),
            speed_mbps: 1000,
            duplex: None,
            is_twisted_pair: true,
        };
        let mut neighbour = Neighbour {
            port: "Gi1/0/7".to_owned(),
            system_name: Some("switch1\u{1b}[31m".to_owned()),
            mac_phy: Some(MacPhy { negotiates: true, operating: Some(operating), ..MacPhy::default() }),
            max_frame_bytes: Some(1522),
            ..Neighbour::default()
        };
        let told = |neighbour: &Neighbour| {
            other_end(&PeerFacts::Lldp {
                interface: "eth0".to_owned(),
                neighbour: Box::new(neighbour.clone()),
            })
        };
        let text = told(&neighbour);
        assert!(
            text.starts_with("eth0 leads to port Gi1/0/7 of switch1") && !text.contains('\u{1b}'),
            "{text}"
        );
        assert!(text.ends_with(", which negotiates: 1000BASE-T, frames up to 1522 bytes"), "{text}");
        neighbour.mac_phy = Some(MacPhy { mau_type: 99, ..MacPhy::default() });
        assert!(told(&neighbour).contains(", which does not negotiate: operating type 99"));
    }
}
