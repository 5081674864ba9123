//! The record of one operation, and the vocabulary of its round trip.
//!
//! One session is a closed ring of stages with exactly QD operations in it. This crate holds the record of one
//! operation ([`Op`]), names the stages, and does the arithmetic about both. It does no I/O and reads no clock.
//!
//! Source of the model: D. A. Butterfield, "iSCSI-SCST Usermode Read Performance Model", 2017 (called "the
//! paper" below).

#![forbid(unsafe_code)]

pub mod clock_step;
pub mod conduct;
pub mod exchange;
pub mod join;
pub mod kernel;
mod key;
pub mod latency;
pub mod op;
pub mod setup;
mod spacing;
pub mod split;
pub mod stage;
pub mod stall;
mod status;
pub mod ticks;
mod tls;
pub mod units;
pub mod verb;
pub mod wire;
mod word;
pub mod writes;

pub use clock_step::ClockStep;
pub use conduct::{Conduct, Flights, Passed, Queueing, Transit};
pub use exchange::{AnswerError, Chunks, Exchange, Observed, Passage, TimeOrder};
pub use join::{Hole, HoleReason, Joined, join};
pub use kernel::{KernelEvent, KernelEventKind, Softirq};
pub use key::Key;
pub use op::{Op, OpKind, Side, Stamp};
pub use setup::{Greeting, Refusal, Setup};
pub use spacing::{Packets, Regular, Spacing};
pub use split::{Split, StartLatencies};
pub use stage::{CpuSharing, Place, ServiceTimes, Term};
pub use stall::{ConnectionFacts, Opened, Stall, StallKind, StallSet};
pub use status::Status;
pub use ticks::Ticks;
pub use tls::{Encryption, Tls};
pub use verb::{Outcome, Verb};
pub use wire::Wire;
pub use word::Word;
pub use writes::Writes;
