//! The path to a peer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The path to a peer, in the direction from this host. Sizes are those of whole IP packets, bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathFacts {
    /// The peer as it was named.
    pub peer: String,
    /// Its address.
    pub address: String,
    /// Its TCP port, where one was named.
    pub port: Option<u16>,
    /// The interface that packets to it leave by.
    pub interface: Option<String>,
    /// MTU of that interface, bytes.
    pub interface_mtu_bytes: Option<u32>,
    /// Rate of that interface, bits per second; missing where it has none, as most virtual ones.
    pub bits_per_second: Option<u64>,
    /// MTU of the route before anything was sent, bytes: the interface's, the route's own or one that was learnt before.
    pub route_mtu_bytes: Option<u32>,
    /// Round trip time.
    pub rtt: Option<RttFacts>,
    /// What became of datagrams of several sizes.
    pub datagrams: Option<DatagramFacts>,
    /// What became of TCP segments of several sizes.
    pub segments: Option<SegmentFacts>,
    /// The routers that answered, and the peer, in their order.
    pub hops: Vec<HopFacts>,
    /// Packets that were sent to find all this: datagrams, and TCP connections, each with up to one segment of data.
    pub probes: u32,
}

impl PathFacts {
    /// Whether the peer, or a router on the way, has answered anything.
    #[must_use]
    pub fn has_answer(&self) -> bool {
        let by_datagram = self.datagrams.is_some_and(|datagrams| {
            datagrams.largest_answered_bytes.is_some() || datagrams.announced_mtu_bytes.is_some()
        });
        let by_segment = self.segments.is_some_and(|segments| segments.full_bytes > 0);
        self.rtt.is_some() || by_datagram || by_segment || self.hops.iter().any(|hop| hop.address.is_some())
    }
}

/// Round trip times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RttFacts {
    /// Shortest, microseconds.
    pub min_us: f64,
    /// Median, microseconds.
    pub median_us: f64,
    /// How many were measured.
    pub samples: u32,
    /// By what.
    pub by: RttSource,
}

/// What a round trip was measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RttSource {
    /// TCP's handshake.
    Handshake,
    /// The peer's refusal of a TCP connection.
    Refusal,
    /// The peer's answer to a datagram for a closed port.
    Datagram,
}

/// What became of datagrams to a closed port of the peer, which it answers by ICMP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DatagramFacts {
    /// The largest that the peer answered, bytes; missing where it answered none, as behind a firewall.
    pub largest_answered_bytes: Option<u32>,
    /// The smallest that vanished, again and again, while a small one was answered before and after it.
    pub smallest_lost_bytes: Option<u32>,
    /// The smallest MTU that a router announced (ICMP fragmentation needed, ICMPv6 packet too big), bytes.
    pub announced_mtu_bytes: Option<u32>,
}

/// What became of TCP segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SegmentFacts {
    /// The packet of a full segment, as the two ends agreed in the handshake, bytes.
    pub full_bytes: u32,
    /// The largest packet that was acknowledged, bytes; missing where none was.
    pub largest_delivered_bytes: Option<u32>,
    /// The smallest packet that was not, with its retransmissions.
    pub smallest_lost_bytes: Option<u32>,
}

/// A router on the path, or the peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HopFacts {
    /// How many hops away, from 1.
    pub ttl: u8,
    /// Its address; missing where it does not answer.
    pub address: Option<String>,
    /// Time until its answer, microseconds.
    pub rtt_us: Option<f64>,
    /// The MTU of its link to the next hop, as it announced it, bytes.
    pub announced_mtu_bytes: Option<u32>,
    /// The largest packet that it answered, bytes: the path up to here carries that.
    pub largest_answered_bytes: Option<u32>,
    /// The smallest that vanished before it while a small one was answered, bytes.
    pub smallest_lost_bytes: Option<u32>,
    /// Whether this is the peer.
    pub is_peer: bool,
}
