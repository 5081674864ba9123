//! The initiator: a client for any iSCSI target, and the closed-loop load generator on top of it.

pub mod bench;
pub mod commands;
pub mod error;
mod login;
mod parts;
pub mod session;
pub mod url;
pub mod verify;
pub mod workload;

pub use bench::{Bench, BenchSpec, OnLoss, Phase};
pub use error::InitiatorError;
pub use login::{Login, LoginSpec, MUTUAL_SECRET_VARIABLE, SECRET_VARIABLE};
pub use session::{Session, SessionOptions};
pub use url::IscsiUrl;
pub use workload::{BlockShare, Distribution, Workload};
