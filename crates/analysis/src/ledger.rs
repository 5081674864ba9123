//! Where the time of operations went, beyond what they need: the account that the verdicts share.
//!
//! The *time* of an operation is what its user sees: from the first byte of its request, or from when TCP began to hold it,
//! to the last byte of its response. Operations of one service, kind, size and queue depth form a *class*. Their
//! *reference* is the median of their times without the waits that packets prove ([`record::StallSet`]). Where a verdict says
//! that the typical time itself is too long, the reference is shorter: the time of a request that meets no other, at a
//! server whose requests wait for each other; and the time less what the server's typical time exceeds the allowance
//! ([`SERVER_ALLOWANCE_NS`] for each operation in flight), where a client that always has the next request ready waits for
//! the server. The *excess* of an operation is its waits, and the rest of its time as far as it exceeds the reference.
//! Requests that never get a response are excess as a whole.
//!
//! The server's time ends with the first byte of the response. How long the others take is its *transfer*.
//!
//! Each nanosecond of the excess is counted once: a wait belongs to its cause, the rest to the server or to nobody. So the
//! sum over verdicts and the unexplained rest is the excess.
//!
//! What a request waits for an event by its protocol (a blocking pop) is neither time nor excess: it would make the time that others
//! lost look small. Only the waits that packets prove count.
//!
//! Memory does not grow with the number of operations: sums by bucket of time, 32 to an octave.

mod class;
mod doubt;

use std::collections::HashMap;

pub(crate) use class::Class;
use doubt::Doubtful;
use record::{Observed, StallKind, StallSet, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most classes; operations of further ones share one, which has no reference.
const CLASSES_MAX: usize = 256;
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
    awaits_event: bool,
}

/// All operations.
#[derive(Debug, Default)]
pub struct Ledger {
    places: HashMap<Key, usize, foldhash::fast::RandomState>,
    classes: Vec<Class>,
    recent: Option<(Key, usize)>,
    /// The classes of each service.
    by_service: HashMap<u32, Vec<usize>, foldhash::fast::RandomState>,
    /// Operations with a wait for lost data.
    retransmitted: u64,
    /// Operations with a wait that may turn out to be none.
    doubtful: Vec<Doubtful>,
}

impl Ledger {
    /// The shortest network round trips of a connection of a service, nanoseconds: from the capture point to the server, for
    /// classes whose server was not seen, and to the client.
    pub fn far(&mut self, service: u32, network_ns: u64, away_ns: u64) {
        for &place in self.by_service.get(&service).into_iter().flatten() {
            let class = &mut self.classes[place];
            class.network_ns = class.network_ns.max(network_ns);
            let shortest = |known, ns| [known, ns].into_iter().filter(|&ns| ns > 0).min().unwrap_or(0);
            class.near_ns = shortest(class.near_ns, network_ns);
            class.away_ns = shortest(class.away_ns, away_ns);
        }
    }

    /// Adds an operation of a service.
    #[inline]
    pub fn add(&mut self, observed: &Observed, service: u32) {
        // Its time at one of two points is not what its user saw.
        if observed.is_partial {
            return;
        }
        let whole_ns = observed.whole_ns();
        let op = &observed.op;
        let key = Key {
            service,
            verb: op.verb,
            bytes: op.data_bytes.checked_ilog2().map_or(0, |log| 1 << log),
            depth: observed.detail.ring_depth.max(1).checked_next_power_of_two().unwrap_or(u32::MAX),
            awaits_event: observed.detail.awaits_event,
        };
        let place = match self.recent {
            Some((recent, place)) if recent == key => place,
            _ => self.place(key),
        };
        self.recent = Some((key, place));
        let mut stalls = observed.detail.stalls;
        if observed.detail.awaits_event {
            // It ends when its event comes, at a tick or not.
            stalls = stalls.without(StallKind::CorkedAnswer);
        }
        let waits = (!stalls.is_empty()).then(|| stalls.within(whole_ns));
        let waits_ns = waits.as_ref().map_or(0, StallSet::sum_ns);
        let time_ns = if observed.detail.awaits_event { waits_ns } else { whole_ns };
        if let Some(waits) = waits {
            if LOSSES.into_iter().any(|kind| waits.contains(kind)) {
                self.retransmitted += 1;
                let lossy = &mut self.classes[place].lossy;
                (lossy.operations, lossy.sum_ns) = (lossy.operations + 1, lossy.sum_ns + u128::from(time_ns));
            }
            for kind in StallKind::ALL.into_iter().filter(|&kind| waits.contains(kind)) {
                let all = &mut self.classes[place].waits[kind as usize];
                all.operations += 1;
                all.sum_ns += u128::from(waits.wait_ns(kind));
            }
        }
        let rest_ns = time_ns - waits_ns;
        let server = observed.server_first_ns.or_else(|| observed.detail.first_byte_ns()).unwrap_or(0);
        let server = u64::try_from(server).unwrap_or(0);
        let server_ns = server.min(rest_ns);
        if let Some(waits) = waits {
            self.doubt(place, time_ns, server, &waits);
        }
        self.classes[place].has_server |= observed.server_first_ns.is_some();
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
        let Key { service, verb, awaits_event, .. } = key;
        self.classes.push(Class::new(service, verb, is_mixed).awaiting(awaits_event));
        let place = self.classes.len() - 1;
        self.by_service.entry(service).or_default().push(place);
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
        let all = self.classes.iter().map(|class| class.waits[kind as usize]);
        all.fold((0, 0), |sum, waits| (sum.0 + waits.operations, sum.1 + waits.sum_ns))
    }

    /// All waits that packets prove, nanoseconds.
    pub(crate) fn waits_ns(&self) -> u128 {
        StallKind::ALL.into_iter().map(|kind| self.waits(kind).1).sum()
    }

    /// Operations that waited for a retransmission, and their waits, nanoseconds.
    #[must_use]
    pub fn retransmissions(&self) -> (u64, u128) {
        (self.retransmitted, LOSSES.into_iter().map(|kind| self.waits(kind).1).sum())
    }

    /// The time of all operations, nanoseconds.
    #[must_use]
    pub fn time_ns(&self) -> u128 {
        self.classes.iter().map(Class::time_ns).sum()
    }

    /// The excess of all operations, nanoseconds, beyond these references of the classes.
    pub(crate) fn excess_ns(&self, references_ns: &[u64]) -> u128 {
        self.waits_ns() + self.rest_ns(references_ns)
    }

    /// The excess without the waits.
    pub(crate) fn rest_ns(&self, references_ns: &[u64]) -> u128 {
        self.classes.iter().zip(references_ns).map(|(class, &reference_ns)| class.rest(reference_ns).ns).sum()
    }
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
