//! Rules about links. Each looks at one interface.

mod counters;
mod modes;
mod partner;
mod remedy;
mod settings;

pub(super) use modes::is_twisted_pair;
pub(super) use partner::Partner;
pub(super) use remedy::to_negotiation;

use super::draft;

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

/// The rules about counters that move, for an interface whose counters were watched under load.
pub(in crate::check) fn under_load(link: &LinkFacts) -> Vec<Finding> {
    let rules: [Rule; 8] = [
        counters::late_collisions,
        counters::crc_errors,
        counters::alignment_errors,
        counters::symbol_errors,
        counters::fec_uncorrectable,
        counters::carrier_errors,
        counters::ring_overruns,
        counters::receive_drops,
    ];
    rules.iter().filter_map(|rule| rule(link, &Facts::default())).collect()
}

/// A finding about an interface, without cost, changes and remedy.
pub(in crate::check) fn finding(
    id: &str,
    severity: Severity,
    link: &LinkFacts,
    measured: String,
    why: &str,
) -> Finding {
    draft::finding(id, severity, link.name(), measured, why)
}

/// How a finding continues about the time that the check watched: ` within 2.0 s`.
fn within(link: &LinkFacts) -> String {
    link.watched.as_ref().map(|watched| format!(" within {:.1} s", watched.seconds)).unwrap_or_default()
}
