//! What a frame holds whose segment cannot be read, in words.

use std::fmt;

use crate::packet::NotTcp;

/// A frame without a readable TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unread {
    /// The reason.
    pub(crate) reason: NotTcp,
    /// The innermost protocol.
    pub(crate) what: &'static str,
    /// The tunnel that it is in.
    pub(crate) tunnel: Option<&'static str>,
}

/// A frame shorter than its headers.
pub(super) const SHORT: &str = "truncated frames";
/// What a tunnel holds is of a type without a reader.
pub(crate) const UNKNOWN: &str = "an unknown inner type";

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.tunnel {
            None => f.write_str(self.what),
            Some(tunnel) if self.what == UNKNOWN => write!(f, "{tunnel} with {UNKNOWN}"),
            Some(tunnel) => write!(f, "{} in {tunnel}", self.what),
        }
    }
}

/// The parts of names that may hide TCP segments: encrypted, compressed, fragmented or unknown to the reader.
const MAY_HIDE_TCP: &[&str] = &[
    "fragments of ",
    UNKNOWN,
    "(encrypted)",
    "(compressed)",
    "more than 16 headers",
    "invalid header",
    "L2TP",
    "802.11 aggregates",
    "PPP multilink",
];

/// Whether frames counted under this name may hold TCP segments.
pub(crate) fn may_hide_tcp(name: &str) -> bool {
    MAY_HIDE_TCP.iter().any(|part| name.contains(part))
}

/// The name of an EtherType that is known and not read.
pub(super) fn of_ether_type(ether_type: u16) -> Option<&'static str> {
    Some(match ether_type {
        0x0806 => "ARP",
        0x88cc => "LLDP",
        0x8863 => "PPPoE discovery",
        0x88a2 => "ATA over Ethernet",
        0x8906 | 0x8914 => "FCoE",
        0x88e5 => "MACsec (encrypted)",
        _ => return None,
    })
}

/// The name of an IP protocol that is not read.
pub(super) fn of_protocol(protocol: u8) -> &'static str {
    match protocol {
        1 => "ICMP",
        2 => "IGMP",
        50 => "ESP (encrypted)",
        58 => "ICMPv6",
        89 => "OSPF",
        108 => "IPComp (compressed)",
        112 => "VRRP",
        115 => "L2TP",
        132 => "SCTP",
        _ => "other IP protocols",
    }
}

/// The name of a fragment of a packet of this protocol.
pub(super) fn fragment_of(protocol: u8) -> &'static str {
    match protocol {
        1 | 58 => "fragments of ICMP",
        4 | 41 => "fragments of IP in IP",
        6 => "fragments of TCP",
        17 => "fragments of UDP",
        47 => "fragments of GRE",
        50 => "fragments of ESP (encrypted)",
        _ => "fragments of other IP protocols",
    }
}
