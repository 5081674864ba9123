//! Explains the duration of round trips from op records of any source.

#![forbid(unsafe_code)]

pub mod breakdown;
mod chance;
pub mod clocks;
pub mod closure;
pub mod cost;
pub mod elsewhere;
pub mod ledger;
pub mod legs;
pub mod modes;
pub mod pairing;
pub mod parts;
pub mod predict;
pub mod samples;
pub mod segments;
pub mod service;
pub mod stages;
pub mod stanza;
pub mod traffic;
pub mod verdict;

pub use breakdown::{Breakdown, Joined, Limit, Shares, StanzaInput, TermSource, TermValue};
pub use closure::{Closure, ClosureOutcome, Disturbances, Evidence, Printed};
pub use cost::{CpuCost, PathCost};
pub use ledger::{Excess, Ledger};
pub use parts::{Part, PartFigures};
pub use predict::Prediction;
pub use segments::{SegmentFigures, Segments};
pub use stanza::Stanza;
