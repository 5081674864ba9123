//! CPU time per thread and per softirq, as the kernel accounts for it.
//!
//! A thread's own time comes exact from the scheduler. Where the kernel does not account for interrupts
//! apart (CONFIG_IRQ_TIME_ACCOUNTING off, as in Debian), softirq work that interrupts a thread counts as the
//! thread's; the share of softirq is then known from the timer's samples in /proc/stat. So: how long a CPU
//! was busy is exact (its idle time is), how that divides into thread and softirq is sampled at HZ.

use std::io;

use analysis::CpuCost;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use serde::{Deserialize, Serialize};

/// Ticks of one CPU since boot, from /proc/stat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ticks {
    /// In user mode and in system calls.
    thread: u64,
    /// Of these, in user mode.
    user: u64,
    idle: u64,
    softirq: u64,
    steal: u64,
}

/// The accounts of CPUs and threads at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at_ns: u64,
    cpus: Vec<(usize, Ticks)>,
    /// CPU time of the watched threads, nanoseconds, in the order given.
    threads: Vec<u64>,
    /// CPU time of this whole process, nanoseconds.
    process: u64,
    ticks_per_second: f64,
    /// The CPUs' clock, MHz, where the kernel knows it.
    megahertz: Option<f64>,
}

/// The use of one CPU between two snapshots, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// Not idle.
    pub busy: f64,
    /// Of that, in softirq (sampled).
    pub softirq: f64,
    /// Of that, in user mode (sampled); the rest is system calls.
    #[serde(default)]
    pub user: f64,
    /// Taken by other guests of the machine.
    pub steal: f64,
}

impl Snapshot {
    /// Takes a snapshot; `threads` are thread numbers of this process.
    ///
    /// # Errors
    /// When /proc/stat cannot be read.
    pub fn take(threads: &[i32]) -> io::Result<Self> {
        let text = std::fs::read_to_string("/proc/stat")?;
        let ticks_per_second = ticks_per_second();
        Ok(Self {
            at_ns: socket::clock::monotonic_ns(),
            cpus: parse(&text),
            threads: threads.iter().map(|&tid| thread_ns(tid)).collect(),
            process: socket::clock::process_cpu_ns(),
            ticks_per_second,
            megahertz: megahertz(),
        })
    }

    /// Seconds from `earlier` to this one.
    #[must_use]
    pub fn seconds_since(&self, earlier: &Snapshot) -> f64 {
        self.at_ns.saturating_sub(earlier.at_ns) as f64 / 1e9
    }

    /// The use of a CPU since `earlier`.
    #[must_use]
    pub fn cpu_since(&self, earlier: &Snapshot, cpu: usize) -> CpuUse {
        let of = |s: &Snapshot| s.cpus.iter().find(|(n, _)| *n == cpu).map(|(_, t)| *t).unwrap_or_default();
        let (now, then) = (of(self), of(earlier));
        let seconds = |a: u64, b: u64| a.saturating_sub(b) as f64 / self.ticks_per_second;
        let wall = self.seconds_since(earlier);
        let busy = (wall - seconds(now.idle, then.idle)).clamp(0.0, wall);
        let (thread, softirq) = (seconds(now.thread, then.thread), seconds(now.softirq, then.softirq));
        // The sampled ticks divide the busy time.
        let share = if thread + softirq > 0.0 { softirq / (thread + softirq) } else { 0.0 };
        let user = if thread > 0.0 { seconds(now.user, then.user) / thread } else { 0.0 };
        CpuUse {
            busy,
            softirq: busy * share,
            user: busy * (1.0 - share) * user,
            steal: seconds(now.steal, then.steal),
        }
    }

    /// Change of the CPUs' clock since `earlier`, as a share of the faster one.
    #[must_use]
    pub fn frequency_change(&self, earlier: &Snapshot) -> f64 {
        match (self.megahertz, earlier.megahertz) {
            (Some(a), Some(b)) if a.max(b) > 0.0 => (a - b).abs() / a.max(b),
            _ => 0.0,
        }
    }

