//! What processors do: /proc/stat and /proc/net/softnet_stat, read twice.

use std::collections::BTreeMap;
use std::path::Path;

use super::super::text::text;
use crate::facts::cpu::WatchedFacts;

/// Counters of one processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Ticks in all states, idle, in softirqs, taken by the hypervisor.
    all: u64,
    idle: u64,
    softirq: u64,
    steal: u64,
    packets: u64,
    dropped: u64,
    squeezed: u64,
}

pub(crate) fn read(proc: &Path) -> BTreeMap<u32, Load> {
    parse(
        &text(&proc.join("stat")).unwrap_or_default(),
        &text(&proc.join("net/softnet_stat")).unwrap_or_default(),
    )
}

/// The differences of two readings.
pub(crate) fn between(before: &BTreeMap<u32, Load>, after: &BTreeMap<u32, Load>) -> Vec<WatchedFacts> {
    let cpu = |(cpu, after): (&u32, &Load)| {
        let before = before.get(cpu)?;
        let ticks = after.all.saturating_sub(before.all);
        let share = |after: u64, before: u64| {
            if ticks == 0 { 0.0 } else { after.saturating_sub(before) as f64 / ticks as f64 }
        };
        // The counters of softnet_stat have 32 bits.
        let counted = |after: u64, before: u64| u64::from((after as u32).wrapping_sub(before as u32));
        Some(WatchedFacts {
            cpu: *cpu,
            softirq_share: share(after.softirq, before.softirq),
            idle_share: share(after.idle, before.idle),
            steal_share: share(after.steal, before.steal),
            packets: counted(after.packets, before.packets),
            dropped: counted(after.dropped, before.dropped),
            squeezed: counted(after.squeezed, before.squeezed),
        })
    };
    after.iter().filter_map(cpu).collect()
}

fn parse(stat: &str, softnet: &str) -> BTreeMap<u32, Load> {
    let mut all: BTreeMap<u32, Load> = BTreeMap::new();
    for line in stat.lines() {
        let mut words = line.split_whitespace();
        let Some(cpu) = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok()) else {
            continue;
        };
        // user nice system idle iowait irq softirq steal guest guest_nice; the guests are part of user and nice.
        let ticks: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let at = |index: usize| ticks.get(index).copied().unwrap_or(0);
        let sum = ticks.iter().take(8).sum();
        all.insert(
            cpu,
            Load { all: sum, idle: at(3) + at(4), softirq: at(6), steal: at(7), ..Load::default() },
        );
    }
    for (row, line) in softnet.lines().enumerate() {
        let words: Vec<u64> =
            line.split_whitespace().map(|w| u64::from_str_radix(w, 16).unwrap_or(0)).collect();
        // The 13th column is the processor's number (Linux 5.10); before, a line for each processor that is online.
        let cpu = words.get(12).copied().unwrap_or(row as u64);
        if let Some(load) = u32::try_from(cpu).ok().and_then(|cpu| all.get_mut(&cpu)) {
            let at = |index: usize| words.get(index).copied().unwrap_or(0);
            (load.packets, load.dropped, load.squeezed) = (at(0), at(1), at(2));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_counts_are_those_of_the_time_between() {
        let stat = |softirq: u64, steal: u64| {
            format!("cpu  9 9 9 9\ncpu2 10 0 10 100 0 0 {softirq} {steal} 5 0\nintr 1\n")
        };
        let net = |packets: u64, dropped: u64, squeezed: u64| {
            format!("{packets:08x} {dropped:08x} {squeezed:08x} 0 0 0 0 0 0 0 0 0 00000002 0 0\n")
        };
        let before = parse(&stat(0, 0), &net(0xffff_ffff, 1, 2));
        let after = parse(&stat(60, 40), &net(4, 3, 7));
        let watched = between(&before, &after);
        let expected = WatchedFacts {
            cpu: 2,
            softirq_share: 0.6,
            idle_share: 0.0,
            steal_share: 0.4,
            packets: 5,
            dropped: 2,
            squeezed: 5,
        };
        assert_eq!(watched, [expected]);
    }

    #[test]
    fn lines_of_old_kernels_belong_to_processors_in_their_order() {
        let read = parse("cpu0 1 1 1 1\ncpu1 1 1 1 1\n", "5 0 0 0 0 0 0 0 0\n6 0 0 0 0 0 0 0 0\n");
        assert_eq!(read.values().map(|load| load.packets).collect::<Vec<_>>(), [5, 6]);
        assert!(between(&read, &parse("", "zz")).is_empty());
    }
}
