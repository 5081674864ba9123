//! Send policies: when responses leave (the paper, "Nagle's Algorithm"). Decisions without I/O and without a clock:
//! whoever serves tells what happens, and is told what to do. The target and the simulator share them.

#![forbid(unsafe_code)]

pub mod adaptive;
pub mod auto;
pub mod busy;
pub mod control;
pub mod send_mode;
mod send_policy;

pub use adaptive::Adaptive;
pub use busy::BusyCount;
pub use control::SendControl;
pub use send_mode::{Hold, SendMode};
pub use send_policy::SendPolicy;
