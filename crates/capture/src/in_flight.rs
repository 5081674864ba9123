//! What every application protocol keeps of the exchanges in flight: what the client was thinking, what
//! stalls they suffered, and how many there were.

use std::collections::VecDeque;

use record::{Exchange, Side, StallKind, StallSet};

use crate::packet::At;

/// Sums over a connection's exchanges.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// When the responses passed whose place no request has taken yet.
    free: VecDeque<u64>,
    /// Stalls of the request that is under way.
    pending: StallSet,
    /// Exchanges that ended.
    pub(crate) ended: u64,
    /// In flight now, since when, and their integral over time.
    depth: u32,
    since_ns: u64,
    pub(crate) in_flight_ns: u128,
    /// Messages that each side completed.
    pub(crate) messages: [u64; 2],
}

/// A place that was free for so long is none, unless it is the only one, nanoseconds: the client works less
/// deep than it did.
const FREE_NS: u64 = 500_000_000;

/// Most places that are remembered; more are in flight nowhere.
const FREE_MAX: usize = 65_536;

impl Pace {
    /// A request has passed: completes what is known of it.
    #[inline]
    pub(crate) fn begin(&mut self, exchange: &mut Exchange, began: At, now: At) {
        self.account(now.ns, 1);
        while self.free.len() > 1 && self.free.front().is_some_and(|&f| f.saturating_add(FREE_NS) < began.ns)
        {
            self.free.pop_front();
        }
        exchange.op.queue_depth = self.depth;
        exchange.thought_ns = self.free.pop_front().map(|response| began.ns.saturating_sub(response));
        exchange.ring_depth = self.depth + self.free.len() as u32;
        exchange.stalls = exchange.stalls.union(std::mem::take(&mut self.pending));
    }

    /// A response has passed.
    #[inline]
    pub(crate) fn end(&mut self, now: At) {
        self.account(now.ns, -1);
        self.ended += 1;
        if self.free.len() < FREE_MAX {
            self.free.push_back(now.ns);
        }
    }

    /// Requests were given up.
    pub(crate) fn forget(&mut self, count: usize, now: At) {
        self.account(now.ns, -i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Nothing is known of what passed meanwhile: no place is free, no time was thought.
    pub(crate) fn interrupted(&mut self) {
        self.free.clear();
    }

    /// A request's stall: it belongs to the request that comes next.
    pub(crate) fn stalled(&mut self, kind: StallKind) {
        self.pending.insert(kind);
    }

    /// A side completed a message.
    #[inline]
    pub(crate) fn message(&mut self, side: Side) {
        self.messages[side as usize] += 1;
    }

    /// How many are in flight.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    #[inline]
    fn account(&mut self, ns: u64, change: i64) {
        self.in_flight_ns += u128::from(self.depth) * u128::from(ns.saturating_sub(self.since_ns));
        self.since_ns = self.since_ns.max(ns);
        self.depth = (i64::from(self.depth) + change).clamp(0, i64::from(u32::MAX)) as u32;
    }
}
