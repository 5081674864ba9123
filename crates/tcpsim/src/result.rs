//! The figures of a run.

use std::collections::BTreeMap;

use policy::control::Shares;
use policy::{SendPolicy, Sending};
use record::latency::LatencyFigures;
use schemars::JsonSchema;
use serde::Serialize;

/// Mean work of a side per operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct SideResult {
    /// Its threads, without transmit work, us.
    pub thread_us: f64,
    /// Its softirqs, us.
    pub softirq_us: f64,
    /// Transmit work, us.
    pub transmit_us: f64,
    /// Segments sent per operation.
    pub segments: f64,
    /// Segments without data among them.
    pub acks: f64,
    /// Retransmitted segments in the whole measured time.
    pub sent_again: u64,
}

/// What ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// All requested operations completed.
    Operations,
    /// The limit of simulated time.
    TimeLimit,
    /// The observer, because the user interrupted it.
    Observer,
    /// Nothing was left to happen: the ring stands still.
    Standstill,
}

/// The figures of the measured time of a run.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RunResult {
    /// Operations in flight in each session.
    pub queue_depth: u32,
    /// Sessions.
    pub sessions: u32,
    /// Data of an operation.
    pub block_size_bytes: u64,
    /// Largest IP packet.
    pub mtu_bytes: u32,
    /// The server's send policy.
    #[schemars(with = "String")]
    pub policy: SendPolicy,
    /// The client has Nagle's algorithm on.
    pub client_nagle: bool,
    /// Completed operations.
    pub operations: u64,
    /// Operations that the setup asks for.
    pub requested_operations: u64,
    /// All requested operations completed; false when the time limit or the observer ended the run.
    pub is_complete: bool,
    /// What ended the run.
    pub ended_by: Ending,
    /// Simulated time after which a run ends early (`time-limit` of the setup), seconds.
    pub time_limit_seconds: f64,
    /// Simulated time.
    pub seconds: f64,
    /// Operations per second.
    pub iops: f64,
    /// Data per second.
    pub bytes_per_second: f64,
    /// Round trips.
    pub rtt_us: LatencyFigures,
    /// Share of the server's busy cycles by the number of requests that they served, 0 to 1.
    pub busy_count_share: BTreeMap<u32, f64>,
    /// Mean number of requests in a busy cycle.
    pub avg_busy: f64,
    /// Responses by the mode in which they were sent, including the warm-up.
    pub shares: Shares,
    /// Mean wait of an operation in each hold, us, both directions together.
    pub stalls_us: BTreeMap<&'static str, f64>,
    /// Mean time of an operation in each part up to the server's taking of the request, us.
    pub request_us: BTreeMap<&'static str, f64>,
    /// Mean time of an operation in each part from there to the finish, us.
    pub response_us: BTreeMap<&'static str, f64>,
    /// The client's work.
    pub client: SideResult,
    /// The server's.
    pub server: SideResult,
}

impl RunResult {
    /// How both sides sent.
    #[must_use]
    pub fn sending(&self) -> Sending {
        Sending { policy: self.policy, client_nagle: self.client_nagle }
    }

    /// Percent of the server's busy cycles that served this many requests.
    #[must_use]
    pub fn busy_percent(&self, requests: u32) -> f64 {
        self.busy_count_share.get(&requests).copied().unwrap_or(0.0) * 100.0
    }
}
