//! What a study measures.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use target::SendPolicy;

/// A study's points and how each is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// Read sizes, bytes.
    pub block_bytes: Vec<u64>,
    /// Depths; the first must be 1, the last saturates.
    pub queue_depths: Vec<u32>,
    /// Send policies of the target.
    pub policies: Vec<SendPolicy>,
    /// Measured time of each run (a point has two: one bare, one observed).
    pub runtime: Duration,
    /// Time before it.
    pub ramp: Duration,
    /// Rate of the wire, bits per second.
    pub bits_per_second: u64,
    /// MTU of the wire, bytes.
    pub mtu_bytes: u32,
    /// TCP congestion control of both sides.
    pub congestion: String,
    /// Size of the zero disk, bytes.
    pub disk_bytes: u64,
}

impl Plan {
    /// The first plan: the paper's sizes, at depth 1 and saturated, without and with Nagle's algorithm.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            name: "quick".to_owned(),
            block_bytes: vec![512, 2048, 4096],
            queue_depths: vec![1, 128],
            policies: vec![SendPolicy::Nodelay, SendPolicy::Nagle],
            runtime: Duration::from_millis(2000),
            ramp: Duration::from_millis(300),
            bits_per_second: 1_000_000_000,
            mtu_bytes: 9000,
            // A pacing congestion control would hold responses back on its own account.
            congestion: "cubic".to_owned(),
            disk_bytes: 1 << 40,
        }
    }

    /// How many points.
    #[must_use]
    pub fn points(&self) -> usize {
        self.block_bytes.len() * self.queue_depths.len() * self.policies.len()
    }
}
