//! What the connections of one thread have in common: how crowded it is, and how `auto` sends.
//!
//! While one connection has most of the requests, `auto` searches for the mode in which the thread serves most. Where several share
//! it, what is complete is sent together: no early send of one is worth the time that it takes from the others. Trying costs more
//! than it finds there: a mode that sends one by one scatters the requests of each connection, and they stay scattered for long.

use crate::auto::Auto;
use crate::crowd::{Crowd, Turn};
use crate::send_mode::SendMode;

/// The control of a thread, for all connections that it serves.
///
/// The thread reports, in rounds in which each connection that is ready has one turn:
///
/// 1. [`begin_round`](Self::begin_round) with the number of turns and the time,
/// 2. for each turn [`SendControl::begin_turn`](crate::SendControl::begin_turn) and
///    [`SendControl::end_turn`](crate::SendControl::end_turn),
/// 3. [`idle`](Self::idle) when no connection is ready.
///
/// ```
/// use policy::{SendControl, SendMode, SendPolicy, ThreadControl};
///
/// let (mut thread, mut connection) = (ThreadControl::default(), SendControl::new(SendPolicy::Auto));
/// for round in 0..100 {
///     thread.begin_round(3, round * 20_000);
///     connection.begin_turn(&thread);
///     connection.requested(1);
///     let _ = connection.served(560);
///     connection.sent();
///     connection.end_turn(&mut thread);
///     thread.idle();
/// }
/// assert_eq!(thread.mode(), SendMode::BATCH, "others wait");
/// ```
#[derive(Clone, Debug, Default)]
pub struct ThreadControl {
    crowd: Crowd,
    /// The search while one connection has most of the requests.
    auto: Auto,
    is_shared: bool,
    /// Number of the span between two looks at the clock, and what the connections with a turn in it had in flight.
    span: u64,
    in_flight: u32,
    window: Window,
}

/// Requests of which a window consists, at the least: a client may have some hundred answered before its other threads run.
const WINDOW: u32 = 2048;
/// One connection has the thread to itself, as far as sending is concerned, when it has this part of the requests.
const MOST: f32 = 0.7;

/// Whose the last requests were.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    number: u64,
    requests: u32,
    /// Those of the connection with the most.
    most: u32,
    /// In the last window, no connection had most of the requests.
    is_shared: bool,
}

impl ThreadControl {
    /// A round begins at `now_ns`, on any clock that only goes forward, in which so many connections have a turn.
    #[inline]
    pub fn begin_round(&mut self, ready: usize, now_ns: u64) {
        self.crowd.begin_round(ready);
        if self.window.requests >= WINDOW {
            let Window { number, requests, most, .. } = self.window;
            let is_shared = (most as f32) < MOST * requests as f32;
            self.window = Window { number: number + 1, is_shared, ..Window::default() };
        }
        let is_shared = self.crowd.is_crowded() || self.window.is_shared;
        if is_shared != self.is_shared {
            self.is_shared = is_shared;
            self.auto.resume();
        }
        if !is_shared && self.auto.wants_time() {
            let in_flight = std::mem::take(&mut self.in_flight);
            self.span += 1;
            self.auto.clock(now_ns, in_flight);
        }
    }

    /// No connection is ready.
    #[inline]
    pub fn idle(&mut self) {
        if !self.is_shared {
            self.auto.idle();
        }
    }

    /// How much of the thread's time a turn takes.
    #[must_use]
    #[inline]
    pub fn turn(&self) -> Turn {
        self.crowd.turn()
    }

    /// How `auto` sends.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> SendMode {
        if self.is_shared { SendMode::BATCH } else { self.auto.mode() }
    }

    /// A turn of a connection, whose peer has had `in_flight` requests in flight of late.
    #[inline]
    pub(crate) fn count(&mut self, turn: &mut Counted, in_flight: u32) {
        let requests = std::mem::take(&mut turn.requests);
        if turn.window != self.window.number {
            (turn.window, turn.in_window) = (self.window.number, 0);
        }
        turn.in_window += requests;
        self.window.requests += requests;
        self.window.most = self.window.most.max(turn.in_window);
        if turn.span != self.span {
            turn.span = self.span;
            self.in_flight = self.in_flight.saturating_add(in_flight);
        }
        if !self.is_shared {
            self.auto.count(requests, turn.sends);
        }
        turn.sends = 0;
    }
}

/// What a connection has done in a turn, and where it was last counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) requests: u32,
    pub(crate) sends: u32,
    span: u64,
    window: u64,
    in_window: u32,
}

