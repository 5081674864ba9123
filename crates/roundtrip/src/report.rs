//! `roundtrip report`: results as one page, again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::compare::{Comparison, Profile};
use ::report::dataset;
use ::report::pages::{self, Figure, Result as Shown, SimulatedRuns};
use ::study::{ExperimentResult, StudyResult};
use analyzer::AnalysisResult;
use anyhow::{Context as _, anyhow};
use load::RunResult;
use serde::de::{DeserializeOwned, IgnoredAny};

use crate::print::eprint_line;
use crate::study::Pictures;
use crate::{Failure, compare, outputs};

/// Make one HTML page of results, which works offline
///
/// A result is the directory of a study or plan, a dataset (`analyze --each`), or what --json wrote: of analyze, bench, simulate, compare
/// or study; or a profile that `analyze --save` kept (a file or a name). An analysis has its operations over time if its profile is given,
/// too. Several results are in the page one after another.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip report out/study\n  \
                        roundtrip analyze run.pcapng --json --save run.profile > run.json; roundtrip report run.json run.profile\n  \
                        roundtrip report before.json after.json -o both.html")]
pub(crate) struct ReportArgs {
    /// Results
    #[arg(required = true, num_args = 1..=32, value_name = "DIR|FILE")]
    results: Vec<PathBuf>,
    /// The page
    #[arg(short, long, value_name = "FILE.html", default_value = "report.html")]
    output: PathBuf,
}

/// Largest result that is read, bytes.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// Most of all results together, bytes.
const ALL_BYTES_MAX: u64 = 512 << 20;

pub(crate) fn run(args: &ReportArgs) -> Result<ExitCode, Failure> {
    outputs::check(&[("--output", Some(&args.output))], &args.results)?;
    check(&args.output)?;
    let mut read = Vec::new();
    let mut left = ALL_BYTES_MAX;
    for path in &args.results {
        read.push(
            result(path, &mut left).with_context(|| path.display().to_string()).map_err(Failure::Usage)?,
        );
    }
    let used = pair(&read);
    let shown: Vec<Shown<'_>> = read
        .iter()
        .enumerate()
        .filter(|(index, _)| !used.iter().any(|(_, profile)| profile == index))
        .map(|(index, one)| {
            let profile =
                used.iter().find(|(analysis, _)| *analysis == index).and_then(|(_, at)| match &read[*at] {
                    Read::Profile(profile) => Some(&**profile),
                    _ => None,
                });
            one.shown(profile)
        })
        .collect();
    write(&args.output, &shown)?;
    eprint_line(format_args!("wrote {}", args.output.display()));
    Ok(ExitCode::SUCCESS)
}

/// Rejects a name that is none of a page: it could be that of a result.
pub(crate) fn check(path: &Path) -> Result<(), Failure> {
    let is_page = path.extension().is_some_and(|ending| ending == "html" || ending == "htm");
    if is_page || path.starts_with("/dev") {
        return Ok(());
    }
    Err(Failure::Usage(anyhow!("{}: a page's name ends with .html", path.display())))
}

