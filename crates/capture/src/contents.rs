//! What a capture holds besides the selected connections: for the message that nothing was selected.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most TCP ports that are counted one by one.
const PORTS_MAX: usize = 1024;

/// Frames that belong to no followed connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Contents {
    /// TCP packets by the probable port of their server, the lower one.
    pub tcp_packets: BTreeMap<u16, u64>,
    /// TCP packets of further ports.
    pub tcp_other: u64,
    /// Frames of other protocols.
    pub other_frames: BTreeMap<String, u64>,
}

impl Contents {
    /// Counts a TCP packet.
    pub fn tcp(&mut self, ports: (u16, u16)) {
        let port = ports.0.min(ports.1);
        if self.tcp_packets.len() < PORTS_MAX || self.tcp_packets.contains_key(&port) {
            *self.tcp_packets.entry(port).or_default() += 1;
        } else {
            self.tcp_other += 1;
        }
    }

    /// Counts a frame of another protocol. `protocol` is one of few.
    pub fn other(&mut self, protocol: &str) {
        match self.other_frames.get_mut(protocol) {
            Some(count) => *count += 1,
            None => {
                self.other_frames.insert(protocol.to_owned(), 1);
            }
        }
    }

    /// Adds those of another capture point.
    pub fn add(&mut self, more: &Self) {
        for (&port, count) in &more.tcp_packets {
            *self.tcp_packets.entry(port).or_default() += count;
        }
        self.tcp_other += more.tcp_other;
        for (protocol, count) in &more.other_frames {
            *self.other_frames.entry(protocol.clone()).or_default() += count;
        }
    }
}

/// The protocol of a network-layer packet that holds no TCP segment.
pub(crate) fn protocol(ether_type: u16, packet: &[u8]) -> &'static str {
    let transport = match ether_type {
        0x0800 => packet.get(9),
        0x86dd => packet.get(6),
        0x0806 => return "ARP",
        0x88cc => return "LLDP",
        0x8847 | 0x8848 => return "MPLS",
        0x8863 | 0x8864 => return "PPPoE",
        0x88a2 => return "ATA over Ethernet",
        0x8906 | 0x8914 => return "FCoE",
        0..=1500 => return "802.3 LLC",
        _ => return "other network protocols",
    };
    match transport {
        Some(1) => "ICMP",
        Some(2) => "IGMP",
        Some(6) => "fragments of TCP",
        Some(17) => "UDP",
        Some(47) => "GRE",
        Some(50 | 51) => "IPsec",
        Some(58) => "ICMPv6",
        Some(132) => "SCTP",
        Some(_) => "other IP protocols",
        None => "truncated IP packets",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_counted_up_to_a_limit() {
        let mut contents = Contents::default();
        for port in 0..5000 {
            contents.tcp((port, 40_000));
        }
        contents.tcp((60_000, 80));
        let counted: u64 = contents.tcp_packets.values().sum();
        assert_eq!((counted + contents.tcp_other, contents.tcp_packets.len()), (5001, PORTS_MAX));
        assert_eq!(contents.tcp_packets[&80], 2);
        let mut both = contents.clone();
        both.add(&contents);
        assert_eq!((both.tcp_packets[&80], both.tcp_other), (4, 2 * contents.tcp_other));
    }

    #[test]
    fn protocols_have_names() {
        let mut ip = [0x45_u8; 20];
        ip[9] = 17;
        assert_eq!(
            [protocol(0x0800, &ip), protocol(0x0800, &ip[..9]), protocol(0x0806, &[])],
            ["UDP", "truncated IP packets", "ARP"]
        );
        ip[6] = 58;
        assert_eq!(
            [protocol(0x86dd, &ip), protocol(0x9999, &ip), protocol(60, &ip)],
            ["ICMPv6", "other network protocols", "802.3 LLC"]
        );
    }
}
