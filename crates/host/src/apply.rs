//! Applies changes: the journal first, then the kernel.

use std::time::Duration;

use crate::change::{Change, Setting};
use crate::error::ChangeError;
use crate::journal::{
    ChangeSet, Deadline, Interface, Journal, Lock, Now, SetState, Step, StepState, VERSION,
};
use crate::undo::{self, Overwrite};

pub mod files;
mod link;
pub(crate) mod link_value;
pub(crate) mod mtu;
mod network_manager;
mod route;
mod system;
mod tool;

pub use system::System;

/// The most changes of a set.
pub const CHANGE_LIMIT: usize = 1000;

/// Where settings are read and written: the kernel, or memory in tests.
pub trait Kernel {
    /// The value of a setting.
    ///
    /// # Errors
    /// When it cannot be read, so that it could not be restored either.
    fn read(&self, setting: &Setting) -> Result<String, ChangeError>;

    /// Gives a setting a value, as [`Self::read`] returns it or as [`Setting`] describes it.
    ///
    /// # Errors
    /// When the value is rejected.
    fn write(&self, setting: &Setting, value: &str) -> Result<(), ChangeError>;

    /// Which interface has the name in a setting; none for other settings, and where none has it.
    fn interface(&self, _setting: &Setting) -> Option<Interface> {
        None
    }

    /// Why a value would be rejected, where that is known before it is written.
    fn obstacle(&self, _setting: &Setting, _value: &str) -> Option<String> {
        None
    }
}

/// Changes that are asked for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Request {
    /// The command that asks: `set eth0 speed=100`.
    pub origin: String,
    /// The changes in their order.
    pub changes: Vec<Change>,
    /// Whether they are to hold after a reboot.
    pub persist: bool,
    /// Roll back unless the changes are confirmed within this time.
    pub confirm_within: Option<Duration>,
}

/// What a change would do.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Planned {
    /// The change.
    pub change: Change,
    /// The value in force.
    pub in_force: String,
    /// Whether the value in force is another.
    pub is_needed: bool,
}

/// Reads the values in force that changes would replace. Changes nothing.
///
/// # Errors
/// When a setting cannot be read, or an MTU would end IPv6 on its interface.
pub fn plan(kernel: &impl Kernel, changes: &[Change]) -> Result<Vec<Planned>, ChangeError> {
    let planned = |change: &Change| {
        let in_force = kernel.read(&change.setting)?;
        mtu::check(kernel, change)?;
        let is_needed = !change.setting.means_the_same(&in_force, &change.value);
        Ok(Planned { change: change.clone(), in_force, is_needed })
    };
    changes.iter().map(planned).collect()
}

/// Applies changes in their order. The journal is on the disk before the first. If one fails, those before it are restored.
///
/// # Errors
/// When a value before cannot be read or the journal cannot be written (nothing is changed then), or a change fails.
pub fn apply(
    kernel: &impl Kernel,
    journal: &Journal,
    lock: &Lock,
    now: &Now,
    request: &Request,
) -> Result<ChangeSet, ChangeError> {
    let mut set = begin(kernel, now, request)?;
    journal.add(lock, &mut set)?;
    for index in 0..set.steps.len() {
        if let Err(cause) = take(kernel, journal, lock, &mut set, index) {
            return Err(give_up(kernel, journal, lock, now, set, cause));
        }
    }
    set.state = if set.deadline.is_some() { SetState::AwaitingConfirmation } else { SetState::Applied };
    if let Err(cause) = journal.save(lock, &set) {
        return Err(give_up(kernel, journal, lock, now, set, cause));
    }
    Ok(set)
}

fn begin(kernel: &impl Kernel, now: &Now, request: &Request) -> Result<ChangeSet, ChangeError> {
    if request.changes.is_empty() || request.changes.len() > CHANGE_LIMIT {
        let why = format!("a change set has 1 to {CHANGE_LIMIT} changes, not {}", request.changes.len());
        return Err(ChangeError::Refused(why));
    }
    let step = |planned: Planned| Step {
        setting: planned.change.setting,
        before: planned.in_force,
        asked: planned.change.value,
        after: None,
        state: StepState::Planned,
        interface: None,
        left: None,
    };
    let deadline = request.confirm_within.map(|time| {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Deadline { boottime_ms: now.boottime_ms.saturating_add(milliseconds) }
    });
    Ok(ChangeSet {
        version: VERSION,
        id: 0,
        origin: request.origin.clone(),
        time_unix_s: now.time_unix_s,
        boot_id: now.boot_id.clone(),
        namespace: now.namespace.clone(),
        state: SetState::Applying,
        deadline,
        persist: request.persist,
        steps: plan(kernel, &request.changes)?.into_iter().map(step).collect(),
    })
}

/// One step. Its value before is read again, as an earlier step may have changed it.
fn take(
    kernel: &impl Kernel,
    journal: &Journal,
    lock: &Lock,
    set: &mut ChangeSet,
    index: usize,
) -> Result<(), ChangeError> {
    let step = &mut set.steps[index];
    step.before = kernel.read(&step.setting)?;
    step.interface = kernel.interface(&step.setting);
    if step.setting.means_the_same(&step.before, &step.asked) {
        (step.after, step.state) = (Some(step.before.clone()), StepState::InForce);
        return journal.save(lock, set);
    }
    step.state = StepState::Begun;
    journal.save(lock, set)?;
    let step = &mut set.steps[index];
    kernel.write(&step.setting, &step.asked)?;
    (step.after, step.state) = (Some(kernel.read(&step.setting)?), StepState::Done);
    journal.save(lock, set)
}

/// Restores the steps that were done.
fn give_up(
    kernel: &impl Kernel,
    journal: &Journal,
    lock: &Lock,
    now: &Now,
    mut set: ChangeSet,
    cause: ChangeError,
) -> ChangeError {
    let id = set.id;
    let outcome = match undo::undo(kernel, journal, lock, now, &mut set, Overwrite::Unrecorded) {
        Ok(report) if report.kept.is_empty() => "all values are as they were before".to_owned(),
        Ok(report) => {
            let names: Vec<String> = report.kept.iter().map(|kept| kept.setting.to_string()).collect();
            format!("not restored: {}; run roundtrip host undo {id}", names.join(", "))
        }
        Err(error) => format!("restoring failed ({error}); run roundtrip host undo {id}"),
    };
    ChangeError::Incomplete { cause: Box::new(cause), outcome }
}
