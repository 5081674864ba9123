//! The record of one operation, and the vocabulary of its round trip.
//!
//! One session is a closed ring of stages with exactly QD operations in it. This crate holds the record of one
//! operation ([`Op`]), names the stages, and does the arithmetic about both. It does no I/O and reads no clock.
//!
//! Source of the model: D. A. Butterfield, "iSCSI-SCST Usermode Read Performance Model", 2017 (called "the
//! paper" below).

#![forbid(unsafe_code)]

pub mod exchange;
pub mod join;
pub mod kernel;
pub mod latency;
pub mod op;
pub mod split;
pub mod stage;
pub mod stall;
pub mod units;
pub mod verb;
pub mod wire;
pub mod writes;

pub use exchange::{Exchange, Observed, Passage};
pub use join::{Hole, HoleReason, Joined, join};
pub use kernel::{KernelEvent, KernelEventKind, Softirq};
pub use op::{Op, OpKind, Side, Stamp};
pub use split::{Split, StartLatencies};
pub use stage::{CpuSharing, Place, ServiceTimes, Term};
pub use stall::{Conduct, ConnectionFacts, Opened, Stall, StallKind, StallSet};
pub use verb::{Outcome, Verb};
pub use wire::Wire;
pub use writes::Writes;
