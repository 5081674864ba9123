//! Reads how processors run, sleep and receive.

use std::path::Path;
use std::time::Duration;

use super::text::{cpu_list, names, number, text, trailing};
use super::{Roots, Wanted};
use crate::facts::Unseen;
use crate::facts::cpu::{ClockFacts, CpuFacts, IdleStateFacts, NodeFacts, SwitchFacts};

pub(crate) mod load;
mod placement;

/// Reads the processors, and what they do while they are watched.
pub fn read(roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> CpuFacts {
    let folder = roots.sys.join("devices/system/cpu");
    let online = cpu_list(&text(&folder.join("online")).unwrap_or_default());
    if online.is_empty() {
        let why = format!("{} cannot be read", folder.display());
        unseen.push(Unseen { what: "processors".to_owned(), why });
    }
    let idle = folder.join("cpuidle");
    let governor = ["current_governor", "current_governor_ro"];
    let mut facts = CpuFacts {
        isolated: cpu_list(&text(&folder.join("isolated")).unwrap_or_default()),
        nodes: nodes(&roots.sys),
        clocks: clocks(&folder),
        boost: boost(&folder),
        idle_driver: text(&idle.join("current_driver")).filter(|driver| driver != "none"),
        idle_governor: governor.iter().find_map(|name| text(&idle.join(name))),
        idle_states: idle_states(&folder, &online),
        resume_latency_limit_us: resume_latency_limit_us(&folder, &online),
        guest_halt_poll_ns: number(&roots.sys.join("module/haltpoll/parameters/guest_halt_poll_ns")),
        interfaces: placement::interfaces(roots, wanted),
        flow_entries: number(&roots.proc.join("sys/net/core/rps_sock_flow_entries")),
        runs_irqbalance: runs_irqbalance(&roots.proc),
        online,
        ..CpuFacts::default()
    };
    if wanted.watch > Duration::ZERO {
        watch(roots, wanted.watch, &mut facts, unseen);
    }
    facts
}

fn watch(roots: &Roots, time: Duration, facts: &mut CpuFacts, unseen: &mut Vec<Unseen>) {
    let before = load::read(&roots.proc);
    if before.is_empty() {
        unseen.push(Unseen {
            what: "the processors' load".to_owned(),
            why: "/proc/stat cannot be read".to_owned(),
        });
        return;
    }
    std::thread::sleep(time);
    facts.watched_ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    facts.watched = load::between(&before, &load::read(&roots.proc));
    placement::count_again(roots, &mut facts.interfaces);
}

fn nodes(sys: &Path) -> Vec<NodeFacts> {
    let folder = sys.join("devices/system/node");
    let node = |name: String| {
        let node = name.strip_prefix("node")?.parse().ok()?;
        Some(NodeFacts { node, cpus: cpu_list(&text(&folder.join(&name).join("cpulist"))?) })
    };
    names(&folder).into_iter().filter_map(node).collect()
}

fn clocks(folder: &Path) -> Vec<ClockFacts> {
    let policies = folder.join("cpufreq");
    let policy = |name: String| {
        let folder = policies.join(&name);
        let read = |file: &str| text(&folder.join(file));
        Some(ClockFacts {
            path: format!("devices/system/cpu/cpufreq/{name}"),
            // related_cpus is a list with spaces, affected_cpus those that are online.
            cpus: cpu_list(&read("affected_cpus")?.replace(' ', ",")),
            driver: read("scaling_driver"),
            governor: read("scaling_governor"),
            available_governors: read("scaling_available_governors")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            energy_preference: read("energy_performance_preference"),
            min_khz: number(&folder.join("scaling_min_freq")),
            max_khz: number(&folder.join("scaling_max_freq")),
            hardware_min_khz: number(&folder.join("cpuinfo_min_freq")),
            hardware_max_khz: number(&folder.join("cpuinfo_max_freq")),
        })
    };
    names(&policies).into_iter().filter(|name| name.starts_with("policy")).filter_map(policy).collect()
}

/// The switch of frequencies above the nominal one: acpi-cpufreq's or intel_pstate's, which says what is off.
fn boost(folder: &Path) -> Option<SwitchFacts> {
    for (file, on) in [("cpufreq/boost", "1"), ("intel_pstate/no_turbo", "0")] {
        if let Some(value) = text(&folder.join(file)) {
            let path = format!("devices/system/cpu/{file}");
            return Some(SwitchFacts { path, is_on: value == on, on_value: on.to_owned() });
        }
    }
    None
}

/// Idle states of all processors, merged by number and name.
fn idle_states(folder: &Path, online: &[u32]) -> Vec<IdleStateFacts> {
    let mut all: Vec<IdleStateFacts> = Vec::new();
    for cpu in online {
        let states = folder.join(format!("cpu{cpu}/cpuidle"));
        for state in names(&states) {
            let path = states.join(&state);
            let (Some(index), Some(name)) = (trailing(&state), text(&path.join("name"))) else { continue };
            let at = all.iter().position(|known| known.index == index && known.name == name).unwrap_or_else(
                || {
                    all.push(IdleStateFacts {
                        index,
                        name,
                        latency_us: number(&path.join("latency")).unwrap_or(0),
                        residency_us: number(&path.join("residency")).unwrap_or(0),
                        enabled_cpus: Vec::new(),
                    });
                    all.len() - 1
                },
            );
            if text(&path.join("disable")).as_deref() != Some("1") {
                all[at].enabled_cpus.push(*cpu);
            }
        }
    }
    all.sort_by_key(|state| (state.latency_us, state.index));
    all
}

/// The longest wake-up that every processor allows. In the file, 0 is no limit and `n/a` allows none at all.
fn resume_latency_limit_us(folder: &Path, online: &[u32]) -> Option<u32> {
    let limit = |cpu: &u32| {
        let value = text(&folder.join(format!("cpu{cpu}/power/pm_qos_resume_latency_us")))?;
        if value == "n/a" { Some(0) } else { value.parse().ok().filter(|limit| *limit > 0) }
    };
    let limits: Option<Vec<u32>> = online.iter().map(limit).collect();
    limits?.into_iter().max()
}

fn runs_irqbalance(proc: &Path) -> bool {
    let is_process = |name: &String| name.bytes().all(|byte| byte.is_ascii_digit());
    names(proc)
        .into_iter()
        .filter(is_process)
        .any(|pid| text(&proc.join(pid).join("comm")).as_deref() == Some("irqbalance"))
}
