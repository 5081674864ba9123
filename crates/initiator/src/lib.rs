//! The initiator: a client for any iSCSI target, and the closed-loop load generator on top of it.

#![forbid(unsafe_code)]

pub mod bench;
pub mod commands;
pub mod error;
pub use record::latency;
mod parts;
pub mod session;
pub mod url;
pub mod verify;
pub mod workload;

pub use bench::{Bench, BenchSpec, Phase, RunResult, Submit};
pub use error::InitiatorError;
pub use session::{Session, SessionOptions};
pub use url::IscsiUrl;
pub use workload::{Pattern, Workload};
