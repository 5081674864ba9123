//! What one side saw of an operation, and how the sightings of both sides become op records.
//!
//! A side sees each request and each response cross its own capture point. TCP keeps both streams in order,
//! and a task tag is unique among the operations in flight, so the two sides' sightings of a connection are
//! joined by tag and by order of appearance. What cannot be joined is counted, never dropped silently.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::op::{Op, OpKind, Stamp};

/// One operation as seen from one side of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sighting {
    /// As in [`Op::connection`]; both sides must number a connection alike.
    pub connection: u32,
    /// The initiator task tag.
    pub tag: u32,
    /// Which way the data goes.
    pub kind: OpKind,
    /// Application data, bytes.
    pub data_bytes: u32,
    /// Request above TCP, bytes.
    pub request_bytes: u32,
    /// Response above TCP, bytes.
    pub response_bytes: u32,
    /// When the last byte of the request crossed this side's capture point (C1 or S1).
    pub request: Stamp,
    /// When the last byte of the response crossed this side's capture point (C2 or S2).
    pub response: Stamp,
}

/// The client thread's own record of an operation: the start and finish lines of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Lap {
    /// As in [`Op::connection`].
    pub connection: u32,
    /// The initiator task tag.
    pub tag: u32,
    /// Which way the data goes.
    pub kind: OpKind,
    /// Application data, bytes.
    pub data_bytes: u32,
    /// Start line.
    pub start: Stamp,
    /// Finish line.
    pub finish: Stamp,
}

/// Operations that could not be followed all the way round, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// What went missing.
    pub reason: HoleReason,
    /// How many operations it concerns.
    pub operations: u64,
}

/// Why operations are missing from the joined record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoleReason {
    /// The client completed it, but no client-side capture point saw it.
    NotSeenAtClient,
    /// The client completed it, but no server-side capture point saw it.
    NotSeenAtServer,
    /// Seen on the wire, but not among the operations the client completed (in flight when the run ended,
    /// or not issued by the measured client).
    NotCompletedByClient,
    /// Both sides saw it, but at least one stamp is missing.
    StampMissing,
}

impl HoleReason {
    /// One phrase for a person.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            HoleReason::NotSeenAtClient => "completed, but not seen at the client's capture point",
            HoleReason::NotSeenAtServer => "completed, but not seen at the server's capture point",
            HoleReason::NotCompletedByClient => "seen on the wire, but not completed by the measured client",
            HoleReason::StampMissing => "seen, but a capture point has no stamp for it",
        }
    }
}

/// The joined operations of a run with everything that did not fit.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// One record per lap that both sides saw, in the order of the laps.
    pub ops: Vec<Op>,
    /// What is missing, by reason; empty when everything was followed round.
    pub holes: Vec<Hole>,
}

/// Joins the client's laps with both sides' sightings.
///
/// Each of the three inputs is in the order in which its side saw the operations finish.
#[must_use]
pub fn join(laps: &[Lap], client: &[Sighting], server: &[Sighting]) -> Joined {
    let mut at_client = ByTag::new(client);
    let mut at_server = ByTag::new(server);
    let mut ops = Vec::with_capacity(laps.len());
    let (mut no_client, mut no_server, mut no_stamp) = (0, 0, 0);
    for lap in laps {
        let c = at_client.take(lap.connection, lap.tag);
        let s = at_server.take(lap.connection, lap.tag);
        let (c, s) = match (c, s) {
            (Some(c), Some(s)) => (c, s),
            (None, _) => {
                no_client += 1;
                continue;
            }
            (_, None) => {
                no_server += 1;
                continue;
            }
        };
        let op = Op {
            connection: lap.connection,
            tag: lap.tag,
            kind: lap.kind,
            data_bytes: lap.data_bytes,
            request_bytes: c.request_bytes,
            response_bytes: c.response_bytes,
            start: lap.start,
            c1: c.request,
            s1: s.request,
            s2: s.response,
            c2: c.response,
            finish: lap.finish,
        };
        if op.is_complete() {
            ops.push(op);
        } else {
            no_stamp += 1;
        }
    }
    let strangers = at_client.left().max(at_server.left());
    let holes = [
        (HoleReason::NotSeenAtClient, no_client),
        (HoleReason::NotSeenAtServer, no_server),
        (HoleReason::StampMissing, no_stamp),
        (HoleReason::NotCompletedByClient, strangers),
    ]
    .into_iter()
    .filter(|&(_, operations)| operations > 0)
    .map(|(reason, operations)| Hole { reason, operations })
    .collect();
    Joined { ops, holes }
}

/// Sightings by (connection, tag), in order where a tag was used again.
struct ByTag<'a> {
    queues: HashMap<(u32, u32), VecDeque<&'a Sighting>>,
}

impl<'a> ByTag<'a> {
    fn new(sightings: &'a [Sighting]) -> Self {
        let mut queues: HashMap<_, VecDeque<_>> = HashMap::with_capacity(sightings.len());
        for s in sightings {
            queues.entry((s.connection, s.tag)).or_default().push_back(s);
        }
        Self { queues }
    }

    fn take(&mut self, connection: u32, tag: u32) -> Option<&'a Sighting> {
        self.queues.get_mut(&(connection, tag))?.pop_front()
    }

    fn left(&self) -> u64 {
        self.queues.values().map(|q| q.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lap(tag: u32) -> Lap {
        Lap { connection: 1, tag, start: Stamp::at(1), finish: Stamp::at(100), ..Lap::default() }
    }

    fn seen(tag: u32, request: u64, response: u64) -> Sighting {
        Sighting {
            connection: 1,
            tag,
            request: Stamp::at(request),
            response: Stamp::at(response),
            ..Sighting::default()
        }
    }

    #[test]
    fn every_lap_is_an_op_or_in_a_hole() {
        let laps = [lap(1), lap(2), lap(3), lap(4)];
        let client = [seen(1, 10, 90), seen(2, 10, 90), seen(4, 10, 90), seen(9, 1, 2)];
        let server = [seen(1, 20, 80), seen(3, 20, 80), seen(4, 0, 80)];
        let joined = join(&laps, &client, &server);
        assert_eq!(joined.ops.len(), 1);
        assert_eq!(joined.ops[0].s2, Stamp::at(80));
        let count = |r| joined.holes.iter().find(|h| h.reason == r).map_or(0, |h| h.operations);
        assert_eq!(count(HoleReason::NotSeenAtServer), 1);
        assert_eq!(count(HoleReason::NotSeenAtClient), 1);
        assert_eq!(count(HoleReason::StampMissing), 1);
        assert_eq!(count(HoleReason::NotCompletedByClient), 1);
    }

    #[test]
    fn a_tag_used_again_is_joined_in_order() {
        let laps = [lap(1), lap(1)];
        let client = [seen(1, 10, 20), seen(1, 30, 40)];
        let server = [seen(1, 12, 18), seen(1, 32, 38)];
        let joined = join(&laps, &client, &server);
        assert_eq!(joined.ops.iter().map(|o| o.s1).collect::<Vec<_>>(), [Stamp::at(12), Stamp::at(32)]);
        assert!(joined.holes.is_empty());
    }
}
