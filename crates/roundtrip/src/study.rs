//! `roundtrip study`: the main job, from a wire to a report.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use initiator::IscsiUrl;
use report::progress::Progress;
use study::experiment::{Case, KeptRun, PLANS, Work};
use study::{Experiment, Plan, Study, StudyError, Watcher};

use crate::say::say;
use crate::stop::Stop;
use crate::{Failure, args};
use policy::SendPolicy;

/// CPU time is known to 10 ms: shorter runs would say nothing.
const SHORTEST_RUNTIME: std::time::Duration = std::time::Duration::from_millis(100);

/// Measure a real ring and show where the time goes
///
/// As root: a target and a client in two network namespaces on a shaped wire, packets captured on both ends. Otherwise:
/// loopback, and the report says what that costs in truth. Whatever it makes is gone when it ends.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  roundtrip study --quick -o out/study\n  roundtrip study --plan post -o out/post\n  \
                        roundtrip study --plan copy --print > mine.toml; roundtrip study --plan mine.toml -o out/mine"
)]
pub(crate) struct StudyArgs {
    /// 512, 2048 and 4096 B random reads at queue depth 1 and saturated, NODELAY and Nagle
    #[arg(long, required_unless_present_any = ["plan", "paper", "compare"], conflicts_with = "plan")]
    quick: bool,
    /// The paper's figures for this machine: 512, 2048 and 4096 B under every send policy, queue depth 1 to 128; about
    /// a quarter of an hour
    #[arg(long, conflicts_with_all = ["plan", "quick"])]
    paper: bool,
    /// An experiment: post, pathology, nagle-write, copy, or a plan as TOML (docs/experiments.md)
    #[arg(long, value_name = "NAME|FILE.toml")]
    plan: Option<String>,
    /// Other targets beside ours, by their URLs: random reads of every --bs and --iodepth; nothing is written there
    #[arg(long, value_name = "URL", num_args = 1.., conflicts_with_all = ["plan", "quick", "paper"])]
    compare: Vec<IscsiUrl>,
    /// Go on with an experiment that was interrupted: runs that are in DIR are not made again
    #[arg(long, conflicts_with_all = ["quick", "paper"])]
    resume: bool,
    /// Print the plan and end
    #[arg(long, requires = "plan")]
    print: bool,
    /// Runs of each case, instead of the plan's
    #[arg(long, requires = "plan")]
    repeats: Option<u32>,
    /// Directory for report.html and study.json, or experiment.json; made when missing
    #[arg(short, long, value_name = "DIR", required_unless_present = "print")]
    output: Option<PathBuf>,
    /// Queue depths; 1 is always measured, the last should saturate
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,128",
        default_value_if("paper", "true", "1,2,3,4,5,8,16,32,64,128")
    )]
    iodepth: Vec<u32>,
    /// Read sizes
    #[arg(long, value_delimiter = ',', value_parser = args::size, default_value = "512,2k,4k")]
    bs: Vec<u64>,
    /// Send policies of the target
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "nodelay,nagle",
        default_value_if("paper", "true", "nodelay,nagle,adaptive,batch,auto")
    )]
    send: Vec<SendPolicy>,
    /// Measured time of each run; a point has two or three
    #[arg(long, value_parser = args::time, default_value = "2s")]
    runtime: std::time::Duration,
    /// Use loopback even where namespaces could be made
    #[arg(long)]
    loopback: bool,
    /// Print study.json on stdout as well
    #[arg(long)]
    json: bool,
}

/// Shows progress and hears Ctrl-C.
struct OnTerminal {
    progress: Progress,
    stop: Stop,
}

impl Watcher for OnTerminal {
    fn point(&self, title: &str) {
        self.progress.step(title);
    }
    fn stop(&self) -> bool {
        self.stop.is_raised()
    }
}

