//! The two legs of a proxy: operations of its clients that contain operations which it requests from its upstream.
//!
//! An address that is a server on one connection and a client on another may be a proxy. It is one if nearly every operation
//! of the second service lies within an operation of the first, one to one, and does so no longer when it is moved in time:
//! the operations of two services that are always busy overlap by chance.
//!
//! The times of both legs must come from one clock. Memory is bounded: the first operations of a few pairs of services.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use record::{Observed, Opened};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most pairs of services, services, and clients of a service that are examined.
const PAIRS_MAX: usize = 32;
const SERVICES_MAX: usize = 256;
const CLIENTS_MAX: usize = 64;
/// Most operations of one service that are kept.
const OPERATIONS_MAX: usize = 8192;
/// Fewest linked operations.
const LINKED_MIN: usize = 20;
/// Share of the upstream's operations that lie within one of the proxy's, and the most that chance may explain.
const LINKED_SHARE: f64 = 0.9;
const CHANCE_SHARE: f64 = 0.5;
/// Operations of the proxy that are examined for one of the upstream: more are not in flight at once.
const AT_ONCE: usize = 256;

/// A proxy and its upstream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Leg {
    /// The proxy's address and port, where its clients connect.
    pub proxy: String,
    /// Its upstream's.
    pub upstream: String,
    /// Operations of the proxy that contain one of the upstream.
    pub operations: u64,
    /// Their mean time, microseconds.
    pub proxy_us: f64,
    /// The mean time of the upstream's operations in them, microseconds.
    pub upstream_us: f64,
    /// The share of the proxy's time that passes at its upstream.
    pub upstream_share: f64,
}

/// A service's clients and operations.
#[derive(Debug, Default)]
struct Service {
    clients: BTreeSet<IpAddr>,
    /// When each began and ended, nanoseconds since the epoch.
    operations: Vec<(u64, u64)>,
}

/// All services.
#[derive(Debug, Default)]
pub struct Legs {
    services: BTreeMap<SocketAddr, Service>,
    pairs: BTreeSet<(SocketAddr, SocketAddr)>,
    /// The services that are in a pair.
    paired: BTreeSet<SocketAddr>,
}

impl Legs {
    /// Adds a connection that is about to carry data.
    pub fn opened(&mut self, opened: &Opened) {
        let (client, server) = (opened.client.ip(), opened.server);
        if self.services.len() >= SERVICES_MAX && !self.services.contains_key(&server) {
            return;
        }
        let service = self.services.entry(server).or_default();
        if service.clients.len() >= CLIENTS_MAX || !service.clients.insert(client) {
            return;
        }
        let fronts = self.services.keys().filter(|front| front.ip() == client).map(|&front| (front, server));
        let backs = self.services.iter().filter(|(_, other)| other.clients.contains(&server.ip()));
        let backs = backs.map(|(&back, _)| (server, back));
        let found: Vec<_> = fronts.chain(backs).filter(|(front, back)| front != back).collect();
        for pair in found {
            if self.pairs.len() < PAIRS_MAX && self.pairs.insert(pair) {
                self.paired.extend([pair.0, pair.1]);
            }
        }
    }

    /// Whether no service can be a leg of a proxy.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Adds an operation of a service.
    pub fn add(&mut self, server: SocketAddr, observed: &Observed) {
        let times = (observed.detail.request.began.ns(), observed.detail.response.ended.ns());
        if let (Some(began), Some(ended)) = times
            && self.paired.contains(&server)
            && let Some(service) = self.services.get_mut(&server)
            && service.operations.len() < OPERATIONS_MAX
        {
            service.operations.push((began, ended));
        }
    }

    /// The proxies found.
    #[must_use]
    pub fn legs(&self) -> Vec<Leg> {
        self.pairs.iter().filter_map(|&(front, back)| self.leg(front, back)).collect()
    }

    fn leg(&self, front: SocketAddr, back: SocketAddr) -> Option<Leg> {
        let (outer, inner) = (self.sorted(front)?, self.sorted(back)?);
        // Only where the outer ones were kept.
        let until = outer.last()?.1;
        let inner: Vec<_> =
            inner.into_iter().filter(|&(began, _)| began <= until && began >= outer[0].0).collect();
        let linked = contained(&outer, &inner);
        let share = |count: usize| count as f64 / inner.len().max(1) as f64;
        if linked.len() < LINKED_MIN || share(linked.len()) < LINKED_SHARE {
            return None;
        }
        // Moved by half of the record; and by one operation more, which tells a proxy from a service that is asked at the
        // same intervals.
        let span = until.saturating_sub(outer[0].0).max(1);
        let lengths: u128 = outer.iter().map(|&(began, ended)| u128::from(ended.saturating_sub(began))).sum();
        let length = u64::try_from(lengths / outer.len() as u128).unwrap_or(0);
        let moved = |by: u64| {
            let to = |&(began, ended): &(u64, u64)| {
                let at = outer[0].0 + (began - outer[0].0 + by) % span;
                (at, at.saturating_add(ended.saturating_sub(began)))
            };
            let mut moved: Vec<_> = inner.iter().map(to).collect();
            moved.sort_unstable();
            contained(&outer, &moved).len()
        };
        if share(moved(span / 2).min(moved(span / 2 + length))) > CHANCE_SHARE {
            return None;
        }
        let sum = |of: &dyn Fn(&(u64, u64)) -> u64| {
            linked.iter().map(|pair| u128::from(of(pair))).sum::<u128>() as f64
        };
        let (proxy_ns, upstream_ns) = (sum(&|pair| pair.0), sum(&|pair| pair.1));
        let each = linked.len() as f64 * 1000.0;
        Some(Leg {
            proxy: front.to_string(),
            upstream: back.to_string(),
            operations: linked.len() as u64,
            proxy_us: proxy_ns / each,
            upstream_us: upstream_ns / each,
            upstream_share: upstream_ns / proxy_ns.max(1.0),
        })
    }

    fn sorted(&self, server: SocketAddr) -> Option<Vec<(u64, u64)>> {
        let mut operations = self.services.get(&server)?.operations.clone();
        operations.sort_unstable();
        (!operations.is_empty()).then_some(operations)
    }
}

/// The durations of outer operations and of the inner ones that they contain, one to one: each inner one within the outer one
/// that began last before it.
fn contained(outer: &[(u64, u64)], inner: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut is_used = vec![false; outer.len()];
    let mut linked = Vec::new();
    for &(began, ended) in inner {
        let behind = outer.partition_point(|&(other, _)| other <= began);
        let candidates = (behind.saturating_sub(AT_ONCE)..behind).rev();
        if let Some(place) = candidates.into_iter().find(|&place| !is_used[place] && outer[place].1 >= ended)
        {
            is_used[place] = true;
            linked.push((outer[place].1 - outer[place].0, ended.saturating_sub(began)));
        }
    }
    linked
}

#[cfg(test)]
mod tests;
