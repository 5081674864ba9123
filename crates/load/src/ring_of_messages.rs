//! A closed loop of messages on one connection: requests and responses of a header and a body each, with a fixed number
//! in flight.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use record::latency::{Latency, LatencyFigures};
use serde::{Deserialize, Serialize};

use crate::endpoint::EndpointOptions;
use crate::writes::write;

/// The sizes of requests and responses, and the number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// The request's header and body, bytes.
    pub request: (usize, usize),
    /// The response's header and body, bytes.
    pub response: (usize, usize),
    /// Requests in flight.
    pub queue_depth: u32,
    /// Whether the client sends all successors of one receive in one send, instead of each separately.
    #[serde(default)]
    pub batch: bool,
}

/// Most bytes of a batch per read or write.
const BATCH_BYTES: usize = 1 << 20;

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchanges {
    /// Exchanges in the measured time.
    pub count: u64,
    /// Exchanges per second.
    pub per_second: f64,
    /// Their latencies, us.
    pub latency_us: LatencyFigures,
    /// The first exchanges: start, ms since the first, and latency, us.
    #[serde(default)]
    pub samples: Vec<(f64, f64)>,
}

/// Exchanges recorded individually.
const SAMPLES: usize = 400;

/// Collects the results of exchanges.
#[derive(Debug)]
pub(crate) struct Tally {
    begun: Instant,
    latency: Latency,
    count: u64,
    samples: Vec<(f64, f64)>,
}

impl Tally {
    /// Starts an empty tally.
    pub(crate) fn new(begun: Instant) -> Self {
        Self { begun, latency: Latency::new(), count: 0, samples: Vec::new() }
    }

    /// Adds an exchange with its request and response times; returns true when the run is complete.
    pub(crate) fn add(&mut self, asked: Instant, answered: Instant, runtime: Duration) -> bool {
        let time = answered.duration_since(asked);
        self.latency.record(time.as_nanos() as u64);
        if self.samples.len() < SAMPLES {
            let at_ms = asked.saturating_duration_since(self.begun).as_secs_f64() * 1e3;
            self.samples.push((at_ms, time.as_secs_f64() * 1e6));
        }
        self.count += 1;
        self.count >= 10 && self.begun.elapsed() >= runtime
    }

    /// Returns the results.
    pub(crate) fn finish(self) -> (Exchanges, Latency) {
        let per_second = self.count as f64 / self.begun.elapsed().as_secs_f64();
        let latency_us = self.latency.figures();
        (Exchanges { count: self.count, per_second, latency_us, samples: self.samples }, self.latency)
    }
}

/// Warm-up exchanges: the kernel does not delay the first acknowledgements of a connection.
pub(crate) const WARM_UP: u32 = 4;

/// Serves one connection until it ends.
///
/// # Errors
/// When the connection fails, other than by being closed.
pub fn answer(listener: &TcpListener, load: &Load, side: &EndpointOptions) -> io::Result<()> {
    side.tcp().apply(listener)?;
    let (mut stream, _) = listener.accept()?;
    let mut request = vec![0; load.request.0 + load.request.1];
    let (header, body) = (vec![1; load.response.0], vec![2; load.response.1]);
    while stream.read_exact(&mut request).is_ok() {
        side.received(&stream)?;
        // A client that has finished closes while responses are in flight.
        if write(side.writes, &mut stream, &header, &body).is_err() {
            break;
        }
    }
    Ok(())
}

/// Runs the loop for `runtime`, and at least for ten exchanges.
///
/// # Errors
/// When the connection cannot be made or is lost.
pub fn ask(
    server: SocketAddr,
    load: &Load,
    side: &EndpointOptions,
    runtime: Duration,
) -> io::Result<Exchanges> {
    let mut stream = side.connect(&server)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let (header, body) = (vec![3; load.request.0], vec![4; load.request.1]);
    let (request_bytes, response_bytes) = (header.len() + body.len(), load.response.0 + load.response.1);
    let depth = load.queue_depth as usize;
    let together =
        if load.batch { (BATCH_BYTES / response_bytes.max(request_bytes)).clamp(1, depth) } else { 1 };
    let batch = [&header[..], &body].concat().repeat(together);
    let mut under_way = VecDeque::new();
    let ask = |stream: &mut TcpStream, under_way: &mut VecDeque<Instant>, count: usize| {
        under_way.extend(std::iter::repeat_n(Instant::now(), count));
        match count {
            1 => write(side.writes, stream, &header, &body),
            _ => stream.write_all(&batch[..count * request_bytes]),
        }
    };
    while under_way.len() < depth {
        let count = together.min(depth - under_way.len());
        ask(&mut stream, &mut under_way, count)?;
    }
    let (mut seen, mut tally) = (0, Tally::new(Instant::now()));
    // A buffer for one batch: without batching, each response is read separately.
    let (mut incoming, mut filled) = (vec![0; together * response_bytes], 0);
    loop {
        let count = stream.read(&mut incoming[filled..])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        side.received(&stream)?;
        filled += count;
        let (now, ended) = (Instant::now(), filled / response_bytes);
        incoming.copy_within(ended * response_bytes..filled, 0);
        filled %= response_bytes;
        let mut is_enough = false;
        for _ in 0..ended {
            let asked = under_way.pop_front().unwrap_or(now);
            if seen < WARM_UP * load.queue_depth {
                seen += 1;
                tally = Tally::new(now);
            } else {
                is_enough |= tally.add(asked, now, runtime);
            }
        }
        if is_enough {
            return Ok(tally.finish().0);
        }
        if ended > 0 {
            ask(&mut stream, &mut under_way, ended)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Writes;

    /// Runs a load on loopback against a server that sends header and body separately.
    fn asked(load: Load, nagle: bool, runtime: Duration) -> Exchanges {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = EndpointOptions { nagle, writes: Writes::Apart, ..EndpointOptions::default() };
        std::thread::scope(|scope| {
            scope.spawn(|| answer(&listener, &load, &server));
            ask(to, &load, &EndpointOptions::default(), runtime).unwrap()
        })
    }

    #[test]
    fn every_exchange_completes_in_every_send_mode() {
        for batch in [false, true] {
            for (response, queue_depth) in [((1, 0), 1), ((48, 512), 7), ((48, 300_000), 9)] {
                let load = Load { request: (48, 3), response, queue_depth, batch };
                let found = asked(load, false, Duration::from_millis(20));
                assert!(found.count >= 10 && found.latency_us.p50 > 0.0, "{load:?}: {found:?}");
            }
        }
    }

    /// With all requests in one segment, no later request carries an acknowledgement while the server waits for one, so the
    /// delayed acknowledgement recurs in every round.
    #[test]
    fn requests_in_one_segment_wait_for_the_delayed_acknowledgement() {
        let load = Load { request: (48, 0), response: (48, 512), queue_depth: 4, batch: true };
        let found = asked(load, true, Duration::from_millis(600));
        let (_, last_us) = found.samples.last().copied().unwrap();
        assert!(last_us > 35_000.0, "{found:?}");
    }
}