    /// Least share of these CPUs used by other programs since `earlier`: busy time that is neither this process's nor
    /// softirq work.
    #[must_use]
    pub fn others_since(&self, earlier: &Snapshot, cpus: &[usize]) -> f64 {
        let own = self.process.saturating_sub(earlier.process) as f64 / 1e9;
        let uses: Vec<CpuUse> = cpus.iter().map(|&cpu| self.cpu_since(earlier, cpu)).collect();
        let unexplained = uses.iter().map(|u| u.busy - u.softirq).sum::<f64>() - own;
        (unexplained / (self.seconds_since(earlier) * cpus.len().max(1) as f64)).max(0.0)
    }

    /// CPU time of the watched threads since `earlier`, seconds, in the order given.
    #[must_use]
    pub fn threads_since(&self, earlier: &Snapshot) -> Vec<f64> {
        self.threads.iter().zip(&earlier.threads).map(|(n, t)| n.saturating_sub(*t) as f64 / 1e9).collect()
    }
}

impl CpuUse {
    /// Share of the time outside softirqs that was in user mode, 0 to 1; `None` for an idle CPU.
    #[must_use]
    pub fn user_share(&self) -> Option<f64> {
        let thread = self.busy - self.softirq;
        (thread > 0.0).then(|| (self.user / thread).clamp(0.0, 1.0))
    }
}

/// Resolution of the times in /proc/stat, per second.
#[must_use]
pub fn ticks_per_second() -> f64 {
    sysconf(SysconfVar::CLK_TCK).ok().flatten().map_or(100.0, |t| t as f64)
}

/// CPU work per operation from the use of the client's and the server's CPU.
#[must_use]
pub fn per_operation(client: CpuUse, server: CpuUse, operations: u64) -> CpuCost {
    let us = |seconds: f64| seconds * 1e6 / operations.max(1) as f64;
    CpuCost {
        client_thread_us: us(client.busy - client.softirq),
        client_softirq_us: us(client.softirq),
        server_thread_us: us(server.busy - server.softirq),
        server_softirq_us: us(server.softirq),
    }
}

/// The mean clock of the CPUs whose frequency the kernel scales (cpufreq), MHz; `None` on a machine without scaling.
fn megahertz() -> Option<f64> {
    let entries = std::fs::read_dir("/sys/devices/system/cpu/cpufreq").ok()?;
    let clocks: Vec<f64> = entries
        .flatten()
        .filter_map(|entry| std::fs::read_to_string(entry.path().join("scaling_cur_freq")).ok())
        .filter_map(|text| text.trim().parse::<f64>().ok())
        .collect();
    (!clocks.is_empty()).then(|| clocks.iter().sum::<f64>() / clocks.len() as f64 / 1000.0)
}

/// CPU time of a thread of this process: the clock that clock_getcpuclockid(3) would name.
fn thread_ns(tid: i32) -> u64 {
    // The kernel's encoding: bits 0-1 scheduler clock (2), bit 2 per thread.
    let clock = ClockId::from_raw((!tid << 3) | 6);
    clock_gettime(clock)
        .map_or(0, |t| t.tv_sec().cast_unsigned() * 1_000_000_000 + t.tv_nsec().cast_unsigned())
}

