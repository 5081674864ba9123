//! One way to send: what a policy chooses among.

/// How responses are sent at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendMode {
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
    /// Until this fraction of the peer's requests in flight is answered (2: half of them), or the data of one receive is
    /// used up: the peer processes one part while the next is made.
    Part(u32),
    /// Until nothing more can be received.
    Drain,
}

impl SendMode {
    /// One send for each response, Nagle off.
    pub const NODELAY: Self = Self { hold: Hold::None, nagle: false };
    /// One send for each response, Nagle on.
    pub const NAGLE: Self = Self { hold: Hold::None, nagle: true };
    /// One send for all responses until nothing can be received.
    pub const BATCH: Self = Self { hold: Hold::Drain, nagle: false };
    /// One send for a fraction of the peer's requests in flight.
    #[must_use]
    pub const fn part(of: u32) -> Self {
        Self { hold: Hold::Part(of), nagle: false }
    }
}
