//! What the model says about a measured ring: calibrated from two runs only, queue depth 1 and CPU bound.

use ring::model::recursion::Extras;
use ring::model::{ModelError, Ring, Stage};
use serde::{Deserialize, Serialize};

use crate::segments::Segments;
use crate::stanza::{CpuCost, PathCost};

/// A predicted throughput beside the measured one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Mean over start phases, operations per second.
    pub iops: f64,
    /// Least over start phases.
    pub iops_low: f64,
    /// Greatest.
    pub iops_high: f64,
    /// `iops / measured - 1`.
    pub error: f64,
}

/// The ring behind a measured pair of runs.
///
/// Each side's stages run on one CPU, so they are one stage; what passes between a capture point and the next
/// thread (interrupt and wake-up) is that CPU's start latency, paid only when it was idle. A token bucket is a
/// pacer, a real wire a stage.
///
/// # Errors
/// When the measurements make no ring: a latency below zero is taken as zero, but nothing at all takes time.
pub fn calibrate(
    depth_one: &Segments,
    service: &CpuCost,
    path: Option<&PathCost>,
) -> Result<Ring, ModelError> {
    let client_us = service.client_thread_us + service.client_softirq_us;
    let server_us = service.server_thread_us + service.server_softirq_us;
    let (w1, w2, bucket) = path.map_or((0.0, 0.0, true), |p| (p.w1_us, p.w2_us, p.token_bucket));
    // Where directions cannot be told apart each gets half.
    let half = depth_one.network.mean_us / 2.0;
    let request = depth_one.request_path.map_or(half, |f| f.mean_us);
    let response = depth_one.response_path.map_or(half, |f| f.mean_us);
    let (request, response) = if bucket { (request, response) } else { (request - w1, response - w2) };
    let sl = (depth_one.server.mean_us - server_us + request).max(0.0);
    let cl = (depth_one.client.mean_us - client_us + response).max(0.0);
    let wire = |name: &str, us: f64| if bucket { Stage::pacer(name, us) } else { Stage::own(name, us, 0.0) };
    Ring::new(vec![
        wire("W1", w1),
        Stage::own("SI+SP+SK", server_us, sl),
        wire("W2", w2),
        Stage::own("CI+CP+CK", client_us, cl),
    ])
}

impl Prediction {
    /// What a ring does at a queue depth, beside what was measured.
    ///
    /// # Errors
    /// When the queue depth is not possible.
    pub fn of(ring: &Ring, queue_depth: u32, measured_iops: f64) -> Result<Self, ModelError> {
        let exact = ring.exact(queue_depth, &Extras::default())?;
        let error = exact.iops / measured_iops - 1.0;
        Ok(Self { iops: exact.iops, iops_low: exact.iops_low, iops_high: exact.iops_high, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::SegmentFigures;

    #[test]
    fn the_published_pair_of_runs_gives_the_published_ends_of_the_curve() {
        let mean = |mean_us| SegmentFigures { mean_us, ..SegmentFigures::default() };
        let segments =
            Segments { client: mean(32.3), server: mean(32.6), network: mean(210.8), ..Segments::default() };
        let service = CpuCost {
            client_thread_us: 8.6,
            client_softirq_us: 0.0,
            server_thread_us: 15.9,
            server_softirq_us: 0.0,
        };
        let path = PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: false };
        let ring = calibrate(&segments, &service, Some(&path)).unwrap();
        let at = |depth| Prediction::of(&ring, depth, 1e6 / 275.7).unwrap();
        assert!(at(1).error.abs() < 1e-6, "{:?}", at(1));
        assert!((at(128).iops / 63_000.0 - 1.0).abs() < 0.01);
    }
}
