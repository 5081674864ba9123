//! The event queue, ordered by time; events of one time keep the order in which they were planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use record::Side;

use crate::Ns;

/// An event of the simulation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A packet leaves the wire.
    Arrive(u32),
    /// A CPU is interrupted for its queued packets.
    Interrupt { side: Side, cpu: u16, number: u32 },
    /// A CPU completes its present work.
    End { side: Side, cpu: u16, number: u32 },
    /// A thread is ready to run.
    Wake { side: Side, session: u32 },
    /// A timer of a connection ends.
    Timer { side: Side, session: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Planned {
    at: Ns,
    order: u64,
    event: Event,
}

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Planned {
    /// Reversed, because the heap returns the greatest first.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

#[derive(Debug, Default)]
pub(super) struct Events {
    heap: BinaryHeap<Planned>,
    planned: u64,
}

impl Events {
    #[inline]
    pub(super) fn plan(&mut self, at: Ns, event: Event) {
        self.planned += 1;
        self.heap.push(Planned { at, order: self.planned, event });
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<(Ns, Event)> {
        self.heap.pop().map(|planned| (planned.at, planned.event))
    }
}
