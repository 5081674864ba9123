//! The specification of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::initiator::error::InitiatorError;
use crate::pattern::{Pattern, Submit};

/// Deepest queue of one session.
pub const QUEUE_DEPTH_MAX: u32 = 1024;

/// Largest block size, bytes.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// The specification of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchSpec {
    /// Access pattern.
    pub pattern: Pattern,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Operations in flight per session.
    pub queue_depth: u32,
    /// Sessions, each on a connection and a thread of its own.
    pub sessions: u32,
    /// How long to measure.
    pub runtime: Duration,
    /// Warm-up time before that, so that the first exchanges (quick ACKs, cold caches) do not count.
    pub ramp: Duration,
    /// When successors are sent.
    pub submit: Submit,
    /// Whether to verify read data and to read back written data.
    pub verify: bool,
    /// Use only this many bytes of the disk; `None` uses all of it.
    pub size_bytes: Option<u64>,
    /// Seed of random patterns and of verified blocks.
    pub seed: u64,
    /// Keep a record of every operation, at most this many per session.
    pub record_ops: usize,
    /// Operations per second of an open loop, over all sessions; `None` for a closed loop. At most the queue depth is in
    /// flight, and round trips count from the scheduled time of an operation.
    pub rate: Option<f64>,
    /// Pin the session to this CPU.
    pub cpu: Option<usize>,
}

impl Default for BenchSpec {
    fn default() -> Self {
        Self {
            pattern: Pattern::RandRead,
            block_bytes: 512,
            queue_depth: 1,
            sessions: 1,
            runtime: Duration::from_secs(5),
            ramp: Duration::from_millis(200),
            submit: Submit::Each,
            verify: false,
            size_bytes: None,
            seed: 1,
            record_ops: 0,
            rate: None,
            cpu: None,
        }
    }
}

/// Checks that the run is possible.
pub(super) fn check(spec: &BenchSpec) -> Result<(), InitiatorError> {
    let wrong = |text: String| Err(InitiatorError::Spec(text));
    if spec.queue_depth == 0 || spec.queue_depth > QUEUE_DEPTH_MAX {
        return wrong(format!("queue depth {}: use 1 to {QUEUE_DEPTH_MAX}", spec.queue_depth));
    }
    if spec.sessions == 0 || spec.sessions > 1024 {
        return wrong(format!("{} sessions: use 1 to 1024", spec.sessions));
    }
    if spec.block_bytes == 0 || spec.block_bytes > BLOCK_BYTES_MAX {
        return wrong(format!("block size {} B: use 1 logical block to 16M", spec.block_bytes));
    }
    if spec.rate.is_some_and(|rate| !(0.01..=1e9).contains(&rate)) {
        return wrong("rate: use 0.01 to 1000000000 operations a second".to_owned());
    }
    if spec.runtime.is_zero() {
        return wrong("runtime: use a time above zero, such as 5s".to_owned());
    }
    if spec.verify && spec.pattern.writes() && spec.sessions > 1 {
        return wrong("verified writes need exactly one session, which then knows all writes".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_runs_are_rejected_with_the_valid_range() {
        let spec = BenchSpec::default();
        let text = |spec: &BenchSpec| check(spec).unwrap_err().to_string();
        assert!(text(&BenchSpec { queue_depth: 0, ..spec.clone() }).contains("1 to 1024"));
        assert!(text(&BenchSpec { block_bytes: 0, ..spec.clone() }).contains("16M"));
        assert!(text(&BenchSpec { runtime: Duration::ZERO, ..spec.clone() }).contains("5s"));
        let verified = BenchSpec { verify: true, sessions: 2, pattern: Pattern::RandWrite, ..spec };
        assert!(text(&verified).contains("one session"));
    }
}
