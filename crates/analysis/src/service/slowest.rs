//! The slowest operations of a capture, with what finds them again: frames, connection, stream and key.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use record::{Key, Observed, Status, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Operations kept unless more are asked for.
pub const SLOWEST: usize = 20;

/// A slow operation, as reports show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SlowRow {
    /// Its server.
    pub service: Option<String>,
    /// Its name.
    pub operation: String,
    /// What it was for: its path, statement or key, folded; empty: unknown.
    pub key: String,
    /// How it was answered; empty: unknown.
    pub status: String,
    /// Its connection.
    pub connection: u32,
    /// Its stream; absent where a connection has one only.
    pub stream: Option<u32>,
    /// When its request began, nanoseconds since the epoch.
    pub began_ns: u64,
    /// Its time, as its user sees it, microseconds.
    pub whole_us: f64,
    /// From its request's last byte to its response's first, microseconds.
    pub first_byte_us: Option<f64>,
    /// The first frame of its request, and the last of its response.
    pub frames: [u64; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slow {
    pub(super) whole_ns: u64,
    /// The earlier one of two that are equally slow comes first.
    pub(super) began_ns: Reverse<u64>,
    pub(super) server: u32,
    pub(super) verb: Verb,
    pub(super) key: Key,
    pub(super) status: Status,
    pub(super) connection: u32,
    pub(super) stream: u32,
    pub(super) first_byte_ns: Option<i64>,
    pub(super) frames: [u64; 2],
}

/// The slowest ones.
#[derive(Debug)]
pub(super) struct Slowest {
    most: usize,
    heap: BinaryHeap<Reverse<Slow>>,
}

impl Default for Slowest {
    fn default() -> Self {
        Self::new(SLOWEST)
    }
}

impl Slowest {
    pub(super) fn new(most: usize) -> Self {
        Self { most, heap: BinaryHeap::new() }
    }

    #[inline]
    pub(super) fn add(&mut self, observed: &Observed, server: u32) {
        let whole_ns = observed.whole_ns();
        let is_full = self.heap.len() >= self.most;
        if is_full && self.heap.peek().is_none_or(|least| least.0.whole_ns >= whole_ns) {
            return;
        }
        if is_full {
            self.heap.pop();
        }
        let seen = &observed.detail;
        self.heap.push(Reverse(Slow {
            whole_ns,
            began_ns: Reverse(seen.request.began.ns().unwrap_or(0)),
            server,
            verb: observed.op.verb,
            key: seen.key,
            status: seen.status,
            connection: observed.op.connection,
            stream: seen.stream,
            first_byte_ns: seen.first_byte_ns(),
            frames: [seen.request.first_frame, seen.response.last_frame],
        }));
    }

    /// Those kept, the slowest first.
    pub(super) fn all(&self) -> Vec<Slow> {
        let mut all: Vec<Slow> = self.heap.iter().map(|slow| slow.0).collect();
        all.sort_unstable_by_key(|slow| Reverse(*slow));
        all
    }
}

#[cfg(test)]
mod tests {
    use record::{Exchange, Passage, Side, Stamp};

    use super::*;

    #[test]
    fn the_slowest_are_kept_the_slowest_first() {
        let mut slowest = Slowest::new(3);
        for (n, took) in [5, 900, 20, 900, 7, 300].into_iter().enumerate() {
            let began = 1000 * (n as u64 + 1);
            let response = Passage { ended: Stamp::at(began + took), ..Passage::begin(began + 1, 2) };
            let exchange = Exchange { request: Passage::begin(began, 1), response, ..Exchange::default() };
            slowest.add(&Observed::alone(Side::Client, &exchange), 0);
        }
        let kept: Vec<_> = slowest.all().iter().map(|slow| (slow.whole_ns, slow.began_ns.0)).collect();
        assert_eq!(kept, [(900, 2000), (900, 4000), (300, 6000)]);
        let mut none = Slowest::new(0);
        none.add(&Observed::alone(Side::Client, &Exchange::default()), 0);
        assert!(none.all().is_empty());
    }
}
