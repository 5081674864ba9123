//! Headers around a TCP segment: tags, labels and tunnels.
//!
//! Each header is one step that names the next one. The number of steps is bounded, and each step removes bytes,
//! so no frame takes long. Nothing is allocated.

mod gre;
mod link_header;
mod mpls;
mod ppp;
mod tag;
mod udp;
mod unread;

pub(crate) use link_header::Header;
pub use tag::Tag;
use unread::SHORT;
pub(crate) use unread::{UNKNOWN, Unread, may_hide_tcp};

use crate::ip::{self, Fragment};
use crate::packet::{self, NotTcp, Segment};

/// Most headers between the beginning of a frame and its TCP segment. A provider's double-tagged label stack around an
/// Ethernet frame with a tenant's tunnel in it has eleven.
pub(crate) const HEADERS_MAX: usize = 16;

/// A kind of header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layer {
    /// Ethernet, from the receiver's address on.
    Ethernet,
    /// What an EtherType, or a length, announces.
    EtherType(u16),
    /// IP of the version in its first byte.
    Ip,
    /// MPLS labels.
    Mpls,
    /// 802.2, of this length.
    Llc(u16),
    /// PPP, with or without its address and control bytes.
    Ppp,
    /// A header of a link layer that only captures have at their beginning.
    Link(Header),
}

impl Layer {
    /// The EtherType of what follows, where that is known: IP's is in its first byte.
    #[inline]
    pub(crate) fn ether_type(self, bytes: &[u8]) -> Option<u16> {
        match (self, bytes.first().map(|byte| byte >> 4)) {
            (Layer::EtherType(ether_type), _) => Some(ether_type),
            (Layer::Ip, Some(4)) => Some(0x0800),
            (Layer::Ip, Some(6)) => Some(0x86dd),
            _ => None,
        }
    }
}

/// What is left of a frame behind the headers so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest<'a> {
    bytes: &'a [u8],
    /// Its length on the wire.
    wire_bytes: usize,
    tag: Tag,
    /// The last tunnel.
    tunnel: Option<&'static str>,
}

impl<'a> Rest<'a> {
    /// Removes a header of this length.
    fn skip(&mut self, bytes: usize) -> Result<(), Unread> {
        self.bytes = self.bytes.get(bytes..).ok_or(self.short())?;
        self.wire_bytes = self.wire_bytes.saturating_sub(bytes);
        Ok(())
    }

    /// Removes a header and returns it.
    fn header<const BYTES: usize>(&mut self) -> Result<&'a [u8; BYTES], Unread> {
        let header = self.bytes.first_chunk().ok_or(self.short())?;
        self.skip(BYTES)?;
        Ok(header)
    }

    /// Ends the rest where a header says that it ends.
    fn end_at(&mut self, bytes: usize) {
        self.bytes = &self.bytes[..self.bytes.len().min(bytes)];
        self.wire_bytes = self.wire_bytes.min(bytes);
    }

    /// Notes that what follows is inside a tunnel.
    fn enter(&mut self, tunnel: &'static str) {
        self.tunnel = Some(tunnel);
    }

    fn short(&self) -> Unread {
        Unread { reason: NotTcp::Truncated, what: SHORT, tunnel: self.tunnel }
    }

    fn unread(&self, what: &'static str) -> Unread {
        Unread { reason: NotTcp::Other, what, tunnel: self.tunnel }
    }

    fn fragment(&self, protocol: u8) -> Unread {
        Unread { reason: NotTcp::Fragment, ..self.unread(unread::fragment_of(protocol)) }
    }

    /// A type without a reader: outside tunnels it has this name.
    fn unknown(&self, what: &'static str) -> Unread {
        self.unread(if self.tunnel.is_some() { UNKNOWN } else { what })
    }
}

/// The result of a header.
enum Step<'a> {
    Next(Layer),
    Segment(Segment<'a>),
}

/// Finds the segment in `bytes` that begin with a header of `layer`, and of which `wire_bytes` were on the wire.
pub(crate) fn segment(layer: Layer, bytes: &[u8], wire_bytes: usize) -> Result<Segment<'_>, Unread> {
    let mut rest = Rest { bytes, wire_bytes, tag: Tag::NONE, tunnel: None };
    let mut layer = layer;
    for _ in 0..HEADERS_MAX {
        match step(layer, &mut rest)? {
            Step::Next(next) => layer = next,
            Step::Segment(segment) => return Ok(segment),
        }
    }
    Err(rest.unread("more than 16 headers"))
}

fn step<'a>(layer: Layer, rest: &mut Rest<'a>) -> Result<Step<'a>, Unread> {
    let next = match layer {
        Layer::Ethernet => {
            let header = rest.header::<14>()?;
            Layer::EtherType(u16::from_be_bytes([header[12], header[13]]))
        }
        Layer::EtherType(ether_type @ (0x0800 | 0x86dd)) => return internet(ether_type, rest),
        Layer::EtherType(ether_type) => announced(ether_type, rest)?,
        Layer::Ip => match rest.bytes.first().map(|byte| byte >> 4) {
            Some(4) => return internet(0x0800, rest),
            Some(6) => return internet(0x86dd, rest),
            Some(_) => return Err(rest.unknown("other network protocols")),
            None => return Err(rest.short()),
        },
        Layer::Mpls => mpls::labels(rest)?,
        Layer::Llc(length) => llc(length, rest)?,
        Layer::Ppp => ppp::frame(rest)?,
        Layer::Link(header) => header.read(rest)?,
    };
    Ok(Step::Next(next))
}

