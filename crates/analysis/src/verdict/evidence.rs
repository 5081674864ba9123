//! Evidence gathered while traffic passes: sums and samples of stalls, of bounded size.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use record::{ConnectionFacts, Exchange, Observed, Opened, Side, Stall, StallKind};

use super::no_response::Unanswered;
use crate::ledger::Ledger;

/// Most stalls of a kind whose frames and waits are kept.
const KEPT_MAX: usize = 1000;
/// Most connections whose facts are kept.
const CONNECTIONS_MAX: usize = 4096;
/// Most connections whose packets are kept by capture point.
const PASSED_MAX: usize = 65_536;
/// Most requests without a response that are kept.
const UNANSWERED_MAX: usize = 65_536;

/// The stalls of a kind, of one side's data, as one capture point saw them.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    /// Their number.
    pub count: u64,
    /// Their total duration, nanoseconds.
    pub wait_ns: u64,
    /// The first ones' frames.
    pub frames: Vec<[u64; 3]>,
    /// The first ones' waits, nanoseconds.
    pub waits_ns: Vec<u64>,
    /// Connections that had them.
    pub connections: BTreeSet<u32>,
    /// Payload of the first segment that waited, bytes.
    pub segment_bytes: u32,
}

impl Stalls {
    /// A percentile of the waits, nanoseconds.
    pub(super) fn wait_at_ns(&self, share: f64) -> u64 {
        let mut waits = self.waits_ns.clone();
        waits.sort_unstable();
        let place = ((waits.len().saturating_sub(1)) as f64 * share).round() as usize;
        waits.get(place).copied().unwrap_or(0)
    }
}

/// All evidence.
#[derive(Debug, Default)]
pub struct Evidence {
    stalls: BTreeMap<(StallKind, Side, u32), Stalls>,
    /// The time of operations.
    pub ledger: Ledger,
    /// Operations.
    pub operations: u64,
    /// Requests without a response, by their connection and capture point.
    pub(super) unanswered: BTreeMap<(u32, u32), Vec<Unanswered>>,
    unanswered_count: usize,
    /// Connections that were requested and not established, by their ends.
    attempts: BTreeMap<(SocketAddr, SocketAddr), (u32, ConnectionFacts)>,
    /// When the last packet of a connection passed, nanoseconds since the epoch.
    pub(super) newest_ns: u64,
    /// Connections, by their number, as one capture point saw them.
    facts: BTreeMap<(u32, u32), ConnectionFacts>,
    /// Connections beyond those.
    pub connections_not_kept: u64,
    /// The side of each capture point, where known.
    places: Vec<Option<Side>>,
    /// Packets and bytes of connections by their number, of those without data by their ends, at each capture point, and of
    /// further ones.
    passed: BTreeMap<u32, Passed>,
    passed_empty: BTreeMap<(SocketAddr, SocketAddr), Passed>,
    passed_others: (u64, u64),
}

/// Packets and bytes at capture points.
type Passed = BTreeMap<u32, (u64, u64)>;

/// Adds a connection's packets at a capture point.
fn count<K: Ord>(
    passed: &mut BTreeMap<K, Passed>,
    others: &mut (u64, u64),
    key: K,
    vantage: u32,
    facts: &ConnectionFacts,
) {
    let sum = if passed.len() < PASSED_MAX || passed.contains_key(&key) {
        passed.entry(key).or_default().entry(vantage).or_default()
    } else {
        others
    };
    (sum.0, sum.1) = (sum.0 + facts.packets, sum.1 + facts.bytes);
}

impl Evidence {
    /// Adds an exchange that has ended.
    #[inline]
    pub fn observed(&mut self, observed: &Observed) {
        self.operations += 1;
        self.ledger.add(observed);
    }

    /// Adds a connection that is about to carry data; its number is that of the whole analysis.
    pub fn opened(&mut self, connection: u32, opened: &Opened) {
        self.ledger.opened(connection, opened.server);
    }

    /// Adds a request that got no response before the end of its connection or of the capture.
    pub fn unanswered(&mut self, vantage: u32, connection: u32, exchange: &Exchange) {
        if self.unanswered_count < UNANSWERED_MAX {
            self.unanswered_count += 1;
            self.unanswered.entry((connection, vantage)).or_default().push(Unanswered::of(exchange));
        }
    }

    /// Adds a stall seen at capture point `vantage`; its connection has the number of the whole analysis.
    pub fn stall(&mut self, vantage: u32, stall: &Stall) {
        let stalls = self.stalls.entry((stall.kind, stall.sender, vantage)).or_default();
        stalls.count += 1;
        stalls.wait_ns = stalls.wait_ns.saturating_add(stall.wait_ns);
        if stalls.frames.len() < KEPT_MAX {
            stalls.frames.push(stall.frames);
            stalls.waits_ns.push(stall.wait_ns);
        }
        if stalls.connections.len() < CONNECTIONS_MAX {
            stalls.connections.insert(stall.connection);
        }
        if stalls.count == 1 {
            stalls.segment_bytes = stall.segment_bytes;
        }
    }

    /// Adds a connection that has ended, as capture point `vantage` saw it.
    pub fn connection(&mut self, vantage: u32, facts: &ConnectionFacts) {
        self.newest_ns = self.newest_ns.max(facts.ended_ns);
        count(&mut self.passed, &mut self.passed_others, facts.connection, vantage, facts);
        self.ledger.far(facts.connection, facts.client_conduct.ack_min_ns);
        if self.facts.len() < CONNECTIONS_MAX {
            self.facts.insert((facts.connection, vantage), *facts);
        } else {
            self.connections_not_kept += 1;
        }
    }

