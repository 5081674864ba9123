//! A segment that is kept for later.

use crate::packet::{At, Segment};

/// A segment with its bytes, its time and its size.
#[derive(Debug)]
pub(crate) struct HeldSegment {
    head: Segment<'static>,
    options: Vec<u8>,
    payload: Vec<u8>,
    pub(crate) at: At,
    pub(crate) wire_bytes: u32,
}

impl HeldSegment {
    /// Copies a segment.
    pub(crate) fn new(segment: &Segment<'_>, at: At, wire_bytes: u32) -> Self {
        Self {
            head: segment.without_bytes(),
            options: segment.options.to_vec(),
            payload: segment.payload.to_vec(),
            at,
            wire_bytes,
        }
    }

    /// The segment.
    pub(crate) fn segment(&self) -> Segment<'_> {
        Segment { options: &self.options, payload: &self.payload, ..self.head }
    }

    /// Memory of its bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.options.len() + self.payload.len()
    }
}
