//! Whether a server answers in the order of the requests although it takes different times: it works on a queue.
//!
//! While a request waits in a queue, as many responses pass as it met requests. Where latencies overlap, as many pass as come in its
//! own time: more behind a slow one, fewer behind a fast one. So their number shows a queue at any distribution of service times, also
//! where a constant number of clients keeps it equally long. How many would pass is known from how much response times differ
//! between requests so far apart that they do not meet: latencies that change slowly differ little within that distance. Then,
//! too, responses come at the distances of their requests, and not at distances of their own.
//!
//! Work of about the same length lets too few pass to be missed. But then the distances alone tell: where latencies overlap, two
//! requests' responses are as far apart as the requests and the difference of two latencies, which does not depend on when the
//! requests came. So over many requests the one grows with the other. Responses that leave a queue are apart what the work takes.

use std::collections::VecDeque;

use super::sample::Sample;
use super::timeline::Passed;

/// Fewest responses.
const RESPONSES_MIN: u64 = 100;
/// Overlapping latencies would let so many responses more or less pass on average, so that their absence shows.
const EXPECTED_MIN: f64 = 1.5;
/// Behind one worker so many for each request in flight suffice where no path can keep the order: response times change by two
/// fifths of the time between their requests, which no latency does that changes slowly.
const EXPECTED_EACH: f64 = 0.2;
/// And at a queue at most this part of them do.
const IN_ORDER: f64 = 0.6;
/// Below this number of overtakings for each request there is one worker.
const STRICT: f64 = 0.02;
/// Response times that are remembered, more than a server of some load has in flight.
const REMEMBERED: usize = 256;
/// Largest correlation of the responses' distances with those of their requests, where the former are the server's own.
const CORRELATED: f64 = 0.5;

/// And their slope over those of the requests, in the order of requests: 1 where latencies overlap, 0 at a queue.
const FOLLOWS: f64 = 0.5;
/// That holds while a request's own latency does not decide when the next one comes: few exchange their places, as a share of those
/// that each meets.
const EXCHANGED: f64 = 0.1;
/// Standard errors that exclude chance.
const ERRORS: f64 = 5.0;

/// Sums over pairs of distances, seconds.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    n: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    yy: f64,
}

impl Line {
    /// Adds the distances of two requests and of their responses.
    fn add(&mut self, before: &(u64, u64), now: &(u64, u64)) {
        let (x, y) = ((now.0 as f64 - before.0 as f64) / 1e9, (now.1 as f64 - before.1 as f64) / 1e9);
        let sums = [&mut self.n, &mut self.x, &mut self.y, &mut self.xx, &mut self.xy, &mut self.yy];
        sums.into_iter().zip([1.0, x, y, x * x, x * y, y * y]).for_each(|(sum, value)| *sum += value);
    }

    /// The variances and the covariance.
    fn moments(&self) -> [f64; 3] {
        let n = self.n.max(1.0);
        [self.xx - self.x * self.x / n, self.xy - self.x * self.y / n, self.yy - self.y * self.y / n]
            .map(|sum| sum / n)
    }

    fn correlation(&self) -> f64 {
        let [xx, xy, yy] = self.moments();
        let both = (xx * yy).sqrt();
        if both > 0.0 { xy / both } else { 1.0 }
    }

    /// Whether the responses' distances do not follow those of the requests, beyond chance.
    fn is_flat(&self) -> bool {
        let [xx, xy, yy] = self.moments();
        let slope = xy / xx;
        let error = ((yy - slope * xy).max(0.0) / xx / (self.n - 2.0).max(1.0)).sqrt();
        xx > 0.0 && slope.abs() + ERRORS * error < FOLLOWS
    }
}

/// The order of the responses of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    count: u64,
    /// Sum of the differences between the requests met and the responses that passed.
    overtaken: f64,
    /// Sum of the requests met.
    met: f64,
    /// The last response times, ns, and the differences between those that did not meet.
    times: VecDeque<f64>,
    differences: Sample,
    /// Whether all are of one connection, whose protocol may prescribe the order.
    connection: Option<u32>,
    is_shared: bool,
    first_ns: u64,
    last_ns: u64,
    last: Option<(u64, u64)>,
    /// Distances in the order of responses, and in that of requests.
    line: Line,
    came: Line,
    last_came: Option<(u64, u64)>,
}

