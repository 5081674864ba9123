//! One way to send: what a policy chooses among.

/// How responses are sent at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// How long responses wait for each other here.
    pub hold: Hold,
    /// The kernel's Nagle algorithm is on; what it holds back is flushed when the thread goes idle.
    pub nagle: bool,
}

/// How long responses wait for each other before they leave in one send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Not at all: one send for each response.
    None,
    /// Until so many are there, or the bytes that one receive brought are used up.
    Count(u32),
    /// Until the bytes that one receive brought are used up.
    Chunk,
    /// Until nothing more can be received.
    Drain,
}

impl Manner {
    /// One send for each response, Nagle off.
    pub const NODELAY: Self = Self { hold: Hold::None, nagle: false };
    /// One send for each response, Nagle on.
    pub const NAGLE: Self = Self { hold: Hold::None, nagle: true };
    /// One send for all that can be answered.
    pub const BATCH: Self = Self { hold: Hold::Drain, nagle: false };
    /// One send for what a receive brought.
    pub const CHUNK: Self = Self { hold: Hold::Chunk, nagle: false };
}
