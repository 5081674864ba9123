//! The figures of a service and of its details: one tally of whole operations, and the sums of their parts.

use std::collections::HashSet;

use record::{Observed, Outcome};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::parts::{Part, Tally};

/// Figures of some operations of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figures {
    /// Operations.
    pub operations: u64,
    /// Those with an error status.
    pub failed: u64,
    /// Connections that they were on.
    pub connections: u64,
    /// From the first request to the last response of the service, seconds.
    pub seconds: f64,
    /// Operations per second.
    pub rate: f64,
    /// Operations in flight, mean over that time: the sum of their times divided by it (Little's law).
    pub in_flight: f64,
    /// Mean data of an operation, bytes.
    pub block_size_bytes: f64,
    /// Data per second.
    pub bytes_per_second: f64,
    /// Share of the time of all operations of the capture.
    pub time_share: f64,
    /// Mean time of an operation, as its user sees it ([`Part::Whole`]), microseconds.
    pub mean_us: f64,
    /// Its median, and percentiles.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Longest.
    pub max_us: f64,
}

/// A part with the largest share of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LargestPart {
    /// The part: the server (until the response's first byte), the network, the transfer of the response, or the sending of
    /// the request.
    pub part: Part,
    /// Its share of the operations' time.
    pub share: f64,
}

/// Most connections that a tally counts one by one.
const CONNECTIONS_MAX: usize = 65_536;

/// The sums.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) operations: u64,
    failed: u64,
    data_bytes: u64,
    connections: HashSet<u32, foldhash::fast::RandomState>,
    recent: Option<u32>,
    whole: Tally,
    whole_ns: u128,
    longest_ns: u64,
    sending_ns: u128,
    /// To the first byte of the response, at the server.
    server_ns: u128,
    /// The same at the client.
    outside_ns: u128,
    has_server: bool,
    transfer_ns: u128,
    /// Operations that may be several.
    pub(crate) overlapping: u64,
    pub(crate) several: u64,
    pub(crate) unread: u64,
}

impl Sums {
    #[inline]
    pub(crate) fn add(&mut self, observed: &Observed) {
        let op = &observed.op;
        self.operations += 1;
        self.failed += u64::from(op.outcome == Outcome::Failed);
        self.data_bytes += u64::from(op.data_bytes);
        self.overlapping += u64::from(observed.detail.overlaps);
        self.several += u64::from(observed.detail.has_several);
        self.unread += u64::from(observed.detail.is_unread);
        if self.recent != Some(op.connection) {
            self.recent = Some(op.connection);
            if self.connections.len() < CONNECTIONS_MAX {
                self.connections.insert(op.connection);
            }
        }
        // Its time at one of two points is not what its user saw.
        if observed.is_partial {
            return;
        }
        let whole_ns = observed.whole_ns();
        self.whole.add(whole_ns.try_into().unwrap_or(i64::MAX));
        self.whole_ns += u128::from(whole_ns);
        self.longest_ns = self.longest_ns.max(whole_ns);
        let ns = |ns: Option<i64>| u128::from(u64::try_from(ns.unwrap_or(0)).unwrap_or(0));
        let seen = &observed.detail;
        self.sending_ns += ns(seen.request.ended.since(seen.request.began));
        self.transfer_ns += ns(seen.transfer_ns());
        if observed.server_first_ns.is_some() {
            self.has_server = true;
            self.server_ns += ns(observed.server_first_ns);
        }
        if op.c1.is_known() {
            self.outside_ns += ns(seen.first_byte_ns());
        }
    }

    /// The connection of all operations, if they are of one.
    pub(crate) fn only_connection(&self) -> Option<u32> {
        let mut connections = self.connections.iter().copied();
        connections.next().filter(|_| connections.next().is_none())
    }

    /// The time of all operations, ns.
    pub(crate) fn whole_ns(&self) -> u128 {
        self.whole_ns
    }

    /// The figures over some seconds, of operations that took `all_ns` together.
    pub(crate) fn figures(&self, seconds: f64, all_ns: u128) -> Figures {
        let count = self.operations.max(1) as f64;
        let per_second = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
        // Percentiles are edges of buckets; none is beyond the longest, which is exact.
        let max_us = self.longest_ns as f64 / 1000.0;
        let [p50_us, p90_us, p99_us] = self.whole.at_us([0.5, 0.9, 0.99]).map(|us| us.min(max_us));
        Figures {
            operations: self.operations,
            failed: self.failed,
            connections: self.connections.len() as u64,
            seconds,
            rate: per_second(self.operations as f64),
            in_flight: per_second(self.whole_ns as f64 / 1e9),
            block_size_bytes: self.data_bytes as f64 / count,
            bytes_per_second: per_second(self.data_bytes as f64),
            time_share: self.whole_ns as f64 / all_ns.max(1) as f64,
            mean_us: self.whole.mean_us(),
            p50_us,
            p90_us,
            p99_us,
            max_us,
        }
    }

    /// The part with the largest share; a server that was not seen has what the network's round trip leaves.
    pub(crate) fn largest_part(&self, network_ns: u64) -> Option<LargestPart> {
        let unseen = u128::from(self.whole.count()) * u128::from(network_ns);
        let network_ns = if self.has_server {
            self.outside_ns.saturating_sub(self.server_ns)
        } else {
            unseen.min(self.outside_ns)
        };
        let server_ns = if self.has_server { self.server_ns } else { self.outside_ns - network_ns };
        let parts = [
            (Part::Server, server_ns),
            (Part::Network, network_ns),
            (Part::Transfer, self.transfer_ns),
            (Part::Sending, self.sending_ns),
        ];
        let (part, ns) = parts.into_iter().max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0)?;
        let share = (ns as f64 / self.whole_ns.max(1) as f64).min(1.0);
        Some(LargestPart { part, share })
    }
}
