//! Rules about the system's settings of TCP.

use crate::facts::Facts;
use crate::finding::Finding;

mod counters;
mod routes;
mod settings;

pub(super) use settings::DEFAULT_RECEIVE_START_BYTES;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = settings::findings(facts);
    all.extend(routes::findings(facts));
    all.extend(counters::findings(&facts.tcp));
    all
}
