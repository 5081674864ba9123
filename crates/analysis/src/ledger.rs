//! Where the time of operations went, beyond what they need: the account that the verdicts share.
//!
//! The *time* of an operation is what its user sees: from the first byte of its request, or from when TCP began to hold it,
//! to the last byte of its response. Operations of one service, kind, size and queue depth form a *class*. Their
//! *reference* is the median of their times without the waits that packets prove ([`record::StallSet`]), less what a typical
//! server time exceeds the allowance ([`SERVER_ALLOWANCE_NS`] for each operation in flight). The *excess* of an operation
//! is its waits, and the rest of its time as far as it exceeds the reference. Requests that never get a response are
//! excess as a whole.
//!
//! Each nanosecond of the excess is counted once: a wait belongs to its cause, the rest to the server or to nobody. So the
//! sum over verdicts and the unexplained rest is the excess.
//!
//! Memory does not grow with the number of operations: sums by bucket of time, 32 to an octave.

use std::collections::HashMap;

use record::{Observed, StallKind, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most classes; operations of further ones share one, which has no reference.
const CLASSES_MAX: usize = 256;
/// Most connections whose service is known.
const CONNECTIONS_MAX: usize = 65_536;
/// The service of further ones.
const OTHERS: u32 = u32::MAX;
/// Waits for lost data that was sent again, or behind it.
pub(crate) const LOSSES: [StallKind; 3] =
    [StallKind::Timeout, StallKind::FastRetransmit, StallKind::BehindLoss];
/// Time of a server for each operation in flight that is no excess, nanoseconds: a solid-state disk responds sooner.
pub const SERVER_ALLOWANCE_NS: u64 = 1_000_000;

/// The common properties of a class's operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    service: u32,
    verb: Verb,
    /// Rounded down to a power of two.
    bytes: u32,
    /// Rounded up to a power of two.
    depth: u32,
}

/// The operations whose time without waits lies between two edges.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    count: u64,
    /// Their times without waits, ns.
    sum_ns: u128,
    /// The server's part of it, ns.
    server_ns: u128,
}

/// The waits of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Waits {
    operations: u64,
    sum_ns: u128,
}

/// The sums of a class.
#[derive(Debug, Default)]
pub(crate) struct Class {
    service: u32,
    verb: Verb,
    data_bytes: u128,
    depth: u128,
    pub(crate) operations: u64,
    time_ns: u128,
    fastest_ns: u64,
    times: Vec<Bucket>,
    servers: Vec<u32>,
    /// Whether the server's own time was seen. Otherwise it is that outside of the client, and includes the network.
    has_server: bool,
    network_ns: u64,
    is_mixed: bool,
}

/// The excess of a class beyond waits.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Rest {
    /// Operations that have one.
    pub(crate) operations: u64,
    /// Its sum, ns.
    pub(crate) ns: u128,
    /// The part of it that passed in the server, ns.
    pub(crate) server_ns: u128,
}

/// All operations.
#[derive(Debug, Default)]
pub struct Ledger {
    places: HashMap<Key, usize>,
    classes: Vec<Class>,
    recent: Option<(Key, usize)>,
    /// The service of each connection.
    services: HashMap<u32, u32>,
    names: Vec<std::net::SocketAddr>,
    waits: [Waits; StallKind::ALL.len()],
    /// Operations with a wait for lost data.
    retransmitted: u64,
}

/// Buckets of an octave.
const STEPS: u32 = 32;

/// The bucket of a time.
fn bucket_of(ns: u64) -> usize {
    let log = ns.max(STEPS.into()).ilog2();
    let step = (ns >> (log - STEPS.ilog2())) as u32;
    (((log - STEPS.ilog2()) * STEPS) + step) as usize
}

/// The lower edge of a bucket, ns.
fn edge(bucket: usize) -> u64 {
    let (octave, step) = ((bucket as u32) / STEPS, (bucket as u32) % STEPS);
    match octave {
        0 => step.into(),
        octave => u64::try_from(u128::from(STEPS + step) << (octave - 1).min(64)).unwrap_or(u64::MAX),
    }
}

impl Ledger {
    /// A connection's service, known before its first operation.
    pub fn opened(&mut self, connection: u32, server: std::net::SocketAddr) {
        let known = self.names.iter().position(|name| *name == server);
        let service = match known {
            Some(place) => place,
            None if self.names.len() < CLASSES_MAX => {
                self.names.push(server);
                self.names.len() - 1
            }
            None => return,
        };
        if self.services.len() < CONNECTIONS_MAX {
            self.services.insert(connection, service as u32);
        }
    }

