//! The study, the main job: a wire, a target, a load, a capture, and the breakdown of every point.

#![forbid(unsafe_code)]

pub mod accounts;
pub mod error;
pub mod experiment;
pub mod machine;
mod place;
pub mod plan;
mod point;
pub mod result;
pub mod runner;

pub use error::StudyError;
pub use experiment::{Experiment, ExperimentResult};
pub use plan::Plan;
pub use result::{Observation, Series, StudyResult};
pub use runner::{Study, Watcher};