/// Lines `cpuN user nice system idle iowait irq softirq steal ...` (proc_stat(5)).
fn parse(text: &str) -> Vec<(usize, Ticks)> {
    text.lines()
        .filter_map(|line| {
            // The line of all CPUs together has a blank where the others have their number.
            let numbered =
                line.strip_prefix("cpu").filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))?;
            let mut words = numbered.split_ascii_whitespace();
            let cpu = words.next()?.parse().ok()?;
            let n: Vec<u64> = words.map_while(|w| w.parse().ok()).collect();
            let at = |i: usize| n.get(i).copied().unwrap_or(0);
            let ticks = Ticks {
                thread: at(0) + at(1) + at(2),
                user: at(0) + at(1),
                idle: at(3) + at(4),
                softirq: at(5) + at(6),
                steal: at(7),
            };
            Some((cpu, ticks))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_cpu_lines_of_proc_stat() {
        let text = "cpu  9 9 9 9\ncpu0 10 1 20 300 5 1 40 2 0 0\ncpu12 1 0 0 0 0 0 0\nintr 5\n";
        let ticks = Ticks { thread: 31, user: 11, idle: 305, softirq: 41, steal: 2 };
        assert_eq!(parse(text), [(0, ticks), (12, Ticks { thread: 1, user: 1, ..Ticks::default() })]);
    }

    /// Ten seconds of a CPU that was idle for seven of them, and sampled in softirq for a quarter of the rest.
    #[test]
    fn a_cpu_is_busy_when_it_is_not_idle() {
        let at = |seconds: u64, ticks: Ticks| Snapshot {
            at_ns: seconds * 1_000_000_000,
            cpus: vec![(0, Ticks { idle: 9999, ..Ticks::default() }), (3, ticks)],
            threads: vec![seconds * 100_000_000],
            process: seconds * 200_000_000,
            ticks_per_second: 100.0,
            megahertz: Some(3000.0 - seconds as f64 * 60.0),
        };
        let first = at(20, Ticks { thread: 500, user: 100, idle: 1000, softirq: 40, steal: 1 });
        let last = at(30, Ticks { thread: 710, user: 142, idle: 1700, softirq: 110, steal: 6 });
        let used = last.cpu_since(&first, 3);
        let near =
            |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
        near(last.seconds_since(&first), 10.0);
        near(used.busy, 3.0);
        near(used.softirq, 0.75);
        // 42 of the thread's 210 ticks.
        near(used.user_share().unwrap(), 0.2);
        assert_eq!(CpuUse::default().user_share(), None);
        near(used.steal, 0.05);
        near(last.threads_since(&first)[0], 1.0);
        // Busy without softirq: 2.25 s, of which this process used 2.
        near(last.others_since(&first, &[3]), 0.025);
        near(last.frequency_change(&first), 600.0 / 1800.0);
    }

    #[test]
    fn busy_thread_counts_on_its_cpu_and_by_its_own_clock() {
        let cpu = socket::cpu::allowed().unwrap()[0];
        std::thread::spawn(move || {
            socket::cpu::pin(cpu).unwrap();
            let tid = socket::cpu::thread_id();
            let before = Snapshot::take(&[tid]).unwrap();
            let start = std::time::Instant::now();
            while start.elapsed() < std::time::Duration::from_millis(300) {
                std::hint::spin_loop();
            }
            let after = Snapshot::take(&[tid]).unwrap();
            let wall = after.seconds_since(&before);
            let used = after.threads_since(&before)[0];
            // Another process may have had its share of the CPU.
            assert!(used > 0.02 && used <= wall * 1.05, "{used} of {wall}");
            let all = after.cpu_since(&before, cpu);
            assert!(all.busy > 0.8 * wall);
            // It spins without a system call; what else runs there mostly computes, too.
            assert!(all.user_share().is_some_and(|share| share > 0.6), "{all:?}");
        })
        .join()
        .unwrap();
    }

    #[test]
    fn work_per_operation_is_cpu_seconds_over_operations() {
        let cost = per_operation(
            CpuUse { busy: 0.5, softirq: 0.1, ..CpuUse::default() },
            CpuUse { busy: 1.0, softirq: 0.25, ..CpuUse::default() },
            100_000,
        );
        assert!((cost.client_thread_us - 4.0).abs() < 1e-9 && (cost.server_softirq_us - 2.5).abs() < 1e-9);
    }
}
