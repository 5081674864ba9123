//! The messages of a side: when they are complete, and whether they came as a train of small segments.

use record::Side;

use super::{After, Half, Tcp};
use crate::follow::MessageState;
use crate::packet::At;

/// A message in more segments than this multiple of the necessary number is a train of small ones.
const TRAIN_FACTOR: u64 = 4;
/// Shortest train, segments.
const TRAIN_MIN: u64 = 8;

/// The messages of a side since all were complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sending {
    pub(super) segments: u64,
    pub(super) bytes: u64,
    /// When the first segment passed.
    pub(super) first: At,
    /// Segments that came too late to be gathered with the one before.
    pub(super) apart: u64,
}

/// No request of any protocol is shorter, bytes: a word and the end of a line.
const REQUEST_BYTES: u64 = 4;
/// Segments of so few bytes on average are fields of a request rather than requests, which have a header or a command.
const FIELD_BYTES: u64 = 8;

impl Tcp {
    /// Updates the state after the application has seen the segment.
    #[inline]
    pub(crate) fn after(&mut self, side: Side, at: At, application: After) {
        let After { message, completed, owes } = application;
        let half = &mut self.halves[side as usize];
        half.last.message = Some(message);
        half.owes = owes;
        if completed > 0 {
            let sent = std::mem::take(&mut half.message);
            half.sent(sent, completed, at);
        }
        match message {
            MessageState::Nothing | MessageState::Unknown => {
                if let Some(since) = half.sending_since.take() {
                    half.conduct.sending_ns =
                        half.conduct.sending_ns.saturating_add(at.ns.saturating_sub(since));
                }
            }
            MessageState::Header | MessageState::Part => {
                half.sending_since.get_or_insert(at.ns);
            }
        }
    }

    /// A side's turn has ended, because its peer began one: all that the side sent was one message, or several whose bounds are
    /// unknown.
    #[inline]
    pub(crate) fn turned(&mut self, side: Side, at: At) {
        let request_bytes = self.halves[side.peer() as usize].turn_bytes;
        let half = &mut self.halves[side as usize];
        let sent = std::mem::take(&mut half.message);
        half.turn_bytes = sent.bytes;
        let last = half.last.at;
        // Had its segments been requests of their own, the first would have been answered before the last had left; but a server
        // may also wake up late, and find them all.
        let lasted_ns = last.ns.saturating_sub(sent.first.ns);
        let is_one = match side {
            Side::Client => {
                sent.bytes <= sent.segments.saturating_mul(FIELD_BYTES)
                    && lasted_ns > 2 * at.ns.saturating_sub(last.ns)
            }
            // They may be answers to as many requests, if that many fit into what was asked.
            Side::Server => request_bytes > 0 && sent.segments.saturating_mul(REQUEST_BYTES) > request_bytes,
        };
        if is_one {
            half.sent(sent, 1, last);
        } else {
            half.conduct.messages += 1;
        }
    }
}

impl Half {
    /// Counts messages that are complete, and whether they came as a train of small segments; `last` is when the last one passed.
    fn sent(&mut self, sent: Sending, completed: u64, last: At) {
        let Sending { segments, bytes, first, apart } = sent;
        // No segment is larger than the peer's window.
        let window = self.conduct.window_max_bytes;
        let full = if self.window_known && window > 0 {
            self.full_segment().min(window)
        } else {
            self.full_segment()
        };
        let needed = bytes.div_ceil(u64::from(full.max(1)));
        let conduct = &mut self.conduct;
        conduct.messages += completed;
        if segments >= TRAIN_MIN && segments >= TRAIN_FACTOR * needed.max(completed).max(apart) {
            if conduct.trains == 0 {
                conduct.train_frames = [first.frame, last.frame];
            }
            conduct.trains += 1;
            conduct.train_segments += segments;
            conduct.train_bytes += bytes;
            conduct.train_ns = conduct.train_ns.saturating_add(last.ns.saturating_sub(first.ns));
        }
    }
}
