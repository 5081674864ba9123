//! The wire: two network namespaces joined by a shaped cable.
//!
//! A study's namespaces have no name: they exist as long as this program holds them, so that nothing is left behind after
//! any end, also SIGKILL. Those of a [`NamedWire`] exist until it is taken down. Nothing of the host is changed except the
//! named cards.

#![forbid(unsafe_code)]

mod cable;
mod crossing;
mod error;
mod interrupts;
mod named;
mod namespace;
mod nat;
mod nic;
mod offloads;
mod state;
mod tools;

pub use cable::{Cable, CableConfig, End, QueueCpus};
pub use crossing::Crossing;
pub use error::WireError;
pub use interrupts::Interrupt;
pub use named::{NamedWire, STATE_FOLDER, WireRecord};
pub use namespace::Namespace;
pub use nat::{NatPlan, nat_plan};
pub use nic::Nic;
pub use state::EndState;
