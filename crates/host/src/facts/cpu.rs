//! Processors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Processors: clocks, idle states, and which of them receive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuFacts {
    /// Numbers of the processors that are online.
    pub online: Vec<u32>,
    /// Numbers of those that the scheduler leaves alone (`isolcpus`).
    pub isolated: Vec<u32>,
    /// Processors of each NUMA node, by its number.
    pub nodes: Vec<NodeFacts>,
    /// Clock policies.
    pub clocks: Vec<ClockFacts>,
    /// Whether processors may exceed their nominal clock; missing where the driver has no switch.
    pub boost: Option<SwitchFacts>,
    /// The driver of idle states: `intel_idle`.
    pub idle_driver: Option<String>,
    /// The governor of idle states: `menu`.
    pub idle_governor: Option<String>,
    /// Idle states, from shallow to deep.
    pub idle_states: Vec<IdleStateFacts>,
    /// The longest wake-up that all processors allow (`pm_qos_resume_latency_us`), microseconds; missing where one of them sets no limit.
    pub resume_latency_limit_us: Option<u32>,
    /// For how long a guest polls before it halts (haltpoll), nanoseconds.
    pub guest_halt_poll_ns: Option<u64>,
    /// Network interfaces with a device: where they are and how they steer.
    pub interfaces: Vec<PlacementFacts>,
    /// `net.core.rps_sock_flow_entries`: size of the table of receive flow steering.
    pub flow_entries: Option<u32>,
    /// Whether irqbalance runs.
    pub runs_irqbalance: bool,
    /// For how long counters were watched, milliseconds; 0: they were not.
    pub watched_ms: u64,
    /// What each processor did meanwhile.
    pub watched: Vec<WatchedFacts>,
}

/// A NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeFacts {
    /// Its number.
    pub node: u32,
    /// Its processors.
    pub cpus: Vec<u32>,
}

/// How the clock of some processors is chosen (cpufreq).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockFacts {
    /// The policy's folder below /sys: `devices/system/cpu/cpufreq/policy0`.
    pub path: String,
    /// The processors.
    pub cpus: Vec<u32>,
    /// The driver: `intel_pstate`.
    pub driver: Option<String>,
    /// The governor: `schedutil`.
    pub governor: Option<String>,
    /// Governors to choose from.
    pub available_governors: Vec<String>,
    /// Energy or speed: `balance_performance`.
    pub energy_preference: Option<String>,
    /// The lowest clock that is allowed, kHz.
    pub min_khz: Option<u64>,
    /// The highest clock that is allowed, kHz.
    pub max_khz: Option<u64>,
    /// The lowest clock of the hardware, kHz.
    pub hardware_min_khz: Option<u64>,
    /// The highest clock of the hardware, kHz.
    pub hardware_max_khz: Option<u64>,
}

/// A switch in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SwitchFacts {
    /// The file below /sys.
    pub path: String,
    /// Whether it is on.
    pub is_on: bool,
    /// What turns it on: `1`, or `0` where the file says what is off (`no_turbo`).
    pub on_value: String,
}

/// An idle state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IdleStateFacts {
    /// Its number.
    pub index: u32,
    /// Its name: `C6`.
    pub name: String,
    /// Time to wake up from it, microseconds.
    pub latency_us: u32,
    /// The shortest idle time for which the kernel chooses it, microseconds.
    pub residency_us: u32,
    /// Processors that may enter it.
    pub enabled_cpus: Vec<u32>,
}

/// Where an interface's device is, and how its packets reach processors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlacementFacts {
    /// The interface.
    pub interface: String,
    /// The NUMA node of its device; missing where the machine does not say.
    pub node: Option<u32>,
    /// Its receive queues.
    pub receive_queues: Vec<QueueFacts>,
    /// Its transmit queues.
    pub transmit_queues: Vec<QueueFacts>,
    /// Its interrupts.
    pub interrupts: Vec<InterruptFacts>,
}

/// A queue of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueFacts {
    /// Its name: `rx-0`.
    pub name: String,
    /// Processors of `rps_cpus` or `xps_cpus`; empty: no steering in software.
    pub cpus: Vec<u32>,
    /// `rps_flow_cnt`: its part of receive flow steering; 0: none.
    pub flows: u32,
}

/// An interrupt of an interface's device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InterruptFacts {
    /// Its number.
    pub number: u32,
    /// Its name: `eth0-TxRx-3`.
    pub name: String,
    /// Processors that it may go to.
    pub allowed_cpus: Vec<u32>,
    /// Processors that it goes to.
    pub effective_cpus: Vec<u32>,
    /// How often it came while counters were watched.
    pub moved: u64,
    /// How often it came since the system started.
    pub total: u64,
}

/// What a processor did while counters were watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedFacts {
    /// The processor.
    pub cpu: u32,
    /// Share of the time in softirqs.
    pub softirq_share: f64,
    /// Share of the time idle.
    pub idle_share: f64,
    /// Share of the time that the hypervisor gave to others.
    pub steal_share: f64,
    /// Packets that its softirq took.
    pub packets: u64,
    /// Packets that it dropped because its backlog was full (softnet_stat).
    pub dropped: u64,
    /// How often its softirq stopped with packets left (softnet_stat, time_squeeze).
    pub squeezed: u64,
}
