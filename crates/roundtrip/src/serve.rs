//! `roundtrip serve`: a server to be measured.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use exchange::{HttpServer, Side, copy};
use ring::Writes;

use crate::say::say;
use crate::stop::Stop;
use crate::{Failure, args, bench};

/// Serve HTTP, to be measured: POSTs are taken, a GET of /N is answered with N bytes; or take copies
///
/// Prints one line `ready ADDRESS` on stdout when it listens, and serves until SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  roundtrip serve --listen 127.0.0.1:8080 --writes apart --nagle\n  \
                        roundtrip bench http://127.0.0.1:8080/ --rw read --bs 512 --runtime 2s")]
pub(crate) struct ServeArgs {
    /// Address and port; port 0: any free one
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Take copies over plain TCP (bench tcp://...), instead of HTTP
    #[arg(long, conflicts_with_all = ["body", "writes"])]
    copies: bool,
    /// Bytes of an answer whose path says no number
    #[arg(long, value_parser = args::size, default_value = "512")]
    body: u64,
    /// How an answer's header and body leave: one, apart, more, more-unfinished, cork or cork-unfinished
    #[arg(long, value_parser = bench::writes, default_value = "one")]
    writes: Writes,
    /// Leave Nagle's algorithm on for answers
    #[arg(long)]
    nagle: bool,
    #[command(flatten)]
    tcp: args::TcpArgs,
}

pub(crate) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("watching for signals").map_err(Failure::Work)?;
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))
        .map_err(Failure::Usage)?;
    let side = Side::new(args.writes, args.tcp.options(!args.nagle));
    let failed = |what: &'static str| move |error| Failure::Work(anyhow::Error::from(error).context(what));
    let address = listener.local_addr().map_err(failed("listening"))?;
    // It serves until it is dropped.
    let _server = if args.copies {
        copy::take_all(listener, side).map_err(failed("starting to take copies"))?;
        None
    } else {
        let server = HttpServer::start(listener, side, args.body as usize);
        Some(server.map_err(failed("starting the server"))?)
    };
    say(format_args!("ready {address}"));
    while !stop.is_raised() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(ExitCode::SUCCESS)
}
