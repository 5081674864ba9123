//! `roundtrip serve`: a server for measurements.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use load::{EndpointOptions, HttpServer, Limits, copy};
use record::Writes;
use serde_json::json;

use crate::print::{print_json_line, print_line};
use crate::stop::Stop;
use crate::{Failure, args, bench};

/// Serve HTTP or copies as the peer of a measurement
///
/// A GET of /N returns N bytes (at most 64 MiB), and POSTs are accepted. With --copies the server accepts copies over
/// plain TCP instead. It prints one line `ready ADDRESS` on stdout when it listens, and serves until SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  roundtrip serve --listen 127.0.0.1:8080 --writes apart --nagle\n  \
                        roundtrip bench http://127.0.0.1:8080/ --rw read --bs 512 --runtime 2s")]
pub(crate) struct ServeArgs {
    /// Address and port to listen on; port 0: any free port
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = args::listen)]
    listen: SocketAddr,
    /// Accept copies over plain TCP (bench tcp://...) instead of HTTP
    #[arg(long, conflicts_with_all = ["body", "writes"])]
    copies: bool,
    /// Size of a response if the path is not a number
    #[arg(long, value_parser = args::size, default_value = "512")]
    body: u64,
    /// How to send a response's header and body: one, apart, more, more-unfinished, cork or cork-unfinished
    #[arg(long, value_parser = bench::writes, default_value = "one")]
    writes: Writes,
    /// Leave Nagle's algorithm on for responses
    #[arg(long)]
    nagle: bool,
    /// Limit on the server's resources or waiting times: connections=N (default 2048; copies: 256; each has a thread),
    /// connections_per_address=N (1024; copies: 256), silence=TIME (60s: a connection without any transfer for this time
    /// is closed), head_time=TIME (10s for the head of a request); repeatable
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    limits: Vec<String>,
    /// Print the line on stdout as JSON: {"ready": ADDRESS}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tcp: args::TcpArgs,
}

/// Most connections of a server for copies, each of which has a buffer of 1 MiB.
const COPIES_MAX: usize = 256;

impl ServeArgs {
    fn limits(&self) -> anyhow::Result<Limits> {
        let mut limits = Limits::default();
        if self.copies {
            (limits.connections, limits.connections_per_address) = (COPIES_MAX, COPIES_MAX);
        }
        for limit in &self.limits {
            let (name, value) =
                limit.split_once('=').with_context(|| format!("'{limit}': write NAME=VALUE"))?;
            let count = || match value.parse() {
                Ok(count @ 1..=65_536) => Ok(count),
                _ => Err(anyhow!("limit {name}={value}: 1 to 65536 are possible")),
            };
            let time = || match args::time(value) {
                Ok(time) if time >= Duration::from_millis(1) => Ok(time),
                Ok(_) => Err(anyhow!("limit {name}={value}: at least 1ms is possible")),
                Err(error) => Err(anyhow!("limit {name}={value}: {error}")),
            };
            match name {
                "connections" => limits.connections = count()?,
                "connections_per_address" => limits.connections_per_address = count()?,
                "silence" => limits.silence = time()?,
                "head_time" => limits.head_time = time()?,
                _ => anyhow::bail!(
                    "'{name}' is not a limit; use connections, connections_per_address, silence or head_time"
                ),
            }
        }
        Ok(limits)
    }
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    if args.body > load::http::BODY_MAX as u64 {
        return Err(Failure::Usage(anyhow!("--body: at most {} bytes are possible", load::http::BODY_MAX)));
    }
    let limits = args.limits().map_err(Failure::Usage)?;
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))
        .map_err(Failure::Usage)?;
    let side = EndpointOptions::new(args.writes, args.tcp.options(!args.nagle));
    let failed = |what: &'static str| move |error| Failure::Work(anyhow::Error::from(error).context(what));
    let address = listener.local_addr().map_err(failed("listening"))?;
    // The server runs until it is dropped.
    let _server = if args.copies {
        copy::take_all(listener, side, limits).map_err(failed("cannot start the server for copies"))?;
        None
    } else {
        let server = HttpServer::start(listener, side, args.body as usize, limits);
        Some(server.map_err(failed("cannot start the server"))?)
    };
    if args.json {
        print_json_line(&json!({ "ready": address }))?;
    } else {
        print_line(format_args!("ready {address}"));
    }
    while !stop.is_raised() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(ExitCode::SUCCESS)
}
