//! `roundtrip bench`: loads a target or server.

mod copy;
mod http;
mod iscsi;
mod output;

use std::fmt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use load::initiator::{Distribution, InitiatorError, IscsiUrl};
use load::{Arrival, Pattern, Threshold};
use record::Writes;

use self::output::OutputFormat;
use crate::{Failure, args, outputs};

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
    /// iscsi://[user@]host[:port]/iqn/lun; http:// or https://host[:port]/path: GETs for reads and POSTs for writes, with a
    /// connection for each operation in flight, {bs} in the path stands for the block size; or tcp://host:port: a copy of
    /// --size in blocks of --bs, on --iodepth connections at once
    url: Url,
    /// Access pattern: read, write, randread, randwrite, rw or randrw (mixed); trim or randtrim (UNMAP); writezeroes or
    /// randwritezeroes (WRITE SAME of a zero block)
    #[arg(long, default_value = "randread")]
    pub(crate) rw: Pattern,
    /// Block sizes, such as 512,4k,64k
    #[arg(long, value_delimiter = ',', value_parser = args::size, default_value = "4k")]
    pub(crate) bs: Vec<u64>,
    /// Percentage of reads in mixed patterns, by default 50
    #[arg(long, value_name = "PERCENT", value_parser = args::percent, alias = "rwmixread")]
    rwmix: Option<u32>,
    /// Mixed block sizes with the percentage of each, such as 4k/60:64k/40
    #[arg(long, value_name = "SIZE/PERCENT:...", value_parser = args::block_split, conflicts_with = "bs")]
    bssplit: Option<args::BlockSplit>,
    /// Distribution of random addresses: uniform, or zipf:EXPONENT, such as zipf:1.1
    #[arg(long, value_name = "DISTRIBUTION")]
    random_distribution: Option<Distribution>,
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
    /// Arrivals of an open loop: constant (equal intervals) or poisson (random, independent of each other)
    #[arg(long, value_name = "PROCESS")]
    pub(crate) arrival: Option<Arrival>,
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
    /// Write every operation's start and finish to this file (.parquet, .csv, or .pftrace for Perfetto), with the columns of analyze --ops
    #[arg(long, value_name = "FILE")]
    ops: Option<std::path::PathBuf>,
    /// Exit with 1 if a run does not meet this threshold, such as 'p99<2ms', 'iops>=10000', 'mb/s>100', 'errors=0';
    /// repeatable. Figures: iops, mb/s, errors, behind, mean, min, p50, p90, p99, p999, max
    #[arg(long, value_name = "THRESHOLD")]
    pub(crate) assert: Vec<Threshold>,
    /// Write the runs as a page to this file
    #[arg(long, value_name = "FILE.html")]
    pub(crate) html: Option<std::path::PathBuf>,
    /// Show the table with all columns, wider than 80
    #[arg(long)]
    pub(crate) wide: bool,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Format on stdout: normal, or json or json+ with the keys of fio's formats of these names
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "normal", conflicts_with = "json")]
    pub(crate) output_format: OutputFormat,
    #[command(flatten)]
    login: args::LoginArgs,
    #[command(flatten)]
    pub(crate) tcp: args::TcpArgs,
    #[command(flatten)]
    pub(crate) http: http::HttpArgs,
}

/// One of the requested runs.
pub(crate) struct Combination {
    pub(crate) block_bytes: u64,
    pub(crate) queue_depth: u32,
    pub(crate) rate: Option<f64>,
    /// Mixed block sizes; `block_bytes` is the largest then.
    split: Option<String>,
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.split {
            Some(split) => write!(f, "{split}, ")?,
            None => write!(f, "{} B, ", self.block_bytes)?,
        }
        write!(f, "queue depth {}", self.queue_depth)?;
        self.rate.map_or(Ok(()), |rate| write!(f, ", {rate:.0} a second"))
    }
}

impl BenchArgs {
    /// Refuses an open loop's options without its rate.
    fn check_arrival(&self) -> Result<(), Failure> {
        if self.arrival.is_some() && self.rate.is_none() {
            return Err(Failure::Usage(anyhow!("--arrival is for open loops: add --rate")));
        }
        Ok(())
    }

