//! Before against after. A [`Profile`] has the operations of every service in blocks of time: counts, sums of the parts of their time, and
//! the distribution of it; profiles are small, and can be kept. [`Comparison`] says what differs between two by more than noise, and which
//! part of the time carries it. No I/O and no clock.

#![forbid(unsafe_code)]

pub mod assertion;
pub mod bench;
pub mod comparison;
mod noise;
pub mod profile;
pub mod repeats;
pub mod text;

pub use comparison::Comparison;
pub use profile::{OTHERS, Profile};
pub use repeats::Repeats;
