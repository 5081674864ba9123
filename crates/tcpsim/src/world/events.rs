//! What is to happen, in the order of its time; what happens at one moment keeps the order in which it was planned.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use record::Side;

use crate::Ns;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A packet comes out of the wire.
    Arrive(u32),
    /// A CPU is interrupted for the packets that wait there.
    Interrupt { side: Side, cpu: u16, number: u32 },
    /// What a CPU does is over.
    End { side: Side, cpu: u16, number: u32 },
    /// A thread is ready to run.
    Wake { side: Side, session: u32 },
    /// A timer of a connection.
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
    /// The earliest is the greatest, as the heap gives the greatest.
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
