//! Frames (RFC 9113 4 and 6), and how to find them where the capture begins in the middle of a connection.

use record::Side;

use super::hpack::{Head, Table};

/// What a client sends first (RFC 9113 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame's header.
pub(super) const HEADER: usize = 9;
/// Longest payload, unless the receiver has allowed more.
pub(super) const PAYLOAD_MAX: u32 = 16 << 10;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 0x1;
pub(super) const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

/// A number of up to four bytes.
pub(super) fn number(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).fold(0, |sum, &byte| sum << 8 | u32::from(byte))
}

impl Header {
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER] = bytes.first_chunk()?;
        let [a, b, c, kind, flags, stream @ ..] = *bytes;
        Some(Self { length: number(&[a, b, c]), kind, flags, stream: number(&stream) })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Whether the specification allows it from a side.
    pub(super) fn is_valid(&self, side: Side) -> bool {
        // The first bit is reserved, and no implementation sets it.
        if self.stream >> 31 != 0 {
            return false;
        }
        let is_of_stream = self.stream != 0;
        match self.kind {
            DATA | HEADERS | CONTINUATION => is_of_stream,
            PRIORITY => is_of_stream && self.length == 5,
            RST_STREAM => is_of_stream && self.length == 4,
            SETTINGS => {
                !is_of_stream && self.length.is_multiple_of(6) && (self.length == 0 || !self.has(ACK))
            }
            PUSH_PROMISE => is_of_stream && side == Side::Server && self.length >= 4,
            PING => !is_of_stream && self.length == 8,
            GOAWAY => !is_of_stream && self.length >= 8,
            WINDOW_UPDATE => self.length == 4,
            // Extensions are ignored; the known ones are short.
            _ => self.length <= PAYLOAD_MAX,
        }
    }

    /// Whether it is also one that implementations send: no proof yet.
    fn is_usual(&self, side: Side) -> bool {
        let flags = match self.kind {
            DATA => END_STREAM | PADDED,
            HEADERS => END_STREAM | END_HEADERS | PADDED | WITH_PRIORITY,
            SETTINGS | PING => ACK,
            PUSH_PROMISE => END_HEADERS | PADDED,
            CONTINUATION => END_HEADERS,
            PRIORITY | RST_STREAM | GOAWAY | WINDOW_UPDATE => 0,
            _ => return false,
        };
        let is_of_client = self.stream % 2 == 1 || self.stream == 0;
        self.is_valid(side)
            && self.flags & !flags == 0
            && self.length <= PAYLOAD_MAX
            && (is_of_client || side == Side::Server || self.kind == RST_STREAM)
            && (self.kind != HEADERS || self.length > 0)
    }
}

/// The fragment of a block of fields in a frame's payload, without padding and priority, and the promised stream.
pub(super) fn fragment<'a>(header: &Header, payload: &'a [u8]) -> Option<&'a [u8]> {
    let mut rest = payload;
    if header.kind != CONTINUATION && header.has(PADDED) {
        let (&padding, behind) = rest.split_first()?;
        rest = behind.get(..behind.len().checked_sub(usize::from(padding))?)?;
    }
    match header.kind {
        HEADERS if header.has(WITH_PRIORITY) => rest.get(5..),
        PUSH_PROMISE => rest.get(4..),
        _ => Some(rest),
    }
}

/// The data of a DATA frame that has all its bytes, as far as it is kept.
pub(super) fn data<'a>(header: &Header, payload: &'a [u8]) -> &'a [u8] {
    if !header.has(PADDED) {
        return payload;
    }
    let Some((&padding, rest)) = payload.split_first() else { return &[] };
    rest.len().checked_sub(usize::from(padding)).and_then(|length| rest.get(..length)).unwrap_or_default()
}

/// The settings of a payload.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> {
    payload.chunks_exact(6).map(|one| (number(&one[..2]) as u16, number(&one[2..])))
}

/// A sum of [`proof`]s that is enough to take bytes for a connection of the protocol.
pub(super) const CERTAIN: u32 = 3;
/// A sum that is enough where the connection is known to be one.
pub(super) const LIKELY: u32 = 2;

