//! The wire: two network namespaces joined by a shaped cable.
//!
//! A study's namespaces have no name: they live as long as this program holds them, so that nothing is left behind
//! however it ends, also by SIGKILL. Those of a [`NamedWire`] stay until they are taken down. Nothing of the host is
//! touched but the cards that somebody names.

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

pub use cable::{Cable, CableConfig, End};
pub use crossing::Crossing;
pub use error::WireError;
pub use interrupts::Interrupt;
pub use named::{NamedWire, STATE_FOLDER, WireRecord};
pub use namespace::Namespace;
pub use nat::{NatPlan, nat_plan};
pub use nic::Nic;
pub use state::EndState;
