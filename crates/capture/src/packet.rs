//! The TCP segment in an Ethernet frame.

/// The reason why a frame has no usable TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTcp {
    /// Neither IPv4 nor IPv6, or not TCP.
    Other,
    /// A fragment of an IP packet.
    Fragment,
    /// Shorter than its headers say.
    Truncated,
    /// An ICMP message: a packet was too big for the path (RFC 1191, RFC 8201).
    TooBig,
}

/// One end of a connection: an address (IPv4 mapped into IPv6's space) and a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// The address.
    pub address: u128,
    /// The port.
    pub port: u16,
}

/// The time and frame of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// Nanoseconds since the epoch.
    pub ns: u64,
    /// The frame's number in its capture, from 1; 0: unknown.
    pub frame: u64,
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sender.
    pub source: Endpoint,
    /// The receiver.
    pub destination: Endpoint,
    /// Sequence number of its first byte.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// FIN 01, SYN 02, RST 04, PSH 08, ACK 10.
    pub flags: u8,
    /// Window as in the header, unscaled.
    pub window: u16,
    /// TCP options, as many of their bytes as were captured.
    pub options: &'a [u8],
    /// Identification of the IPv4 packet; 0 in IPv6.
    pub ip_id: u16,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// The payload, as much as was captured.
    pub payload: &'a [u8],
    /// The payload's length on the wire, bytes.
    pub payload_bytes: usize,
}

impl Segment<'_> {
    /// SYN.
    pub const SYN: u8 = 0x02;
    /// FIN.
    pub const FIN: u8 = 0x01;
    /// RST.
    pub const RST: u8 = 0x04;
    /// ACK: the acknowledgement number is valid.
    pub const ACK: u8 = 0x10;
}

const TCP: u8 = 6;

/// Finds the segment in a frame of `wire_bytes`, of which `frame` was captured.
///
/// # Errors
/// The reason why the frame has no segment.
#[inline]
pub fn decode(frame: &[u8], wire_bytes: u32) -> Result<Segment<'_>, NotTcp> {
    ethernet(frame, wire_bytes as usize)
}

/// As [`decode`].
pub(crate) fn ethernet(frame: &[u8], wire_bytes: usize) -> Result<Segment<'_>, NotTcp> {
    let mut at = 12;
    let mut ether_type = u16_at(frame, at)?;
    // 802.1Q and 802.1ad tags, stacked at most twice.
    for _ in 0..2 {
        if matches!(ether_type, 0x8100 | 0x88a8) {
            at += 4;
            ether_type = u16_at(frame, at)?;
        }
    }
    network(ether_type, frame.get(at + 2..).ok_or(NotTcp::Truncated)?, wire_bytes.saturating_sub(at + 2))
}

/// Finds the segment in a packet of the network layer, of which `wire_bytes` were on the wire.
pub(crate) fn network(ether_type: u16, ip: &[u8], wire_bytes: usize) -> Result<Segment<'_>, NotTcp> {
    let ip_bytes = wire_bytes.max(ip.len());
    match ether_type {
        0x0800 => ipv4(ip, ip_bytes),
        0x86dd => ipv6(ip, ip_bytes),
        _ => Err(NotTcp::Other),
    }
}

fn ipv4(ip: &[u8], ip_bytes: usize) -> Result<Segment<'_>, NotTcp> {
    let header = ip.first_chunk::<20>().ok_or(NotTcp::Truncated)?;
    let header_bytes = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_bytes < 20 {
        return Err(NotTcp::Other);
    }
    if header[9] != TCP {
        // Destination unreachable: fragmentation needed.
        let is_too_big = header[9] == 1 && ip.get(header_bytes..header_bytes + 2) == Some(&[3, 4]);
        return Err(if is_too_big { NotTcp::TooBig } else { NotTcp::Other });
    }
    if u16::from_be_bytes([header[6], header[7]]) & 0x3fff != 0 {
        return Err(NotTcp::Fragment);
    }
    let address = |at: usize| {
        0xffff_0000_0000
            | u128::from(u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]))
    };
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    // A super-packet of segmentation offload of 64 KiB or more has the length 0.
    let total = if total == 0 { ip_bytes } else { total };
    let length = total.checked_sub(header_bytes).ok_or(NotTcp::Truncated)?;
    let ip_id = u16::from_be_bytes([header[4], header[5]]);
    let rest = ip.get(header_bytes..).ok_or(NotTcp::Truncated)?;
    let segment = tcp(rest, length, address(12), address(16))?;
    Ok(Segment { ip_id, ttl: header[8], ..segment })
}

