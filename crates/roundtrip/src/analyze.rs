//! `roundtrip analyze`: finds causes of slowness in captures.

mod each;

use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ::compare::Profile;
use ::report::analysis_text::{Detail, Shown};
use ::report::ops::{Names, OpsWriter};
use analyzer::{Analysis, AnalysisError, AnalysisResult, Input, Named, Options, TakeOps, annotate};
use anyhow::{Context as _, anyhow};
use capture::decode::{PROTOCOLS, protocol_named};
use capture::file::CaptureFile;
use capture::{Digests, KeyLogError, Keys, Protocol, Selection};
use clap::ValueEnum;
use output::Draft;
use record::wire::Wire;
use record::{Observed, Side};

use crate::figures::Captured;
use crate::print::{eprint_line, print_line};
use crate::stop::Stop;
use crate::{Failure, args, compare, live, outputs, report};

/// Find out from a capture why a service was slow: operations, breakdown, verdicts
///
/// Reads pcap and pcapng, plain or compressed (gzip, zstd), of one side, of both sides, or with several
/// interfaces. Reports where the time of iSCSI, HTTP/1.1 and other request/response traffic went, the causes of
/// slowness, and remedies. Exits with 1 if there is a verdict.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip analyze slow.pcapng\n  \
                        tcpdump -i eth0 -s 128 -w - port 3260 | roundtrip analyze -\n  \
                        roundtrip analyze https.pcapng --keylog keys.log --by key\n  \
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
    /// Protocol of the messages; auto detects it from the first bytes, and turns follows any by change of direction
    #[arg(long, value_parser = protocols(), default_value = "auto")]
    protocol: String,
    /// Secrets of TLS connections, as browsers, curl and other programs write them for SSLKEYLOGFILE: their records are decrypted. A
    /// pcapng file may also hold them itself
    #[arg(long, value_name = "FILE")]
    keylog: Option<PathBuf>,
    /// Analyze only connections with this server port; with =PROTOCOL, such as 6380=redis, as this protocol
    #[arg(long, value_name = "PORT[=PROTOCOL]", value_parser = port)]
    port: Option<PortArg>,
    /// Rate of the link between the sides, such as 1gbit: adds the time on the link, and detects a full link
    #[arg(long, value_parser = args::rate)]
    bandwidth: Option<u64>,
    /// MTU of the link
    #[arg(long, default_value_t = 1500, value_parser = clap::value_parser!(u32).range(576..=65535))]
    mtu: u32,
    /// Divide the services of the report; JSON has all of it
    #[arg(long, value_enum, value_name = "WHAT", conflicts_with = "json")]
    by: Option<ByArg>,
    /// Print the N slowest operations with their frames and keys (JSON has 20 unless more are asked for)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    slowest: Option<u16>,
    /// Show paths, keys and statements as they are; without it numbers, identifiers and literals are folded
    #[arg(long)]
    verbatim: bool,
    /// Do not search the operations for modes and patterns
    #[arg(long)]
    no_modes: bool,
    /// Write every operation to this file (.parquet, .csv, or .pftrace for Perfetto); with --each, to a dataset in this folder
    #[arg(long, value_name = "FILE|FOLDER")]
    ops: Option<PathBuf>,
    /// Analyze each capture by itself, in parallel, into the dataset of --ops; folders stand for the captures in them. Captures that are
    /// in the dataset are not analyzed again
    #[arg(long, requires_all = ["ops", "files"], conflicts_with_all = ["client", "server", "interface", "by", "slowest", "figures", "save", "annotate", "html", "wide", "explain"])]
    each: bool,
    /// With --each: captures that are analyzed at a time [default: the number of CPUs]
    #[arg(long, value_name = "N", requires = "each")]
    jobs: Option<std::num::NonZeroU16>,
    /// Draw the six quantities of single operations over time, as SVG and PNG in this directory, which is created if missing: a
    /// page for each kind of operation
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Keep a profile for `compare`, under this name or in this file: rates, percentiles and the parts of the time over time, and the
    /// verdicts
    #[arg(long, value_name = "NAME|FILE")]
    save: Option<PathBuf>,
    /// Write a copy of the capture to this file, with the verdicts as comments on their frames; beside it, FILE.pcapng.wireshark has a
    /// profile for Wireshark with columns and colours for them
    #[arg(long, value_name = "FILE.pcapng")]
    annotate: Option<PathBuf>,
    /// Write the result as a page to this file: charts, the slowest operations with their packets, what mends each verdict
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Show tables with all columns, wider than 80
    #[arg(long)]
    wide: bool,
    /// Explain each verdict: what it rests on, its frames, and the remedies for each system; with =KIND, such as =delayed_ack, say what a
    /// cause is and what mends it, without a capture
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    explain: Option<String>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// A server's port, and how it is to be read.
#[derive(Clone, Debug)]
pub(crate) struct PortArg {
    pub(crate) port: u16,
    pub(crate) protocol: Option<Protocol>,
}

