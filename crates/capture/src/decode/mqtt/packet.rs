//! Packets of MQTT, and what tells them from other bytes.

use record::Side;

use super::super::Length;
use super::reason;

/// Types of packets.
pub(super) const CONNECT: u8 = 1;
pub(super) const CONNACK: u8 = 2;
pub(super) const PUBLISH: u8 = 3;
pub(super) const PUBACK: u8 = 4;
pub(super) const PUBREC: u8 = 5;
pub(super) const PUBREL: u8 = 6;
pub(super) const PUBCOMP: u8 = 7;
pub(super) const SUBSCRIBE: u8 = 8;
pub(super) const SUBACK: u8 = 9;
pub(super) const UNSUBSCRIBE: u8 = 10;
pub(super) const UNSUBACK: u8 = 11;
pub(super) const PINGREQ: u8 = 12;
pub(super) const PINGRESP: u8 = 13;
pub(super) const DISCONNECT: u8 = 14;
pub(super) const AUTH: u8 = 15;

/// Bit of a PUBLISH that is sent again.
const REPEATED: u8 = 8;
/// The property that holds a topic alias (MQTT 5.0, 2.2.2.2).
const TOPIC_ALIAS: u8 = 0x23;

/// What decides the form of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// 3.1 and 3.1.1.
    Three,
    Five,
}

/// A packet, as far as it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet<'a> {
    pub(super) kind: u8,
    flags: u8,
    /// All its bytes.
    pub(super) length: u64,
    /// What stands behind its fixed header.
    pub(super) body: &'a [u8],
    /// Whether this is all of it.
    is_whole: bool,
}

/// A PUBLISH.
#[derive(Clone, Copy, Debug)]
pub(super) struct Publish<'a> {
    pub(super) topic: &'a [u8],
    /// 0 for QoS 0.
    pub(super) identifier: u16,
    /// Properties of version 5, or the message.
    behind: &'a [u8],
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// A string of UTF-8 with its length, and what follows.
fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u16_at(bytes, 0)?;
    bytes.get(2..)?.split_at_checked(length.into())
}

/// A variable byte integer, of four bytes at most, and how many it has.
pub(super) fn variable(bytes: &[u8]) -> Result<(u32, usize), Length> {
    let mut value = 0;
    for (place, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Ok((value, place + 1));
        }
    }
    Err(if bytes.len() < 4 { Length::More } else { Length::Invalid })
}

/// What follows the properties of version 5.
pub(super) fn behind_properties(bytes: &[u8]) -> Option<&[u8]> {
    let (length, size) = variable(bytes).ok()?;
    bytes.get(size..)?.get(length as usize..)
}

/// The packet of a side that begins here.
pub(super) fn read(side: Side, bytes: &[u8]) -> Result<Packet<'_>, Length> {
    let &first = bytes.first().ok_or(Length::More)?;
    let (kind, flags) = (first >> 4, first & 15);
    let is_possible = match (side, kind) {
        (_, PUBLISH) => flags & 6 != 6,
        // Version 3.1 marks these as repeated.
        (_, PUBREL) | (Side::Client, SUBSCRIBE | UNSUBSCRIBE) => flags & 7 == 2,
        (_, PUBACK | PUBREC | PUBCOMP | DISCONNECT | AUTH)
        | (Side::Client, CONNECT | PINGREQ)
        | (Side::Server, CONNACK | SUBACK | UNSUBACK | PINGRESP) => flags == 0,
        _ => false,
    };
    if !is_possible {
        return Err(Length::Invalid);
    }
    let rest = bytes.get(1..).unwrap_or_default();
    let (left, size) = variable(rest)?;
    let is_possible = match kind {
        CONNECT => left >= 12,
        PUBLISH | SUBACK => left >= 3,
        SUBSCRIBE => left >= 6,
        UNSUBSCRIBE => left >= 5,
        PINGREQ | PINGRESP => left == 0,
        DISCONNECT | AUTH => true,
        _ => left >= 2,
    };
    let body = rest.get(size..).unwrap_or_default();
    if kind == PUBLISH {
        let topic = u16_at(body, 0).ok_or(Length::More)?;
        let least = u32::from(topic) + if flags & 6 == 0 { 2 } else { 4 };
        if least > left {
            return Err(Length::Invalid);
        }
    }
    let length = 1 + size as u64 + u64::from(left);
    let is_whole = body.len() as u64 >= u64::from(left);
    let body = body.get(..left as usize).unwrap_or(body);
    if is_possible { Ok(Packet { kind, flags, length, body, is_whole }) } else { Err(Length::Invalid) }
}

impl<'a> Packet<'a> {
    /// The packet identifier with which most packets begin.
    pub(super) fn identifier(&self) -> u16 {
        u16_at(self.body, 0).unwrap_or_default()
    }

    /// The QoS of a PUBLISH.
    pub(super) fn quality(&self) -> u8 {
        self.flags >> 1 & 3
    }

    /// Whether a PUBLISH is sent again.
    pub(super) fn is_repeated(&self) -> bool {
        self.flags & REPEATED > 0
    }

