//! The simulator as an opponent of the analysis (docs/accuracy.md).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use opponent::cause::Cause;
use opponent::judge::{captured, drawn, judge};
use opponent::tally::{Fool, many};

/// Simulates random services with and without each cause of slowness, and counts how often the analysis of their packets names the
/// cause, or one that is not there.
#[derive(Debug, Parser)]
struct Args {
    /// Setups to simulate.
    #[arg(long, value_name = "N", default_value_t = 1000, conflicts_with = "one")]
    setups: u64,
    /// The first one's seed; the others follow.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "one")]
    seed: u64,
    /// Plant this cause alone, in two thirds of the setups.
    #[arg(long, value_name = "KIND", value_parser = cause)]
    cause: Option<Cause>,
    /// Show the setup of this seed, and what is said about it.
    #[arg(long, value_name = "SEED")]
    one: Option<u64>,
    /// Write that setup's capture (two captures: FILE.0 and FILE.1).
    #[arg(long, value_name = "FILE", requires = "one")]
    pcapng: Option<PathBuf>,
    /// Fools to list of each cause and sort.
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "one")]
    fools: usize,
    /// Threads that simulate.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    threads: usize,
}

fn cause(kind: &str) -> Result<Cause, String> {
    Cause::named(kind).ok_or_else(|| {
        let kinds: Vec<_> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        format!("the causes are {}", kinds.join(", "))
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    let Some(seed) = args.one else {
        show(&args);
        return ExitCode::SUCCESS;
    };
    match one(seed, args.cause, args.pcapng.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

fn show(args: &Args) {
    let tally = many(args.seed, args.setups, args.cause, args.threads);
    println!("{}", tally.table());
    for group in tally.fools.chunk_by(|a, b| (a.cause, a.sort) == (b.cause, b.sort)) {
        println!("{} {}: {}", group[0].cause.name(), group[0].sort.name(), group.len());
        for Fool { seed, line, .. } in group.iter().take(args.fools) {
            println!("  --one {seed}: {line}");
        }
    }
}

fn one(seed: u64, cause: Option<Cause>, to: Option<&Path>) -> Result<(), String> {
    let (setup, planted) = drawn(seed, cause);
    println!("{}", setup.line());
    if let Some(path) = to {
        let (_, captures) = captured(&setup);
        let several = captures.len() > 1;
        for (number, capture) in captures.iter().enumerate() {
            let name =
                if several { PathBuf::from(format!("{}.{number}", path.display())) } else { path.to_owned() };
            output::file::write(&name, &capture.pcapng)
                .map_err(|error| format!("cannot write {}: {error}", name.display()))?;
            println!("{}: told the side: {:?}", name.display(), capture.place);
        }
    }
    let judged = judge(setup, planted);
    println!("planted: {:?}", judged.planted);
    for (cause, truth) in &judged.truths {
        let has = match judged.has(*cause) {
            Some(true) => "present",
            Some(false) => "absent",
            None => "between",
        };
        println!(
            "  {:<24} {:>6.1} %, rate {} times: {has}",
            cause.name(),
            truth.share * 100.0,
            truth.factor.map_or("?".into(), |factor| format!("{factor:.2}"))
        );
    }
    for said in &judged.said {
        let cause = Cause::named(&said.kind);
        let is_false = cause.is_some_and(|cause| judged.false_alarm(cause).is_some());
        println!(
            "{}: {} (cost {:.0} us, gain {:?}){}",
            said.kind,
            said.text,
            said.cost_ns / 1000.0,
            said.factor,
            if is_false { "  <- FALSE ALARM" } else { "" }
        );
    }
    println!("excess explained: {:?}", judged.explained);
    println!("{}", judged.account);
    Ok(())
}
