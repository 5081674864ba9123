//! The simulator as an opponent of the analysis: random setups of services with and without each cause of slowness, their packets, and
//! how often the analysis names the cause, or one that is not there (docs/accuracy.md).
//!
//! The truth about a cause is a second run of the same setup without it: what it changes is what the cause costs.

#![forbid(unsafe_code)]

pub mod cause;
pub mod draw;
pub mod frames;
pub mod judge;
pub mod plant;
pub mod setup;
pub mod tally;
pub mod world;
