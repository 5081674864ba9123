//! The live view of a target, or of any service. A [`Sample`] is what a target has counted at one time, from its control socket or its metrics; [`Rates`] is
//! what happened between two of them; [`Traffic`] adds up the operations that packets show; [`View`] draws either on a terminal and handles keys. No I/O and no clock of its own.

#![forbid(unsafe_code)]

pub mod rates;
pub mod sample;
pub mod traffic;
pub mod view;

pub use rates::Rates;
pub use sample::Sample;
pub use traffic::Traffic;
pub use view::{Figures, View};
