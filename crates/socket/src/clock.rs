//! The clock of all stamps of a run.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds since the epoch on CLOCK_REALTIME: the clock in which the kernel stamps packets, so that a
/// thread's own stamps and the packets' can be subtracted.
///
/// A step of the system clock during a run shifts stamps; NTP slews at most 500 ppm, 0.05 % of a round trip.
#[must_use]
#[inline]
pub fn realtime_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME)
}

/// Nanoseconds on CLOCK_MONOTONIC, for time-outs and durations.
#[must_use]
#[inline]
pub fn monotonic_ns() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Nanoseconds on CLOCK_BOOTTIME, which also counts while the machine is suspended, for deadlines that another process keeps.
#[must_use]
pub fn boottime_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME)
}

/// CPU time of the calling thread, nanoseconds.
#[must_use]
pub fn thread_cpu_ns() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

/// CPU time of the whole process, nanoseconds.
#[must_use]
pub fn process_cpu_ns() -> u64 {
    read(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    // These clocks exist on every Linux, so the call cannot fail.
    clock_gettime(clock)
        .map_or(0, |t| t.tv_sec().cast_unsigned() * 1_000_000_000 + t.tv_nsec().cast_unsigned())
}
