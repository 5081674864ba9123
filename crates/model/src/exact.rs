//! The exact behaviour of the deterministic ring with start latencies, over start phases.
//!
//! With start latencies one parameter set can settle in several limit cycles below the knee, depending on how
//! the operations were spread when it began: so the answer is a range over start phases. Rings whose stages
//! have resources of their own are computed by [`super::recursion`], all others by [`super::events`].

use serde::Serialize;

use super::extras::Extras;
use super::run::{Run, StageRun};
use super::{ModelError, Ring, Stage, check_queue_depth, events, recursion};

/// Throughput of a ring at a queue depth, over its start phases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Exact {
    /// Queue depth.
    pub queue_depth: u32,
    /// Least throughput of a start phase, operations per second.
    pub iops_low: f64,
    /// Mean over start phases.
    pub iops: f64,
    /// Greatest throughput of a start phase.
    pub iops_high: f64,
    /// Mean round trip at the mean throughput, microseconds: QD / IOPS, less the think time.
    pub rtt_us: f64,
    /// Median round trip, microseconds.
    pub rtt_p50_us: f64,
    /// 99th percentile, microseconds.
    pub rtt_p99_us: f64,
    /// Longest, microseconds.
    pub rtt_max_us: f64,
    /// Share of the time for which the busiest resource works, 0 to 1, without start latencies.
    pub busiest: f64,
    /// The busy and idle times of each stage.
    pub cycles: Vec<Cycle>,
}

/// A stage's busy and idle times, means over all start phases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cycle {
    /// The stage, or the merged stages joined by `+`.
    pub stage: String,
    /// Operations served between waking up and falling idle; `None` when it never falls idle.
    pub operations: Option<f64>,
    /// Idle time before the next arrival, without start latency, microseconds.
    pub idle_us: f64,
    /// Operations that wait for it, without the served one (BACKLOG).
    pub backlog: f64,
}

/// Random start phases, in addition to the two regular ones.
const RANDOM_PHASES: u64 = 14;
/// The same for rings with shared resources, whose computation is slower.
const RANDOM_PHASES_SHARED: u64 = 4;
impl Ring {
    /// Throughput and round trips at a queue depth, over start phases. Deterministic.
    ///
    /// # Errors
    /// When the queue depth is not possible.
    pub fn exact(&self, queue_depth: u32, extras: &Extras) -> Result<Exact, ModelError> {
        check_queue_depth(queue_depth)?;
        let depth = queue_depth as usize;
        // Merging is the paper's treatment of a thread that shares its CPU. It is exact only where operations keep their
        // order and no stage preempts another.
        let simple =
            self.merged().filter(|ring| !extras.need_events() && !ring.stages().iter().any(|s| s.interrupt));
        let stages = simple.as_ref().unwrap_or(self).stages();
        let alone = self.rtt_alone_us() + extras.think_us;
        let mut phases = vec![
            // All at one time, and evenly spread over an undisturbed round trip.
            vec![0.0; depth],
            (0..depth).map(|k| alone * k as f64 / depth as f64).collect::<Vec<_>>(),
        ];
        if depth > 1 {
            let random = if simple.is_some() { RANDOM_PHASES } else { RANDOM_PHASES_SHARED };
            phases.extend((1..=random).map(|seed| random_phases(depth, alone, seed)));
        }
        let runs: Vec<Run> = phases
            .iter()
            .map(|starts| match &simple {
                Some(_) => recursion::run(stages, extras, starts),
                None => events::run(stages, extras, starts),
            })
            .collect();
        Ok(summary(queue_depth, extras, stages, runs))
    }
}

