//! `roundtrip bench`: loads a target or server.

mod copy;
mod http;

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use load::initiator::{Bench, BenchSpec, InitiatorError, IscsiUrl, SessionOptions};
use load::{Pattern, RunResult, Submit};
use output::text::line;
use record::Writes;
use report::ops::OpsWriter;

use crate::print::{eprint_line, print_line};
use crate::stop::Stop;
use crate::{Failure, args};

/// Operations kept in memory per session before they are written.
const OPS_PER_SESSION_MAX: usize = 4 << 20;

/// Load an iSCSI target, an HTTP server or a copy server, and show throughput and latency
///
/// Runs every combination of block size, queue depth and rate, one after the other. The load is a closed loop, or with
/// --rate an open loop.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  roundtrip bench iscsi://127.0.0.1:3260/iqn.2026-11.example.roundtrip:target/0 \
                        --rw randread --bs 512,4k --iodepth 1,8,32 --runtime 2s"
)]
pub(crate) struct BenchArgs {
    /// iscsi://host[:port]/iqn/lun; http://host[:port]/path: GETs for reads and POSTs for writes, with a connection for
    /// each operation in flight; or tcp://host:port: a copy of --size in blocks of --bs, on --iodepth connections at once
    url: Url,
    /// Access pattern: read, write, randread, randwrite or randrw
    #[arg(long, default_value = "randread")]
    pub(crate) rw: Pattern,
    /// Block sizes, such as 512,4k,64k
    #[arg(long, value_delimiter = ',', value_parser = args::size, default_value = "4k")]
    pub(crate) bs: Vec<u64>,
    /// Queue depths of each session, such as 1,8,32
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub(crate) iodepth: Vec<u32>,
    /// Measured time of each combination
    #[arg(long, value_parser = args::time, default_value = "5s")]
    pub(crate) runtime: Duration,
    /// Time to run before the measured time begins
    #[arg(long, value_parser = args::time, default_value = "200ms")]
    ramp: Duration,
    /// Open loop (not for copies): this many operations are due each second regardless of completions, with at most the
    /// queue depth in flight; latency counts from the time at which an operation is due. Several rates, such as
    /// 1000,2000,4000, or a ramp, such as 1000..16000/6 (six rates at a constant ratio), run one after the other
    #[arg(long, value_name = "OPERATIONS PER SECOND", value_parser = args::rates)]
    pub(crate) rate: Option<args::Rates>,
    /// Number of sessions, each with its own connection and thread
    #[arg(long, default_value_t = 1)]
    pub(crate) sessions: u32,
    /// Send all requests that one receive makes possible in one send, instead of one send each
    #[arg(long)]
    batch: bool,
    /// Use only this much of the disk; for copies: the size of the copy on each connection
    #[arg(long, value_parser = args::size)]
    pub(crate) size: Option<u64>,
    /// Check the data of reads, and read back written data
    #[arg(long)]
    verify: bool,
    /// Seed of the random patterns
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How to send a POST's header and body: one, apart, more, more-unfinished, cork or cork-unfinished; an iSCSI PDU's
    /// header and data: one (together with all pending PDUs), apart or more
    #[arg(long, value_parser = writes, default_value = "one")]
    pub(crate) writes: Writes,
    /// Leave Nagle's algorithm on for requests
    #[arg(long)]
    pub(crate) nagle: bool,
    /// Run the client on this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Poll for a response for this time, such as 1s, before sleeping; costs a core for each session
    #[arg(long, value_parser = args::time, value_name = "TIME", default_value = "0s")]
    busy_poll: Duration,
    /// Longest wait for a response
    #[arg(long, value_parser = args::time, default_value = "30s")]
    pub(crate) timeout: Duration,
    /// Write every operation's start and finish to this file (.parquet or .csv), with the columns of analyze --ops
    #[arg(long, value_name = "FILE")]
    ops: Option<std::path::PathBuf>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) tcp: args::TcpArgs,
}

/// One of the requested runs.
pub(crate) struct Combination {
    pub(crate) block_bytes: u64,
    pub(crate) queue_depth: u32,
    pub(crate) rate: Option<f64>,
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B, queue depth {}", self.block_bytes, self.queue_depth)?;
        self.rate.map_or(Ok(()), |rate| write!(f, ", {rate:.0} a second"))
    }
}

impl BenchArgs {
    /// Every block size with every queue depth with every rate.
    pub(crate) fn combinations(&self) -> Vec<Combination> {
        let rates =
            self.rate.as_ref().map_or(vec![None], |rates| rates.0.iter().copied().map(Some).collect());
        let each = |block_bytes, queue_depth| {
            rates.iter().map(move |&rate| Combination { block_bytes, queue_depth, rate })
        };
        let depths = |bytes| self.iodepth.iter().flat_map(move |&depth| each(bytes, depth));
        self.bs.iter().flat_map(|&bytes| depths(bytes)).collect()
    }

    /// Pins the calling thread, and threads that it starts later, to the requested CPU.
    fn pin(&self) -> Result<(), Failure> {
        self.cpu.map_or(Ok(()), |cpu| {
            socket::cpu::pin(cpu).with_context(|| format!("CPU {cpu}")).map_err(Failure::Usage)
        })
    }
}

/// The kind of server.
#[derive(Clone, Debug)]
pub(crate) enum Url {
    Iscsi(IscsiUrl),
    Http(load::http::HttpUrl),
    Copy(load::copy::CopyUrl),
}

