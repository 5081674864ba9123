//! The paper's six quantities of single operations over real time, from any record of operations: a study, a capture, a
//! simulation.
//!
//! [`Run`] takes operations one by one in bounded memory. [`page()`] draws it: the whole run, closer views, and close-ups in
//! which single operations are visible.

mod axis;
mod choice;
mod legend;
mod page;
mod panel;
mod raster;
mod run;
mod summary;

pub(crate) use axis::time;
pub use page::{Origin, Subject, page};
pub use run::Run;

use record::{Observed, Op, Split};

use crate::scene::Colour;

/// A time interval of an operation, in the paper's colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Quantity {
    /// C2-C1: outside the client, green.
    OutsideClient,
    /// S2-S1: inside the server, cyan.
    Server,
    /// The difference of these two, orange: the network in both directions.
    Network,
    /// Inside the client, magenta.
    Client,
    /// S1-C1, red: the request's path.
    Request,
    /// C2-S2, blue: the response's path.
    Response,
}

impl Quantity {
    /// Number of quantities.
    pub const COUNT: usize = 6;

    /// All, in the order in which they are drawn: later ones are on top.
    pub const ALL: [Quantity; Quantity::COUNT] = [
        Quantity::OutsideClient,
        Quantity::Server,
        Quantity::Network,
        Quantity::Client,
        Quantity::Request,
        Quantity::Response,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::OutsideClient => "outside the client",
            Self::Server => "inside the server",
            Self::Network => "network",
            Self::Client => "inside the client",
            Self::Request => "request path",
            Self::Response => "response path",
        }
    }

    /// Its formula.
    #[must_use]
    pub fn formula(self) -> &'static str {
        match self {
            Self::OutsideClient => "C2-C1",
            Self::Server => "S2-S1",
            Self::Network => "(C2-C1)-(S2-S1)",
            Self::Client => "RTT-(C2-C1)",
            Self::Request => "S1-C1",
            Self::Response => "C2-S2",
        }
    }

    /// Its name in attributes of a picture.
    #[must_use]
    pub fn key(self) -> &'static str {
        match self {
            Self::OutsideClient => "outside_client",
            Self::Server => "server",
            Self::Network => "network",
            Self::Client => "client",
            Self::Request => "request",
            Self::Response => "response",
        }
    }

    /// Its colour.
    #[must_use]
    pub(crate) fn colour(self) -> Colour {
        match self {
            Self::OutsideClient => Colour(0, 140, 0),
            Self::Server => Colour(0, 172, 205),
            Self::Network => Colour(255, 145, 0),
            Self::Client => Colour(225, 0, 225),
            Self::Request => Colour(225, 20, 20),
            Self::Response => Colour(30, 60, 235),
        }
    }
}

/// How the stamps of client and server relate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clocks {
    /// One clock stamped both sides: their stamps may be subtracted.
    Shared,
    /// Each side has its own.
    Apart,
}

/// An operation's quantities and the time at which it began.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// Its first stamp, nanoseconds since the epoch.
    pub(crate) at_ns: u64,
    /// The quantities, microseconds; NaN where a stamp is missing.
    values: [f32; Quantity::COUNT],
}

impl Timed {
    /// The quantities of an operation with the client's stamps, or the server's alone; `None` without any stamp.
    #[must_use]
    pub fn of(op: &Op, clocks: Clocks) -> Option<Self> {
        let at_ns = op.start.ns().or(op.c1.ns()).or(op.s1.ns())?;
        let split = Split::of(op, clocks == Clocks::Shared);
        Some(Self::new(
            at_ns,
            [
                split.outside_ns,
                split.server_ns,
                split.network_ns,
                split.client_ns,
                split.request_path_ns,
                split.response_path_ns,
            ],
        ))
    }

    /// The quantities of a captured operation. Packets do not show the begin and the end of the client's work; its time is that
    /// from an earlier response to the request that took its place, if the capture is of the client's side.
    #[must_use]
    pub fn observed(observed: &Observed) -> Option<Self> {
        let clocks = if observed.shared_clock { Clocks::Shared } else { Clocks::Apart };
        let mut timed = Self::of(&observed.op, clocks)?;
        if let Some(thought_ns) = observed.detail.thought_ns.filter(|_| observed.op.c1.is_known()) {
            timed.values[Quantity::Client as usize] = microseconds(thought_ns.cast_signed());
        }
        Some(timed)
    }

    /// An operation that began at `at_ns`, with its quantities in nanoseconds, in the order of [`Quantity::ALL`].
    #[must_use]
    pub fn new(at_ns: u64, quantities_ns: [Option<i64>; Quantity::COUNT]) -> Self {
        Self { at_ns, values: quantities_ns.map(|ns| ns.map_or(f32::NAN, microseconds)) }
    }

    /// A quantity, microseconds.
    #[inline]
    pub(crate) fn us(&self, quantity: Quantity) -> Option<f32> {
        let us = self.values[quantity as usize];
        (!us.is_nan()).then_some(us)
    }
}

fn microseconds(ns: i64) -> f32 {
    (ns as f64 / 1000.0) as f32
}

#[cfg(test)]
mod tests;
