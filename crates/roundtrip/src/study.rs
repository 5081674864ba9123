//! `roundtrip study`: a complete measurement, from a wire to a report.

mod pictures;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use analysis::ClosureOutcome;
use anyhow::{Context as _, anyhow};
use load::initiator::IscsiUrl;
use output::file;
use policy::Sending;
use record::Op;
use report::ops::OpsWriter;
use report::progress::Progress;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use study::experiment::{Case, Keep, Work};
use study::plan::PLANS;
use study::runner::{KeepParts, PointOps};
use study::{
    AnyPlan, Experiment, Journal, Placement, Plan, REPORT, RemoteSpec, Study, StudyError, Watcher, Where,
};

pub(crate) use self::pictures::Pictures;
use self::pictures::point_name;
use crate::print::{eprint_line, print_json, print_line};
use crate::stop::Stop;
use crate::{Failure, args};

/// Measure a real ring and show where the time goes, or compare cases that differ in one setting
///
/// As root, the study runs a target and a client in two network namespaces on a shaped wire and captures packets on both
/// ends. Otherwise it uses loopback, and the report states the loss of accuracy. With --client, the client runs on another
/// host. The study removes everything that it sets up when it ends, except its results.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  roundtrip study --quick -o out/study\n  roundtrip study --plan post -o out/post\n  \
                        roundtrip study --plan copy --print > mine.toml; roundtrip study --plan mine.toml -o out/mine\n  \
                        roundtrip study --plan paper --client ssh:user@host -o out/paper"
)]
pub(crate) struct StudyArgs {
    #[command(flatten)]
    what: What,
    /// Continue an interrupted study: runs whose results are in DIR are not repeated
    #[arg(long)]
    resume: bool,
    /// Replace the results of an earlier study in DIR
    #[arg(long, conflicts_with = "resume")]
    force: bool,
    /// Print the plan and exit
    #[arg(long, conflicts_with = "compare")]
    print: bool,
    /// Number of runs of each point or case, instead of the plan's
    #[arg(long)]
    repeats: Option<u32>,
    /// Directory for report.html, study.json or experiment.json, and raw data; created if missing
    #[arg(short, long, value_name = "DIR", required_unless_present = "print")]
    output: Option<PathBuf>,
    /// Queue depths, instead of the plan's; 1 is always measured, the last should saturate
    #[arg(long, value_delimiter = ',')]
    iodepth: Vec<u32>,
    /// Read sizes, instead of the plan's
    #[arg(long, value_delimiter = ',', value_parser = args::size)]
    bs: Vec<u64>,
    /// Send policies of the target, instead of the plan's; +client-nagle after one: the client has Nagle's algorithm on
    #[arg(long, value_delimiter = ',')]
    send: Vec<Sending>,
    /// Measured time of each run, instead of the plan's; a point has two or three runs
    #[arg(long, value_parser = args::time)]
    runtime: Option<Duration>,
    /// Rate of the wire, instead of the plan's or the one that network cards report
    #[arg(long, value_parser = args::rate)]
    rate: Option<u64>,
    /// Do not run each case a second time to keep its packets
    #[arg(long)]
    no_traces: bool,
    /// For rings, and for cases with structure = true: write every operation of the observed runs to DIR/ops, as Parquet or CSV
    #[arg(long, value_name = "FORMAT", value_parser = ["parquet", "csv", "pftrace"])]
    ops: Option<String>,
    /// For rings, and for cases with structure = true: directory of the pictures of single operations over time, as SVG and PNG; by default DIR/figures in the output
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Use loopback even if namespaces are available
    #[arg(long, conflicts_with_all = ["client", "wire"])]
    loopback: bool,
    /// Use an existing wire (roundtrip wire up), such as two network cards and a cable, instead of a veth pair
    #[arg(long, value_name = "NAME", conflicts_with = "client")]
    wire: Option<String>,
    /// Directory with the records of wires
    #[arg(long, value_name = "DIR", default_value = testbed::STATE_FOLDER)]
    wires: PathBuf,
    /// Show all tables with all columns, wider than 80
    #[arg(long)]
    wide: bool,
    /// Print study.json or experiment.json, or the plan of --print, as JSON on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    login: args::LoginArgs,
    #[command(flatten)]
    placement: PlacementArgs,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// The subject of a study.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// 512, 2048 and 4096 B random reads at queue depth 1 and saturated, NODELAY and Nagle (--plan quick)
    #[arg(long)]
    quick: bool,
    /// The paper's figures for this machine (--plan paper)
    #[arg(long)]
    paper: bool,
    /// quick, paper, figures, post, pathology, nagle-write, copy, or a plan as TOML (docs/experiments.md)
    #[arg(long, value_name = "NAME|FILE.toml")]
    plan: Option<String>,
    /// URLs of other targets to compare with Roundtrip: random reads of every --bs and --iodepth, no writes
    #[arg(long, value_name = "URL", num_args = 1..)]
    compare: Vec<IscsiUrl>,
}