/// The names of the protocols.
fn protocols() -> clap::builder::PossibleValuesParser {
    let own = ["auto", "turns", "iscsi", "http"].into_iter();
    clap::builder::PossibleValuesParser::new(own.chain(PROTOCOLS.iter().map(|entry| entry.name)))
}

/// The protocol of a name.
fn protocol(name: &str) -> Option<Protocol> {
    Some(match name {
        "auto" => Protocol::Auto,
        "turns" => Protocol::Turns,
        "iscsi" => Protocol::Iscsi(Digests::default()),
        "http" => Protocol::Http,
        other => Protocol::Decoded(protocol_named(other)?),
    })
}

/// A port, with its protocol if one is given.
pub(crate) fn port(text: &str) -> Result<PortArg, String> {
    let (port, name) = text.split_once('=').map_or((text, None), |(port, name)| (port, Some(name)));
    let port = port.parse::<u16>().map_err(|_| format!("{port} is no port: a number from 0 to 65535"))?;
    let protocol = match name {
        None => None,
        Some(name) => Some(protocol(name).ok_or_else(|| {
            let known: Vec<&str> = PROTOCOLS.iter().map(|entry| entry.name).collect();
            format!("no protocol is called {name}: auto, turns, iscsi, http, {}", known.join(", "))
        })?),
    };
    Ok(PortArg { port, protocol })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ByArg {
    /// Each connection, size and queue depth, with the parts of the time
    Connection,
    /// Each client's address
    Client,
    /// Each size of the data, in powers of two
    Size,
    /// Each key: path, statement or prefix of a key, with numbers, identifiers and literals folded
    #[value(alias = "path")]
    Key,
}

impl ByArg {
    fn detail(self) -> Detail {
        match self {
            ByArg::Connection => Detail::Connection,
            ByArg::Client => Detail::Client,
            ByArg::Size => Detail::Size,
            ByArg::Key => Detail::Key,
        }
    }
}

pub(crate) fn run(args: &AnalyzeArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    if let Some(kind) = args.explain.as_deref().filter(|kind| !kind.is_empty()) {
        let text = ::report::explain::cause(kind).ok_or_else(|| {
            let known = ::report::explain::kinds().join(", ");
            Failure::Usage(anyhow!("no cause is called {kind}: {known}"))
        })?;
        print_line(text);
        return Ok(ExitCode::SUCCESS);
    }
    let paths = if args.each { Vec::new() } else { paths(args)? };
    let printed = Shown {
        detail: args.by.map(ByArg::detail),
        slowest: args.slowest.is_some(),
        wide: args.wide,
        explain: args.explain.is_some(),
    };
    let named = [
        ("--annotate", args.annotate.as_ref()),
        ("--ops", args.ops.as_ref()),
        ("--html", args.html.as_ref()),
    ];
    outputs::check(&named, paths.iter().map(|(path, _)| path))?;
    args.html.iter().try_for_each(|path| crate::report::check(path))?;
    let others = paths.iter().map(|(path, _)| path).chain(named.iter().filter_map(|(_, path)| *path));
    outputs::check_folder("--figures", args.figures.as_ref(), others)?;
    let of_port = args.port.as_ref();
    let protocol =
        of_port.and_then(|of| of.protocol).or_else(|| protocol(&args.protocol)).unwrap_or(Protocol::Auto);
    let shown = capture::Shown { verbatim: args.verbatim };
    let port = of_port.map(|of| of.port);
    let options = Options {
        selection: Selection { port, protocol, shown, keys: keys(args)?, ..Selection::default() },
        wire: args.bandwidth.map(|rate| Wire::ethernet(rate, args.mtu)),
        modes: !args.no_modes,
        slowest: args.slowest.map(usize::from),
        prompt: false,
    };
    if args.each {
        return each::run(args, &options, &stop);
    }
    let mut ops = match &args.ops {
        Some(path) => Some(
            OpsWriter::create(path)
                .with_context(|| format!("cannot write {}", path.display()))
                .map_err(Failure::Usage)?,
        ),
        None => None,
    };
    let mut figures = args.figures.as_ref().map(|_| Captured::default());
    let names: Vec<String> = paths.iter().map(|(path, _)| path.display().to_string()).collect();
    let source = if names.is_empty() { args.interface.join(", ") } else { names.join(", ") };
    let mut profile = args.save.as_ref().or(args.html.as_ref()).map(|_| Profile::new(&source));
    let mut sinks = Sinks { ops: ops.as_mut(), figures: figures.as_mut(), profile: profile.as_mut() };
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
        let result = inputs.and_then(|inputs| {
            run_analysis(inputs, size(&paths), &options, &mut sinks, &|| stop.is_raised())
        });
        result.map_err(classify)?
    } else {
        capture_and_analyse(args, &options, &mut sinks, &stop)?
    };
    // A capture without operations says nothing about a service: neither "slow" nor "not slow".
    let is_empty = result.operations == 0 && result.verdicts.is_empty() && result.responses_coming == 0;
    // A run that failed or was interrupted leaves older files as they were.
    let is_complete = !is_empty && (!stop.is_raised() || !args.interface.is_empty());
    if let Some(ops) = ops.filter(|_| is_complete) {
        ops.finish().context("writing --ops").map_err(Failure::Work)?;
    }
    if let (Some(folder), Some(figures)) = (&args.figures, figures.filter(|_| is_complete)) {
        let names: Vec<&str> = result.inputs.iter().map(|input| input.name.as_str()).collect();
        figures.write(folder, &names.join(", ")).map_err(Failure::Usage)?;
    }
    if let Some(mut profile) = profile.filter(|_| is_complete) {
        compare::complete(&mut profile, &result);
        if let Some(name) = &args.save {
            let path = compare::save(&profile, name).context("--save").map_err(Failure::Usage)?;
            eprint_line(format_args!("profile kept in {}", path.display()));
        }
        if let Some(path) = &args.html {
            report::write(path, &[::report::pages::Result::Analysis(&result, Some(&profile))])?;
        }
    }
    if let Some((path, draft)) = annotated.filter(|_| is_complete) {
        write_annotated(draft, &paths, &result)
            .with_context(|| format!("writing {}", path.display()))
            .map_err(Failure::Work)?;
        // A device or a pipe has no place beside it. The result is not lost for want of a profile.
        if path.is_file() {
            match ::report::wireshark::write(path) {
                Ok(folder) => eprint_line(format_args!(
                    "to see it: WIRESHARK_CONFIG_DIR={} wireshark -C {} {}",
                    quoted(&folder),
                    ::report::wireshark::PROFILE,
                    quoted(path)
                )),
                Err(error) => eprint_line(format_args!("no profile for Wireshark: {error}")),
            }
        }
    }
    if args.json {
        let text = serde_json::to_string_pretty(&result).context("writing JSON").map_err(Failure::Work)?;
        print_line(text);
    } else if !is_empty {
        print_line(::report::analysis_text::analysis(&result, printed).trim_end());
    }
    if stop.is_raised() && args.interface.is_empty() {
        return Err(Failure::Work(anyhow!("interrupted: the result covers the input read so far")));
    }
    if is_empty {
        let text = ::report::analysis_text::nothing_found(&result, port);
        return Err(Failure::Usage(anyhow!("{text}")));
    }
    Ok(if result.verdicts.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// The secrets of the key log; what is wrong with it is told.
fn keys(args: &AnalyzeArgs) -> Result<Keys, Failure> {
    let keys = Keys::default();
    let Some(path) = &args.keylog else { return Ok(keys) };
    let name = path.display();
    let read = File::open(path).map_err(KeyLogError::from).and_then(|file| keys.read(BufReader::new(file)));
    let log = read.map_err(|error| Failure::Usage(anyhow!("{name}: {error}")))?;
    let wrong: Vec<String> =
        log.wrong.iter().map(|(line, what)| format!("{name}: line {line}: {what}")).collect();
    let more = log.wrong_lines - log.wrong.len() as u64;
    if log.secrets == 0 {
        let wrong = if wrong.is_empty() { String::new() } else { format!(" ({})", wrong.join("; ")) };
        return Err(Failure::Usage(anyhow!("{name} has no secret of TLS{wrong}")));
    }
    wrong.iter().for_each(eprint_line);
    if more > 0 {
        eprint_line(format_args!("{name}: {more} more lines are wrong"));
    }
    Ok(keys)
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

/// Captures, and analyses what comes.
fn capture_and_analyse(
    args: &AnalyzeArgs,
    options: &Options,
    sinks: &mut Sinks<'_>,
    stop: &Stop,
) -> Result<AnalysisResult, Failure> {
    let port = args.port.as_ref().map_or(0, |of| of.port);
    if args.duration.is_none() {
        let ports = if port == 0 { "all ports".to_owned() } else { format!("port {port}") };
        eprint_line(format_args!(
            "capturing {ports} on {}; Ctrl-C ends it and prints the result",
            args.interface.join(", ")
        ));
    }
    let spec = live::Spec { interfaces: &args.interface, port, duration: args.duration, seen: None };
    // Ctrl-C ends the capture; the captured packets are analysed completely.
    live::analyse(&spec, &|| (), &|| stop.is_raised(), |file| {
        run_analysis(vec![Input { file, place: None }], None, options, sinks, &|| false)
    })
}

/// What takes every operation.
struct Sinks<'a> {
    ops: Option<&'a mut OpsWriter>,
    figures: Option<&'a mut Captured>,
    profile: Option<&'a mut Profile>,
}

fn run_analysis(
    inputs: Vec<Input>,
    bytes: Option<u64>,
    options: &Options,
    sinks: &mut Sinks<'_>,
    stop: &dyn Fn() -> bool,
) -> Result<AnalysisResult, AnalysisError> {
    let progress = ::report::progress::Reading::new(bytes);
    let mut written = Ok(());
    let result = {
        let mut write;
        let is_wanted = sinks.ops.is_some() || sinks.figures.is_some() || sinks.profile.is_some();
        let sink: Option<&mut TakeOps<'_>> = if is_wanted {
            write = |observed: &Observed, named: &Named<'_>| {
                if let (Some(ops), true) = (&mut sinks.ops, written.is_ok()) {
                    let Named { service, client, key } = *named;
                    written = ops.write_observed(observed, &Names { service, client, key });
                }
                if let Some(figures) = &mut sinks.figures {
                    figures.add(observed);
                }
                if let Some(profile) = &mut sinks.profile {
                    compare::add(profile, observed, named, false);
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
pub(crate) fn classify(error: AnalysisError) -> Failure {
    match error {
        AnalysisError::File(_) => Failure::Usage(error.into()),
        AnalysisError::Write(_) => Failure::Work(error.into()),
    }
}
