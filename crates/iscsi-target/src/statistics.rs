//! Statistics of connections.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use policy::control::Shares;
use policy::{BusyCount, SendPolicy};
use serde::{Deserialize, Serialize};

use crate::lock::lock;

/// The statistics of a connection, as last published by its thread: when idle, and at its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConnectionStatistics {
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
}

/// The statistics of all open connections and of the last ended ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    entries: Arc<Mutex<Vec<(u64, ConnectionStatistics)>>>,
}

impl Board {
    /// Most connections kept; the oldest ended ones are removed first.
    const LIMIT: usize = 4096;

    pub(crate) fn publish(&self, id: u64, statistics: &ConnectionStatistics) {
        let mut entries = lock(&self.entries);
        if let Some((_, entry)) = entries.iter_mut().rev().find(|(entry, _)| *entry == id) {
            entry.clone_from(statistics);
            return;
        }
        if entries.len() >= Self::LIMIT {
            let oldest = entries.iter().position(|(_, s)| !s.open).unwrap_or(0);
            entries.remove(oldest);
        }
        entries.push((id, statistics.clone()));
    }

    pub(crate) fn all(&self) -> Vec<ConnectionStatistics> {
        lock(&self.entries).iter().map(|(_, statistics)| statistics.clone()).collect()
    }
}