/// The assignment of work to CPUs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "CPUs")]
struct PlacementArgs {
    /// CPU of the client's thread
    #[arg(long, value_name = "CPU")]
    client_cpu: Option<usize>,
    /// CPU of the server's thread
    #[arg(long, value_name = "CPU")]
    server_cpu: Option<usize>,
    /// CPU of the client's receive softirq; by default the client's CPU
    #[arg(long, value_name = "CPU")]
    client_softirq: Option<usize>,
    /// CPU of the server's receive softirq; by default the server's CPU
    #[arg(long, value_name = "CPU")]
    server_softirq: Option<usize>,
}

/// A client on another host.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Two hosts")]
struct RemoteArgs {
    /// Run the client on this host: this program is copied there, started, and removed afterwards
    #[arg(long, value_name = "ssh:[USER@]HOST", value_parser = ssh_host)]
    client: Option<String>,
    /// Command that connects to the client's host
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    ssh: String,
    /// Address of this host for the client to connect to; by default the address that the ssh connection comes from
    #[arg(long, value_name = "IP")]
    address: Option<std::net::IpAddr>,
    /// Program to copy there, such as the one from `make static`; by default this one
    #[arg(long, value_name = "FILE")]
    client_program: Option<PathBuf>,
}

fn ssh_host(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("ssh:").unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@.:-_[]%".contains(c);
    if host.is_empty() || host.starts_with('-') || !host.chars().all(is_plain) {
        return Err("write ssh:host or ssh:user@host".into());
    }
    Ok(host.to_owned())
}

/// Runs of most points, for the expected time of the first.
const RUNS_OF_A_POINT: u32 = 2;

/// Shows progress and checks for Ctrl-C.
struct OnTerminal {
    progress: Progress,
    stop: Stop,
}

impl OnTerminal {
    /// A watcher of steps, the first of which is expected to take this long.
    fn new(steps: u64, expected: Duration) -> Result<Self, Failure> {
        let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
        Ok(Self { progress: Progress::new(steps, expected, true), stop })
    }
}

impl Watcher for OnTerminal {
    fn point(&self, title: &str) {
        self.progress.step(title);
    }
    fn extra(&self, title: &str) {
        self.progress.extend();
        self.progress.step(title);
    }
    fn stop(&self) -> bool {
        self.stop.is_raised()
    }
}

pub(crate) fn run(args: &StudyArgs) -> Result<ExitCode, Failure> {
    let plan = if args.what.compare.is_empty() {
        let name = match &args.what.plan {
            Some(name) => name,
            None if args.what.paper => "paper",
            None => "quick",
        };
        let text = text_of(name)?;
        // An unreadable plan is not printed: it may hold a secret.
        let plan = AnyPlan::read(&text).map_err(|why| Failure::Usage(anyhow!("{name}: {why}")))?;
        if args.print {
            if args.json {
                print_json(&json!({ "plan": text.trim() }))?;
            } else {
                print_line(text.trim());
            }
            return Ok(ExitCode::SUCCESS);
        }
        if args.login.is_given() {
            return Err(Failure::Usage(anyhow!(
                "login options are for --compare: a plan's cases have their own (login = {{ chap-user = ... }})"
            )));
        }
        plan
    } else {
        AnyPlan::Cases(compared(args)?)
    };
    match plan {
        AnyPlan::Ring(plan) => ring(args, plan),
        AnyPlan::Cases(experiment) => cases(args, experiment),
    }
}