    /// The first filter of a SUBSCRIBE or UNSUBSCRIBE.
    pub(super) fn first_filter(&self, version: Option<Version>) -> &'a [u8] {
        let body = self.body.get(2..).unwrap_or_default();
        let is_three = version == Some(Version::Three) || version.is_none() && self.are_filters(body);
        let filters = if is_three { Some(body) } else { behind_properties(body) };
        filters.and_then(string).map(|(filter, _)| filter).unwrap_or_default()
    }

    /// Whether filters, with their options in a SUBSCRIBE, fill these bytes.
    fn are_filters(&self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while !rest.is_empty() {
            let Some((filter, behind)) = string(rest).filter(|(filter, _)| is_text(filter)) else {
                return false;
            };
            rest = match (self.kind, behind.split_first()) {
                (UNSUBSCRIBE, _) if !filter.is_empty() => behind,
                (SUBSCRIBE, Some((options, behind))) if options & 0xc3 < 3 => behind,
                _ => return false,
            };
        }
        !bytes.is_empty()
    }

    pub(super) fn publish(&self) -> Option<Publish<'a>> {
        let (topic, behind) = string(self.body)?;
        if self.quality() == 0 {
            return Some(Publish { topic, identifier: 0, behind });
        }
        Some(Publish { topic, identifier: u16_at(behind, 0)?, behind: behind.get(2..)? })
    }

    /// Whether what is there of it is nothing but such a packet: more than the first byte of another one says.
    fn is_sound(&self) -> bool {
        let behind = self.body.get(2..).unwrap_or_default();
        let is_numbered = self.identifier() > 0;
        let behind_properties = behind_properties(behind).unwrap_or_default();
        match self.kind {
            PUBLISH => self.publish().is_some_and(|publish| {
                let is_topic =
                    is_text(publish.topic) && !publish.topic.iter().any(|b| matches!(b, b'+' | b'#'));
                is_topic && (publish.identifier > 0) == (self.quality() > 0)
            }),
            _ if !self.is_whole => false,
            CONNECT => version(self.body).is_some(),
            CONNACK => match self.body {
                [0 | 1, code] => *code <= 5,
                [0 | 1, code, properties @ ..] => reason::is_known(*code) && ends_with_properties(properties),
                _ => false,
            },
            PUBACK | PUBREC | PUBREL | PUBCOMP => is_numbered && is_reason(behind),
            SUBSCRIBE | UNSUBSCRIBE => {
                is_numbered && (self.are_filters(behind) || self.are_filters(behind_properties))
            }
            SUBACK | UNSUBACK => {
                let are_three = behind.iter().all(|&code| code < 3 || code == 0x80);
                let are_five = !behind_properties.is_empty()
                    && behind_properties.iter().all(|&code| reason::is_known(code));
                is_numbered && (are_three && (self.kind == SUBACK || behind.is_empty()) || are_five)
            }
            PINGREQ | PINGRESP => true,
            DISCONNECT | AUTH => is_reason(self.body),
            _ => false,
        }
    }
}

impl Publish<'_> {
    /// The topic alias, if this is version 5.
    pub(super) fn alias(&self) -> Option<u16> {
        let (length, size) = variable(self.behind).ok()?;
        let properties = self.behind.get(size..)?;
        let mut rest = properties.get(..properties.len().min(length as usize))?;
        while let Some((&kind, behind)) = rest.split_first() {
            rest = match kind {
                TOPIC_ALIAS => return u16_at(behind, 0),
                // Payload Format Indicator, Message Expiry Interval.
                0x01 => behind.get(1..)?,
                0x02 => behind.get(4..)?,
                // Content Type, Response Topic, Correlation Data.
                0x03 | 0x08 | 0x09 => string(behind)?.1,
                // User Property.
                0x26 => string(string(behind)?.1)?.1,
                _ => return None,
            };
        }
        None
    }
}

/// Whether these bytes are the name of a topic or a filter.
fn is_text(bytes: &[u8]) -> bool {
    let is_printable = |text: &str| !text.chars().any(char::is_control);
    !bytes.is_empty() && std::str::from_utf8(bytes).is_ok_and(is_printable)
}

/// Whether properties of version 5 fill these bytes.
fn ends_with_properties(bytes: &[u8]) -> bool {
    behind_properties(bytes).is_some_and(<[u8]>::is_empty)
}

/// Whether these bytes are nothing, or a reason code with properties or without.
fn is_reason(bytes: &[u8]) -> bool {
    bytes.split_first().is_none_or(|(&code, behind)| {
        reason::is_known(code) && (behind.is_empty() || ends_with_properties(behind))
    })
}

/// The version that the body of a CONNECT names.
pub(super) fn version(body: &[u8]) -> Option<Version> {
    let (name, behind) = string(body)?;
    // A bridge sets the highest bit.
    let level = behind.first()? & 0x7f;
    // The lowest bit of the flags is reserved from 3.1.1 on.
    let flags = behind.get(1)?;
    match (name, level) {
        (b"MQIsdp", 3) => Some(Version::Three),
        (b"MQTT", 4) if flags & 1 == 0 => Some(Version::Three),
        (b"MQTT", 5) if flags & 1 == 0 => Some(Version::Five),
        _ => None,
    }
}

/// Whether a client begins so.
pub(super) fn is_connect(bytes: &[u8]) -> bool {
    read(Side::Client, bytes).is_ok_and(|packet| packet.kind == CONNECT && version(packet.body).is_some())
}

/// Whether the bytes are packets of the side up to their end; the last one may be a PUBLISH whose message goes on.
pub(super) fn are_packets(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let packet = match read(side, rest) {
            Ok(packet) => packet,
            // A head that goes on, behind a packet.
            Err(Length::More) => return rest.len() < bytes.len(),
            Err(_) => return false,
        };
        let is_begun = !packet.is_whole && rest.len() < bytes.len();
        if !packet.is_sound() && !is_begun {
            return false;
        }
        rest = usize::try_from(packet.length).ok().and_then(|length| rest.get(length..)).unwrap_or_default();
    }
    !bytes.is_empty()
}
