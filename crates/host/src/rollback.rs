//! Changes that are taken back unless they are confirmed in time.
//!
//! A process of its own applies them, keeps the deadline and rolls back, so that neither the end of the caller's shell nor a path
//! that the change has cut prevents it. If that process is killed, the next command that runs rolls back what is overdue.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::apply::Kernel;
use crate::error::ChangeError;
use crate::journal::{ChangeSet, Journal, Lock, Now, SetState, Step, StepState};
use crate::undo::{self, HandedOver, Overwrite, Report};

/// Confirms a change set, which then stays.
///
/// # Errors
/// When it does not wait for a confirmation, or its time is over.
pub fn confirm(journal: &Journal, lock: &Lock, now: &Now, id: u64) -> Result<ChangeSet, ChangeError> {
    let mut set = journal.load(id)?;
    let refuse = |why: &str| Err(ChangeError::Refused(format!("change set {id} {why}")));
    match set.state {
        SetState::AwaitingConfirmation if set.is_overdue(now) => {
            refuse("is overdue and will be rolled back; apply it again and confirm in time")
        }
        SetState::AwaitingConfirmation => {
            (set.state, set.deadline) = (SetState::Applied, None);
            journal.save(lock, &set)?;
            Ok(set)
        }
        SetState::Applied => Ok(set),
        SetState::Applying => refuse("is not completely applied; undo it"),
        SetState::Undone => refuse("was rolled back; apply it again and confirm in time"),
    }
}

/// Rolls back each change set that is overdue, the last one first. Sets of other network namespaces stay.
///
/// # Errors
/// When the journal cannot be written. Files that cannot be read are skipped: they are reported where they are needed.
pub fn finish_overdue(
    kernel: &impl Kernel,
    journal: &Journal,
    now: &Now,
) -> Result<Vec<Report>, ChangeError> {
    let is_due = |set: &ChangeSet| {
        set.is_overdue(now) && (set.boot_id != now.boot_id || set.namespace == now.namespace)
    };
    let due: Vec<u64> = journal
        .ids()?
        .into_iter()
        .rev()
        .filter(|id| journal.load(*id).is_ok_and(|set| is_due(&set)))
        .collect();
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let lock = journal.lock()?;
    let mut reports = Vec::new();
    for id in due {
        // Read again: its own process may have rolled it back, or the user confirmed it, before the lock was free.
        let set = journal.load(id)?;
        if is_due(&set) {
            reports.push(take_back(kernel, journal, &lock, now, set)?);
        }
    }
    Ok(reports)
}

/// Rolls back a change set that is overdue, or of which an earlier rollback has left something. None where there is nothing to do: it was
/// confirmed or undone, or its time is not over.
///
/// # Errors
/// When the journal cannot be read or written.
pub fn roll_back(
    kernel: &impl Kernel,
    journal: &Journal,
    now: &Now,
    id: u64,
) -> Result<Option<Report>, ChangeError> {
    let lock = journal.lock()?;
    let set = journal.load(id)?;
    if set.is_overdue(now) || (set.deadline.is_some() && set.is_partly_undone()) {
        let report = take_back(kernel, journal, &lock, now, set)?;
        keep_for_the_next_command(journal, &lock, &report)?;
        return Ok(Some(report));
    }
    Ok(None)
}

/// Records what the rollback of a guard has left on another interface of the same name. The guard has nobody to tell: the next `undo`
/// or `verify` does.
fn keep_for_the_next_command(journal: &Journal, lock: &Lock, report: &Report) -> Result<(), ChangeError> {
    if report.ended_with_interface.is_empty() {
        return Ok(());
    }
    let mut set = journal.load(report.id)?;
    for step in &mut set.steps {
        if report.ended_with_interface.iter().any(|ended| ended.setting == step.setting) {
            step.state = StepState::Kept;
            step.left =
                Some("the interface that was changed is gone, and another one has its name".to_owned());
        }
    }
    journal.save(lock, &set)
}

fn take_back(
    kernel: &impl Kernel,
    journal: &Journal,
    lock: &Lock,
    now: &Now,
    mut set: ChangeSet,
) -> Result<Report, ChangeError> {
    let handed_over = hand_over(journal, lock, &mut set)?;
    let report = undo::undo(kernel, journal, lock, now, &mut set, Overwrite::Unrecorded)?;
    Ok(Report { handed_over, ..report })
}

