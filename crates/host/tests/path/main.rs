//! The path to a peer, TCP's settings, processors and initiators: facts of real kernels and of trees of files, and the rules.

mod cpu_rules;
mod hosts;
mod initiator_rules;
mod lab;
mod network;
mod path_rules;
mod tcp_rules;
mod tree;

use host::facts::Facts;
use host::finding::Finding;

/// The one finding with an id.
#[track_caller]
fn only(facts: &Facts, id: &str) -> Finding {
    let all = host::check::findings(facts);
    let mut own: Vec<Finding> = all.iter().filter(|finding| finding.id == id).cloned().collect();
    assert_eq!(own.len(), 1, "{id}: {all:#?}");
    assert!(host::explain::of(id).is_some(), "{id} has no explanation");
    own.remove(0)
}

/// The ids of all findings.
fn ids(facts: &Facts) -> Vec<String> {
    host::check::findings(facts).into_iter().map(|finding| finding.id).collect()
}

/// The settings that a finding changes, as `setting = value`.
fn changes(finding: &Finding) -> Vec<String> {
    finding.changes.iter().map(|change| format!("{} = {}", change.setting, change.value)).collect()
}
