//! The command line: one file per verb, no logic.
//!
//! Exit codes: 0 done; 1 a problem was found that was asked for, or the work failed; 2 the arguments or the
//! input cannot be used.

#![forbid(unsafe_code)]
// All output passes `print_line`, which escapes control characters.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod analyze;
mod args;
mod bench;
mod capture;
mod compare;
mod ctl;
mod figures;
mod generate;
mod host;
mod import;
mod live;
mod log;
mod model;
mod outputs;
mod print;
mod redact;
mod report;
mod serve;
mod simulate;
mod stop;
mod study;
mod study_client;
#[allow(clippy::print_stderr, reason = "tables, whose cells are escaped")]
mod target;
mod top;
mod wire;

use std::io::Write as _;
use std::process::ExitCode;

use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::print::eprint_line;

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
    Ctl(ctl::CtlArgs),
    Top(top::TopArgs),
    Import(import::ImportArgs),
    Bench(bench::BenchArgs),
    Study(study::StudyArgs),
    #[command(hide = true)]
    StudyClient(study_client::StudyClientArgs),
    Model(model::ModelArgs),
    Simulate(simulate::SimulateArgs),
    Serve(serve::ServeArgs),
    Capture(capture::CaptureArgs),
    Analyze(analyze::AnalyzeArgs),
    Compare(compare::CompareArgs),
    Report(report::ReportArgs),
    Wire(wire::WireArgs),
    Host(host::HostArgs),
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// Why a verb did not do what was asked, by whose fault.
enum Failure {
    /// The arguments or the input: exit 2.
    Usage(anyhow::Error),
    /// The work: exit 1.
    Work(anyhow::Error),
}

impl Failure {
    /// The error itself.
    fn into_error(self) -> anyhow::Error {
        match self {
            Self::Usage(error) | Self::Work(error) => error,
        }
    }
}

fn main() -> ExitCode {
    let matches = Cli::command().try_get_matches().unwrap_or_else(|error| refuse(&error));
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| refuse(&error));
    log::start(match &cli.verb {
        Verb::Target(args) => args.log_format,
        _ => log::Format::default(),
    });
    if let Err(error) = stop::survive_file_size_limit() {
        tracing::warn!("cannot ignore SIGXFSZ, which a file size limit raises: {error}");
    }
    let outcome = match cli.verb {
        Verb::Target(args) => target::run(args),
        Verb::Ctl(args) => ctl::run(&args),
        Verb::Top(args) => top::run(&args),
        Verb::Import(args) => import::run(&args),
        Verb::Bench(args) => bench::run(&args, &|name| is_given(&matches, name)),
        Verb::Study(args) => study::run(&args),
        Verb::StudyClient(args) => study_client::run(&args),
        Verb::Model(args) => model::run(&args),
        Verb::Simulate(args) => simulate::run(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Capture(args) => capture::run(&args),
        Verb::Analyze(args) => analyze::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Wire(args) => wire::run(&args),
        Verb::Host(args) => host::run(&args),
        Verb::Generate(args) => generate::run(&args, Cli::command()),
    };
    match outcome {
        Ok(code) => code,
        Err(Failure::Usage(error)) => {
            eprint_line(format_args!("roundtrip: {}", error_text(&error)));
            ExitCode::from(2)
        }
        Err(Failure::Work(error)) => {
            eprint_line(format_args!("roundtrip: {}", error_text(&error)));
            ExitCode::FAILURE
        }
    }
}

/// Prints why the command line cannot be used, without secrets, or the help or version that it asks for, and exits.
fn refuse(error: &clap::Error) -> ! {
    if !error.use_stderr() {
        // clap writes with the colours that the terminal has.
        print::checked(error.print().and_then(|()| std::io::stdout().flush()));
        std::process::exit(error.exit_code());
    }
    let secrets = redact::secrets(std::env::args_os());
    if secrets.is_empty() {
        error.exit();
    }
    redact::without(&error.render().to_string(), &secrets).lines().for_each(eprint_line);
    std::process::exit(error.exit_code());
}

/// Whether an option of the verb is on the command line, rather than a default.
fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.subcommand().is_some_and(|(_, own)| own.value_source(name) == Some(ValueSource::CommandLine))
}

/// An error with its causes on one line, each once, because many errors include their cause. Further lines of a multi-line error
/// (TOML) are indented, so that quoted text cannot begin an output line.
fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause.trim_end().replace('\n', "\n  "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    /// clap parses a default only when the option is absent, so that a wrong one fails in the plainest use.
    fn parse_defaults(command: &clap::Command, count: &mut usize) {
        for arg in command.get_arguments().filter(|arg| !arg.get_default_values().is_empty()) {
            let alone = clap::Arg::new("option")
                .long("option")
                .value_parser(arg.get_value_parser().clone())
                .num_args(arg.get_num_args().unwrap_or_default())
                .value_delimiter(arg.get_value_delimiter())
                .default_values(arg.get_default_values().to_vec());
            let parsed = clap::Command::new("defaults").arg(alone).try_get_matches_from(["defaults"]);
            assert!(parsed.is_ok(), "{} --{}: {:?}", command.get_name(), arg.get_id(), parsed.err());
            *count += 1;
        }
        command.get_subcommands().for_each(|verb| parse_defaults(verb, count));
    }

    #[test]
    fn every_default_value_can_be_parsed() {
        let mut command = Cli::command();
        command.build();
        let mut count = 0;
        parse_defaults(&command, &mut count);
        assert!(count > 30, "{count}");
    }

    #[test]
    fn error_text_names_each_cause_once() {
        #[derive(Debug)]
        struct Named(std::io::Error);
        impl std::fmt::Display for Named {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "reading x: {}", self.0)
            }
        }
        impl std::error::Error for Named {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let cause = || std::io::Error::other("no disk");
        let named = anyhow::Error::from(Named(cause())).context("the work could not be done");
        assert_eq!(error_text(&named), "the work could not be done: reading x: no disk");
        let plain = Err::<(), _>(cause()).context("reading x").unwrap_err();
        assert_eq!(error_text(&plain), "reading x: no disk");
    }

    #[test]
    fn quoted_text_cannot_begin_a_line() {
        let quoting = anyhow::anyhow!("line 1\n  |\nroundtrip: all is well\n").context("reading x");
        assert_eq!(error_text(&quoting), "reading x: line 1\n    |\n  roundtrip: all is well");
    }
}
