//! `roundtrip host tune`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, anyhow};
use host::apply::System;
use host::apply::files::Tree;
use host::change::Change;
use host::facts::Facts;
use host::finding::Finding;
use host::profile;
use host::read::{Roots, Wanted};
use output::text::line;
use serde_json::Value;

use super::changes::{ApplyArgs, classify, finish_overdue, offer};
use super::told;
use crate::Failure;
use crate::print::print_line;

/// The largest file of facts, bytes.
const FACTS_LIMIT: u64 = 64 << 20;

/// Mend what a check found
///
/// Takes the changes of the findings of a new check, or of a saved one, or of a profile. Prints what would change; --apply changes it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  roundtrip host tune\n  roundtrip host tune small-buffers --apply --persist\n  \
                        roundtrip host check --json > check.json; roundtrip host tune --facts check.json\n  \
                        roundtrip host tune --profile storage-10g --interface eth4 --apply"
)]
pub(super) struct TuneArgs {
    /// Names of findings, as `roundtrip host check` prints them; by default all that can be mended
    #[arg(value_name = "FINDING", conflicts_with = "profile")]
    findings: Vec<String>,
    /// Apply a profile instead of findings; `roundtrip host profile` lists them
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// The interface to check or, with --profile, to set
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// Take the findings of a saved `roundtrip host check --json`
    #[arg(long, value_name = "FILE", conflicts_with = "profile")]
    facts: Option<PathBuf>,
    #[command(flatten)]
    how: ApplyArgs,
}

pub(super) fn run(args: &TuneArgs) -> Result<ExitCode, Failure> {
    finish_overdue(&args.how.state.state);
    let changes = match &args.profile {
        Some(name) => of_profile(name, args.interface.as_deref())?,
        None => of_findings(args)?,
    };
    if changes.is_empty() {
        print_line("nothing to change");
        return Ok(ExitCode::SUCCESS);
    }
    let what = args.profile.clone().unwrap_or_else(|| args.findings.join(" "));
    offer(&args.how, format!("tune {what}").trim_end().to_owned(), changes)?;
    Ok(ExitCode::SUCCESS)
}

fn of_profile(name: &str, interface: Option<&str>) -> Result<Vec<Change>, Failure> {
    let profile = profile::profile(name).map_err(classify)?;
    let expanded = profile.expand(&System::default(), &Tree::new("/sys"), interface);
    for left in &expanded.left_out {
        print_line(format_args!("left out: {}: {}", line(&left.setting), line(&left.why)));
    }
    Ok(expanded.changes)
}

fn of_findings(args: &TuneArgs) -> Result<Vec<Change>, Failure> {
    let findings = match &args.facts {
        Some(path) => saved(path)?,
        None => fresh(args.interface.as_deref()),
    };
    let is_wanted = |finding: &&Finding| args.findings.is_empty() || args.findings.contains(&finding.id);
    if let Some(missing) = args.findings.iter().find(|id| !findings.iter().any(|finding| finding.id == **id))
    {
        let mut known: Vec<&str> = findings.iter().map(|finding| finding.id.as_str()).collect();
        known.dedup();
        let known = if known.is_empty() {
            "it found nothing".to_owned()
        } else {
            format!("it found {}", known.join(", "))
        };
        return Err(Failure::Usage(anyhow!("the check did not find {missing}; {known}")));
    }
    let mut changes: Vec<Change> = Vec::new();
    let wanted: Vec<&Finding> = findings.iter().filter(is_wanted).collect();
    told::about_findings(&wanted).iter().for_each(|told| print_line(line(told)));
    for finding in wanted {
        for change in &finding.changes {
            match changes.iter().find(|other| other.setting == change.setting) {
                Some(other) if !change.setting.means_the_same(&other.value, &change.value) => {
                    return Err(Failure::Usage(anyhow!(
                        "two findings ask for different values of the {}: {} and {}; name the finding to mend",
                        change.setting,
                        other.value,
                        change.value
                    )));
                }
                Some(_) => {}
                None => changes.push(change.clone()),
            }
        }
    }
    Ok(changes)
}

fn saved(path: &Path) -> Result<Vec<Finding>, Failure> {
    use std::io::Read as _;
    let mut text = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FACTS_LIMIT + 1).read_to_end(&mut text));
    read.with_context(|| format!("reading {}", path.display())).map_err(Failure::Usage)?;
    if text.len() as u64 > FACTS_LIMIT {
        return Err(Failure::Usage(anyhow!("{} is larger than {FACTS_LIMIT} bytes", path.display())));
    }
    parse(&text).with_context(|| format!("{} is not a saved check", path.display())).map_err(Failure::Usage)
}

/// The findings in the output of a check, or those of the facts in it.
fn parse(text: &[u8]) -> anyhow::Result<Vec<Finding>> {
    let mut value: Value = serde_json::from_slice(text)?;
    if let Some(findings) = value.get_mut("findings") {
        return Ok(serde_json::from_value(findings.take())?);
    }
    let facts: Facts = serde_json::from_value(value.get_mut("facts").map(Value::take).unwrap_or(value))?;
    Ok(host::check::findings(&facts))
}

/// The findings of a check of this host now.
fn fresh(interface: Option<&str>) -> Vec<Finding> {
    let wanted = Wanted { interface: interface.map(str::to_owned), ..Wanted::default() };
    host::check::findings(&host::read::all(&Roots::default(), &wanted))
}
