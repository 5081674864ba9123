//! HTTP/1.1, as much of it as an experiment needs: a server that takes what is posted and gives bodies of any size, and
//! a client that posts or gets again and again on one connection.

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
