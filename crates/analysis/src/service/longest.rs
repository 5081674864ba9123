//! The longest operations of a server, with their frames.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use record::Key;

/// Operations kept.
const KEPT: usize = 512;

/// An operation that took long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Long {
    /// The server's part of its time, ns.
    pub(crate) server_ns: u64,
    /// When its request and its response passed, nanoseconds since the epoch.
    pub(crate) began_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) connection: u32,
    /// What it asked for.
    pub(crate) key: Key,
    /// Its first frame and its last.
    pub(crate) frames: [u64; 2],
}

/// The longest ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Longest {
    heap: BinaryHeap<Reverse<Long>>,
}

impl Longest {
    #[inline]
    pub(crate) fn add(&mut self, long: Long) {
        if self.heap.len() < KEPT {
            self.heap.push(Reverse(long));
            return;
        }
        if let Some(mut least) = self.heap.peek_mut()
            && least.0.server_ns < long.server_ns
        {
            *least = Reverse(long);
        }
    }

    /// Those of at least this time, in the order of time; `None` if there were more than are kept.
    pub(crate) fn at_least(&self, ns: u64) -> Option<Vec<Long>> {
        let is_complete =
            self.heap.len() < KEPT || self.heap.peek().is_some_and(|least| least.0.server_ns < ns);
        is_complete.then(|| self.some(ns))
    }

    /// The longest time, ns; 0: there is none.
    pub(crate) fn most_ns(&self) -> u64 {
        self.heap.iter().map(|long| long.0.server_ns).max().unwrap_or(0)
    }

    /// Some of at least this time, the longest, in the order of time.
    pub(crate) fn some(&self, ns: u64) -> Vec<Long> {
        let mut all: Vec<Long> =
            self.heap.iter().map(|long| long.0).filter(|long| long.server_ns >= ns).collect();
        all.sort_unstable_by_key(|long| long.began_ns);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept_in_the_order_of_time() {
        let mut longest = Longest::default();
        for i in 0..10_000_u64 {
            let server_ns = (i * 7919) % 10_000;
            let (began_ns, ended_ns) = (i, i + server_ns);
            longest.add(Long {
                server_ns,
                began_ns,
                ended_ns,
                connection: 0,
                key: Key::NONE,
                frames: [i, i],
            });
        }
        let all = longest.at_least(9_600).unwrap();
        assert_eq!(all.len(), 400);
        assert!(all.is_sorted_by_key(|long| long.began_ns) && all.iter().all(|l| l.server_ns >= 9_600));
        assert_eq!(longest.at_least(5_000), None, "there were more");
    }
}
