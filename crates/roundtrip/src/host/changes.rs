//! What the verbs that change a host share: the journal's folder, the dry run, applying, and the files that keep settings.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use host::apply::{self, Planned, Request, System};
use host::change::Change;
use host::error::ChangeError;
use host::journal::{ChangeSet, Contents, Journal, Lock, Now, STATE_FOLDER, SetState, Unreadable};
use host::lifeline::{self, Topology};
use host::persist::files::{self, Synced};
use host::persist::{self, Desired, OwnerFacts};
use host::undo::{Overwrite, Report};
use output::text::line;

use super::{guard, told};
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
    let topology = Topology::read().map_err(classify)?;
    let names = changes.iter().flat_map(|change| change.setting.interfaces());
    if let Some(missing) = topology.missing(names) {
        return Err(classify(missing));
    }
    let planned = apply::plan(&kernel, &changes).map_err(classify)?;
    told::groups(&planned).iter().for_each(|group| print_planned(group));
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
            complete(&journal)?;
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
            if kept.is_none() {
                complete(&journal)?;
            }
        }
    }
    Ok(())
}

/// Names files of the journal that cannot be read: a change that was made is not taken back for them, and is not all that there is.
fn complete(journal: &Journal) -> Result<(), Failure> {
    let unreadable = journal.all().map_err(classify)?.unreadable;
    if unreadable.is_empty() {
        return Ok(());
    }
    print_unreadable(&unreadable);
    Err(Failure::Work(anyhow!("the change was made, but the journal is not complete")))
}

pub(super) fn state_option(state: &Path) -> String {
    if state == Path::new(STATE_FOLDER) { String::new() } else { format!(" --state {}", state.display()) }
}

/// Prints plans of one group, which have the same values.
fn print_planned(group: &[&Planned]) {
    let [Planned { change, in_force, is_needed }, ..] = group else { return };
    let setting = told::setting(group);
    let (setting, in_force, value) = (line(&setting), line(shown(in_force)), line(shown(&change.value)));
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

/// What the change sets that can be read want to hold after a reboot.
pub(super) fn desired(contents: &Contents) -> Desired {
    let settings = persist::settings(&contents.sets);
    let owners = owners(settings.keys().flat_map(::host::change::Setting::interfaces));
    persist::desired(&settings, &owners)
}

/// The files that keep settings after a reboot, and what was done to them.
#[derive(Default)]
pub(super) struct KeptFiles {
    desired: Desired,
    synced: Synced,
    /// Files of the journal that cannot be read. With one of them, no file is changed: what it wants to keep is not known.
    unreadable: Vec<Unreadable>,
}

impl KeptFiles {
    /// Whether there was nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        self.synced == Synced::default() && self.unreadable.is_empty()
    }
}

/// Writes and removes the files that keep settings after a reboot.
pub(super) fn keep(journal: &Journal, lock: &Lock, overwrite: Overwrite) -> Result<KeptFiles, ChangeError> {
    let contents = journal.all()?;
    if !contents.unreadable.is_empty() {
        return Ok(KeptFiles { unreadable: contents.unreadable, ..KeptFiles::default() });
    }
    let desired = desired(&contents);
    let synced = files::sync(journal, lock, Path::new("/"), &desired, overwrite)?;
    Ok(KeptFiles { desired, synced, ..KeptFiles::default() })
}

/// Names the files of the journal that cannot be read.
pub(super) fn print_unreadable(unreadable: &[Unreadable]) {
    for file in unreadable {
        eprint_line(format_args!("roundtrip: {}", line(&file.why)));
    }
}

/// Prints what was done to files. Returns whether something will not hold after a reboot, or cannot be told.
pub(super) fn print_kept(KeptFiles { desired, synced, unreadable }: &KeptFiles) -> bool {
    print_unreadable(unreadable);
    if !unreadable.is_empty() {
        eprint_line(
            "roundtrip: files that keep settings after a reboot were left as they are: the journal is not complete",
        );
    }
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
    !synced.kept.is_empty() || !desired.lost.is_empty() || !unreadable.is_empty()
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
    for ended in &report.ended_with_interface {
        print_line(format_args!(
            "{}: its value ended with the interface that had it; another one has its name now and was left at {}",
            line(&ended.setting),
            line(shown(&ended.in_force))
        ));
    }
    for handed_over in &report.handed_over {
        print_line(format_args!(
            "{}: change set {} has changed it since, and restores its value from before",
            line(&handed_over.setting),
            handed_over.to
        ));
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
