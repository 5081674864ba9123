//! HTTP/1.1: a load generator for any server, and the server and the client of experiments, which send exactly the messages
//! that an experiment asks for.

mod certificate;
mod chunked;
mod client;
mod connection;
mod engine;
mod failure;
mod message;
mod records;
mod request;
mod response;
mod run;
mod server;
mod tally;
mod tls;
mod transport;
mod url;

pub use client::{Client, Request};
pub use failure::HttpFailure;
pub use message::BODY_MAX;
pub use request::{Body, Header, HttpRequest, Method, RequestError};
pub use response::{FIELDS_MAX, Fed, HEAD_MAX, INTERIM_MAX, Malformed, Response, ResponseReader};
pub use run::{HttpRun, HttpRunError, Recorded};
pub use server::HttpServer;
pub use tls::{Tls, TlsError, Trust};
pub use url::{HttpUrl, Scheme};

#[cfg(test)]
mod tests;
