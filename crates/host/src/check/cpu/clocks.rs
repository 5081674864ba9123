//! Clocks that are held down. Governors that follow the load (ondemand, schedutil, those of intel_pstate) are the defaults of
//! distributions and no finding.

use super::super::draft::{Draft as _, finding};
use super::super::shell::word;
use super::list;
use crate::facts::cpu::{ClockFacts, CpuFacts};
use crate::finding::{Finding, Severity};

/// Drivers whose governor `powersave` follows the load (intel_pstate, amd-pstate in active mode).
const FOLLOWS: [&str; 2] = ["intel_pstate", "amd-pstate-epp"];

/// Up to this many files are written one by one.
const FEW: usize = 4;

pub(super) fn findings(cpu: &CpuFacts) -> Vec<Finding> {
    // Policies of equal settings are one finding; machines have one policy for each processor.
    let rules: [fn(&ClockFacts) -> Option<Mend>; 3] = [slowest, capped, saving];
    let mut all: Vec<Finding> = rules.iter().filter_map(|rule| gather(cpu, rule)).collect();
    all.extend(boost(cpu));
    all
}

/// A fault of one policy.
struct Mend {
    id: &'static str,
    severity: Severity,
    measured: String,
    why: &'static str,
    /// The file of the policy and the value that mends it.
    file: &'static str,
    value: String,
}

/// One finding for all policies with a fault.
fn gather(cpu: &CpuFacts, rule: &fn(&ClockFacts) -> Option<Mend>) -> Option<Finding> {
    let faults: Vec<(&ClockFacts, Mend)> =
        cpu.clocks.iter().filter_map(|clock| Some((clock, rule(clock)?))).collect();
    let (_, first) = faults.first()?;
    let mut cpus: Vec<u32> = faults.iter().flat_map(|(clock, _)| clock.cpus.iter().copied()).collect();
    cpus.sort_unstable();
    let subject = format!("CPU {}", list(&cpus));
    let draft = finding(first.id, first.severity, &subject, first.measured.clone(), first.why);
    let path = |clock: &ClockFacts| format!("{}/{}", clock.path, first.file);
    if faults.len() <= FEW || faults.iter().any(|(_, mend)| mend.value != first.value) {
        return Some(
            faults.iter().fold(draft, |draft, (clock, mend)| draft.sysfs(&path(clock), &mend.value)),
        );
    }
    let paths: Vec<String> = faults.iter().map(|(clock, _)| path(clock)).collect();
    let files: Vec<String> = paths.iter().map(|path| word(&format!("/sys/{path}"))).collect();
    let command = format!("echo {} | tee {} > /dev/null", word(&first.value), files.join(" "));
    Some(draft.sysfs_all(command, &paths, &first.value))
}

/// The governor that stays at the lowest clock.
fn slowest(clock: &ClockFacts) -> Option<Mend> {
    let driver = clock.driver.as_deref().unwrap_or_default();
    if clock.governor.as_deref() != Some("powersave") || FOLLOWS.contains(&driver) {
        return None;
    }
    let (min, max) = (clock.min_khz?, clock.max_khz?);
    // The lowest clock is the highest: nothing is lost.
    if min >= max {
        return None;
    }
    let better = ["schedutil", "ondemand", "performance"];
    let value = better.iter().find(|name| clock.available_governors.iter().any(|known| known == *name))?;
    Some(Mend {
        id: "governor",
        severity: Severity::Slow,
        measured: format!("governor powersave of {driver}: {} of {} MHz", min / 1000, max / 1000),
        why: "With this driver the governor keeps the lowest clock, whatever the load: all work of a round trip takes longer by the \
              ratio of the two clocks.",
        file: "scaling_governor",
        value: (*value).to_owned(),
    })
}

/// The highest clock is lower than the hardware's.
fn capped(clock: &ClockFacts) -> Option<Mend> {
    let (max, hardware) = (clock.max_khz?, clock.hardware_max_khz?);
    // A twentieth less is a rounding of tables.
    if max * 20 >= hardware * 19 {
        return None;
    }
    Some(Mend {
        id: "cpu-clock-capped",
        severity: Severity::Slow,
        measured: format!("at most {} MHz; the hardware has {}", max / 1000, hardware / 1000),
        why: "The clock is limited below what the processor can do: by a power profile, or by hand.",
        file: "scaling_max_freq",
        value: hardware.to_string(),
    })
}

/// The preference for saving over speed.
fn saving(clock: &ClockFacts) -> Option<Mend> {
    (clock.energy_preference.as_deref() == Some("power")).then(|| Mend {
        id: "cpu-energy-preference-power",
        severity: Severity::Note,
        measured: "energy_performance_preference is power".to_owned(),
        why: "The processor raises its clock late and drops it early: short bursts of work, as those of a round trip, run at a low \
              clock.",
        file: "energy_performance_preference",
        value: "balance_performance".to_owned(),
    })
}

fn boost(cpu: &CpuFacts) -> Option<Finding> {
    let switch = cpu.boost.as_ref().filter(|switch| !switch.is_on)?;
    let why = "Clocks above the nominal one are switched off: a busy processor runs more slowly than it could, and more evenly.";
    let draft =
        finding("cpu-boost-off", Severity::Note, "CPUs", format!("/sys/{} says off", switch.path), why);
    Some(draft.sysfs(&switch.path, &switch.on_value))
}
