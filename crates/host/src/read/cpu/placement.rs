//! Where network devices are, and which processors their interrupts and queues go to.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::text::{cpu_list, cpu_mask, names, number, text};
use super::super::{Roots, Wanted};
use crate::facts::cpu::{InterruptFacts, PlacementFacts, QueueFacts};

/// Interfaces with a device: the others have neither interrupts nor a place.
pub(super) fn interfaces(roots: &Roots, wanted: &Wanted) -> Vec<PlacementFacts> {
    let net = roots.sys.join("class/net");
    let counts = counts(&roots.proc);
    let is_wanted = |name: &String| {
        wanted.interface.as_ref().is_none_or(|only| only == name) && net.join(name).join("device").exists()
    };
    let read = |name: String| {
        let folder = net.join(&name);
        PlacementFacts {
            // -1: the machine has one node, or its tables do not say.
            node: number::<i64>(&folder.join("device/numa_node")).and_then(|node| u32::try_from(node).ok()),
            receive_queues: queues(&folder, "rx-", "rps_cpus"),
            transmit_queues: queues(&folder, "tx-", "xps_cpus"),
            interrupts: interrupts(roots, &folder, &name, &counts),
            interface: name,
        }
    };
    names(&net).into_iter().filter(is_wanted).map(read).collect()
}

/// Reads the counts of all interrupts once more.
pub(super) fn count_again(roots: &Roots, interfaces: &mut [PlacementFacts]) {
    let counts = counts(&roots.proc);
    for interrupt in interfaces.iter_mut().flat_map(|interface| &mut interface.interrupts) {
        if let Some((total, _)) = counts.get(&interrupt.number) {
            interrupt.moved = total.saturating_sub(interrupt.total);
        }
    }
}

fn queues(folder: &Path, prefix: &str, mask: &str) -> Vec<QueueFacts> {
    let queues = folder.join("queues");
    let read = |name: String| QueueFacts {
        cpus: cpu_mask(&text(&queues.join(&name).join(mask)).unwrap_or_default()),
        flows: number(&queues.join(&name).join("rps_flow_cnt")).unwrap_or(0),
        name,
    };
    names(&queues).into_iter().filter(|name| name.starts_with(prefix)).map(read).collect()
}

/// Interrupts of a device: those of its folder `msi_irqs` (of the device above it for virtio), or named after the interface.
fn interrupts(
    roots: &Roots,
    folder: &Path,
    interface: &str,
    counts: &BTreeMap<u32, (u64, String)>,
) -> Vec<InterruptFacts> {
    let of_device =
        |path: &str| names(&folder.join(path)).iter().filter_map(|n| n.parse().ok()).collect::<Vec<u32>>();
    let mut numbers = of_device("device/msi_irqs");
    if numbers.is_empty() {
        numbers = of_device("device/../msi_irqs");
    }
    if numbers.is_empty() {
        let is_own = |name: &str| {
            name.strip_prefix(interface).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', ':']))
        };
        numbers = counts.iter().filter(|(_, (_, name))| is_own(name)).map(|(number, _)| *number).collect();
    }
    numbers.sort_unstable();
    let read = |number: u32| {
        let (total, name) = counts.get(&number)?.clone();
        let irq = roots.proc.join(format!("irq/{number}"));
        let allowed_cpus = cpu_list(&text(&irq.join("smp_affinity_list"))?);
        let effective = text(&irq.join("effective_affinity_list")).map(|list| cpu_list(&list));
        let effective_cpus =
            effective.filter(|cpus| !cpus.is_empty()).unwrap_or_else(|| allowed_cpus.clone());
        Some(InterruptFacts { number, name, allowed_cpus, effective_cpus, moved: 0, total })
    };
    numbers.into_iter().filter_map(read).collect()
}

/// Sums over all processors, and the last word, of each numbered line of /proc/interrupts.
fn counts(proc: &Path) -> BTreeMap<u32, (u64, String)> {
    let text = text(&proc.join("interrupts")).unwrap_or_default();
    let mut lines = text.lines();
    let cpus = lines.next().map_or(0, |header| header.split_whitespace().count());
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let number = words.next()?.strip_suffix(':')?.parse().ok()?;
        let sum = words.by_ref().take(cpus).map(|word| word.parse::<u64>().unwrap_or(0)).sum();
        Some((number, (sum, words.last().unwrap_or_default().to_owned())))
    };
    lines.filter_map(line).collect()
}
