//! Link layers of captures, by their LINKTYPE numbers.

use crate::encapsulation::{self, Header, Layer, Unread};
use crate::packet::{NotTcp, Segment, ethernet, plain};

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
    /// LINKTYPE_PPP.
    Ppp,
    /// LINKTYPE_PPP_HDLC: PPP or Cisco HDLC.
    Serial,
    /// LINKTYPE_PPP_ETHER: a session of PPP over Ethernet.
    PppOverEthernet,
    /// LINKTYPE_PPP_PPPD and _PPP_WITH_DIR: a byte that states the direction, then PPP.
    PppWithDirection,
    /// LINKTYPE_C_HDLC.
    Hdlc,
    /// LINKTYPE_FRELAY.
    FrameRelay,
    /// LINKTYPE_ATM_RFC1483: 802.2 without a header before it.
    Llc,
    /// LINKTYPE_IEEE802_11.
    Wireless,
    /// LINKTYPE_IEEE802_11_RADIOTAP.
    Radiotap,
    /// LINKTYPE_PPI.
    PerPacket,
    /// LINKTYPE_NFLOG.
    Nflog,
    /// LINKTYPE_PFLOG.
    Pflog,
    /// LINKTYPE_ENC: OpenBSD's decrypted packets, behind twelve bytes.
    Decrypted,
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
        Some(match number {
            0 | 108 => Link::Loopback,
            1 => Link::Ethernet,
            9 => Link::Ppp,
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            50 => Link::Serial,
            51 => Link::PppOverEthernet,
            100 => Link::Llc,
            104 => Link::Hdlc,
            105 => Link::Wireless,
            107 => Link::FrameRelay,
            109 => Link::Decrypted,
            113 => Link::Cooked,
            117 => Link::Pflog,
            127 => Link::Radiotap,
            166 | 204 => Link::PppWithDirection,
            192 => Link::PerPacket,
            239 => Link::Nflog,
            276 => Link::Cooked2,
            _ => return None,
        })
    }

    /// The supported link layers, for messages.
    pub const NAMES: &'static str = "Ethernet, Linux cooked v1 and v2, BSD loopback, raw IP, PPP, PPPoE, Cisco HDLC, \
                                     frame relay, IEEE 802.11, radiotap, PPI, NFLOG, PFLOG, ENC, ATM";

    /// Finds the segment in a frame of `wire_bytes`, of which `frame` was captured.
    ///
    /// # Errors
    /// The reason why the frame has no segment.
    #[inline]
    pub fn decode(self, frame: &[u8], wire_bytes: u32) -> Result<(Segment<'_>, Seen), NotTcp> {
        let wire_bytes = wire_bytes as usize;
        if self == Link::Ethernet {
            return Ok((ethernet(frame, wire_bytes)?, Seen::default()));
        }
        let (layer, seen, header_bytes) = self.first(frame).ok_or(NotTcp::Truncated)?;
        let rest = frame.get(header_bytes..).ok_or(NotTcp::Truncated)?;
        let wire_bytes = wire_bytes.saturating_sub(header_bytes);
        if let Some(segment) = layer.ether_type(rest).and_then(|kind| plain(kind, rest, wire_bytes)) {
            return Ok((segment, seen));
        }
        let segment = encapsulation::segment(layer, rest, wire_bytes).map_err(|unread| unread.reason)?;
        Ok((segment, seen))
    }

    /// What a frame holds that was not read for this reason.
    pub(crate) fn unread(self, reason: NotTcp, frame: &[u8]) -> Unread {
        let cut = Unread { reason: NotTcp::Truncated, what: "truncated frames", tunnel: None };
        if reason == NotTcp::Truncated {
            return cut;
        }
        let Some((layer, _, header_bytes)) = self.first(frame) else { return cut };
        let rest = frame.get(header_bytes..).unwrap_or_default();
        encapsulation::segment(layer, rest, rest.len()).err().unwrap_or(cut)
    }

    /// The first header, what the bytes before it state, and their number; `None` if they are cut off.
    fn first(self, frame: &[u8]) -> Option<(Layer, Seen, usize)> {
        let none = Seen::default();
        Some(match self {
            Link::Ethernet => (Layer::Ethernet, none, 0),
            Link::Loopback => (Layer::Ip, none, 4),
            Link::Raw => (Layer::Ip, none, 0),
            Link::Cooked => {
                let header = frame.first_chunk::<16>()?;
                let seen = Seen { outgoing: Some(header[1] == OUTGOING), interface: None };
                (Layer::EtherType(u16::from_be_bytes([header[14], header[15]])), seen, 16)
            }
            Link::Cooked2 => {
                let header = frame.first_chunk::<20>()?;
                let interface = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                let seen = Seen { outgoing: Some(header[10] == OUTGOING), interface: Some(interface) };
                (Layer::EtherType(u16::from_be_bytes([header[0], header[1]])), seen, 20)
            }
            Link::Ppp => (Layer::Ppp, none, 0),
            Link::Serial => (Layer::Link(Header::Serial), none, 0),
            Link::PppOverEthernet => (Layer::EtherType(PPP_OVER_ETHERNET), none, 0),
            Link::PppWithDirection => {
                let [direction, control, ..] = *frame else { return None };
                let seen = Seen { outgoing: Some(direction != 0), interface: None };
                // The direction may stand in the place of the address, with the control byte behind it.
                (Layer::Ppp, seen, if control == PPP_CONTROL { 2 } else { 1 })
            }
            Link::Hdlc => (Layer::Link(Header::Hdlc), none, 0),
            Link::FrameRelay => (Layer::Link(Header::FrameRelay), none, 0),
            Link::Llc => (Layer::Llc(u16::MAX), none, 0),
            Link::Wireless => (Layer::Link(Header::Wireless), none, 0),
            Link::Radiotap => (Layer::Link(Header::Radiotap), none, 0),
            Link::PerPacket => (Layer::Link(Header::PerPacket), none, 0),
            Link::Nflog => (Layer::Link(Header::Nflog), none, 0),
            Link::Pflog => (Layer::Link(Header::Pflog), none, 0),
            Link::Decrypted => (Layer::Ip, none, 12),
        })
    }
}

/// PACKET_OUTGOING (linux/if_packet.h), in the low byte of the packet type.
const OUTGOING: u8 = 4;

/// The EtherType of a session of PPP over Ethernet.
const PPP_OVER_ETHERNET: u16 = 0x8864;
/// The control byte of PPP.
const PPP_CONTROL: u8 = 3;

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
