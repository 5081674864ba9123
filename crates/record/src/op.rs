//! The op record: one operation, six stamps.
//!
//! Everything that explains an operation (breakdown, modes, verdicts, charts, exports) knows
//! only this record, whether it comes from a packet capture, from kernel socket timestamps or from a
//! simulation.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::verb::{Outcome, Verb};

/// A time in nanoseconds since the Unix epoch on the clock of the side that stamped it, or missing when
/// that point was not observed.
///
/// Stamps of different sides may only be subtracted when both sides share one clock; [`crate::split`]
/// keeps to that rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stamp(Option<NonZeroU64>);

impl Stamp {
    /// The point was not observed.
    pub const MISSING: Stamp = Stamp(None);

    /// The time `ns` nanoseconds after the epoch; 0 means "not observed".
    #[must_use]
    pub const fn at(ns: u64) -> Self {
        Stamp(NonZeroU64::new(ns))
    }

    /// Nanoseconds since the epoch, if the point was observed.
    #[must_use]
    pub fn ns(self) -> Option<u64> {
        self.0.map(NonZeroU64::get)
    }

    /// Whether the point was observed.
    #[must_use]
    pub fn is_known(self) -> bool {
        self.0.is_some()
    }

    /// Signed nanoseconds from `earlier` to `self`; `None` when either is missing. Negative when the
    /// stamps are out of order, which is a finding and must not be hidden.
    #[must_use]
    pub fn since(self, earlier: Stamp) -> Option<i64> {
        let (late, early) = (self.ns()?, earlier.ns()?);
        Some(late.wrapping_sub(early).cast_signed())
    }
}

impl std::fmt::Debug for Stamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.ns() {
            Some(ns) => write!(f, "{ns}ns"),
            None => f.write_str("missing"),
        }
    }
}

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The initiator, which sends requests.
    Client,
    /// The target, which sends responses.
    Server,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    /// Its name in a sentence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

/// The direction that carries an operation's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// Data travels with the response.
    Read,
    /// Data travels with the request.
    Write,
    /// No data, or a command that is neither (INQUIRY, TEST UNIT READY, NOP).
    #[default]
    Other,
}

/// One operation on its way round the ring (start, C1, S1, S2, C2, finish).
///
/// At the four capture points the stamp is that of the packet carrying the *last* byte of the request
/// (C1, S1) or of the response (S2, C2): only then has the message passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Op {
    /// Which connection: the client's TCP port in a live study, a running number in a capture.
    pub connection: u32,
    /// The initiator task tag, unique among the operations in flight on its session.
    pub tag: u32,
    /// The request.
    pub verb: Verb,
    /// The direction of the data.
    pub kind: OpKind,
    /// The outcome.
    pub outcome: Outcome,
    /// Operations in flight on its connection when its request passed, this one included, where a capture point counts
    /// them; the depth of its ring, where the observer is the load or a simulation.
    pub queue_depth: u32,
    /// Application data, bytes (the I/O size).
    pub data_bytes: u32,
    /// Request on the wire above TCP, bytes: header and any data.
    pub request_bytes: u32,
    /// Response on the wire above TCP, bytes: headers and any data.
    pub response_bytes: u32,
    /// The client began to issue the operation (start line of the ring).
    pub start: Stamp,
    /// The request left the client (client's transmit capture point).
    pub c1: Stamp,
    /// The request reached the server (server's receive capture point).
    pub s1: Stamp,
    /// The response left the server.
    pub s2: Stamp,
    /// The response reached the client.
    pub c2: Stamp,
    /// The client thread took the response (finish line of the ring).
    pub finish: Stamp,
}

impl Op {
    /// The record of one side's capture point: the times at which the request and the response passed.
    #[must_use]
    pub fn seen(side: Side, request: Stamp, response: Stamp) -> Self {
        match side {
            Side::Client => Self { c1: request, c2: response, ..Self::default() },
            Side::Server => Self { s1: request, s2: response, ..Self::default() },
        }
    }

    /// The same operation, with missing stamps taken from another observer.
    #[must_use]
    pub fn and(self, other: &Op) -> Self {
        let or = |own: Stamp, others: Stamp| if own.is_known() { own } else { others };
        Self {
            start: or(self.start, other.start),
            c1: or(self.c1, other.c1),
            s1: or(self.s1, other.s1),
            s2: or(self.s2, other.s2),
            c2: or(self.c2, other.c2),
            finish: or(self.finish, other.finish),
            ..self
        }
    }

    /// Whether all six points were observed.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        [self.start, self.c1, self.s1, self.s2, self.c2, self.finish].iter().all(|s| s.is_known())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_stamp_subtracts_to_nothing() {
        assert_eq!(Stamp::at(5).since(Stamp::MISSING), None);
        assert_eq!(Stamp::MISSING.since(Stamp::at(5)), None);
        assert_eq!(Stamp::at(5).since(Stamp::at(7)), Some(-2));
    }
}
