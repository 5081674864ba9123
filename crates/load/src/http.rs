//! The subset of HTTP/1.1 that experiments need: a server that discards POST bodies and answers GET with bodies of any
//! size, and a client that repeats POST or GET requests on one connection.

mod client;
mod message;
mod run;
mod server;
mod url;

pub use client::{Client, Request};
pub use message::BODY_MAX;
pub use run::HttpRun;
pub use server::HttpServer;
pub use url::HttpUrl;

#[cfg(test)]
mod tests;
