//! Frames of AMQP 0-9-1, and what tells them from other bytes.

use record::Side;

use super::super::Length;
use super::method;

/// What a client begins a connection with.
pub(super) const PREAMBLE: &[u8] = b"AMQP\0\0\x09\x01";
/// Bytes of a frame before its payload, and with its last one.
const HEAD: usize = 7;
pub(super) const AROUND: u64 = 8;
/// The last byte of a frame.
const END: u8 = 0xce;
/// Longest payload: brokers agree on 128 KiB.
const PAYLOAD_MAX: u32 = 16 << 20;

/// Types of frames.
pub(super) const METHOD: u8 = 1;
pub(super) const HEADER: u8 = 2;
pub(super) const BODY: u8 = 3;
const HEARTBEAT: u8 = 8;

/// A frame, as far as it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame<'a> {
    pub(super) kind: u8,
    pub(super) channel: u16,
    pub(super) payload: &'a [u8],
    /// All bytes of its payload.
    pub(super) size: u32,
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

/// The frame that begins here.
pub(super) fn read(bytes: &[u8]) -> Result<Frame<'_>, Length> {
    let &[kind, c0, c1, s0, s1, s2, s3] = bytes.first_chunk::<HEAD>().ok_or(Length::More)?;
    let (channel, size) = (u16::from_be_bytes([c0, c1]), u32::from_be_bytes([s0, s1, s2, s3]));
    let is_possible = match kind {
        METHOD => size >= 4,
        // Class, weight, length of the body and flags.
        HEADER => size >= 14 && channel > 0,
        BODY => channel > 0,
        HEARTBEAT => (channel, size) == (0, 0),
        _ => false,
    };
    let behind = bytes.get(HEAD..).unwrap_or_default();
    let end = behind.get(size as usize);
    if !is_possible || size > PAYLOAD_MAX || end.is_some_and(|&end| end != END) {
        return Err(Length::Invalid);
    }
    Ok(Frame { kind, channel, payload: behind.get(..size as usize).unwrap_or(behind), size })
}

/// Whether a frame of a side, which is all there, holds what its type says.
fn is_sound(side: Side, frame: &Frame<'_>) -> bool {
    match frame.kind {
        METHOD => method::of(frame.payload).is_some_and(|method| method::may_send(side, method)),
        HEADER => u16_at(frame.payload, 0) == Some(60) && u16_at(frame.payload, 2) == Some(0),
        _ => true,
    }
}

/// Whether the bytes are frames of the side up to their end, of which at least the first is all there; and whether a method is
/// among them.
pub(super) fn are_frames(side: Side, bytes: &[u8]) -> Option<bool> {
    let mut rest = bytes;
    let mut has_method = false;
    while !rest.is_empty() {
        let frame = match read(rest) {
            Ok(frame) => frame,
            Err(Length::More) if rest.len() < bytes.len() => break,
            Err(_) => return None,
        };
        let Some(behind) = rest.get(HEAD + frame.size as usize + 1..) else {
            if rest.len() == bytes.len() {
                return None;
            }
            break;
        };
        if !is_sound(side, &frame) {
            return None;
        }
        has_method |= frame.kind == METHOD;
        rest = behind;
    }
    (!bytes.is_empty()).then_some(has_method)
}
