//! One end of a TCP connection: its send and receive rules as a state machine. Bytes are counted, not held: a position is
//! an offset into the stream.

mod ack;
mod congestion;
mod endpoint;
mod hold;
mod output;
#[cfg(test)]
mod tests;

pub use endpoint::{Endpoint, Options};
pub use hold::{HOLDS, Held, Hold};

/// A segment on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Offset of its first byte in the sender's stream.
    pub seq: u64,
    /// Payload, bytes.
    pub bytes: u32,
    /// Offset in the other stream of the first byte that has not come.
    pub ack: u64,
    /// First offset of the other stream that is not accepted.
    pub edge: u64,
    /// The end of what was written so far is in it.
    pub push: bool,
    /// It was sent before; without payload it asks for the window.
    pub again: bool,
}

impl Segment {
    /// Offset behind its last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.seq + u64::from(self.bytes)
    }
}
