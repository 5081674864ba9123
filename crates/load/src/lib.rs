//! Load generators: an iSCSI initiator, an HTTP client with its server, and bulk TCP copies with their receiver. Socket
//! options and write modes of both ends are configurable, as experiments vary them.
//!
//! Every kind of run returns a [`RunResult`].

#![forbid(unsafe_code)]

mod accept;
mod arrivals;
pub mod copy;
mod endpoint;
pub mod failure;
pub mod http;
pub mod initiator;
mod pace;
mod pattern;
mod result;
pub mod ring_of_messages;
mod series;
mod threshold;
mod writes;
mod zipf;

pub use accept::{Limits, PROGRESS_BYTES};
pub use arrivals::{Arrival, Arrivals};
pub use copy::{CopyResult, CopySpec};
pub use endpoint::EndpointOptions;
pub use failure::{Failure, FailureClass, Failures};
pub use http::HttpServer;
pub use pace::{Pace, PaceSpec};
pub use pattern::{Pattern, Submit};
pub use result::{Connections, KindResult, Operation, RunResult, Second};
pub use ring_of_messages::{Exchanges, Load};
pub use series::Live;
pub use threshold::{Missed, Threshold};
pub use writes::write;
pub use zipf::Zipf;