    /// Whether stdout is for a program.
    pub(crate) fn is_machine_readable(&self) -> bool {
        self.json || self.output_format != OutputFormat::Normal
    }

    /// Every block size with every queue depth with every rate.
    pub(crate) fn combinations(&self) -> Vec<Combination> {
        let rates =
            self.rate.as_ref().map_or(vec![None], |rates| rates.0.iter().copied().map(Some).collect());
        let split = self.bssplit.as_ref().map(|split| load::initiator::workload::block_split(&split.0));
        let each = |block_bytes, queue_depth| {
            let split = split.clone();
            rates.iter().map(move |&rate| Combination {
                block_bytes,
                queue_depth,
                rate,
                split: split.clone(),
            })
        };
        let mixed: Vec<u64> =
            self.bssplit.iter().filter_map(|split| split.0.iter().map(|s| s.block_bytes).max()).collect();
        let sizes = if mixed.is_empty() { &self.bs } else { &mixed };
        let depths = |bytes| self.iodepth.iter().flat_map(move |&depth| each(bytes, depth));
        sizes.iter().flat_map(|&bytes| depths(bytes)).collect()
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

/// The options of an iSCSI disk and its session.
const DISK_OPTIONS: [&str; 14] = [
    "rwmix",
    "bssplit",
    "random_distribution",
    "sessions",
    "batch",
    "verify",
    "busy_poll",
    "initiator_name",
    "chap_user",
    "chap_secret_file",
    "chap_mutual_user",
    "chap_mutual_secret_file",
    "header_digest",
    "data_digest",
];

/// The options of loads that count operations.
const OPERATION_OPTIONS: [&str; 11] = [
    "rw",
    "rate",
    "arrival",
    "runtime",
    "ramp",
    "seed",
    "timeout",
    "writes",
    "ops",
    "assert",
    "output_format",
];

impl Url {
    /// The options that this kind of load ignores.
    fn ignored_options(&self) -> impl Iterator<Item = &'static str> {
        let lists: &[&[&'static str]] = match self {
            Self::Iscsi(_) => &[&http::HttpArgs::NAMES],
            Self::Http(_) => &[&DISK_OPTIONS, &["size"]],
            Self::Copy(_) => &[&DISK_OPTIONS, &OPERATION_OPTIONS, &http::HttpArgs::NAMES],
        };
        lists.iter().copied().flatten().copied()
    }
}

impl std::str::FromStr for Url {
    type Err = String;

    fn from_str(url: &str) -> Result<Self, String> {
        if load::http::HttpUrl::has_scheme(url) {
            return Ok(Self::Http(url.parse()?));
        }
        if url.starts_with("tcp://") {
            return Ok(Self::Copy(url.parse()?));
        }
        // The rest of a URL may hold a secret.
        if let Some((scheme, _)) = url.split_once("://").filter(|(scheme, _)| *scheme != "iscsi") {
            return Err(format!("'{scheme}://': write iscsi://, http://, https:// or tcp://"));
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
    if let Some(name) = args.url.ignored_options().find(|name| is_given(name)) {
        let name = name.replace('_', "-");
        return Err(Failure::Usage(anyhow!(
            "--{name} has no effect with this URL: see roundtrip bench --help"
        )));
    }
    outputs::check(&[("--ops", args.ops.as_ref())], args.http.body_file.iter().chain(&args.http.ca_file))?;
    let usage = |why: &str| Err(Failure::Usage(anyhow!("{why}")));
    if args.timeout.is_zero() {
        return usage("--timeout 0: must be longer than 0");
    }
    if args.bs.contains(&0) && !matches!(args.url, Url::Http(_)) {
        return usage("--bs 0: at least one byte is needed");
    }
    match &args.url {
        Url::Iscsi(url) => iscsi::run(args, url),
        Url::Http(url) => args.pin().and_then(|()| http::run(args, url, is_given)),
        Url::Copy(url) => args.pin().and_then(|()| copy::run(args, url)),
    }
}
