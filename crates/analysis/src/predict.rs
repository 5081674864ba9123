//! The model's prediction for a measured ring, calibrated from two runs only: queue depth 1 and CPU bound.

use model::Known;
use model::ModelError;
use model::calibrate::{
    Calibrated, DepthOne, Placement, Saturated, SideWork, WireTimes, calibrate as calibrate_ring,
};
use model::setup::Setup;
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
/// accounts is known no better. It is known less where the saturated run, which gives the band its upper end, repeats less well.
pub const BAND_TOLERANCE: f64 = 0.05;

/// How well CPU work per operation is known: its division into thread and softirq is sampled by the timer.
const CPU_WITHIN: f64 = 0.03;

/// Throughput of the saturated run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limit {
    /// Its queue depth.
    pub queue_depth: u32,
    /// Operations per second: the median over the runs.
    pub iops: f64,
    /// Half of the range of the runs, as a share; 0 for a single one.
    pub repeat: f64,
}

/// The runs at queue depth 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AtDepthOne<'a> {
    /// The parts of the round trip, of an observed run.
    pub segments: &'a Segments,
    /// Operations per second without an observer: the median over the runs.
    pub iops: f64,
    /// How well its round trip is known, as a share.
    pub repeat: f64,
}

/// [`calibrate`] for the ring without an observer, in its surroundings (`setup_of`): the round trip at queue depth 1 is that of the bare runs, which the observed
/// run divides into its parts; the service times are fitted to the throughput of the saturated run.
///
/// The accounts of a saturated CPU include the switches between interrupts and thread, which the ring adds again. And
/// two sides that work in bursts wait for each other in a way that the accounts call idle, so that no side is busy all the time.
///
/// # Errors
/// When the measurements make no ring.
pub fn calibrate_to(
    depth_one: &AtDepthOne<'_>,
    service: &CpuCost,
    path: Option<&PathCost>,
    saturated: Limit,
    setup_of: &dyn Fn(Calibrated) -> Result<Setup, ModelError>,
) -> Result<Setup, ModelError> {
    let segments = depth_one.segments.with_rtt(1e6 / depth_one.iops);
    let with = |factor: f64| setup_of(calibrate(&segments, &service.scaled(factor), path, depth_one.repeat)?);
    let reaches = |setup: &Setup| {
        Ok::<_, ModelError>(setup.outcome(saturated.queue_depth)?.iops.value >= saturated.iops)
    };
    let whole = with(1.0)?;
    let is_fast = reaches(&whole)?;
    if is_fast {
        let is_wire = ["W1", "W2"].contains(&whole.ring.bottleneck().stages.as_str());
        let something_else = is_wire || with(FACTOR_MAX).is_ok_and(|setup| reaches(&setup).unwrap_or(true));
        if something_else {
            return Ok(whole);
        }
    }
    let (mut low, mut high) = if is_fast { (1.0, FACTOR_MAX) } else { (FACTOR_MIN, 1.0) };
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        let is_less = with(middle).is_ok_and(|setup| reaches(&setup).unwrap_or(false));
        if is_less { low = middle } else { high = middle }
    }
    with(low)
}

/// Least share of the accounted CPU work that counts.
const FACTOR_MIN: f64 = 0.4;
/// The most work in proportion to the accounted one.
const FACTOR_MAX: f64 = 1.5;
/// Steps of the fit.
const BISECTIONS: u32 = 8;

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
    pub fn of(
        setup: &Setup,
        queue_depth: u32,
        measured_iops: f64,
        saturated: Limit,
    ) -> Result<Self, ModelError> {
        let outcome = setup.outcome(queue_depth)?;
        let band = setup.band(queue_depth)?;
        let within = BAND_TOLERANCE.max(saturated.repeat);
        let inside = band.low * (1.0 - within)..=band.high * (1.0 + within);
        Ok(Self {
            iops: outcome.iops.value,
            iops_low: outcome.iops_low,
            iops_high: outcome.iops_high,
            band_low: band.low,
            band_high: band.high,
            error: outcome.iops.value / measured_iops - 1.0,
            in_band: inside.contains(&measured_iops),
        })
    }
}

#[cfg(test)]
mod tests {
    use model::Ring;
    use model::extras::Extras;
    use record::wire::{Link, Messages};

    use super::*;
    use crate::segments::SegmentFigures;

