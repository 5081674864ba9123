//! Waits that may turn out to be none: what only many of them together show.

use record::{StallKind, StallSet};

use super::Ledger;
use crate::verdict::DOUBTFUL;

/// Most operations with such a wait that are remembered; of further ones it stays a wait.
const DOUBTFUL_MAX: usize = 65_536;

/// An operation with such a wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubtful {
    place: usize,
    /// Its time without other waits, and the server's, nanoseconds.
    time_ns: u64,
    server_ns: u64,
    /// Its doubtful waits, nanoseconds.
    waits_ns: [u64; DOUBTFUL.len()],
}

impl Doubtful {
    /// Its time without waits, and the server's part of that, nanoseconds.
    fn rest_ns(&self) -> (u64, u64) {
        let rest_ns = self.time_ns.saturating_sub(self.waits_ns.iter().sum());
        (rest_ns, self.server_ns.min(rest_ns))
    }
}

impl Ledger {
    /// Remembers an operation of a class that has a doubtful wait.
    pub(super) fn doubt(&mut self, place: usize, time_ns: u64, server_ns: u64, waits: &StallSet) {
        let waits_ns = DOUBTFUL.map(|kind| waits.wait_ns(kind));
        let sum_ns: u64 = waits_ns.iter().sum();
        if sum_ns > 0 && self.doubtful.len() < DOUBTFUL_MAX {
            let time_ns = time_ns.saturating_sub(waits.sum_ns().saturating_sub(sum_ns));
            self.doubtful.push(Doubtful { place, time_ns, server_ns, waits_ns });
        }
    }

    /// The waits of a doubtful kind were none: their time is that of their operations.
    pub(crate) fn without(&mut self, kind: StallKind) {
        let Some(which) = DOUBTFUL.iter().position(|&of| of == kind) else { return };
        for doubtful in &mut self.doubtful {
            let wait_ns = doubtful.waits_ns[which];
            let Some(class) = self.classes.get_mut(doubtful.place).filter(|_| wait_ns > 0) else { continue };
            let before = doubtful.rest_ns();
            doubtful.waits_ns[which] = 0;
            class.correct(before, doubtful.rest_ns());
            let waits = &mut class.waits[kind as usize];
            waits.operations = waits.operations.saturating_sub(1);
            waits.sum_ns = waits.sum_ns.saturating_sub(u128::from(wait_ns));
        }
    }
}
