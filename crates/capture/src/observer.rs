//! Events of followed connections.

use record::{ClockStep, ConnectionFacts, Exchange, Key, Opened, Stall};
use serde::{Deserialize, Serialize};

use crate::follow::Flow;
use crate::stream::Missing;

#[cfg(test)]
pub(crate) mod seen;

/// Receives the events of connections as they occur.
pub trait Observer {
    /// A request and its response have passed.
    fn exchange(&mut self, exchange: &Exchange);
    /// A request has passed, and no response before the end of its connection or of the capture.
    fn unanswered(&mut self, _exchange: &Exchange) {}
    /// Requests of this key are about to pass; told again at times.
    fn named(&mut self, _key: Key, _name: &str) {}
    /// Bytes of a stream are missing from the capture.
    fn hole(&mut self, hole: StreamHole);
    /// A connection did not move data that it had.
    fn stall(&mut self, _stall: &Stall) {}
    /// The capturing clock was set.
    fn clock_step(&mut self, _step: &ClockStep) {}
    /// A connection is about to carry its first data.
    fn opened(&mut self, _opened: &Opened) {}
    /// A connection has ended, or the capture has.
    fn connection(&mut self, _facts: &ConnectionFacts) {}
    /// The counters of a connection that is no longer followed.
    fn counted(&mut self, counted: &Counted);
}

/// Counters of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Segments whose bytes had all arrived before.
    pub retransmitted: u64,
    /// Segments that arrived out of order.
    pub out_of_order: u64,
    /// How often a message boundary was lost.
    pub boundaries_lost: u64,
    /// Bytes in which no message boundary was known.
    pub skipped_bytes: u64,
    /// Responses whose request was not seen.
    pub unmatched: u64,
    /// Abandoned requests.
    pub abandoned: u64,
    /// Requests whose response was not seen before the end.
    pub unanswered: u64,
    /// 1 if it seemed to be of a protocol that it is not.
    pub mistaken: u64,
    /// 1 if it carried data in which neither an operation nor an unanswered request was seen.
    pub without_operations: u64,
}

impl Counted {
    /// The sum of the counters of two stretches of a connection.
    #[must_use]
    pub fn then(self, later: Self) -> Self {
        Self {
            retransmitted: self.retransmitted + later.retransmitted,
            out_of_order: self.out_of_order + later.out_of_order,
            boundaries_lost: self.boundaries_lost + later.boundaries_lost,
            skipped_bytes: self.skipped_bytes + later.skipped_bytes,
            unmatched: self.unmatched + later.unmatched,
            abandoned: self.abandoned + later.abandoned,
            unanswered: self.unanswered + later.unanswered,
            mistaken: self.mistaken + later.mistaken,
            without_operations: self.without_operations + later.without_operations,
        }
    }
}

/// A hole in a stream: bytes that were on the wire and not in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHole {
    /// The connection, as in [`record::Op::connection`].
    pub connection: u32,
    /// The stream.
    pub flow: Flow,
    /// Position, length, time and reason.
    #[serde(flatten)]
    pub missing: Missing,
}
