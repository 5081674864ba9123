//! What a run is told to be.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::initiator::error::InitiatorError;
use crate::pattern::{Pattern, Submit};

/// Deepest queue of one session.
pub const QUEUE_DEPTH_MAX: u32 = 1024;

/// Largest block size, bytes.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// One run.
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
    /// How long to run before that, so that the first exchanges (quick ACKs, cold caches) do not count.
    pub ramp: Duration,
    /// When successors leave.
    pub submit: Submit,
    /// Check what is read, and read back what was written.
    pub verify: bool,
    /// Use only this many bytes of the disk; nothing uses all of it.
    pub size_bytes: Option<u64>,
    /// For the random patterns, and the mark of verified blocks.
    pub seed: u64,
    /// Keep a record of every operation, at most this many per session.
    pub record_ops: usize,
    /// An open loop: so many operations begin each second, all sessions together, whatever has ended; no more than the
    /// queue depth are under way, and round trips count from the moment at which an operation was to begin. Nothing: a
    /// closed loop.
    pub rate: Option<f64>,
    /// Keep both sides of the session on this CPU.
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

/// Whether the run is possible.
pub(super) fn check(spec: &BenchSpec) -> Result<(), InitiatorError> {
    let wrong = |text: String| Err(InitiatorError::Spec(text));
    if spec.queue_depth == 0 || spec.queue_depth > QUEUE_DEPTH_MAX {
        return wrong(format!("queue depth {}: 1 to {QUEUE_DEPTH_MAX} are possible", spec.queue_depth));
    }
    if spec.sessions == 0 || spec.sessions > 1024 {
        return wrong(format!("{} sessions: 1 to 1024 are possible", spec.sessions));
    }
    if spec.block_bytes == 0 || spec.block_bytes > BLOCK_BYTES_MAX {
        return wrong(format!("block size {} B: 1 logical block to 16M are possible", spec.block_bytes));
    }
    if spec.rate.is_some_and(|rate| !(0.01..=1e9).contains(&rate)) {
        return wrong("a rate is 0.01 to 1000000000 operations a second".to_owned());
    }
    if spec.runtime.is_zero() {
        return wrong("a run needs a runtime above zero, such as 5s".to_owned());
    }
    if spec.verify && spec.pattern.writes() && spec.sessions > 1 {
        return wrong("verified writes need one session: sessions do not know what others write".to_owned());
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
