//! `roundtrip analyze --each`: many captures, each by itself, into one dataset.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ::compare::Profile;
use ::report::dataset::DatasetWriter;
use ::report::ops::Names;
use ::report::progress::Reading;
use ::report::terminal::{rows, thousands, us};
use analyzer::{Analysis, Input, Named, Options};
use anyhow::{Context as _, anyhow};
use capture::file::CaptureFile;
use output::text::wrapped;
use record::Observed;
use record::units::counted;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::AnalyzeArgs;
use crate::print::{eprint_line, print_json, print_line};
use crate::stop::Stop;
use crate::{Failure, compare};

/// Most captures of one call.
const CAPTURES_MAX: usize = 1_000_000;

/// How deep folders are searched.
const DEPTH_MAX: usize = 16;

/// Bytes of the beginning and of the end of a capture that its name depends on.
const ENDS_BYTES: u64 = 1 << 20;

/// Services that the text shows.
const SERVICES_SHOWN: usize = 20;

/// Failures that the text shows.
const FAILURES_SHOWN: usize = 20;

/// Analyses every capture.
pub(super) fn run(args: &AnalyzeArgs, options: &Options, stop: &Stop) -> Result<ExitCode, Failure> {
    let root = args.ops.as_deref().ok_or_else(|| {
        Failure::Usage(anyhow!("--each writes a dataset: name its folder with --ops FOLDER/"))
    })?;
    if root.is_file() {
        return Err(Failure::Usage(anyhow!(
            "--ops {}: with --each it is a folder, and this is a file",
            root.display()
        )));
    }
    let captures = captures(&args.files)?;
    if captures.is_empty() {
        return Err(Failure::Usage(anyhow!(
            "no capture found: their names end with .pcap, .pcapng or .cap, and .gz or .zst"
        )));
    }
    std::fs::create_dir_all(root)
        .with_context(|| format!("cannot create {}", root.display()))
        .map_err(Failure::Usage)?;
    same_options(root, args)?;
    more_files();
    let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let progress = Reading::new(Some(captures.iter().map(size).sum()));
    let total = captures.len();
    let queue = Mutex::new(VecDeque::from(captures));
    let failures = Mutex::new(Vec::new());
    let done = Mutex::new(Complete::default());
    let read = AtomicU64::new(0);
    let jobs = args
        .jobs
        .map_or_else(|| thread::available_parallelism().map_or(1, usize::from), |jobs| jobs.get().into());
    thread::scope(|scope| {
        for _ in 0..jobs.min(total) {
            scope.spawn(|| {
                while !stop.is_raised() {
                    let Some(path) = lock(&queue).pop_front() else { return };
                    match capture(&path, root, options, stop) {
                        Ok((sketch, is_new)) => lock(&done).add(sketch, is_new),
                        Err(error) => lock(&failures).push((path.clone(), format!("{error:#}"))),
                    }
                    let bytes = size(&path);
                    progress.set(read.fetch_add(bytes, Ordering::Relaxed) + bytes);
                }
            });
        }
    });
    progress.finish();
    let mut failures = failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failures.sort();
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (new, before) = (done.new, done.before);
    if stop.is_raised() {
        return Err(Failure::Work(anyhow!(
            "interrupted: {} of {total} are complete; the same command goes on with the others",
            new + before
        )));
    }
    done.sketches.sort();
    done.sketches.dedup();
    let merged = compare::merged_of(&root.display().to_string(), &done.sketches).map_err(Failure::Work)?;
    tell(args, &merged, new, before, &failures)?;
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Each open file of a dataset is one or two descriptors: as many as the system allows.
fn more_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // With fewer, captures of many services fail with a word that says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// A dataset is of one way to read captures: what is complete is not read again.
fn same_options(root: &Path, args: &AnalyzeArgs) -> Result<(), Failure> {
    let port = args.port.as_ref().map(|of| (of.port, of.protocol.map(|protocol| format!("{protocol:?}"))));
    let own = json!({
        "port": port, "protocol": args.protocol, "verbatim": args.verbatim, "no_modes": args.no_modes,
        "bandwidth": args.bandwidth, "mtu": args.mtu, "keylog": args.keylog.is_some(),
    });
    let path = root.join("options.json");
    let text = serde_json::to_vec_pretty(&own).unwrap_or_default();
    match std::fs::read(&path) {
        Ok(known) if serde_json::from_slice::<serde_json::Value>(&known).is_ok_and(|known| known == own) => {
            Ok(())
        }
        Ok(_) => Err(Failure::Usage(anyhow!(
            "{} was begun with other options ({}): use those, or another folder",
            root.display(),
            path.display()
        ))),
        Err(_) => output::file::write(&path, &text)
            .with_context(|| format!("cannot write {}", path.display()))
            .map_err(Failure::Usage),
    }
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// What happened.
fn tell(
    args: &AnalyzeArgs,
    merged: &Profile,
    new: u64,
    before: u64,
    failures: &[(PathBuf, String)],
) -> Result<(), Failure> {
    let mut all: Vec<_> = merged.series.iter().collect();
    all.sort_by(|a, b| b.total_ns().total_cmp(&a.total_ns()));
    let microseconds = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e3);
    if args.json {
        let services = all.iter().map(|series| {
            json!({
                "service": series.service, "operation": series.operation, "operations": series.operations(),
                "total_us": series.total_ns() / 1e3,
                "p50_us": microseconds(series.quantile(0.5)), "p99_us": microseconds(series.quantile(0.99)),
            })
        });
        let failed =
            failures.iter().map(|(path, why)| json!({ "capture": path.display().to_string(), "why": why }));
        return print_json(&json!({
            "captures": new + before, "analysed": new, "complete_before": before, "operations": merged.operations(),
            "failed": failed.collect::<Vec<_>>(), "services": services.collect::<Vec<_>>(),
        }));
    }
    print_line(
        wrapped(
            format_args!(
                "{} with {} of {}; {} analysed now, {} before.",
                counted(new + before, "capture"),
                counted(merged.operations(), "operation"),
                counted(merged.series.len() as u64, "kind"),
                thousands(new as f64),
                thousands(before as f64)
            ),
            "  ",
        )
        .trim_end(),
    );
    let cell = |us_value: Option<f64>| us_value.map_or_else(|| "-".to_owned(), us);
    let lines = all.iter().take(SERVICES_SHOWN).map(|series| {
        vec![
            series.service.clone(),
            series.operation.clone(),
            thousands(series.operations() as f64),
            cell(microseconds(series.quantile(0.5))),
            cell(microseconds(series.quantile(0.99))),
        ]
    });
    if !all.is_empty() {
        print_line(format_args!(
            "\n{}",
            rows(&["service", "operation", "operations", "p50 us", "p99 us"], lines)
        ));
    }
    if all.len() > SERVICES_SHOWN {
        print_line(format_args!("and {} more (--json has them)", all.len() - SERVICES_SHOWN));
    }
    for (path, why) in failures.iter().take(FAILURES_SHOWN) {
        eprint_line(format_args!("{}: {why}", path.display()));
    }
    if failures.len() > FAILURES_SHOWN {
        eprint_line(format_args!("and {} more failed (--json has them)", failures.len() - FAILURES_SHOWN));
    }
    Ok(())
}

/// The captures that are in the dataset.
#[derive(Default)]
struct Complete {
    /// Analysed by this call.
    new: u64,
    /// And before.
    before: u64,
    /// Their sketches.
    sketches: Vec<PathBuf>,
}

impl Complete {
    fn add(&mut self, sketch: PathBuf, is_new: bool) {
        *(if is_new { &mut self.new } else { &mut self.before }) += 1;
        self.sketches.push(sketch);
    }
}

/// Analyses one capture, unless the dataset has it; its sketch, and whether it was analysed now.
fn capture(path: &Path, root: &Path, options: &Options, stop: &Stop) -> anyhow::Result<(PathBuf, bool)> {
    let name = name(path)?;
    let mut writer = DatasetWriter::new(root, &name);
    let _claim = Claim::wait(&writer.lock(), stop).context("waiting for another analysis of this capture")?;
    if writer.is_complete() {
        return Ok((writer.sketch(), false));
    }
    writer.clear().context("removing what an earlier attempt left")?;
    let file = CaptureFile::open(path)?;
    let mut profile = Profile::new(&path.display().to_string());
    let mut written = Ok(());
    let mut take = |observed: &Observed, named: &Named<'_>| {
        let Named { service, client, key } = *named;
        if written.is_ok() {
            written = writer.write(observed, &Names { service, client, key });
        }
        compare::add(&mut profile, observed, named, false);
    };
    let inputs = vec![Input { file, place: None }];
    let result = Analysis::run(inputs, options, Some(&mut take), &mut |_| (), &|| stop.is_raised())?;
    written.context("writing the dataset")?;
    if stop.is_raised() {
        return Err(anyhow!("interrupted"));
    }
    compare::complete(&mut profile, &result);
    let text = profile.text();
    // What cannot be read again would make the whole dataset unreadable.
    Profile::read(&text).context("its times cannot be kept")?;
    let (path, sketch) = (writer.sketch(), zstd::encode_all(&*text, 0)?);
    writer.finish(&sketch, &serde_json::to_vec(&result)?).context("writing the dataset")?;
    Ok((path, true))
}

