//! The order of a session's commands over all its connections (RFC 7143 4.2.2.1).

use std::sync::atomic::{AtomicU32, Ordering};

/// CmdSN, ExpCmdSN and MaxCmdSN of a session; its connections share one, on any threads.
#[derive(Debug)]
pub struct CommandSequence {
    expected: AtomicU32,
    /// Commands that keep their places in the window: writes whose data is incomplete.
    unfinished: AtomicU32,
    /// Commands that wait for their turn.
    waiting: AtomicU32,
    window: u32,
}

/// The turn of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Its own.
    Now,
    /// That of another before it.
    Later,
    /// It is no command of the window: to be ignored.
    Never,
}

impl CommandSequence {
    /// A sequence that begins with `expected`; `window` (at least 1) commands may be in flight.
    #[must_use]
    pub fn new(expected: u32, window: u32) -> Self {
        Self {
            expected: AtomicU32::new(expected),
            unfinished: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            window: window.max(1),
        }
    }

    /// ExpCmdSN.
    #[inline]
    #[must_use]
    pub fn expected(&self) -> u32 {
        self.expected.load(Ordering::Acquire)
    }

    /// How many commands may be in flight.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.window
    }

    /// The open places of the window.
    #[inline]
    #[must_use]
    pub fn open_window(&self) -> u32 {
        self.window.saturating_sub(self.unfinished.load(Ordering::Relaxed))
    }

    /// MaxCmdSN.
    #[inline]
    #[must_use]
    pub fn max_cmd_sn(&self) -> u32 {
        self.expected().wrapping_add(self.open_window()).wrapping_sub(1)
    }

    /// Judges a command, and takes the turn when it is its own.
    #[inline]
    pub fn take_turn(&self, cmd_sn: u32) -> Turn {
        let (expected, open) = (self.expected(), self.open_window());
        match cmd_sn.wrapping_sub(expected) {
            0 if open > 0 => {
                let next = expected.wrapping_add(1);
                // A duplicate CmdSN is outside the window.
                let (good, bad) = (Ordering::AcqRel, Ordering::Acquire);
                match self.expected.compare_exchange(expected, next, good, bad) {
                    Ok(_) => Turn::Now,
                    Err(_) => Turn::Never,
                }
            }
            ahead if ahead < open => Turn::Later,
            _ => Turn::Never,
        }
    }

    /// Adds `count` commands that wait for their turn; negative to remove them.
    pub fn wait(&self, count: i32) {
        self.waiting.fetch_add(count as u32, Ordering::AcqRel);
    }

    /// Whether any connection has a command that waits for its turn.
    #[inline]
    #[must_use]
    pub fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Acquire) != 0
    }

    /// Adds `count` unfinished commands; negative to remove them.
    pub fn unfinished(&self, count: i32) {
        self.unfinished.fetch_add(count as u32, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cmdsn_is_taken_once_across_the_wrap() {
        let sequence = CommandSequence::new(u32::MAX, 4);
        assert_eq!(sequence.max_cmd_sn(), 2);
        assert_eq!(sequence.take_turn(0), Turn::Later);
        assert_eq!(sequence.take_turn(3), Turn::Never, "outside the window");
        assert_eq!(sequence.take_turn(u32::MAX), Turn::Now);
        assert_eq!(sequence.take_turn(u32::MAX), Turn::Never, "again");
        assert_eq!(sequence.take_turn(0), Turn::Now);
        sequence.unfinished(4);
        assert_eq!(sequence.take_turn(1), Turn::Never, "the window is shut");
        sequence.unfinished(-4);
        assert_eq!(sequence.take_turn(1), Turn::Now);
    }

    #[test]
    fn racing_threads_take_every_cmdsn_once() {
        let sequence = CommandSequence::new(0, 1000);
        let taken: u32 = std::thread::scope(|scope| {
            let run = || (0..500).filter(|&n| sequence.take_turn(n) == Turn::Now).count() as u32;
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, sequence.expected());
    }
}
