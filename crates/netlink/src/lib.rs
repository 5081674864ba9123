//! Links, routes, network cards and sockets as the kernel knows them, over netlink.
//!
//! A thin edge: blocking requests, and pure parsing of their answers into plain values.

#![forbid(unsafe_code)]

pub mod sock_diag;
