//! What a check read. A rule sees facts alone, so a recorded host is checked like the one that the program runs on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub mod cpu;
pub mod initiator;
pub mod link;
pub mod load;
pub mod path;
pub mod peer;
pub mod socket;
pub mod system;
pub mod tcp;

/// Everything that a check read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// The system.
    pub system: system::SystemFacts,
    /// The network interfaces.
    pub links: Vec<link::LinkFacts>,
    /// Processors: power states, clocks, which of them receive for which interface.
    pub cpu: cpu::CpuFacts,
    /// The system's settings of TCP.
    pub tcp: tcp::TcpFacts,
    /// TCP sockets.
    pub sockets: Vec<socket::SocketFacts>,
    /// The path to the peer, where one was named.
    pub path: Option<path::PathFacts>,
    /// The load test with the peer, where one was asked for.
    pub load: Option<load::LoadFacts>,
    /// The other end: the switch port or the second host.
    pub peers: Vec<peer::PeerFacts>,
    /// iSCSI initiators of this host and their disks.
    pub initiators: Vec<initiator::InitiatorFacts>,
    /// What could not be read.
    pub unseen: Vec<Unseen>,
}

/// Something that could not be read, so that no rule could judge it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Unseen {
    /// What: `coalescing of eth0`.
    pub what: String,
    /// Why, and what would show it: `the driver does not report it`, `only root may read it`.
    pub why: String,
}
