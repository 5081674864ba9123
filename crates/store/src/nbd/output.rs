//! What a connection is to send.

use std::collections::VecDeque;

/// A part of the output that is as long is appended to no more.
pub(super) const PART_BYTES: usize = 64 << 10;

/// What is to be sent, in order.
#[derive(Default)]
pub(super) struct Output {
    pub(super) parts: VecDeque<Part>,
    /// Bytes of the first part that are sent.
    pub(super) sent: usize,
}

pub(super) enum Part {
    Bytes(Vec<u8>),
    /// The data of the piece in this slot.
    Data(u32),
}

impl Output {
    /// The bytes that others are appended to.
    pub(super) fn tail(&mut self) -> &mut Vec<u8> {
        // A part is freed when all of it is sent: with a slow server one that is appended to without end never is.
        let has_room = matches!(self.parts.back(), Some(Part::Bytes(bytes)) if bytes.len() < PART_BYTES);
        if !has_room {
            self.parts.push_back(Part::Bytes(Vec::new()));
        }
        match self.parts.back_mut() {
            Some(Part::Bytes(bytes)) => bytes,
            _ => unreachable!("it was appended"),
        }
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.sent = 0;
    }
}