/// The text of a plan: a built-in one, or a file.
fn text_of(name: &str) -> Result<String, Failure> {
    if let Some(plan) = PLANS.iter().find(|plan| plan.name == name) {
        return Ok(plan.text.to_owned());
    }
    std::fs::read_to_string(name)
        .with_context(|| {
            let names: Vec<&str> = PLANS.iter().map(|plan| plan.name).collect();
            format!("'{name}' is neither a built-in plan ({}) nor a file that can be read", names.join(", "))
        })
        .map_err(Failure::Usage)
}

/// Measures and breaks down a ring.
fn ring(args: &StudyArgs, plan: Plan) -> Result<ExitCode, Failure> {
    let or = |given: &[u32], own: Vec<u32>| if given.is_empty() { own } else { given.to_vec() };
    let plan = Plan {
        queue_depths: or(&args.iodepth, plan.queue_depths),
        block_bytes: if args.bs.is_empty() { plan.block_bytes } else { args.bs.clone() },
        policies: if args.send.is_empty() { plan.policies } else { args.send.clone() },
        runtime: args.runtime.unwrap_or(plan.runtime),
        repeats: args.repeats.unwrap_or(plan.repeats),
        bits_per_second: args.rate.unwrap_or(plan.bits_per_second),
        ..plan
    };
    let plan = plan.complete().map_err(|why| Failure::Usage(anyhow!("{why}")))?;
    let at = place(args, args.loopback)?;
    let journal = journal(args, &json!({ "plan": plan, "at": named(args) }))?;
    let mut parts = journal.writer().context("opening the journal").map_err(Failure::Work)?;
    // The predictions from other points are a step of their own.
    let steps = plan.points() as u64 * u64::from(plan.repeats) + 1;
    let watcher = OnTerminal::new(steps, plan.runtime * RUNS_OF_A_POINT)?;
    let study = Study { plan, at };
    if args.ops.is_some() && !journal.earlier.is_empty() {
        eprint_line(format_args!(
            "points from the interrupted study have their operations only if it ran with --ops"
        ));
    }
    let folder = journal.folder().join("ops");
    let pictures = Pictures::of(args.figures.as_ref(), journal.folder());
    let mut take = |taken: &PointOps<'_>| {
        pictures.draw(taken)?;
        let Some(format) = args.ops.as_deref() else { return Ok(()) };
        let PointOps { point, round, operations, .. } = *taken;
        let name = format!(
            "{}-{}.{format}",
            point_name(point.block_bytes, &point.policy.to_string(), point.queue_depth),
            round + 1
        );
        write_ops(&folder, &name, operations)
    };
    let outcome = study.run(
        &watcher,
        &mut KeepParts {
            earlier: &journal.earlier,
            keep: &mut |part| parts.append(part),
            ops: Some(&mut take),
        },
    );
    watcher.progress.finish();
    let result = outcome.map_err(|error| failure(error, journal.folder()))?;
    write(&journal, "study.json", &as_json(&result)?)?;
    write(&journal, REPORT, &page(report::pages::Result::Study(&result, &pictures.shown(&result))))?;
    if args.json {
        print_line(as_json(&result)?);
    } else {
        print_line(report::study_text::study(&result, args.wide));
    }
    eprint_line(format_args!("{:.0} s; wrote {}", result.seconds, journal.folder().join(REPORT).display()));
    let outcomes: Vec<ClosureOutcome> = result.stanzas.iter().map(|stanza| stanza.closure.outcome).collect();
    Ok(match refused(&outcomes) {
        Some(why) => {
            eprint_line(format_args!("roundtrip: {why}: see Closure"));
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    })
}

/// Writes operations to a file of a folder, which is made if it is missing.
fn write_ops(folder: &Path, name: &str, ops: &[Op]) -> std::io::Result<()> {
    file::folder(folder)?;
    let mut writer = OpsWriter::create_anew(&folder.join(name))?;
    ops.iter().try_for_each(|op| writer.write(op))?;
    writer.finish()
}

/// Why the figures of a ring are not to be used, if they are not. Without evidence they are only said to be not verified.
fn refused(outcomes: &[ClosureOutcome]) -> Option<&'static str> {
    if outcomes.contains(&ClosureOutcome::Fails) {
        Some("the figures of at least one point contradict each other")
    } else if !outcomes.is_empty() && outcomes.iter().all(|outcome| *outcome == ClosureOutcome::Unreliable) {
        Some("the machine was disturbed at every point, so that no figure is reliable")
    } else {
        None
    }
}