/// How strongly a segment shows that it begins with frames: those that it holds must all be usual, and one must follow another.
/// `is_open` tells streams that are known.
pub(super) fn proof(side: Side, segment: &[u8], is_open: impl Fn(u32) -> bool) -> u32 {
    let (mut rest, mut proof) = (segment, 0);
    while let Some(header) = Header::of(rest) {
        if !header.is_usual(side) {
            return 0;
        }
        let after = rest.get(HEADER..).unwrap_or_default();
        let payload = after.get(..header.length as usize);
        let Some(one) = proof_of(side, &header, payload, is_open(header.stream)) else { return 0 };
        proof += one;
        rest = after.get(header.length as usize..).unwrap_or_default();
    }
    proof
}

/// How much one frame proves; none if its payload shows that it is none.
fn proof_of(side: Side, header: &Header, payload: Option<&[u8]>, is_open: bool) -> Option<u32> {
    let Some(payload) = payload else {
        // A header alone: its stream is what is hard to guess.
        return Some(if is_open { LIKELY } else { 0 });
    };
    match header.kind {
        SETTINGS if header.length > 0 => {
            // ENABLE_PUSH is a truth value, and a frame is no longer than 2^24 - 1.
            let is_known = |(id, value): (u16, u32)| match id {
                2 | 8 | 9 => value <= 1,
                4 => value >> 31 == 0,
                5 => (PAYLOAD_MAX..1 << 24).contains(&value),
                _ => id != 0,
            };
            let known = settings(payload).filter(|(id, _)| (1..=9).contains(id)).count();
            (settings(payload).all(is_known) && known > 0).then_some(CERTAIN)
        }
        SETTINGS => Some(1),
        PING => Some(LIKELY),
        RST_STREAM => (number(payload) <= 0xd).then_some(LIKELY),
        WINDOW_UPDATE => (1..1 << 31).contains(&number(payload)).then_some(LIKELY),
        GOAWAY => (number(payload.get(4..).unwrap_or_default()) <= 0xd).then_some(LIKELY),
        HEADERS => proof_of_fields(side, header, payload, is_open),
        _ => Some(if is_open { LIKELY } else { 0 }),
    }
}

fn proof_of_fields(side: Side, header: &Header, payload: &[u8], is_open: bool) -> Option<u32> {
    let fields = fragment(header, payload)?;
    let head = if header.has(END_HEADERS) { Table::default().read(fields)? } else { Head::unseen() };
    let is_request = head.method.is_some() && head.has_scheme;
    let is_proof = match side {
        Side::Client => is_request,
        Side::Server => head.status.is_some() && !head.has_scheme && head.method.is_none(),
    };
    Some(match (is_proof, is_open) {
        (true, _) => CERTAIN,
        (false, true) => LIKELY,
        (false, false) => 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Bytes that are none, also where they begin like small numbers, are not taken for frames.
        #[test]
        fn other_data_proves_nothing(
            start in proptest::collection::vec(0_u8..4, 0..12),
            rest in proptest::collection::vec(any::<u8>(), 0..200),
            side: bool,
        ) {
            let side = if side { Side::Client } else { Side::Server };
            let bytes = [start, rest].concat();
            // A frame of settings or a window's update may come about, with its zeros; nothing else does.
            let is_control = Header::of(&bytes).is_some_and(|header| header.stream == 0);
            prop_assert!(proof(side, &bytes, |_| false) < CERTAIN || is_control, "{bytes:x?}");
        }
    }

    #[test]
    fn other_protocols_prove_nothing() {
        let zeros = [0; 100];
        let postgres = b"\0\0\0\x08\x04\xd2\x16\x2f";
        let kafka = b"\0\0\0\x1f\0\x12\0\x03\0\0\0\x01\0\x07rdkafka\0\0\x0aconfluent";
        let mysql = b"\x4a\0\0\0\x0a8.0.36\0\x08\0\0\0";
        let iscsi =
            [&[0x01, 0xc1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1][..], &zeros[..28]].concat();
        let nop = [&[0x40, 0x80, 0, 0, 0, 0, 0, 0][..], &zeros[..40]].concat();
        let dns = b"\0\x1d\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01";
        let smb = b"\0\0\0\x54\xfeSMB\x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let all: [&[u8]; 11] = [
            &zeros,
            postgres,
            kafka,
            mysql,
            &iscsi,
            &nop,
            dns,
            smb,
            b"220 mail ESMTP\r\n",
            b"NICK a\r\nUSER b\r\n",
            b"HTTP/1.1 200 OK\r\n\r\n",
        ];
        for bytes in all {
            for side in [Side::Client, Side::Server] {
                assert_eq!(proof(side, bytes, |_| true), 0, "{bytes:x?}");
            }
        }
    }
}
