//! The ring, packet by packet: a client and a server, each with threads, interrupts, processors and a TCP with the rules
//! of a real one, and a wire between them. The paper calls it "quantum mechanics": below one packet of responses no
//! average describes the ring, and each request and each acknowledgement must be followed.
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
pub use result::{Ending, RunResult};
pub use setup::{Setup, SetupError};
pub use world::{Frame, Message, Observer, simulate};

/// A time or a duration, nanoseconds.
pub type Ns = u64;

/// Begin of simulated time, nanoseconds since the Unix epoch, so that stamps look like measured ones: 2017-01-01, the
/// paper's month.
pub const EPOCH_NS: Ns = 1_483_228_800_000_000_000;
