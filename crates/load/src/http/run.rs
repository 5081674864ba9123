//! A run of requests, with one connection and thread per request in flight.

use std::net::SocketAddr;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use record::latency::Latency;
use socket::clock;

use super::client::{Client, Request};
use crate::endpoint::EndpointOptions;
use crate::pace::Pace;
use crate::pattern::{Pattern, Submit};
use crate::result::RunResult;
use crate::ring_of_messages::Exchanges;

/// A run of one request, repeated.
#[derive(Clone, Debug)]
pub struct HttpRun {
    /// The request.
    pub request: Request,
    /// Socket options and write mode of each connection.
    pub side: EndpointOptions,
    /// Reported as reads or writes.
    pub pattern: Pattern,
    /// Bytes of a body.
    pub block_bytes: u64,
    /// Connections, each with one request in flight.
    pub connections: u32,
    /// Scheduled requests per second (open loop); `None` for a closed loop.
    pub rate: Option<f64>,
    /// Measured time.
    pub runtime: Duration,
    /// Longest wait for a response.
    pub patience: Duration,
}

struct Part {
    exchanges: Exchanges,
    latency: Latency,
    cpu_ns: u64,
}

impl HttpRun {
    /// Runs the requests.
    ///
    /// # Errors
    /// When a connection cannot be made or fails.
    pub fn run(&self, server: SocketAddr) -> std::io::Result<RunResult> {
        let (ready, pace) = (Barrier::new(self.connections as usize), OnceLock::new());
        let one = || {
            let client = Client::connect_within(server, &self.request, &self.side, self.patience);
            // Every thread must reach the barrier, even after a failure, or the others would block forever.
            ready.wait();
            let mut client = client?;
            let before_ns = clock::thread_cpu_ns();
            let (exchanges, latency) = match self.rate {
                None => client.ask(self.runtime)?,
                Some(rate) => {
                    client.keep_pace(pace.get_or_init(|| Pace::new(rate, Instant::now(), self.runtime)))?
                }
            };
            Ok(Part { exchanges, latency, cpu_ns: clock::thread_cpu_ns() - before_ns })
        };
        let lost = || std::io::Error::other("the thread panicked");
        let parts: std::io::Result<Vec<Part>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.connections).map(|_| scope.spawn(one)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(lost()))).collect()
        });
        Ok(self.result(&parts?, pace.get().map(Pace::behind)))
    }

    /// Merges the figures of all connections; `behind` counts requests of an open loop that had not begun at its end.
    fn result(&self, parts: &[Part], behind: Option<u64>) -> RunResult {
        let mut latency = Latency::new();
        parts.iter().for_each(|part| latency.add(&part.latency));
        let rates = || parts.iter().map(|part| part.exchanges.per_second);
        let operations: u64 = parts.iter().map(|part| part.exchanges.count).sum();
        let cpu_ns: u64 = parts.iter().map(|part| part.cpu_ns).sum();
        let iops = rates().sum::<f64>();
        RunResult {
            rw: self.pattern,
            block_size_bytes: self.block_bytes,
            queue_depth: self.connections,
            sessions: self.connections,
            submit: Submit::Each,
            seconds: self.runtime.as_secs_f64(),
            operations,
            iops,
            slowest_session_iops: rates().fold(f64::INFINITY, f64::min),
            rate: self.rate,
            behind,
            transferred_bytes: operations * self.block_bytes,
            bytes_per_second: iops * self.block_bytes as f64,
            client_cpu_us: cpu_ns as f64 / 1000.0 / operations.max(1) as f64,
            latency_us: latency.figures(),
            histogram: latency.bins(),
            ..RunResult::default()
        }
    }
}
