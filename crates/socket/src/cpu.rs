//! Which CPU a thread runs on.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Keeps the calling thread, and the threads it will start, on one CPU.
///
/// # Errors
/// When that CPU does not exist or is not allowed to this process.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// The CPUs that this thread may run on.
///
/// # Errors
/// When the kernel does not say.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect())
}

/// The calling thread's number in /proc/self/task.
#[must_use]
pub fn thread_id() -> i32 {
    gettid().as_raw()
}
