//! The specification of a run.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::arrivals::Arrival;
use crate::initiator::error::InitiatorError;
use crate::initiator::session::Capacity;
use crate::initiator::workload::{BlockShare, Distribution, SizeShare};
use crate::pattern::{Pattern, Submit};
use crate::series::Live;

/// Deepest queue of one session.
pub const QUEUE_DEPTH_MAX: u32 = 1024;

/// Largest block size, bytes.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// What to do when a session is lost in the middle of a run: no response in time, a closed connection, a Reject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnLoss {
    /// The run fails.
    #[default]
    Fail,
    /// The operations in flight are counted as failed, and the session ends; the other sessions continue.
    Count,
}

/// The specification of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BenchSpec {
    /// Access pattern.
    pub pattern: Pattern,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Sizes with their shares, instead of `block_bytes`; the percentages add up to 100.
    #[serde(default)]
    pub block_split: Vec<BlockShare>,
    /// Percent of reads in mixed patterns.
    #[serde(default = "half")]
    pub read_percent: u32,
    /// Distribution of random addresses.
    #[serde(default)]
    pub distribution: Distribution,
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
    /// Shows how far the run is.
    #[serde(skip)]
    pub live: Live,
    /// Operations per second of an open loop, over all sessions; `None` for a closed loop. At most the queue depth is in
    /// flight, and round trips count from the scheduled time of an operation.
    pub rate: Option<f64>,
    /// Arrivals of the open loop.
    #[serde(default)]
    pub arrival: Arrival,
    /// What to do when a session is lost.
    #[serde(default)]
    pub on_loss: OnLoss,
    /// Pin the session to this CPU.
    pub cpu: Option<usize>,
}

/// The share of reads without another one.
fn half() -> u32 {
    50
}

impl BenchSpec {
    /// Returns the operation sizes with their shares.
    #[must_use]
    pub fn sizes(&self) -> Vec<BlockShare> {
        if self.block_split.is_empty() {
            vec![BlockShare { block_bytes: self.block_bytes, percent: 100 }]
        } else {
            self.block_split.clone()
        }
    }

    /// Returns the largest operation size, bytes.
    #[must_use]
    pub fn block_bytes_max(&self) -> u64 {
        self.sizes().iter().map(|share| share.block_bytes).max().unwrap_or(0)
    }
}

impl Default for BenchSpec {
    fn default() -> Self {
        Self {
            pattern: Pattern::RandRead,
            block_bytes: 512,
            block_split: Vec::new(),
            read_percent: half(),
            distribution: Distribution::Uniform,
            queue_depth: 1,
            sessions: 1,
            runtime: Duration::from_secs(5),
            ramp: Duration::from_millis(200),
            submit: Submit::Each,
            verify: false,
            size_bytes: None,
            seed: 1,
            record_ops: 0,
            live: Live::default(),
            rate: None,
            arrival: Arrival::Constant,
            on_loss: OnLoss::Fail,
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
    for BlockShare { block_bytes, .. } in spec.sizes() {
        if block_bytes == 0 || block_bytes > BLOCK_BYTES_MAX {
            return wrong(format!("block size {block_bytes} B: use 1 logical block to 16M"));
        }
    }
    let percent: u32 = spec.sizes().iter().map(|share| share.percent).fold(0, u32::saturating_add);
    if percent != 100 {
        return wrong(format!("block size split: the shares add up to {percent} %, not 100 %"));
    }
    if spec.read_percent > 100 {
        return wrong(format!("{} % of reads: use 0 to 100", spec.read_percent));
    }
    if spec.verify && spec.pattern.clears() {
        return wrong("verification needs data: use it with reads and writes".to_owned());
    }
    if spec.verify && !spec.block_split.is_empty() {
        return wrong(
            "verification needs operations of one size: use it without a block size split".to_owned(),
        );
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

/// Returns the operation sizes in logical blocks.
pub(super) fn sizes(spec: &BenchSpec, block_bytes: u32) -> Result<Vec<SizeShare>, InitiatorError> {
    let blocks = |bytes: u64| {
        if block_bytes == 0 || !bytes.is_multiple_of(block_bytes.into()) {
            return Err(InitiatorError::Spec(format!(
                "block size {bytes} B is not a multiple of the disk's logical block of {block_bytes} B"
            )));
        }
        Ok((bytes / u64::from(block_bytes)) as u32)
    };
    let size =
        |share: &BlockShare| Ok(SizeShare { blocks: blocks(share.block_bytes)?, percent: share.percent });
    spec.sizes().iter().map(size).collect()
}

/// Returns the logical blocks of the disk that are used.
pub(super) fn region(spec: &BenchSpec, capacity: Capacity) -> Result<u64, InitiatorError> {
    let Capacity { blocks, block_bytes } = capacity;
    let Some(bytes) = spec.size_bytes else { return Ok(blocks) };
    let wanted = bytes / u64::from(block_bytes.max(1));
    if wanted > blocks {
        let disk = blocks.saturating_mul(block_bytes.into());
        return Err(InitiatorError::Spec(format!(
            "size {bytes} B is larger than the disk of {disk} B; use at most the disk's size"
        )));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_mixes_are_rejected() {
        let text = |spec: &BenchSpec| check(spec).unwrap_err().to_string();
        let share = |block_bytes, percent| BlockShare { block_bytes, percent };
        let split =
            |shares: &[BlockShare]| BenchSpec { block_split: shares.to_vec(), ..BenchSpec::default() };
        assert!(text(&split(&[share(512, 60), share(4096, 30)])).contains("90 %"));
        assert!(text(&split(&[share(512, u32::MAX), share(4096, 30)])).contains("not 100 %"));
        assert!(text(&split(&[share(512, 60), share(1 << 30, 40)])).contains("16M"));
        assert!(text(&BenchSpec { read_percent: 101, ..BenchSpec::default() }).contains("0 to 100"));
        let verified = BenchSpec { verify: true, ..split(&[share(512, 50), share(4096, 50)]) };
        assert!(text(&verified).contains("one size"));
        let cleared = BenchSpec { verify: true, pattern: Pattern::Trim, ..BenchSpec::default() };
        assert!(text(&cleared).contains("needs data"));
    }

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
    #[test]
    fn size_beyond_the_disk_is_an_error_that_states_both() {
        let disk = Capacity { blocks: 100, block_bytes: 512 };
        let of = |size_bytes| region(&BenchSpec { size_bytes, ..BenchSpec::default() }, disk);
        assert_eq!((of(None).unwrap(), of(Some(51_200)).unwrap(), of(Some(1024)).unwrap()), (100, 100, 2));
        let error = of(Some(51_712)).unwrap_err().to_string();
        assert!(error.contains("51712 B") && error.contains("51200 B"), "{error}");
    }
}
