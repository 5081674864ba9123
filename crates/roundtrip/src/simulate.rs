//! `roundtrip simulate`: simulates the ring packet by packet.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use clap::ValueEnum;
use output::Draft;
use output::text::wrapped;
use policy::Sending;
use record::OpKind;
use record::units::counted;
use report::ladder::{Ladder, TimeScale};
use report::ops::OpsWriter;
use report::pages::{SimulatedRuns, Unit};
use report::progress::Progress;
use report::quantities::{Clocks, Origin, Run, Subject, Timed};
use report::simulated::Packets;
use report::simulation_text as text;
use serde_json::json;
use study::{Plan, busy_cycles, elsewhere};
use tcpsim::fit::{self, Measured};
use tcpsim::preset::Preset;
use tcpsim::{RunResult, Setup, SimOp, preset, simulate};

use crate::figures::Folder;
use crate::print::{print_json, print_line};
use crate::stop::Stop;
use crate::{Failure, args, figures, outputs};

/// Simulate the ring packet by packet, with the rules of real TCP implementations
///
/// Both ends have threads, softirqs, interrupts and a TCP each (Nagle in two forms, delayed and quick ACKs, MSG_MORE,
/// TCP_CORK, autocorking, windows, loss). The wire has a rate and a delay. The same setup and seed give the same run bit
/// for bit.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip simulate --paper\n  \
                        roundtrip simulate --preset seed-512 --iodepth 1,2,3,4,5 --policy nodelay,nagle-unflushed\n  \
                        roundtrip simulate ring.toml --iodepth 1,8,64 --set server.service=10us --chart curve.svg\n  \
                        roundtrip simulate --preset two-sends --pcapng two-sends.pcapng && roundtrip analyze two-sends.pcapng\n  \
                        roundtrip simulate --preset post --ladder post.svg --ladder-ops 20..22 --ladder-scale time\n  \
                        roundtrip simulate --preset seed-512 --operations 20000 --figures out/pictures\n\n\
                        docs/simulate.md lists all keys of the file and the source of each rule.")]
pub(crate) struct SimulateArgs {
    /// Setup as TOML; by default, without --preset, the default values
    #[arg(conflicts_with = "preset")]
    file: Option<PathBuf>,
    /// Named setup; --list shows the names
    #[arg(long)]
    preset: Option<String>,
    /// The paper's table of busy cycles, published beside simulated: NODELAY, and each explanation of the Nagle half, with the spread
    /// of several seeds; --set changes the ring, to see what the table depends on
    #[arg(long, conflicts_with_all = ["file", "preset", "print", "sweep", "policy", "iodepth", "bs", "mtu", "seed", "pcapng", "ops", "ladder", "chart", "html"])]
    paper: bool,
    /// Show the presets
    #[arg(long)]
    list: bool,
    /// Print the setup as TOML and exit
    #[arg(long)]
    print: bool,
    /// Value to change: server.service=5us, wire.delay=100us, client.tcp=windows; repeatable
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Find the costs with which the simulation reproduces a study: fits queue depth 1, a middle depth and the deepest
    /// for each send policy, and measures the error at the other depths
    #[arg(long, value_name = "STUDY.json", conflicts_with_all = ["file", "preset", "set", "sweep", "policy", "iodepth", "pcapng", "ops", "figures", "ladder", "chart", "html"])]
    fit: Option<PathBuf>,
    /// Key and several values to simulate one by one: wire.delay=0us,50us,100us; repeatable
    #[arg(long, value_name = "KEY=V1,V2,...", value_parser = values)]
    sweep: Vec<Sweep>,
    /// Queue depths
    #[arg(long, value_delimiter = ',')]
    iodepth: Vec<u32>,
    /// Send policies of the server; +client-nagle after one: the client has Nagle's algorithm on
    #[arg(long, value_delimiter = ',')]
    policy: Vec<Sending>,
    /// Data sizes of an operation
    #[arg(long, value_delimiter = ',', value_parser = args::size)]
    bs: Vec<u64>,
    /// MTUs: largest IP packet
    #[arg(long, value_delimiter = ',')]
    mtu: Vec<u32>,
    /// Number of measured operations in each run
    #[arg(long)]
    operations: Option<u64>,
    /// Seed of the random variation
    #[arg(long)]
    seed: Option<u64>,
    /// Write every packet at both capture points to this file (one run only)
    #[arg(long, value_name = "FILE.pcapng")]
    pcapng: Option<PathBuf>,
    /// Write every operation to this file (.parquet, .csv, or .pftrace for Perfetto; one run only)
    #[arg(long, value_name = "FILE")]
    ops: Option<PathBuf>,
    /// Draw the six quantities of single operations over time, as SVG and PNG in this directory, which is created if missing
    /// (one run only)
    #[arg(long, value_name = "DIR")]
    figures: Option<PathBuf>,
    /// Draw some operations as a ladder diagram (one run only)
    #[arg(long, value_name = "FILE.svg")]
    ladder: Option<PathBuf>,
    /// Operations of the ladder diagram, as FIRST..LAST in the order of their ends
    #[arg(long, value_name = "FIRST..LAST", default_value = "0..9", value_parser = range)]
    ladder_ops: (u64, u64),
    /// Time axis of the ladder diagram
    #[arg(long, value_name = "SCALE", value_enum, default_value = "events", requires = "ladder")]
    ladder_scale: LadderScale,
    /// Draw IOPS over queue depth
    #[arg(long, value_name = "FILE.svg")]
    chart: Option<PathBuf>,
    /// Write the runs as a page to this file
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    json: bool,
}

