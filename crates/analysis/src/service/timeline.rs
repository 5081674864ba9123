//! The requests of all connections of one server in the order of time: how many were in flight when each came and went.
//!
//! Operations are delivered when they are over, so those that took longest come last. They wait in a buffer of bounded size;
//! the older half of it is put in order at once. An operation that lasts longer than thousands of others is delivered behind
//! its place: it counts from there on.

use super::queue::Queue;
use super::ticks::{Ticks, Timer};

/// Operations that wait to be put in order.
const PENDING_MAX: usize = 8192;

/// An operation on the timeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    /// When the request had passed, nanoseconds since the epoch.
    pub(crate) began_ns: u64,
    /// When the response had passed.
    pub(crate) ended_ns: u64,
    /// Whose row it counts in.
    pub(crate) row: u16,
    /// TCP delayed it: its time says nothing about the server.
    pub(crate) is_delayed: bool,
    /// Its connection.
    pub(crate) connection: u32,
    /// It is held until an event comes: no other waits for it, and it for none.
    pub(crate) awaits_event: bool,
    /// It has come, and the number in flight that it met.
    met: Option<u32>,
    /// Responses that had passed when it came.
    passed_before: u64,
}

impl Passed {
    pub(crate) fn new(began_ns: u64, ended_ns: u64, row: u16) -> Self {
        let ended_ns = ended_ns.max(began_ns);
        Self {
            began_ns,
            ended_ns,
            row,
            is_delayed: false,
            connection: 0,
            awaits_event: false,
            met: None,
            passed_before: 0,
        }
    }
}

/// In flight now and at most.
#[derive(Clone, Copy, Debug, Default)]
struct Level {
    now: u32,
    most: u32,
}

impl Level {
    fn rise(&mut self) {
        self.now += 1;
        self.most = self.most.max(self.now);
    }
}

/// The timeline of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timeline {
    pending: Vec<Passed>,
    departures: Vec<(u64, u32)>,
    all: Level,
    rows: Vec<Level>,
    queue: Queue,
    /// By row.
    ticks: Vec<Ticks>,
    /// Nothing that passed before is still to come.
    done_ns: u64,
    /// Time with at least one in flight, and since when.
    busy_ns: u128,
    busy_from_ns: u64,
}

impl Timeline {
    /// Adds an operation.
    #[inline]
    pub(crate) fn add(&mut self, passed: Passed) {
        self.pending.push(passed);
        if self.pending.len() >= PENDING_MAX {
            self.order(false);
        }
    }

    /// Operations that wait.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Puts the waiting operations in order: all of them at the end, otherwise the older half.
    pub(crate) fn order(&mut self, is_end: bool) {
        self.pending.sort_unstable_by_key(|passed| passed.began_ns);
        let mut departures = std::mem::take(&mut self.departures);
        departures.clear();
        let ends = self.pending.iter().zip(0_u32..).map(|(passed, place)| (passed.ended_ns, place));
        departures.extend(ends);
        departures.sort_unstable();
        let until_ns = match departures.get(departures.len() / 2) {
            Some(&(ns, _)) if !is_end => ns,
            _ => u64::MAX,
        };
        let mut coming = 0;
        for &(ended_ns, place) in departures.iter().take_while(|(ns, _)| *ns <= until_ns) {
            // A response at the very time of a request is taken first: the request may be its consequence.
            while self.pending.get(coming).is_some_and(|next| next.began_ns < ended_ns) {
                self.come(coming);
                coming += 1;
            }
            // A request without any duration.
            while coming <= place as usize {
                self.come(coming);
                coming += 1;
            }
            self.go(place as usize);
        }
        while self.pending.get(coming).is_some_and(|next| next.began_ns <= until_ns) {
            self.come(coming);
            coming += 1;
        }
        self.done_ns = if is_end { self.done_ns } else { until_ns };
        self.pending.retain(|passed| passed.ended_ns > until_ns);
        self.departures = departures;
    }

    fn come(&mut self, place: usize) {
        let Some(passed) = self.pending.get_mut(place) else { return };
        if passed.met.is_some() {
            return;
        }
        passed.met = Some(self.all.now);
        let row = usize::from(passed.row);
        if self.rows.len() <= row {
            self.rows.resize(row + 1, Level::default());
        }
        self.rows[row].rise();
        if passed.awaits_event {
            return;
        }
        passed.passed_before = self.queue.responses();
        if self.all.now == 0 {
            self.busy_from_ns = passed.began_ns.max(self.done_ns);
        }
        self.all.rise();
        self.queue.came(passed, self.all.now - 1);
    }