impl Url {
    /// The options that this kind of load ignores.
    fn ignored_options(&self) -> &'static [&'static str] {
        match self {
            Self::Iscsi(_) => &[],
            Self::Http(_) => &["sessions", "batch", "verify", "ops", "busy_poll", "size", "ramp", "seed"],
            Self::Copy(_) => &[
                "sessions",
                "batch",
                "verify",
                "ops",
                "busy_poll",
                "rw",
                "rate",
                "runtime",
                "ramp",
                "seed",
                "timeout",
                "writes",
            ],
        }
    }
}

impl std::str::FromStr for Url {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        if url.starts_with("http://") {
            return Ok(Self::Http(url.parse()?));
        }
        if url.starts_with("tcp://") {
            return Ok(Self::Copy(url.parse()?));
        }
        url.parse().map(Self::Iscsi).map_err(|error: InitiatorError| error.to_string())
    }
}

/// Parses the name of a way to write.
pub(crate) fn writes(name: &str) -> Result<Writes, String> {
    let names = || Writes::ALL.map(Writes::name).join(", ");
    Writes::ALL
        .into_iter()
        .find(|w| w.name() == name)
        .ok_or_else(|| format!("'{name}': there are {}", names()))
}

/// Loads the server of the URL; `is_given` returns whether an option is on the command line.
pub(crate) fn run(args: &BenchArgs, is_given: &dyn Fn(&str) -> bool) -> Result<ExitCode, Failure> {
    if let Some(name) = args.url.ignored_options().iter().find(|name| is_given(name)) {
        let name = name.replace('_', "-");
        return Err(Failure::Usage(anyhow!(
            "--{name} has no effect with this URL: see roundtrip bench --help"
        )));
    }
    let url = match &args.url {
        Url::Iscsi(url) => url,
        Url::Http(url) => return args.pin().and_then(|()| http::run(args, url)),
        Url::Copy(url) => return args.pin().and_then(|()| copy::run(args, url)),
    };
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let options = SessionOptions {
        tcp: args.tcp.options(!args.nagle),
        writes: args.writes,
        patience: args.timeout,
        busy_poll: args.busy_poll,
        ..SessionOptions::default()
    };
    let mut ops = match &args.ops {
        Some(path) => Some(
            OpsWriter::create(path)
                .with_context(|| format!("cannot write {}", path.display()))
                .map_err(Failure::Usage)?,
        ),
        None => None,
    };
    let combinations = args.combinations();
    let progress =
        report::progress::Progress::new(combinations.len() as u64, args.runtime + args.ramp, !args.json);
    let mut runs = Vec::new();
    for combination in combinations {
        if stop.is_raised() {
            break;
        }
        progress.step(&combination.to_string());
        let Combination { block_bytes, queue_depth, rate } = combination;
        let spec = BenchSpec {
            pattern: args.rw,
            block_bytes,
            queue_depth,
            sessions: args.sessions,
            runtime: args.runtime,
            ramp: args.ramp,
            submit: if args.batch { Submit::Batch } else { Submit::Each },
            verify: args.verify,
            size_bytes: args.size,
            seed: args.seed,
            record_ops: if ops.is_some() { OPS_PER_SESSION_MAX } else { 0 },
            rate,
            cpu: args.cpu,
        };
        let bench = Bench::run(url, &options, &spec, &|_| (), &|| stop.is_raised()).map_err(classify)?;
        if let Some(ops) = &mut ops {
            bench
                .ops
                .iter()
                .try_for_each(|op| ops.write(op))
                .context("writing --ops")
                .map_err(Failure::Work)?;
        }
        runs.push(bench.result);
    }
    progress.finish();
    if let Some(ops) = ops.filter(|_| !stop.is_raised()) {
        ops.finish().context("writing --ops").map_err(Failure::Work)?;
    }
    let bad = runs.iter().any(|r| r.errors > 0 || r.mismatched_blocks.unwrap_or(0) > 0);
    print_runs(url, &runs, args.json)?;
    if stop.is_raised() {
        return Err(Failure::Work(anyhow!("interrupted")));
    }
    Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints the results of all runs, and their errors.
pub(crate) fn print_runs(url: &dyn fmt::Display, runs: &[RunResult], json: bool) -> Result<(), Failure> {
    if json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "url": url.to_string(), "runs": runs }))
            .context("writing JSON")
            .map_err(Failure::Work)?;
        print_line(text);
    } else {
        print_line(report::terminal::runs(runs));
    }
    for run in runs.iter().filter(|r| r.first_error.is_some()) {
        // The error may quote the target.
        let first = line(run.first_error.as_deref().unwrap_or_default());
        eprint_line(format_args!(
            "{} errors at {} B, queue depth {}; the first: {first}",
            run.errors, run.block_size_bytes, run.queue_depth
        ));
    }
    for run in runs.iter().filter(|run| run.behind.is_some_and(|behind| behind > run.operations / 100)) {
        eprint_line(format_args!(
            "queue depth {}: {} operations began late: the target did not keep up with the rate, and the latencies include a growing queue",
            run.queue_depth,
            run.behind.unwrap_or(0)
        ));
    }
    Ok(())
}

/// Classifies an initiator's error as one of usage or of the work.
fn classify(error: InitiatorError) -> Failure {
    if error.is_usage() { Failure::Usage(error.into()) } else { Failure::Work(error.into()) }
}
