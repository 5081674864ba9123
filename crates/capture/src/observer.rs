//! What is found while connections are followed.

use record::{ConnectionFacts, Exchange, Opened, Stall};
use serde::{Deserialize, Serialize};

use crate::follow::Flow;
use crate::stream::Missing;

/// Takes what is found on connections, as it is found.
pub trait Observer {
    /// A request and its response have passed.
    fn exchange(&mut self, exchange: &Exchange);
    /// Bytes of a stream are missing from the capture.
    fn hole(&mut self, hole: StreamHole);
    /// A connection did not move data that it had.
    fn stall(&mut self, _stall: &Stall) {}
    /// The first data on a connection is about to pass.
    fn opened(&mut self, _opened: &Opened) {}
    /// A connection is over, or the capture.
    fn connection(&mut self, _facts: &ConnectionFacts) {}
    /// Sums of a connection that is followed no further.
    fn counted(&mut self, counted: &Counted);
}

/// What was counted on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Segments that repeated what had come.
    pub retransmitted: u64,
    /// Segments that came before their turn.
    pub out_of_order: u64,
    /// How often a message boundary was lost.
    pub boundaries_lost: u64,
    /// Bytes in which no message boundary was known.
    pub skipped_bytes: u64,
    /// Responses whose request was not seen.
    pub unmatched: u64,
    /// Requests that were given up.
    pub abandoned: u64,
    /// Requests whose response was not seen before the end.
    pub unanswered: u64,
}

/// A hole in a stream: bytes that were on the wire and not in the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamHole {
    /// The connection, as in [`record::Op::connection`].
    pub connection: u32,
    /// Which of its streams.
    pub flow: Flow,
    /// Where, how much, when and why.
    #[serde(flatten)]
    pub missing: Missing,
}
