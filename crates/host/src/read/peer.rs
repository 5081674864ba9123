//! Reads facts about the other end: LLDP frames that arrive while the check watches, and a check on another host over ssh.

use super::path::Peer;
use super::{Roots, Wanted};
use crate::facts::Unseen;
use crate::facts::peer::PeerFacts;

mod lldp;
mod ssh;

/// Reads facts about the other end. Listens for the time of `wanted.watch`, or until each link has announced its neighbour.
#[must_use]
pub fn read(_roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> Vec<PeerFacts> {
    let mut unheard = Vec::new();
    let peer = wanted.peer.as_deref().filter(|_| wanted.ssh).and_then(|peer| peer.parse::<Peer>().ok());
    let destination = peer.map(|peer| peer.ssh_destination());
    let (mut peers, asked) = std::thread::scope(|scope| {
        let destination = destination.clone();
        let asked = destination.map(|destination| scope.spawn(move || ssh::check(&destination, wanted)));
        let heard = lldp::listen(wanted, &mut unheard);
        (heard, asked.map(std::thread::ScopedJoinHandle::join))
    });
    unseen.append(&mut unheard);
    let asked = asked.map(|asked| asked.unwrap_or_else(|_| Err("it panicked".to_owned())));
    match asked {
        None => {}
        Some(Ok(host)) => peers.push(host),
        Some(Err(why)) => {
            let what = format!("the check on {}", destination.unwrap_or_default());
            unseen.push(Unseen { what, why });
        }
    }
    peers
}