fn summary(queue_depth: u32, extras: &Extras, stages: &[Stage], runs: Vec<Run>) -> Exact {
    let count = runs.len() as f64;
    let iops = runs.iter().map(|r| r.iops).sum::<f64>() / count;
    let cycles = stages
        .iter()
        .enumerate()
        .map(|(index, stage)| {
            let sum = |of: fn(&StageRun) -> f64| runs.iter().map(|r| of(&r.stages[index])).sum::<f64>();
            let (served, wakes) = (sum(|s| s.served as f64), sum(|s| s.wakes as f64));
            Cycle {
                stage: stage.name.clone(),
                operations: (wakes > 0.0).then(|| served / wakes),
                idle_us: if wakes > 0.0 { sum(|s| s.idle_us) / wakes } else { 0.0 },
                // Little's law: waiting operations = rate x waiting time.
                backlog: iops / 1e6 * sum(|s| s.waited_us) / served.max(1.0),
            }
        })
        .collect();
    let lasted_us: f64 = runs.iter().map(|run| run.lasted_us).sum();
    let busy_us = |resource: &str| -> f64 {
        let own = |run: &Run| -> f64 {
            let of_resource = stages.iter().zip(&run.stages).filter(|(stage, _)| stage.resource == resource);
            of_resource.map(|(_, seen)| seen.busy_us).sum()
        };
        runs.iter().map(own).sum()
    };
    let busiest = stages.iter().map(|stage| busy_us(&stage.resource)).fold(0.0, f64::max) / lasted_us;
    let (iops_low, iops_high) =
        runs.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), r| (l.min(r.iops), h.max(r.iops)));
    let rtt_max_us = runs.iter().map(|r| r.longest).fold(0.0, f64::max);
    let mut round_trips: Vec<f64> = runs.into_iter().flat_map(|r| r.round_trips).collect();
    round_trips.sort_by(f64::total_cmp);
    let at = |q: f64| round_trips.get(((round_trips.len().max(1) - 1) as f64 * q) as usize).copied();
    Exact {
        queue_depth,
        iops_low,
        iops,
        iops_high,
        rtt_us: f64::from(queue_depth) * 1e6 / iops - extras.think_us,
        rtt_p50_us: at(0.5).unwrap_or(0.0),
        rtt_p99_us: at(0.99).unwrap_or(0.0),
        rtt_max_us,
        // The ends of a finite run.
        busiest: busiest.min(1.0),
        cycles,
    }
}