    fn go(&mut self, place: usize) {
        let Some(&passed) = self.pending.get(place) else { return };
        if let Some(row) = self.rows.get_mut(usize::from(passed.row)) {
            row.now = row.now.saturating_sub(1);
        }
        if passed.awaits_event {
            return;
        }
        self.all.now = self.all.now.saturating_sub(1);
        if self.all.now == 0 {
            self.busy_ns += u128::from(passed.ended_ns.saturating_sub(self.busy_from_ns));
        }
        self.queue.went(&passed, self.all.now);
        // Where the capture begins within a run, the first requests meet others that it does not show.
        if let Some(met) = passed.met.filter(|_| passed.passed_before >= u64::from(self.all.most)) {
            let others = self.queue.responses().saturating_sub(passed.passed_before + 1);
            self.queue.order(&passed, met, others);
        }
        if !passed.is_delayed {
            let row = usize::from(passed.row);
            if self.ticks.len() <= row {
                self.ticks.resize_with(row + 1, Ticks::default);
            }
            self.ticks[row].add(passed.began_ns, passed.ended_ns, passed.connection);
        }
    }

    /// Most operations of a row in flight at once.
    pub(crate) fn most(&self, row: u16) -> u32 {
        self.rows.get(usize::from(row)).map_or(0, |level| level.most)
    }

    /// Most operations in flight at once.
    pub(crate) fn most_of_all(&self) -> u32 {
        self.all.most
    }

    /// What the order says about waiting.
    pub(crate) fn queue(&self) -> &Queue {
        &self.queue
    }

    /// What the order says about a timer: of the operation that is asked for most. Operations of different kinds take
    /// different times.
    pub(crate) fn timer(&self) -> Option<Timer> {
        self.ticks.iter().max_by_key(|ticks| ticks.count())?.timer()
    }

    /// Time in which at least one operation was in flight, ns.
    pub(crate) fn busy_ns(&self) -> u128 {
        self.busy_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In flight at most, by counting.
    fn most(all: &[(u64, u64)]) -> u32 {
        let mut events: Vec<(u64, i32)> = all.iter().flat_map(|&(a, d)| [(a, 1), (d, -1)]).collect();
        // Departures first.
        events.sort_unstable();
        let counts = events.iter().scan(0, |now, (_, change)| {
            *now += change;
            Some(*now)
        });
        counts.max().unwrap_or(0).unsigned_abs()
    }

    #[test]
    fn operations_are_counted_in_the_order_of_time_although_they_are_delivered_at_their_ends() {
        let mut random = fastrand::Rng::with_seed(4);
        let mut all: Vec<(u64, u64)> = (0..100_000_u64)
            .map(|i| {
                let began = 1000 + i * 1000 + random.u64(..900);
                (began, began + 1 + random.u64(..if i % 100 == 0 { 900_000 } else { 20_000 }))
            })
            .collect();
        let truth = most(&all);
        let busy: u64 = {
            let mut sorted = all.clone();
            sorted.sort_unstable();
            let (mut sum, mut until) = (0, 0);
            for (began, ended) in sorted {
                sum += ended.saturating_sub(began.max(until));
                until = until.max(ended);
            }
            sum
        };
        all.sort_unstable_by_key(|&(_, ended)| ended);
        let mut timeline = Timeline::default();
        for &(began, ended) in &all {
            timeline.add(Passed::new(began, ended, 3));
            assert!(timeline.pending() < PENDING_MAX);
        }
        timeline.order(true);
        assert_eq!((timeline.most(3), timeline.most(0), timeline.all.now), (truth, 0, 0));
        assert_eq!(timeline.busy_ns(), u128::from(busy));
    }

    #[test]
    fn a_response_makes_room_for_the_request_at_the_same_time() {
        let mut timeline = Timeline::default();
        for i in 0..10 {
            timeline.add(Passed::new(i * 100, (i + 1) * 100, 0));
        }
        timeline.add(Passed::new(5000, 5000, 0));
        timeline.order(true);
        assert_eq!((timeline.most(0), timeline.all.now), (1, 0));
    }
}
