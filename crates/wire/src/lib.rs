//! The wire: two network namespaces joined by a shaped cable.
//!
//! The namespaces have no name: they live as long as this program holds them, so that nothing is left behind
//! however it ends, also by SIGKILL. Nothing of the host is touched.

#![forbid(unsafe_code)]

mod cable;
mod error;
mod namespace;
mod tools;

pub use cable::{Cable, CableConfig, End};
pub use error::WireError;
pub use namespace::Namespace;
