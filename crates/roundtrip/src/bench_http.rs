//! `roundtrip bench http://...`: posts and gets, a connection for each that is under way.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use exchange::http::{self, BODY_MAX, Request};
use exchange::{Exchanges, Side};
use initiator::{Pattern, RunResult, Submit};
use ring::latency::Latency;
use serde_json::json;

use crate::Failure;
use crate::bench::BenchArgs;
use crate::say::say;

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
                (host, port.parse().map_err(|_| wrong("the port is no number"))?)
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
    if args.rate.is_some() || args.sessions != 1 {
        return Err(usage(
            "--rate and --sessions are for iSCSI; --iodepth says how many connections there are".into(),
        ));
    }
    if let Some(bytes) = args.bs.iter().find(|bytes| **bytes > BODY_MAX as u64) {
        return Err(usage(format!("--bs {bytes}: at most {BODY_MAX} B are possible")));
    }
    if let Some(depth) = args.iodepth.iter().find(|depth| !(1..=CONNECTIONS_MAX).contains(*depth)) {
        return Err(usage(format!("--iodepth {depth}: 1 to {CONNECTIONS_MAX} are possible")));
    }
    let server = (&*url.host, url.port)
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .ok_or_else(|| usage(format!("{url}: there is no host of that name")))?;
    let side = Side::new(args.writes, args.tcp.options(!args.nagle));
    let mut runs = Vec::new();
    for &bytes in &args.bs {
        for &depth in &args.iodepth {
            // A server of ours gives as many bytes as the path says.
            let path = if is_post || url.path != "/" { url.path.clone() } else { format!("/{bytes}") };
            let request = Request { is_post, path, host: url.host.clone(), body_bytes: bytes as usize };
            let asked = ask(server, &request, &side, args, depth).with_context(|| url.to_string());
            runs.push(summed(&asked.map_err(Failure::Work)?, args, bytes, depth));
        }
    }
    if args.json {
        let text = serde_json::to_string_pretty(&json!({ "url": url.to_string(), "runs": runs }));
        say(text.map_err(|error| Failure::Work(error.into()))?);
    } else {
        say(report::terminal::runs(&runs));
    }
    Ok(ExitCode::SUCCESS)
}

/// Every connection's part.
fn ask(
    server: SocketAddr,
    request: &Request,
    side: &Side,
    args: &BenchArgs,
    connections: u32,
) -> std::io::Result<Vec<(Exchanges, Latency)>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|_| scope.spawn(|| http::ask(server, request, side, args.runtime)))
            .collect();
        let lost = || std::io::Error::other("the thread panicked");
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err(lost()))).collect()
    })
}

fn summed(parts: &[(Exchanges, Latency)], args: &BenchArgs, bytes: u64, depth: u32) -> RunResult {
    let mut latency = Latency::new();
    parts.iter().for_each(|(_, own)| latency.add(own));
    let iops: f64 = parts.iter().map(|(own, _)| own.per_second).sum();
    RunResult {
        rw: args.rw,
        block_size_bytes: bytes,
        queue_depth: depth,
        sessions: depth,
        submit: Submit::Each,
        seconds: args.runtime.as_secs_f64(),
        operations: parts.iter().map(|(own, _)| own.count).sum(),
        iops,
        slowest_session_iops: parts.iter().map(|(own, _)| own.per_second).fold(f64::INFINITY, f64::min),
        rate: None,
        behind: None,
        bytes_per_second: iops * bytes as f64,
        errors: 0,
        first_error: None,
        verified_blocks: None,
        mismatched_blocks: None,
        client_cpu_us: 0.0,
        latency_us: latency.figures(),
    }
}
