//! The figures of a run.

use std::collections::BTreeMap;

use policy::SendPolicy;
use policy::control::Shares;
use record::latency::LatencyFigures;
use serde::Serialize;

/// What a side spent on an operation, in the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SideResult {
    /// Its threads, without transmit work, us.
    pub thread_us: f64,
    /// Its softirqs, us.
    pub softirq_us: f64,
    /// Transmit work, us.
    pub transmit_us: f64,
    /// Segments that it sent.
    pub segments: f64,
    /// Those of them without data.
    pub acks: f64,
    /// Segments sent again, in the whole measured time.
    pub sent_again: u64,
}

/// The figures of the measured time of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// Operations under way in each session.
    pub queue_depth: u32,
    /// Sessions.
    pub sessions: u32,
    /// Data of an operation.
    pub block_size_bytes: u64,
    /// Largest IP packet.
    pub mtu_bytes: u32,
    /// When the server sent.
    pub policy: SendPolicy,
    /// Operations that ended.
    pub operations: u64,
    /// As many as were wanted; false when the time limit or the observer ended the run.
    pub is_complete: bool,
    /// Simulated time.
    pub seconds: f64,
    /// Operations per second.
    pub iops: f64,
    /// Data per second.
    pub bytes_per_second: f64,
    /// Round trips.
    pub rtt_us: LatencyFigures,
    /// Share of the server's busy cycles that ended having served so many requests, 0 to 1.
    pub busy_count_share: BTreeMap<u32, f64>,
    /// Requests in a busy cycle.
    pub avg_busy: f64,
    /// Responses by the mode in which they were sent, since the beginning.
    pub shares: Shares,
    /// What an operation waited for each hold, both ways together, in the mean.
    pub stalls_us: BTreeMap<&'static str, f64>,
    /// Where an operation's time went on the way to the server, in the mean.
    pub request_us: BTreeMap<&'static str, f64>,
    /// And from there to the finish.
    pub response_us: BTreeMap<&'static str, f64>,
    /// The client's work.
    pub client: SideResult,
    /// The server's.
    pub server: SideResult,
}
