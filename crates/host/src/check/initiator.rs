//! Rules about iSCSI initiators and their disks.

use crate::facts::Facts;
use crate::finding::Finding;

mod disks;
mod session;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = Vec::new();
    for initiator in &facts.initiators {
        all.extend(session::findings(facts, initiator));
        all.extend(disks::findings(facts, initiator));
    }
    all
}