impl Default for Counted {
    fn default() -> Self {
        // Numbers that no thread has.
        Self { requests: 0, sends: 0, span: u64::MAX, window: u64::MAX, in_window: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SendControl, SendPolicy};

    /// Connections that have a turn in each round, with so many requests.
    fn run(
        connections: usize,
        requests: u32,
        ns: impl Fn(SendMode) -> u64,
        until_ns: u64,
    ) -> (SendMode, u32) {
        let mut thread = ThreadControl::default();
        let mut all = vec![SendControl::new(SendPolicy::Auto); connections];
        let (mut now_ns, mut most) = (0, 0);
        while now_ns < until_ns {
            thread.begin_round(connections, now_ns);
            for control in &mut all {
                control.begin_turn(&thread);
                for _ in 0..requests {
                    control.requested(requests);
                    now_ns += ns(control.mode());
                    if control.served(560) {
                        control.sent();
                    }
                }
                control.sent();
                control.end_turn(&mut thread);
            }
            most = most.max(thread.in_flight);
            thread.idle();
        }
        (thread.mode(), most)
    }

    #[test]
    fn what_several_share_is_sent_together_and_nothing_is_tried() {
        for requests in [1, 4, 32, 128] {
            let better = |mode| if mode == SendMode::NODELAY { 8_000 } else { 10_000 };
            for connections in [2, 4, 64] {
                let (mode, _) = run(connections, requests, better, 500_000_000);
                assert_eq!(mode, SendMode::BATCH, "{connections} {requests}");
            }
        }
    }

    /// Rounds with one turn each: nobody waits for the thread, but the connections take turns.
    #[test]
    fn connections_that_take_turns_share_the_thread() {
        let settled = |shares: &[u32]| {
            let mut thread = ThreadControl::default();
            let mut all = vec![SendControl::new(SendPolicy::Auto); shares.len()];
            for round in 0..10_000 {
                for (control, &requests) in all.iter_mut().zip(shares) {
                    thread.begin_round(1, round * 100_000);
                    control.begin_turn(&thread);
                    for _ in 0..requests {
                        control.requested(8);
                        let _ = control.served(560);
                    }
                    control.sent();
                    control.end_turn(&mut thread);
                    thread.idle();
                }
            }
            thread.is_shared
        };
        assert!(settled(&[8, 8]) && settled(&[1; 16]) && settled(&[3, 2]));
        assert!(!settled(&[8]) && !settled(&[8, 1]) && !settled(&[32, 1, 1, 1]), "one has nearly all");
    }

    #[test]
    fn a_connection_alone_is_served_as_it_likes_best() {
        assert_eq!(run(1, 2, |_| 10_000, 50_000_000).0, SendMode::NODELAY, "few requests flow");
        let best = |mode| if mode == SendMode::part(8) { 8_000 } else { 10_000 };
        assert_eq!(run(1, 32, best, 500_000_000).0, SendMode::part(8));
    }

    #[test]
    fn what_is_in_flight_is_counted_once_for_each_connection() {
        // A look at the clock after sixteen requests: two rounds with eight, sixteen with one.
        assert_eq!(run(1, 8, |_| 10_000, 10_000_000).1, 8);
        assert_eq!(run(1, 1, |_| 10_000, 10_000_000).1, 1);
    }

    #[test]
    fn what_was_found_is_kept_while_several_share_the_thread() {
        let mut thread = ThreadControl::default();
        (0..100).for_each(|n| thread.begin_round(1, n));
        let alone = thread.mode();
        (100..200).for_each(|n| thread.begin_round(5, n));
        assert_eq!(thread.mode(), SendMode::BATCH);
        (200..300).for_each(|n| thread.begin_round(1, n));
        assert_eq!(thread.mode(), alone);
    }

    /// What a connection had at its old thread says nothing about the new one, whose windows may have the same number.
    #[test]
    fn a_connection_that_moves_is_counted_anew() {
        let serve = |thread: &mut ThreadControl, control: &mut SendControl, requests: u32| {
            thread.begin_round(1, 0);
            control.begin_turn(thread);
            (0..requests).for_each(|_| {
                control.requested(8);
                let _ = control.served(560);
            });
            control.sent();
            control.end_turn(thread);
        };
        let (mut old, mut new) = (ThreadControl::default(), ThreadControl::default());
        let mut moving = SendControl::new(SendPolicy::Auto);
        let mut others = vec![SendControl::new(SendPolicy::Auto); 4];
        serve(&mut old, &mut moving, WINDOW - 100);
        moving.moved();
        for _ in 0..=WINDOW / 100 {
            serve(&mut new, &mut moving, 20);
            others.iter_mut().for_each(|other| serve(&mut new, other, 20));
        }
        new.begin_round(1, 0);
        assert!(new.is_shared, "{:?}", new.window);
    }

    /// A thread that several share for days is idle more often than a number has room for.
    #[test]
    fn idle_moments_of_a_shared_thread_are_not_counted() {
        let mut thread = ThreadControl::default();
        (0..100).for_each(|n| thread.begin_round(5, n));
        let before = format!("{:?}", thread.auto);
        (0..1000).for_each(|_| thread.idle());
        assert_eq!(format!("{:?}", thread.auto), before);
    }
}
