//! MPLS (RFC 3032). A label does not state what is behind it: IP, or Ethernet (RFC 4448) with or without a control word.

use super::{Layer, Rest, Unread};

/// Most labels of a stack.
const LABELS_MAX: usize = 16;

/// What is behind a stack of labels.
pub(super) fn labels(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    for _ in 0..LABELS_MAX {
        let entry = u32::from_be_bytes(*rest.header::<4>()?);
        // The reserved labels state a kind, not a path.
        if entry >> 12 > 15 {
            rest.tag = rest.tag.label(entry >> 12);
        }
        let is_last = entry & 0x100 != 0;
        if is_last {
            return behind(rest);
        }
    }
    rest.enter("MPLS");
    Err(rest.unread("more than 16 headers"))
}

fn behind(rest: &mut Rest<'_>) -> Result<Layer, Unread> {
    rest.enter("MPLS");
    let first = *rest.bytes.first().ok_or(rest.short())?;
    let word = |at: usize| rest.bytes.get(at..at + 2).map(|b| u16::from_be_bytes([b[0], b[1]]));
    match first >> 4 {
        // An address of Ethernet may begin with these, too; lengths that fit are no chance.
        4 if first & 0x0f >= 5 && word(2).is_some_and(|total| total == 0 || fits(total.into(), rest)) => {
            Ok(Layer::Ip)
        }
        6 if word(4).is_some_and(|length| length == 0 || fits(40 + usize::from(length), rest)) => {
            Ok(Layer::Ip)
        }
        // A control word begins with 0, like most addresses of Ethernet: the EtherType behind it decides.
        0 if word(16).is_some_and(is_common) && !word(12).is_some_and(is_common) => {
            rest.skip(4)?;
            Ok(Layer::Ethernet)
        }
        _ if word(12).is_some_and(is_common) => Ok(Layer::Ethernet),
        _ if rest.bytes.len() < 18 => Err(rest.short()),
        _ => Err(rest.unknown("MPLS")),
    }
}

fn fits(length: usize, rest: &Rest<'_>) -> bool {
    (20..=rest.wire_bytes).contains(&length)
}

/// EtherTypes that frames in a pseudowire have.
fn is_common(ether_type: u16) -> bool {
    matches!(
        ether_type,
        0x0800 | 0x86dd | 0x0806 | 0x8100 | 0x88a8 | 0x9100 | 0x8847 | 0x8848 | 0x8863 | 0x8864 | 0x88cc
    )
}