pub(crate) fn run(args: &StudyArgs) -> Result<ExitCode, Failure> {
    if let Some(plan) = &args.plan {
        return experiment(args, plan);
    }
    if !args.compare.is_empty() {
        return compared(args);
    }
    let output = args.output.clone().unwrap_or_default();
    let mut queue_depths = args.iodepth.clone();
    queue_depths.push(1);
    queue_depths.sort_unstable();
    queue_depths.dedup();
    let depth_max = initiator::bench::QUEUE_DEPTH_MAX;
    if queue_depths.iter().any(|&depth| depth == 0 || depth > depth_max) {
        return Err(Failure::Usage(anyhow!("--iodepth: 1 to {depth_max} is possible")));
    }
    let block = u64::from(store::spec::BLOCK_BYTES_DEFAULT);
    let size_max = initiator::bench::BLOCK_BYTES_MAX;
    if let Some(bytes) = args.bs.iter().find(|&&b| b == 0 || !b.is_multiple_of(block) || b > size_max) {
        return Err(Failure::Usage(anyhow!(
            "--bs {bytes}: multiples of {block} B up to {size_max} B are possible"
        )));
    }
    let plan = Plan {
        runtime: args.runtime,
        queue_depths,
        block_bytes: args.bs.clone(),
        policies: args.send.clone(),
        ..Plan::quick()
    };
    if args.runtime < SHORTEST_RUNTIME {
        return Err(Failure::Usage(anyhow!(
            "--runtime {:?}: at least {SHORTEST_RUNTIME:?} is needed",
            args.runtime
        )));
    }
    // Before anything starts: a study whose result cannot be written is wasted.
    std::fs::create_dir_all(&output)
        .and_then(|()| probe(&output))
        .with_context(|| format!("cannot write to {}", output.display()))
        .map_err(Failure::Usage)?;
    let stop = Stop::on_signals().context("watching for signals").map_err(Failure::Work)?;
    let watcher = OnTerminal { progress: Progress::new(plan.points() as u64, true), stop };
    let study = Study { plan, loopback: args.loopback };
    let outcome = study.run(&watcher);
    watcher.progress.finish();
    let result = outcome.map_err(|error| match error {
        StudyError::Interrupted => Failure::Work(anyhow!(error)),
        other => Failure::Work(anyhow::Error::from(other).context("the study could not be done")),
    })?;
    let json = serde_json::to_string_pretty(&result).context("writing JSON").map_err(Failure::Work)?;
    write(&output.join("study.json"), &json)?;
    write(&output.join("report.html"), &report::html::study(&result))?;
    if args.json {
        say(json);
    } else {
        say(report::study_text::study(&result));
    }
    eprintln!("{:.0} s; wrote {}", result.seconds, output.join("report.html").display());
    if !result.closes() {
        eprintln!("roundtrip: the sums of at least one stanza do not come out: see the warnings");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a plan of cases.
fn experiment(args: &StudyArgs, plan: &str) -> Result<ExitCode, Failure> {
    let built_in = PLANS.iter().find(|(name, _)| *name == plan).map(|(_, text)| (*text).to_owned());
    let text = match built_in {
        Some(text) => text,
        None => std::fs::read_to_string(plan)
            .with_context(|| {
                let names: Vec<&str> = PLANS.iter().map(|(name, _)| *name).collect();
                format!(
                    "'{plan}' is neither a built-in plan ({}) nor a file that can be read",
                    names.join(", ")
                )
            })
            .map_err(Failure::Usage)?,
    };
    if args.print {
        say(text.trim());
        return Ok(ExitCode::SUCCESS);
    }
    let mut experiment = Experiment::read(&text).map_err(|why| Failure::Usage(anyhow!("{plan}: {why}")))?;
    experiment.repeats = args.repeats.unwrap_or(experiment.repeats).clamp(1, 1000);
    run_experiment(args, &experiment, args.loopback)
}

/// Other targets beside ours, under the same load.
fn compared(args: &StudyArgs) -> Result<ExitCode, Failure> {
    let names = std::iter::once(None).chain(args.compare.iter().map(Some));
    let mut cases = Vec::new();
    for &block in &args.bs {
        for &depth in &args.iodepth {
            let ours = format!("ours, {block} B, QD {depth}");
            for url in names.clone() {
                let rw = initiator::Pattern::RandRead;
                cases.push(Case {
                    label: url.map_or(ours.clone(), |url| {
                        format!("{}:{}, {block} B, QD {depth}", url.host, url.port)
                    }),
                    mtu: 9000,
                    work: match url {
                        None => Work::Iscsi { rw, block, depth },
                        Some(url) => Work::Url { url: url.to_string(), rw, block, depth },
                    },
                    client: exchange::Side::default(),
                    server: exchange::Side::default(),
                    against: url.map(|_| ours.clone()),
                    published: None,
                });
            }
        }
    }
    let experiment = Experiment {
        name: "compare".into(),
        about:
            "other targets beside ours, which is on this host's loopback with a disk in memory; random reads"
                .into(),
        rate: 1_000_000_000,
        runtime: args.runtime,
        repeats: args.repeats.unwrap_or(3).clamp(1, 1000),
        cases,
    };
    run_experiment(args, &experiment, true)
}

/// Runs of an experiment, one JSON text a line.
const RUNS: &str = "runs.jsonl";

/// What an earlier experiment of the same plan has made in `output`.
fn earlier(output: &Path, plan: &str) -> Result<Vec<KeptRun>, Failure> {
    let (kept, runs) = (output.join("plan.json"), output.join(RUNS));
    let usage = |why: anyhow::Error| Failure::Usage(why);
    let was = std::fs::read_to_string(&kept)
        .with_context(|| format!("nothing to go on with: cannot read {}", kept.display()))
        .map_err(usage)?;
    if was != plan {
        return Err(usage(anyhow!(
            "{} is of another plan: choose another directory, or leave --resume out",
            kept.display()
        )));
    }
    let text = std::fs::read_to_string(&runs).unwrap_or_default();
    // The last line may have been cut off.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

fn run_experiment(args: &StudyArgs, experiment: &Experiment, loopback: bool) -> Result<ExitCode, Failure> {
    let output = args.output.clone().unwrap_or_default();
    std::fs::create_dir_all(&output)
        .and_then(|()| probe(&output))
        .with_context(|| format!("cannot write to {}", output.display()))
        .map_err(Failure::Usage)?;
    let plan = serde_json::to_string_pretty(experiment).context("writing JSON").map_err(Failure::Work)?;
    let known = if args.resume { earlier(&output, &plan)? } else { Vec::new() };
    write(&output.join("plan.json"), &plan)?;
    let mut runs = std::fs::OpenOptions::new()
        .create(true)
        .write(true)
        .append(args.resume)
        .truncate(!args.resume)
        .open(output.join(RUNS))
        .with_context(|| format!("cannot write to {}", output.display()))
        .map_err(Failure::Usage)?;
    let mut keep = |run: &KeptRun| writeln!(runs, "{}", serde_json::to_string(run)?);
    let stop = Stop::on_signals().context("watching for signals").map_err(Failure::Work)?;
    let steps = u64::from(experiment.repeats) * experiment.cases.len() as u64;
    let watcher = OnTerminal { progress: Progress::new(steps, true), stop };
    let outcome = experiment.run(loopback, &watcher, &known, &mut keep);
    watcher.progress.finish();
    let result = outcome.map_err(|error| {
        Failure::Work(match error {
            StudyError::Interrupted => {
                anyhow!("interrupted; --resume goes on with what is in {}", output.display())
            }
            other => other.into(),
        })
    })?;
    let json = serde_json::to_string_pretty(&result).context("writing JSON").map_err(Failure::Work)?;
    write(&output.join("experiment.json"), &json)?;
    if args.json {
        say(json);
    } else {
        say(report::experiment_text::experiment(&result));
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Failure::Work)
}

/// Whether files can be made in a directory.
fn probe(directory: &Path) -> std::io::Result<()> {
    let probe = directory.join(format!(".probe-{}", std::process::id()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}
