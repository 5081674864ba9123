//! What the figures were measured on.

use serde::{Deserialize, Serialize};

/// The machine, as far as figures depend on it.
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
}

impl Machine {
    /// The machine this runs on; what the kernel does not say is empty.
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
        }
    }
}
