//! PPP (RFC 1661, RFC 1662), over Ethernet (RFC 2516).

use super::{Layer, Rest, Unread};

/// A session of PPP over Ethernet.
pub(super) fn over_ethernet(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    let header = rest.header::<6>()?;
    rest.enter("PPPoE");
    if header[0] != 0x11 || header[1] != 0 {
        return Err(rest.unknown("PPPoE"));
    }
    rest.tag = rest.tag.session(u16::from_be_bytes([header[2], header[3]]).into());
    rest.end_at(u16::from_be_bytes([header[4], header[5]]).into());
    Ok(Layer::Ppp)
}

/// The packet in a frame of PPP. The address and control bytes may be left out, and so may the first byte of the protocol.
pub(super) fn frame(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    if rest.tunnel.is_none() {
        rest.enter("PPP");
    }
    match rest.bytes {
        [0xff, 3, ..] => rest.skip(2)?,
        [0xff] => return Err(rest.short()),
        _ => {}
    }
    let first = *rest.bytes.first().ok_or(rest.short())?;
    let protocol = if first & 1 == 1 {
        rest.skip(1)?;
        first.into()
    } else {
        u16::from_be_bytes(*rest.header::<2>()?)
    };
    match protocol {
        0x0021 => Ok(Layer::EtherType(0x0800)),
        0x0057 => Ok(Layer::EtherType(0x86dd)),
        0x0281 | 0x0283 => Ok(Layer::Mpls),
        0x002d | 0x002f | 0x00fb | 0x00fd => Err(rest.unread("packets (compressed)")),
        0x003d => Err(rest.unread("PPP multilink")),
        0x0053 | 0x0055 => Err(rest.unread("packets (encrypted)")),
        0x8000.. => Err(rest.unread("control packets")),
        _ => Err(rest.unknown("PPP")),
    }
}
