//! Changes that are taken back unless they are confirmed in time.
//!
//! A process of its own applies them, keeps the deadline and rolls back, so that neither the end of the caller's shell nor a path
//! that the change has cut prevents it. If that process is killed, the next command that runs rolls back what is overdue.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::apply::Kernel;
use crate::error::ChangeError;
use crate::journal::{ChangeSet, Journal, Lock, Now, SetState};
use crate::undo::{self, Overwrite, Report};

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
        let mut set = journal.load(id)?;
        if is_due(&set) {
            reports.push(undo::undo(kernel, journal, &lock, now, &mut set, Overwrite::Unrecorded)?);
        }
    }
    Ok(reports)
}

/// Waits for the deadline of a change set and rolls it back, unless it was confirmed or undone by then.
///
/// # Errors
/// When the journal cannot be read or written, or the kernel has no timers.
pub fn keep_deadline(
    kernel: &impl Kernel,
    journal: &Journal,
    id: u64,
) -> Result<Option<Report>, ChangeError> {
    loop {
        let set = journal.load(id)?;
        let Some(deadline) = set.deadline.filter(|_| set.state == SetState::AwaitingConfirmation) else {
            return Ok(None);
        };
        wait_until(deadline.boottime_ms)
            .map_err(|errno| ChangeError::Refused(format!("cannot wait for the deadline: {errno}")))?;
        let lock = journal.lock()?;
        let now = Now::read()?;
        let mut set = journal.load(id)?;
        if set.is_overdue(&now) {
            return undo::undo(kernel, journal, &lock, &now, &mut set, Overwrite::Unrecorded).map(Some);
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

/// Waits until a time since boot. The clock also counts while the machine is suspended.
fn wait_until(boottime_ms: u64) -> nix::Result<()> {
    let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
    // Zero would disarm it.
    let at = std::time::Duration::from_millis(boottime_ms.max(1));
    timer.set(Expiration::OneShot(TimeSpec::from_duration(at)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
    timer.wait()
}
