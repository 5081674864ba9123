//! What the holes of a capture may have cost: operations, where the rate of their connection makes the number believable.

use std::collections::BTreeMap;

use analysis::verdict::Evidence;
use capture::{MissingReason, StreamHole};
use record::ConnectionFacts;

use crate::result::HoleRow;

/// The holes of all connections.
#[derive(Debug, Default)]
pub(crate) struct Holes {
    listed: Vec<(u32, StreamHole, Option<u32>)>,
    sums: BTreeMap<Option<u32>, Sum>,
    /// Holes of connections beyond those that are summed.
    others: u64,
    /// Holes of bytes that had arrived, and their bytes.
    lost: (u64, u64),
}

/// Those of one connection.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    holes: u64,
    bytes: u64,
    within_ns: u64,
}

/// Most holes that are listed.
const LISTED_MAX: usize = 1000;
/// Most connections whose holes are summed.
const CONNECTIONS_MAX: usize = 16_384;
/// How much faster than on average a connection may have been in a hole.
const RATE_FACTOR: f64 = 16.0;

/// Operations that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Missed {
    /// In holes of which the number is known.
    pub(crate) operations: f64,
    /// Holes whose number is unknown.
    pub(crate) unknown_holes: u64,
}

impl Holes {
    /// Adds a hole of a connection, by its number over all capture points.
    pub(crate) fn add(&mut self, input: u32, hole: StreamHole, connection: Option<u32>) {
        if self.listed.len() < LISTED_MAX {
            self.listed.push((input, hole, connection));
        }
        // What nobody acknowledged is not known to have arrived: a path loses packets too.
        if hole.missing.reason == MissingReason::EndOfCapture {
            return;
        }
        self.lost = (self.lost.0 + 1, self.lost.1.saturating_add(hole.missing.bytes));
        if self.sums.len() >= CONNECTIONS_MAX && !self.sums.contains_key(&connection) {
            self.others += 1;
            return;
        }
        let sum = self.sums.entry(connection).or_default();
        sum.holes += 1;
        sum.bytes = sum.bytes.saturating_add(hole.missing.bytes);
        sum.within_ns = sum.within_ns.saturating_add(hole.missing.within_ns);
    }

    /// Holes of bytes that had arrived, which the capture lost, and their bytes.
    pub(crate) fn lost(&self) -> (u64, u64) {
        self.lost
    }

    /// What is missing because of these holes.
    pub(crate) fn missed(&self, evidence: &Evidence) -> Missed {
        let facts: BTreeMap<u32, &ConnectionFacts> = evidence.connections().collect();
        let mut missed = Missed { unknown_holes: self.others, ..Missed::default() };
        for (connection, sum) in &self.sums {
            let facts = connection.and_then(|connection| facts.get(&connection).copied());
            match operations(facts, sum.bytes, sum.within_ns, sum.holes) {
                Some(operations) => missed.operations += operations,
                None => missed.unknown_holes += sum.holes,
            }
        }
        missed
    }

    /// The listed holes.
    pub(crate) fn rows(self, evidence: &Evidence) -> Vec<HoleRow> {
        let facts: BTreeMap<u32, &ConnectionFacts> = evidence.connections().collect();
        let row = |(input, hole, connection): (u32, StreamHole, Option<u32>)| {
            let facts = connection.and_then(|connection| facts.get(&connection).copied());
            let missing = hole.missing;
            let operations = operations(facts, missing.bytes, missing.within_ns, 1);
            HoleRow { input, connection, flow: hole.flow, missing, operations }
        };
        self.listed.into_iter().map(row).collect()
    }
}

/// Operations in holes of so many bytes, which passed in this time: the bytes over those of an operation of the connection.
/// `None` where that is more than could have passed at the connection's rate, or its rate is unknown: then the bytes were no
/// such operations.
fn operations(facts: Option<&ConnectionFacts>, bytes: u64, within_ns: u64, holes: u64) -> Option<f64> {
    let facts = facts.filter(|facts| facts.exchanges > 0)?;
    let lived_ns = facts.ended_ns.saturating_sub(facts.began_ns).max(1);
    let exchanges = facts.exchanges as f64;
    let by_bytes = bytes as f64 / (facts.bytes as f64 / exchanges).max(1.0);
    let by_time = exchanges * within_ns as f64 / lived_ns as f64 * RATE_FACTOR;
    // A hole can be in the messages in flight, whatever the rate.
    let in_flight = facts.in_flight_ns as f64 / lived_ns as f64;
    (by_bytes <= by_time + (in_flight + 1.0) * holes as f64).then_some(by_bytes)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use record::Conduct;

    use super::*;

    fn facts(exchanges: u64, bytes: u64, seconds: u64) -> ConnectionFacts {
        let end: SocketAddr = "10.0.0.1:1".parse().unwrap();
        ConnectionFacts {
            setup: record::Setup::default(),
            connection: 0,
            client: end,
            server: end,
            protocol: "turns",
            undecoded: None,
            tls: None,
            packets: 2 * exchanges,
            bytes,
            began_ns: 5,
            ended_ns: 5 + seconds * 1_000_000_000,
            handshake_ns: None,
            ttl: (64, 64),
            exchanges,
            in_flight_ns: 0,
            client_conduct: Conduct::default(),
            server_conduct: Conduct::default(),
            duplicates: 0,
            has_ended: false,
            both_directions: true,
        }
    }

    #[test]
    fn a_hole_costs_no_more_operations_than_can_have_passed_in_its_time() {
        // 100 operations of 1000 bytes a second.
        let facts = facts(1000, 1_000_000, 10);
        let of = |bytes, within_ns| operations(Some(&facts), bytes, within_ns, 1);
        assert_eq!(of(2000, 20_000_000), Some(2.0));
        // Ten times as fast as on average is believable, a thousand times is not.
        assert_eq!(of(100_000, 100_000_000), Some(100.0));
        assert_eq!(of(2_000_000_000, 100_000_000), None);
        // At most one operation in no time.
        assert_eq!((of(900, 0), of(5000, 0)), (Some(0.9), None));
    }

    #[test]
    fn without_a_rate_the_number_is_unknown() {
        assert_eq!(operations(Some(&facts(0, 5000, 10)), 100, 1_000_000, 1), None);
        assert_eq!(operations(None, 100, 1_000_000, 1), None);
    }
}
