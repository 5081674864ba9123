//! The ring as a recursion: stages with resources of their own serve in order, so operations never overtake.
//!
//! With d(s, k) the time at which the k-th operation leaves stage s, and a the time at which it arrives there (it left
//! the previous stage; at the first stage: operation k - QD completed its round),
//!
//! ```text
//! begin = d(s, k-1)     when a <= d(s, k-1): the stage is busy and pays no start latency
//!         a + L(s)      otherwise: the stage was idle
//! d(s, k) = begin + P(s)
//! ```
//!
//! and for a pacer d(s, k) = max(a, d(s, k-1) + P(s)). Without start latencies this is the max-plus ring.

use super::Stage;
use super::extras::Extras;
use super::run::{MEASURE_LAPS, Run, SETTLE_LAPS};

/// Most operations of one run; deep queues run fewer laps.
const OPERATIONS_MAX: usize = 400_000;

/// Runs operations that enter the first stage at `starts` until they have settled, and measures.
pub(super) fn run(stages: &[Stage], extras: &Extras, starts: &[f64]) -> Run {
    let depth = starts.len();
    let affordable = (OPERATIONS_MAX / depth.max(1)).max(4);
    let settle = SETTLE_LAPS.min(affordable / 4);
    let measure = MEASURE_LAPS.min(affordable - affordable / 4).max(2);
    let mut run = Run::of(stages.len(), measure * depth);
    // When each stage finished its last operation.
    let mut done = vec![f64::NEG_INFINITY; stages.len()];
    // When each operation may enter the first stage again.
    let mut ready = starts.to_vec();
    let (mut begin, mut count) = (0.0, 0_u64);
    for lap in 0..settle + measure {
        if lap == settle {
            begin = ready.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        }
        let measured = lap >= settle;
        for ready in &mut ready {
            let mut at = *ready;
            for ((stage, done), seen) in stages.iter().zip(&mut done).zip(&mut run.stages) {
                if stage.paced {
                    let left = at.max(*done + stage.service_us);
                    if measured {
                        seen.served += 1;
                        seen.waited_us += left - at;
                        seen.busy_us += stage.service_us;
                    }
                    *done = left;
                    at = left;
                    continue;
                }
                let idle = at > *done;
                let start = if idle { at + stage.start_latency_us } else { *done };
                if measured {
                    seen.served += 1;
                    seen.waited_us += start - at;
                    seen.busy_us += stage.service_us;
                    if idle {
                        seen.wakes += 1;
                        seen.idle_us += at - *done;
                    }
                }
                *done = start + stage.service_us;
                at = *done;
            }
            count += 1;
            if extras.slow.every > 0 && count.is_multiple_of(extras.slow.every.into()) {
                at += extras.slow.extra_us;
            }
            if measured {
                run.round_trip(at - *ready);
            }
            *ready = at + extras.think_us;
        }
    }
    let end = ready.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    run.lasted_us = end - begin;
    run.iops = (measure * depth) as f64 * 1e6 / run.lasted_us;
    run
}
