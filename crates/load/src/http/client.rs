//! The client.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use record::latency::Latency;
use serde::{Deserialize, Serialize};

use super::message::{Received, body};
use crate::endpoint::EndpointOptions;
use crate::pace::Pace;
use crate::ring_of_messages::{Exchanges, Tally, WARM_UP};
use crate::writes::write_within;

/// Longest wait for an answer, where nothing else is said.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// POST, or GET.
    pub is_post: bool,
    /// Where to.
    pub path: String,
    /// The name in its Host line.
    pub host: String,
    /// Bytes of a POST's body, or those that a GET asks for.
    pub body_bytes: usize,
}

/// A connection on which the same is asked again and again.
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
    /// Connects, and asks a few times: the first acknowledgements of a connection are not delayed.
    ///
    /// # Errors
    /// When the connection cannot be made, is lost, or the server says that it failed.
    pub fn connect(server: SocketAddr, request: &Request, side: &EndpointOptions) -> io::Result<Self> {
        Self::connect_within(server, request, side, PATIENCE)
    }

    /// As [`Self::connect`], with the longest time that sending a request may take, and the head and the body of its answer
    /// each. Also a server that sends or receives a byte now and then is given up after at most twice that time.
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

    /// Asks once and takes the answer.
    fn exchange(&mut self) -> io::Result<()> {
        let Self { stream, side, head, body, received, patience } = self;
        if body.is_empty() {
            io::Write::write_all(stream, head.as_bytes())?;
        } else {
            write_within(side.writes, stream, head.as_bytes(), body, Some(*patience)).map_err(late)?;
        }
        let answer = received.head(stream, side, false, *patience).map_err(|fault| late(fault.into()))?;
        let ended = || io::Error::new(io::ErrorKind::InvalidData, "the end before an answer");
        let answer = answer.ok_or_else(ended)?;
        received.body(stream, side, answer.content_bytes, *patience).map_err(late)?;
        if answer.method.starts_with('2') {
            Ok(())
        } else {
            Err(io::Error::other(format!("the server answered {}", answer.method)))
        }
    }

    /// A closed loop: asks again as soon as it has an answer, for so long and at least ten times.
    ///
    /// # Errors
    /// When the connection is lost, or the server says that it failed.
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

    /// An open loop: asks when it is time, and counts from the moment at which it was.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn keep_pace(&mut self, pace: &Pace) -> io::Result<(Exchanges, Latency)> {
        let mut tally = Tally::new(pace.start());
        while let Some(due) = pace.wait() {
            self.exchange()?;
            tally.add(due, Instant::now(), Duration::ZERO);
        }
        Ok(tally.finish())
    }
}

/// Says what the kernel calls "resource temporarily unavailable".
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::new(io::ErrorKind::TimedOut, "the server does not answer"),
        _ => error,
    }
}