fn ipv6(ip: &[u8], ip_bytes: usize) -> Result<Segment<'_>, NotTcp> {
    let header = ip.first_chunk::<40>().ok_or(NotTcp::Truncated)?;
    let address = |at: usize| header[at..at + 16].iter().fold(0_u128, |a, &b| (a << 8) | u128::from(b));
    let mut length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if length == 0 {
        // As in IPv4.
        length = ip_bytes.saturating_sub(40);
    }
    let (mut next, mut at) = (header[6], 40);
    // Hop-by-hop, routing and destination options; a bounded chain.
    for _ in 0..4 {
        if !matches!(next, 0 | 43 | 60) {
            break;
        }
        let extension = ip.get(at..at + 2).ok_or(NotTcp::Truncated)?;
        let bytes = 8 + usize::from(extension[1]) * 8;
        next = extension[0];
        at += bytes;
        length = length.checked_sub(bytes).ok_or(NotTcp::Truncated)?;
    }
    match next {
        TCP => {
            let segment = tcp(ip.get(at..).ok_or(NotTcp::Truncated)?, length, address(8), address(24))?;
            Ok(Segment { ttl: header[7], ..segment })
        }
        // Packet too big.
        58 if ip.get(at) == Some(&2) => Err(NotTcp::TooBig),
        44 => Err(NotTcp::Fragment),
        _ => Err(NotTcp::Other),
    }
}

