//! `roundtrip analyze`: why is it slow?

use std::fs::File;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ExitCode;

use analysis::{Analysis, AnalysisError, AnalysisResult, Input, Options, annotate};
use anyhow::{Context as _, anyhow};
use capture::{Digests, Protocol, Selection};
use clap::ValueEnum;
use report::ops::OpsWriter;
use ring::wire::Wire;
use ring::{Observed, Side};

use crate::stop::Stop;
use crate::{Failure, args};

/// Find out from a capture why a service was slow: operations, breakdown, verdicts
///
/// Reads pcap and pcapng, plain or compressed (gzip, zstd), of one side, of both sides, or with several
/// interfaces. Says where the time of iSCSI, HTTP/1.1 and other request/response traffic went, what made it slow,
/// and what to do. Exits with 1 when there is a verdict.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip analyze slow.pcapng\n  \
                        tcpdump -i eth0 -s 128 -w - port 3260 | roundtrip analyze -\n  \
                        roundtrip analyze --client a.pcap.gz --server b.pcap.zst --json")]
pub(crate) struct AnalyzeArgs {
    /// Captures; - is standard input
    files: Vec<PathBuf>,
    /// A capture made on the client's side
    #[arg(long, value_name = "FILE")]
    client: Option<PathBuf>,
    /// A capture made on the server's side
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// What is spoken
    #[arg(long, value_enum, default_value = "auto")]
    protocol: ProtocolArg,
    /// Only connections with this port of the server
    #[arg(long)]
    port: Option<u16>,
    /// Rate of the link between the sides, such as 1gbit: the link's own time, and whether it is full
    #[arg(long, value_parser = args::rate)]
    bandwidth: Option<u64>,
    /// MTU of the link
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
    /// Do not search the operations for modes and patterns
    #[arg(long)]
    no_modes: bool,
    /// Write every operation to this file (.parquet or .csv)
    #[arg(long, value_name = "FILE")]
    ops: Option<PathBuf>,
    /// Write the capture anew, with the verdicts as comments on their frames
    #[arg(long, value_name = "FILE.pcapng")]
    annotate: Option<PathBuf>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtocolArg {
    /// By the first bytes
    Auto,
    /// RFC 7143
    Iscsi,
    /// HTTP/1.1
    Http,
    /// Questions and answers by change of direction
    Turns,
}

pub(crate) fn run(args: &AnalyzeArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("watching for signals").map_err(Failure::Work)?;
    let inputs = inputs(args)?;
    let protocol = match args.protocol {
        ProtocolArg::Auto => Protocol::Auto,
        ProtocolArg::Iscsi => Protocol::Iscsi(Digests::default()),
        ProtocolArg::Http => Protocol::Http,
        ProtocolArg::Turns => Protocol::Turns,
    };
    let options = Options {
        selection: Selection { port: args.port, protocol },
        wire: args.bandwidth.map(|rate| Wire::ethernet(rate, args.mtu)),
        modes: !args.no_modes,
    };
    let mut ops = match &args.ops {
        Some(path) => Some(
            OpsWriter::create(path)
                .with_context(|| format!("cannot write {}", path.display()))
                .map_err(Failure::Usage)?,
        ),
        None => None,
    };
    let result = analyze(&inputs, options, ops.as_mut(), &stop)?;
    if let Some(ops) = ops {
        ops.finish().context("writing --ops").map_err(Failure::Work)?;
    }
    if let Some(path) = &args.annotate {
        let file = File::create(path)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage)?;
        let application = concat!("roundtrip ", env!("CARGO_PKG_VERSION"));
        annotate(&inputs, &result, BufWriter::with_capacity(1 << 20, file), application)
            .with_context(|| format!("writing {}", path.display()))
            .map_err(Failure::Work)?;
    }
    if args.json {
        let text = serde_json::to_string_pretty(&result).context("writing JSON").map_err(Failure::Work)?;
        println!("{text}");
    } else {
        print!("{}", report::analysis_text::analysis(&result));
    }
    if stop.is_raised() {
        return Err(Failure::Work(anyhow!("interrupted: the result is of what was read until then")));
    }
    Ok(if result.verdicts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn inputs(args: &AnalyzeArgs) -> Result<Vec<Input>, Failure> {
    let sides = [(&args.client, Side::Client), (&args.server, Side::Server)];
    let placed = sides.into_iter().filter_map(|(path, side)| Some((path.clone()?, Some(side))));
    let all: Vec<Input> = args
        .files
        .iter()
        .map(|path| (path.clone(), None))
        .chain(placed)
        .map(|(path, place)| Input { path, place })
        .collect();
    if all.is_empty() {
        return Err(Failure::Usage(anyhow!("name a capture file, or - for standard input")));
    }
    let standard = all.iter().filter(|i| i.path.as_os_str() == "-").count();
    if standard > 1 || (standard == 1 && args.annotate.is_some()) {
        return Err(Failure::Usage(anyhow!(
            "standard input can be read once only: give files where several are needed, or --annotate"
        )));
    }
    Ok(all)
}

fn analyze(
    inputs: &[Input],
    options: Options,
    ops: Option<&mut OpsWriter>,
    stop: &Stop,
) -> Result<AnalysisResult, Failure> {
    let progress = report::progress::Counting::new("frames");
    let mut written = Ok(());
    let result = {
        let mut write;
        let sink: Option<&mut dyn FnMut(&Observed)> = match ops {
            Some(ops) => {
                write = |observed: &Observed| {
                    if written.is_ok() {
                        written = ops.write(observed);
                    }
                };
                Some(&mut write)
            }
            None => None,
        };
        Analysis::run(inputs, options, sink, &mut |frames| progress.set(frames), &|| stop.is_raised())
    };
    progress.finish();
    written.context("writing --ops").map_err(Failure::Work)?;
    result.map_err(|error| match error {
        AnalysisError::File(_) => Failure::Usage(error.into()),
        AnalysisError::Write(_) => Failure::Work(error.into()),
    })
}
