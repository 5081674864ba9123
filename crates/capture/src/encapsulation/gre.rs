//! GRE (RFC 2784, RFC 2890), its version for PPTP (RFC 2637), NVGRE (RFC 7637), and the mirrors of switches in it (ERSPAN,
//! draft-foschiano-erspan).

use super::{Layer, Rest, Unread};

/// The tunnel in a packet of GRE.
pub(super) fn packet(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    let header = rest.header::<4>()?;
    rest.enter("GRE");
    let has = |flag: u8| header[0] & flag != 0;
    let (has_checksum, has_routing, has_key, has_sequence) = (has(0x80), has(0x40), has(0x20), has(0x10));
    let kind = u16::from_be_bytes([header[2], header[3]]);
    if has_routing {
        return Err(rest.unknown("GRE"));
    }
    if has_checksum {
        rest.skip(4)?;
    }
    let is_pptp = header[1] & 0x07 == 1;
    if has_key {
        let key = u32::from_be_bytes(*rest.header::<4>()?);
        // In PPTP the upper half is a length.
        rest.tag = rest.tag.key(if is_pptp { key & 0xffff } else { key });
    }
    if has_sequence {
        rest.skip(4)?;
    }
    if is_pptp {
        rest.enter("PPTP");
        let has_acknowledgement = header[1] & 0x80 != 0;
        rest.skip(if has_acknowledgement { 4 } else { 0 })?;
        if rest.wire_bytes == 0 {
            return Err(rest.unread("acknowledgements"));
        }
    }
    match kind {
        // The first type has no sequence numbers, and no header.
        0x88be if !has_sequence => {
            rest.enter("ERSPAN");
            Ok(Layer::Ethernet)
        }
        0x88be | 0x22eb => mirror(rest),
        // A router redirects to a cache (WCCP); the second version has four bytes of its own.
        0x883e => {
            if rest.bytes.first().is_some_and(|byte| byte >> 4 != 4) {
                rest.skip(4)?;
            }
            Ok(Layer::Ip)
        }
        kind => Ok(Layer::EtherType(kind)),
    }
}

/// The second and third type of ERSPAN.
fn mirror(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    rest.enter("ERSPAN");
    let header = rest.header::<8>()?;
    let vlan = u16::from_be_bytes([header[0], header[1]]) & 0x0fff;
    if vlan != 0 {
        rest.tag = rest.tag.vlan(vlan);
    }
    match header[0] >> 4 {
        1 => Ok(Layer::Ethernet),
        2 => {
            let more = rest.header::<4>()?;
            let has_platform_header = more[3] & 1 != 0;
            rest.skip(if has_platform_header { 8 } else { 0 })?;
            match more[2] >> 2 & 0x1f {
                0 => Ok(Layer::Ethernet),
                2 => Ok(Layer::Ip),
                _ => Err(rest.unknown("GRE")),
            }
        }
        _ => Err(rest.unknown("GRE")),
    }
}
