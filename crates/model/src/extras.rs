//! Properties of a ring besides its stages: think time, interrupt coalescing, slow operations.

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
}

/// Every n-th operation takes longer: bimodal latency.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct Slow {
    /// One in this many is slow; 0 for none.
    pub every: u32,
    /// Its additional time, microseconds, which occupies no stage.
    pub extra_us: f64,
}

impl Slow {
    /// The addition to the mean round trip of operations that do not wait for each other, microseconds.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.every == 0 { 0.0 } else { self.extra_us / f64::from(self.every) }
    }
}
