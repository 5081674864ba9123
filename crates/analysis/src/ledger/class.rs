//! A class of the ledger: the sums of operations of one service, kind, size and queue depth.

use record::{Observed, StallKind, Verb};

use super::SERVER_ALLOWANCE_NS;
use crate::chance;

/// Fewest operations without a loss whose mean is known well enough.
const OTHERS_MIN: u64 = 10;
/// Share of the requests that replace a response in a closed loop: the others are the first of each connection.
const LOOP: f64 = 0.8;

/// Times at a cap: fewest, and their least share.
const CAPPED_MIN: u64 = 10;
const CAPPED: f64 = 0.1;
/// And how many times as many as in as wide a stretch below it.
const CAPPED_TIMES: u64 = 4;
/// Nearly all operations take one time; it is a whole number of seconds if it differs by this share at most.
const NEARLY_ALL: f64 = 0.9;
const WHOLE: f64 = 0.005;

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
pub(super) struct Waits {
    pub(super) operations: u64,
    pub(super) sum_ns: u128,
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
    /// By the server's part of their time; `sum_ns` is that part.
    servers: Vec<Bucket>,
    /// Operations that replaced a response, and the client's time before them, ns.
    thoughts: u64,
    thought_ns: u128,
    /// Whether the server's own time was seen. Otherwise it is that outside of the client, and includes the network.
    pub(super) has_server: bool,
    pub(super) network_ns: u64,
    /// As `network_ns`, from the capture point nearest to the server: one that seems to be the server's may be on the way; 0: unknown.
    pub(super) near_ns: u64,
    /// Shortest round trip between the capture point and a client, ns: part of the client's time; 0: unknown.
    pub(super) away_ns: u64,
    is_mixed: bool,
    /// Its operations are held until an event comes, by their protocol.
    awaits_event: bool,
    pub(super) waits: [Waits; StallKind::ALL.len()],
    /// Connections whose first operation is of the class and whose set-up was seen, and that, ns.
    setups: u64,
    setup_ns: u128,
    /// Of the operations' time, what passed in the client's time too, because TCP held a request, ns.
    shared_ns: u128,
    /// The client's shortest time before an operation, ns.
    least_thought_ns: Option<u64>,
    /// Operations with a wait for lost data, and their time, ns.
    pub(super) lossy: Waits,
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

impl Class {
    /// A class of a service's operations; a mixed one has no reference.
    pub(super) fn new(service: u32, verb: Verb, is_mixed: bool) -> Self {
        Self { service, verb, is_mixed, fastest_ns: u64::MAX, ..Self::default() }
    }

    /// The same, of operations that are held until an event comes, or not.
    pub(super) fn awaiting(self, awaits_event: bool) -> Self {
        Self { awaits_event, ..self }
    }

    /// Whether its operations are held until an event comes, by their protocol.
    pub(crate) fn awaits_event(&self) -> bool {
        self.awaits_event
    }

    /// Adds an operation: its time, its time without waits, and the server's part of that, ns.
    #[inline]
    pub(super) fn add(&mut self, time_ns: u64, rest_ns: u64, server_ns: u64, observed: &Observed) {
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
            self.servers.resize(place + 1, Bucket::default());
        }
        self.servers[place].count += 1;
        self.servers[place].sum_ns += u128::from(server_ns);
        if let Some(setup_ns) = observed.detail.setup_ns {
            self.setups += 1;
            self.setup_ns += u128::from(setup_ns);
        }
        if let Some(thought_ns) = observed.detail.thought_ns {
            self.least_thought_ns =
                Some(self.least_thought_ns.map_or(thought_ns, |least| least.min(thought_ns)));
            self.shared_ns += u128::from(observed.detail.held_ns.min(thought_ns).min(time_ns));
            self.thoughts += 1;
            self.thought_ns += u128::from(thought_ns);
        }
    }

    /// An operation's time without waits, and the server's part of that, are these and not those, ns.
    pub(super) fn correct(&mut self, those: (u64, u64), these: (u64, u64)) {
        let (rest, server) = (bucket_of(these.0), bucket_of(these.1));
        let least = rest.max(server) + 1;
        self.times.resize(self.times.len().max(least), Bucket::default());
        self.servers.resize(self.servers.len().max(least), Bucket::default());
        if let Some(old) = self.times.get_mut(bucket_of(those.0)) {
            old.count = old.count.saturating_sub(1);
            old.sum_ns = old.sum_ns.saturating_sub(u128::from(those.0));
            old.server_ns = old.server_ns.saturating_sub(u128::from(those.1));
        }
        if let Some(old) = self.servers.get_mut(bucket_of(those.1)) {
            old.count = old.count.saturating_sub(1);
            old.sum_ns = old.sum_ns.saturating_sub(u128::from(those.1));
        }
        let new = &mut self.times[rest];
        (new.count, new.sum_ns) = (new.count + 1, new.sum_ns + u128::from(these.0));
        new.server_ns += u128::from(these.1);
        let new = &mut self.servers[server];
        (new.count, new.sum_ns) = (new.count + 1, new.sum_ns + u128::from(these.1));
        let first = self.times.iter().position(|bucket| bucket.count > 0).unwrap_or(0);
        self.fastest_ns = self.fastest_ns.max(edge(first));
    }