/// Compares cases.
fn cases(args: &StudyArgs, experiment: Experiment) -> Result<ExitCode, Failure> {
    let is_compare = !args.what.compare.is_empty();
    let is_plain = args.bs.is_empty() && args.iodepth.is_empty() && args.send.is_empty();
    for (option, is_given) in [("--ops", args.ops.is_some()), ("--figures", args.figures.is_some())] {
        if is_given && !experiment.cases.iter().any(|case| case.structure) {
            return Err(Failure::Usage(anyhow!(
                "{option} is for rings (quick, paper) and for cases with structure = true (figures)"
            )));
        }
    }
    if !is_compare && !is_plain {
        return Err(Failure::Usage(anyhow!(
            "--bs, --iodepth and --send are for rings (quick, paper): this plan's cases have their own; --print shows them"
        )));
    }
    let experiment = Experiment {
        repeats: args.repeats.unwrap_or(experiment.repeats).clamp(1, 1000),
        runtime: args.runtime.unwrap_or(experiment.runtime),
        rate: args.rate.unwrap_or(experiment.rate),
        traces: experiment.traces && !args.no_traces,
        ..experiment
    };
    experiment.check_logins().map_err(|error| Failure::Usage(error.into()))?;
    // Other targets are reached from this host's own namespace, and Roundtrip's on its loopback.
    let at = place(args, args.loopback || is_compare)?;
    let journal = journal(args, &json!({ "plan": experiment, "at": named(args) }))?;
    let mut parts = journal.writer().context("opening the journal").map_err(Failure::Work)?;
    let watcher =
        OnTerminal::new(u64::from(experiment.repeats) * experiment.cases.len() as u64, experiment.runtime)?;
    let folder = journal.folder().join("ops");
    let pictures = Pictures::of(args.figures.as_ref(), journal.folder());
    // Two hosts have a clock each.
    let has_one_clock = args.remote.client.is_none();
    let mut take = |name: &str, ops: &[Op]| {
        pictures.draw_run(name, format!("{}: {name}", experiment.name), ops, has_one_clock)?;
        let Some(format) = args.ops.as_deref() else { return Ok(()) };
        write_ops(&folder, &format!("{name}.{format}"), ops)
    };
    let mut keep = Keep {
        earlier: &journal.earlier,
        keep: &mut |run| parts.append(run),
        directory: journal.folder(),
        ops: Some(&mut take),
    };
    let outcome = experiment.run(&at, &watcher, &mut keep);
    watcher.progress.finish();
    let result = outcome.map_err(|error| failure(error, journal.folder()))?;
    write(&journal, "experiment.json", &as_json(&result)?)?;
    let shown = pictures.of_last_run(experiment.repeats);
    write(&journal, REPORT, &page(report::pages::Result::Experiment(&result, &shown)))?;
    if args.json {
        print_line(as_json(&result)?);
    } else {
        print_line(report::experiment_text::experiment(&result, args.wide));
    }
    eprint_line(format_args!("wrote {}", journal.folder().join(REPORT).display()));
    Ok(ExitCode::SUCCESS)
}

/// A plan that loads other targets and Roundtrip alike.
fn compared(args: &StudyArgs) -> Result<Experiment, Failure> {
    if args.remote.client.is_some() {
        return Err(Failure::Usage(anyhow!(
            "--compare drives targets from this host: run it on the client's host instead"
        )));
    }
    let (sizes, depths) = (
        if args.bs.is_empty() { vec![512, 2048, 4096] } else { args.bs.clone() },
        if args.iodepth.is_empty() { vec![1, 128] } else { args.iodepth.clone() },
    );
    let mut cases = Vec::new();
    for &block in &sizes {
        for &depth in &depths {
            let ours = format!("ours, {block} B, QD {depth}");
            for (number, url) in std::iter::once(None).chain(args.what.compare.iter().map(Some)).enumerate() {
                let rw = load::Pattern::RandRead;
                let of =
                    |url: &IscsiUrl| format!("{number}: {}:{}, {block} B, QD {depth}", url.host, url.port);
                cases.push(Case {
                    label: url.map_or(ours.clone(), of),
                    mtu: 9000,
                    work: match url {
                        None => Work::Iscsi { rw, block, depth },
                        Some(url) => Work::Url { url: url.to_string(), rw, block, depth },
                    },
                    // The same digests for both; only others ask for a proof.
                    login: url.map_or_else(|| args.login.digests(), |url| args.login.spec(url)),
                    client: load::EndpointOptions::default(),
                    server: load::EndpointOptions::default(),
                    layers: Vec::new(),
                    second: None,
                    structure: false,
                    against: url.map(|_| ours.clone()),
                    published: None,
                });
            }
        }
    }
    Ok(Experiment {
        name: "compare".into(),
        about:
            "other targets beside ours, which is on this host's loopback with a disk in memory; random reads"
                .into(),
        rate: 1_000_000_000,
        runtime: Duration::from_secs(2),
        repeats: 3,
        traces: false,
        placement: Placement::default(),
        cases,
    })
}

