//! Link layers of captures, by their LINKTYPE numbers.

use crate::packet::{NotTcp, Segment, ethernet, network};

/// A link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// LINKTYPE_ETHERNET.
    Ethernet,
    /// LINKTYPE_NULL and LINKTYPE_LOOP: four bytes of an address family, in the byte order of the machine that
    /// captured, or of the network.
    Loopback,
    /// LINKTYPE_RAW, _IPV4, _IPV6: nothing before the IP header.
    Raw,
    /// LINKTYPE_LINUX_SLL: Linux's `any` device.
    Cooked,
    /// LINKTYPE_LINUX_SLL2: the same, with the interface's number.
    Cooked2,
}

/// The interface and direction of a cooked packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Whether the host sent it; unknown without a packet type.
    pub outgoing: Option<bool>,
    /// The interface's number.
    pub interface: Option<u32>,
}

impl Link {
    /// By its LINKTYPE number.
    #[must_use]
    pub fn by_number(number: u32) -> Option<Self> {
        match number {
            0 | 108 => Some(Link::Loopback),
            1 => Some(Link::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(Link::Raw),
            113 => Some(Link::Cooked),
            276 => Some(Link::Cooked2),
            _ => None,
        }
    }

    /// The supported link layers, for messages.
    pub const NAMES: &'static str = "Ethernet, Linux cooked v1 and v2, BSD loopback, raw IP";

    /// Finds the segment in a frame of `wire_bytes`, of which `frame` was captured.
    ///
    /// # Errors
    /// The reason why the frame has no segment.
    #[inline]
    pub fn decode(self, frame: &[u8], wire_bytes: u32) -> Result<(Segment<'_>, Seen), NotTcp> {
        let wire_bytes = wire_bytes as usize;
        match self {
            Link::Ethernet => Ok((ethernet(frame, wire_bytes)?, Seen::default())),
            Link::Loopback => Ok((ip(frame.get(4..), wire_bytes.saturating_sub(4))?, Seen::default())),
            Link::Raw => Ok((ip(Some(frame), wire_bytes)?, Seen::default())),
            Link::Cooked => {
                let header = frame.first_chunk::<16>().ok_or(NotTcp::Truncated)?;
                let seen = Seen { outgoing: Some(header[1] == OUTGOING), interface: None };
                let ether_type = u16::from_be_bytes([header[14], header[15]]);
                Ok((tagged(ether_type, &frame[16..], wire_bytes.saturating_sub(16))?, seen))
            }
            Link::Cooked2 => {
                let header = frame.first_chunk::<20>().ok_or(NotTcp::Truncated)?;
                let interface = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                let seen = Seen { outgoing: Some(header[10] == OUTGOING), interface: Some(interface) };
                let ether_type = u16::from_be_bytes([header[0], header[1]]);
                Ok((tagged(ether_type, &frame[20..], wire_bytes.saturating_sub(20))?, seen))
            }
        }
    }
}

impl Link {
    /// The protocol of a frame without a TCP segment, in words.
    #[must_use]
    pub fn protocol(self, frame: &[u8]) -> &'static str {
        let word = |at: usize| frame.get(at..at + 2).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]));
        let (mut ether_type, mut at) = match self {
            Link::Ethernet => (word(12), 14),
            Link::Cooked => (word(14), 16),
            Link::Cooked2 => (word(0), 20),
            Link::Loopback | Link::Raw => {
                let at = if self == Link::Raw { 0 } else { 4 };
                let version = frame.get(at).map_or(0, |byte| byte >> 4);
                (if version == 6 { 0x86dd } else { 0x0800 }, at)
            }
        };
        for _ in 0..2 {
            if matches!(ether_type, 0x8100 | 0x88a8) {
                (ether_type, at) = (word(at + 2), at + 4);
            }
        }
        crate::contents::protocol(ether_type, frame.get(at..).unwrap_or_default())
    }
}

/// PACKET_OUTGOING (linux/if_packet.h), in the low byte of the packet type.
const OUTGOING: u8 = 4;

/// An IP packet of the version in its header.
fn ip(bytes: Option<&[u8]>, wire_bytes: usize) -> Result<Segment<'_>, NotTcp> {
    let bytes = bytes.ok_or(NotTcp::Truncated)?;
    match bytes.first().map(|b| b >> 4) {
        Some(4) => network(0x0800, bytes, wire_bytes),
        Some(6) => network(0x86dd, bytes, wire_bytes),
        Some(_) => Err(NotTcp::Other),
        None => Err(NotTcp::Truncated),
    }
}

/// The payload of a cooked header, after at most two VLAN tags.
fn tagged(mut ether_type: u16, mut rest: &[u8], mut wire_bytes: usize) -> Result<Segment<'_>, NotTcp> {
    for _ in 0..2 {
        if matches!(ether_type, 0x8100 | 0x88a8) {
            let tag = rest.first_chunk::<4>().ok_or(NotTcp::Truncated)?;
            ether_type = u16::from_be_bytes([tag[2], tag[3]]);
            (rest, wire_bytes) = (&rest[4..], wire_bytes.saturating_sub(4));
        }
    }
    network(ether_type, rest, wire_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::build::frame;

    #[test]
    fn the_same_segment_is_found_behind_every_link_layer() {
        let ethernet = frame(true, 40_000, 3260, 77, 0x18, b"hello");
        let ip = &ethernet[14..];
        let mut cooked = vec![0, 4, 3, 4, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        cooked.extend_from_slice(ip);
        let mut cooked2 = vec![0x08, 0, 0, 0, 0, 0, 0, 9, 3, 4, 4, 6, 0, 0, 0, 0, 0, 0, 0, 0];
        cooked2.extend_from_slice(ip);
        let loopback = [&[2, 0, 0, 0], ip].concat();
        for (number, bytes) in
            [(1, ethernet.as_slice()), (113, &cooked), (276, &cooked2), (0, &loopback), (101, ip)]
        {
            let link = Link::by_number(number).unwrap();
            let (segment, seen) = link.decode(bytes, bytes.len() as u32).unwrap();
            assert_eq!((segment.payload, segment.seq, segment.ttl), (&b"hello"[..], 77, 64), "{link:?}");
            assert_eq!(seen.interface, (number == 276).then_some(9));
            assert_eq!(seen.outgoing, (number == 276 || number == 113).then_some(true));
            for cut in 0..bytes.len() {
                let _ = link.decode(&bytes[..cut], bytes.len() as u32);
            }
        }
    }
}
