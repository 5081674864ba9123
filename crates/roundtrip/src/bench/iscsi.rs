//! `roundtrip bench iscsi://...`: loads a disk of any iSCSI target.

use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use load::initiator::{Bench, BenchSpec, InitiatorError, IscsiUrl, OnLoss, SessionOptions};
use load::{RunResult, Submit};
use report::progress::Progress;

use super::output::{Records, finish};
use super::{BenchArgs, Combination};
use crate::Failure;
use crate::stop::Stop;

/// Runs every combination against the disk.
pub(super) fn run(args: &BenchArgs, url: &IscsiUrl) -> Result<ExitCode, Failure> {
    check(args)?;
    let login = args.login.spec(url).load(|name| std::env::var(name).ok()).map_err(classify)?;
    let options = SessionOptions {
        tcp: args.tcp.options(!args.nagle),
        writes: args.writes,
        patience: args.timeout,
        busy_poll: args.busy_poll,
        ..SessionOptions::default()
    }
    .with_login(&login);
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let mut ops = args.ops.as_deref().map(Records::create).transpose()?;
    let combinations = args.combinations();
    let live = load::Live::default();
    let progress =
        Progress::new(combinations.len() as u64, args.runtime + args.ramp, !args.is_machine_readable())
            .of_load(&live);
    let mut runs: Vec<RunResult> = Vec::new();
    let mut failed = None;
    for combination in combinations {
        if stop.is_raised() {
            break;
        }
        progress.step(&combination.to_string());
        let spec = BenchSpec { live: live.clone(), ..spec(args, &combination, ops.is_some()) };
        let bench = match Bench::run(url, &options, &spec, &|_| (), &|| stop.is_raised()) {
            Ok(bench) => bench,
            // The results so far are shown all the same.
            Err(error) => {
                failed = Some(classify(error));
                break;
            }
        };
        if let Some(ops) = &mut ops {
            ops.write(&bench.ops, bench.ops_over_limit)?;
        }
        runs.push(bench.result);
    }
    progress.finish();
    // A run that failed or was interrupted leaves an older file as it was.
    if let Some(ops) = ops.filter(|_| failed.is_none() && !stop.is_raised()) {
        ops.finish()?;
    }
    let code = if runs.is_empty() { ExitCode::FAILURE } else { finish(args, url, &runs)? };
    if let Some(failure) = failed {
        return Err(failure);
    }
    if stop.is_raised() {
        return Err(Failure::Work(anyhow!("interrupted")));
    }
    Ok(code)
}

/// Refuses options that the pattern would ignore.
fn check(args: &BenchArgs) -> Result<(), Failure> {
    let usage = |why: &str| Err(Failure::Usage(anyhow!("{why}")));
    if args.rwmix.is_some() && !args.rw.is_mixed() {
        return usage("--rwmix needs a mixed pattern: --rw rw or --rw randrw");
    }
    if args.random_distribution.is_some() && !args.rw.is_random() {
        return usage("--random-distribution needs a random pattern, such as --rw randread");
    }
    args.check_arrival()
}

fn spec(args: &BenchArgs, combination: &Combination, records: bool) -> BenchSpec {
    let default = BenchSpec::default();
    BenchSpec {
        pattern: args.rw,
        block_bytes: combination.block_bytes,
        block_split: args.bssplit.clone().map_or_else(Vec::new, |split| split.0),
        read_percent: args.rwmix.unwrap_or(default.read_percent),
        distribution: args.random_distribution.unwrap_or_default(),
        queue_depth: combination.queue_depth,
        sessions: args.sessions,
        live: default.live,
        runtime: args.runtime,
        ramp: args.ramp,
        submit: if args.batch { Submit::Batch } else { Submit::Each },
        verify: args.verify,
        size_bytes: args.size,
        seed: args.seed,
        record_ops: if records { Records::MAX } else { 0 },
        rate: combination.rate,
        arrival: args.arrival.unwrap_or_default(),
        on_loss: OnLoss::Count,
        cpu: args.cpu,
    }
}

/// Classifies an initiator's error as one of usage or of the work.
fn classify(error: InitiatorError) -> Failure {
    if error.is_usage() { Failure::Usage(error.into()) } else { Failure::Work(error.into()) }
}
