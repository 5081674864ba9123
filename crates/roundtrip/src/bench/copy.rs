//! `roundtrip bench tcp://...`: copies from memory to `roundtrip serve --copies`.

use std::net::ToSocketAddrs as _;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use load::copy::{CopyRun, CopyUrl};
use load::{CopySpec, EndpointOptions};
use serde_json::json;

use super::BenchArgs;
use crate::Failure;
use crate::print::print_line;

/// Default size of a copy, bytes.
const SIZE: u64 = 256 << 20;
/// Largest block, bytes.
const BLOCK_MAX: u64 = 64 << 20;
/// Most copies at once.
const COPIES_MAX: u32 = 64;

pub(crate) fn run(args: &BenchArgs, url: &CopyUrl) -> Result<ExitCode, Failure> {
    let usage = |why: String| Failure::Usage(anyhow!(why));
    let resolved = url.place().to_socket_addrs();
    let unresolved = |why: String| usage(format!("{url}: the host name does not resolve: {why}"));
    let to = resolved.map_err(|error| unresolved(error.to_string()))?.next();
    let to = to.ok_or_else(|| unresolved("it has no address".to_owned()))?;
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
            let run = CopyRun { spec, side: side.clone(), copies: at_once };
            runs.push(run.run(to).with_context(|| url.to_string()).map_err(Failure::Work)?);
        }
    }
    if args.json {
        let runs: Vec<_> = runs
            .iter()
            .map(|run| {
                json!({ "block_size_bytes": run.block_size_bytes, "copies": run.sessions, "bytes_each": bytes, "seconds": run.seconds,
                    "bytes_per_second": run.bytes_per_second })
            })
            .collect();
        let text = serde_json::to_string_pretty(&json!({ "url": url.to_string(), "runs": runs }));
        print_line(text.context("writing JSON").map_err(Failure::Work)?);
    } else {
        print_line(report::terminal::copies(bytes, &runs));
    }
    Ok(ExitCode::SUCCESS)
}
