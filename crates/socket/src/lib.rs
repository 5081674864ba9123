//! TCP sockets as the target and the initiator use them: options, kernel stamps, the clock.
//!
//! The only crate that reads clocks. Independent of iSCSI.

#![forbid(unsafe_code)]

pub mod clock;
pub mod cpu;
pub mod foreign;
pub mod options;
pub mod stamps;
pub mod tape;

pub use stamps::{StampedReceive, Stamps};
pub use tape::Tape;
