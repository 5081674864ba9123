//! Restores what a change set has changed: in reverse order, byte for byte, as often as it is asked to.

use crate::apply::Kernel;
use crate::change::Setting;
use crate::error::ChangeError;
use crate::journal::{ChangeSet, Journal, Lock, Now, SetState, Step, StepState};

/// Which values are overwritten that are not those that the journal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Only the value that was in force after the change, or that was asked for where the end of the change was not recorded.
    Own,
    /// Also any value of a change whose end was not recorded: the kernel may have stored another value than was asked for.
    Unrecorded,
    /// Any.
    All,
}

/// What an undo did.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// The change set.
    pub id: u64,
    /// Settings that have their values from before again.
    pub restored: Vec<Restored>,
    /// Settings that were left as they are.
    pub kept: Vec<Kept>,
    /// Settings whose values ended with the boot in which they were changed.
    pub ended_with_boot: Vec<Setting>,
    /// Settings whose values ended with the interface that had them: another one has its name now.
    pub ended_with_interface: Vec<Ended>,
    /// Settings that a later change set has changed since: that set restores the values from before this one.
    pub handed_over: Vec<HandedOver>,
}

/// A setting whose value ended with its interface.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Ended {
    /// The setting.
    pub setting: Setting,
    /// The value that the interface of now has, and keeps.
    pub in_force: String,
}

/// A setting that a later change set restores.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct HandedOver {
    /// The setting.
    pub setting: Setting,
    /// The later change set.
    pub to: u64,
}

impl Report {
    /// Whether settings were left that another attempt may restore: an interface that is gone may come back.
    #[must_use]
    pub fn may_be_repeated(&self) -> bool {
        self.kept.iter().any(|kept| kept.cause == Cause::Failed)
    }
}

/// A restored setting.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Restored {
    /// The setting.
    pub setting: Setting,
    /// Its value now.
    pub value: String,
    /// Whether it had to be written.
    pub was_written: bool,
}

/// A setting that was left as it is.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Kept {
    /// The setting.
    pub setting: Setting,
    /// Its value from before the change.
    pub before: String,
    /// The value in force.
    pub in_force: Option<String>,
    /// What kept it.
    pub cause: Cause,
    /// Why it was left: another program has changed it, or it cannot be read or written.
    pub why: String,
}

/// What keeps a setting from being restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// It has a value that the change has not given it.
    ChangedSince,
    /// It cannot be read or written now.
    Failed,
}

enum Outcome {
    Untouched,
    Restored(Restored),
    EndedWithBoot,
    EndedWithInterface(Ended),
    Kept(Kept),
}

/// Restores a change set. Each restored step is recorded, so that an undo that is interrupted can be repeated.
///
/// # Errors
/// When the set is of another network namespace, or the journal cannot be written. A setting that cannot be restored is reported
/// as kept, and the others are restored.
pub fn undo(
    kernel: &impl Kernel,
    journal: &Journal,
    lock: &Lock,
    now: &Now,
    set: &mut ChangeSet,
    overwrite: Overwrite,
) -> Result<Report, ChangeError> {
    if set.boot_id == now.boot_id && set.namespace != now.namespace {
        return Err(ChangeError::Refused(format!(
            "change set {} belongs to the network namespace {}, and this is {}: run the command there",
            set.id, set.namespace, now.namespace
        )));
    }
    let mut report = Report { id: set.id, ..Report::default() };
    for index in (0..set.steps.len()).rev() {
        let outcome = restore(kernel, now, set, &set.steps[index], overwrite);
        let (state, left) = match &outcome {
            Outcome::Kept(kept) => (StepState::Kept, Some(kept.why.clone())),
            _ => (StepState::Undone, None),
        };
        match outcome {
            Outcome::Untouched => {}
            Outcome::Restored(restored) => report.restored.push(restored),
            Outcome::EndedWithBoot => report.ended_with_boot.push(set.steps[index].setting.clone()),
            Outcome::EndedWithInterface(ended) => report.ended_with_interface.push(ended),
            Outcome::Kept(kept) => report.kept.push(kept),
        }
        let step = &mut set.steps[index];
        if step.state != state || step.left != left {
            (step.state, step.left) = (state, left);
            journal.save(lock, set)?;
        }
    }
    if set.state != SetState::Undone {
        set.state = SetState::Undone;
        journal.save(lock, set)?;
    }
    Ok(report)
}

fn restore(kernel: &impl Kernel, now: &Now, set: &ChangeSet, step: &Step, overwrite: Overwrite) -> Outcome {
    if matches!(step.state, StepState::Planned | StepState::InForce | StepState::Undone) {
        return Outcome::Untouched;
    }
    let is_of_this_boot = set.boot_id == now.boot_id || step.setting.survives_reboot();
    // What was written for the next boot is in force after it, and is ours. An unconfirmed set has written nothing.
    let is_kept_in_files = set.persist && set.deadline.is_none();
    if !is_of_this_boot && !is_kept_in_files {
        return Outcome::EndedWithBoot;
    }
    let kept = |in_force: Option<String>, cause: Cause, why: String| {
        Outcome::Kept(Kept {
            setting: step.setting.clone(),
            before: step.before.clone(),
            in_force,
            cause,
            why,
        })
    };
    let failed = |in_force: Option<String>, why: String| kept(in_force, Cause::Failed, why);
    let in_force = match kernel.read(&step.setting) {
        Ok(value) => value,
        Err(_) if !is_of_this_boot => return Outcome::EndedWithBoot,
        Err(error) => return failed(None, error.to_string()),
    };
    if is_of_this_boot
        && !is_kept_in_files
        && overwrite != Overwrite::All
        && is_on_another_interface(kernel, step)
    {
        return Outcome::EndedWithInterface(Ended { setting: step.setting.clone(), in_force });
    }
    if in_force == step.before {
        return restored(step, in_force, false);
    }
    if !is_own(step, &in_force, overwrite) {
        if !is_of_this_boot {
            return Outcome::EndedWithBoot;
        }
        let expected = step.after.as_deref().unwrap_or(&step.asked);
        let why = format!("it was changed since, from '{expected}'; --force overwrites it");
        return kept(Some(in_force), Cause::ChangedSince, why);
    }
    if let Err(error) = kernel.write(&step.setting, &step.before) {
        return failed(Some(in_force), error.to_string());
    }
    match kernel.read(&step.setting) {
        Ok(value) if step.setting.means_the_same(&value, &step.before) => restored(step, value, true),
        Ok(value) => {
            failed(Some(value), "the kernel took another value than the one that was written".to_owned())
        }
        Err(error) => failed(None, error.to_string()),
    }
}

/// Whether the interface that had the value is gone, and another one has its name.
fn is_on_another_interface(kernel: &impl Kernel, step: &Step) -> bool {
    let now = step.interface.as_ref().and_then(|_| kernel.interface(&step.setting));
    step.interface
        .as_ref()
        .zip(now)
        .is_some_and(|(then, now)| !step.setting.survives_reboot() && then.is_another(&now))
}

fn restored(step: &Step, value: String, was_written: bool) -> Outcome {
    Outcome::Restored(Restored { setting: step.setting.clone(), value, was_written })
}

/// Whether a value is one that the change has put in force.
fn is_own(step: &Step, in_force: &str, overwrite: Overwrite) -> bool {
    match (&step.after, overwrite) {
        (_, Overwrite::All) | (None, Overwrite::Unrecorded) => true,
        (Some(after), _) => step.setting.means_the_same(in_force, after),
        (None, Overwrite::Own) => step.setting.means_the_same(in_force, &step.asked),
    }
}
