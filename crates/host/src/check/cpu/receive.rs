//! Processors that cannot keep up with packets, seen while they are watched.

use super::super::draft::{Draft as _, finding, time};
use super::placement::steer;
use crate::facts::Facts;
use crate::facts::cpu::{CpuFacts, PlacementFacts, WatchedFacts};
use crate::finding::{Finding, Severity};

/// A processor with this share of its time in softirqs is the limit of what is received.
const BUSY: f64 = 0.5;

/// Others have room while they are idle for this share.
const ROOM: f64 = 0.5;

/// The hypervisor takes this share.
const STOLEN: f64 = 0.1;

/// Softirqs of a processor that stop early, in a second: fewer are bursts.
const SQUEEZED_PER_SECOND: f64 = 10.0;

/// A card with fewer interrupts in a second is not what keeps a processor busy.
const BUSY_CARD_PER_SECOND: f64 = 1000.0;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let cpu = &facts.cpu;
    if cpu.watched_ms == 0 {
        return Vec::new();
    }
    let mut all: Vec<Finding> = [drops(facts), squeezes(facts), steal(cpu)].into_iter().flatten().collect();
    all.extend(cpu.interfaces.iter().filter_map(|place| one_processor(cpu, place)));
    all
}

fn sum(cpu: &CpuFacts, of: impl Fn(&WatchedFacts) -> u64) -> u64 {
    cpu.watched.iter().map(of).fold(0, u64::saturating_add)
}

fn in_time(cpu: &CpuFacts, count: u64) -> String {
    format!("{count} in {}", time(cpu.watched_ms as f64 * 1e3))
}

fn drops(facts: &Facts) -> Option<Finding> {
    let cpu = &facts.cpu;
    let dropped = sum(cpu, |watched| watched.dropped);
    let backlog = facts.tcp.number("net.core.netdev_max_backlog");
    let limit = backlog.map(|limit| format!("; net.core.netdev_max_backlog is {limit}")).unwrap_or_default();
    let measured = format!("packets dropped before TCP saw them: {}{limit}", in_time(cpu, dropped));
    let why =
        "Packets wait for a processor in a queue that was full: they are lost, and TCP sends them again.";
    let drop = || finding("receive-backlog-drops", Severity::Broken, "softirq", measured, why);
    let draft = (dropped > 0).then(drop)?;
    let wanted = backlog.unwrap_or(1000).saturating_mul(4).clamp(4000, 250_000);
    Some(draft.sysctl("net.core.netdev_max_backlog", &wanted.to_string()))
}

fn squeezes(facts: &Facts) -> Option<Finding> {
    let cpu = &facts.cpu;
    let worst = cpu.watched.iter().max_by_key(|watched| watched.squeezed)?;
    // On a processor with time left the rest is taken at once.
    let is_rare = (worst.squeezed as f64) * 1e3 < SQUEEZED_PER_SECOND * cpu.watched_ms as f64;
    if is_rare || worst.softirq_share < BUSY {
        return None;
    }
    let measured = format!(
        "softirqs that stopped with packets left: {}; {:.0} % of the time in softirqs",
        in_time(cpu, worst.squeezed),
        worst.softirq_share * 100.0
    );
    let why = "A softirq may take only so many packets at a time; the rest waits for its next turn, or for ksoftirqd, which \
               competes with programs.";
    let draft = finding("softirq-squeezed", Severity::Slow, &format!("CPU {}", worst.cpu), measured, why);
    let budget = facts.tcp.number("net.core.netdev_budget").unwrap_or(300).saturating_mul(2).clamp(600, 9600);
    Some(draft.sysctl("net.core.netdev_budget", &budget.to_string()))
}

fn steal(cpu: &CpuFacts) -> Option<Finding> {
    let worst = cpu.watched.iter().max_by(|a, b| a.steal_share.total_cmp(&b.steal_share))?;
    if worst.steal_share < STOLEN {
        return None;
    }
    let subject = format!("CPU {}", worst.cpu);
    let measured = format!("{:.0} % of the time taken by the hypervisor", worst.steal_share * 100.0);
    let why = "The virtual processor was ready to run and did not: a packet that arrives meanwhile waits for the hypervisor's \
               scheduler, some milliseconds at a time.";
    let draft = finding("cpu-stolen", Severity::Slow, &subject, measured, why);
    Some(draft.other_end("on the hypervisor: fewer virtual processors on this host, or reserved ones"))
}

/// All packets of a card go to one processor, which is busy with them while others have room.
fn one_processor(cpu: &CpuFacts, place: &PlacementFacts) -> Option<Finding> {
    let per_second = |moved: u64| moved as f64 * 1e3 / cpu.watched_ms as f64;
    let came: Vec<_> = place.interrupts.iter().filter(|interrupt| interrupt.moved > 0).collect();
    let mut cpus: Vec<u32> =
        came.iter().flat_map(|interrupt| interrupt.effective_cpus.iter().copied()).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let [only] = cpus[..] else { return None };
    let moved = came.iter().map(|interrupt| interrupt.moved).sum();
    let busy = cpu.watched.iter().find(|watched| watched.cpu == only)?;
    let has_room = |watched: &&WatchedFacts| watched.cpu != only && watched.idle_share >= ROOM;
    let others: Vec<u32> = cpu.watched.iter().filter(has_room).map(|watched| watched.cpu).collect();
    let is_steered = place.receive_queues.iter().any(|queue| queue.cpus.iter().any(|number| *number != only));
    if busy.softirq_share < BUSY
        || others.is_empty()
        || is_steered
        || per_second(moved) < BUSY_CARD_PER_SECOND
    {
        return None;
    }
    let queues = place.receive_queues.len();
    let measured = format!(
        "{queues} receive queue{} on CPU {only}, which spends {:.0} % of its time in softirqs",
        if queues == 1 { "" } else { "s" },
        busy.softirq_share * 100.0
    );
    let why = "One processor takes all packets of the card and is busy with them, while others are idle: it limits what the host \
               receives.";
    let draft = finding("receive-on-one-cpu", Severity::Slow, &place.interface, measured, why);
    if queues > 1 {
        // More queues than interrupts' processors: spread the interrupts.
        let targets = std::iter::once(only).chain(others).collect::<Vec<_>>();
        let steps = came.iter().zip(targets.iter().cycle());
        return Some(steps.fold(draft, |draft, (interrupt, to)| draft.interrupt(interrupt.number, *to)));
    }
    Some(steer(draft, place, &others))
}
