//! Chains of operations: each begins as soon as the one before has ended, so each pays for a round trip of the network.

use std::collections::HashMap;

use record::Observed;

/// Most connections with chains; operations of further ones are not counted.
const CONNECTIONS_MAX: usize = 4096;
/// A request that follows a response within this part of the operation's time depends on nothing else.
const PROMPT_PART: u64 = 10;

/// The operations of a connection that followed another one at once, while nothing else was in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    /// All operations of the connection.
    pub(super) operations: u64,
    /// Those that followed at once.
    pub(super) followed: u64,
    /// Their time, and the client's time before each, nanoseconds.
    pub(super) time_ns: u64,
    pub(super) thought_ns: u64,
    /// The shortest of their cycles, from one response to the next, nanoseconds.
    pub(super) least_ns: u64,
    /// The network's round trip between the capture point and the client, nanoseconds; 0: unknown.
    away_ns: u64,
    /// Frames of the first three: the response and the request that followed it.
    pub(super) frames: [[u64; 3]; 3],
}

/// The chains of all connections.
#[derive(Debug, Default)]
pub(super) struct Chains {
    all: HashMap<u32, Chain>,
}

impl Chains {
    /// Adds a connection whose handshake was seen: how long the way to its client and back takes.
    pub(super) fn opened(&mut self, connection: u32, away_ns: u64) {
        if self.all.len() >= CONNECTIONS_MAX && !self.all.contains_key(&connection) {
            return;
        }
        let chain = self.all.entry(connection).or_default();
        // Of two capture points, the client's is nearer, and the client's time is taken there.
        chain.away_ns = if chain.away_ns == 0 { away_ns } else { chain.away_ns.min(away_ns) };
    }

    /// Adds an operation.
    #[inline]
    pub(super) fn observed(&mut self, observed: &Observed) {
        // A ring of several has no chain, and an operation that waited has another cause.
        let detail = &observed.detail;
        if detail.ring_depth > 1 || observed.is_partial || !detail.stalls.is_empty() {
            return;
        }
        let connection = observed.op.connection;
        if self.all.len() >= CONNECTIONS_MAX && !self.all.contains_key(&connection) {
            return;
        }
        let chain = self.all.entry(connection).or_default();
        chain.operations += 1;
        let time_ns = observed.whole_ns();
        let Some(thought_ns) = detail.thought_ns else { return };
        // Behind the capture point, the client's time holds the network's.
        let own_ns = thought_ns.saturating_sub(chain.away_ns);
        let cycle_ns = time_ns.saturating_add(thought_ns);
        if time_ns == 0 || own_ns > (cycle_ns - own_ns) / PROMPT_PART {
            return;
        }
        if let Some(frames) = chain.frames.get_mut(chain.followed as usize) {
            *frames = [detail.request.first_frame, detail.response.last_frame, 0];
        }
        chain.followed += 1;
        chain.time_ns = chain.time_ns.saturating_add(time_ns);
        chain.thought_ns = chain.thought_ns.saturating_add(thought_ns);
        chain.least_ns = if chain.least_ns == 0 { cycle_ns } else { chain.least_ns.min(cycle_ns) };
    }

    /// The chains, by connection.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Chain)> {
        self.all.iter().map(|(&connection, chain)| (connection, chain))
    }
}
