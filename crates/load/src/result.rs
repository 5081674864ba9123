//! The result of a run, for every kind of load.

use record::latency::LatencyFigures;
use serde::{Deserialize, Serialize};

use crate::pattern::{Pattern, Submit};

/// The figures of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Access pattern.
    pub rw: Pattern,
    /// Bytes per operation.
    pub block_size_bytes: u64,
    /// Operations in flight, all sessions together.
    pub queue_depth: u32,
    /// Sessions.
    pub sessions: u32,
    /// When successors were sent.
    pub submit: Submit,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Operations completed within it.
    pub operations: u64,
    /// Operations per second.
    pub iops: f64,
    /// Operations per second of the slowest session.
    #[serde(default)]
    pub slowest_session_iops: f64,
    /// Open loop only: scheduled operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Open loop only: scheduled operations that were not issued by its end. Above a few, the rate was not achieved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Application bytes per second.
    pub bytes_per_second: f64,
    /// Operations with a status other than GOOD, over the whole run.
    pub errors: u64,
    /// A description of the first error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Blocks checked; absent when verification was off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_blocks: Option<u64>,
    /// Blocks with unexpected content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatched_blocks: Option<u64>,
    /// CPU time of the client threads per operation, microseconds.
    pub client_cpu_us: f64,
    /// Round trips, microseconds.
    pub latency_us: LatencyFigures,
}