    /// The service of a connection, for findings that belong to a service.
    #[must_use]
    pub fn service(&self, connection: u32) -> Option<std::net::SocketAddr> {
        self.services.get(&connection).and_then(|&place| self.names.get(place as usize)).copied()
    }

    /// The shortest network round trip of a connection, nanoseconds, for classes whose server was not seen.
    pub fn far(&mut self, connection: u32, network_ns: u64) {
        let service = self.services.get(&connection).copied().unwrap_or(OTHERS);
        for class in self.classes.iter_mut().filter(|class| class.service == service) {
            class.network_ns = class.network_ns.max(network_ns);
        }
    }

    /// Adds an operation.
    #[inline]
    pub fn add(&mut self, observed: &Observed) {
        // Its time at one of two points is not what its user saw.
        if observed.is_partial {
            return;
        }
        let time_ns = observed.whole_ns();
        let op = &observed.op;
        let mut waits_ns = 0;
        if !observed.detail.stalls.is_empty() {
            let waits = observed.detail.stalls.within(time_ns);
            waits_ns = waits.sum_ns();
            self.retransmitted += u64::from(LOSSES.into_iter().any(|kind| waits.contains(kind)));
            for kind in StallKind::ALL.into_iter().filter(|&kind| waits.contains(kind)) {
                let all = &mut self.waits[kind as usize];
                all.operations += 1;
                all.sum_ns += u128::from(waits.wait_ns(kind));
            }
        }
        let key = Key {
            service: self.services.get(&op.connection).copied().unwrap_or(OTHERS),
            verb: op.verb,
            bytes: op.data_bytes.checked_ilog2().map_or(0, |log| 1 << log),
            depth: observed.detail.ring_depth.max(1).checked_next_power_of_two().unwrap_or(u32::MAX),
        };
        let place = match self.recent {
            Some((recent, place)) if recent == key => place,
            _ => self.place(key),
        };
        self.recent = Some((key, place));
        let split = observed.split();
        let rest_ns = time_ns - waits_ns;
        let server = split.server_ns.or(split.outside_ns).unwrap_or(0);
        let server_ns = u64::try_from(server).unwrap_or(0).min(rest_ns);
        self.classes[place].has_server |= split.server_ns.is_some();
        self.classes[place].add(time_ns, rest_ns, server_ns, observed);
    }

    fn place(&mut self, key: Key) -> usize {
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        let is_mixed = self.classes.len() >= CLASSES_MAX;
        if is_mixed && self.classes.len() > CLASSES_MAX {
            return CLASSES_MAX;
        }
        let Key { service, verb, .. } = key;
        self.classes.push(Class { service, verb, is_mixed, fastest_ns: u64::MAX, ..Class::default() });
        let place = self.classes.len() - 1;
        if !is_mixed {
            self.places.insert(key, place);
        }
        place
    }

    /// The classes.
    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// Operations that waited for a cause, and their waits, nanoseconds.
    #[must_use]
    pub fn waits(&self, kind: StallKind) -> (u64, u128) {
        let Waits { operations, sum_ns } = self.waits[kind as usize];
        (operations, sum_ns)
    }

    /// Operations that waited for a retransmission, and their waits, nanoseconds.
    #[must_use]
    pub fn retransmissions(&self) -> (u64, u128) {
        (self.retransmitted, LOSSES.into_iter().map(|kind| self.waits(kind).1).sum())
    }

    /// The time of all operations, nanoseconds.
    #[must_use]
    pub fn time_ns(&self) -> u128 {
        self.classes.iter().map(|class| class.time_ns).sum()
    }

    /// The excess of all operations, nanoseconds.
    #[must_use]
    pub fn excess_ns(&self) -> u128 {
        let waits: u128 = self.waits.iter().map(|waits| waits.sum_ns).sum();
        waits + self.classes.iter().map(|class| class.rest(class.reference_ns()).ns).sum::<u128>()
    }
}

impl Class {
    #[inline]
    fn add(&mut self, time_ns: u64, rest_ns: u64, server_ns: u64, observed: &Observed) {
        self.operations += 1;
        self.time_ns += u128::from(time_ns);
        self.data_bytes += u128::from(observed.op.data_bytes);
        self.depth += u128::from(observed.detail.ring_depth.max(1));
        self.fastest_ns = self.fastest_ns.min(rest_ns);
        let place = bucket_of(rest_ns);
        if self.times.len() <= place {
            self.times.resize(place + 1, Bucket::default());
        }
        let bucket = &mut self.times[place];
        bucket.count += 1;
        bucket.sum_ns += u128::from(rest_ns);
        bucket.server_ns += u128::from(server_ns);
        let place = bucket_of(server_ns);
        if self.servers.len() <= place {
            self.servers.resize(place + 1, 0);
        }
        self.servers[place] = self.servers[place].saturating_add(1);
    }

