//! CPU affinity of threads.

use std::io;
use std::os::fd::AsFd;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Pins the calling thread, and threads that it starts later, to one CPU.
///
/// # Errors
/// When the CPU does not exist or the process may not use it.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// The CPUs that this thread may run on.
///
/// # Errors
/// When the system call fails.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect())
}

/// The CPU on which the kernel last handled packets of a socket, where it says so (SO_INCOMING_CPU).
pub fn incoming(socket: &impl AsFd) -> Option<usize> {
    rustix::net::sockopt::socket_incoming_cpu(socket).ok().and_then(|cpu| usize::try_from(cpu).ok())
}

/// The calling thread's number in /proc/self/task.
#[must_use]
pub fn thread_id() -> i32 {
    gettid().as_raw()
}