    /// Adds a connection that ended before it carried data.
    pub fn empty_connection(&mut self, vantage: u32, facts: &ConnectionFacts) {
        self.newest_ns = self.newest_ns.max(facts.ended_ns);
        let ends = (facts.client, facts.server);
        count(&mut self.passed_empty, &mut self.passed_others, ends, vantage, facts);
        if facts.handshake_ns.is_none() && self.attempts.len() < CONNECTIONS_MAX {
            self.attempts.entry((facts.client, facts.server)).or_insert((vantage, *facts));
        }
    }

    /// The connections that ended before they carried data and were not established, with their capture point.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (u32, &ConnectionFacts)> {
        self.attempts.values().map(|(vantage, facts)| (*vantage, facts))
    }

    /// Packets of all connections and their bytes on the wire, each connection as the capture point that saw most of it.
    #[must_use]
    pub fn passed(&self) -> (u64, u64) {
        let all = self.passed.values().chain(self.passed_empty.values());
        all.map(|of| of.values().copied().max().unwrap_or_default())
            .chain([self.passed_others])
            .fold((0, 0), |sum, (packets, bytes)| (sum.0 + packets, sum.1 + bytes))
    }

    /// The connections, each with the facts of the capture point that saw most of it.
    pub fn connections(&self) -> impl Iterator<Item = (u32, &ConnectionFacts)> {
        let mut best: BTreeMap<u32, (u32, &ConnectionFacts)> = BTreeMap::new();
        for (&(connection, vantage), facts) in &self.facts {
            let entry = best.entry(connection).or_insert((vantage, facts));
            if facts.packets > entry.1.packets {
                *entry = (vantage, facts);
            }
        }
        best.into_values()
    }

    /// A connection's facts.
    pub(super) fn facts(&self, connection: u32) -> Option<&ConnectionFacts> {
        self.facts.range((connection, 0)..=(connection, u32::MAX)).next().map(|(_, facts)| facts)
    }

    /// Sets the side of each capture point, as far as connections that two points saw show it.
    pub fn set_places(&mut self, places: Vec<Option<Side>>) {
        self.places = places;
    }

    /// The side of a capture point, if known.
    fn place(&self, vantage: u32) -> Option<Side> {
        self.places.get(vantage as usize).copied().flatten()
    }

    /// A connection as the capture point nearest to a side saw it, which sees all that this side sends: what is lost on the
    /// path passes no other.
    pub(super) fn near(&self, connection: u32, side: Side) -> Option<(u32, &ConnectionFacts)> {
        self.facts
            .range((connection, 0)..=(connection, u32::MAX))
            .max_by_key(|&(&(_, vantage), facts)| {
                let conduct = facts.conduct(side);
                (self.place(vantage) == Some(side), conduct.segments + conduct.retransmitted, facts.packets)
            })
            .map(|(&(_, vantage), facts)| (vantage, facts))
    }

    /// Each side of each connection as a sender, as the capture point nearest to it saw it.
    pub(super) fn senders(&self) -> impl Iterator<Item = (u32, &ConnectionFacts, Side)> {
        self.connections().flat_map(|(_, facts)| {
            [Side::Client, Side::Server].into_iter().filter_map(|side| {
                self.near(facts.connection, side).map(|(vantage, facts)| (vantage, facts, side))
            })
        })
    }

    /// The requests of a connection without a response, each once: those of the capture point that has most of them, because
    /// a request or a response that is lost on the path passes only one point. And that point, with its facts.
    pub(super) fn unanswered_of(&self, connection: u32) -> Option<(u32, &ConnectionFacts, &[Unanswered])> {
        let all = self.unanswered.range((connection, 0)..=(connection, u32::MAX));
        let (&(_, vantage), requests) = all.max_by_key(|((_, vantage), requests)| {
            (requests.len(), self.place(*vantage) == Some(Side::Client))
        })?;
        self.facts.get(&(connection, vantage)).map(|facts| (vantage, facts, requests.as_slice()))
    }

    /// Requests without a response, each once.
    #[must_use]
    pub fn requests_unanswered(&self) -> u64 {
        let connections: std::collections::BTreeSet<u32> = self.unanswered.keys().map(|key| key.0).collect();
        let of =
            |connection| self.unanswered_of(connection).map_or(0, |(_, _, requests)| requests.len() as u64);
        connections.into_iter().map(of).sum()
    }

    /// The stalls of a kind for each sending side, from the capture point that saw most of them, and that point. Where two
    /// points saw a connection, only the sender's own can tell why its data was late.
    pub(super) fn stalls(&self, kind: StallKind) -> Vec<(Side, u32, &Stalls)> {
        [Side::Client, Side::Server]
            .into_iter()
            .filter_map(|side| {
                let is_near = self.places.contains(&Some(side));
                self.stalls
                    .range((kind, side, 0)..=(kind, side, u32::MAX))
                    .filter(|((_, _, vantage), _)| !is_near || self.place(*vantage) != Some(side.peer()))
                    .max_by_key(|(_, stalls)| stalls.count)
                    .map(|(&(_, side, vantage), stalls)| (side, vantage, stalls))
            })
            .collect()
    }
}