    /// The time of its operations, ns.
    pub(crate) fn time_ns(&self) -> u128 {
        self.time_ns
    }

    /// The waits of these kinds, ns.
    pub(crate) fn waited_ns(&self, kinds: &[StallKind]) -> u128 {
        kinds.iter().map(|&kind| self.waits[kind as usize].sum_ns).sum()
    }

    /// Operations with a wait of a kind.
    pub(crate) fn waiters(&self, kind: StallKind) -> u64 {
        self.waits[kind as usize].operations
    }

    /// What operations without their waits exceed the reference by, where it is as long as `from_ns` and not `until_ns`.
    pub(crate) fn exceeds(&self, from_ns: u64, until_ns: u64) -> u128 {
        let reference_ns = self.reference_ns();
        let (from, until) = (reference_ns.saturating_add(from_ns), reference_ns.saturating_add(until_ns));
        let alike = self.times.iter().enumerate();
        let alike = alike.filter(|(place, _)| (from..until).contains(&edge(*place)));
        alike.map(|(_, b)| b.sum_ns.saturating_sub(u128::from(b.count) * u128::from(reference_ns))).sum()
    }

    /// What the operations with a wait for lost data took longer than the others, ns. Chance picks what is lost, so the others show what
    /// these would have taken; `None` if they are too few.
    pub(crate) fn lossy_ns(&self) -> Option<u128> {
        let others = self.operations - self.lossy.operations;
        if self.is_mixed || others < OTHERS_MIN {
            return None;
        }
        let others_ns = (self.time_ns - self.lossy.sum_ns) / u128::from(others);
        Some(self.lossy.sum_ns.saturating_sub(others_ns * u128::from(self.lossy.operations)))
    }

    /// Whether the server's own time was seen.
    pub(crate) fn has_server(&self) -> bool {
        self.has_server
    }

    /// The part of the operations' time that is in the clients' time before them, too, ns.
    pub(crate) fn shared_ns(&self) -> u128 {
        self.shared_ns
    }

    /// The client's shortest time before an operation, as the capture point saw it, ns.
    pub(crate) fn least_thought_ns(&self) -> Option<u64> {
        self.least_thought_ns
    }

    /// Operations that are the first of a connection whose set-up was seen, and these set-ups, ns.
    pub(crate) fn setups(&self) -> (u64, u128) {
        (self.setups, self.setup_ns)
    }

    /// The shortest round trip of the network that is part of each operation's time as the capture point saw it, ns; 0: unknown.
    pub(crate) fn least_network_ns(&self) -> u64 {
        if self.has_server { 0 } else { self.near_ns }
    }

    /// Operations that replaced a response, and the client's time before them as the capture point saw it, ns.
    pub(crate) fn thoughts(&self) -> (u64, u128) {
        (self.thoughts, self.thought_ns)
    }

    /// The shortest round trip between the capture point and a client, ns; 0: unknown.
    pub(crate) fn away_ns(&self) -> u64 {
        self.away_ns
    }

    /// The service of its operations.
    pub(crate) fn service(&self) -> u32 {
        self.service
    }

    /// The buckets of the server's times: their lower edges, operations, and sums of the server's times, ns.
    pub(crate) fn server_times(&self) -> impl Iterator<Item = (u64, u64, u128)> {
        let held = self.servers.iter().enumerate().filter(|(_, bucket)| bucket.count > 0);
        held.map(|(place, bucket)| (edge(place), bucket.count, bucket.sum_ns))
    }

    /// The client's own mean time before an operation, without the network between it and the capture point, ns.
    pub(crate) fn own_thought_ns(&self) -> f64 {
        (self.thought_ns as f64 / self.thoughts.max(1) as f64 - self.away_ns as f64).max(0.0)
    }

    /// Whether the server's typical time is the round trip to the client, at several operations in flight: then responses leave
    /// when the one before is acknowledged.
    pub(crate) fn is_paced_by_client(&self) -> bool {
        let own_ns = self.typical_server_ns().saturating_sub(self.network_ns()) as f64;
        let away_ns = self.away_ns as f64;
        self.queue_depth() > 1.5 && away_ns > 0.0 && (own_ns / away_ns - 1.0).abs() <= 0.1
    }

    /// The mean time of the server and of what lies between it and the capture point, ns.
    pub(crate) fn mean_server_ns(&self) -> f64 {
        let sum_ns: u128 = self.servers.iter().map(|bucket| bucket.sum_ns).sum();
        sum_ns as f64 / self.operations.max(1) as f64
    }

