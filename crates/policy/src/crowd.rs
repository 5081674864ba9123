//! How many connections share a thread's time at present, and how long a turn of one may last then.

use std::ops::Range;
use std::time::Duration;

/// Connections of a round from which on an early answer of one delays the others.
const CROWDED: f32 = 1.5;
/// Weight of a round in the average.
const WEIGHT: f32 = 0.05;
/// Connections of a round among which one with little to do is likely to wait for one with much: turns are short then. One alone
/// keeps nobody waiting, and among many each waits for many turns, so that what counts is what a turn costs.
const FEW: Range<f32> = 1.005..2.5;

/// How much of a thread's time a connection gets at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// When it ends; what is under way then is finished.
    pub time: Duration,
    /// The most bytes that are sent at once: the kernel copies them, and often does all of the receiver's work on them, before a
    /// send returns.
    pub send_bytes: usize,
}

impl Turn {
    /// Where few connections wait.
    pub const SHORT: Self = Self { time: Duration::from_micros(50), send_bytes: 128 << 10 };
    /// Where none does, or many do.
    pub const LONG: Self = Self { time: Duration::from_micros(100), send_bytes: 256 << 10 };
}

/// The connections that have a turn in a round of a thread, on average over the last rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crowd(f32);

impl Crowd {
    /// A round begins, in which each connection has one turn at most, and so many have one.
    #[inline]
    pub fn begin_round(&mut self, ready: usize) {
        if ready > 0 {
            self.0 += (ready as f32 - self.0) * WEIGHT;
        }
    }

    /// Whether others wait as a rule when a connection has a turn.
    #[must_use]
    #[inline]
    pub fn is_crowded(self) -> bool {
        self.0 >= CROWDED
    }

    /// A turn.
    #[must_use]
    #[inline]
    pub fn turn(self) -> Turn {
        if FEW.contains(&self.0) { Turn::SHORT } else { Turn::LONG }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn behind(rounds: usize, ready: usize) -> Crowd {
        let mut crowd = Crowd::default();
        (0..rounds).for_each(|_| crowd.begin_round(ready));
        crowd
    }

    #[test]
    fn turns_are_short_where_few_wait() {
        for (crowd, turn, is_crowded) in [
            (Crowd::default(), Turn::LONG, false),
            (Crowd(1.0), Turn::LONG, false),
            (Crowd(1.3), Turn::SHORT, false),
            (Crowd(2.0), Turn::SHORT, true),
            (Crowd(3.0), Turn::LONG, true),
            (Crowd(64.0), Turn::LONG, true),
        ] {
            assert_eq!((crowd.turn(), crowd.is_crowded()), (turn, is_crowded), "{crowd:?}");
        }
    }

    #[test]
    fn a_crowd_is_an_average_of_rounds_with_work() {
        assert!(!behind(1, 20).is_crowded(), "one round of many is none yet");
        let mut crowd = behind(100, 3);
        assert!(crowd.is_crowded());
        (0..1000).for_each(|_| crowd.begin_round(0));
        assert!(crowd.is_crowded(), "a round without work tells nothing");
        (0..100).for_each(|_| crowd.begin_round(1));
        assert!(!crowd.is_crowded());
    }
}
