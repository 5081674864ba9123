//! `roundtrip analyze`: finds causes of slowness in captures.

use std::io::{BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use analyzer::{Analysis, AnalysisError, AnalysisResult, Input, Options, annotate};
use anyhow::{Context as _, anyhow};
use capture::file::CaptureFile;
use capture::record_to_file::{RecordSpec, record};
use capture::{Digests, Protocol, Selection};
use clap::ValueEnum;
use output::Draft;
use record::wire::Wire;
use record::{Observed, Side};
use report::ops::OpsWriter;

use crate::figures::Captured;
use crate::print::{eprint_line, print_line};
use crate::stop::Stop;
use crate::{Failure, args, outputs};

/// Find out from a capture why a service was slow: operations, breakdown, verdicts
///
/// Reads pcap and pcapng, plain or compressed (gzip, zstd), of one side, of both sides, or with several
/// interfaces. Reports where the time of iSCSI, HTTP/1.1 and other request/response traffic went, the causes of
/// slowness, and remedies. Exits with 1 if there is a verdict.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip analyze slow.pcapng\n  \
                        tcpdump -i eth0 -s 128 -w - port 3260 | roundtrip analyze -\n  \
                        roundtrip analyze --client a.pcap.gz --server b.pcap.zst --json\n  \
                        roundtrip analyze --client a.pcap.gz --server b.pcap.gz --figures out/pictures\n  \
                        roundtrip analyze --interface eth0 --port 3260 --duration 10s")]
pub(crate) struct AnalyzeArgs {
    /// Capture files; - is standard input
    files: Vec<PathBuf>,
    /// Capture from the client's side
    #[arg(long, value_name = "FILE")]
    client: Option<PathBuf>,
    /// Capture from the server's side
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Interface to capture from, instead of reading a file, until Ctrl-C or --duration; needs --port
    #[arg(long, value_name = "IF", requires = "port", conflicts_with_all = ["files", "client", "server", "annotate"])]
    interface: Vec<String>,
    /// Duration of the capture
    #[arg(long, value_parser = args::time, requires = "interface")]
    duration: Option<Duration>,
    /// Protocol of the messages
    #[arg(long, value_enum, default_value = "auto")]
    protocol: ProtocolArg,
    /// Analyze only connections with this server port
    #[arg(long)]
    port: Option<u16>,
    /// Rate of the link between the sides, such as 1gbit: adds the time on the link, and detects a full link
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
    /// Draw the six quantities of single operations over time, as SVG and PNG in this directory, which is created if missing: a
    /// page for each kind of operation
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Write a copy of the capture to this file, with the verdicts as comments on their frames
    #[arg(long, value_name = "FILE.pcapng")]
    annotate: Option<PathBuf>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtocolArg {
    /// Detect from the first bytes
    Auto,
    /// iSCSI (RFC 7143)
    Iscsi,
    /// HTTP/1.1
    Http,
    /// Requests and responses by change of direction
    Turns,
}

pub(crate) fn run(args: &AnalyzeArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let paths = paths(args)?;
    let named = [("--annotate", args.annotate.as_ref()), ("--ops", args.ops.as_ref())];
    outputs::check(&named, paths.iter().map(|(path, _)| path))?;
    let others = paths.iter().map(|(path, _)| path).chain(named.iter().filter_map(|(_, path)| *path));
    outputs::check_folder("--figures", args.figures.as_ref(), others)?;
    let protocol = match args.protocol {
        ProtocolArg::Auto => Protocol::Auto,
        ProtocolArg::Iscsi => Protocol::Iscsi(Digests::default()),
        ProtocolArg::Http => Protocol::Http,
        ProtocolArg::Turns => Protocol::Turns,
    };
    let options = Options {
        selection: Selection { port: args.port, protocol, ..Selection::default() },
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
    let mut figures = args.figures.as_ref().map(|_| Captured::default());
    let mut sinks = Sinks { ops: ops.as_mut(), figures: figures.as_mut() };
    let annotated = match &args.annotate {
        Some(path) => {
            let draft = Draft::create(path).with_context(|| format!("cannot write {}", path.display()));
            Some((path, draft.map_err(Failure::Usage)?))
        }
        None => None,
    };
    let result = if args.interface.is_empty() {
        let open = |(path, place): &(PathBuf, Option<Side>)| {
            Ok(Input { file: CaptureFile::open(path)?, place: *place })
        };
        let inputs: Result<Vec<Input>, AnalysisError> = paths.iter().map(open).collect();
        let result = inputs
            .and_then(|inputs| run_analysis(inputs, size(&paths), options, &mut sinks, &|| stop.is_raised()));
        result.map_err(classify)?
    } else {
        live(args, options, &mut sinks, &stop)?
    };
    // A capture without operations says nothing about a service: neither "slow" nor "not slow".
    let is_empty = result.operations == 0 && result.verdicts.is_empty();
    // A run that failed or was interrupted leaves older files as they were.
    let is_complete = !is_empty && (!stop.is_raised() || !args.interface.is_empty());
    if let Some(ops) = ops.filter(|_| is_complete) {
        ops.finish().context("writing --ops").map_err(Failure::Work)?;
    }
    if let (Some(folder), Some(figures)) = (&args.figures, figures.filter(|_| is_complete)) {
        let names: Vec<&str> = result.inputs.iter().map(|input| input.name.as_str()).collect();
        figures.write(folder, &names.join(", ")).map_err(Failure::Usage)?;
    }
    if let Some((path, draft)) = annotated.filter(|_| is_complete) {
        write_annotated(draft, &paths, &result)
            .with_context(|| format!("writing {}", path.display()))
            .map_err(Failure::Work)?;
    }
    if args.json {
        let text = serde_json::to_string_pretty(&result).context("writing JSON").map_err(Failure::Work)?;
        print_line(text);
    } else if !is_empty {
        print_line(report::analysis_text::analysis(&result).trim_end());
    }
    if stop.is_raised() && args.interface.is_empty() {
        return Err(Failure::Work(anyhow!("interrupted: the result covers the input read so far")));
    }
    if is_empty {
        let text = report::analysis_text::nothing_found(&result, args.port);
        return Err(Failure::Usage(anyhow!("{text}")));
    }
    Ok(if result.verdicts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Writes the copy of the capture with the verdicts as comments.
fn write_annotated(
    draft: Draft,
    inputs: &[(PathBuf, Option<Side>)],
    result: &AnalysisResult,
) -> anyhow::Result<()> {
    let application = concat!("roundtrip ", env!("CARGO_PKG_VERSION"));
    let mut out = BufWriter::with_capacity(1 << 20, draft.handle()?);
    annotate(inputs, result, &mut out, application)?;
    out.flush()?;
    drop(out);
    Ok(draft.commit()?)
}

/// The files and their sides from the command line.
fn paths(args: &AnalyzeArgs) -> Result<Vec<(PathBuf, Option<Side>)>, Failure> {
    let sides = [(&args.client, Side::Client), (&args.server, Side::Server)];
    let placed = sides.into_iter().filter_map(|(path, side)| Some((path.clone()?, Some(side))));
    let all: Vec<_> = args.files.iter().map(|path| (path.clone(), None)).chain(placed).collect();
    if all.is_empty() && args.interface.is_empty() {
        return Err(Failure::Usage(anyhow!(
            "name a capture file, - for standard input, or --interface to capture now"
        )));
    }
    let standard = all.iter().filter(|(path, _)| path.as_os_str() == "-").count();
    if standard > 1 || (standard == 1 && args.annotate.is_some()) {
        return Err(Failure::Usage(anyhow!(
            "standard input can be read once only: give files where several are needed, or --annotate"
        )));
    }
    Ok(all)
}

/// Captures into a pipe, on a separate thread, and analyses the other end of the pipe.
fn live(
    args: &AnalyzeArgs,
    options: Options,
    sinks: &mut Sinks<'_>,
    stop: &Stop,
) -> Result<AnalysisResult, Failure> {
    let (reader, writer) = std::io::pipe().context("cannot create a pipe").map_err(Failure::Work)?;
    let spec = RecordSpec {
        interfaces: args.interface.clone(),
        port: args.port.unwrap_or_default(),
        snap_bytes: LIVE_SNAP_BYTES,
        ring_bytes: LIVE_RING_BYTES,
        duration: args.duration,
        bytes_max: None,
        baseline: Duration::ZERO,
        application: "roundtrip".to_owned(),
    };
    let name = args.interface.join(", ");
    if args.duration.is_none() {
        eprint_line(format_args!(
            "capturing port {} on {name}; Ctrl-C ends it and prints the result",
            spec.port
        ));
    }
    std::thread::scope(|scope| {
        let capturing = scope.spawn(|| record(&spec, writer, &|| (), &|| stop.is_raised()));
        let opened = CaptureFile::read(&name, Box::new(reader));
        // Ctrl-C ends the capture; the captured packets are analysed completely.
        let result = opened.map_err(AnalysisError::from).and_then(|file| {
            run_analysis(vec![Input { file, place: None }], None, options, sinks, &|| false)
        });
        match capturing.join() {
            Ok(Ok(_)) => result.map_err(classify),
            Ok(Err(error)) if error.is_usage() => Err(Failure::Usage(error.into())),
            Ok(Err(error)) => Err(Failure::Work(error.into())),
            Err(_) => Err(Failure::Work(anyhow!("the capturing thread panicked"))),
        }
    })
}

/// Bytes kept of each packet: enough for the headers of a few messages, also in a jumbo frame.
const LIVE_SNAP_BYTES: u32 = 262_144;
/// Size of the ring that the kernel fills while the analysis is busy.
const LIVE_RING_BYTES: usize = 64 << 20;

/// What takes every operation.
struct Sinks<'a> {
    ops: Option<&'a mut OpsWriter>,
    figures: Option<&'a mut Captured>,
}

fn run_analysis(
    inputs: Vec<Input>,
    bytes: Option<u64>,
    options: Options,
    sinks: &mut Sinks<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<AnalysisResult, AnalysisError> {
    let progress = report::progress::Reading::new(bytes);
    let mut written = Ok(());
    let result = {
        let mut write;
        let sink: Option<&mut dyn FnMut(&Observed)> = if sinks.ops.is_some() || sinks.figures.is_some() {
            write = |observed: &Observed| {
                if let (Some(ops), true) = (&mut sinks.ops, written.is_ok()) {
                    written = ops.write_observed(observed);
                }
                if let Some(figures) = &mut sinks.figures {
                    figures.add(observed);
                }
            };
            Some(&mut write)
        } else {
            None
        };
        Analysis::run(inputs, options, sink, &mut |bytes| progress.set(bytes), stop)
    };
    progress.finish();
    written?;
    result
}

/// The size of all inputs, bytes; `None` if one is no regular file.
fn size(inputs: &[(PathBuf, Option<Side>)]) -> Option<u64> {
    let size =
        |path: &PathBuf| std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|m| m.len());
    inputs.iter().map(|(path, _)| size(path)).sum()
}

/// Classifies an error as one of usage or of the work.
fn classify(error: AnalysisError) -> Failure {
    match error {
        AnalysisError::File(_) => Failure::Usage(error.into()),
        AnalysisError::Write(_) => Failure::Work(error.into()),
    }
}