/// The time axis of a ladder diagram.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum LadderScale {
    /// A place for each event, not to scale
    Events,
    /// To scale, with the waits that explain its gaps
    Time,
}

impl From<LadderScale> for TimeScale {
    fn from(scale: LadderScale) -> Self {
        match scale {
            LadderScale::Events => Self::Events,
            LadderScale::Time => Self::Time,
        }
    }
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let wrong = || format!("'{text}' is not a range; write FIRST..LAST, such as 0..9");
    let (first, last) = text.split_once("..").ok_or_else(wrong)?;
    let (first, last) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
    if first > last { Err(wrong()) } else { Ok((first, last)) }
}

/// A key and its values, as settings.
#[derive(Clone, Debug)]
struct Sweep(Vec<String>);

fn values(text: &str) -> Result<Sweep, String> {
    let (key, values) = text.split_once('=').ok_or_else(|| format!("'{text}': write KEY=V1,V2,..."))?;
    Ok(Sweep(values.split(',').map(|value| format!("{key}={value}")).collect()))
}

/// Every combination of one value of each sweep.
fn combinations(sweeps: &[Sweep]) -> Vec<Vec<String>> {
    sweeps.iter().fold(vec![Vec::new()], |all, Sweep(values)| {
        all.iter()
            .flat_map(|chosen| values.iter().map(|value| [&chosen[..], std::slice::from_ref(value)].concat()))
            .collect()
    })
}

