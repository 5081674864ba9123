//! The exact behaviour of the deterministic ring with start latencies.
//!
//! Stages serve in order, so operations never overtake and the ring is a recursion: with d(s, k) the moment
//! when the k-th operation leaves stage s, and a the moment it arrives there (left the stage before; at the
//! first stage: when operation k - QD went all the way round),
//!
//! ```text
//! begin = d(s, k-1)     when a <= d(s, k-1): the stage is busy and pays no start latency
//!         a + L(s)      otherwise: the stage was idle
//! d(s, k) = begin + P(s)
//! ```
//!
//! (a pacer: d(s, k) = max(a, d(s, k-1) + P(s))). Without start latencies this is the max-plus ring. With them one parameter set can settle in several limit
//! cycles below the knee, depending on how the operations were spread when it began: so the answer is a range
//! over start phases.

use serde::Serialize;

use super::{ModelError, Ring, Stage, check_queue_depth};

/// Throughput of a ring at a queue depth, over its start phases.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Exact {
    /// Queue depth.
    pub queue_depth: u32,
    /// Least throughput that a start phase settled in, operations per second.
    pub iops_low: f64,
    /// The mean over start phases.
    pub iops: f64,
    /// Greatest.
    pub iops_high: f64,
    /// Mean round trip at the mean throughput, microseconds: QD / IOPS.
    pub rtt_us: f64,
}

/// What a ring may have besides its stages.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct Extras {
    /// Time that a client spends between an operation's end and its successor, microseconds; not a stage, for
    /// operations think side by side.
    pub think_us: f64,
    /// Interrupt coalescing of the response direction.
    pub coalescing: Coalescing,
    /// A share of slow operations.
    pub slow: Slow,
}

/// Interrupt coalescing: arrivals are held until the oldest has waited, or enough are there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Coalescing {
    /// Longest wait of the first of a group, microseconds; 0 is off.
    pub hold_us: f64,
    /// Arrivals that end the wait.
    pub packets: u32,
}

impl Default for Coalescing {
    fn default() -> Self {
        Self { hold_us: 0.0, packets: 1 }
    }
}

/// Every n-th operation takes longer: bimodal latency.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct Slow {
    /// One in this many is slow; 0 for none.
    pub every: u32,
    /// By this much, microseconds, on its way and beside the stages.
    pub extra_us: f64,
}

/// Laps until a ring has settled, and laps over which it is measured. The latter is a multiple of many small
/// numbers, so that most limit cycles fit it whole.
const SETTLE_LAPS: usize = 240;
const MEASURE_LAPS: usize = 720;
/// Operations at most of one run; deep queues need fewer laps.
const OPERATIONS_MAX: usize = 400_000;
/// Start phases beside the two regular ones.
const RANDOM_PHASES: u64 = 14;

impl Ring {
    /// Runs the recursion from several start phases.
    ///
    /// # Errors
    /// When the queue depth is not possible, or stages of one resource do not follow each other.
    pub fn exact(&self, queue_depth: u32, extras: &Extras) -> Result<Exact, ModelError> {
        check_queue_depth(queue_depth)?;
        let merged = self.merged().ok_or_else(|| {
            ModelError::new(
                "resource",
                "stages of one resource apart from each other",
                "the order in which they are served is not determined; only the band holds",
            )
        })?;
        let stages = merged.stages();
        let depth = queue_depth as usize;
        let alone = merged.rtt_alone_us() + extras.think_us;
        let mut all = vec![
            // All at once; and evenly spread over an undisturbed round trip.
            throughput(stages, extras, &vec![0.0; depth]),
            throughput(
                stages,
                extras,
                &(0..depth).map(|k| alone * k as f64 / depth as f64).collect::<Vec<_>>(),
            ),
        ];
        if depth > 1 {
            all.extend(
                (1..=RANDOM_PHASES)
                    .map(|seed| throughput(stages, extras, &random_phases(depth, alone, seed))),
            );
        }
        let iops_low = all.iter().copied().fold(f64::INFINITY, f64::min);
        let iops_high = all.iter().copied().fold(0.0, f64::max);
        let iops = all.iter().sum::<f64>() / all.len() as f64;
        Ok(Exact { queue_depth, iops_low, iops, iops_high, rtt_us: f64::from(queue_depth) * 1e6 / iops })
    }
}

/// Ascending start moments within one round trip, by a small generator of our own kind: any spread will do.
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

