//! The stanza of a study: one point with all its measurements.

use model::ModelError;
use model::calibrate::Calibrated;
use model::setup::Setup;
use record::split::tpt_us;
use serde::{Deserialize, Serialize};

use crate::breakdown::Breakdown;
use crate::closure::{Closure, Evidence};
use crate::cost::{CpuCost, PathCost};
use crate::predict::{self, Prediction};
use crate::segments::Segments;

/// A run with its breakdown, as reports show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stanza {
    /// Bytes per operation.
    pub block_size_bytes: u64,
    /// Send policy of the server.
    pub policy: String,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Operations per second without a capture.
    pub iops: f64,
    /// Operations per second with a capture, which shows its cost.
    pub iops_observed: f64,
    /// Mean time between completions, microseconds: 1 / IOPS, of the observed run.
    pub tpt_us: f64,
    /// Mean round trip, microseconds, of the observed run.
    pub rtt_us: f64,
    /// The segments between capture points.
    pub segments: Segments,
    /// CPU work per operation of this run, microseconds, with wake-ups.
    pub cpu: CpuCost,
    /// CPU work per operation of the CPU-bound run of this size and policy: the service times.
    pub service: CpuCost,
    /// Wire time of an operation; absent on loopback.
    pub path: Option<PathCost>,
    /// Share of the time that the client's and the server's CPU were busy.
    pub cpu_busy: (f64, f64),
    /// Share of the client's and the server's thread's CPU time in user mode, sampled by the timer; the rest is system calls.
    #[serde(default)]
    pub user_share: (Option<f64>, Option<f64>),
    /// The breakdown.
    pub breakdown: Breakdown,
    /// Whether independent evidence agrees with it.
    pub closure: Closure,
    /// What all observers saw in a run of its own, with the kernel's events; absent where they are not available.
    #[serde(default)]
    pub evidence: Option<Evidence>,
    /// Operations per second of that run, which shows the tracer's cost.
    #[serde(default)]
    pub iops_traced: Option<f64>,
    /// The model's throughput, from the queue depth 1 run and the CPU-bound run alone.
    pub predicted: Option<Prediction>,
    /// Operations per second by the model, calibrated from other points.
    #[serde(default)]
    pub model_iops: Option<f64>,
    /// Operations per second by the simulator, fitted to other points.
    #[serde(default)]
    pub simulated_iops: Option<f64>,
    /// Operations that the client completed, and how many of them were followed through the whole ring.
    pub completed: u64,
    /// See `completed`.
    pub followed: u64,
    /// Operations that were not followed, by reason.
    pub holes: Vec<record::Hole>,
    /// Share of busy/idle cycles that ended having served n = 1, 2, ... requests.
    pub busy_count_share: Vec<f64>,
    /// Mean requests per busy cycle.
    pub avg_busy: f64,
    /// Every run's operations per second without and with a capture; the figures above are those of the run in the middle.
    #[serde(default)]
    pub runs: Vec<(f64, f64)>,
    /// Half of the range of the runs' throughput, as a share of their median; absent for a single run.
    #[serde(default)]
    pub repeatability: Option<f64>,
}

impl Stanza {
    /// The least and the greatest throughput of its runs.
    #[must_use]
    pub fn spread(&self) -> (f64, f64) {
        let all = || self.runs.iter().map(|(bare, _)| *bare).chain([self.iops]);
        (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max))
    }

    /// Cost of the capture: the share of the throughput that is lost while packets are captured, as the median over its
    /// runs, each compared with one without a capture.
    #[must_use]
    pub fn observer_cost(&self) -> f64 {
        median_cost(&self.runs).unwrap_or(1.0 - self.iops_observed / self.iops)
    }

    /// TPT at a rate, microseconds.
    #[must_use]
    pub fn tpt_of(iops: f64) -> f64 {
        tpt_us(iops)
    }
}

/// The ring behind the stanzas of one size and policy: the shallowest must be queue depth 1.
///
/// # Errors
/// When the queue depth 1 stanza is missing, or the measurements make no ring.
pub fn from_stanzas<'a>(
    stanzas: impl Iterator<Item = &'a Stanza>,
    setup_of: &dyn Fn(Calibrated) -> Result<Setup, ModelError>,
) -> Result<Setup, ModelError> {
    let mut group: Vec<&Stanza> = stanzas.collect();
    group.sort_by_key(|s| s.queue_depth);
    let (Some(one), Some(deepest)) = (group.first().filter(|s| s.queue_depth == 1), group.last()) else {
        return Err(ModelError {
            key: "stanzas".to_owned(),
            given: "no queue depth 1 of that size and policy".to_owned(),
            allowed: "latencies come from a run at queue depth 1",
        });
    };
    let repeat = (one.iops_observed / one.iops - 1.0).abs();
    let saturated = predict::Limit {
        queue_depth: deepest.queue_depth,
        iops: deepest.iops,
        repeat: deepest.repeatability.unwrap_or(0.0),
    };
    let depth_one = predict::AtDepthOne { segments: &one.segments, iops: one.iops, repeat };
    predict::calibrate_to(&depth_one, &one.service, deepest.path.as_ref(), saturated, setup_of)
}

/// The median share of throughput that is lost with an observer, over runs without and with it.
fn median_cost(runs: &[(f64, f64)]) -> Option<f64> {
    let mut costs: Vec<f64> = runs.iter().map(|(bare, observed)| 1.0 - observed / bare).collect();
    costs.sort_by(f64::total_cmp);
    costs.get(costs.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_the_observer_is_that_of_the_median_run() {
        let runs = [(100.0, 40.0), (100.0, 90.0), (200.0, 190.0)];
        assert!((median_cost(&runs).unwrap() - 0.1).abs() < 1e-9);
        assert!((median_cost(&runs[..1]).unwrap() - 0.6).abs() < 1e-9);
        assert_eq!(median_cost(&[]), None);
        assert!((Stanza::tpt_of(20_000.0) - 50.0).abs() < 1e-9);
    }
}
