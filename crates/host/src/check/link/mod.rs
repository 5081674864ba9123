//! Rules about links. Each looks at one interface.

mod counters;
mod modes;
mod settings;

pub(super) use modes::is_twisted_pair;

use crate::facts::Facts;
use crate::facts::link::LinkFacts;
use crate::finding::{Finding, Severity};

/// A rule about one interface.
type Rule = fn(&LinkFacts, &Facts) -> Option<Finding>;

const RULES: [Rule; 20] = [
    modes::no_link,
    modes::fec_mismatch,
    modes::half_duplex,
    modes::partner_not_negotiating,
    modes::forced_link,
    modes::slow_link,
    modes::flapping,
    counters::late_collisions,
    counters::crc_errors,
    counters::alignment_errors,
    counters::symbol_errors,
    counters::fec_uncorrectable,
    counters::carrier_errors,
    counters::ring_overruns,
    counters::receive_drops,
    counters::transmit_drops,
    counters::pause_frames,
    settings::offloads,
    settings::coalescing,
    settings::energy_efficient_ethernet,
];

pub(in crate::check) fn findings(facts: &Facts) -> Vec<Finding> {
    let links = facts.links.iter().filter(|facts| !facts.link.is_loopback);
    links.flat_map(|link| RULES.iter().filter_map(|rule| rule(link, facts))).collect()
}

/// A finding about an interface, without cost, changes and remedy.
pub(in crate::check) fn finding(
    id: &str,
    severity: Severity,
    link: &LinkFacts,
    measured: String,
    why: &str,
) -> Finding {
    Finding {
        id: id.to_owned(),
        severity,
        subject: link.name().to_owned(),
        measured,
        why: why.to_owned(),
        cost: None,
        commands: Vec::new(),
        changes: Vec::new(),
        other_end: None,
    }
}

/// How a finding continues about the time that the check watched: ` within 2.0 s`.
fn within(link: &LinkFacts) -> String {
    link.watched.as_ref().map(|watched| format!(" within {:.1} s", watched.seconds)).unwrap_or_default()
}
