//! The rules: from facts to findings, without I/O. One area per file.

use crate::facts::Facts;
use crate::finding::Finding;

mod cpu;
mod draft;
mod initiator;
mod link;
pub(crate) mod load;
mod path;
mod peer;
mod shell;
mod socket;
mod tcp;

/// The findings of a host, the worst first.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let areas = [
        link::findings,
        peer::findings,
        path::findings,
        load::findings,
        tcp::findings,
        cpu::findings,
        initiator::findings,
        socket::findings,
    ];
    let mut all: Vec<Finding> = areas.iter().flat_map(|area| area(facts)).collect();
    all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    all
}