/// Ascending start times within one round trip, by xorshift64 (Marsaglia 2003) with shifts 13, 7, 17.
///
/// Any spread would do, but published figures contain these numbers: another generator would change them. The seed is
/// spread over the state by the golden ratio, because small seeds give small first numbers.
fn random_phases(depth: usize, alone: f64, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut phases: Vec<f64> = (0..depth)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            alone * (state >> 11) as f64 / (1_u64 << 53) as f64
        })
        .collect();
    phases.sort_by(f64::total_cmp);
    phases
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::extras::{Coalescing, Side, Slow};

    pub(crate) fn ring(times: &[(f64, f64)]) -> Ring {
        Ring::new(times.iter().enumerate().map(|(i, &(p, l))| Stage::own(&format!("s{i}"), p, l)).collect())
            .unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        /// The recursion's throughput lies within the band, from every start phase.
        #[test]
        fn exact_throughput_lies_in_the_band(
            times in prop::collection::vec((0.1_f64..50.0, 0.0_f64..100.0), 1..9), depth in 1_u32..40,
        ) {
            let ring = ring(&times);
            let (exact, band) = (ring.exact(depth, &Extras::default()).unwrap(), ring.band(depth).unwrap());
            prop_assert!(exact.iops_low >= band.low * (1.0 - 2e-3), "{exact:?} {band:?}");
            prop_assert!(exact.iops_high <= band.high * (1.0 + 2e-3), "{exact:?} {band:?}");
        }

        /// At and above the knee the bottleneck never rests.
        #[test]
        fn every_ring_reaches_its_limit_at_the_knee(times in prop::collection::vec((0.5_f64..50.0, 0.0_f64..50.0), 1..9), above in 0_u32..8) {
            let ring = ring(&times);
            let depth = ring.knee().ceil() as u32 + above;
            prop_assume!(depth <= 400);
            let exact = ring.exact(depth, &Extras::default()).unwrap();
            prop_assert!(exact.iops_low >= ring.iops_max() * (1.0 - 2e-3), "{exact:?} limit {} knee {}", ring.iops_max(), ring.knee());
        }

        /// Without start latencies it is the max-plus ring: min(QD / sum P, 1 / max P), exactly.
        #[test]
        fn without_latencies_it_is_the_max_plus_ring(services in prop::collection::vec(0.1_f64..50.0, 1..9), depth in 1_u32..40) {
            let ring = ring(&services.iter().map(|&p| (p, 0.0)).collect::<Vec<_>>());
            let exact = ring.exact(depth, &Extras::default()).unwrap();
            let expected = ring.band(depth).unwrap().high;
            prop_assert!((exact.iops_low / expected - 1.0).abs() < 2e-3 && (exact.iops_high / expected - 1.0).abs() < 2e-3, "{exact:?} {expected}");
        }
    }

    #[test]
    fn single_operation_pays_every_start_latency() {
        let exact = ring(&[(1.0, 10.0), (2.0, 20.0)]).exact(1, &Extras::default()).unwrap();
        assert!((exact.rtt_us - 33.0).abs() < 1e-6 && (exact.rtt_max_us - 33.0).abs() < 1e-6);
        assert_eq!(exact.cycles[1].operations, Some(1.0));
        assert!((exact.cycles[1].idle_us - 11.0).abs() < 1e-6, "while the other starts and works");
    }

    #[test]
    fn ring_below_its_knee_can_settle_in_several_cycles() {
        // Evenly spread operations keep every stage busy; bunched ones let the stages sleep each round. Both cycles are
        // stable, so a single figure would be wrong.
        let ring = ring(&[(1.0, 7.0), (1.0, 0.0), (1.0, 15.0), (1.0, 0.0)]);
        let exact = ring.exact(5, &Extras::default()).unwrap();
        assert!(exact.iops_high > exact.iops_low * 2.0, "{exact:?}");
        assert!(exact.iops > exact.iops_low && exact.iops < exact.iops_high);
    }

    #[test]
    fn network_bound_thread_works_in_bursts() {
        // The paper: "the Session Thread runs BUSY at 100% CPU for a while, then goes IDLE for a minimum of time
        // SL, then repeats that cycle; while the network remains fully saturated".
        let ring = Ring::new(vec![Stage::own("SP", 8.0, 20.0), Stage::own("W2", 17.0, 0.0)]).unwrap();
        let exact = ring.exact(12, &Extras::default()).unwrap();
        let (thread, wire) = (&exact.cycles[0], &exact.cycles[1]);
        assert!((exact.iops - 1e6 / 17.0).abs() < 1.0);
        assert_eq!(wire.operations, None, "never idle");
        // Busy n * SP, idle until the next request and SL: n requests come in n * W2.
        let n = thread.operations.unwrap();
        assert!((n * 8.0 + thread.idle_us + 20.0 - n * 17.0).abs() < 1e-6, "{thread:?}");
        assert!(n >= 2.0 && wire.backlog > 8.0, "{exact:?}");
    }

    #[test]
    fn pacer_limits_the_rate_and_does_not_delay_late_operations() {
        let ring = Ring::new(vec![Stage::own("SP", 5.0, 20.0), Stage::pacer("W2", 34.0)]).unwrap();
        let exact = |depth| ring.exact(depth, &Extras::default()).unwrap();
        assert!(
            (exact(1).rtt_us - 34.0).abs() < 1e-6,
            "a round trip of 25 us, limited to one operation in 34 us"
        );
        assert!((exact(8).iops - 1e6 / 34.0).abs() < 1.0);
        assert_eq!(ring.bottleneck().stages, "W2");
    }

    #[test]
    fn think_time_and_slow_operations_lengthen_the_round() {
        let ring = ring(&[(10.0, 0.0), (5.0, 0.0)]);
        let with = |extras| ring.exact(1, &extras).unwrap();
        let thinking = with(Extras { think_us: 85.0, ..Extras::default() });
        assert!((thinking.iops - 10_000.0).abs() < 20.0 && (thinking.rtt_us - 15.0).abs() < 0.2);
        let coalescing = Coalescing { hold_us: 50.0, packets: 8, side: Side::Client };
        let held = with(Extras { coalescing, ..Extras::default() });
        assert!((held.rtt_us - 65.0).abs() < 0.2, "one alone waits its hold time");
    }

    #[test]
    fn slow_operations_lengthen_mean_and_tail() {
        // "1/3 of the time the latency is 338 microseconds, and 2/3 of the time it is only 135": 203 us apart.
        let slow = Slow { every: 3, extra_us: 203.0 };
        assert_eq!(format!("{:.1}", 135.0 + slow.mean_us()), "202.7", "the paper's 204.5, but for rounding");
        let exact =
            ring(&[(35.0, 0.0), (100.0, 0.0)]).exact(1, &Extras { slow, ..Extras::default() }).unwrap();
        assert!((exact.rtt_us - 202.7).abs() < 0.3, "{exact:?}");
        assert!((exact.rtt_p50_us - 135.0).abs() < 1e-6 && (exact.rtt_p99_us - 338.0).abs() < 1e-6);
    }
}
