//! A network interface.

use std::collections::BTreeMap;

use netlink::ethtool::{
    Channels, Coalescing, Eee, Features, Fec, LinkModes, LinkState, Pause, Rings, Statistics,
};
use netlink::route::Link;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network interface: what the kernel's table says, and what its driver reports about each group of settings. A group is none
/// where the driver does not report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkFacts {
    /// Its row in the kernel's table of links.
    #[serde(flatten)]
    pub link: Link,
    /// Its driver: `ixgbe`; its kind for a virtual one.
    pub driver: Option<String>,
    /// The name of its master.
    pub master_name: Option<String>,
    /// Its addresses with the length of their network: `10.0.0.1/24`.
    pub addresses: Vec<String>,
    /// Whether a default route leads through it.
    pub carries_default_route: bool,
    /// Whether the connection of the caller's SSH session comes through it.
    pub carries_caller: bool,
    /// Whether there is a link, and why not.
    pub state: Option<LinkState>,
    /// Speed, duplex, negotiation and modes.
    pub modes: Option<LinkModes>,
    /// Forward error correction.
    pub fec: Option<Fec>,
    /// Flow control.
    pub pause: Option<Pause>,
    /// Energy-efficient Ethernet.
    pub eee: Option<Eee>,
    /// Ring sizes.
    pub rings: Option<Rings>,
    /// Interrupt coalescing.
    pub coalescing: Option<Coalescing>,
    /// Queues.
    pub channels: Option<Channels>,
    /// Offloads that matter to a round trip.
    pub offloads: Option<Features>,
    /// Counters that standards define, where the driver has them.
    pub statistics: Option<Statistics>,
    /// What changed while the check watched; none where it did not.
    pub watched: Option<Watched>,
}

/// What changed between two readings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Watched {
    /// Time between the readings, seconds.
    pub seconds: f64,
    /// How often the carrier came or went.
    pub carrier_changes: u32,
    /// By how much each counter grew; those that did not are left out. Counters of the kernel's table come by their names there,
    /// standard ones by theirs with `standard_` before it.
    pub counters: BTreeMap<String, u64>,
}

/// Offloads that are read: those whose absence costs processor time for each packet, and those that merge packets.
pub const OFFLOADS: [&str; 11] = [
    "rx-gro",
    "rx-gro-hw",
    "rx-lro",
    "rx-checksum",
    "tx-checksum-ip-generic",
    "tx-checksum-ipv4",
    "tx-checksum-ipv6",
    "tx-generic-segmentation",
    "tx-scatter-gather",
    "tx-tcp-segmentation",
    "tx-tcp6-segmentation",
];

impl LinkFacts {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.link.name
    }

    /// Whether it is a card rather than something that the kernel makes up.
    #[must_use]
    pub fn is_physical(&self) -> bool {
        self.link.kind.is_none() && self.link.is_ethernet && !self.link.is_loopback
    }

    /// Whether there is a link: the driver's report, or else the carrier.
    #[must_use]
    pub fn has_link(&self) -> bool {
        let reported = self.state.as_ref().and_then(|state| state.has_link);
        self.link.is_up && reported.or(self.link.has_carrier).unwrap_or(false)
    }

    /// Whether something depends on it: an address, a master or the default route.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        let is_global = |address: &String| !address.starts_with("fe80:");
        self.addresses.iter().any(is_global) || self.link.master.is_some() || self.carries_default_route
    }

    /// By how much a counter grew while the check watched.
    #[must_use]
    pub fn grew(&self, counter: &str) -> u64 {
        self.watched.as_ref().and_then(|watched| watched.counters.get(counter)).copied().unwrap_or_default()
    }
}
