//! `roundtrip compare`: before against after.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ::compare::assertion::Assertion;
use ::compare::profile::{Cause, Operation, Place};
use ::compare::repeats::RepeatsError;
use ::compare::{Comparison, Profile, Repeats, bench, text};
use ::report::dataset;
use ::report::pages::Result as Shown;
use analysis::verdict;
use analyzer::{Analysis, AnalysisError, AnalysisResult, Input, Named, Options};
use anyhow::{Context as _, anyhow};
use capture::file::CaptureFile;
use capture::{Protocol, Selection};
use record::{Observed, Outcome, Stamp};

use crate::analyze::{PortArg, classify, port};
use crate::print::{eprint_line, print_line};
use crate::stop::Stop;
use crate::{Failure, args, live, outputs, report};

/// Compare two measurements of the same thing: what changed by more than noise, and which part of the time carries it
///
/// Each is a capture, a profile that `analyze --save` kept (a file or a name), a dataset (`analyze --each`), or the result of
/// `bench --json`; or both are studies or results of `simulate --json`, alone or several in a folder, which are repeats. With --interface
/// the second one is captured now. Exits with 1 if anything differs by more than noise; with --assert, if a condition is broken.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip compare before.pcapng after.pcapng\n  \
                        roundtrip analyze --interface eth0 --port 6379 --duration 60s --save tuesday\n  \
                        roundtrip compare tuesday --interface eth0 --port 6379 --duration 60s\n  \
                        roundtrip compare main.json branch.json --assert p99=10% --assert rate=5% --markdown")]
pub(crate) struct CompareArgs {
    /// The measurement before
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// The measurement after
    #[arg(value_name = "AFTER", required_unless_present = "interface", conflicts_with = "interface")]
    after: Option<PathBuf>,
    /// Capture on this interface now, as the measurement after (repeatable)
    #[arg(long, value_name = "IF", requires = "duration")]
    interface: Vec<String>,
    /// With --interface: how long to capture
    #[arg(long, value_parser = args::time, value_name = "TIME", requires = "interface")]
    duration: Option<Duration>,
    /// In captures: only connections with this port on one side, and their protocol if it is not to be found out
    #[arg(long, value_parser = port, value_name = "N[=PROTOCOL]")]
    port: Option<PortArg>,
    /// In captures: tell operations apart by their keys, too (paths, statements, prefixes of keys)
    #[arg(long)]
    by_key: bool,
    /// A condition that must hold (repeatable): rate=5%, mean=5%, p50=5% or p99=10% (worse by no more than that), failed (no more
    /// failures), causes (no new causes)
    #[arg(long, value_name = "CONDITION")]
    assert: Vec<Assertion>,
    /// Show all operations
    #[arg(long)]
    all: bool,
    /// Write a page that shows both to this file
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Print JSON on stdout
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown on stdout, for a pull request
    #[arg(long)]
    markdown: bool,
}

/// Largest result or profile that is read, bytes.
const TEXT_BYTES_MAX: u64 = 64 << 20;

