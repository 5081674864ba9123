//! Links, routes, network cards and sockets as the kernel knows them, over netlink.
//!
//! A thin edge, [`Connection`], sends a request and gathers its answer within limits of size and time. Parsing is apart from it: pure
//! functions over bytes that never panic.

#![forbid(unsafe_code)]

pub mod attributes;
mod connection;
mod error;
pub mod ethtool;
mod generic;
pub mod message;
mod name;
pub mod route;
pub mod sock_diag;

pub use connection::{Connection, LIMIT, Part, Protocol, TIMEOUT};
pub use error::Error;
