//! From hop to hop: the largest packet that each answers, without I/O.
//!
//! A packet that vanishes while a small one is answered, again and again, met a link that it does not fit: the router before
//! it must say so (RFC 1191), and either does not or is not heard.

use std::net::IpAddr;

use super::search::{Fate, narrow};
use crate::facts::path::{DatagramFacts, HopFacts};

/// Packets of this size pass everywhere, bytes.
const SMALL_BYTES: u32 = 80;

/// Hops to follow.
const HOPS: u8 = 24;

/// After this many silent hops in a row the peer is asked directly.
const SILENT_HOPS: u32 = 3;

/// The TTL of packets for the peer itself.
const FAR: u8 = 64;

/// MTUs to try where a router does not say which (RFC 1191 7.1, and tunnels of today).
const PLATEAUS: [u32; 9] = [9000, 4352, 1500, 1492, 1400, 1280, 1006, 576, 68];

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Answer {
    /// The packet reached the peer.
    Arrived { from: Option<IpAddr>, rtt_us: f64 },
    /// It reached a router as its last hop.
    TimeExceeded { from: Option<IpAddr>, rtt_us: f64 },
    /// It does not fit the next link; an MTU of 0 is not stated.
    TooBig { from: Option<IpAddr>, mtu_bytes: u32 },
    /// A router refuses to forward it.
    Rejected { from: Option<IpAddr> },
    /// Nothing, in time.
    Silence,
    /// No more probes may be sent.
    Over,
}

/// A network that takes probes.
pub(super) trait Network {
    /// Sends a packet of this size, bytes, that ends after `ttl` hops.
    fn probe(&mut self, ttl: u8, packet_bytes: u32) -> Answer;
    /// Waits until hosts that limit their answers answer again.
    fn pause(&mut self);
}

/// What a walk found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Walk {
    pub(super) datagrams: DatagramFacts,
    pub(super) hops: Vec<HopFacts>,
}

/// Walks to the peer with packets that are as large as the path still carries.
pub(super) fn walk(network: &mut impl Network, start_bytes: u32) -> Walk {
    let mut walker = Walker { network, size: start_bytes.max(SMALL_BYTES), found: Walk::default() };
    let mut silent = 0;
    for ttl in 1..=HOPS {
        match walker.step(ttl) {
            Step::Peer | Step::Over => return walker.found,
            Step::Router => silent = 0,
            Step::Silent => silent += 1,
        }
        if silent >= SILENT_HOPS {
            break;
        }
    }
    walker.step(FAR);
    walker.found
}

struct Walker<'a, N> {
    network: &'a mut N,
    /// The largest packet that the path may still carry.
    size: u32,
    found: Walk,
}

enum Step {
    Router,
    Peer,
    Silent,
    Over,
}

impl<N: Network> Walker<'_, N> {
    /// Asks the hop at a distance.
    fn step(&mut self, ttl: u8) -> Step {
        let mut answer = self.settle(ttl);
        let mut lost = None;
        if answer == Answer::Silence {
            let large = self.size;
            match compare(self.network, ttl, large, 2) {
                Fate::Lost => {
                    let (passes, vanishes) = {
                        let network = &mut *self.network;
                        narrow(SMALL_BYTES, large, |bytes| compare(network, ttl, bytes, 1))
                    };
                    self.size = passes;
                    lost = Some(vanishes);
                    answer = self.network.probe(ttl, passes);
                    if answer == Answer::Silence {
                        self.network.pause();
                        answer = self.network.probe(ttl, passes);
                    }
                }
                // The first packet was lost by chance.
                Fate::Passed => answer = self.network.probe(ttl, large),
                Fate::Unknown => {}
            }
        }
        self.note(ttl, answer, lost)
    }

    /// Lowers the size until no router says that it is too big.
    fn settle(&mut self, ttl: u8) -> Answer {
        // Each answer lowers it; the plateaus bound those that state nothing, and a path has not more links than hops.
        for _ in 0..HOPS {
            match self.network.probe(ttl, self.size) {
                Answer::TooBig { from, mtu_bytes } => self.lower(from, mtu_bytes),
                other => return other,
            }
        }
        Answer::Over
    }

    /// Takes the MTU that a router announced. One that is not smaller, or too small to be true, states nothing.
    fn lower(&mut self, from: Option<IpAddr>, mtu_bytes: u32) {
        let stated = (68..self.size).contains(&mtu_bytes);
        let next = if stated {
            mtu_bytes
        } else {
            PLATEAUS.into_iter().find(|plateau| *plateau < self.size).unwrap_or(SMALL_BYTES)
        };
        self.size = next.max(SMALL_BYTES);
        let Some(from) = from else { return };
        if stated {
            let datagrams = &mut self.found.datagrams;
            datagrams.announced_mtu_bytes =
                Some(datagrams.announced_mtu_bytes.map_or(mtu_bytes, |least| least.min(mtu_bytes)));
        }
        let from = from.to_string();
        if let Some(hop) = self.found.hops.iter_mut().rev().find(|hop| hop.address.as_ref() == Some(&from)) {
            hop.announced_mtu_bytes = stated.then_some(mtu_bytes);
        }
    }

    fn note(&mut self, ttl: u8, answer: Answer, lost: Option<u32>) -> Step {
        let (from, rtt_us, is_peer) = match answer {
            Answer::Arrived { from, rtt_us } => (from, Some(rtt_us), true),
            Answer::TimeExceeded { from, rtt_us } => (from, Some(rtt_us), false),
            Answer::Over => return Step::Over,
            // A firewall: nothing further can be learnt.
            Answer::Rejected { from } => (from, None, false),
            Answer::Silence | Answer::TooBig { .. } => (None, None, false),
        };
        let datagrams = &mut self.found.datagrams;
        datagrams.smallest_lost_bytes = datagrams.smallest_lost_bytes.into_iter().chain(lost).min();
        if is_peer {
            datagrams.largest_answered_bytes = Some(self.size);
        }
        // The distance of a peer that was asked directly is not known.
        if ttl != FAR {
            self.found.hops.push(HopFacts {
                ttl,
                address: from.map(|from| from.to_string()),
                rtt_us,
                announced_mtu_bytes: None,
                largest_answered_bytes: rtt_us.map(|_| self.size),
                smallest_lost_bytes: lost,
                is_peer,
            });
        }
        match answer {
            Answer::Arrived { .. } => Step::Peer,
            Answer::Rejected { .. } => Step::Over,
            Answer::TimeExceeded { .. } => Step::Router,
            _ => Step::Silent,
        }
    }
}

/// Whether large packets vanish where small ones are answered, in as many `rounds`. A host that limits its answers may be silent
/// to one and answer the next: a large packet counts as lost only if it was sent after a pause, and a small one after it was
/// answered.
fn compare(network: &mut impl Network, ttl: u8, large: u32, rounds: u32) -> Fate {
    match network.probe(ttl, large) {
        Answer::Silence => {}
        Answer::Arrived { .. } | Answer::TimeExceeded { .. } => return Fate::Passed,
        _ => return Fate::Unknown,
    }
    for _ in 0..rounds {
        network.pause();
        match network.probe(ttl, large) {
            Answer::Silence => {}
            Answer::Arrived { .. } | Answer::TimeExceeded { .. } => return Fate::Passed,
            _ => return Fate::Unknown,
        }
        if !matches!(network.probe(ttl, SMALL_BYTES), Answer::Arrived { .. } | Answer::TimeExceeded { .. }) {
            return Fate::Unknown;
        }
    }
    Fate::Lost
}

#[cfg(test)]
mod tests;