    #[test]
    fn a_saturated_run_is_reached_by_the_ring_made_from_it() {
        // Both sides equally busy: the cost of interrupts would be counted twice.
        let (segments, service) = sixty_us();
        let path = PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: true };
        let limit = Limit { queue_depth: 128, iops: 1e6 / 11.0, repeat: 0.0 };
        let at_depth = |ring: &Ring| ring.exact(128, &Extras::default()).unwrap().iops;
        let depth_one = AtDepthOne { segments: &segments, iops: 1e6 / 60.0, repeat: 0.0 };
        let plain = at_depth(&calibrate(&segments, &service, Some(&path), 0.0).unwrap().ring);
        let fitted = at_depth(&calibrate_to(&depth_one, &service, Some(&path), limit, &setup).unwrap().ring);
        assert!(plain < 0.95 * limit.iops, "{plain}");
        assert!((fitted / limit.iops - 1.0).abs() < 0.05, "{fitted} of {}", limit.iops);
    }

    /// Segments of a round trip of 60 us, and 11 us of work on each side.
    fn sixty_us() -> (Segments, CpuCost) {
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
        (segments, service)
    }

    #[allow(clippy::unnecessary_wraps, reason = "as the fit wants it")]
    fn setup(calibrated: Calibrated) -> Result<Setup, ModelError> {
        Ok(Setup::new(calibrated.ring, Link::ethernet(1_000_000_000, 9000), Messages::read(512)))
    }

    fn predicted(setup: &Setup, queue_depth: u32, measured_iops: f64, repeat: f64) -> Prediction {
        let limit = Limit { queue_depth: 128, iops: 0.0, repeat };
        Prediction::of(setup, queue_depth, measured_iops, limit).unwrap()
    }

    fn fitted(iops_at_one: f64, saturated_iops: f64, w2_us: f64) -> Setup {
        let (segments, service) = sixty_us();
        let path = PathCost { w1_us: 1.1, w2_us, token_bucket: true };
        let depth_one = AtDepthOne { segments: &segments, iops: iops_at_one, repeat: 0.1 };
        let limit = Limit { queue_depth: 128, iops: saturated_iops, repeat: 0.0 };
        calibrate_to(&depth_one, &service, Some(&path), limit, &setup).unwrap()
    }

    #[test]
    fn the_ring_is_that_without_an_observer() {
        // The observed round trip is 60 us, the bare one 66 us or 54 us.
        for bare in [1e6 / 66.0, 1e6 / 54.0] {
            let at_one = predicted(&fitted(bare, 1e6 / 11.0, 5.2), 1, bare, 0.0);
            assert!(at_one.error.abs() < 1e-6, "{at_one:?}");
        }
    }

    #[test]
    fn sides_that_are_not_busy_all_the_time_reach_the_measured_rate() {
        let measured = 1e6 / 16.0;
        let fitted = fitted(1e6 / 60.0, measured, 5.2);
        let saturated = predicted(&fitted, 128, measured, 0.0);
        assert!(saturated.error.abs() < 0.01, "{saturated:?}");
        // The band is known as well as the run that it comes from.
        let faster = 1.2 * saturated.band_high;
        assert!(!predicted(&fitted, 64, faster, 0.1).in_band);
        assert!(predicted(&fitted, 64, faster, 0.25).in_band);
    }

    #[test]
    fn work_is_not_invented_where_something_else_limits_the_saturated_run() {
        // A third of what the CPUs can do is no saturated CPU; a wire that is full explains its rate itself.
        for (saturated, w2_us) in [(1e6 / 33.0, 5.2), (1e6 / 15.0, 14.0)] {
            let fitted = fitted(1e6 / 60.0, saturated, w2_us);
            let work = |name: &str| {
                let stages = fitted.ring.stages();
                stages.iter().find(|s| s.name == name).unwrap().service_us
            };
            assert!((work("SI") - 7.0).abs() < 1e-9 && (work("SP+SK") - 4.0).abs() < 1e-9, "{fitted:?}");
        }
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
        let depth_one = AtDepthOne { segments: &segments, iops: 1e6 / 275.7, repeat: 0.01 };
        let limit = Limit { queue_depth: 128, iops: 63_000.0, repeat: 0.0 };
        let fitted = calibrate_to(&depth_one, &service, Some(&path), limit, &setup).unwrap();
        let ring = &fitted.ring;
        let at = |depth| predicted(&fitted, depth, 1e6 / 275.7, 0.0);
        assert!(at(1).error.abs() < 1e-6 && at(1).in_band, "{:?}", at(1));
        assert!((at(128).iops / 63_000.0 - 1.0).abs() < 0.01);
        assert!(ring.is_uncertain());
    }
}
