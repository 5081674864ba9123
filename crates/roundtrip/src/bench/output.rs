//! The results of `bench`: a table or JSON, failures and thresholds.

use std::fmt;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use load::RunResult;
use output::text::line;
use report::fio::{self, Bins};

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
    print_results(args, url, runs)?;
    let is_table = !args.is_machine_readable();
    for run in runs {
        report_problems(run, is_table);
    }
    let mut has_missed = false;
    for run in runs {
        for missed in args.assert.iter().filter_map(|threshold| threshold.check(run)) {
            has_missed = true;
            eprint_line(format_args!(
                "{} B, queue depth {}: {missed}",
                run.block_size_bytes, run.queue_depth
            ));
        }
    }
    let bad = runs.iter().any(|r| r.errors > 0 || r.mismatched_blocks.unwrap_or(0) > 0);
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
            print_line(report::terminal::runs(runs));
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
            "{} errors at {} B, queue depth {}; the first: {first}",
            run.errors, run.block_size_bytes, run.queue_depth
        ));
    }
    if run.behind.is_some_and(|behind| behind > run.operations / 100) {
        eprint_line(format_args!(
            "queue depth {}: {} operations began late: the target did not keep up with the rate, and the latencies include a growing queue",
            run.queue_depth,
            run.behind.unwrap_or(0)
        ));
    }
}
