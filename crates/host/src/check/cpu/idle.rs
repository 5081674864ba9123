//! Idle states: what a wake-up from them adds to a round trip (the model's start latencies SL and CL).

use super::super::draft::{Draft as _, finding, time};
use super::list;
use crate::facts::Facts;
use crate::facts::cpu::{CpuFacts, IdleStateFacts};
use crate::finding::{Finding, Severity};

/// A wake-up is worth a word if it takes this share of the round trip, and a finding that slows at the second.
const SHARE_NOTE: f64 = 0.1;
const SHARE_SLOW: f64 = 0.5;

/// Longer round trips are those of distant peers, where saving power is worth more, microseconds.
const LONG_US: f64 = 2000.0;

/// Shorter wake-ups are those of every processor, microseconds.
const LEAST_US: u32 = 5;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    // How long a processor sleeps between the packets of one operation is known only with a round trip time.
    let Some(rtt_us) = facts.path.as_ref().and_then(|path| path.rtt).map(|rtt| rtt.min_us) else {
        return Vec::new();
    };
    if rtt_us > LONG_US { Vec::new() } else { wake_up(&facts.cpu, rtt_us).into_iter().collect() }
}

fn wake_up(cpu: &CpuFacts, rtt_us: f64) -> Option<Finding> {
    // At queue depth 1 a processor sleeps for a round trip time; the kernel chooses no state that needs a longer sleep.
    let deepest = cpu
        .idle_states
        .iter()
        .filter(|state| fits(cpu, state, rtt_us))
        .max_by_key(|state| state.latency_us)?;
    let cost = f64::from(deepest.latency_us);
    if deepest.latency_us < LEAST_US || cost < SHARE_NOTE * rtt_us {
        return None;
    }
    let severity = if cost >= SHARE_SLOW * rtt_us { Severity::Slow } else { Severity::Note };
    let measured = format!(
        "{}: {} us to wake up, entered for {} us and longer; the round trip takes {}",
        deepest.name,
        deepest.latency_us,
        deepest.residency_us,
        time(rtt_us)
    );
    let why = "A processor that waits for an answer sleeps, and wakes up when the interrupt comes: at queue depth 1 that is part \
               of each round trip, at both ends. Shallow states cost power.";
    let mut draft =
        finding("deep-c-states", severity, &format!("CPU {}", list(&deepest.enabled_cpus)), measured, why)
            .adds_us(cost);
    let deep = cpu.idle_states.iter().filter(|state| state.latency_us >= deepest.latency_us);
    for state in deep {
        for number in &state.enabled_cpus {
            draft = draft
                .sysfs(&format!("devices/system/cpu/cpu{number}/cpuidle/state{}/disable", state.index), "1");
        }
    }
    Some(draft.other_end("its processors sleep, too: check there"))
}

/// Whether a state may be entered in such a sleep.
fn fits(cpu: &CpuFacts, state: &IdleStateFacts, sleep_us: f64) -> bool {
    let allowed = cpu.resume_latency_limit_us.is_none_or(|limit| state.latency_us <= limit);
    allowed && !state.enabled_cpus.is_empty() && f64::from(state.residency_us) <= sleep_us
}
