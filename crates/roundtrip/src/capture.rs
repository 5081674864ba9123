//! `roundtrip capture`: captures the packets of a port to a file.

use std::cell::Cell;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use capture::record_to_file::{RecordError, RecordSpec, Recorded, record};
use output::Partial;

use crate::print::{eprint_line, print_line};
use crate::stop::Stop;
use crate::{Failure, args};

/// Capture the packets of a port, with nanosecond timestamps, until Ctrl-C
///
/// Reports at the end the number of dropped packets and the cost of the capture for the traffic: packets per second of
/// the interface before, during and after the capture.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  roundtrip capture --port 3260 --interface eth0 -o slow.pcapng\n  \
                        roundtrip capture --port 3260 --duration 10s -o - | roundtrip analyze -")]
pub(crate) struct CaptureArgs {
    /// TCP port of either end
    #[arg(long)]
    port: u16,
    /// Interface to capture from; repeatable
    #[arg(long, value_name = "IF", default_value = "lo")]
    interface: Vec<String>,
    /// Bytes to keep of each packet; messages that begin beyond them are not seen, so their requests seem to wait for ever
    #[arg(long, value_parser = args::size, default_value = "256k")]
    snap: u64,
    /// Size of the ring in memory, per interface
    #[arg(long, value_parser = args::size, default_value = "64M")]
    ring: u64,
    /// Stop after this time
    #[arg(long, value_parser = args::time)]
    duration: Option<Duration>,
    /// Keep no more packets when the file reaches this size; later packets are still counted
    #[arg(long, value_parser = args::size, value_name = "SIZE")]
    limit: Option<u64>,
    /// Time to count the interface's packets before and after the capture, to measure its cost
    #[arg(long, value_parser = args::time, default_value = "500ms")]
    baseline: Duration,
    /// File to write; - is standard output. It has the name FILE.pcapng.part until the capture is complete
    #[arg(short, long, value_name = "FILE.pcapng")]
    output: PathBuf,
    /// Print a summary as JSON on stdout, or on stderr if the capture goes to stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &CaptureArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let to_stdout = args.output.as_os_str() == "-";
    let partial = if to_stdout {
        None
    } else {
        let partial = Partial::create(&args.output)
            .with_context(|| format!("cannot write {}", args.output.display()))
            .map_err(Failure::Usage)?;
        Some(partial)
    };
    let out: Box<dyn Write + Send> = match &partial {
        None => Box::new(io::stdout()),
        Some(partial) => {
            let handle = partial.handle().with_context(|| args.output.display().to_string());
            Box::new(handle.map_err(Failure::Work)?)
        }
    };
    let spec = RecordSpec {
        interfaces: args.interface.clone(),
        port: args.port,
        snap_bytes: u32::try_from(args.snap).unwrap_or(u32::MAX).clamp(64, 262_144),
        ring_bytes: usize::try_from(args.ring).unwrap_or(usize::MAX).clamp(2 << 20, 4 << 30),
        duration: args.duration,
        bytes_max: args.limit,
        baseline: args.baseline,
        application: concat!("roundtrip ", env!("CARGO_PKG_VERSION")).to_owned(),
        seen: None,
    };
    eprint_line(format_args!(
        "capturing port {} on {}{}",
        args.port,
        args.interface.join(", "),
        if args.duration.is_some() { "" } else { "; Ctrl-C ends it" }
    ));
    let has_begun = Cell::new(false);
    let out = BufWriter::with_capacity(1 << 20, out);
    let recorded = record(&spec, out, &|| has_begun.set(true), &|| stop.is_raised());
    let recorded = finish(recorded, partial, has_begun.get())?;
    if args.json {
        let text = serde_json::to_string_pretty(&recorded).context("writing JSON").map_err(Failure::Work)?;
        if to_stdout {
            eprint_line(text);
        } else {
            print_line(text);
        }
    } else {
        eprint_line(report::analysis_text::recorded(&recorded).trim_end());
    }
    let lost = recorded.interfaces.iter().any(|i| i.drops > 0);
    Ok(if lost { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Gives a complete capture its name. What an incomplete one has recorded stays in its `.part` file.
fn finish(
    recorded: Result<Recorded, RecordError>,
    partial: Option<Partial>,
    has_begun: bool,
) -> Result<Recorded, Failure> {
    let kept = partial.as_ref().and_then(Partial::part).map(Path::to_owned);
    let error = match recorded {
        Ok(recorded) => match partial.map_or(Ok(()), Partial::commit) {
            Ok(()) => return Ok(recorded),
            Err(error) => anyhow::Error::from(error).context("cannot rename the capture"),
        },
        Err(error) if !has_begun => {
            if let Some(partial) = partial {
                partial.discard();
            }
            let is_usage = error.is_usage();
            return Err(if is_usage { Failure::Usage(error.into()) } else { Failure::Work(error.into()) });
        }
        Err(error) => error.into(),
    };
    Err(Failure::Work(match kept {
        Some(kept) => anyhow!("{error:#}; the capture so far is in {}", kept.display()),
        None => error,
    }))
}