    /// The operation's name.
    pub(crate) fn operation(&self) -> String {
        self.verb.name()
    }

    /// Mean data of an operation, bytes.
    pub(crate) fn block_size_bytes(&self) -> f64 {
        self.data_bytes as f64 / self.operations.max(1) as f64
    }

    /// Mean queue depth.
    pub(crate) fn queue_depth(&self) -> f64 {
        self.depth as f64 / self.operations.max(1) as f64
    }

    /// The fastest operation without its waits, nanoseconds.
    pub(crate) fn fastest_ns(&self) -> u64 {
        self.fastest_ns
    }

    /// The edge above the median of times without waits, ns.
    fn typical_ns(&self) -> u64 {
        above_median(self.times.iter().map(|bucket| bucket.count), self.operations)
    }

    /// The edge above the median of the server's times, ns.
    pub(crate) fn typical_server_ns(&self) -> u64 {
        above_median(self.servers.iter().map(|&count| count.into()), self.operations)
    }

    /// The time of the server that is no excess, and the network's where the server was not seen, ns.
    pub(crate) fn allowance_ns(&self) -> u64 {
        let server = (SERVER_ALLOWANCE_NS as f64 * self.queue_depth()) as u64;
        if self.has_server { server } else { server.saturating_add(self.network_ns) }
    }

    /// The network's part of [`Class::typical_server_ns`], ns.
    pub(crate) fn network_ns(&self) -> u64 {
        if self.has_server { 0 } else { self.network_ns }
    }

    /// The time of an operation without excess, ns: an edge of a bucket.
    pub(crate) fn reference_ns(&self) -> u64 {
        if self.is_mixed {
            return u64::MAX;
        }
        let typical = self.typical_ns();
        let beyond = self.typical_server_ns().saturating_sub(self.allowance_ns());
        if beyond == 0 { typical } else { edge(bucket_of(typical.saturating_sub(beyond)) + 1) }
    }

    /// The excess beyond a limit, which is an edge of a bucket.
    pub(crate) fn rest(&self, limit_ns: u64) -> Rest {
        let mut rest = Rest::default();
        let server_each = u128::from(self.typical_server_ns().min(self.allowance_ns()));
        let slow = self.times.iter().enumerate().filter(|(place, b)| b.count > 0 && edge(*place) >= limit_ns);
        let reference = u128::from(self.reference_ns());
        for (_, bucket) in slow {
            let count = u128::from(bucket.count);
            let ns = bucket.sum_ns.saturating_sub(count * reference);
            rest.operations += bucket.count;
            rest.ns += ns;
            rest.server_ns += bucket.server_ns.saturating_sub(count * server_each).min(ns);
        }
        rest
    }
}

/// The edge above the bucket with the median.
fn above_median(counts: impl Iterator<Item = u64>, operations: u64) -> u64 {
    let (mut below, half) = (0, operations.div_ceil(2));
    let mut last = 0;
    for (place, count) in counts.enumerate() {
        below += count;
        last = place;
        if below >= half {
            break;
        }
    }
    edge(last + 1)
}

/// The account of all operations' time, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Excess {
    /// The time of all operations, as their users see them, and of requests that never got a response.
    pub operations_us: f64,
    /// The part of it that exceeds the reference of the operations' classes.
    pub excess_us: f64,
    /// The part of the excess that the verdicts explain: the sum of their `cost_us`.
    pub verdicts_us: f64,
    /// The part that the notes of little weight explain: the sum of their `cost_us`.
    pub minor_us: f64,
    /// The rest of the excess.
    pub unexplained_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_meet_at_their_edges() {
        for bucket in 0..1000 {
            assert_eq!(bucket_of(edge(bucket)), bucket);
            assert!(edge(bucket) == 0 || bucket_of(edge(bucket) - 1) == bucket - 1, "{bucket}");
        }
        assert!(edge(bucket_of(u64::MAX)) > u64::MAX / 2 && edge(bucket_of(u64::MAX) + 1) == u64::MAX);
        for ns in [0, 1, 31, 32, 33, 1000, 123_456_789] {
            let low = edge(bucket_of(ns));
            assert!(low <= ns && (ns - low) as f64 <= ns as f64 / 32.0, "{ns}: {low}");
        }
    }
}
