//! The system's settings of TCP.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The system's settings of TCP, and its counters that moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpFacts {
    /// Kernel parameters by their dotted names, as the kernel prints them, with single spaces: `net.ipv4.tcp_rmem` is
    /// `4096 131072 6291456`.
    pub sysctls: BTreeMap<String, String>,
    /// Memory of the machine, bytes, from which the kernel derives its default buffer sizes.
    pub memory_bytes: Option<u64>,
    /// Routes with options that change TCP; none where a tree of files is read instead of this kernel.
    pub routes: Vec<RouteOptions>,
    /// For how long counters were watched, milliseconds; 0: they were not.
    pub watched_ms: u64,
    /// Increments of TCP's counters meanwhile, by their names in /proc/net/netstat and /proc/net/snmp (`RetransSegs`,
    /// `ListenOverflows`); those that stood still are left out.
    pub moved: BTreeMap<String, u64>,
}

/// The options of a route that change TCP (ip-route(8)).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteOptions {
    /// The route as `ip route` prints it, without options: `10.0.0.0/24 dev eth0`.
    pub route: String,
    /// `mtu`, bytes.
    pub mtu_bytes: Option<u32>,
    /// `window`, bytes: the largest receive window that is announced.
    pub window_bytes: Option<u32>,
    /// `rto_min`, milliseconds.
    pub rto_min_ms: Option<u32>,
    /// `initcwnd`, segments.
    pub initial_window_segments: Option<u32>,
    /// `quickack`: acknowledgements are not delayed.
    pub is_quick_ack: bool,
    /// `congctl`.
    pub congestion_control: Option<String>,
}

/// The three sizes of `tcp_rmem` and `tcp_wmem`, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    /// What a socket keeps under memory pressure.
    pub min_bytes: u64,
    /// What a socket begins with.
    pub default_bytes: u64,
    /// The limit of autotuning.
    pub max_bytes: u64,
}

impl TcpFacts {
    /// A kernel parameter that is one number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<i64> {
        self.sysctls.get(name)?.parse().ok()
    }

    /// A kernel parameter that is one word.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(String::as_str)
    }

    /// `net.ipv4.tcp_rmem` or `net.ipv4.tcp_wmem`.
    #[must_use]
    pub fn buffers(&self, name: &str) -> Option<BufferSizes> {
        let mut sizes = self.sysctls.get(name)?.split_whitespace().map(str::parse);
        let mut next = || sizes.next()?.ok();
        Some(BufferSizes { min_bytes: next()?, default_bytes: next()?, max_bytes: next()? })
    }

    /// By how much a counter moved.
    #[must_use]
    pub fn increment(&self, name: &str) -> u64 {
        self.moved.get(name).copied().unwrap_or(0)
    }
}
