//! The HTTP client.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use record::latency::Latency;
use serde::{Deserialize, Serialize};

use super::message::{Received, body};
use crate::endpoint::EndpointOptions;
use crate::ring_of_messages::{Exchanges, Tally, WARM_UP};
use crate::writes::write_within;

/// Default longest wait for a response.
const PATIENCE: Duration = Duration::from_secs(30);

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// POST if true, else GET.
    pub is_post: bool,
    /// The path.
    pub path: String,
    /// The value of the Host field.
    pub host: String,
    /// Bytes of the body of a POST, or of the response to a GET.
    pub body_bytes: usize,
}

/// A connection that repeats one request.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    side: EndpointOptions,
    head: String,
    body: &'static [u8],
    received: Received,
    patience: Duration,
}

impl Client {
    /// Connects, and sends a few warm-up requests: the kernel does not delay the first acknowledgements of a connection.
    ///
    /// # Errors
    /// When the connection cannot be made or is lost, or the server reports an error.
    pub fn connect(server: SocketAddr, request: &Request, side: &EndpointOptions) -> io::Result<Self> {
        Self::connect_within(server, request, side, PATIENCE)
    }

    /// As [`Self::connect`]. `patience` bounds the time to send a request, to receive the head of its response, and to
    /// receive the body, each. Slow progress of the server does not extend it by more than a factor of two.
    ///
    /// # Errors
    /// As [`Self::connect`], and when `patience` is zero.
    pub fn connect_within(
        server: SocketAddr,
        request: &Request,
        side: &EndpointOptions,
        patience: Duration,
    ) -> io::Result<Self> {
        let stream = side.connect(&server)?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        let (path, host, bytes) = (&request.path, &request.host, request.body_bytes);
        let (head, body) = if request.is_post {
            let body = body(bytes);
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n",
                body.len()
            );
            (head, body)
        } else {
            (format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"), &[][..])
        };
        let received = Received::default();
        let mut client = Self { stream, side: side.clone(), head, body, received, patience };
        for _ in 0..WARM_UP {
            client.exchange()?;
        }
        Ok(client)
    }

    /// Sends the request and receives the response.
    fn exchange(&mut self) -> io::Result<()> {
        let Self { stream, side, head, body, received, patience } = self;
        if body.is_empty() {
            io::Write::write_all(stream, head.as_bytes())?;
        } else {
            write_within(side.writes, stream, head.as_bytes(), body, Some(*patience)).map_err(late)?;
        }
        let answer = received.head(stream, side, false, *patience).map_err(|fault| late(fault.into()))?;
        let ended = || io::Error::new(io::ErrorKind::InvalidData, "the connection ended before a response");
        let answer = answer.ok_or_else(ended)?;
        received.body(stream, side, answer.content_bytes, *patience).map_err(late)?;
        if answer.method.starts_with('2') {
            Ok(())
        } else {
            Err(io::Error::other(format!("the server answered {}", answer.method)))
        }
    }

    /// Runs a closed loop: repeats the request after each response, for `runtime` and at least ten times.
    ///
    /// # Errors
    /// When the connection is lost, or the server reports an error.
    pub fn ask(&mut self, runtime: Duration) -> io::Result<(Exchanges, Latency)> {
        let mut tally = Tally::new(Instant::now());
        loop {
            let asked = Instant::now();
            self.exchange()?;
            if tally.add(asked, Instant::now(), runtime) {
                return Ok(tally.finish());
            }
        }
    }
}

/// Replaces the kernel's "resource temporarily unavailable" of a timeout by a clear message.
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"),
        _ => error,
    }
}
