//! Workloads: the sequence of accesses.

use fastrand::Rng;

use crate::pattern::Pattern;

/// An operation to issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Write rather than read.
    pub write: bool,
    /// First logical block.
    pub lba: u64,
}

/// The operations of a session, deterministic for a seed.
#[derive(Clone, Debug)]
pub struct Workload {
    pattern: Pattern,
    /// Logical blocks per operation.
    blocks: u64,
    /// The first block of the region.
    first: u64,
    /// The number of whole operations that fit in the region.
    places: u64,
    next: u64,
    rng: Rng,
}

impl Workload {
    /// Creates operations of `blocks` logical blocks, aligned to their size, over `region_blocks` blocks from `first` on;
    /// `None` when none fits.
    #[must_use]
    pub fn new(pattern: Pattern, blocks: u32, first: u64, region_blocks: u64, seed: u64) -> Option<Self> {
        let places = region_blocks / u64::from(blocks.max(1));
        (places > 0 && blocks > 0).then(|| Self {
            pattern,
            blocks: blocks.into(),
            first,
            places,
            next: 0,
            rng: Rng::with_seed(seed),
        })
    }

    /// Returns the next operation.
    #[inline]
    pub fn next_access(&mut self) -> Access {
        let (place, write) = match self.pattern {
            Pattern::Read | Pattern::Write => {
                let place = self.next;
                self.next = if place + 1 == self.places { 0 } else { place + 1 };
                (place, self.pattern == Pattern::Write)
            }
            Pattern::RandRead => (self.rng.u64(..self.places), false),
            Pattern::RandWrite => (self.rng.u64(..self.places), true),
            Pattern::RandRw => (self.rng.u64(..self.places), self.rng.bool()),
        };
        Access { write, lba: self.first + place * self.blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequential_wraps_and_random_stays_in_range() {
        let mut seq = Workload::new(Pattern::Write, 8, 100, 30, 1).unwrap();
        let lbas: Vec<u64> = (0..4).map(|_| seq.next_access().lba).collect();
        assert_eq!(lbas, [100, 108, 116, 100]);
        let mut random = Workload::new(Pattern::RandRw, 8, 100, 30, 1).unwrap();
        let all: Vec<Access> = (0..200).map(|_| random.next_access()).collect();
        assert!(all.iter().all(|a| [100, 108, 116].contains(&a.lba)));
        assert!(all.iter().any(|a| a.write) && all.iter().any(|a| !a.write));
        assert!(Workload::new(Pattern::Read, 8, 0, 7, 1).is_none());
    }

    #[test]
    fn same_seed_gives_the_same_stream() {
        let stream = |seed| {
            let mut w = Workload::new(Pattern::RandRead, 1, 0, 1 << 40, seed).unwrap();
            (0..50).map(|_| w.next_access().lba).collect::<Vec<_>>()
        };
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }
}
