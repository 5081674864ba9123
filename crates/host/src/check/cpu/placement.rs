//! Interrupts and steering that send packets to the wrong processors.

use super::super::draft::{Draft as _, finding};
use super::{list, mask};
use crate::facts::cpu::{CpuFacts, InterruptFacts, PlacementFacts};
use crate::finding::{Finding, Severity};

pub(super) fn findings(cpu: &CpuFacts) -> Vec<Finding> {
    let of = |place| [far_node(cpu, place), isolated(cpu, place), half_steering(cpu, place)];
    cpu.interfaces.iter().flat_map(of).flatten().collect()
}

/// Interrupts that came: those of configuration never do.
fn active(place: &PlacementFacts) -> impl Iterator<Item = &InterruptFacts> {
    place.interrupts.iter().filter(|interrupt| interrupt.total > 0)
}

/// Moves interrupts to processors. A running irqbalance would move them back, so that a person must end it first.
fn move_to(mut draft: Finding, cpu: &CpuFacts, interrupts: &[&InterruptFacts], cpus: &[u32]) -> Finding {
    if cpu.runs_irqbalance {
        draft = draft.command(
            "systemctl disable --now irqbalance  # it would move them back; or ban these in its options"
                .to_owned(),
        );
    }
    let steps = interrupts.iter().zip(cpus.iter().cycle());
    steps.fold(draft, |draft, (interrupt, to)| {
        if cpu.runs_irqbalance {
            draft.command(format!("echo {to} > /proc/irq/{}/smp_affinity_list", interrupt.number))
        } else {
            draft.interrupt(interrupt.number, *to)
        }
    })
}

fn far_node(cpu: &CpuFacts, place: &PlacementFacts) -> Option<Finding> {
    let own = cpu.nodes.iter().find(|node| Some(node.node) == place.node)?;
    // A node without processors has memory alone.
    if cpu.nodes.len() < 2 || own.cpus.is_empty() {
        return None;
    }
    let is_far = |i: &&InterruptFacts| {
        !i.effective_cpus.is_empty() && i.effective_cpus.iter().all(|cpu| !own.cpus.contains(cpu))
    };
    let far: Vec<&InterruptFacts> = active(place).filter(is_far).collect();
    if far.is_empty() {
        return None;
    }
    let mut cpus: Vec<u32> = far.iter().flat_map(|i| i.effective_cpus.iter().copied()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let measured = format!(
        "{} of {} interrupts go to CPU {}; the card is at NUMA node {} with CPU {}",
        far.len(),
        active(place).count(),
        list(&cpus),
        own.node,
        list(&own.cpus)
    );
    let why = "Each packet and its buffers cross from one NUMA node to the other before a program sees them, and each access to \
               the card's registers does.";
    let draft = finding("interrupts-on-far-node", Severity::Slow, &place.interface, measured, why);
    Some(move_to(draft, cpu, &far, &own.cpus))
}

fn isolated(cpu: &CpuFacts, place: &PlacementFacts) -> Option<Finding> {
    let is_isolated = |number: &u32| cpu.isolated.contains(number);
    let on: Vec<&InterruptFacts> =
        active(place).filter(|i| i.effective_cpus.iter().any(is_isolated)).collect();
    let steered = place.receive_queues.iter().filter(|queue| queue.cpus.iter().any(is_isolated)).count();
    if on.is_empty() && steered == 0 {
        return None;
    }
    let measured = format!(
        "{} interrupts and {steered} steered queues on isolated CPU {}",
        on.len(),
        list(&cpu.isolated)
    );
    let why = "The processors are kept free for chosen threads, which these interrupts and softirqs stop.";
    let others: Vec<u32> = cpu.online.iter().copied().filter(|number| !is_isolated(number)).collect();
    let draft = finding("interrupts-on-isolated-cpu", Severity::Note, &place.interface, measured, why);
    if others.is_empty() { Some(draft) } else { Some(move_to(draft, cpu, &on, &others)) }
}

/// Receive flow steering needs both a global table and each queue's share of it.
fn half_steering(cpu: &CpuFacts, place: &PlacementFacts) -> Option<Finding> {
    let entries = cpu.flow_entries?;
    let flows: u32 = place.receive_queues.iter().map(|queue| queue.flows).fold(0, u32::saturating_add);
    if entries > 0 || flows == 0 {
        return None;
    }
    let measured = format!("queues have {flows} flows, net.core.rps_sock_flow_entries is 0");
    let why = "Receive flow steering is set for the queues, but the table that names each flow's processor does not exist: it does \
               nothing.";
    let draft = finding("flow-steering-incomplete", Severity::Note, &place.interface, measured, why);
    Some(draft.sysctl("net.core.rps_sock_flow_entries", &flows.next_power_of_two().to_string()))
}

/// Steering of a queue to all processors.
pub(super) fn steer(draft: Finding, place: &PlacementFacts, cpus: &[u32]) -> Finding {
    place.receive_queues.iter().fold(draft, |draft, queue| {
        draft.sysfs(&format!("class/net/{}/queues/{}/rps_cpus", place.interface, queue.name), &mask(cpus))
    })
}