fn tcp(bytes: &[u8], length: usize, source: u128, destination: u128) -> Result<Segment<'_>, NotTcp> {
    let header = bytes.first_chunk::<20>().ok_or(NotTcp::Truncated)?;
    let header_bytes = usize::from(header[12] >> 4) * 4;
    if header_bytes < 20 {
        return Err(NotTcp::Other);
    }
    let payload_bytes = length.checked_sub(header_bytes).ok_or(NotTcp::Truncated)?;
    // What was captured may be longer (Ethernet padding) or shorter (snap length) than the payload.
    let captured = bytes.get(header_bytes..).unwrap_or_default();
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Ok(Segment {
        source: Endpoint { address: source, port: half(0) },
        destination: Endpoint { address: destination, port: half(2) },
        seq: word(4),
        ack: word(8),
        flags: header[13],
        window: half(14),
        options: bytes.get(20..header_bytes.min(bytes.len())).unwrap_or_default(),
        ip_id: 0,
        ttl: 0,
        payload: &captured[..captured.len().min(payload_bytes)],
        payload_bytes,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, NotTcp> {
    bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u16::from_be_bytes(*b)).ok_or(NotTcp::Truncated)
}

/// Builds frames for tests.
#[cfg(test)]
pub(crate) mod build {
    /// An Ethernet frame with IPv4 and TCP with 12 bytes of options, client 10.0.0.1 when `to_server`.
    pub(crate) fn frame(
        to_server: bool,
        client_port: u16,
        port: u16,
        seq: u32,
        flags: u8,
        payload: &[u8],
    ) -> Vec<u8> {
        let mut f = vec![0; 14];
        f[12..14].copy_from_slice(&0x0800_u16.to_be_bytes());
        let total = (20 + 32 + payload.len()) as u16;
        f.extend_from_slice(&[0x45, 0]);
        f.extend_from_slice(&total.to_be_bytes());
        f.extend_from_slice(&[0, 0, 0x40, 0, 64, 6, 0, 0]);
        let (client, server) = ([10, 0, 0, 1], [10, 0, 0, 2]);
        let (from, to, ports) = if to_server {
            (client, server, (client_port, port))
        } else {
            (server, client, (port, client_port))
        };
        f.extend_from_slice(&from);
        f.extend_from_slice(&to);
        f.extend_from_slice(&ports.0.to_be_bytes());
        f.extend_from_slice(&ports.1.to_be_bytes());
        f.extend_from_slice(&seq.to_be_bytes());
        f.extend_from_slice(&[0, 0, 0, 0, 0x80, flags, 0, 0, 0, 0, 0, 0]);
        f.extend_from_slice(&[1; 12]);
        f.extend_from_slice(payload);
        f
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole(frame: &[u8]) -> Result<Segment<'_>, NotTcp> {
        decode(frame, frame.len() as u32)
    }

    #[test]
    fn a_segment_is_found_behind_tags_and_before_padding() {
        let mut frame = build::frame(true, 40_000, 3260, 77, 0x18, b"hello");
        frame.extend_from_slice(&[0; 9]);
        let s = whole(&frame).unwrap();
        assert_eq!((s.source.port, s.destination.port, s.seq, s.flags), (40_000, 3260, 77, 0x18));
        assert_eq!((s.payload, s.payload_bytes), (&b"hello"[..], 5));
        let mut tagged = frame.clone();
        tagged.splice(12..12, [0x81, 0, 0, 5]);
        assert_eq!(whole(&tagged).unwrap().payload, b"hello");
        let snapped = whole(&frame[..14 + 52 + 2]).unwrap();
        assert_eq!((snapped.payload, snapped.payload_bytes), (&b"he"[..], 5));
    }

    #[test]
    fn classifies_fragments_and_other_frames() {
        let mut frame = build::frame(true, 1, 2, 3, 0x10, b"x");
        frame[14 + 9] = 17;
        assert_eq!(whole(&frame).unwrap_err(), NotTcp::Other);
        frame[14 + 9] = 6;
        frame[14 + 6] = 0x20;
        assert_eq!(whole(&frame).unwrap_err(), NotTcp::Fragment);
        assert_eq!(whole(&frame[..20]).unwrap_err(), NotTcp::Truncated);
    }

    #[test]
    fn uses_the_wire_length_of_packets_too_long_for_their_length_field() {
        let mut frame = build::frame(true, 1, 2, 3, 0x10, b"abcd");
        frame[14 + 2..14 + 4].fill(0);
        let segment = decode(&frame, 14 + 52 + 100_000).unwrap();
        assert_eq!((segment.payload, segment.payload_bytes), (&b"abcd"[..], 100_000));
    }

    #[test]
    fn a_segment_is_found_behind_the_extension_headers_of_ipv6() {
        let mut frame = vec![0; 14];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame.extend_from_slice(&[0x60, 0, 0, 0, 0, 8 + 16 + 20 + 3, 0, 64]);
        frame.extend_from_slice(&[[0xfd; 16], [0xfe; 16]].concat());
        // Hop-by-hop, then destination options of 16 bytes, then TCP.
        frame.extend_from_slice(&[60, 0, 1, 4, 0, 0, 0, 0]);
        frame.extend_from_slice(&[[6, 1, 1, 12, 0, 0, 0, 0], [0; 8]].concat());
        frame.extend_from_slice(&[0x0c, 0xbc, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        frame.extend_from_slice(b"abc");
        let segment = whole(&frame).unwrap();
        assert_eq!((segment.source.port, segment.destination.port, segment.seq), (3260, 9, 7));
        assert_eq!(segment.payload, b"abc");
        frame[14 + 40 + 8] = 44;
        assert_eq!(whole(&frame).unwrap_err(), NotTcp::Fragment);
    }

    proptest! {
        #[test]
        fn no_bytes_can_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..120), kind in 0..3, wire: u32) {
            if bytes.len() > 15 && kind > 0 {
                bytes[12..14].copy_from_slice(if kind == 1 { &[0x08, 0] } else { &[0x86, 0xdd] });
                bytes[14] = if kind == 1 { 0x45 } else { 0x60 };
            }
            if let Ok(segment) = decode(&bytes, wire) {
                prop_assert!(segment.payload.len() <= segment.payload_bytes);
            }
        }
    }
}
