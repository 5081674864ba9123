//! Link layers at the beginning of captured frames that are no Ethernet: wireless, serial lines, and the headers of packet
//! filters.

use super::{Layer, Rest, Unread};

/// A header at the beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// IEEE 802.11.
    Wireless,
    /// Radiotap before IEEE 802.11.
    Radiotap,
    /// PPI (CACE) before another link layer.
    PerPacket,
    /// Cisco HDLC.
    Hdlc,
    /// PPP or Cisco HDLC: the first byte decides.
    Serial,
    /// Frame relay with RFC 2427.
    FrameRelay,
    /// Linux's log of netfilter.
    Nflog,
    /// OpenBSD's log of pf.
    Pflog,
}

impl Header {
    /// Removes the header.
    pub(super) fn read(self, rest: &mut Rest<'_>) -> Result<Layer, Unread> {
        match self {
            Header::Wireless => wireless(rest, false),
            Header::Radiotap => {
                let (bytes, pads) = radiotap(rest.bytes).ok_or(rest.short())?;
                rest.skip(bytes)?;
                wireless(rest, pads)
            }
            Header::PerPacket => per_packet(rest),
            Header::Hdlc => hdlc(rest),
            Header::Serial if matches!(rest.bytes.first(), Some(0x0f | 0x8f)) => hdlc(rest),
            Header::Serial => Ok(Layer::Ppp),
            Header::FrameRelay => frame_relay(rest),
            Header::Nflog => nflog(rest),
            Header::Pflog => {
                // Its length is without the padding to four bytes.
                let bytes = usize::from(*rest.bytes.first().ok_or(rest.short())?).next_multiple_of(4);
                rest.skip(bytes.max(4))?;
                Ok(Layer::Ip)
            }
        }
    }
}

/// Cisco HDLC: address, control, EtherType.
fn hdlc(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    let header = rest.header::<4>()?;
    match u16::from_be_bytes([header[2], header[3]]) {
        0x8035 | 0x2000 => Err(rest.unread("keep-alives of Cisco HDLC")),
        ether_type => Ok(Layer::EtherType(ether_type)),
    }
}

/// Frame relay: an address whose last byte has its lowest bit set, a control byte, and the protocol.
fn frame_relay(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    /// Most bytes of an address.
    const ADDRESS_MAX: usize = 4;
    let last = rest.bytes.iter().take(ADDRESS_MAX).position(|byte| byte & 1 == 1);
    let endless = if rest.bytes.len() < ADDRESS_MAX { rest.short() } else { rest.unread("frame relay") };
    rest.skip(last.ok_or(endless)? + 1)?;
    let protocol = match *rest.bytes {
        [3, 0] => return Err(rest.short()),
        // A zero may fill the header up to an even length.
        [3, 0, protocol, ..] => rest.skip(3).map(|()| protocol)?,
        [3, protocol, ..] => rest.skip(2).map(|()| protocol)?,
        // Cisco's form has an EtherType instead.
        [high, low, ..] => {
            rest.skip(2)?;
            return Ok(Layer::EtherType(u16::from_be_bytes([high, low])));
        }
        _ => return Err(rest.short()),
    };
    match protocol {
        0xcc => Ok(Layer::EtherType(0x0800)),
        0x8e => Ok(Layer::EtherType(0x86dd)),
        0x80 => {
            let header = rest.header::<5>()?;
            match (&header[..3], u16::from_be_bytes([header[3], header[4]])) {
                ([0, 0, 0], ether_type) => Ok(Layer::EtherType(ether_type)),
                // A bridged frame, with or without its checksum.
                ([0, 0x80, 0xc2], 1 | 7) => Ok(Layer::Ethernet),
                _ => Err(rest.unread("frame relay")),
            }
        }
        _ => Err(rest.unread("frame relay")),
    }
}

