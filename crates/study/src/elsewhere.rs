//! What each point should be by the model and by the simulator, from points that do not include it.

use std::collections::BTreeMap;

use analysis::Stanza;
use analysis::elsewhere::{SizeFigures, predicted_iops};
use tcpsim::Setup;
use tcpsim::fit::{self, CpuTimes, Measured};

use crate::plan::Plan;
use crate::result::StudyResult;

/// Variation of service times and latencies in the simulator, as a share: a study has no figure for it.
const JITTER: f64 = 0.3;
/// Rounds of the search for the simulator's costs: a few seconds.
const ROUNDS: u32 = 16;

/// The simulated ring of a study's wire and block size, with the simulator's own costs.
#[must_use]
pub fn setup(plan: &Plan, has_wire: bool, block_bytes: u64) -> Setup {
    let mut setup = Setup { jitter: JITTER, ..Setup::default() };
    setup.response.data = block_bytes;
    setup.wire.bandwidth = if has_wire { plan.bits_per_second } else { 0 };
    setup.wire.mtu = plan.mtu_bytes;
    setup.wire.burst = u64::from(plan.mtu_bytes) + 1000;
    // A study keeps each side on one CPU.
    (setup.server.softirq_cpu, setup.client.softirq_cpu) = (0, 0);
    setup
}

/// The points of a block size, as the simulator is fitted to them.
#[must_use]
pub fn measured(stanzas: &[Stanza], depths: &[u32], block_bytes: u64) -> Vec<Measured> {
    let of_size = stanzas.iter().filter(|s| s.block_size_bytes == block_bytes);
    let point = |s: &Stanza| {
        let cpu_us = CpuTimes {
            client_thread: s.cpu.client_thread_us,
            client_softirq: s.cpu.client_softirq_us,
            server_thread: s.cpu.server_thread_us,
            server_softirq: s.cpu.server_softirq_us,
        };
        // At low depth the work includes the cost of sleeping, so take the work from the deepest point.
        let cpu_us = (Some(&s.queue_depth) == depths.last()).then_some(cpu_us);
        Some(Measured { sending: s.policy.parse().ok()?, queue_depth: s.queue_depth, iops: s.iops, cpu_us })
    };
    of_size.filter_map(point).collect()
}

/// The depths to which the simulator is fitted: the first, one from the lower quarter and the last.
#[must_use]
pub fn fitted_depths(depths: &[u32]) -> Vec<u32> {
    let mut some: Vec<u32> = [depths.first(), depths.get(depths.len() / 4), depths.last()]
        .into_iter()
        .flatten()
        .copied()
        .collect();
    some.dedup();
    some
}

impl StudyResult {
    /// Adds to each point what other points predict for it.
    pub(crate) fn predict_from_elsewhere(&mut self, stop: &(dyn Fn() -> bool + Sync)) {
        self.predict_by_model();
        self.predict_by_simulator(stop);
    }

    /// The model: for a depth between the ends of its group from these ends, for an end from two other sizes.
    fn predict_by_model(&mut self) {
        let depths = &self.plan.queue_depths;
        let mut sizes: BTreeMap<String, Vec<SizeFigures>> = BTreeMap::new();
        for s in self.stanzas.iter().filter(|s| s.queue_depth == 1) {
            sizes.entry(s.policy.clone()).or_default().push(SizeFigures {
                block_bytes: s.block_size_bytes,
                depth_one: s.segments,
                service: s.service,
            });
        }
        for s in &mut self.stanzas {
            let is_end = [depths.first(), depths.last()].contains(&Some(&s.queue_depth));
            s.model_iops = if is_end {
                let others = sizes.get(&s.policy).map_or(&[][..], Vec::as_slice);
                predicted_iops(others, s.block_size_bytes, s.queue_depth, s.path.as_ref())
            } else {
                s.predicted.map(|predicted| predicted.iops)
            };
        }
    }

