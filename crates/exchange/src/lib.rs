//! Requests and responses that are not iSCSI, both ends of each: HTTP, plain messages of two parts, and bulk copies. Each
//! side's socket and way of writing can be chosen, which is what the experiments are about.

#![forbid(unsafe_code)]

mod accept;
pub mod copy;
mod endpoint;
pub mod http;
mod pace;
pub mod ring_of_messages;
mod writes;

pub use accept::{Limits, PROGRESS_BYTES};
pub use copy::{CopyResult, CopySpec};
pub use endpoint::EndpointOptions;
pub use http::HttpServer;
pub use pace::Pace;
pub use ring_of_messages::{Exchanges, Load};
pub use writes::write;