/// Operations per second after settling, for operations that enter the first stage at these moments.
fn throughput(stages: &[Stage], extras: &Extras, starts: &[f64]) -> f64 {
    let depth = starts.len();
    let affordable = (OPERATIONS_MAX / depth.max(1)).max(4);
    let settle = SETTLE_LAPS.min(affordable / 4);
    let measure = MEASURE_LAPS.min(affordable - affordable / 4).max(2);
    // When each stage finished its last operation; never yet.
    let mut done = vec![f64::NEG_INFINITY; stages.len()];
    // When each operation may enter the first stage again.
    let mut ready = starts.to_vec();
    let (mut begin, mut count) = (0.0, 0_u64);
    let mut held = Held::new(extras.coalescing);
    let mut batch: Vec<(usize, f64)> = Vec::new();
    for lap in 0..settle + measure {
        for (k, &entered) in ready.iter().enumerate() {
            let mut at = entered;
            for (stage, done) in stages.iter().zip(&mut done) {
                if stage.paced {
                    at = at.max(*done + stage.service_us);
                    *done = at;
                    continue;
                }
                let start = if at <= *done { *done } else { at + stage.start_latency_us };
                *done = start + stage.service_us;
                at = *done;
            }
            count += 1;
            if extras.slow.every > 0 && count.is_multiple_of(extras.slow.every.into()) {
                at += extras.slow.extra_us;
            }
            batch.push((k, at));
        }
        // Completions are delivered in groups where interrupts are coalesced.
        for (k, at) in held.deliver(&mut batch) {
            ready[k] = at + extras.think_us;
        }
        if lap + 1 == settle {
            begin = ready.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        }
    }
    let end = ready.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    (measure * depth) as f64 * 1e6 / (end - begin)
}

/// Arrivals waiting for their interrupt.
struct Held {
    coalescing: Coalescing,
}

impl Held {
    fn new(coalescing: Coalescing) -> Self {
        Self { coalescing }
    }

    /// The moments at which a lap's arrivals are handed over.
    fn deliver(&mut self, batch: &mut Vec<(usize, f64)>) -> Vec<(usize, f64)> {
        if self.coalescing.hold_us == 0.0 || self.coalescing.packets <= 1 {
            return std::mem::take(batch);
        }
        let mut out = Vec::with_capacity(batch.len());
        let mut rest = std::mem::take(batch).into_iter().peekable();
        while let Some((first, at)) = rest.next() {
            let deadline = at + self.coalescing.hold_us;
            let mut group = vec![first];
            let mut handed = deadline;
            while group.len() < self.coalescing.packets as usize {
                match rest.next_if(|&(_, next)| next <= deadline) {
                    Some((k, next)) => {
                        group.push(k);
                        if group.len() == self.coalescing.packets as usize {
                            handed = next;
                        }
                    }
                    None => break,
                }
            }
            out.extend(group.into_iter().map(|k| (k, handed)));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ring(times: &[(f64, f64)]) -> Ring {
        Ring::new(times.iter().enumerate().map(|(i, &(p, l))| Stage::own(&format!("s{i}"), p, l)).collect())
            .unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1000))]
        /// The recursion's throughput lies within the band, from every start phase.
        #[test]
        fn no_ring_leaves_its_band(
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
    fn one_operation_pays_every_latency() {
        let exact = ring(&[(1.0, 10.0), (2.0, 20.0)]).exact(1, &Extras::default()).unwrap();
        assert!((exact.rtt_us - 33.0).abs() < 1e-6);
    }

    #[test]
    fn below_the_knee_one_parameter_set_can_settle_in_several_cycles() {
        // Spread just so, the operations keep every stage busy for ever; bunched, the stages fall asleep each
        // round. Both go on without end, so a single figure would be wrong.
        let ring = ring(&[(1.0, 7.0), (1.0, 0.0), (1.0, 15.0), (1.0, 0.0)]);
        let exact = ring.exact(5, &Extras::default()).unwrap();
        assert!(exact.iops_high > exact.iops_low * 2.0, "{exact:?}");
        assert!(exact.iops > exact.iops_low && exact.iops < exact.iops_high);
    }

    #[test]
    fn a_pacer_limits_the_rate_and_delays_nobody_who_comes_late() {
        let ring = Ring::new(vec![Stage::own("SP", 5.0, 20.0), Stage::pacer("W2", 34.0)]).unwrap();
        let exact = |depth| ring.exact(depth, &Extras::default()).unwrap();
        assert!((exact(1).rtt_us - 34.0).abs() < 1e-6, "25 us of way, but no faster than one in 34");
        assert!((exact(8).iops - 1e6 / 34.0).abs() < 1.0);
        assert_eq!(ring.bottleneck().stages, "W2");
    }

    #[test]
    fn think_time_and_slow_operations_lengthen_the_round() {
        let ring = ring(&[(10.0, 0.0), (5.0, 0.0)]);
        let with = |extras| ring.exact(1, &extras).unwrap().rtt_us;
        assert!((with(Extras { think_us: 85.0, ..Extras::default() }) - 100.0).abs() < 0.2);
        // The paper's third pattern: one in three takes 203 us longer.
        let slow = Slow { every: 3, extra_us: 203.0 };
        assert!((with(Extras { slow, ..Extras::default() }) - (15.0 + 203.0 / 3.0)).abs() < 0.2);
        let coalescing = Coalescing { hold_us: 50.0, packets: 8 };
        assert!(
            (with(Extras { coalescing, ..Extras::default() }) - 65.0).abs() < 0.2,
            "one alone waits its hold time"
        );
    }
}
