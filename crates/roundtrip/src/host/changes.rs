//! What the verbs that change a host share: the journal's folder, the dry run, applying, and the files that keep settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use host::apply::{self, Planned, Request, System};
use host::change::Change;
use host::error::ChangeError;
use host::journal::{ChangeSet, Journal, Lock, Now, STATE_FOLDER, SetState};
use host::lifeline::{self, Topology};
use host::persist::files::{self, Synced};
use host::persist::{self, Desired, OwnerFacts};
use host::undo::{Overwrite, Report};
use output::text::line;

use super::guard;
use crate::print::{eprint_line, print_line};
use crate::{Failure, args};

/// Where the journal is
#[derive(Debug, clap::Args)]
pub(super) struct StateArgs {
    /// Directory of the journal
    #[arg(long, value_name = "DIR", default_value = STATE_FOLDER)]
    pub(super) state: PathBuf,
}

impl StateArgs {
    pub(super) fn journal(&self) -> Journal {
        Journal::new(&self.state)
    }
}

/// Whether and how to change
#[derive(Debug, clap::Args)]
pub(super) struct ApplyArgs {
    /// Change the settings; without it, only print what would change
    #[arg(long)]
    apply: bool,
    /// Keep the settings after a reboot: udev, NetworkManager, ifupdown, sysctl.d or tmpfiles.d, whichever owns them
    #[arg(long)]
    persist: bool,
    /// Roll back unless `roundtrip host confirm` follows within this time, 1s to 60m: for interfaces that carry your connection
    #[arg(long, value_name = "TIME", value_parser = confirm_time)]
    confirm_within: Option<Duration>,
    #[command(flatten)]
    pub(super) state: StateArgs,
}

fn confirm_time(text: &str) -> Result<Duration, String> {
    let time = args::time(text)?;
    let is_allowed = (Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&time);
    if is_allowed { Ok(time) } else { Err("it is from 1s to 60m".to_owned()) }
}

/// Classifies an error as one of usage or of the work.
pub(super) fn classify(error: ChangeError) -> Failure {
    match error {
        ChangeError::Refused(_)
        | ChangeError::Value { .. }
        | ChangeError::Outside { .. }
        | ChangeError::NoSet { .. }
        | ChangeError::Profile { .. } => Failure::Usage(error.into()),
        _ => Failure::Work(error.into()),
    }
}

/// Prints what changes would do and does it if asked to.
pub(super) fn offer(args: &ApplyArgs, origin: String, mut changes: Vec<Change>) -> Result<(), Failure> {
    if args.persist {
        let owners = owners(changes.iter().flat_map(|change| change.setting.interfaces()));
        changes.extend(persist::connections(&changes, &owners));
    }
    let kernel = System::default();
    let planned = apply::plan(&kernel, &changes).map_err(classify)?;
    planned.iter().for_each(print_planned);
    let topology = Topology::read().map_err(classify)?;
    if let Some(missing) = topology.missing(&changes) {
        return Err(classify(missing));
    }
    let lifelines = topology.lifelines(&lifeline::logins(Path::new("/proc")));
    let needed: Vec<Change> =
        planned.iter().filter(|planned| planned.is_needed).map(|planned| planned.change.clone()).collect();
    let refusal = lifeline::refusal(&lifeline::risks(Path::new("/sys"), &lifelines, &needed))
        .filter(|_| args.confirm_within.is_none());
    if !args.apply {
        if let Some(refusal) = refusal {
            print_line(format_args!("note: {refusal}"));
        }
        print_line("nothing was changed; --apply changes it");
        return Ok(());
    }
    if let Some(refusal) = refusal {
        return Err(classify(refusal));
    }
    let request = Request { origin, changes, persist: args.persist, confirm_within: args.confirm_within };
    let journal = args.state.journal();
    match request.confirm_within {
        Some(time) => {
            let id = guard::start(&args.state.state, &request)?;
            print_applied(&journal.load(id).map_err(classify)?);
            print_line(format_args!(
                "change set {id} rolls back in {} s; keep it with: roundtrip host confirm {id}{}",
                time.as_secs(),
                state_option(&args.state.state)
            ));
        }
        None => {
            let lock = journal.lock().map_err(classify)?;
            let now = Now::read().map_err(classify)?;
            let set = apply::apply(&kernel, &journal, &lock, &now, &request).map_err(classify)?;
            let kept = if request.persist {
                Some(keep(&journal, &lock, Overwrite::Own).map_err(classify)?)
            } else {
                None
            };
            drop(lock);
            print_applied(&set);
            let lost = kept.as_ref().is_some_and(print_kept);
            print_line(format_args!(
                "undo: roundtrip host undo {}{}",
                set.id,
                state_option(&args.state.state)
            ));
            if lost {
                return Err(Failure::Work(anyhow!("not everything will hold after a reboot")));
            }
        }
    }
    Ok(())
}

