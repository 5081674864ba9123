//! TCP sockets as the target and the initiator use them: options, kernel stamps, the clock.
//!
//! The one place that reads clocks. Nothing here knows iSCSI.

#![forbid(unsafe_code)]

pub mod clock;
pub mod cpu;
pub mod options;
pub mod stamps;
pub mod tape;

pub use stamps::{StampedReceive, Stamps};
pub use tape::Tape;