    /// The simulator, with the costs that reproduce the points of the nearest other size.
    fn predict_by_simulator(&mut self, stop: &(dyn Fn() -> bool + Sync)) {
        let sizes = self.plan.block_bytes.clone();
        let mut fits: BTreeMap<u64, Setup> = BTreeMap::new();
        for &block_bytes in &sizes {
            let others = sizes.iter().filter(|other| **other != block_bytes);
            let Some(&other) = others.min_by_key(|other| other.abs_diff(block_bytes)) else { continue };
            let fitted = fits.entry(other).or_insert_with(|| {
                let depths = &self.plan.queue_depths;
                let points = measured(&self.stanzas, depths, other);
                fitted(&setup(&self.plan, self.wire, other), &points, depths, stop)
            });
            let of_size = |s: &&mut Stanza| s.block_size_bytes == block_bytes;
            for stanza in self.stanzas.iter_mut().filter(of_size) {
                let Ok(sending) = stanza.policy.parse() else { continue };
                let at = Measured { sending, queue_depth: stanza.queue_depth, iops: 0.0, cpu_us: None };
                if stop() {
                    return;
                }
                stanza.simulated_iops = Some(iops_at(fitted, block_bytes, &at));
            }
        }
    }
}

/// The costs that reproduce some of these points.
fn fitted(base: &Setup, points: &[Measured], depths: &[u32], stop: &(dyn Fn() -> bool + Sync)) -> Setup {
    let shown = fitted_depths(depths);
    let shown: Vec<Measured> =
        points.iter().filter(|point| shown.contains(&point.queue_depth)).copied().collect();
    fit::fit(base, &shown, ROUNDS, &|_| (), stop).setup
}

/// Simulated operations per second of another size with these costs.
fn iops_at(fitted: &Setup, block_bytes: u64, at: &Measured) -> f64 {
    let mut own = fitted.clone();
    own.response.data = block_bytes;
    tcpsim::simulate(&fit::at(&own, at), &mut ()).iops
}

#[cfg(test)]
mod tests {
    use policy::SendPolicy;

    use super::*;

    /// The points of a ring that the simulator itself made: costs that reproduce one size predict another one.
    #[test]
    fn costs_of_one_size_predict_another() {
        let plan = Plan { queue_depths: vec![1, 8, 64], ..Plan::quick() };
        let mut truth = setup(&plan, true, 512);
        (truth.operations, truth.warm_up) = (20_000, 1000);
        for host in [&mut truth.server, &mut truth.client] {
            (host.service, host.start, host.softirq, host.transmit) = (3_000, 9_000, 2_000, 2_000);
        }
        let point = |block_bytes, queue_depth| {
            let at = Measured { sending: SendPolicy::Nodelay.into(), queue_depth, iops: 0.0, cpu_us: None };
            Measured { iops: iops_at(&truth, block_bytes, &at), ..at }
        };
        let shown: Vec<Measured> = plan.queue_depths.iter().map(|depth| point(512, *depth)).collect();
        let found = fitted(&setup(&plan, true, 512), &shown, &plan.queue_depths, &|| false);
        for depth in plan.queue_depths {
            let real = point(4096, depth);
            let predicted = iops_at(&found, 4096, &real);
            assert!((predicted / real.iops - 1.0).abs() < 0.25, "QD {depth}: {predicted} of {}", real.iops);
        }
        // The wire's rate is known, and limits 4 KiB at depth: 29.5 thousand.
        assert!(iops_at(&found, 4096, &point(4096, 64)) < 30_000.0);
        assert!(iops_at(&found, 512, &point(512, 64)) > 45_000.0);
    }

    #[test]
    fn three_depths_are_fitted() {
        assert_eq!(fitted_depths(&[1, 2, 4, 8, 16, 32, 64, 128]), [1, 4, 128]);
        assert_eq!(fitted_depths(&[1, 128]), [1, 128]);
        assert_eq!(fitted_depths(&[1]), [1]);
    }
}
