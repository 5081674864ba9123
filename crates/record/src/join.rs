//! Joins the partial op records of three observers: the client's thread has start and finish, the client's capture
//! point C1 and C2, the server's capture point S1 and S2.
//!
//! TCP keeps both streams of a connection in order, and a task tag is unique among the operations in flight, so records
//! are joined by connection, tag and order of appearance. Operations that cannot be joined are counted.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::op::Op;

/// Operations that could not be followed through the whole ring, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// The reason.
    pub reason: HoleReason,
    /// Number of operations.
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
    /// A phrase for reports.
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

/// The joined operations of a run, and the ones that did not join.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// One record for each operation that the client completed and both sides saw, in the client's order.
    pub ops: Vec<Op>,
    /// Operations that did not join, by reason; empty when all joined.
    pub holes: Vec<Hole>,
}

/// Joins the records of the client's thread (`start`, `finish`) with those of the capture points: `c1` and `c2` at the
/// client, `s1` and `s2` at the server.
///
/// Each of the three inputs is in the order in which its observer saw the operations finish.
#[must_use]
pub fn join(completed: &[Op], client: &[Op], server: &[Op]) -> Joined {
    let mut at_client = ByTag::new(client);
    let mut at_server = ByTag::new(server);
    let mut ops = Vec::with_capacity(completed.len());
    let (mut no_client, mut no_server, mut no_stamp) = (0, 0, 0);
    for op in completed {
        let c = at_client.take(op.connection, op.tag);
        let s = at_server.take(op.connection, op.tag);
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
        let op = Op { request_bytes: c.request_bytes, response_bytes: c.response_bytes, ..op.and(c).and(s) };
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

/// Records by (connection, tag), in order where a tag was reused.
struct ByTag<'a> {
    queues: HashMap<(u32, u32), VecDeque<&'a Op>>,
}

impl<'a> ByTag<'a> {
    fn new(ops: &'a [Op]) -> Self {
        let mut queues: HashMap<_, VecDeque<_>> = HashMap::with_capacity(ops.len());
        for op in ops {
            queues.entry((op.connection, op.tag)).or_default().push_back(op);
        }
        Self { queues }
    }

    fn take(&mut self, connection: u32, tag: u32) -> Option<&'a Op> {
        self.queues.get_mut(&(connection, tag))?.pop_front()
    }

    fn left(&self) -> u64 {
        self.queues.values().map(|q| q.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Stamp;

    fn completed(tag: u32) -> Op {
        Op { connection: 1, tag, start: Stamp::at(1), finish: Stamp::at(100), ..Op::default() }
    }

    fn at_client(tag: u32, c1: u64, c2: u64) -> Op {
        Op { connection: 1, tag, c1: Stamp::at(c1), c2: Stamp::at(c2), ..Op::default() }
    }

    fn at_server(tag: u32, s1: u64, s2: u64) -> Op {
        Op { connection: 1, tag, s1: Stamp::at(s1), s2: Stamp::at(s2), ..Op::default() }
    }

    #[test]
    fn every_completed_operation_is_joined_or_in_a_hole() {
        let all = [completed(1), completed(2), completed(3), completed(4)];
        let client = [at_client(1, 10, 90), at_client(2, 10, 90), at_client(4, 10, 90), at_client(9, 1, 2)];
        let server = [at_server(1, 20, 80), at_server(3, 20, 80), at_server(4, 0, 80)];
        let joined = join(&all, &client, &server);
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
        let all = [completed(1), completed(1)];
        let client = [at_client(1, 10, 20), at_client(1, 30, 40)];
        let server = [at_server(1, 12, 18), at_server(1, 32, 38)];
        let joined = join(&all, &client, &server);
        assert_eq!(joined.ops.iter().map(|o| o.s1).collect::<Vec<_>>(), [Stamp::at(12), Stamp::at(32)]);
        assert!(joined.holes.is_empty());
    }
}
