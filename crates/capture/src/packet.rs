//! The TCP segment in an Ethernet frame.

use crate::encapsulation::{self, Layer, Tag};
use crate::ip::{self, Fragment, Ip};

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
    /// The encapsulations around it.
    pub tag: Tag,
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

    /// The same without the bytes of options and payload, whose lengths on the wire remain.
    #[must_use]
    pub(crate) fn without_bytes(&self) -> Segment<'static> {
        let Segment { source, destination, seq, ack, flags, window, ip_id, ttl, payload_bytes, .. } = *self;
        Segment {
            tag: self.tag,
            source,
            destination,
            seq,
            ack,
            flags,
            window,
            options: &[],
            ip_id,
            ttl,
            payload: &[],
            payload_bytes,
        }
    }
}

/// Finds the segment in a frame of `wire_bytes`, of which `frame` was captured.
///
/// # Errors
/// The reason why the frame has no segment.
#[inline]
pub fn decode(frame: &[u8], wire_bytes: u32) -> Result<Segment<'_>, NotTcp> {
    ethernet(frame, wire_bytes as usize)
}

/// As [`decode`].
#[inline]
pub(crate) fn ethernet(frame: &[u8], wire_bytes: usize) -> Result<Segment<'_>, NotTcp> {
    // The common case first: TCP in IP, and nothing else.
    if let Some(ip) = frame.get(14..)
        && let Some(segment) =
            plain(u16::from_be_bytes([frame[12], frame[13]]), ip, wire_bytes.saturating_sub(14))
    {
        return Ok(segment);
    }
    encapsulation::segment(Layer::Ethernet, frame, wire_bytes).map_err(|unread| unread.reason)
}

/// The segment of a packet of the network layer that is TCP in IP and nothing else.
#[inline]
pub(crate) fn plain(ether_type: u16, packet: &[u8], wire_bytes: usize) -> Option<Segment<'_>> {
    let ip = match ether_type {
        0x0800 => ip::version_4(packet, wire_bytes),
        0x86dd => ip::version_6(packet, wire_bytes),
        _ => return None,
    };
    let ip = ip.ok().filter(|ip| ip.protocol == ip::TCP && ip.fragment == Fragment::Whole)?;
    segment(&ip, Tag::NONE).ok()
}

/// The TCP segment of an IP packet inside these encapsulations.
///
/// # Errors
/// When it is shorter than its headers, or not TCP.
#[inline]
pub(crate) fn segment<'a>(ip: &Ip<'a>, tag: Tag) -> Result<Segment<'a>, NotTcp> {
    let header = ip.payload.first_chunk::<20>().ok_or(NotTcp::Truncated)?;
    let header_bytes = usize::from(header[12] >> 4) * 4;
    if header_bytes < 20 {
        return Err(NotTcp::Other);
    }
    let payload_bytes = ip.payload_bytes.checked_sub(header_bytes).ok_or(NotTcp::Truncated)?;
    // What was captured may be longer (Ethernet padding) or shorter (snap length) than the payload.
    let captured = ip.payload.get(header_bytes..).unwrap_or_default();
    let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    Ok(Segment {
        source: Endpoint { address: ip.source, port: half(0) },
        destination: Endpoint { address: ip.destination, port: half(2) },
        seq: word(4),
        ack: word(8),
        flags: header[13],
        window: half(14),
        options: ip.payload.get(20..header_bytes.min(ip.payload.len())).unwrap_or_default(),
        ip_id: ip.id,
        ttl: ip.ttl,
        payload: &captured[..captured.len().min(payload_bytes)],
        payload_bytes,
        tag,
    })
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
