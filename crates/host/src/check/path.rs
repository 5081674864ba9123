//! Rules about the path to the peer.

use crate::facts::Facts;
use crate::finding::Finding;

mod buffers;
mod mtu;

pub(super) use buffers::is_below_need;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    facts
        .path
        .iter()
        .flat_map(|path| mtu::findings(facts, path).into_iter().chain(buffers::findings(facts, path)))
        .collect()
}
