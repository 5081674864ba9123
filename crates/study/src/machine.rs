//! The machine that figures were measured on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The properties of a machine that figures depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel name and release.
    pub kernel: String,
    /// CPU model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Clock source of the kernel.
    pub clock_source: String,
    /// The system's default congestion control.
    pub default_congestion: String,
    /// This program.
    pub version: String,
    /// Settings of the kernel that figures depend on, by their names; those that it has.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// Settings that figures depend on: their names, and where the kernel has them.
const SETTINGS: [(&str, &str); 14] = [
    ("CPU governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
    ("CPU boost", "/sys/devices/system/cpu/cpufreq/boost"),
    ("CPU no_turbo", "/sys/devices/system/cpu/intel_pstate/no_turbo"),
    ("simultaneous threads", "/sys/devices/system/cpu/smt/control"),
    ("isolated CPUs", "/sys/devices/system/cpu/isolated"),
    ("tickless CPUs", "/sys/devices/system/cpu/nohz_full"),
    ("net.core.default_qdisc", "/proc/sys/net/core/default_qdisc"),
    ("net.core.busy_poll", "/proc/sys/net/core/busy_poll"),
    ("net.core.netdev_budget", "/proc/sys/net/core/netdev_budget"),
    ("net.ipv4.tcp_rmem", "/proc/sys/net/ipv4/tcp_rmem"),
    ("net.ipv4.tcp_wmem", "/proc/sys/net/ipv4/tcp_wmem"),
    ("net.ipv4.tcp_autocorking", "/proc/sys/net/ipv4/tcp_autocorking"),
    ("net.ipv4.tcp_limit_output_bytes", "/proc/sys/net/ipv4/tcp_limit_output_bytes"),
    ("net.ipv4.tcp_slow_start_after_idle", "/proc/sys/net/ipv4/tcp_slow_start_after_idle"),
];

impl Machine {
    /// This machine; properties that the kernel does not report are empty.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let field = |text: &str, key: &str| {
            text.lines()
                .find(|line| line.starts_with(key))
                .and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kilobytes: u64 = memory.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
        Self {
            kernel: format!("{} {}", read("/proc/sys/kernel/ostype"), read("/proc/sys/kernel/osrelease")),
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cpus: socket::cpu::allowed().map_or(0, |c| c.len()),
            memory_bytes: kilobytes * 1024,
            clock_source: read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            default_congestion: read("/proc/sys/net/ipv4/tcp_congestion_control"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: SETTINGS
                .iter()
                .map(|(name, path)| ((*name).to_owned(), read(path).replace('\t', " ")))
                .filter(|(_, value)| !value.is_empty())
                .collect(),
        }
    }
}
