//! `roundtrip bench tcp://...`: copies from memory to `roundtrip serve --copies`.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context as _, anyhow};
use exchange::{CopySpec, EndpointOptions, copy};
use report::terminal::{CopyRun, copies};
use serde_json::json;

use crate::Failure;
use crate::bench::BenchArgs;
use crate::say::say;

/// What is copied where nothing is said, bytes.
const SIZE: u64 = 256 << 20;
/// Largest block, bytes.
const BLOCK_MAX: u64 = 64 << 20;
/// Most copies at once.
const COPIES_MAX: u32 = 64;

/// Somewhere that copies are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CopyUrl(String);

impl fmt::Display for CopyUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}", self.0)
    }
}

impl FromStr for CopyUrl {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        let place = url.strip_prefix("tcp://").unwrap_or_default().trim_end_matches('/');
        match place.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self(place.to_owned()))
            }
            _ => Err(format!("'{url}': write tcp://host:port")),
        }
    }
}

pub(crate) fn run(args: &BenchArgs, url: &CopyUrl) -> Result<ExitCode, Failure> {
    let usage = |why: String| Failure::Usage(anyhow!(why));
    let to = url.0.to_socket_addrs().ok().and_then(|mut all| all.next());
    let to = to.ok_or_else(|| usage(format!("{url}: the host name does not resolve")))?;
    if let Some(block) = args.bs.iter().find(|block| !(1..=BLOCK_MAX).contains(*block)) {
        return Err(usage(format!("--bs {block}: 1 to {BLOCK_MAX} B are possible")));
    }
    if let Some(copies) = args.iodepth.iter().find(|copies| !(1..=COPIES_MAX).contains(*copies)) {
        return Err(usage(format!("--iodepth {copies}: 1 to {COPIES_MAX} copies at once are possible")));
    }
    let side = EndpointOptions::new(record::Writes::One, args.tcp.options(!args.nagle));
    let bytes = args.size.unwrap_or(SIZE).max(1);
    let mut runs = Vec::new();
    for &block in &args.bs {
        for &at_once in &args.iodepth {
            let spec = CopySpec { bytes, block_bytes: block as usize };
            let seconds = copy_all(to, &spec, &side, at_once)
                .with_context(|| url.to_string())
                .map_err(Failure::Work)?;
            let rate = (bytes * u64::from(at_once)) as f64 / seconds;
            runs.push(CopyRun { block_bytes: block, copies: at_once, seconds, bytes_per_second: rate });
        }
    }
    if args.json {
        let runs: Vec<_> = runs
            .iter()
            .map(|run| {
                json!({ "block_size_bytes": run.block_bytes, "copies": run.copies, "bytes_each": bytes, "seconds": run.seconds,
                    "bytes_per_second": run.bytes_per_second })
            })
            .collect();
        let text = serde_json::to_string_pretty(&json!({ "url": url.to_string(), "runs": runs }));
        say(text.context("writing JSON").map_err(Failure::Work)?);
    } else {
        say(copies(bytes, &runs));
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes copies at once; how long until the receiver has read all of them, seconds.
fn copy_all(to: SocketAddr, spec: &CopySpec, side: &EndpointOptions, copies: u32) -> std::io::Result<f64> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..copies).map(|_| scope.spawn(|| copy::send(to, spec, side))).collect();
        let lost = |_| Err(std::io::Error::other("the thread panicked"));
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(lost))
    })?;
    Ok(begun.elapsed().as_secs_f64())
}
