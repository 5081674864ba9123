//! The model's prediction for a measured ring, calibrated from two runs only: queue depth 1 and CPU bound.

use model::Known;
use model::calibrate::{
    Calibrated, DepthOne, Placement, Saturated, SideWork, WireTimes, calibrate as calibrate_ring,
};
use model::extras::Extras;
use model::{ModelError, Ring};
use serde::{Deserialize, Serialize};

use crate::cost::{CpuCost, PathCost};
use crate::segments::Segments;

/// A predicted throughput beside the measured one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Mean over start phases, operations per second.
    pub iops: f64,
    /// Least over start phases.
    pub iops_low: f64,
    /// Greatest.
    pub iops_high: f64,
    /// Lower end of the guaranteed band.
    #[serde(default)]
    pub band_low: f64,
    /// Upper end.
    #[serde(default)]
    pub band_high: f64,
    /// `iops / measured - 1`.
    pub error: f64,
    /// Whether the measured throughput is in the band, within [`BAND_TOLERANCE`].
    #[serde(default)]
    pub in_band: bool,
}

/// How far a measured throughput may be outside the band and still count as inside: a service time from CPU
/// accounts is known no better.
pub const BAND_TOLERANCE: f64 = 0.05;

/// How well CPU work per operation is known: its division into thread and softirq is sampled by the timer.
const CPU_WITHIN: f64 = 0.03;

/// Throughput of the saturated run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Its queue depth.
    pub queue_depth: u32,
    /// Operations per second.
    pub iops: f64,
}

/// How far a ring made from CPU accounts may be below the saturated run.
const SHORT_OF_SATURATION: f64 = 0.03;

/// [`calibrate`], with the service times fitted to the saturated run's own throughput: the accounts of a saturated
/// CPU include the switches between interrupts and thread, which the ring adds again.
///
/// # Errors
/// When the measurements make no ring.
pub fn calibrate_to(
    depth_one: &Segments,
    service: &CpuCost,
    path: Option<&PathCost>,
    repeat: f64,
    saturated: Limit,
) -> Result<Calibrated, ModelError> {
    let with = |factor: f64| calibrate(depth_one, &service.scaled(factor), path, repeat);
    let short = |c: &Calibrated| -> Result<bool, ModelError> {
        let iops = c.ring.exact(saturated.queue_depth, &Extras::default())?.iops;
        Ok(iops < saturated.iops * (1.0 - SHORT_OF_SATURATION))
    };
    let whole = with(1.0)?;
    if !short(&whole)? {
        return Ok(whole);
    }
    let (mut low, mut high) = (FACTOR_MIN, 1.0);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if short(&with(middle)?)? { high = middle } else { low = middle }
    }
    with(low)
}

/// Least share of the accounted CPU work that counts, and the resolution of the fit.
const FACTOR_MIN: f64 = 0.4;
/// See [`FACTOR_MIN`].
const BISECTIONS: u32 = 6;

/// The ring of a measured pair of runs. `repeat` is the relative difference of two runs at queue depth 1, which
/// bounds the accuracy of all results.
///
/// With a wire each side's softirq runs on its own CPU and interrupts its thread; on loopback it runs inside the
/// other side's send, so each side is one stage. A token bucket is a pacer, a real wire a stage.
///
/// # Errors
/// When the measurements make no ring.
pub fn calibrate(
    depth_one: &Segments,
    service: &CpuCost,
    path: Option<&PathCost>,
    repeat: f64,
) -> Result<Calibrated, ModelError> {
    let measured = |us: f64| Known::within(us, us * repeat);
    let work = |us: f64| Known::within(us, us * CPU_WITHIN);
    let side = |softirq, thread| SideWork { softirq: work(softirq), thread: work(thread), transmit: None };
    let saturated = Saturated {
        server: side(service.server_softirq_us, service.server_thread_us),
        client: side(service.client_softirq_us, service.client_thread_us),
    };
    let d = depth_one;
    let depth_one = DepthOne {
        rtt: measured(d.rtt.mean_us),
        outside_client: measured(d.rtt.mean_us - d.client.mean_us),
        server: measured(d.server.mean_us),
        request_path: d.request_path.map(|f| measured(f.mean_us)),
    };
    let wire = path.map_or(WireTimes { w1_us: 0.0, w2_us: 0.0, paced: true }, |p| WireTimes {
        w1_us: p.w1_us,
        w2_us: p.w2_us,
        paced: p.token_bucket,
    });
    let placement = if path.is_some() { Placement::Interrupts } else { Placement::OneStage };
    calibrate_ring(&saturated, &depth_one, &wire, placement)
}

impl Prediction {
    /// The prediction for a queue depth beside the measurement.
    ///
    /// # Errors
    /// When the queue depth is not possible.
    pub fn of(ring: &Ring, queue_depth: u32, measured_iops: f64) -> Result<Self, ModelError> {
        let exact = ring.exact(queue_depth, &Extras::default())?;
        let band = ring.band(queue_depth)?;
        let inside = band.low * (1.0 - BAND_TOLERANCE)..=band.high * (1.0 + BAND_TOLERANCE);
        Ok(Self {
            iops: exact.iops,
            iops_low: exact.iops_low,
            iops_high: exact.iops_high,
            band_low: band.low,
            band_high: band.high,
            error: exact.iops / measured_iops - 1.0,
            in_band: inside.contains(&measured_iops),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::SegmentFigures;

    #[test]
    fn a_saturated_run_is_reached_by_the_ring_made_from_it() {
        // Both sides equally busy: the cost of interrupts would be counted twice.
        let mean = |mean_us| SegmentFigures { mean_us, ..SegmentFigures::default() };
        let segments = Segments {
            rtt: mean(60.0),
            client: mean(14.0),
            server: mean(14.0),
            network: mean(32.0),
            ..Segments::default()
        };
        let service = CpuCost {
            client_thread_us: 4.0,
            client_softirq_us: 7.0,
            server_thread_us: 4.0,
            server_softirq_us: 7.0,
        };
        let path = PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: true };
        let limit = Limit { queue_depth: 128, iops: 1e6 / 11.0 };
        let at_depth = |c: Calibrated| c.ring.exact(128, &Extras::default()).unwrap().iops;
        let plain = at_depth(calibrate(&segments, &service, Some(&path), 0.0).unwrap());
        let fitted = at_depth(calibrate_to(&segments, &service, Some(&path), 0.0, limit).unwrap());
        assert!(plain < 0.95 * limit.iops, "{plain}");
        assert!((fitted / limit.iops - 1.0).abs() < 0.05, "{fitted} of {}", limit.iops);
    }

    #[test]
    fn the_published_pair_of_runs_gives_the_published_ends_of_the_curve() {
        let mean = |mean_us| SegmentFigures { mean_us, ..SegmentFigures::default() };
        let segments = Segments {
            rtt: mean(275.7),
            client: mean(32.3),
            server: mean(32.6),
            network: mean(210.8),
            ..Segments::default()
        };
        let service = CpuCost {
            client_thread_us: 8.6,
            client_softirq_us: 0.0,
            server_thread_us: 15.9,
            server_softirq_us: 0.0,
        };
        let path = PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: false };
        let ring = calibrate(&segments, &service, Some(&path), 0.01).unwrap().ring;
        let at = |depth| Prediction::of(&ring, depth, 1e6 / 275.7).unwrap();
        assert!(at(1).error.abs() < 1e-6 && at(1).in_band, "{:?}", at(1));
        assert!((at(128).iops / 63_000.0 - 1.0).abs() < 0.01);
        assert!(ring.is_uncertain());
    }
}