pub(crate) fn run(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    if args.list && args.json {
        let presets: Vec<_> =
            preset::PRESETS.iter().map(|p| json!({ "name": p.name, "about": p.about })).collect();
        print_json(&json!({ "presets": presets }))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.list {
        for preset in preset::PRESETS {
            print_line(format_args!("{:<16} {}", preset.name, preset.about));
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(path) = &args.fit {
        return fitted(args, path);
    }
    if args.paper {
        return paper(args);
    }
    let source = source(args)?;
    if args.print {
        if args.json {
            print_json(&json!({ "setup": source.trim() }))?;
        } else {
            print_line(source.trim());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (setups, labels) = setups(args, &source)?;
    let is_one = setups.len() == 1;
    let single = [&args.pcapng, &args.ops, &args.figures, &args.ladder];
    if !is_one && single.into_iter().any(Option::is_some) {
        return Err(Failure::Usage(anyhow!(
            "--pcapng, --ops, --figures and --ladder need a single run, not {}; choose one queue depth, policy, block size and MTU",
            setups.len()
        )));
    }
    let named = [
        ("--pcapng", &args.pcapng),
        ("--ops", &args.ops),
        ("--ladder", &args.ladder),
        ("--chart", &args.chart),
        ("--html", &args.html),
    ];
    outputs::check(&named.map(|(option, path)| (option, path.as_ref())), &args.file)?;
    args.html.iter().try_for_each(|path| crate::report::check(path))?;
    let others = named.iter().filter_map(|(_, path)| path.as_ref()).chain(&args.file);
    outputs::check_folder("--figures", args.figures.as_ref(), others)?;
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let runs = match &setups[..] {
        [setup] if args.pcapng.is_some() || args.ops.is_some() || args.figures.is_some() => {
            vec![recorded(args, setup, &stop)?]
        }
        _ => swept(args, &setups, &labels, &stop),
    };
    if let (Some(path), [setup]) = (&args.ladder, &setups[..]) {
        let mut ladder = Ladder::new(args.ladder_ops.0, args.ladder_ops.1);
        simulate(setup, &mut ladder);
        let svg = ladder
            .draw(args.ladder_scale.into())
            .ok_or_else(|| Failure::Usage(anyhow!("the run has no such operations to draw")))?;
        write(path, &svg)?;
    }
    if let Some(path) = &args.chart {
        let svg = text::chart(&runs).ok_or_else(|| Failure::Work(anyhow!("cannot draw the chart")))?;
        write(path, &svg)?;
    }
    let shown = serde_json::from_value(json!({ "runs": runs, "swept": labels }));
    let shown: SimulatedRuns = shown.context("reading the runs").map_err(Failure::Work)?;
    if let Some(path) = &args.html {
        crate::report::write(path, &[report::pages::Result::Simulation(&shown)])?;
    }
    if args.json {
        let text =
            serde_json::to_string_pretty(&json!({ "runs": runs, "swept": labels })).context("writing JSON");
        print_line(text.map_err(Failure::Work)?);
    } else {
        for answer in shown.answers(Unit::Microseconds) {
            print_line(wrapped(answer.replace(Unit::Microseconds.sign(), "us"), "  ").trim_end());
        }
        print_line("");
        print_line(text::runs(&runs, &labels));
        let plan = Plan::paper();
        let published = published(args, &plan, &setups);
        print_line(format_args!(
            "\nBusy cycles of the server by the requests served, %\n{}",
            text::busy_counts(&runs, &labels, &published)
        ));
        if let [run] = &runs[..] {
            print_line(format_args!("\nWhere the time of an operation goes\n{}", text::parts(run)));
        }
    }
    if stop.is_raised() {
        return Err(Failure::Work(anyhow!("interrupted")));
    }
    Ok(ExitCode::SUCCESS)
}

/// The paper's table of busy cycles.
fn paper(args: &SimulateArgs) -> Result<ExitCode, Failure> {
    let plan = Plan::paper();
    let operations = args.operations.unwrap_or(busy_cycles::OPERATIONS);
    let setups = busy_cycles::setups(&plan, operations, &args.set)
        .context("the paper's setup")
        .map_err(Failure::Usage)?;
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let labels: Vec<String> = setups.iter().map(|setup| format!("seed {}", setup.seed)).collect();
    let runs = swept(args, &setups, &labels, &stop);
    if stop.is_raised() {
        return Err(Failure::Work(anyhow!("interrupted")));
    }
    let found = busy_cycles::BusyCycles::of(&plan, operations, &runs);
    if args.json {
        print_json(&json!({ "paper": found }))?;
    } else {
        print_line(text::paper(&found));
    }
    Ok(ExitCode::SUCCESS)
}

/// The published shares of the busy cycles of each setup, where the preset is the paper's ring.
fn published<'a>(args: &SimulateArgs, plan: &'a Plan, setups: &[Setup]) -> Vec<Option<&'a [f64]>> {
    let is_paper = args.preset.as_ref().is_some_and(|name| name.starts_with(busy_cycles::PRESET));
    setups.iter().map(|setup| is_paper.then(|| busy_cycles::published(plan, setup)).flatten()).collect()
}

/// The setup as text.
fn source(args: &SimulateArgs) -> Result<String, Failure> {
    match (&args.file, &args.preset) {
        (Some(path), _) => std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))
            .map_err(Failure::Usage),
        (None, Some(name)) => Preset::named(name).map(|preset| preset.text.to_owned()).ok_or_else(|| {
            let names: Vec<&str> = preset::PRESETS.iter().map(|preset| preset.name).collect();
            Failure::Usage(anyhow!("'{name}' is not a preset; use {}", names.join(", ")))
        }),
        (None, None) => Ok(String::new()),
    }
}

/// The setups of all combinations.
fn setups(args: &SimulateArgs, source: &str) -> Result<(Vec<Setup>, Vec<String>), Failure> {
    let (mut all, mut labels) = (Vec::new(), Vec::new());
    for chosen in combinations(&args.sweep) {
        let setups = setups_of(args, source, &chosen)?;
        labels.extend(setups.iter().map(|_| chosen.join(" ")));
        all.extend(setups);
    }
    Ok((all, labels))
}

/// The setups with the given values of the sweeps.
fn setups_of(args: &SimulateArgs, source: &str, chosen: &[String]) -> Result<Vec<Setup>, Failure> {
    let name =
        args.file.as_deref().map_or_else(|| "the setup".into(), |path: &Path| path.display().to_string());
    let mut base = Setup::read_with(source, &[&args.set[..], chosen].concat())
        .with_context(|| name.clone())
        .map_err(Failure::Usage)?;
    base.operations = args.operations.unwrap_or(base.operations);
    base.seed = args.seed.unwrap_or(base.seed);
    fn or<T: Copy>(given: &[T], own: T) -> Vec<T> {
        if given.is_empty() { vec![own] } else { given.to_vec() }
    }
    let mut setups = Vec::new();
    for bs in or(&args.bs, base.request.data.max(base.response.data)) {
        for mtu in or(&args.mtu, base.wire.mtu) {
            for sending in or(&args.policy, Sending { policy: base.policy, client_nagle: base.load.nagle }) {
                for queue_depth in or(&args.iodepth, base.queue_depth) {
                    let mut setup = Setup { queue_depth, ..base.with_sending(sending) };
                    setup.wire.mtu = mtu;
                    if base.kind() == OpKind::Write {
                        setup.request.data = bs;
                    } else {
                        setup.response.data = bs;
                    }
                    setup.check().with_context(|| name.clone()).map_err(Failure::Usage)?;
                    setups.push(setup);
                }
            }
        }
    }
    Ok(setups)
}

/// Rounds of the search: about a minute on two cores.
const FIT_ROUNDS: u32 = 80;

/// Finds the costs of a study's ring, and reports their error at the depths that were not part of the fit.
fn fitted(args: &SimulateArgs, path: &Path) -> Result<ExitCode, Failure> {
    let usage = |error: anyhow::Error| Failure::Usage(error.context(path.display().to_string()));
    let text = std::fs::read_to_string(path).context("cannot read the file").map_err(usage)?;
    let study: study::StudyResult =
        serde_json::from_str(&text).context("this is not a study.json").map_err(usage)?;
    let block = args.bs.first().copied().or(study.plan.block_bytes.first().copied()).unwrap_or(512);
    let depths = &study.plan.queue_depths;
    let points: Vec<Measured> = elsewhere::measured(&study.stanzas, depths, block);
    let shown = elsewhere::fitted_depths(depths);
    let is_shown = |point: &&Measured| shown.contains(&point.queue_depth);
    let shown: Vec<Measured> = points.iter().filter(is_shown).copied().collect();
    if shown.is_empty() {
        return Err(usage(anyhow!(
            "the study has no points of {block} B; choose another block size with --bs"
        )));
    }
    let base = elsewhere::setup(&study.plan, study.wire, block);
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let progress = Progress::new(FIT_ROUNDS.into(), Duration::ZERO, !args.json);
    let report = |round| progress.step(&format!("search, round {round}"));
    let fitted = fit::fit(&base, &shown, FIT_ROUNDS, &report, &|| stop.is_raised());
    progress.finish();
    let setups: Vec<Setup> = points.iter().map(|point| fit::at(&fitted.setup, point)).collect();
    let runs: Vec<RunResult> =
        tcpsim::sweep::sweep(&setups, &|_| (), &|| stop.is_raised()).into_iter().flatten().collect();
    if stop.is_raised() || runs.len() < points.len() {
        return Err(Failure::Work(anyhow!("interrupted")));
    }
    if args.json {
        let rows: Vec<_> = points
            .iter()
            .zip(&runs)
            .map(|(point, run)| {
                json!({ "policy": point.sending, "queue_depth": point.queue_depth, "shown": is_shown(&point),
                    "measured_iops": point.iops, "simulated_iops": run.iops })
            })
            .collect();
        let costs: std::collections::BTreeMap<_, _> =
            fitted.costs.iter().map(|cost| (cost.name, cost.us)).collect();
        let json = json!({ "costs_us": costs, "deviation": fitted.deviation, "points": rows, "setup": fitted.text() });
        print_line(serde_json::to_string_pretty(&json).context("writing JSON").map_err(Failure::Work)?);
    } else {
        print_line(format_args!("# from {}\n{}", path.display(), fitted.text()));
        print_line(text::fitted(&points, &runs, &|point| is_shown(&point)));
    }
    Ok(ExitCode::SUCCESS)
}

fn swept(args: &SimulateArgs, setups: &[Setup], labels: &[String], stop: &Stop) -> Vec<RunResult> {
    let progress = Progress::new(setups.len() as u64, Duration::ZERO, !args.json);
    let begins = |index: usize| {
        let setup: &Setup = &setups[index];
        progress.step(&format!("{}, queue depth {} {}", setup.sending(), setup.queue_depth, labels[index]));
    };
    let runs = tcpsim::sweep::sweep(setups, &begins, &|| stop.is_raised());
    progress.finish();
    runs.into_iter().flatten().collect()
}

/// Runs a simulation that keeps operations or packets.
fn recorded(args: &SimulateArgs, setup: &Setup, stop: &Stop) -> Result<RunResult, Failure> {
    let create = |path: &PathBuf| format!("cannot write {}", path.display());
    let mut writer = match &args.ops {
        Some(path) => Some(OpsWriter::create(path).with_context(|| create(path)).map_err(Failure::Usage)?),
        None => None,
    };
    let mut drawn = args.figures.as_ref().map(|folder| (folder, Run::new(figures::KEPT_OF_A_RUN)));
    let mut failure = None;
    let mut keep = |op: &SimOp| {
        if let Some((_, run)) = &mut drawn
            && let Some(timed) = Timed::of(&op.op, Clocks::Shared)
        {
            run.add(&timed);
        }
        if let Some(writer) = &mut writer
            && failure.is_none()
        {
            failure = writer.write(&op.op).err();
        }
    };
    let is_stopped = || stop.is_raised();
    let result = match &args.pcapng {
        Some(path) => {
            let draft = Draft::create(path).with_context(|| create(path)).map_err(Failure::Usage)?;
            let handle = draft.handle().with_context(|| create(path)).map_err(Failure::Work)?;
            let packets = Packets::new(BufWriter::new(handle), setup, Some(&mut keep), &is_stopped);
            let mut packets = packets.with_context(|| create(path)).map_err(Failure::Work)?;
            let result = simulate(setup, &mut packets);
            let file = packets.finish().with_context(|| create(path)).map_err(Failure::Work)?;
            file.into_inner().map_err(|e| Failure::Work(anyhow!("{}: {e}", create(path))))?;
            if !stop.is_raised() {
                draft.commit().with_context(|| create(path)).map_err(Failure::Work)?;
            }
            result
        }
        None => {
            let mut packets = Packets::new(std::io::sink(), setup, Some(&mut keep), &is_stopped)
                .context("keeping operations")
                .map_err(Failure::Work)?;
            simulate(setup, &mut packets)
        }
    };
    if let Some(error) = failure {
        return Err(Failure::Work(anyhow!("cannot write --ops: {error}")));
    }
    if let Some((folder, run)) = drawn.filter(|_| !stop.is_raised()) {
        draw(folder, &result, &run).map_err(Failure::Usage)?;
    }
    if let Some(writer) = writer.filter(|_| !stop.is_raised()) {
        writer.finish().context("writing --ops").map_err(Failure::Work)?;
    }
    Ok(result)
}

/// Draws a run's operations.
fn draw(folder: &Path, result: &RunResult, run: &Run) -> anyhow::Result<()> {
    let RunResult { policy, queue_depth, sessions, block_size_bytes, mtu_bytes, .. } = result;
    let subject = Subject {
        title: format!("{block_size_bytes} B, {policy}, queue depth {queue_depth}, simulated"),
        notes: vec![format!(
            "every operation of the run, also before the measured time; {}, MTU {mtu_bytes}",
            counted(u64::from(*sessions), "session")
        )],
        origin: Origin::Ring,
        clocks: Clocks::Shared,
    };
    let policy = policy.to_string().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    Folder::Named(folder).create()?;
    figures::write(
        Folder::Named(folder),
        &format!("{block_size_bytes}-{policy}-qd{queue_depth}"),
        &subject,
        run,
    )
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    output::file::write(path, text)
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Failure::Usage)
}