/// Where the responses were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Where they leave.
    AtSource,
    /// Behind a path, which is a queue too: what it delays stays in order.
    BehindPath,
}

/// A queue that keeps the order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct InOrder {
    /// Mean distance of responses, nanoseconds.
    pub(crate) pace_ns: f64,
}

impl Order {
    /// Adds a response: the requests that its own met, and the responses that have passed since.
    pub(crate) fn add(&mut self, passed: &Passed, met: u32, others: u64) {
        self.is_shared |= self.connection.is_some_and(|known| known != passed.connection);
        self.connection = Some(passed.connection);
        if passed.is_delayed {
            self.last = None;
            return;
        }
        self.first_ns = if self.count == 0 { passed.ended_ns } else { self.first_ns };
        self.last_ns = passed.ended_ns;
        self.count += 1;
        self.overtaken += (others as f64 - f64::from(met)).abs();
        self.met += f64::from(met);
        self.differ((passed.ended_ns - passed.began_ns) as f64, met as usize + 1);
        let now = (passed.began_ns, passed.ended_ns);
        if let Some(before) = self.last.replace(now) {
            self.line.add(&before, &now);
        }
    }

    /// Adds a request in the order of requests.
    pub(crate) fn came(&mut self, passed: &Passed) {
        let now = (passed.began_ns, passed.ended_ns);
        let before = self.last_came.take();
        if passed.is_delayed {
            return;
        }
        self.last_came = Some(now);
        if let Some(before) = before {
            self.came.add(&before, &now);
        }
    }

    /// Whether hardly any response overtakes another.
    fn is_strict(&self) -> bool {
        self.overtaken <= STRICT * self.count as f64
    }

    /// Whether one request is worked on at a time: work that takes different times would let others pass.
    pub(crate) fn is_one_at_a_time(&self) -> bool {
        self.count >= RESPONSES_MIN && self.is_shared && self.is_strict()
    }

    /// Adds a response time, and its difference from the one that is so many responses older.
    fn differ(&mut self, time_ns: f64, apart: usize) {
        if let Some(place) = self.times.len().checked_sub(apart)
            && let Some(before_ns) = self.times.get(place)
        {
            self.differences.add((time_ns - before_ns).abs() as u64);
        }
        if self.times.len() == REMEMBERED {
            self.times.pop_front();
        }
        self.times.push_back(time_ns);
    }

