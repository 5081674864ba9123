//! The result of a run, for every kind of load.

use record::latency::{Bin, Latency, LatencyFigures};
use serde::{Deserialize, Serialize};

use crate::arrivals::Arrival;
use crate::failure::Failure;
use crate::initiator::workload::{BlockShare, block_split};
use crate::pattern::{Pattern, Submit};

/// The figures of a run. Rates, bytes and latencies are those of operations that succeeded. Operations, errors and their
/// classes are of the measured time.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RunResult {
    /// Access pattern.
    pub rw: Pattern,
    /// Bytes per operation; of the largest, where sizes are mixed.
    pub block_size_bytes: u64,
    /// Mixed sizes only: the shares that were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_split: Vec<BlockShare>,
    /// Mixed patterns only: percent of reads that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_percent: Option<u32>,
    /// Exponent of Zipf's law for random addresses; absent if they are uniform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zipf_exponent: Option<f64>,
    /// Operations in flight, all sessions together.
    pub queue_depth: u32,
    /// Sessions.
    pub sessions: u32,
    /// When successors were sent.
    pub submit: Submit,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Operations that succeeded within it.
    pub operations: u64,
    /// Operations that succeeded, per second.
    pub iops: f64,
    /// Operations per second of the slowest session.
    #[serde(default)]
    pub slowest_session_iops: f64,
    /// Open loop only: scheduled operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Open loop only: the process of arrivals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrival: Option<Arrival>,
    /// Open loop only: scheduled operations that were not issued by its end. Above a few, the rate was not achieved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
    /// Application bytes that these operations transferred (of trims and write zeroes: the bytes of their range).
    #[serde(default)]
    pub transferred_bytes: u64,
    /// The same, per second.
    pub bytes_per_second: f64,
    /// Operations that failed within the measured time.
    pub errors: u64,
    /// Operations that failed outside it: in the ramp, or in flight at its end. They are in no other figure.
    #[serde(default)]
    pub unmeasured_errors: u64,
    /// The errors by class, the most frequent first; at most [`crate::failure::CLASSES_MAX`] and one for the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<Failure>,
    /// Mean time from the start of these operations to their failure, microseconds; absent without failures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_mean_us: Option<f64>,
    /// A description of the first error of the whole run.
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
    /// The distribution of round trips: bins in ascending order, without empty ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Bin>,
    /// The figures of each kind of operation, where the load has several kinds or an observer needs them apart.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindResult>,
    /// The measured time second by second.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Second>,
    /// Connections made during the run, where the load measures them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
}

impl RunResult {
    /// Returns the sizes of its operations: `4096 B`, or `4k/60:64k/40` where they are mixed.
    #[must_use]
    pub fn sizes(&self) -> String {
        if self.block_split.is_empty() {
            format!("{} B", self.block_size_bytes)
        } else {
            block_split(&self.block_split)
        }
    }
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// READ.
    Read,
    /// WRITE.
    Write,
    /// UNMAP.
    Trim,
    /// WRITE SAME of a zero block.
    WriteZeroes,
}

/// The figures of one kind of operation, of those that succeeded within the measured time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KindResult {
    /// The kind.
    pub kind: Operation,
    /// Operations.
    pub operations: u64,
    /// Operations per second.
    pub iops: f64,
    /// Bytes transferred; of trims and write zeroes the bytes of their range.
    pub transferred_bytes: u64,
    /// The same, per second.
    pub bytes_per_second: f64,
    /// Operations that failed within the measured time.
    pub errors: u64,
    /// Of these, operations with status GOOD that transferred less than they asked for.
    pub short: u64,
    /// Round trips, microseconds.
    pub latency_us: LatencyFigures,
    /// The same as a distribution; in this process only.
    #[serde(skip)]
    pub latency: Latency,
}

/// One second of the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Its beginning, seconds since the measured time began.
    pub at_seconds: u32,
    /// Operations that succeeded in it.
    pub operations: u64,
    /// Bytes that they transferred.
    pub transferred_bytes: u64,
    /// Operations that failed in it.
    pub errors: u64,
    /// Mean round trip of the successful ones, microseconds.
    pub mean_us: f64,
    /// Longest round trip of the successful ones, microseconds.
    pub max_us: f64,
}

/// Connections made during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Connections {
    /// Connections that were made, reconnections included.
    pub opened: u64,
    /// Time from connect(2) until the first request could be sent, TLS handshake included, microseconds.
    pub setup_us: LatencyFigures,
    /// The part of it after TCP was connected: the TLS handshake; absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_us: Option<LatencyFigures>,
    /// Requests sent again on a new connection, because the server closed theirs before it answered anything.
    #[serde(default)]
    pub retried: u64,
}