pub(crate) fn run(args: &CompareArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let port = args.port.as_ref();
    let options = Options {
        selection: Selection {
            port: port.map(|of| of.port),
            protocol: port.and_then(|of| of.protocol).unwrap_or(Protocol::Auto),
            ..Selection::default()
        },
        ..Options::default()
    };
    outputs::check(&[("--html", args.html.as_ref())], args.after.iter().chain([&args.before]))?;
    args.html.iter().try_for_each(|path| report::check(path))?;
    let read = |path: &Path| of_file(path, &options, args.by_key, &stop);
    let before = read(&args.before)?;
    let after = match &args.after {
        Some(path) => read(path)?,
        None => Measured::Once(of_interface(args, &options, &stop)?),
    };
    if stop.is_raised() {
        return Err(Failure::Work(anyhow!("interrupted")));
    }
    let compared = match (&before, &after) {
        (Measured::Once(before), Measured::Once(after)) => Comparison::of(before, after),
        (Measured::Repeatedly(before), Measured::Repeatedly(after)) => Comparison::of_repeats(before, after),
        _ => {
            return Err(Failure::Usage(anyhow!(
                "one is of studies or simulated runs, the other of operations: results of one kind can be compared"
            )));
        }
    };
    if compared.rows.is_empty() && compared.gone.is_empty() && compared.new.is_empty() {
        return Err(Failure::Usage(anyhow!("there are no operations in either: nothing to compare")));
    }
    if let Some(path) = &args.html {
        let over_time = match (&before, &after) {
            (Measured::Once(before), Measured::Once(after)) => Some((before, after)),
            _ => None,
        };
        report::write(path, &[Shown::Comparison(&compared, over_time)])?;
    }
    if args.json {
        let text = serde_json::to_string_pretty(&compared).context("writing JSON").map_err(Failure::Work)?;
        print_line(text);
    } else if args.markdown {
        print_line(text::markdown(&compared).trim_end());
    } else {
        print_line(text::text(&compared, args.all).trim_end());
    }
    let broken: Vec<String> = args.assert.iter().flat_map(|one| one.broken_by(&compared)).collect();
    broken.iter().for_each(|one| eprint_line(format_args!("broken: {one}")));
    let is_bad = if args.assert.is_empty() { compared.differs() } else { !broken.is_empty() };
    Ok(if is_bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// What can be compared.
enum Measured {
    /// Operations over time.
    Once(Profile),
    /// Figures of points, each once for each repeat.
    Repeatedly(Repeats),
}

/// The keys by which a result is known.
#[derive(serde::Deserialize)]
struct Keys {
    stanzas: Option<serde::de::IgnoredAny>,
    swept: Option<serde::de::IgnoredAny>,
    runs: Option<serde::de::IgnoredAny>,
    format: Option<serde::de::IgnoredAny>,
}

/// Reads a measurement, whatever it is.
fn of_file(path: &Path, options: &Options, by_key: bool, stop: &Stop) -> Result<Measured, Failure> {
    if path == Path::new("-") {
        return Err(Failure::Usage(anyhow!("standard input cannot be compared: give files")));
    }
    if dataset::is_dataset(path) {
        return merged(path).map(Measured::Once).map_err(Failure::Usage);
    }
    if path.is_dir() {
        return repeats(path).map(Measured::Repeatedly).map_err(Failure::Usage);
    }
    let path = kept(path);
    let name = path.display().to_string();
    let usage = |error: anyhow::Error| Failure::Usage(error.context(name.clone()));
    if let Some(text) = json(&path, TEXT_BYTES_MAX).map_err(|e| usage(e.into()))? {
        if text.len() as u64 > TEXT_BYTES_MAX {
            return Err(usage(anyhow!("it has more than {} MiB", TEXT_BYTES_MAX >> 20)));
        }
        // Only which keys there are: its values may be many.
        let keys: Keys = serde_json::from_slice(&text).map_err(|e| usage(e.into()))?;
        if is_repeated(&keys) {
            let mut repeats = Repeats::new(&name);
            add_result(&mut repeats, &keys, &text).map_err(|e| usage(e.into()))?;
            return Ok(Measured::Repeatedly(repeats));
        }
        return if keys.runs.is_some() {
            bench::profile(&text, &name).map(Measured::Once).map_err(|e| usage(e.into()))
        } else if keys.format.is_some() {
            Profile::read(&text).map(Measured::Once).map_err(|e| usage(e.into()))
        } else {
            Err(usage(anyhow!(
                "neither a profile (analyze --save) nor a result of bench, simulate or study; other results cannot be compared"
            )))
        };
    }
    let file = CaptureFile::open(&path).map_err(|e| usage(e.into()))?;
    let (profile, _) = analysed(file, options, by_key, &name, &|| stop.is_raised()).map_err(classify)?;
    Ok(Measured::Once(profile))
}

fn is_repeated(keys: &Keys) -> bool {
    keys.stanzas.is_some() || (keys.runs.is_some() && keys.swept.is_some())
}

fn add_result(repeats: &mut Repeats, keys: &Keys, text: &[u8]) -> Result<(), RepeatsError> {
    if keys.stanzas.is_some() { repeats.add_study(text) } else { repeats.add_simulated(text) }
}

/// Most results of a folder.
const REPEATS_MAX: usize = 1000;

/// The studies and simulated runs of a folder: of one study, or those below it, which are repeats.
fn repeats(folder: &Path) -> anyhow::Result<Repeats> {
    let shown = folder.display();
    let mut repeats = Repeats::new(&shown.to_string());
    let own = folder.join("study.json");
    let mut files = vec![own.clone()];
    if !own.is_file() {
        let entries = std::fs::read_dir(folder).with_context(|| shown.to_string())?;
        let paths = entries.collect::<Result<Vec<_>, _>>().with_context(|| shown.to_string())?;
        let result = |path: PathBuf| if path.is_dir() { path.join("study.json") } else { path };
        files = paths.into_iter().map(|entry| result(entry.path())).filter(|path| path.is_file()).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        files.sort();
    }
    if files.len() > REPEATS_MAX {
        return Err(anyhow!("{shown}: more than {REPEATS_MAX} results"));
    }
    for file in &files {
        let mut read = || {
            let text = json(file, TEXT_BYTES_MAX)?.unwrap_or_default();
            let keys: Keys = serde_json::from_slice(&text)?;
            if !is_repeated(&keys) {
                return Err(anyhow!("neither a study nor simulated runs"));
            }
            Ok(add_result(&mut repeats, &keys, &text)?)
        };
        read().with_context(|| file.display().to_string())?;
    }
    if repeats.is_empty() {
        return Err(anyhow!("{shown}: no dataset, no study, and no results of studies or simulations in it"));
    }
    Ok(repeats)
}

/// The operations of all captures of a dataset over time.
pub(crate) fn merged(folder: &Path) -> anyhow::Result<Profile> {
    let paths = dataset::sketches(folder).with_context(|| folder.display().to_string())?;
    merged_of(&folder.display().to_string(), &paths)
}

/// The operations of these sketches over time.
pub(crate) fn merged_of(source: &str, paths: &[PathBuf]) -> anyhow::Result<Profile> {
    let of = |path: &PathBuf| -> anyhow::Result<Profile> {
        let read = || {
            let text = json(path, TEXT_BYTES_MAX)?.ok_or_else(|| anyhow!("not a profile"))?;
            Ok::<_, anyhow::Error>(Profile::read(&text)?)
        };
        read().with_context(|| {
            format!("{}: remove it, and analyze its capture again (analyze --each)", path.display())
        })
    };
    // One at a time, twice: there may be a million. What has no operations has no time either.
    let mut spans = Vec::new();
    for path in paths {
        let profile = of(path)?;
        spans.extend((profile.blocks > 0).then(|| profile.span()));
    }
    let mut merged = Profile::spanning(source, &spans);
    for path in paths {
        merged.merge(&of(path)?);
    }
    Ok(merged)
}

/// The text of a file that is JSON, plain or compressed by zstd, up to a little more than `limit` bytes; `None` if it is something else.
pub(crate) fn json(path: &Path, limit: u64) -> std::io::Result<Option<Vec<u8>>> {
    const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let open = || std::fs::File::open(path);
    let mut head = Vec::new();
    open()?.take(4).read_to_end(&mut head)?;
    let mut reader: Box<dyn std::io::Read> =
        if head == ZSTD { Box::new(zstd::Decoder::new(open()?)?) } else { Box::new(open()?) };
    let mut text = Vec::new();
    (&mut reader).take(64).read_to_end(&mut text)?;
    if text.trim_ascii_start().first() != Some(&b'{') {
        return Ok(None);
    }
    reader.take(limit).read_to_end(&mut text)?;
    Ok(Some(text))
}

fn of_interface(args: &CompareArgs, options: &Options, stop: &Stop) -> Result<Profile, Failure> {
    let port = args.port.as_ref().map_or(0, |of| of.port);
    let spec = live::Spec { interfaces: &args.interface, port, duration: args.duration, seen: None };
    let name = format!("{}, now", args.interface.join(", "));
    let captured = live::analyse(&spec, &|| (), &|| stop.is_raised(), |file| {
        analysed(file, options, args.by_key, &name, &|| false)
    });
    Ok(captured?.0)
}

/// The profile of a capture, and the result of its analysis.
fn analysed(
    file: CaptureFile,
    options: &Options,
    by_key: bool,
    name: &str,
    stop: &dyn Fn() -> bool,
) -> Result<(Profile, AnalysisResult), AnalysisError> {
    let mut profile = Profile::new(name);
    let mut take = |observed: &Observed, named: &Named<'_>| add(&mut profile, observed, named, by_key);
    let inputs = vec![Input { file, place: None }];
    let result = Analysis::run(inputs, options, Some(&mut take), &mut |_| (), stop)?;
    complete(&mut profile, &result);
    Ok((profile, result))
}

/// Adds what is known at the end of an analysis: the causes, and how long it was looked.
pub(crate) fn complete(profile: &mut Profile, result: &AnalysisResult) {
    profile.causes = causes(result);
    let (from_ns, to_ns) = result.span_ns;
    profile.cover(from_ns, to_ns);
}

/// The causes that an analysis found.
fn causes(result: &AnalysisResult) -> Vec<Cause> {
    let of =
        |one: &verdict::Verdict| Cause { name: verdict::name(one.kind).to_owned(), text: one.text.clone() };
    result.verdicts.iter().map(of).collect()
}

/// Adds an operation to a profile.
pub(crate) fn add(profile: &mut Profile, observed: &Observed, named: &Named<'_>, by_key: bool) {
    let Observed { op, detail, .. } = observed;
    let ns = |ns: Option<i64>| ns.and_then(|ns| u64::try_from(ns).ok());
    let between = |from: Stamp, to: Stamp| ns(to.since(from));
    let (request, response) = (detail.request, detail.response);
    // The time of an operation that one of two points saw is not comparable with others, and one that waits for an event has none.
    let is_timed = !observed.is_partial && !detail.awaits_event;
    let (there, back) = (between(op.c1, op.s1), between(op.s2, op.c2));
    let parts = match (there, back, observed.server_first_ns, between(op.s1, op.s2)) {
        (Some(there), Some(back), Some(first), Some(whole)) if observed.shared_clock => {
            let first = u64::try_from(first).unwrap_or(0).min(whole);
            [Some(there), Some(first), Some(back), Some(whole - first)]
        }
        // Without a common clock, what both ways take together is known: what the client waited beyond the server's time.
        _ if op.c1.is_known() && op.s1.is_known() && observed.server_first_ns.is_some() => {
            let first = ns(observed.server_first_ns);
            let ways = ns(detail.first_byte_ns()).zip(first).map(|(seen, first)| seen.saturating_sub(first));
            [ways, first, None, between(response.began, response.ended)]
        }
        _ => [
            None,
            ns(observed.server_first_ns).or_else(|| ns(detail.first_byte_ns())),
            None,
            between(response.began, response.ended),
        ],
    };
    let [there, server, back, answer] = parts;
    let service =
        named.service.map_or_else(|| ::compare::profile::OTHERS.to_owned(), |service| service.to_string());
    let verb = op.verb.name();
    let operation = if by_key && !named.key.is_empty() { format!("{verb} {}", named.key) } else { verb };
    profile.add(
        &service,
        &operation,
        &Operation {
            place: match (op.c1.is_known(), op.s1.is_known()) {
                (true, true) => Place::Both,
                (false, true) => Place::Server,
                _ => Place::Client,
            },
            ended_ns: response.ended.ns().unwrap_or(profile.end_ns),
            // As their user sees it, with what TCP held or repaired.
            total_ns: Some(observed.whole_ns()).filter(|ns| is_timed && *ns > 0),
            parts_ns: if is_timed {
                let with = |ns: Option<u64>, more: u64| ns.map(|ns| ns.saturating_add(more));
                let asked = with(between(request.began, request.ended), detail.held_ns);
                [detail.thought_ns, asked, there, server, back, with(answer, detail.repaired_ns)]
            } else {
                [None; 6]
            },
            bytes: op.data_bytes.into(),
            failed: op.outcome == Outcome::Failed || detail.error.is_some(),
        },
    );
}

/// Where a profile of a name is kept; a path otherwise.
pub(crate) fn kept(name: &Path) -> PathBuf {
    if name.exists() || !is_name(name) {
        return name.to_owned();
    }
    store().map_or_else(|| name.to_owned(), |store| store.join(name).with_extension("profile"))
}

/// Whether this names a profile in the store.
fn is_name(name: &Path) -> bool {
    name.extension().is_none() && name.components().count() == 1 && name.file_name().is_some()
}

/// The folder of profiles that have names.
fn store() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data =
        std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(home);
    Some(data?.join("roundtrip/profiles"))
}

/// Keeps a profile under a name or in a file; returns where.
pub(crate) fn save(profile: &Profile, name: &Path) -> anyhow::Result<PathBuf> {
    let path = if is_name(name) {
        let store = store()
            .context("there is no HOME to keep profiles in: give a path, such as ./tuesday.profile")?;
        std::fs::create_dir_all(&store).with_context(|| format!("cannot create {}", store.display()))?;
        store.join(name).with_extension("profile")
    } else {
        name.to_owned()
    };
    let bytes = zstd::encode_all(&*profile.text(), 0).context("compressing the profile")?;
    output::file::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
