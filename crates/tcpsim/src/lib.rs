//! The ring, packet by packet: a client and a server, each with threads, interrupts, processors and a TCP that keeps the
//! rules of a real one, and a wire between them. What the paper calls "quantum mechanics": below one packet of
//! responses only following each request and each acknowledgement tells the truth.
//!
//! Deterministic: the same [`Setup`] gives the same run to the bit. No I/O, no clock.

#![forbid(unsafe_code)]

pub mod fit;
pub mod op;
pub mod preset;
pub mod profile;
pub mod result;
pub mod setup;
pub mod sweep;
pub mod tcp;
mod world;

pub use op::{Part, SimOp};
pub use profile::Profile;
pub use result::RunResult;
pub use setup::{Setup, SetupError};
pub use world::{Frame, Message, Observer, simulate};

/// A moment or a span, nanoseconds.
pub type Ns = u64;

/// Simulated time begins here, nanoseconds since the Unix epoch, so that stamps look like others: 2017-01-01, the
/// paper's month.
pub const EPOCH_NS: Ns = 1_483_228_800_000_000_000;