/// Gives the values from before a set to the later sets that have changed the same settings since. The values of the set itself are no
/// longer in force, and a later set that is rolled back must not restore them.
fn hand_over(journal: &Journal, lock: &Lock, set: &mut ChangeSet) -> Result<Vec<HandedOver>, ChangeError> {
    let mut handed_over = Vec::new();
    let is_later = |later: &ChangeSet| {
        later.id > set.id
            && later.is_active()
            && (&later.boot_id, &later.namespace) == (&set.boot_id, &set.namespace)
    };
    let mut later: Vec<ChangeSet> = journal.all()?.sets.into_iter().filter(is_later).collect();
    for index in (0..set.steps.len()).rev() {
        let step = &mut set.steps[index];
        if !matches!(step.state, StepState::Begun | StepState::Done | StepState::Kept) {
            continue;
        }
        let Some(next) = later.iter_mut().find_map(|next| takes_over(next, step).then_some(next)) else {
            continue;
        };
        // The later set first: after a crash between them, both restore the same value.
        journal.save(lock, next)?;
        handed_over.push(HandedOver { setting: step.setting.clone(), to: next.id });
        (step.state, step.left) = (StepState::Undone, None);
        journal.save(lock, set)?;
    }
    Ok(handed_over)
}

/// Whether a later set has found the value of a step. Its first step of that setting then restores the value from before both.
fn takes_over(later: &mut ChangeSet, step: &Step) -> bool {
    let is_same = |next: &&mut Step| next.setting == step.setting && next.interface == step.interface;
    let Some(next) = later.steps.iter_mut().find(is_same) else { return false };
    let is_ours = |value: &str| {
        step.after.iter().chain([&step.asked]).any(|ours| step.setting.means_the_same(value, ours))
    };
    let is_open = !matches!(next.state, StepState::Planned | StepState::Undone);
    if !is_open || !(is_ours(&next.before) || next.before == step.before) {
        return false;
    }
    next.before.clone_from(&step.before);
    if next.state == StepState::InForce {
        // The value that was in force already is the later set's alone from now on.
        next.state = StepState::Done;
    }
    true
}

/// Pauses before further attempts of a rollback that has left something, milliseconds: about two minutes in all.
const RETRY_PAUSES_MS: [u64; 10] = [125, 250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000];

/// Waits for the deadline of a change set and rolls it back, unless it was confirmed or undone by then. What cannot be restored at once, as
/// an interface is gone for a moment, is tried again for about two minutes; then the journal says what was left, and `undo` finishes it.
///
/// # Errors
/// When the journal cannot be read or written, or the kernel has no timers.
pub fn keep_deadline(
    kernel: &impl Kernel,
    journal: &Journal,
    id: u64,
) -> Result<Option<Report>, ChangeError> {
    let set = journal.load(id)?;
    let Some(deadline) = set.deadline.filter(|_| set.state == SetState::AwaitingConfirmation) else {
        return Ok(None);
    };
    wait_until(deadline.boottime_ms)?;
    let mut pauses = RETRY_PAUSES_MS.into_iter();
    loop {
        let outcome = Now::read().and_then(|now| roll_back(kernel, journal, &now, id));
        let is_finished = match &outcome {
            Ok(report) => !report.as_ref().is_some_and(Report::may_be_repeated),
            Err(_) => false,
        };
        match pauses.next() {
            Some(pause) if !is_finished => wait_until(Now::read()?.boottime_ms.saturating_add(pause))?,
            _ => return outcome,
        }
    }
}

/// Leaves the caller's session and folder, so that the end of its terminal or of ssh does not end this process. For a process that
/// was started for this, before it changes anything.
///
/// # Errors
/// When it leads a group of processes, as one that a shell has started does.
pub fn detach() -> Result<(), ChangeError> {
    nix::unistd::setsid()
        .map_err(|errno| ChangeError::Refused(format!("cannot leave the session: {errno}")))?;
    std::env::set_current_dir("/").map_err(ChangeError::io("entering", "/"))
}

/// Waits until a time since boot, milliseconds. The clock also counts while the machine is suspended.
fn wait_until(boottime_ms: u64) -> Result<(), ChangeError> {
    let wait = || -> nix::Result<()> {
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        // Zero would disarm it.
        let at = std::time::Duration::from_millis(boottime_ms.max(1));
        timer.set(Expiration::OneShot(TimeSpec::from_duration(at)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        timer.wait()
    };
    wait().map_err(|errno| ChangeError::Refused(format!("cannot wait for the deadline: {errno}")))
}
