//! Control of a running target. It listens on a Unix socket and, for metrics alone, on TCP addresses, and speaks JSON over HTTP/1.1
//! (docs/control.md). One thread of its own serves both, beside the data path; what is asked for is carried out by the target's
//! main thread, one request after the other ([`server::Asked`]).

#![forbid(unsafe_code)]

pub mod client;
pub mod events;
pub mod metrics;
pub mod openapi;
pub mod request;
pub mod server;
pub mod view;

pub use request::{Refusal, Reply, Request};
