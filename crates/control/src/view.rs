//! What a target is at one time.

use std::time::{Duration, Instant};

use iscsi_target::{
    ConnectionStatistics, LimitUse, NodeOverview, ReservationsOverview, RunningTarget, SessionOverview,
    Totals,
};
use serde_json::{Value, json};

/// A target at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// How long it has run.
    pub uptime: Duration,
    /// The send policy.
    pub send: String,
    /// Logins are refused.
    pub draining: bool,
    /// Its targets with their disks.
    pub nodes: Vec<NodeOverview>,
    /// Its sessions.
    pub sessions: Vec<SessionOverview>,
    /// Its open connections.
    pub connections: Vec<ConnectionStatistics>,
    /// Its reservations.
    pub reservations: Vec<ReservationsOverview>,
    /// Sums over all connections since the start.
    pub totals: Totals,
    /// How much of the limits that all initiators share is in use.
    pub limits: Vec<LimitUse>,
}

impl Snapshot {
    /// Looks at a target that runs since `started`.
    #[must_use]
    pub fn of(target: &RunningTarget, started: Instant) -> Self {
        target.refresh();
        Self {
            uptime: started.elapsed(),
            send: target.send().to_string(),
            draining: target.is_draining(),
            nodes: target.nodes(),
            sessions: target.session_list(),
            connections: target.statistics().into_iter().filter(|one| one.open).collect(),
            reservations: target.reservations(),
            totals: target.totals(),
            limits: target.limits(),
        }
    }

    /// Returns the overview of `/v1/status`.
    #[must_use]
    pub fn status(&self) -> Value {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uptime_s": self.uptime.as_secs_f64(),
            "send": self.send,
            "draining": self.draining,
            "targets": self.nodes.len(),
            "disks": self.nodes.iter().map(|node| node.disks.len()).sum::<usize>(),
            "sessions": self.sessions.len(),
            "connections": self.connections.len(),
            "totals": self.totals,
            "limits": self.limits,
        })
    }

    /// Returns the disks of all targets.
    #[must_use]
    pub fn disks(&self) -> Value {
        let of = |node: &NodeOverview| {
            let target = node.iqn.clone();
            node.disks.clone().into_iter().map(move |disk| {
                let mut value = json!(disk);
                value["target"] = json!(target);
                value
            })
        };
        self.nodes.iter().flat_map(of).collect()
    }
}
