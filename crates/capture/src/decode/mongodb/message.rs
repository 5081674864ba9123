//! Messages of MongoDB, and what tells them from other bytes.

use record::Side;

use super::super::Length;
use super::bson::{self, Elements, cstring, i32_at};

/// Bytes of a message's header.
pub(super) const HEAD: usize = 16;
/// Longest message: 48 000 000 bytes, and a head.
const MESSAGE_MAX: u32 = 48_000_000 + 16_384;

/// Operation codes.
const REPLY: u32 = 1;
pub(super) const QUERY: u32 = 2004;
pub(super) const GET_MORE: u32 = 2005;
pub(super) const COMPRESSED: u32 = 2012;
pub(super) const MESSAGE: u32 = 2013;

/// Flags of OP_MSG: a checksum ends it, no reply is wanted or another one follows, several replies may come.
const CHECKSUM: u32 = 1;
pub(super) const MORE_TO_COME: u32 = 2;
const EXHAUST: u32 = 1 << 16;

/// A message's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) length: u32,
    pub(super) number: u32,
    /// The request that it answers.
    pub(super) answers: u32,
    pub(super) operation: u32,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    i32_at(bytes, at).map(i32::cast_unsigned)
}

/// The header of a side's message.
pub(super) fn head(side: Side, bytes: &[u8]) -> Result<Head, Length> {
    let field = |at: usize| u32_at(bytes, at).ok_or(Length::More);
    let head = Head { operation: field(12)?, length: field(0)?, number: field(4)?, answers: field(8)? };
    let least = match (side, head.operation) {
        // Flags, a section's kind and an empty document.
        (_, MESSAGE) => 26,
        (_, COMPRESSED) => 25,
        (Side::Server, REPLY) => 36,
        (Side::Client, QUERY) => 35,
        (Side::Client, GET_MORE) => 34,
        // Writes and the end of cursors, which nothing answers.
        (Side::Client, 2001 | 2002 | 2006 | 2007) => 24,
        _ => return Err(Length::Invalid),
    };
    let is_of_side = side == Side::Server || head.answers == 0;
    if is_of_side && (least..=MESSAGE_MAX).contains(&head.length) { Ok(head) } else { Err(Length::Invalid) }
}

/// The flags of OP_MSG.
pub(super) fn flags(body: &[u8]) -> u32 {
    u32_at(body, 0).unwrap_or_default()
}

/// Whether OP_QUERY is to the collection of commands.
pub(super) fn is_command(body: &[u8]) -> bool {
    body.get(4..).and_then(cstring).is_some_and(|(name, _)| name.ends_with(b".$cmd"))
}

/// Where the document of a message begins in its body: a command, or the first of what is returned.
fn place(head: &Head, body: &[u8]) -> Option<usize> {
    match head.operation {
        MESSAGE => {
            let mut at = 4;
            loop {
                match body.get(at)? {
                    0 => return Some(at + 1),
                    // A sequence of documents.
                    1 => at = at.checked_add(1 + usize::try_from(i32_at(body, at + 1)?).ok()?)?,
                    _ => return None,
                }
            }
        }
        REPLY => Some(20),
        QUERY => {
            let (name, _) = cstring(body.get(4..)?)?;
            // Numbers of those to skip and to return.
            Some(4 + name.len() + 1 + 8)
        }
        _ => None,
    }
}

/// The document of a message.
pub(super) fn document<'a>(head: &Head, body: &'a [u8]) -> Option<Elements<'a>> {
    bson::elements(body.get(place(head, body)?..)?)
}

/// Whether a message with this header begins so, with what only MongoDB has at these places.
fn is_sound(side: Side, head: &Head, body: &[u8]) -> bool {
    if (head.answers == 0) == (side == Side::Server) {
        return false;
    }
    let length = u64::from(head.length) - HEAD as u64;
    let has_document = || {
        let place = place(head, body);
        place.is_some_and(|at| {
            let room = length.saturating_sub(at as u64);
            body.get(at..).is_some_and(|document| bson::is_document(document, room))
        })
    };
    match head.operation {
        MESSAGE => flags(body) & !(CHECKSUM | MORE_TO_COME | EXHAUST) == 0 && has_document(),
        QUERY => {
            let is_name = |name: &[u8]| name.contains(&b'.') && name.iter().all(u8::is_ascii_graphic);
            body.get(4..).and_then(cstring).is_some_and(|(name, _)| is_name(name)) && has_document()
        }
        REPLY => {
            let has_none = i32_at(body, 16) == Some(0) && length == 20;
            has_none || i32_at(body, 16).is_some_and(|count| count > 0) && has_document()
        }
        COMPRESSED => {
            let is_known = matches!(u32_at(body, 0), Some(REPLY | QUERY | MESSAGE));
            let is_size = u32_at(body, 4).is_some_and(|size| size <= MESSAGE_MAX);
            is_known && is_size && body.get(8).is_some_and(|&compressor| compressor <= 3)
        }
        _ => false,
    }
}

/// Whether the bytes are messages of a side up to their end, as far as they are there.
pub(super) fn are_messages(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while !rest.is_empty() {
        let is_behind = rest.len() < bytes.len();
        let head = match head(side, rest) {
            Ok(head) => head,
            Err(Length::More) => return is_behind,
            Err(_) => return false,
        };
        let is_whole = rest.len() >= head.length as usize;
        if !is_sound(side, &head, rest.get(HEAD..).unwrap_or_default()) && (is_whole || !is_behind) {
            return false;
        }
        rest = rest.get(head.length as usize..).unwrap_or_default();
    }
    !bytes.is_empty()
}
