//! The load test with a peer: its rules on data, and its two ends on a real kernel's network in namespaces.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../path/lab.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod lab;
mod network;
mod rules;
mod strangers;

use host::facts::Facts;
use host::facts::load::LoadFacts;
use host::finding::Finding;

/// The findings about a load test.
fn findings(load: LoadFacts) -> Vec<Finding> {
    host::check::findings(&Facts { load: Some(load), ..Facts::default() })
}

fn ids(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{} ({})", finding.id, finding.subject)).collect()
}
