//! `roundtrip host serve`.

use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;

use crate::print::{print_json_line, print_line};
use crate::stop::Stop;
use crate::{Failure, args};

/// Be the other end of `roundtrip host check --peer THIS --load`
///
/// Serves one load test at a time, each run of at most 60 s, and answers nothing but the requests of `host check`. Whoever reaches
/// the port can fill the link: listen on an address of the network under test, and only as long as the test lasts. Changes nothing
/// and needs no root. Prints one line `ready ADDRESS` when it listens, and serves until --for has passed, SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  store2$ roundtrip host serve --listen 10.0.0.2:7433 --for 10m\n  \
                        store1$ roundtrip host check --peer 10.0.0.2 --load")]
pub(super) struct ServeArgs {
    /// Address and port to listen on; port 0: any free port
    #[arg(long, default_value = "0.0.0.0:7433", value_parser = args::listen)]
    listen: SocketAddr,
    /// How long to serve
    #[arg(long = "for", value_name = "TIME", value_parser = args::time, default_value = "60m")]
    time: Duration,
    /// Print the line on stdout as JSON: {"ready": ADDRESS}
    #[arg(long)]
    json: bool,
}

/// Time between two looks at the signals.
const STEP: Duration = Duration::from_millis(50);

pub(super) fn run(args: &ServeArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let listener = TcpListener::bind(args.listen)
        .with_context(|| format!("cannot listen on {}", args.listen))
        .map_err(Failure::Usage)?;
    let address = listener.local_addr().context("listening").map_err(Failure::Work)?;
    host::load::server::start(listener).context("cannot start the server").map_err(Failure::Work)?;
    if args.json {
        print_json_line(&json!({ "ready": address }))?;
    } else {
        print_line(format_args!("ready {address}"));
    }
    let begun = Instant::now();
    while !stop.is_raised() && begun.elapsed() < args.time {
        std::thread::sleep(STEP);
    }
    Ok(ExitCode::SUCCESS)
}