/// A capture that this call alone analyses: others wait, and find it complete.
struct Claim {
    path: PathBuf,
    /// Locked until it is closed.
    _file: File,
}

impl Claim {
    /// Waits until nobody else has it.
    fn wait(path: &Path, stop: &Stop) -> anyhow::Result<Self> {
        std::fs::create_dir_all(path.parent().unwrap_or(path))?;
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Who had it before has removed the file: it is of nobody then.
                Ok(())
                    if std::fs::metadata(path)
                        .is_ok_and(|now| file.metadata().is_ok_and(|own| own.ino() == now.ino())) =>
                {
                    return Ok(Self { path: path.to_owned(), _file: file });
                }
                Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) if !stop.is_raised() => {
                    thread::sleep(Duration::from_millis(20));
                }
                Ok(()) | Err(Errno::WOULDBLOCK | Errno::INTR) => return Err(anyhow!("interrupted")),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The name of a capture in the dataset: its file's, and a digest of its length and its ends, so that captures of one name from several hosts are told
/// apart, and the same one is the same from wherever it is read.
fn name(path: &Path) -> anyhow::Result<String> {
    // A pipe would wait for somebody who writes.
    if !std::fs::metadata(path)?.is_file() {
        return Err(anyhow!("not a file"));
    }
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    (&mut file).take(ENDS_BYTES).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(length.saturating_sub(ENDS_BYTES)))?;
    file.take(ENDS_BYTES).read_to_end(&mut tail)?;
    let digest =
        Sha256::new().chain_update(length.to_le_bytes()).chain_update(&head).chain_update(&tail).finalize();
    let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    let stem = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(format!("{}-{digest}", stem.chars().take(100).collect::<String>()))
}

/// The captures that files and folders name, in order, each once.
fn captures(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut all = Vec::new();
    for path in named {
        if path.as_os_str() == "-" {
            return Err(Failure::Usage(anyhow!("--each reads files: standard input has no name")));
        }
        if path.is_dir() {
            search(path, 0, &mut all)
                .with_context(|| format!("reading {}", path.display()))
                .map_err(Failure::Usage)?;
        } else {
            all.push(path.clone());
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

fn search(folder: &Path, depth: usize, all: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        // Links are not followed: they can lead in circles.
        if kind.is_dir() && depth < DEPTH_MAX {
            search(&path, depth + 1, all)?;
        } else if kind.is_file() && is_capture(&path) {
            if all.len() >= CAPTURES_MAX {
                return Err(anyhow!("more than {CAPTURES_MAX} captures: name fewer folders"));
            }
            all.push(path);
        }
    }
    Ok(())
}

/// Whether the name is one of a capture.
fn is_capture(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.trim_end_matches(".gz").trim_end_matches(".zst");
    [".pcap", ".pcapng", ".cap"].iter().any(|ending| name.ends_with(ending))
}
