//! The study: a wire, a target, a load, a capture, and the breakdown of every point.
//!
//! [`Study`] measures a ring, [`Experiment`] compares cases; [`AnyPlan`] reads the plan of either, and a [`Journal`] keeps
//! what an interrupted one has measured.

#![forbid(unsafe_code)]

pub mod accounts;
mod agreement;
pub mod busy_cycles;
mod capturing;
pub mod client;
mod congestion;
pub mod elsewhere;
pub mod error;
pub mod experiment;
pub mod interface;
pub mod journal;
pub mod machine;
mod place;
mod placement;
pub mod plan;
mod point;
pub mod remote;
pub mod result;
pub mod runner;
pub mod sides;
pub mod trace;
mod traced;
mod unlimited;
mod values;

pub use error::StudyError;
pub use experiment::{Experiment, ExperimentResult};
pub use journal::{Journal, JournalError, REPORT};
pub use place::{Disturbance, Where};
pub use placement::Placement;
pub use plan::{AnyPlan, Plan};
pub use remote::RemoteSpec;
pub use result::{Observation, StudyResult};
pub use runner::{Study, Watcher};
