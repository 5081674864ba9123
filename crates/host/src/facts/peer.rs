//! The other end of a link: what it says of itself in LLDP frames, and what a check on it found.

use netlink::ethtool::Duplex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::link::LinkFacts;
use crate::finding::Finding;

/// The other end of a link.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "from", rename_all = "lowercase")]
pub enum PeerFacts {
    /// A neighbour that announces itself by LLDP: a switch port or a host.
    Lldp {
        /// The interface of this host that received the frame.
        interface: String,
        /// What the frame says.
        neighbour: Box<Neighbour>,
    },
    /// A host that was checked over ssh.
    Ssh {
        /// The destination as it was named.
        destination: String,
        /// What the check there read and found.
        host: Box<CheckedHost>,
    },
}

/// What a neighbour says of itself in an LLDP frame (IEEE 802.1AB).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Neighbour {
    /// The chassis: a hardware address or a name.
    pub chassis: String,
    /// The port: a hardware address or a name such as `Gi1/0/7`.
    pub port: String,
    /// How long the frame holds, seconds; 0 when the neighbour says goodbye.
    pub ttl_seconds: u16,
    /// The port's description.
    pub port_description: Option<String>,
    /// The system's name.
    pub system_name: Option<String>,
    /// The system's description.
    pub system_description: Option<String>,
    /// Negotiation and operating type of the port.
    pub mac_phy: Option<MacPhy>,
    /// The longest frame that the port takes, bytes, with header and CRC.
    pub max_frame_bytes: Option<u16>,
    /// The VLAN of frames without a tag.
    pub port_vlan: Option<u16>,
    /// Whether the port is a part of an aggregate.
    pub is_aggregated: Option<bool>,
}

/// The MAC/PHY configuration and status of a port (IEEE 802.3 79.3.1).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MacPhy {
    /// Whether the port can negotiate.
    pub supports_negotiation: bool,
    /// Whether it negotiates.
    pub negotiates: bool,
    /// The modes that it advertises, by the kernel's names; faster ones than 1000BASE-T have no bit in the frame.
    pub advertised: Vec<String>,
    /// Its operating type (dot3MauType, RFC 4836).
    pub mau_type: u16,
    /// What the operating type means, where it is one of copper or one of a known speed.
    pub operating: Option<Operating>,
}

/// An operating type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Operating {
    /// Its name: `1000BASE-T`.
    pub name: String,
    /// Speed, Mb/s.
    pub speed_mbps: u32,
    /// Duplex, where the type has a choice.
    pub duplex: Option<Duplex>,
    /// Whether it is one of twisted pair, where both sides must agree on whether to negotiate.
    pub is_twisted_pair: bool,
}

/// What a check on another host read and found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckedHost {
    /// Its name.
    pub hostname: String,
    /// Its interfaces.
    pub links: Vec<LinkFacts>,
    /// What was found there.
    pub findings: Vec<Finding>,
}
