//! One end of a TCP connection: its send and receive rules as a state machine. Bytes are counted, not held: a position is
//! an offset into the stream.

mod congestion;
mod endpoint;
mod hold;
mod reassembly;
#[cfg(test)]
mod tests;

pub use endpoint::{Endpoint, More, Options, ReceivedOffsets, SentOffsets};
pub use hold::{HOLDS, Held, Hold};

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its first byte in the sender's stream.
    pub seq: u64,
    /// Payload, bytes.
    pub bytes: u32,
    /// Acknowledgement: the first missing offset of the other stream.
    pub ack: u64,
    /// Right edge of the window: the first offset of the other stream that is not accepted.
    pub edge: u64,
    /// PSH: it ends with the last byte written so far.
    pub push: bool,
    /// It was sent before; without payload it is a window probe.
    pub retransmitted: bool,
}

impl Segment {
    /// Offset after its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.seq + u64::from(self.bytes)
    }
}
