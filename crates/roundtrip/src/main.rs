//! The command line: one file per verb, no logic.
//!
//! Exit codes: 0 done; 1 a problem was found that was asked for, or the work failed; 2 the arguments or the
//! input cannot be used.

#![forbid(unsafe_code)]

mod access;
mod analyze;
mod args;
mod bench;
mod bench_copy;
mod bench_http;
mod capture;
mod model;
mod say;
mod serve;
mod simulate;
mod stop;
mod study;
mod study_client;
mod target;
mod target_file;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A user-space iSCSI target and the laboratory that shows where every microsecond of a round trip goes.
#[derive(Debug, Parser)]
#[command(name = "roundtrip", version, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Target(target::TargetArgs),
    Bench(bench::BenchArgs),
    Study(study::StudyArgs),
    #[command(hide = true)]
    StudyClient(study_client::StudyClientArgs),
    Model(model::ModelArgs),
    Simulate(simulate::SimulateArgs),
    Serve(serve::ServeArgs),
    Capture(capture::CaptureArgs),
    Analyze(analyze::AnalyzeArgs),
    Wire(wire::WireArgs),
}

/// Why a verb did not do what was asked, by whose fault.
enum Failure {
    /// The arguments or the input: exit 2.
    Usage(anyhow::Error),
    /// The work: exit 1.
    Work(anyhow::Error),
}

fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_env("ROUNDTRIP_LOG").unwrap_or_else(|_| "warn".into()),
        )
        .with_writer(std::io::stderr)
        .init();
    let outcome = match Cli::parse().verb {
        Verb::Target(args) => target::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Study(args) => study::run(&args),
        Verb::StudyClient(args) => study_client::run(&args),
        Verb::Model(args) => model::run(&args),
        Verb::Simulate(args) => simulate::run(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Capture(args) => capture::run(&args),
        Verb::Analyze(args) => analyze::run(&args),
        Verb::Wire(args) => wire::run(&args),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure::Usage(error)) => {
            eprintln!("roundtrip: {error:#}");
            ExitCode::from(2)
        }
        Err(Failure::Work(error)) => {
            eprintln!("roundtrip: {error:#}");
            ExitCode::FAILURE
        }
    }
}