/// The length of a radiotap header, and whether the 802.11 header behind it is padded to four bytes.
fn radiotap(bytes: &[u8]) -> Option<(usize, bool)> {
    let word = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let length = usize::from(u16::from_le_bytes([*bytes.get(2)?, *bytes.get(3)?]));
    let fields = word(4)?;
    // Further words of fields follow as long as their highest bit is set.
    let mut at = 8;
    let mut more = fields;
    while more >> 31 == 1 && at < length {
        more = word(at)?;
        at += 4;
    }
    // The flags stand behind the clock, which is aligned to eight bytes.
    let (has_clock, has_flags) = (fields & 1 == 1, fields & 2 == 2);
    let at = if has_clock { at.next_multiple_of(8) + 8 } else { at };
    let flags = if has_flags && at < length { *bytes.get(at)? } else { 0 };
    (length >= 8).then_some((length, flags & 0x20 != 0))
}

/// Per-packet information: its length, and the link layer behind it.
fn per_packet(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    let header = rest.bytes.first_chunk::<8>().ok_or(rest.short())?;
    rest.skip(usize::from(u16::from_le_bytes([header[2], header[3]])).max(8))?;
    match u32::from_le_bytes([header[4], header[5], header[6], header[7]]) {
        1 => Ok(Layer::Ethernet),
        105 => Ok(Layer::Link(Header::Wireless)),
        _ => Err(rest.unread("PPI of another link layer")),
    }
}

/// IEEE 802.11: a frame with data is an 802.2 packet behind a header of 24 to 36 bytes.
fn wireless(rest: &mut Rest<'_>, pads: bool) -> Result<Layer, Unread> {
    let control = rest.bytes.first_chunk::<2>().ok_or(rest.short())?;
    let (kind, subtype, flags) = (control[0] >> 2 & 3, control[0] >> 4, control[1]);
    let (has_quality, is_empty) = (subtype & 8 != 0, subtype & 4 != 0);
    if kind != 2 || is_empty {
        return Err(rest.unread("802.11 management and control"));
    }
    let is_between_distribution_systems = flags & 3 == 3;
    let mut bytes = if is_between_distribution_systems { 30 } else { 24 };
    if has_quality {
        let quality = *rest.bytes.get(bytes).ok_or(rest.short())?;
        if quality & 0x80 != 0 {
            return Err(rest.unread("802.11 aggregates"));
        }
        bytes += 2;
        let has_throughput_control = flags & 0x80 != 0;
        bytes += if has_throughput_control { 4 } else { 0 };
    }
    if flags & 0x40 != 0 {
        return Err(rest.unread("802.11 (encrypted)"));
    }
    let sequence = rest.bytes.get(22..24).ok_or(rest.short())?;
    let (is_part, has_more) = (sequence[0] & 0x0f != 0, flags & 0x04 != 0);
    if is_part || has_more {
        return Err(rest.unread("fragments of 802.11"));
    }
    rest.skip(if pads { bytes.next_multiple_of(4) } else { bytes })?;
    Ok(Layer::Llc(u16::MAX))
}

/// The log of netfilter: fields with lengths in the byte order of the host that captured.
fn nflog(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    /// The packet's field.
    const PAYLOAD: u16 = 9;
    /// Most fields before the packet.
    const FIELDS_MAX: usize = 32;
    rest.skip(4)?;
    for _ in 0..FIELDS_MAX {
        let field = rest.bytes.first_chunk::<4>().ok_or(rest.short())?;
        let read = |parse: fn([u8; 2]) -> u16| (parse([field[0], field[1]]), parse([field[2], field[3]]));
        // Types are small numbers: the byte order in which this one is small.
        let (length, kind) = if field[3] == 0 { read(u16::from_le_bytes) } else { read(u16::from_be_bytes) };
        if length < 4 {
            return Err(rest.unknown("other network protocols"));
        }
        if kind == PAYLOAD {
            rest.end_at(length.into());
            rest.skip(4)?;
            return Ok(Layer::Ip);
        }
        rest.skip(usize::from(length).next_multiple_of(4))?;
    }
    Err(rest.unknown("other network protocols"))
}
