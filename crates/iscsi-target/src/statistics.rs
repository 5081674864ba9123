//! Statistics of connections.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use iscsi::login::Status;
use policy::control::Shares;
use policy::{BusyCount, SendPolicy};
use serde::{Deserialize, Serialize};

use crate::lock::lock;
use crate::stages::Stages;

/// The statistics of a connection, as last published by its thread: some 20 times a second while it works, and at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionStatistics {
    /// Its number in the process, from 1.
    pub id: u64,
    /// TargetName; empty during the login and for discovery.
    pub target: String,
    /// The initiator's address.
    pub peer: SocketAddr,
    /// InitiatorName; empty during the login.
    pub initiator_name: String,
    /// The send policy in force.
    pub send: SendPolicy,
    /// The thread that serves it, as in /proc/self/task.
    pub thread: i32,
    /// The CPU that its thread is pinned to, if any.
    pub cpu: Option<usize>,
    /// Whether the connection is still open.
    pub open: bool,
    /// Commands served.
    pub commands: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Send calls.
    pub sends: u64,
    /// Receive calls that returned data.
    pub receives: u64,
    /// Responses by the mode they were sent in.
    pub modes: Shares,
    /// Busy/idle cycles.
    pub busy_count: BusyCount,
    /// Where the time of its commands goes inside the target.
    pub stages: Stages,
}

/// The statistics of all open connections and of the last ended ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    /// By the numbers of the connections, which rise.
    all: BTreeMap<u64, ConnectionStatistics>,
    /// Those that have ended.
    ended: BTreeSet<u64>,
    /// The sums of those that were removed.
    removed: Totals,
    accepted: u64,
    logins: u64,
    continued: u64,
    refused: BTreeMap<u16, u64>,
}

/// Sums over all connections since the start, including those that are kept no longer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Connections that were served.
    pub connections: u64,
    /// Logins that succeeded.
    pub logins: u64,
    /// Sessions of the process before that went on.
    pub continued: u64,
    /// Logins that were refused, by login status (RFC 7143 11.13.5).
    pub refused: BTreeMap<u16, u64>,
    /// Commands served.
    pub commands: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Send calls.
    pub sends: u64,
    /// Receive calls that returned data.
    pub receives: u64,
    /// Responses by the mode they were sent in.
    pub modes: Shares,
    /// Where the time of commands goes.
    pub stages: Stages,
}

impl Totals {
    fn add(&mut self, one: &ConnectionStatistics) {
        self.commands += one.commands;
        self.received_bytes += one.received_bytes;
        self.sent_bytes += one.sent_bytes;
        self.sends += one.sends;
        self.receives += one.receives;
        self.modes.add(one.modes);
        self.stages.add(&one.stages);
    }
}

impl Board {
    /// Most connections kept, beyond those that are open; the oldest ended ones are removed first.
    const LIMIT: usize = 4096;

    pub(crate) fn publish(&self, id: u64, statistics: &ConnectionStatistics) {
        let Entries { all, ended, removed, accepted, .. } = &mut *lock(&self.0);
        if let Some(entry) = all.get_mut(&id) {
            entry.clone_from(statistics);
            if !statistics.open {
                ended.insert(id);
            }
            return;
        }
        if all.len() >= Self::LIMIT
            && let Some(oldest) = ended.pop_first()
        {
            all.remove(&oldest).iter().for_each(|one| removed.add(one));
        }
        *accepted += 1;
        all.insert(id, statistics.clone());
        if !statistics.open {
            ended.insert(id);
        }
    }

    /// A login has succeeded.
    pub(crate) fn logged_in(&self) {
        lock(&self.0).logins += 1;
    }

    /// A session of the process before goes on.
    pub(crate) fn continued(&self) {
        lock(&self.0).continued += 1;
    }

    /// A login was refused.
    pub(crate) fn refused(&self, status: Status) {
        *lock(&self.0).refused.entry(status.0).or_default() += 1;
    }

    pub(crate) fn totals(&self) -> Totals {
        let entries = lock(&self.0);
        let mut totals = Totals {
            connections: entries.accepted,
            logins: entries.logins,
            continued: entries.continued,
            refused: entries.refused.clone(),
            ..entries.removed.clone()
        };
        entries.all.values().for_each(|one| totals.add(one));
        totals
    }

    pub(crate) fn all(&self) -> Vec<ConnectionStatistics> {
        lock(&self.0).all.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(open: bool) -> ConnectionStatistics {
        ConnectionStatistics {
            id: 1,
            target: String::new(),
            peer: SocketAddr::from(([127, 0, 0, 1], 1)),
            initiator_name: String::new(),
            send: SendPolicy::Auto,
            thread: 1,
            cpu: None,
            open,
            commands: 1,
            received_bytes: 0,
            sent_bytes: 0,
            sends: 0,
            receives: 0,
            modes: Shares::default(),
            busy_count: BusyCount::default(),
            stages: Stages::default(),
        }
    }

    #[test]
    fn open_connections_are_kept_and_the_oldest_ended_ones_go() {
        let (board, most) = (Board::default(), Board::LIMIT as u64);
        (1..=most + 100).for_each(|id| board.publish(id, &statistics(true)));
        assert_eq!(board.all().len(), Board::LIMIT + 100);
        [7, 3].into_iter().for_each(|id| board.publish(id, &statistics(false)));
        (1..=3).for_each(|more| board.publish(most + 100 + more, &statistics(true)));
        assert_eq!(board.all().len(), Board::LIMIT + 101, "two have gone, three have come");
        let totals = board.totals();
        assert_eq!((totals.connections, totals.commands), (most + 103, most + 103), "the ended count on");
        let open = board.all().iter().filter(|statistics| statistics.open).count();
        assert_eq!(open, Board::LIMIT + 101);
    }
}