    /// The mean time of an operation, and the client's mean time before it, ns, if nearly every request replaces a response: the
    /// cycle of a closed loop.
    pub(crate) fn cycle_ns(&self) -> Option<(f64, f64)> {
        let is_loop = self.thoughts as f64 >= LOOP * self.operations as f64;
        let mean = |sum: u128, count: u64| sum as f64 / count.max(1) as f64;
        is_loop.then(|| (mean(self.time_ns, self.operations), mean(self.thought_ns, self.thoughts)))
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

    /// A quantile of the server's times, without the network: an edge of a bucket, ns.
    fn server_at_ns(&self, share: f64) -> Option<f64> {
        let (place, mut passed) = (share * self.operations as f64, 0);
        let mut all = self.server_times();
        let found = all.find(|(_, count, _)| {
            passed += count;
            passed as f64 >= place
        });
        found.map(|(edge, ..)| edge.saturating_sub(self.network_ns()) as f64)
    }

    /// Whether the server seems to hold its requests until something happens, or a time is over: the times are those until events that
    /// come by chance; or they end at a cap, at which many are, and below it they are spread out; or nearly all are one whole number of
    /// seconds, as programs set it. Work that takes its time has a longest one by chance, and a tail towards it.
    pub(crate) fn is_held(&self) -> bool {
        chance::are_of_events(|share| self.server_at_ns(share)) || self.ends_at_a_cap()
    }

    fn ends_at_a_cap(&self) -> bool {
        let held = || self.server_times().filter(|(_, count, _)| *count > 0);
        let Some((top_ns, ..)) = held().last() else { return false };
        let at_cap = |ns: u64| ns >= top_ns - top_ns / (u64::from(STEPS) / 2);
        let sums = held()
            .filter(|(edge, ..)| at_cap(*edge))
            .fold((0, 0), |sum, (_, count, ns)| (sum.0 + count, sum.1 + ns));
        let share = sums.0 as f64 / self.operations.max(1) as f64;
        let seconds = sums.1 as f64 / sums.0.max(1) as f64 / 1e9;
        if share >= NEARLY_ALL {
            return seconds.round() >= 1.0 && (seconds / seconds.round() - 1.0).abs() <= WHOLE;
        }
        let below = || held().filter(|(edge, ..)| !at_cap(*edge)).map(|(edge, count, _)| (edge, count));
        let others: u64 = below().map(|(_, count)| count).sum();
        let quartile = |share: u64| {
            let mut passed = 0;
            let mut all = below();
            let found = all.find(|(_, count)| {
                passed += count;
                passed * 4 >= others * share
            });
            found.map_or(0, |(edge, _)| edge)
        };
        // As wide a stretch below the cap has far fewer.
        let part = u64::from(STEPS) / 4;
        let near: u64 =
            below().filter(|(edge, _)| *edge >= top_ns - top_ns / part).map(|(_, count)| count).sum();
        let is_cap = sums.0 >= CAPPED_MIN && share >= CAPPED && sums.0 >= CAPPED_TIMES * near;
        is_cap && quartile(3).saturating_sub(quartile(1)) >= quartile(2) / 2
    }

    /// The edge above the median of the server's times, ns.
    pub(crate) fn typical_server_ns(&self) -> u64 {
        above_median(self.servers.iter().map(|bucket| bucket.count), self.operations)
    }

    /// The time of the server that is no excess, and the network's where the server was not seen, ns.
    pub(crate) fn allowance_ns(&self) -> u64 {
        let server = (SERVER_ALLOWANCE_NS as f64 * self.queue_depth()) as u64;
        server.saturating_add(self.network_ns())
    }

    /// The network's part of [`Class::typical_server_ns`], ns.
    pub(crate) fn network_ns(&self) -> u64 {
        if self.has_server { self.near_ns } else { self.network_ns }
    }

    /// The typical time of an operation without waits, ns: an edge of a bucket.
    pub(crate) fn reference_ns(&self) -> u64 {
        if self.is_mixed || self.awaits_event { u64::MAX } else { self.typical_ns() }
    }

    /// The reference if the server's typical time beyond the allowance is too long, ns: an edge of a bucket.
    pub(crate) fn allowed_ns(&self) -> u64 {
        let beyond = self.typical_server_ns().saturating_sub(self.allowance_ns());
        if beyond == 0 {
            self.reference_ns()
        } else {
            self.at_most_ns(self.typical_ns().saturating_sub(beyond))
        }
    }

    /// The reference if an operation needs at most this time, ns: an edge of a bucket.
    pub(crate) fn at_most_ns(&self, ns: u64) -> u64 {
        edge(bucket_of(ns) + 1).min(self.reference_ns())
    }

    /// The excess beyond a reference, which is an edge of a bucket.
    pub(crate) fn rest(&self, reference_ns: u64) -> Rest {
        let mut rest = Rest::default();
        // What the reference is shorter than the typical time, the server's normal time is shorter, too.
        let shorter_ns = self.reference_ns().saturating_sub(reference_ns);
        let server_each = u128::from(self.typical_server_ns().saturating_sub(shorter_ns));
        let slow =
            self.times.iter().enumerate().filter(|(place, b)| b.count > 0 && edge(*place) >= reference_ns);
        let reference = u128::from(reference_ns);
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