    /// The queue, if there is one.
    pub(crate) fn queue(&self, seen: Seen) -> Option<InOrder> {
        let count = self.count as f64;
        let pace_ns = self.last_ns.saturating_sub(self.first_ns) as f64 / count.max(1.0);
        // Each response overtakes those that take longer than it by more than the time between their requests.
        // The median: a step of the clock is a large difference, too.
        let expected = self.differences.quartiles()?.median / 2.0 / pace_ns.max(1.0);
        let overtaken = self.overtaken / count.max(1.0);
        let is_strict = self.is_strict();
        let in_flight = self.met / count.max(1.0) + 1.0;
        let expected_min = match seen {
            Seen::AtSource if is_strict => EXPECTED_MIN.min(EXPECTED_EACH * in_flight),
            _ => EXPECTED_MIN,
        };
        let is_kept = expected >= expected_min
            && overtaken <= IN_ORDER * expected
            && self.line.correlation() <= CORRELATED;
        // A path has distances of its own, too.
        let is_apart =
            seen == Seen::AtSource && self.overtaken <= EXCHANGED * self.met && self.came.is_flat();
        let is_in_order = self.count >= RESPONSES_MIN && self.is_shared && (is_kept || is_apart);
        is_in_order.then_some(InOrder { pace_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::super::timeline::Timeline;
    use super::*;

    const MS: f64 = 1e6;

    fn exponential(random: &mut fastrand::Rng, mean: f64) -> f64 {
        -mean * (1.0 - random.f64()).ln()
    }

    /// Responses to clients that are always ready, from `workers` with exponential times, or each by itself for 0.
    fn closed(clients: u32, workers: usize, latency: impl Fn(&mut fastrand::Rng, f64) -> f64) -> Timeline {
        let mut random = fastrand::Rng::with_seed(9);
        let mut free = vec![1e9_f64; workers];
        let mut ready: Vec<(f64, u32)> = (0..clients).map(|c| (1e9 + f64::from(c) * 1e3, c)).collect();
        let mut timeline = Timeline::default();
        for _ in 0..1500 {
            ready.sort_by(|a, b| b.0.total_cmp(&a.0));
            let (began, client) = ready.pop().unwrap();
            let time = latency(&mut random, began);
            let ended = match free.iter_mut().min_by(|a, b| a.total_cmp(b)) {
                Some(free) => {
                    *free = free.max(began) + time;
                    *free
                }
                None => began + time,
            };
            let mut passed = Passed::new(began as u64, ended as u64, 0);
            passed.connection = client;
            timeline.add(passed);
            ready.push((ended + 1e5, client));
        }
        timeline.order(true);
        timeline
    }

    fn order(timeline: &Timeline) -> Option<InOrder> {
        timeline.queue().in_order(Seen::AtSource)
    }

    #[test]
    fn a_queue_of_irregular_work_keeps_the_order() {
        let work = |random: &mut fastrand::Rng, _| exponential(random, 5.0 * MS);
        let one = order(&closed(20, 1, work)).unwrap();
        assert!((one.pace_ns / (5.0 * MS) - 1.0).abs() < 0.1, "{one:?}");
        let two = order(&closed(30, 2, work)).unwrap();
        assert!((two.pace_ns / (2.5 * MS) - 1.0).abs() < 0.1, "{two:?}");
    }

    #[test]
    fn four_clients_before_one_worker_show_it_where_no_path_keeps_the_order() {
        let work = |random: &mut fastrand::Rng, _| exponential(random, 5.0 * MS);
        let four = closed(4, 1, work);
        let one = order(&four).unwrap();
        assert!((one.pace_ns / (5.0 * MS) - 1.0).abs() < 0.1, "{one:?}");
        assert_eq!(four.queue().in_order(Seen::BehindPath), None);
        // Two workers let some responses pass, as a few latencies that overlap do.
        assert_eq!(order(&closed(4, 2, work)), None);
        for latency in [5.0, 20.0] {
            let own = |random: &mut fastrand::Rng, _| latency * MS + exponential(random, 5.0 * MS);
            assert_eq!(order(&closed(4, 0, own)), None, "{latency}");
        }
    }

    #[test]
    fn latencies_of_four_clients_that_change_within_a_second_are_no_queue() {
        // They fall by a tenth of the time that passes: all responses stay in order.
        let wave = |random: &mut fastrand::Rng, at: f64| {
            (40.0 + 25.0 * (at / 2.5e8).sin()) * MS + random.f64() * MS / 10.0
        };
        assert_eq!(order(&closed(4, 0, wave)), None);
    }

    #[test]
    fn overlapping_latencies_do_not() {
        let latency = |random: &mut fastrand::Rng, _| 50.0 * MS + exponential(random, 50.0 * MS);
        assert_eq!(order(&closed(20, 0, latency)), None);
        let wide = |random: &mut fastrand::Rng, _| exponential(random, 100.0 * MS);
        assert_eq!(order(&closed(20, 0, wide)), None);
    }

    #[test]
    fn latencies_that_change_slowly_keep_the_order_and_are_no_queue() {
        let slow = |random: &mut fastrand::Rng, at: f64| {
            (100.0 + 50.0 * (at / 2e9).sin()) * MS + random.f64() * MS / 10.0
        };
        assert_eq!(order(&closed(20, 0, slow)), None);
    }

    #[test]
    fn one_connection_may_have_to_keep_the_order() {
        let mut order = Order::default();
        let mut random = fastrand::Rng::with_seed(2);
        let mut now = 1e9;
        for i in 0..500 {
            now += exponential(&mut random, 5.0 * MS);
            order.add(
                &Passed::new((now - 80.0 * MS - f64::from(i % 7) * 5.0 * MS) as u64, now as u64, 0),
                9,
                9,
            );
        }
        assert_eq!(order.queue(Seen::AtSource), None);
    }
}