/// The header behind an EtherType, IP excepted.
fn announced(ether_type: u16, rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    Ok(match ether_type {
        // 802.1Q, 802.1ad, and the numbers that switches used before it.
        0x8100 | 0x88a8 | 0x9100 | 0x9200 | 0x9300 => {
            let tag = rest.header::<4>()?;
            let id = u16::from_be_bytes([tag[0], tag[1]]) & 0x0fff;
            // A tag with the number 0 has a priority only.
            if id != 0 {
                rest.tag = rest.tag.vlan(id);
            }
            Layer::EtherType(u16::from_be_bytes([tag[2], tag[3]]))
        }
        0x8847 | 0x8848 => Layer::Mpls,
        0x8864 => ppp::over_ethernet(rest)?,
        0x880b => Layer::Ppp,
        0x6558 => Layer::Ethernet,
        // In cooked captures: 802.2 without a length.
        4 => Layer::Llc(u16::MAX),
        0..=1500 => Layer::Llc(ether_type),
        _ => {
            let unknown = || rest.unknown("other network protocols");
            return Err(unread::of_ether_type(ether_type).map_or_else(unknown, |name| rest.unread(name)));
        }
    })
}

/// 802.2, and the protocol behind it (RFC 1042).
fn llc(length: u16, rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    rest.end_at(length.into());
    match rest.bytes {
        // Ethernet's types, in the number space of Ethernet (0) or of bridges for it (f8).
        [0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, high, low, ..] => {
            let ether_type = u16::from_be_bytes([*high, *low]);
            rest.skip(8)?;
            if ether_type <= 1500 { Err(rest.unread("802.3 LLC")) } else { Ok(Layer::EtherType(ether_type)) }
        }
        [6, 6, 3, ..] => rest.skip(3).map(|()| Layer::Ip),
        [] | [6] | [6, 6] => Err(rest.short()),
        [0xaa, ..] if rest.bytes.len() < 8 => Err(rest.short()),
        _ => Err(rest.unread("802.3 LLC")),
    }
}

/// A packet of IP: its segment, or the tunnel in it.
fn internet<'a>(ether_type: u16, rest: &mut Rest<'a>) -> Result<Step<'a>, Unread> {
    let parse = if ether_type == 0x0800 { ip::version_4 } else { ip::version_6 };
    let ip = parse(rest.bytes, rest.wire_bytes).map_err(|reason| match reason {
        NotTcp::Truncated => rest.short(),
        _ => rest.unknown("other network protocols"),
    })?;
    let is_tunnel = matches!(ip.protocol, 4 | 17 | 41 | 47 | 97 | 137);
    match (ip.fragment, ip.protocol) {
        (Fragment::Whole, ip::TCP) => {
            return packet::segment(&ip, rest.tag).map(Step::Segment).map_err(|reason| match reason {
                NotTcp::Truncated => rest.short(),
                _ => rest.unread("TCP with an invalid header"),
            });
        }
        (Fragment::Whole, _) => {}
        // The first fragment of a tunnel's packet holds the headers of the inner one, which has its own length.
        (Fragment::First, _) if is_tunnel => {}
        _ => return Err(rest.fragment(ip.protocol)),
    }
    let around = *rest;
    (rest.bytes, rest.wire_bytes) = (ip.payload(), ip.payload_bytes);
    rest.tag = around.tag.between(ip.source, ip.destination);
    match inside(ip.protocol, rest, around.tag) {
        Ok(next) => Ok(Step::Next(next)),
        // It ends too soon, or is no tunnel.
        Err(_) if ip.fragment == Fragment::First => Err(around.fragment(ip.protocol)),
        Err(unread) => Err(unread),
    }
}

/// The tunnel in a packet of IP with this protocol. `outside` is the tag without the packet's addresses.
fn inside(protocol: u8, rest: &mut Rest<'_>, outside: Tag) -> Result<Layer, Unread> {
    let (name, next) = match protocol {
        17 => return udp::payload(rest, outside),
        47 => return gre::packet(rest),
        4 => ("IP in IP", Layer::EtherType(0x0800)),
        41 => ("IP in IP", Layer::EtherType(0x86dd)),
        97 => {
            rest.skip(2)?;
            ("EtherIP", Layer::Ethernet)
        }
        137 => ("MPLS in IP", Layer::Mpls),
        // Destination unreachable: fragmentation needed; packet too big.
        1 if rest.bytes.starts_with(&[3, 4]) => {
            return Err(Unread { reason: NotTcp::TooBig, ..rest.unread("ICMP") });
        }
        58 if rest.bytes.starts_with(&[2]) => {
            return Err(Unread { reason: NotTcp::TooBig, ..rest.unread("ICMPv6") });
        }
        protocol => return Err(rest.unread(unread::of_protocol(protocol))),
    };
    rest.enter(name);
    Ok(next)
}

#[cfg(test)]
mod tests;