/// The place of a study.
fn place(args: &StudyArgs, loopback: bool) -> Result<Where, Failure> {
    let given = &args.placement;
    let placement = Placement {
        client: given.client_cpu,
        server: given.server_cpu,
        client_softirq: given.client_softirq,
        server_softirq: given.server_softirq,
    };
    let own = || std::env::current_exe().context("cannot find this program's file").map_err(Failure::Work);
    let client = match &args.remote.client {
        None => None,
        Some(host) => Some(RemoteSpec {
            host: host.clone(),
            shell: args.remote.ssh.split_whitespace().map(str::to_owned).collect(),
            program: args.remote.client_program.clone().map_or_else(own, Ok)?,
            address: args.remote.address,
        }),
    };
    let wire = args.wire.as_ref().map(|name| testbed::NamedWire::find(&args.wires, name)).transpose();
    let wire = wire.map_err(|error| Failure::Usage(error.into()))?;
    Ok(Where { loopback, client, wire, placement, rate_is_known: args.rate.is_some() })
}

/// The name of the place: parts of a study belong together only if they were measured at the same place.
fn named(args: &StudyArgs) -> String {
    match &args.remote.client {
        Some(host) => format!("client on {host}"),
        None if args.loopback => "loopback".into(),
        None if args.wire.is_some() => format!("wire {:?}", args.wire),
        None => format!("here, {:?}", args.placement),
    }
}

fn failure(error: StudyError, output: &Path) -> Failure {
    match error {
        StudyError::Interrupted => {
            Failure::Work(anyhow!("interrupted; --resume continues with the results in {}", output.display()))
        }
        error @ StudyError::Placement { .. } => Failure::Usage(error.into()),
        other => Failure::Work(anyhow::Error::from(other).context("the study failed")),
    }
}

/// Opens the journal of a study, before anything starts, because a study whose result cannot be written is useless.
fn journal<T: DeserializeOwned>(args: &StudyArgs, plan: &serde_json::Value) -> Result<Journal<T>, Failure> {
    let (folder, plan) = (args.output.clone().unwrap_or_default(), as_json(plan)?);
    let opened = match (args.resume, args.force) {
        (true, _) => Journal::resume(&folder, &plan),
        (false, true) => Journal::begin(&folder, &plan),
        (false, false) => Journal::begin_new(&folder, &plan),
    };
    let journal = opened.map_err(|error| Failure::Usage(error.into()))?;
    if journal.was_cut {
        eprint_line(format_args!(
            "the last record of the interrupted study was truncated: its part is measured again"
        ));
    }
    Ok(journal)
}

/// Writes a result.
fn write<T>(journal: &Journal<T>, name: &str, text: &str) -> Result<(), Failure> {
    journal.write(name, text).map_err(|error| Failure::Work(error.into()))
}

/// The page of a result.
fn page(result: report::pages::Result<'_>) -> String {
    report::pages::page(&[result]).html()
}

fn as_json(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).context("writing JSON").map_err(Failure::Work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_that_contradict_each_other_or_are_all_disturbed_fail_the_command() {
        use ClosureOutcome::{Fails, Holds, NotVerified, Unreliable};
        assert!(refused(&[Holds, Unreliable, Fails]).unwrap_or_default().contains("contradict"));
        assert!(refused(&[Unreliable, Unreliable]).unwrap_or_default().contains("disturbed at every point"));
        for outcomes in [&[][..], &[Holds], &[NotVerified], &[Holds, Unreliable], &[NotVerified, Unreliable]]
        {
            assert_eq!(refused(outcomes), None, "{outcomes:?}");
        }
    }
}