pub(super) fn state_option(state: &Path) -> String {
    if state == Path::new(STATE_FOLDER) { String::new() } else { format!(" --state {}", state.display()) }
}

fn print_planned(planned: &Planned) {
    let Planned { change, in_force, is_needed } = planned;
    let (setting, in_force, value) =
        (line(&change.setting), line(shown(in_force)), line(shown(&change.value)));
    if *is_needed {
        print_line(format_args!("{setting}: {in_force} -> {value}"));
    } else {
        print_line(format_args!("{setting}: {in_force} is in force already"));
    }
}

/// A value in a sentence.
pub(super) fn shown(value: &str) -> String {
    if value.is_empty() { "not set".to_owned() } else { value.replace('\t', " ") }
}

fn print_applied(set: &ChangeSet) {
    for step in &set.steps {
        let after = step.after.as_deref().unwrap_or(&step.asked);
        if !step.setting.means_the_same(after, &step.asked) {
            print_line(format_args!(
                "{}: the kernel took {} instead of {}",
                line(&step.setting),
                line(shown(after)),
                line(shown(&step.asked))
            ));
        }
    }
    print_line(format_args!("applied as change set {}", set.id));
}

/// What programs have written down about interfaces.
fn owners(interfaces: impl Iterator<Item = String>) -> BTreeMap<String, OwnerFacts> {
    let facts = |name: String| OwnerFacts::read(Path::new("/"), &name).map(|facts| (name, facts));
    interfaces.filter(|name| !name.contains('/')).filter_map(facts).collect()
}

/// What is to hold after a reboot.
pub(super) fn desired(journal: &Journal) -> Result<Desired, ChangeError> {
    let settings = persist::settings(&journal.all()?);
    let owners = owners(settings.keys().flat_map(::host::change::Setting::interfaces));
    Ok(persist::desired(&settings, &owners))
}

/// Writes and removes the files that keep settings after a reboot.
pub(super) fn keep(
    journal: &Journal,
    lock: &Lock,
    overwrite: Overwrite,
) -> Result<(Desired, Synced), ChangeError> {
    let desired = desired(journal)?;
    let synced = files::sync(journal, lock, Path::new("/"), &desired, overwrite)?;
    Ok((desired, synced))
}

/// Prints what was done to files. Returns whether something will not hold after a reboot.
pub(super) fn print_kept((desired, synced): &(Desired, Synced)) -> bool {
    for path in &synced.written {
        print_line(format_args!("wrote {}", line(path.display())));
    }
    for path in &synced.removed {
        print_line(format_args!("removed {}", line(path.display())));
    }
    if !synced.written.is_empty() {
        desired.notes.iter().for_each(|note| print_line(format_args!("note: {}", line(note))));
    }
    for kept in &synced.kept {
        eprint_line(format_args!("roundtrip: {} was left alone: {}", line(kept.path.display()), kept.why));
    }
    for lost in &desired.lost {
        eprint_line(format_args!(
            "roundtrip: {} will not hold after a reboot: {}",
            line(&lost.setting),
            line(&lost.why)
        ));
    }
    !synced.kept.is_empty() || !desired.lost.is_empty()
}

/// Prints what an undo has done. Returns whether everything has its value from before.
pub(super) fn print_report(report: &Report) -> bool {
    for restored in &report.restored {
        let how = if restored.was_written { "is" } else { "was already" };
        print_line(format_args!("{}: {how} {} again", line(&restored.setting), line(shown(&restored.value))));
    }
    for setting in &report.ended_with_boot {
        print_line(format_args!("{}: its value ended with the boot in which it was set", line(setting)));
    }
    for kept in &report.kept {
        let now = kept.in_force.as_deref().map_or("unknown".to_owned(), shown);
        eprint_line(format_args!(
            "roundtrip: {} was left at {} and not restored to {}: {}",
            line(&kept.setting),
            line(now),
            line(shown(&kept.before)),
            line(&kept.why)
        ));
    }
    report.kept.is_empty()
}

/// Rolls back what is overdue because its own process was killed. Runs before every verb; a user who may not do it is told.
pub(super) fn finish_overdue(state: &Path) {
    let journal = Journal::new(state);
    let outcome =
        Now::read().and_then(|now| host::rollback::finish_overdue(&System::default(), &journal, &now));
    match outcome {
        Ok(reports) => {
            for report in reports {
                eprint_line(format_args!(
                    "roundtrip: change set {} was not confirmed in time and is rolled back",
                    report.id
                ));
                print_report(&report);
            }
        }
        Err(error) => {
            eprint_line(format_args!("roundtrip: cannot roll back what is overdue: {}", line(error)));
        }
    }
    let ids = journal.ids().unwrap_or_default();
    for set in ids.into_iter().rev().take(10).filter_map(|id| journal.load(id).ok()) {
        if set.state == SetState::AwaitingConfirmation {
            eprint_line(format_args!(
                "roundtrip: change set {} waits for roundtrip host confirm {}",
                set.id, set.id
            ));
        }
    }
}
