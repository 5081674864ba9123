//! `roundtrip bench http://...`: POSTs and GETs, with a connection for each request in flight.

use std::net::ToSocketAddrs as _;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use load::http::{BODY_MAX, HttpRun, HttpUrl, Request};
use load::{EndpointOptions, Pattern};
use report::progress::Progress;

use super::{BenchArgs, print_runs};
use crate::Failure;

/// Most connections of a run.
const CONNECTIONS_MAX: u32 = 1024;

pub(crate) fn run(args: &BenchArgs, url: &HttpUrl) -> Result<ExitCode, Failure> {
    let usage = |why: String| Failure::Usage(anyhow!(why));
    let is_post = match args.rw {
        Pattern::Read | Pattern::RandRead => false,
        Pattern::Write | Pattern::RandWrite => true,
        Pattern::RandRw => {
            return Err(usage("HTTP supports only --rw read (GET) and --rw write (POST)".into()));
        }
    };
    if let Some(bytes) = args.bs.iter().find(|bytes| **bytes > BODY_MAX as u64) {
        return Err(usage(format!("--bs {bytes}: at most {BODY_MAX} B are possible")));
    }
    if let Some(depth) = args.iodepth.iter().find(|depth| !(1..=CONNECTIONS_MAX).contains(*depth)) {
        return Err(usage(format!("--iodepth {depth}: 1 to {CONNECTIONS_MAX} are possible")));
    }
    if args.timeout.is_zero() {
        return Err(usage("--timeout 0: must be longer than 0".into()));
    }
    let server = (&*url.host, url.port)
        .to_socket_addrs()
        .ok()
        .and_then(|mut all| all.next())
        .ok_or_else(|| usage(format!("{url}: the host name does not resolve")))?;
    let side = EndpointOptions::new(args.writes, args.tcp.options(!args.nagle));
    let combinations = args.combinations();
    let progress = Progress::new(combinations.len() as u64, args.runtime + args.ramp, !args.json);
    let mut runs = Vec::new();
    for combination in combinations {
        progress.step(&combination.to_string());
        let bytes = combination.block_bytes;
        // `roundtrip serve` returns as many bytes as the path states.
        let path = if is_post || url.path != "/" { url.path.clone() } else { format!("/{bytes}") };
        let run = HttpRun {
            request: Request { is_post, path, host: url.host.clone(), body_bytes: bytes as usize },
            side: side.clone(),
            pattern: args.rw,
            block_bytes: bytes,
            connections: combination.queue_depth,
            rate: combination.rate,
            runtime: args.runtime,
            patience: args.timeout,
        };
        runs.push(run.run(server).with_context(|| url.to_string()).map_err(Failure::Work)?);
    }
    progress.finish();
    print_runs(url, &runs, args.json)?;
    Ok(ExitCode::SUCCESS)
}
