//! Evidence gathered while traffic passes: sums and samples of stalls, of bounded size.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use record::{ClockStep, ConnectionFacts, Exchange, Observed, Opened, Regular, Side, Stall, StallKind};

use super::chain::Chains;
use super::cork::Wait;
use super::errors::Errors;
use super::no_response::Unanswered;
use super::setups::Setups;
use super::streams::Streams;
use crate::ledger::Ledger;
use crate::legs::Legs;
use crate::service::Services;

/// Most stalls of a kind whose frames and waits are kept.
const KEPT_MAX: usize = 1000;
/// Most connections whose facts are kept.
const CONNECTIONS_MAX: usize = 4096;
/// Most connections whose packets are kept by capture point.
const PASSED_MAX: usize = 65_536;
/// Most steps of clocks that are kept.
const CLOCK_STEPS_MAX: usize = 64;
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
    /// When the first ones ended, nanoseconds since the epoch, and their connections.
    pub ends: Vec<(u64, u32)>,
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

    /// The first ones.
    pub(super) fn kept(&self) -> Vec<Wait> {
        let all = self.ends.iter().zip(&self.waits_ns);
        let wait =
            |(&(ended_ns, connection), &wait_ns)| Wait { connection, loop_of: connection, ended_ns, wait_ns };
        all.map(wait).collect()
    }
}

/// All evidence.
#[derive(Debug, Default)]
pub struct Evidence {
    stalls: BTreeMap<(StallKind, Side, u32), Stalls>,
    /// The time of operations.
    pub ledger: Ledger,
    /// Steps of the capturing clocks, and the capture point that saw them.
    pub(super) clock_steps: Vec<(u32, ClockStep)>,
    /// Operations that followed one another.
    pub(super) chains: Chains,
    /// The operations by service.
    pub services: Services,
    /// Operations.
    pub operations: u64,
    /// Requests without a response, by their connection and capture point.
    pub(super) unanswered: BTreeMap<(u32, u32), Vec<Unanswered>>,
    unanswered_count: usize,
    /// How connections were set up, by service.
    pub(super) setups: Setups,
    /// The legs of proxies.
    pub legs: Legs,
    /// Responses that come in pieces.
    pub(super) streams: Streams,
    /// Packets of each side at each capture point that follow one another at one rate.
    pub spacings: Vec<(Option<Regular>, Side)>,
    /// Answers that are errors, by service.
    pub(super) errors: Errors,
    /// The capture that each capture point belongs to.
    captures: Vec<u32>,
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
    /// No evidence, to be gathered about these services.
    #[must_use]
    pub fn of(services: Services) -> Self {
        Self { services, ..Self::default() }
    }

    /// Adds an exchange that has ended.
    #[inline]
    pub fn observed(&mut self, observed: &Observed) {
        self.operations += 1;
        if let Some(error) = observed.detail.error {
            self.errors.add(self.services.server(observed.op.connection), error, &observed.detail);
        }
        self.streams.add(observed);
        if !self.legs.is_empty()
            && let Some(server) = self.services.server(observed.op.connection)
        {
            self.legs.add(server, observed);
        }
        let server = self.services.add(observed);
        self.ledger.add(observed, server);
        self.chains.observed(observed);
    }

    /// Adds a step of the clock of a capture point, once for all connections that saw it.
    pub fn clock_step(&mut self, vantage: u32, step: &ClockStep) {
        let is_known = |&(of, known): &(u32, ClockStep)| of == vantage && known.is_same(step);
        if self.clock_steps.len() < CLOCK_STEPS_MAX && !self.clock_steps.iter().any(is_known) {
            self.clock_steps.push((vantage, *step));
        }
    }

    /// Adds a connection that is about to carry data; its number is that of the whole analysis.
    pub fn opened(&mut self, connection: u32, opened: &Opened) {
        self.services.opened(connection, opened);
        self.legs.opened(opened);
        if let Some((_, away_ns)) = opened.handshake_ns {
            self.chains.opened(connection, away_ns);
        }
    }

    /// Adds a request that got no response before the end of its connection or of the capture.
    pub fn unanswered(&mut self, vantage: u32, connection: u32, exchange: &Exchange) {
        // One that waits for an event may wait for ever.
        if !exchange.awaits_event && self.unanswered_count < UNANSWERED_MAX {
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
            stalls.ends.push((stall.time_ns, stall.connection));
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
        count(&mut self.passed, &mut self.passed_others, facts.connection, vantage, facts);
        self.setups.add(vantage, self.capture(vantage), facts);
        let server = self.services.ended(facts.connection, facts);
        self.ledger.far(server, facts.path_ns(Side::Server), facts.path_ns(Side::Client));
        if self.facts.len() < CONNECTIONS_MAX {
            self.facts.insert((facts.connection, vantage), *facts);
        } else {
            self.connections_not_kept += 1;
        }
    }

    /// Adds a connection that ended before it carried data.
    pub fn empty_connection(&mut self, vantage: u32, facts: &ConnectionFacts) {
        let ends = (facts.client, facts.server);
        count(&mut self.passed_empty, &mut self.passed_others, ends, vantage, facts);
        self.setups.add(vantage, self.capture(vantage), facts);
    }

    /// Adds the next capture point, which belongs to this capture: a file, or a section of one. Captures end at different times.
    pub fn add_point(&mut self, capture: u32) {
        self.captures.push(capture);
    }

    fn capture(&self, vantage: u32) -> u32 {
        self.captures.get(vantage as usize).copied().unwrap_or(0)
    }

    /// When the capture of a capture point ended, nanoseconds since the epoch.
    pub(super) fn newest_ns(&self, vantage: u32) -> u64 {
        self.setups.newest_ns(self.capture(vantage))
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

    /// Sets the side of each capture point, as far as connections that two points saw show it.
    pub fn set_places(&mut self, places: Vec<Option<Side>>) {
        self.places = places;
    }

    /// The side of a capture point, if known.
    pub(super) fn place(&self, vantage: u32) -> Option<Side> {
        self.places.get(vantage as usize).copied().flatten()
    }

    /// A connection as a capture point saw it.
    pub(super) fn seen(&self, connection: u32, vantage: u32) -> Option<&ConnectionFacts> {
        self.facts.get(&(connection, vantage))
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

    /// The same, as the capture point nearest to its peer saw it: there the path is behind the data.
    pub(super) fn senders_far(&self) -> impl Iterator<Item = (u32, &ConnectionFacts, Side)> {
        self.connections().flat_map(|(_, facts)| {
            [Side::Client, Side::Server].into_iter().filter_map(|side| {
                self.near(facts.connection, side.peer()).map(|(vantage, facts)| (vantage, facts, side))
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

    /// Whether a connection has a request without a response.
    #[must_use]
    pub fn is_unanswered(&self, connection: u32) -> bool {
        self.unanswered.range((connection, 0)..=(connection, u32::MAX)).next().is_some()
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
