//! The results of `bench`: a table or JSON, failures and thresholds.

use std::fmt;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use load::RunResult;
use output::text::line;
use record::units::counted;
use report::fio::{self, Bins};
use report::ops::OpsWriter;

use super::BenchArgs;
use crate::Failure;
use crate::print::{eprint_line, print_line};

/// The format of the results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OutputFormat {
    /// A table.
    #[default]
    Normal,
    /// JSON with fio's keys.
    Json,
    /// The same with the bins of all distributions.
    #[value(name = "json+")]
    JsonPlus,
}

/// Prints the results of all runs, their failures and missed thresholds. The exit code is 1 if an operation failed, data did not
/// match or a threshold was missed.
pub(crate) fn finish(
    args: &BenchArgs,
    url: &dyn fmt::Display,
    runs: &[RunResult],
) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.html {
        crate::report::write(path, &[report::pages::Result::Bench(&url.to_string(), runs)])?;
    }
    print_results(args, url, runs)?;
    let is_table = !args.is_machine_readable();
    for run in runs {
        report_problems(run, is_table);
    }
    let mut has_missed = false;
    for run in runs {
        for missed in args.assert.iter().filter_map(|threshold| threshold.check(run)) {
            has_missed = true;
            eprint_line(format_args!("{}, queue depth {}: {missed}", run.sizes(), run.queue_depth));
        }
    }
    let bad =
        runs.iter().any(|r| r.errors > 0 || r.unmeasured_errors > 0 || r.mismatched_blocks.unwrap_or(0) > 0);
    Ok(if bad || has_missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print_results(args: &BenchArgs, url: &dyn fmt::Display, runs: &[RunResult]) -> Result<(), Failure> {
    let pretty = |value: &serde_json::Value| {
        serde_json::to_string_pretty(value).context("writing JSON").map_err(Failure::Work)
    };
    let bins = match args.output_format {
        OutputFormat::Json => Bins::Omitted,
        OutputFormat::JsonPlus => Bins::Printed,
        OutputFormat::Normal if args.json => {
            print_line(pretty(&serde_json::json!({ "url": url.to_string(), "runs": runs }))?);
            return Ok(());
        }
        OutputFormat::Normal => {
            print_line(if args.wide {
                report::terminal::runs_wide(runs)
            } else {
                report::bench_text::runs(runs)
            });
            return Ok(());
        }
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    print_line(pretty(&fio::json(&url.to_string(), runs, bins, now))?);
    Ok(())
}

/// Reports failures below the table, or on stderr if stdout is for a program.
fn report_problems(run: &RunResult, is_table: bool) {
    let failures = report::terminal::failures(run);
    if !failures.is_empty() {
        for line in failures.lines() {
            if is_table { print_line(line) } else { eprint_line(line) }
        }
    }
    if let Some(first) = &run.first_error {
        // The error may quote the target.
        let first = line(first);
        eprint_line(format_args!(
            "{} at {}, queue depth {}; the first: {first}",
            counted(run.errors + run.unmeasured_errors + run.mismatched_blocks.unwrap_or(0), "error"),
            run.sizes(),
            run.queue_depth
        ));
    }
    if let Some(behind) = run.behind.filter(|behind| *behind > run.operations / 100) {
        eprint_line(format_args!(
            "queue depth {}: {} not begun in time: the target did not keep up with the rate, and the latencies include a growing queue",
            run.queue_depth,
            were(behind, "operation")
        ));
    }
}

/// A number of things with its verb: `1 operation was`, `2 operations were`.
pub(super) fn were(count: u64, noun: &str) -> String {
    format!("{} {}", counted(count, noun), if count == 1 { "was" } else { "were" })
}

/// The file of `--ops`.
pub(super) struct Records<'a> {
    path: &'a Path,
    writer: OpsWriter,
    over_limit: u64,
}

impl<'a> Records<'a> {
    /// Operations kept in memory for each session or thread of a run before they are written.
    pub(super) const MAX: usize = 4 << 20;

    /// Creates the file.
    pub(super) fn create(path: &'a Path) -> Result<Self, Failure> {
        let writer = OpsWriter::create(path)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage)?;
        Ok(Self { path, writer, over_limit: 0 })
    }

    /// Writes the operations of a run, of which `over_limit` were not kept.
    pub(super) fn write(&mut self, ops: &[record::Op], over_limit: u64) -> Result<(), Failure> {
        self.over_limit += over_limit;
        let written = ops.iter().try_for_each(|op| self.writer.write(op));
        written.context("writing --ops").map_err(Failure::Work)
    }

    /// Gives the file its name.
    pub(super) fn finish(self) -> Result<(), Failure> {
        self.writer.finish().context("writing --ops").map_err(Failure::Work)?;
        if self.over_limit > 0 {
            eprint_line(format_args!(
                "{}: {} not recorded: a run keeps {} for each session or thread; use a shorter --runtime",
                self.path.display(),
                were(self.over_limit, "operation"),
                counted(Self::MAX as u64, "operation")
            ));
        }
        Ok(())
    }
}
