//! A ring of messages on one connection: requests and responses of a header and a body each, so many under way.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ring::latency::{Latency, LatencyFigures};
use serde::{Deserialize, Serialize};

use crate::side::Side;
use crate::writes::write;

/// Sizes of header and body of a request and of a response, and how many requests are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// The request's header and body, bytes.
    pub request: (usize, usize),
    /// The response's.
    pub response: (usize, usize),
    /// Requests under way.
    pub queue_depth: u32,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchanges {
    /// Exchanges in the measured time.
    pub count: u64,
    /// Of them each second.
    pub per_second: f64,
    /// Their times, us.
    pub latency_us: LatencyFigures,
    /// The first of them: when each began, ms since the first, and its time, us.
    #[serde(default)]
    pub samples: Vec<(f64, f64)>,
}

/// Exchanges whose times are kept one by one.
const SAMPLES: usize = 400;

/// Collects what becomes of exchanges.
#[derive(Debug)]
pub(crate) struct Tally {
    begun: Instant,
    latency: Latency,
    count: u64,
    samples: Vec<(f64, f64)>,
}

impl Tally {
    /// From now on.
    pub(crate) fn new(begun: Instant) -> Self {
        Self { begun, latency: Latency::new(), count: 0, samples: Vec::new() }
    }

    /// An exchange that was asked for at one moment and answered at another. True when that is enough.
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

    /// What came of it.
    pub(crate) fn finish(self) -> (Exchanges, Latency) {
        let per_second = self.count as f64 / self.begun.elapsed().as_secs_f64();
        let latency_us = self.latency.figures();
        (Exchanges { count: self.count, per_second, latency_us, samples: self.samples }, self.latency)
    }
}

/// Exchanges before the measured ones: a connection's first acknowledgements are not delayed.
const WARM_UP: u32 = 4;

/// Answers one connection until it ends.
///
/// # Errors
/// When the connection fails otherwise than by its end.
pub fn answer(listener: &TcpListener, load: &Load, side: &Side) -> io::Result<()> {
    side.tcp().apply(listener)?;
    let (mut stream, _) = listener.accept()?;
    let mut request = vec![0; load.request.0 + load.request.1];
    let (header, body) = (vec![1; load.response.0], vec![2; load.response.1]);
    while stream.read_exact(&mut request).is_ok() {
        side.received(&stream)?;
        // A client that has seen enough closes while answers are under way.
        if write(side.writes, &mut stream, &header, &body).is_err() {
            break;
        }
    }
    Ok(())
}

/// Asks for so long, and at least until ten are measured.
///
/// # Errors
/// When the connection cannot be made or is lost.
pub fn ask(server: SocketAddr, load: &Load, side: &Side, runtime: Duration) -> io::Result<Exchanges> {
    let mut stream = side.connect(&server)?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let (header, body) = (vec![3; load.request.0], vec![4; load.request.1]);
    let mut response = vec![0; load.response.0 + load.response.1];
    let mut under_way = std::collections::VecDeque::new();
    let ask = |stream: &mut TcpStream, under_way: &mut std::collections::VecDeque<Instant>| {
        under_way.push_back(Instant::now());
        write(side.writes, stream, &header, &body)
    };
    for _ in 0..load.queue_depth {
        ask(&mut stream, &mut under_way)?;
    }
    let (mut seen, mut tally) = (0, Tally::new(Instant::now()));
    loop {
        stream.read_exact(&mut response)?;
        side.received(&stream)?;
        let now = Instant::now();
        let asked = under_way.pop_front().unwrap_or(now);
        if seen < WARM_UP * load.queue_depth {
            seen += 1;
            tally = Tally::new(now);
        } else if tally.add(asked, now, runtime) {
            break;
        }
        ask(&mut stream, &mut under_way)?;
    }
    Ok(tally.finish().0)
}
