//! `roundtrip bench http://...`: posts and gets, a connection for each that is under way.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use exchange::http::{BODY_MAX, Client, Request};
use exchange::{EndpointOptions, Exchanges, Pace};
use initiator::{Pattern, RunResult, Submit};
use record::latency::Latency;
use report::progress::Progress;
use socket::clock;

use crate::Failure;
use crate::bench::{BenchArgs, Combination, tell};

/// Most connections of a run.
const CONNECTIONS_MAX: u32 = 1024;

/// Something that an HTTP server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpUrl {
    host: String,
    port: u16,
    path: String,
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}{}", self.host, self.port, self.path)
    }
}

impl FromStr for HttpUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let wrong = |why| format!("'{url}': {why}; write http://host[:port]/path");
        let rest = url.strip_prefix("http://").ok_or_else(|| wrong("it does not begin with http://"))?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong("the port is not a number"))?)
            }
            _ => (authority, 80),
        };
        let is_plain = |c: char| c.is_ascii_graphic();
        if host.is_empty() || !path.chars().all(is_plain) || !host.chars().all(is_plain) {
            return Err(wrong("host or path is missing, or has what no URL has"));
        }
        let path = if path.is_empty() { "/" } else { path };
        Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port, path: path.to_owned() })
    }
}

pub(crate) fn run(args: &BenchArgs, url: &HttpUrl) -> Result<ExitCode, Failure> {
    let usage = |why: String| Failure::Usage(anyhow!(why));
    let is_post = match args.rw {
        Pattern::Read | Pattern::RandRead => false,
        Pattern::Write | Pattern::RandWrite => true,
        Pattern::RandRw => {
            return Err(usage("HTTP is read (GET) or written (POST): choose --rw read or write".into()));
        }
    };
    if let Some(bytes) = args.bs.iter().find(|bytes| **bytes > BODY_MAX as u64) {
        return Err(usage(format!("--bs {bytes}: at most {BODY_MAX} B are possible")));
    }
    if let Some(depth) = args.iodepth.iter().find(|depth| !(1..=CONNECTIONS_MAX).contains(*depth)) {
        return Err(usage(format!("--iodepth {depth}: 1 to {CONNECTIONS_MAX} are possible")));
    }
    if args.timeout.is_zero() {
        return Err(usage("--timeout 0: an answer takes some time".into()));
    }
    let server = (&*url.host, url.port)
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .ok_or_else(|| usage(format!("{url}: the host name does not resolve")))?;
    let side = EndpointOptions::new(args.writes, args.tcp.options(!args.nagle));
    let combinations = args.combinations();
    let progress = Progress::new(combinations.len() as u64, !args.json);
    let mut runs = Vec::new();
    for combination in combinations {
        progress.step(&combination.to_string());
        let bytes = combination.block_bytes;
        // A server of ours gives as many bytes as the path says.
        let path = if is_post || url.path != "/" { url.path.clone() } else { format!("/{bytes}") };
        let request = Request { is_post, path, host: url.host.clone(), body_bytes: bytes as usize };
        let asked = ask(server, &request, &side, (args.runtime, args.timeout), &combination)
            .with_context(|| url.to_string());
        runs.push(summed(&asked.map_err(Failure::Work)?, args, &combination));
    }
    progress.finish();
    tell(url, &runs, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// One connection's part of a run.
struct Part {
    exchanges: Exchanges,
    latency: Latency,
    cpu_ns: u64,
}

/// Every connection's part, and how many exchanges of an open loop had not begun by its end.
fn ask(
    server: SocketAddr,
    request: &Request,
    side: &EndpointOptions,
    (runtime, patience): (Duration, Duration),
    combination: &Combination,
) -> std::io::Result<(Vec<Part>, Option<u64>)> {
    let (ready, pace) = (Barrier::new(combination.queue_depth as usize), OnceLock::new());
    let one = || {
        let client = Client::connect_within(server, request, side, patience);
        // Every connection comes here, also one that failed, or the others would wait for ever.
        ready.wait();
        let mut client = client?;
        let before_ns = clock::thread_cpu_ns();
        let (exchanges, latency) = match combination.rate {
            None => client.ask(runtime)?,
            Some(rate) => client.keep_pace(pace.get_or_init(|| Pace::new(rate, Instant::now(), runtime)))?,
        };
        Ok(Part { exchanges, latency, cpu_ns: clock::thread_cpu_ns() - before_ns })
    };
    let lost = || std::io::Error::other("the thread panicked");
    let parts: std::io::Result<Vec<Part>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..combination.queue_depth).map(|_| scope.spawn(one)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(lost()))).collect()
    });
    Ok((parts?, pace.get().map(Pace::behind)))
}

fn summed(
    (parts, behind): &(Vec<Part>, Option<u64>),
    args: &BenchArgs,
    combination: &Combination,
) -> RunResult {
    let mut latency = Latency::new();
    parts.iter().for_each(|part| latency.add(&part.latency));
    let rates = || parts.iter().map(|part| part.exchanges.per_second);
    let operations: u64 = parts.iter().map(|part| part.exchanges.count).sum();
    let cpu_ns: u64 = parts.iter().map(|part| part.cpu_ns).sum();
    let (iops, bytes, depth) = (rates().sum::<f64>(), combination.block_bytes, combination.queue_depth);
    RunResult {
        rw: args.rw,
        block_size_bytes: bytes,
        queue_depth: depth,
        sessions: depth,
        submit: Submit::Each,
        seconds: args.runtime.as_secs_f64(),
        operations,
        iops,
        slowest_session_iops: rates().fold(f64::INFINITY, f64::min),
        rate: combination.rate,
        behind: *behind,
        bytes_per_second: iops * bytes as f64,
        errors: 0,
        first_error: None,
        verified_blocks: None,
        mismatched_blocks: None,
        client_cpu_us: cpu_ns as f64 / 1000.0 / operations.max(1) as f64,
        latency_us: latency.figures(),
    }
}
