//! Properties of a ring besides its stages: think time, interrupt coalescing, slow operations, Nagle's algorithm.

use serde::Serialize;

/// Properties of a ring besides its stages.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct Extras {
    /// Time of the client between an operation's end and its successor, microseconds. Not a stage: operations think
    /// concurrently.
    pub think_us: f64,
    /// Interrupt coalescing.
    pub coalescing: Coalescing,
    /// Slow operations.
    pub slow: Slow,
    /// Nagle's algorithm on the server's socket: it collects responses.
    pub server_collects: Option<Collecting>,
    /// Nagle's algorithm on the client's socket: it collects requests.
    pub client_collects: Option<Collecting>,
}

/// Nagle's algorithm on one side's socket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Collecting {
    /// Bytes of a message.
    pub message_bytes: u64,
    /// Bytes of a full packet.
    pub payload_bytes: u64,
    /// Data that is held back leaves when the side's thread goes idle.
    pub flushes_when_idle: bool,
    /// The peer's delayed ACK, microseconds: it releases what no successor has released by then.
    pub ack_delay_us: f64,
}

impl Extras {
    /// Whether operations pass each other or wait for each other, which only the computation event by event knows.
    #[must_use]
    pub(super) fn need_events(&self) -> bool {
        self.coalescing.is_on()
            || self.slow.is_on()
            || self.server_collects.is_some()
            || self.client_collects.is_some()
    }

    /// Time of an operation outside the stages that is not its own wait for another operation, microseconds, at most.
    #[must_use]
    pub(super) fn delay_us(&self) -> f64 {
        self.think_us + self.slow.mean_us() + self.coalescing.delay_us()
    }
}

/// Interrupt coalescing: arrivals are held for a time or until a group is complete.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Coalescing {
    /// Longest wait of the first arrival of a group, microseconds; 0 is off.
    pub hold_us: f64,
    /// Arrivals that complete a group.
    pub packets: u32,
    /// The side whose network card coalesces.
    pub side: Side,
}

/// One side of the ring, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Responses are held.
    #[default]
    Client,
    /// Requests are held.
    Server,
    /// Both are held.
    Both,
}

impl Default for Coalescing {
    fn default() -> Self {
        Self { hold_us: 0.0, packets: 1, side: Side::Client }
    }
}

impl Coalescing {
    /// Whether it holds any arrival.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.hold_us > 0.0 && self.packets > 1
    }

    /// The longest hold of an operation on its round, microseconds.
    #[must_use]
    pub fn delay_us(&self) -> f64 {
        let sides = if self.side == Side::Both { 2.0 } else { 1.0 };
        if self.is_on() { sides * self.hold_us } else { 0.0 }
    }
}

/// Every n-th operation takes longer: bimodal latency.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct Slow {
    /// One in this many is slow; 0 for none.
    pub every: u32,
    /// Its additional time, microseconds, which occupies no stage.
    pub extra_us: f64,
}

/// Operations of which at least one is slow: a rarer one is no property of a ring that a run of seconds shows.
pub const SLOW_EVERY_MAX: u32 = 100_000;

impl Slow {
    /// Whether any operation is slow.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.every > 0 && self.extra_us > 0.0
    }

    /// The addition to the mean round trip of operations that do not wait for each other, microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.every == 0 { 0.0 } else { self.extra_us / f64::from(self.every) }
    }
}
