//! Loads the path to the peer, where that is asked for.

use super::path::{Peer, resolve};
use super::{Roots, Wanted};
use crate::facts::Unseen;
use crate::facts::load::LoadFacts;
use crate::load::client;

/// Runs the load test that `wanted` asks for; `None` where it asks for none, or no run took place.
pub fn read(_roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> Option<LoadFacts> {
    let (spec, name) = (wanted.load.as_ref()?, wanted.peer.as_ref()?);
    let what = || format!("the load test with {name}");
    let found = name.parse::<Peer>().map_err(|error| error.to_string()).and_then(|peer| resolve(&peer));
    let mut address = match found {
        Ok(address) => address,
        Err(why) => {
            unseen.push(Unseen { what: what(), why });
            return None;
        }
    };
    address.set_port(spec.port);
    let (facts, outcome) = client::test(name, address, spec);
    if let Err(why) = outcome {
        unseen.push(Unseen { what: what(), why });
    }
    unseen.extend(crate::check::load::undecided(&facts));
    (facts.runs().count() > 0).then_some(facts)
}
