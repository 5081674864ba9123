//! Load: the initiator for iSCSI targets, a client for HTTP servers, copies in bulk; and the servers of what is not
//! iSCSI. Each side's socket and way of writing can be chosen, which is what experiments are about.
//!
//! Whatever is driven, a run comes to a [`RunResult`].

#![forbid(unsafe_code)]

mod accept;
pub mod copy;
mod endpoint;
pub mod http;
pub mod initiator;
mod pace;
mod pattern;
mod result;
pub mod ring_of_messages;
mod writes;

pub use accept::{Limits, PROGRESS_BYTES};
pub use copy::{CopyResult, CopySpec};
pub use endpoint::EndpointOptions;
pub use http::HttpServer;
pub use pace::Pace;
pub use pattern::{Pattern, Submit};
pub use result::RunResult;
pub use ring_of_messages::{Exchanges, Load};
pub use writes::write;
