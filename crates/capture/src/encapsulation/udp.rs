//! Tunnels over UDP, by their registered ports: VXLAN (RFC 7348) and its generic extension, Geneve (RFC 8926), GTP-U
//! (3GPP TS 29.281), MPLS (RFC 7510), ESP (RFC 3948).

use super::{Layer, Rest, Tag, Unread};

/// Most extension headers of a packet of GTP-U.
const EXTENSIONS_MAX: usize = 8;

/// The tunnel in a datagram. `outside` is the tag without the datagram's addresses.
pub(super) fn payload(rest: &mut Rest<'_>, outside: Tag) -> Result<Layer, Unread> {
    let header = rest.header::<8>()?;
    let source = u16::from_be_bytes([header[0], header[1]]);
    match u16::from_be_bytes([header[2], header[3]]) {
        4789 | 8472 => vxlan(rest),
        4790 => generic_vxlan(rest),
        6081 => geneve(rest),
        2152 => gtp(rest, outside),
        6635 => {
            rest.enter("MPLS in UDP");
            Ok(Layer::Mpls)
        }
        1701 => Err(rest.unread("L2TP")),
        4500 if rest.bytes.get(..4).is_some_and(|spi| spi != [0; 4]) => Err(rest.unread("ESP (encrypted)")),
        _ if source == 2152 => gtp(rest, outside),
        _ if source == 4500 && rest.bytes.get(..4).is_some_and(|spi| spi != [0; 4]) => {
            Err(rest.unread("ESP (encrypted)"))
        }
        _ => Err(rest.unread("UDP")),
    }
}

/// VXLAN: eight bytes with a flag that the number of the network is valid.
fn vxlan(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    if rest.bytes.first().is_some_and(|flags| flags & 0x08 == 0) {
        return Err(rest.unread("UDP"));
    }
    let header = rest.header::<8>()?;
    rest.enter("VXLAN");
    rest.tag = rest.tag.network(number(header[4], header[5], header[6]));
    Ok(Layer::Ethernet)
}

fn generic_vxlan(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    let header = rest.header::<8>()?;
    rest.enter("VXLAN-GPE");
    rest.tag = rest.tag.network(number(header[4], header[5], header[6]));
    // Without the flag for it, the protocol is Ethernet.
    let protocol = if header[0] & 0x04 == 0 { 3 } else { header[3] };
    match protocol {
        1 => Ok(Layer::EtherType(0x0800)),
        2 => Ok(Layer::EtherType(0x86dd)),
        3 => Ok(Layer::Ethernet),
        5 => Ok(Layer::Mpls),
        _ => Err(rest.unknown("UDP")),
    }
}

fn geneve(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    let header = rest.header::<8>()?;
    if header[0] >> 6 != 0 {
        return Err(rest.unread("UDP"));
    }
    rest.enter("Geneve");
    rest.tag = rest.tag.network(number(header[4], header[5], header[6]));
    rest.skip(usize::from(header[0] & 0x3f) * 4)?;
    Ok(Layer::EtherType(u16::from_be_bytes([header[2], header[3]])))
}

/// GTP-U. The tunnel's number is the receiver's choice, and the ends of a tunnel change when its user moves, so only
/// the number is part of the tag.
fn gtp(rest: &mut Rest<'_>, outside: Tag) -> Result<Layer, Unread> {
    // Version 1 of the protocol that carries users' packets.
    if rest.bytes.first().is_some_and(|flags| flags & 0xf0 != 0x30) {
        return Err(rest.unread("UDP"));
    }
    let header = rest.header::<8>()?;
    if header[1] != 0xff {
        return Err(rest.unread("GTP-U signalling"));
    }
    rest.enter("GTP-U");
    rest.end_at(u16::from_be_bytes([header[2], header[3]]).into());
    rest.tag = outside.tunnel(u32::from_be_bytes([header[4], header[5], header[6], header[7]]));
    if header[0] & 0x07 != 0 {
        // Sequence number, number of the packet data unit, and the type of the first extension header.
        let mut next = rest.header::<4>()?[3];
        for _ in 0..EXTENSIONS_MAX {
            let words = rest.bytes.first().copied().unwrap_or(0);
            if header[0] & 0x04 == 0 || next == 0 {
                return Ok(Layer::Ip);
            }
            let bytes = usize::from(words) * 4;
            // The last byte of each is the type of the next.
            next = *rest.bytes.get(bytes.wrapping_sub(1)).ok_or(rest.short())?;
            rest.skip(bytes)?;
        }
        if next != 0 {
            return Err(rest.unknown("UDP"));
        }
    }
    Ok(Layer::Ip)
}

/// A number of three bytes.
fn number(high: u8, middle: u8, low: u8) -> u32 {
    u32::from_be_bytes([0, high, middle, low])
}
