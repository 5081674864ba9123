//! IP headers (RFC 791, RFC 8200), with the extension headers of IPv6 and authentication headers (RFC 4302).

use crate::packet::NotTcp;

/// Protocol numbers.
pub(crate) const TCP: u8 = 6;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;

/// Most extension headers of a packet.
const EXTENSIONS_MAX: usize = 6;

/// Whether a packet is a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// It is none.
    Whole,
    /// It begins a packet whose rest is in others.
    First,
    /// It continues a packet.
    Later,
}

/// A packet of IPv4 or IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ip<'a> {
    /// The sender's address; IPv4 mapped into IPv6's space.
    pub(crate) source: u128,
    /// The receiver's.
    pub(crate) destination: u128,
    /// Identification in IPv4; 0 in IPv6.
    pub(crate) id: u16,
    /// Time to live, or hop limit.
    pub(crate) ttl: u8,
    /// The protocol behind all headers.
    pub(crate) protocol: u8,
    /// Whether it is a fragment.
    pub(crate) fragment: Fragment,
    /// What is behind the headers, as much as was captured; Ethernet's padding may follow.
    pub(crate) payload: &'a [u8],
    /// Its length on the wire, bytes.
    pub(crate) payload_bytes: usize,
}

impl<'a> Ip<'a> {
    /// The payload without padding.
    pub(crate) fn payload(&self) -> &'a [u8] {
        &self.payload[..self.payload.len().min(self.payload_bytes)]
    }
}

/// Parses a packet of IPv4, of which `wire_bytes` were on the wire.
///
/// # Errors
/// When it is shorter than its headers, or not IPv4.
#[inline]
pub(crate) fn version_4(packet: &[u8], wire_bytes: usize) -> Result<Ip<'_>, NotTcp> {
    let header = packet.first_chunk::<20>().ok_or(NotTcp::Truncated)?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_bytes < 20 {
        return Err(NotTcp::Other);
    }
    let address = |at: usize| {
        0xffff_0000_0000
            | u128::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
    };
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // A super-packet of segmentation offload of 64 KiB or more has the length 0.
    let total = if total == 0 { wire_bytes.max(packet.len()) } else { total };
    let place = u16::from_be_bytes([header[6], header[7]]);
    let ip = Ip {
        source: address(12),
        destination: address(16),
        id: u16::from_be_bytes([header[4], header[5]]),
        ttl: header[8],
        protocol: header[9],
        fragment: fragment(place & 0x1fff, place & 0x2000),
        payload: packet.get(header_bytes..).ok_or(NotTcp::Truncated)?,
        payload_bytes: total.checked_sub(header_bytes).ok_or(NotTcp::Truncated)?,
    };
    if ip.protocol == AUTHENTICATION { behind_headers(ip) } else { Ok(ip) }
}

/// Parses a packet of IPv6, of which `wire_bytes` were on the wire.
///
/// # Errors
/// When it is shorter than its headers, or not IPv6.
#[inline]
pub(crate) fn version_6(packet: &[u8], wire_bytes: usize) -> Result<Ip<'_>, NotTcp> {
    let (header, payload) = packet.split_first_chunk::<40>().ok_or(NotTcp::Truncated)?;
    if header[0] >> 4 != 6 {
        return Err(NotTcp::Other);
    }
    let address = |at: usize| header[at..at + 16].iter().fold(0_u128, |a, &b| (a << 8) | u128::from(b));
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let ip = Ip {
        source: address(8),
        destination: address(24),
        id: 0,
        ttl: header[7],
        protocol: header[6],
        fragment: Fragment::Whole,
        payload,
        // As in IPv4.
        payload_bytes: if length == 0 { wire_bytes.max(packet.len()) - 40 } else { length },
    };
    if ip.protocol == TCP { Ok(ip) } else { behind_headers(ip) }
}

fn fragment(offset: u16, more: u16) -> Fragment {
    match (offset, more) {
        (0, 0) => Fragment::Whole,
        (0, _) => Fragment::First,
        _ => Fragment::Later,
    }
}

/// Steps over extension and authentication headers: a bounded chain.
fn behind_headers(mut ip: Ip<'_>) -> Result<Ip<'_>, NotTcp> {
    for _ in 0..EXTENSIONS_MAX {
        // Hop-by-hop, routing and destination options, mobility; a later fragment has none.
        let is_extension = matches!(ip.protocol, 0 | 43 | 60 | 135 | FRAGMENT | AUTHENTICATION);
        if !is_extension || ip.fragment == Fragment::Later {
            break;
        }
        let header = ip.payload.get(..4).ok_or(NotTcp::Truncated)?;
        let bytes = match ip.protocol {
            FRAGMENT => {
                let place = u16::from_be_bytes([header[2], header[3]]);
                ip.fragment = fragment(place >> 3, place & 1);
                8
            }
            AUTHENTICATION => 8 + usize::from(header[1]) * 4,
            _ => 8 + usize::from(header[1]) * 8,
        };
        ip.protocol = header[0];
        ip.payload = ip.payload.get(bytes..).ok_or(NotTcp::Truncated)?;
        ip.payload_bytes = ip.payload_bytes.checked_sub(bytes).ok_or(NotTcp::Truncated)?;
    }
    Ok(ip)
}
