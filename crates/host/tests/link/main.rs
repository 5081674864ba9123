//! Facts and rules about links: cards as data, LLDP frames as data, and devices of the kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod card;
mod cards;
mod devices;
mod hostile;
mod neighbours;
mod remedies;
mod two_hosts;

use host::facts::Facts;
use host::facts::link::LinkFacts;

/// The names of the findings about one link, sorted.
fn names(link: LinkFacts) -> Vec<String> {
    let facts = Facts { links: vec![link], ..Facts::default() };
    sorted(host::check::findings(&facts).into_iter().map(|finding| finding.id).collect())
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}