/// Writes the page of these results.
pub(crate) fn write(path: &Path, results: &[Shown<'_>]) -> Result<(), Failure> {
    check(path)?;
    let page = pages::page(results).html();
    output::file::write(path, page.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
        .map_err(Failure::Usage)
}

/// A result that was read.
enum Read {
    Analysis(Box<AnalysisResult>),
    Bench(String, Vec<RunResult>),
    Study(Box<StudyResult>, Vec<Figure>),
    Experiment(Box<ExperimentResult>),
    Simulation(SimulatedRuns),
    Comparison(Comparison),
    Profile(Box<Profile>),
}

impl Read {
    fn shown<'a>(&'a self, profile: Option<&'a Profile>) -> Shown<'a> {
        match self {
            Self::Analysis(result) => Shown::Analysis(result, profile),
            Self::Bench(url, runs) => Shown::Bench(url, runs),
            Self::Study(result, figures) => Shown::Study(result, figures),
            Self::Experiment(result) => Shown::Experiment(result, &[]),
            Self::Simulation(runs) => Shown::Simulation(runs),
            Self::Comparison(compared) => Shown::Comparison(compared, None),
            Self::Profile(profile) => Shown::Profile(profile),
        }
    }
}

/// The analyses and the profiles of the same captures: their numbers.
fn pair(read: &[Read]) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (index, one) in read.iter().enumerate() {
        let Read::Analysis(result) = one else { continue };
        let names: Vec<&str> = result.inputs.iter().map(|input| input.name.as_str()).collect();
        let source = names.join(", ");
        let is_its = |other: &Read| matches!(other, Read::Profile(profile) if profile.source == source);
        let free = |at: usize| pairs.iter().all(|(_, used)| *used != at);
        if let Some(at) = read.iter().enumerate().position(|(at, other)| free(at) && is_its(other)) {
            pairs.push((index, at));
        }
    }
    pairs
}

/// The keys by which a result is known.
#[derive(serde::Deserialize)]
struct Keys {
    stanzas: Option<IgnoredAny>,
    plan: Option<IgnoredAny>,
    cases: Option<IgnoredAny>,
    services: Option<IgnoredAny>,
    runs: Option<IgnoredAny>,
    swept: Option<IgnoredAny>,
    before: Option<IgnoredAny>,
    rows: Option<IgnoredAny>,
    series: Option<IgnoredAny>,
}

/// The result of `bench --json`.
#[derive(serde::Deserialize)]
struct Bench {
    #[serde(default)]
    url: String,
    runs: Vec<RunResult>,
}

/// Reads a result, whatever it is.
fn result(path: &Path, left: &mut u64) -> anyhow::Result<Read> {
    if dataset::is_dataset(path) {
        return Ok(Read::Profile(Box::new(compare::merged(path)?)));
    }
    if path.is_dir() {
        let names = ["study.json", "experiment.json"];
        let known = names.map(|name| path.join(name)).into_iter().find(|path| path.is_file());
        let file = known.ok_or_else(|| {
            anyhow!("it is no dataset, and neither study.json nor experiment.json is in it")
        })?;
        return match result(&file, left).with_context(|| file.display().to_string())? {
            Read::Study(result, _) => {
                let figures = Pictures::of(None, path).shown(&result);
                Ok(Read::Study(result, figures))
            }
            other => Ok(other),
        };
    }
    let path = compare::kept(path);
    let limit = TEXT_BYTES_MAX.min(*left);
    let text = compare::json(&path, limit)?
        .ok_or_else(|| anyhow!("not a result: give what --json wrote, a profile, or a study's directory"))?;
    if text.len() as u64 > limit {
        return Err(anyhow!(
            "it has more than {} MiB, or all together more than {}",
            TEXT_BYTES_MAX >> 20,
            ALL_BYTES_MAX >> 20
        ));
    }
    *left -= text.len() as u64;
    let keys: Keys = serde_json::from_slice(&text)?;
    Ok(if keys.series.is_some() {
        Read::Profile(Box::new(Profile::read(&text)?))
    } else if keys.stanzas.is_some() && keys.plan.is_some() {
        Read::Study(of(&text, "a study")?, Vec::new())
    } else if keys.cases.is_some() {
        Read::Experiment(of(&text, "a plan's result")?)
    } else if keys.services.is_some() {
        Read::Analysis(of(&text, "an analysis")?)
    } else if keys.rows.is_some() && keys.before.is_some() {
        Read::Comparison(of(&text, "a comparison")?)
    } else if keys.runs.is_some() && keys.swept.is_some() {
        Read::Simulation(of(&text, "simulated runs")?)
    } else if keys.runs.is_some() {
        let Bench { url, runs } = of(&text, "the runs of bench")?;
        Read::Bench(url, runs)
    } else {
        return Err(anyhow!(
            "JSON, but no result that a page can show: --json of analyze, bench, study, simulate or compare, or a profile"
        ));
    })
}

fn of<T: DeserializeOwned>(text: &[u8], what: &str) -> anyhow::Result<T> {
    serde_json::from_slice(text).with_context(|| format!("it looks like {what}, but cannot be read"))
}
