//! Send policies: when responses are sent (the paper, "Nagle's Algorithm"). They do no I/O and read no clock: the owner of the
//! socket reports events and gets decisions. The target and the simulator share them.

#![forbid(unsafe_code)]

pub mod adaptive;
pub mod auto;
pub mod busy;
pub mod control;
mod crowd;
pub mod send_mode;
mod send_policy;
mod sending;
mod thread_control;

pub use adaptive::Adaptive;
pub use busy::BusyCount;
pub use control::SendControl;
pub use crowd::{Crowd, Turn};
pub use send_mode::{Hold, SendMode};
pub use send_policy::SendPolicy;
pub use sending::Sending;
pub use thread_control::ThreadControl;
