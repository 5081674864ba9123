//! Frames and headers (MS-SMB2 2.1, 2.2.1).

use record::Side;

/// Bytes of a frame's header, and of the mark of what is in it.
pub(super) const FRAME: usize = 4;
pub(super) const MAGIC: usize = 4;
/// Bytes of a message's header, and of one of SMB 1.
pub(super) const LENGTH: usize = 64;
pub(super) const SMB_1: usize = 32;
/// Bytes before what is in a compressed message.
const COMPRESSION: usize = 16;
/// A packet that opens a session over NetBIOS (RFC 1002 4.3.1), what answers it, and one that keeps it alive.
pub(super) const SESSION_REQUEST: u8 = 0x81;
const SESSION_ANSWERS: std::ops::RangeInclusive<u8> = 0x82..=0x84;
const KEEP_ALIVE: u8 = 0x85;
/// The command of SMB 1 that negotiates.
const NEGOTIATE_1: u8 = 0x72;

/// Flags of a header.
const RESPONSE: u32 = 1;
const ASYNC: u32 = 2;
const RELATED: u32 = 4;
/// Those that have a meaning: also signed, a priority, DFS and replay.
const FLAGS: u32 = 0x3000_007f;

/// What a frame has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Smb1,
    Smb2,
    Encrypted,
    Compressed,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// The length of the messages in a frame.
pub(super) fn frame(bytes: &[u8]) -> Option<usize> {
    let &[0, a, b, c] = bytes.first_chunk()? else { return None };
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    (length >= SMB_1).then_some(length)
}

/// The length of a packet of NetBIOS that has no message.
pub(super) fn session(bytes: &[u8]) -> Option<u64> {
    let &[kind, a, b, c] = bytes.first_chunk()?;
    let length = u64::from(u32::from_be_bytes([0, a, b, c]));
    let is_sound = match kind {
        SESSION_REQUEST => (2..=512).contains(&length),
        KEEP_ALIVE => length == 0,
        kind => SESSION_ANSWERS.contains(&kind) && length <= 6,
    };
    is_sound.then_some(FRAME as u64 + length)
}

/// What the message at hand is.
pub(super) fn kind(message: &[u8]) -> Option<Kind> {
    match *message.first_chunk::<MAGIC>()? {
        [0xff, b'S', b'M', b'B'] => Some(Kind::Smb1),
        [0xfe, b'S', b'M', b'B'] => Some(Kind::Smb2),
        [0xfd, b'S', b'M', b'B'] => Some(Kind::Encrypted),
        [0xfc, b'S', b'M', b'B'] => Some(Kind::Compressed),
        _ => None,
    }
}

/// Whether a message of SMB 1 negotiates.
pub(super) fn is_negotiation(message: &[u8]) -> bool {
    message.get(MAGIC) == Some(&NEGOTIATE_1)
}

pub(super) fn status_of_smb_1(message: &[u8]) -> u32 {
    u32_at(message, 5).unwrap_or_default()
}

/// Whether a negotiation of SMB 1 offers SMB 2, by the name `SMB 2.002` or `SMB 2.???`.
pub(super) fn negotiates_from_smb_1(message: &[u8]) -> bool {
    let offers = || message.windows(7).any(|name| name == b"\x02SMB 2.");
    kind(message) == Some(Kind::Smb1) && is_negotiation(message) && offers()
}

/// The header of SMB 2 in a compressed message (MS-SMB2 2.2.42), if what is compressed begins behind it: the first part of the message
/// is as it was, or the first payload of a chain is.
pub(super) fn before_compressed(message: &[u8]) -> Option<&[u8]> {
    let (algorithm, flags, length) = (u16_at(message, 8)?, u16_at(message, 10)?, u32_at(message, 12)?);
    let is_plain = flags == 0 || algorithm == 0;
    let bytes = message.get(COMPRESSION..)?;
    let bytes = bytes.get(..bytes.len().min(length as usize))?;
    (is_plain && Header::read(bytes).is_some()).then_some(bytes)
}

/// The header of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) command: u16,
    pub(super) status: u32,
    pub(super) id: u64,
    /// Where the next message of the chain begins; none does at 0.
    pub(super) next: u32,
    pub(super) is_related: bool,
    flags: u32,
}

impl Header {
    /// The header that a message begins with, if its fixed fields are right.
    pub(super) fn read(message: &[u8]) -> Option<Self> {
        let flags = u32_at(message, 16)?;
        let header = Self {
            command: u16_at(message, 12)?,
            status: u32_at(message, 8)?,
            id: u64_at(message, 24)?,
            next: u32_at(message, 20)?,
            is_related: flags & RELATED != 0,
            flags,
        };
        let is_sound =
            u16_at(message, 4) == Some(LENGTH as u16) && header.command <= 0x13 && flags & !FLAGS == 0;
        (kind(message) == Some(Kind::Smb2) && is_sound && message.len() >= LENGTH).then_some(header)
    }

    /// Whether the side sends such messages.
    pub(super) fn is_of(&self, side: Side) -> bool {
        (self.flags & RESPONSE != 0) == (side == Side::Server)
    }

    /// Whether its message is within the rest of its frame.
    pub(super) fn fits(&self, left: u64) -> bool {
        let next = u64::from(self.next);
        let is_chained = next >= LENGTH as u64 && next % 8 == 0 && next + LENGTH as u64 <= left;
        left >= LENGTH as u64 && (next == 0 || is_chained)
    }

    /// Whether the side sends this message, of which the first bytes are given, in the rest of a frame.
    pub(super) fn is_sound(&self, side: Side, message: &[u8], left: usize) -> bool {
        // Requests that wait for nothing are not asynchronous, except the one that cancels them.
        let is_async = self.flags & ASYNC != 0;
        let is_plausible = side == Side::Server || !is_async || self.command == super::names::CANCEL;
        // Every body begins with its size.
        let has_body = u16_at(message, LENGTH).is_none_or(|size| (2..=89).contains(&size));
        self.is_of(side) && self.fits(left as u64) && is_plausible && has_body
    }
}
