//! Whether requests wait for each other: the evidence from their order, and the estimate of workers and service time.
//!
//! A server with `k` workers that has more than `k` requests is *saturated* meanwhile: its responses leave at the workers'
//! own pace, whoever waits and however many. A server that only takes time (a disk far away, a sleep) answers each request a
//! latency after it came, however many there are. Four observations tell one from the other, and none uses a time that
//! was chosen beforehand:
//!
//! - **Pace.** In the first case the time between responses varies less than the response time, which is a sum of such
//!   times. In the second it is a difference of two arrivals and two latencies, and varies at least `sqrt(2)` times as much
//!   as one latency, unless latencies scatter so widely that the responses are in no order at all: then their
//!   distances are those of random points, whose quartiles differ by more than their median (`ln 3 / ln 2` for many, 1 for
//!   two). So distances that are regular and vary less than the response time are a server's pace.
//! - **Slope.** From one request to the next, the response time grows by the pace for each request more that it meets (first
//!   come, first served), or by at least half of it (processor sharing: `S / (2 - rho)`). Where latencies overlap, it does not.
//!   Differences of neighbours are used, because over a long time response times and numbers in flight grow together even
//!   without a queue (Little's law).
//! - **Order.** Responses leave in the order of requests, although they take different times ([`super::order`]).
//! - **Rate.** With more in flight, responses do not come faster. Where latencies overlap, they do, in proportion.

use super::batches::Batches;
use super::order::{InOrder, Order, Seen};
use super::sample::{Quartiles, Sample};
use super::timeline::Passed;
use crate::chance;

/// Numbers of workers that the pace is searched for.
const WORKERS: [usize; 6] = [1, 2, 3, 4, 6, 8];
/// Most of them.
const WORKERS_MAX: usize = 8;
/// Fewest distances between responses of a busy server that have quartiles.
const GAPS_MIN: u64 = 30;
/// Regular distances: their quartiles differ by at most this share of the median (random points: 1 and more).
const REGULAR: f64 = 0.4;
/// Standard errors that exclude chance for a slope: about one in ten million, because many services are judged.
const ERRORS: f64 = 5.0;
/// Share of the server's time that requests spend waiting for each other at a saturated server.
const WAITING: f64 = 0.5;

/// Distances between responses by the number that were left in flight, in half octaves.
#[derive(Clone, Copy, Debug, Default)]
struct Rate {
    count: u64,
    left: f64,
    sum: f64,
    squares: f64,
}

/// Sums over pairs of successive requests.
#[derive(Clone, Copy, Debug, Default)]
struct Pairs {
    count: u64,
    xx: f64,
    xy: f64,
    yy: f64,
}

/// Response times of requests that met a given number.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    count: u64,
    sum_ns: f64,
    squares: f64,
}

impl Met {
    fn add(&mut self, ns: f64) {
        self.count += 1;
        self.sum_ns += ns;
        self.squares += ns * ns;
    }

    /// The mean and its standard error, ns; `None` if they are too few.
    fn mean_ns(&self) -> Option<(f64, f64)> {
        let count = self.count as f64;
        let mean = self.sum_ns / count;
        (self.count >= FEW).then(|| (mean, ((self.squares / count - mean * mean).max(0.0) / count).sqrt()))
    }
}

/// The evidence.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// By the places of `WORKERS`.
    gaps: [Sample; WORKERS.len()],
    gap_sums: [Met; WORKERS.len()],
    /// Over [`WORKERS_MAX`] distances, while at least one was left in flight.
    spans: Sample,
    /// From a response to the next one of its connection, meanwhile, and the distances in them.
    rounds: Sample,
    round_distances: u64,
    /// Responses in a row that left at least so many in flight, by the places of `WORKERS`.
    runs: [u32; WORKERS.len()],
    recent_ns: [u64; WORKERS_MAX],
    recent_connections: [u32; WORKERS_MAX],
    responses: u64,
    left_before: u32,
    rates: Vec<Rate>,
    pairs: Pairs,
    before: Option<(f64, f64)>,
    /// Distances between requests of which the later one meets another.
    arrivals: Sample,
    arrival_sums: Met,
    came_ns: Option<u64>,
    met: [Met; WORKERS_MAX],
    batches: Batches,
    order: Order,
    times: Sample,
    time: Met,
}

/// A server whose requests wait for each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Saturation {
    /// Requests that it works on at once, where that is certain.
    pub(crate) workers: Option<u32>,
    /// Time between responses while requests wait, nanoseconds.
    pub(crate) pace_ns: f64,
    /// Response time of a request that meets none, nanoseconds.
    pub(crate) alone_ns: f64,
    /// Whether that is only known to be the least: neither such requests nor the number of workers show.
    pub(crate) is_least: bool,
    /// Mean response time, nanoseconds.
    pub(crate) time_ns: f64,
    /// Mean number in flight behind a response.
    pub(crate) waiting: f64,
    /// The lower quartile of the distances of responses meanwhile, nanoseconds.
    pub(crate) near_ns: f64,
}

impl Saturation {
    /// Whether the pace is that of the network's round trip: then acknowledgements let the responses leave one by one, and
    /// the server only seems to. None of them leaves sooner then.
    pub(crate) fn is_paced_by(&self, round_trip_ns: u64) -> bool {
        let is_same = |ns: f64| (ns / round_trip_ns as f64 - 1.0).abs() <= SAME;
        round_trip_ns > 0 && is_same(self.pace_ns) && is_same(self.near_ns)
    }
}

/// Two times are the same within this share.
const SAME: f64 = 0.1;
/// A server keeps up with its requests if its pace is theirs within this share.
const KEPT_UP: f64 = 0.02;
/// Requests come from a clock if their distances scatter so many times less than those of responses.
const CLOCKED: f64 = 4.0;

impl Queue {
    /// Adds a request in the order of requests, and the number in flight that it met.
    pub(crate) fn came(&mut self, passed: &Passed, met: u32) {
        let time = (passed.ended_ns - passed.began_ns) as f64;
        if let Some(before_ns) = self.came_ns.replace(passed.began_ns).filter(|_| met > 0) {
            let distance_ns = passed.began_ns.saturating_sub(before_ns);
            self.arrivals.add(distance_ns);
            self.arrival_sums.add(distance_ns as f64);
        }
        if passed.is_delayed {
            self.before = None;
            return;
        }
        if let Some((met_before, time_before)) = self.before {
            let (x, y) = (f64::from(met) - met_before, time - time_before);
            let pairs = &mut self.pairs;
            pairs.count += 1;
            pairs.xx += x * x;
            pairs.xy += x * y;
            pairs.yy += y * y;
        }
        self.before = Some((f64::from(met), time));
        self.times.add(passed.ended_ns - passed.began_ns);
        for sums in [Some(&mut self.time), self.met.get_mut(met as usize)].into_iter().flatten() {
            sums.add(time);
        }
        self.order.came(passed);
    }

    /// Adds a response in the order of responses, and the number that it left in flight.
    pub(crate) fn went(&mut self, passed: &Passed, left: u32) {
        if passed.is_delayed {
            self.runs = [0; WORKERS.len()];
        }
        let now = passed.ended_ns;
        self.batches.went(passed, left);
        for (place, workers) in WORKERS.into_iter().enumerate() {
            if self.runs[place] as usize >= workers {
                let from = self.recent_ns[(self.responses as usize + WORKERS_MAX - workers) % WORKERS_MAX];
                self.gaps[place].add(now.saturating_sub(from));
                self.gap_sums[place].add(now.saturating_sub(from) as f64);
            }
        }
        if self.runs[0] as usize >= WORKERS_MAX {
            let oldest = self.recent_ns[self.responses as usize % WORKERS_MAX];
            self.spans.add(now.saturating_sub(oldest));
            self.round(passed);
        }
        if self.runs[0] > 0 {
            let newest = self.recent_ns[(self.responses as usize + WORKERS_MAX - 1) % WORKERS_MAX];
            self.rate(self.left_before, now.saturating_sub(newest) as f64);
        }
        for (place, workers) in WORKERS.into_iter().enumerate() {
            let is_busy = left as usize >= workers && !passed.is_delayed;
            self.runs[place] = if is_busy { self.runs[place].saturating_add(1) } else { 0 };
        }
        self.left_before = left;
        self.recent_ns[self.responses as usize % WORKERS_MAX] = now;
        self.recent_connections[self.responses as usize % WORKERS_MAX] = passed.connection;
        self.responses += 1;
    }

    /// Responses so far.
    pub(crate) fn responses(&self) -> u64 {
        self.responses
    }

    /// Adds a response whose request met `met` others, and `others` responses that have passed since.
    pub(crate) fn order(&mut self, passed: &Passed, met: u32, others: u64) {
        self.order.add(passed, met, others);
    }

    /// The queue that keeps the order of requests.
    pub(crate) fn in_order(&self, seen: Seen) -> Option<InOrder> {
        self.order.queue(seen)
    }

    /// Adds the time since the connection's response before, if it is among the recent ones.
    fn round(&mut self, passed: &Passed) {
        let mut distances = 1..=WORKERS_MAX;
        let place = |distance: usize| (self.responses as usize + WORKERS_MAX - distance) % WORKERS_MAX;
        if let Some(own) = distances.find(|&of| self.recent_connections[place(of)] == passed.connection) {
            self.rounds.add(passed.ended_ns.saturating_sub(self.recent_ns[place(own)]));
            self.round_distances += own as u64;
        }
    }

    fn rate(&mut self, left: u32, gap_ns: f64) {
        let place = (2.0 * f64::from(left.max(1)).log2()).floor() as usize;
        if self.rates.len() <= place {
            self.rates.resize(place + 1, Rate::default());
        }
        let rate = &mut self.rates[place];
        rate.count += 1;
        rate.left += f64::from(left);
        rate.sum += gap_ns;
        rate.squares += gap_ns * gap_ns;
    }
}

impl Queue {
    /// Whether requests wait for each other; `None` if not, or if the evidence is not enough. `network_ns` is the part of a
    /// response time that passes outside of the server, if that is not `seen` itself.
    pub(crate) fn saturation(&self, network_ns: f64, seen: Seen) -> Option<Saturation> {
        if self.gaps[0].count() < GAPS_MIN || self.is_paced_by_requests() {
            return None;
        }
        if let Some(saturation) = self.one_after_another(network_ns) {
            return Some(saturation);
        }
        let pace = self.pace();
        let slope = if pace.is_none() { self.slope() } else { None };
        let in_order = || self.in_order(seen).map(|order| order.pace_ns);
        let pace_ns = pace.map(|(_, ns)| ns).or(slope).or_else(in_order)?;
        // Responses that leave together were ready at one event, such as a tick, and not one after the other.
        if self.gaps[0].quartiles().is_some_and(|gaps| gaps.median < TOGETHER * pace_ns) {
            return None;
        }
        let certain = pace.and_then(|(workers, _)| workers).or_else(|| self.workers(network_ns, pace_ns));
        let workers = certain.unwrap_or(1);
        let left: f64 = self.rates.iter().map(|rate| rate.left).sum();
        let responses: u64 = self.rates.iter().map(|rate| rate.count).sum();
        let waiting = left / responses as f64;
        if self.gets_faster(workers) || waiting < f64::from(workers) {
            return None;
        }
        let alone = self.met.iter().take(workers as usize).fold(Met::default(), |sum, met| Met {
            count: sum.count + met.count,
            sum_ns: sum.sum_ns + met.sum_ns,
            squares: sum.squares + met.squares,
        });
        // Where the capture begins within the run, the first requests meet others that it does not show.
        let least_ns = network_ns + pace_ns * f64::from(workers);
        let seen_ns = alone.sum_ns / alone.count as f64;
        let is_known = slope.is_some() && alone.count >= FEW;
        let is_alone = alone.count > 0 && (is_known || seen_ns < UNSEEN * least_ns);
        let alone_ns = if is_alone { seen_ns } else { least_ns };
        let time_ns = self.time.sum_ns / self.time.count.max(1) as f64;
        let is_waiting = time_ns - alone_ns >= WAITING * (time_ns - network_ns);
        // What waits takes as many paces as there are in front of it. Responses that leave together have none.
        let is_its_time = time_ns - network_ns <= PACES * pace_ns * (waiting + f64::from(workers));
        let near_ns = self.gaps[0].quartiles().map_or(pace_ns, |one| one.lower);
        let (workers, is_least) = (certain, !is_alone && certain.is_none());
        (is_waiting && is_its_time).then_some(Saturation {
            workers,
            pace_ns,
            alone_ns,
            is_least,
            time_ns,
            waiting,
            near_ns,
        })
    }

    /// Whether a clock sends the requests, so that the distances of the responses are the clock's and not the server's: requests are as
    /// many as the responses, and much more regular. Clients that wait for a response send as irregularly as the responses come.
    pub(crate) fn is_paced_by_requests(&self) -> bool {
        let quartiles = self.arrivals.quartiles().zip(self.gaps[0].quartiles());
        let means = self.arrival_sums.mean_ns().zip(self.gap_sums[0].mean_ns());
        let (Some((came, went)), Some(((came_ns, _), (went_ns, _)))) = (quartiles, means) else {
            return false;
        };
        // A server that does not keep up has a pace of its own.
        let is_same = (came_ns / went_ns - 1.0).abs() <= KEPT_UP;
        is_same && came.spread() > 0.0 && came.spread() * CLOCKED <= went.spread()
    }

    /// The number of workers where the order of responses or the time of requests that meet no other shows it: the pace is
    /// that of all together.
    fn workers(&self, network_ns: f64, pace_ns: f64) -> Option<u32> {
        if self.order.is_one_at_a_time() {
            return Some(1);
        }
        let (alone_ns, error_ns) = self.met.first()?.mean_ns().or_else(|| self.few_alone_ns())?;
        let workers = (alone_ns - network_ns) / pace_ns;
        let is_certain = (workers - workers.round()).abs() + 2.0 * error_ns / pace_ns <= 0.5;
        (is_certain && workers >= 0.5).then_some(workers.round().min(1e6) as u32)
    }

    /// The mean time of few requests that meet no other, and its error: work of one length shows in the distances of responses, too.
    fn few_alone_ns(&self) -> Option<(f64, f64)> {
        let met = self.met.first().filter(|met| met.count > 0)?;
        let spread_ns = self.gaps[0].quartiles()?.spread();
        Some((met.sum_ns / met.count as f64, spread_ns))
    }

    /// One worker whose responses leave in batches: each takes as long as its size says, and a request that meets none takes no
    /// longer than one of them, or responses come when the batch before them has ended. Where latencies overlap, a request
    /// that meets none takes as long as all the others, and none waits for another.
    fn one_after_another(&self, network_ns: f64) -> Option<Saturation> {
        let pace_ns = self.batches.pace_ns()?;
        let least_ns = network_ns + pace_ns;
        let alone = self.met.first().filter(|met| met.count > 0).map(|met| met.sum_ns / met.count as f64);
        // A request that meets none may still be worked on together with those that come a moment later.
        let seen_ns = alone.filter(|&alone_ns| alone_ns <= network_ns + UNSEEN * pace_ns);
        let is_short = seen_ns.is_some() || self.batches.waits_for_each_other();
        let alone_ns = seen_ns.unwrap_or(least_ns);
        let time_ns = self.time.sum_ns / self.time.count.max(1) as f64;
        let is_waiting = time_ns - alone_ns >= WAITING * (time_ns - network_ns);
        let waiting = (time_ns - network_ns) / pace_ns;
        let (workers, near_ns, is_least) = (Some(1), pace_ns, false);
        (is_short && is_waiting).then_some(Saturation {
            workers,
            pace_ns,
            alone_ns,
            is_least,
            time_ns,
            waiting,
            near_ns,
        })
    }

    /// The fewest workers whose pace is regular, and less varied than the response time, and that pace. Sums of several distances
    /// are more regular than one by chance, too; then the number is not certain.
    fn pace(&self) -> Option<(Option<u32>, f64)> {
        let times = self.times.quartiles()?;
        let one = self.gaps[0].quartiles()?;
        WORKERS.iter().zip(self.gaps.iter().zip(&self.gap_sums)).find_map(|(&workers, (gaps, sums))| {
            let own = gaps.quartiles().filter(|_| gaps.count() >= GAPS_MIN)?;
            let chance = (workers as f64).sqrt();
            // A sum of `workers` random distances is more regular than one.
            let is_regular = own.spread() <= REGULAR * own.median / chance;
            // The same response comes round after as many as are in flight: that is its own latency, and no pace.
            let is_short = own.median * WORKERS_APART <= times.median;
            let limit = if gaps.count() >= MANY_GAPS { AS_VARIED } else { AS_VARIED_FEW };
            let is_pace = own.spread() < limit * times.spread()
                || workers == 1 && self.is_spaced_unfairly(own, times.median);
            let is_found = own.median > 0.0 && is_regular && is_pace && (workers == 1 || is_short);
            let is_certain = workers == 1 || own.spread() <= STEADIER * chance * one.spread();
            // The mean: a few that take much longer are work, too.
            let mean_ns = sums.sum_ns / sums.count.max(1) as f64 / workers as f64;
            is_found.then_some((is_certain.then_some(workers as u32), mean_ns))
        })
    }

    /// Whether responses are spaced by one lock that wakes the last one first: some requests wait for very long, the others take two
    /// distances, and those are all alike, however many are in flight.
    fn is_spaced_unfairly(&self, one: Quartiles, median_ns: f64) -> bool {
        let early_ns = self.gaps[0].quantiles()(0.05).unwrap_or(0.0);
        let mean_ns = self.time.sum_ns / self.time.count.max(1) as f64;
        self.gaps[0].count() >= MANY_GAPS
            && early_ns >= SPACED * one.median
            && one.spread() <= STEADY * one.median
            && mean_ns >= UNFAIR * median_ns
    }

    /// The pace if the response time grows by it for each request that is met.
    fn slope(&self) -> Option<f64> {
        let Pairs { count, xx, xy, yy } = self.pairs;
        if count < GAPS_MIN || xx <= 0.0 {
            return None;
        }
        let slope = xy / xx;
        let error = ERRORS * ((yy - slope * xy).max(0.0) / (count - 1) as f64 / xx).sqrt();
        let sums = self.rates.iter().fold((0, 0.0), |sum, rate| (sum.0 + rate.count, sum.1 + rate.sum));
        let pace_ns = sums.1 / sums.0.max(1) as f64;
        let is_pace = slope - error > 0.0 && slope + error >= pace_ns / 2.0 && slope - error <= pace_ns;
        is_pace.then_some(pace_ns)
    }

    /// Whether the pace is that of work, which is done from one piece to the next, and not of a clock: over eight distances the
    /// spread of work grows by `sqrt(8)`, that of a clock's ticks does not grow.
    pub(crate) fn is_own_pace(&self) -> bool {
        // One piece waits at least: so many as there are distances need not, and few connections never have them.
        let Some(one) = self.gaps[0].quartiles().filter(|one| one.spread() > 0.0) else { return false };
        let grows = |sums: &Sample, distances: f64| {
            let spread = sums.quartiles().map_or(0.0, |own| own.spread());
            spread >= GROWN * distances.sqrt() * one.spread()
        };
        let rounds = self.rounds.count();
        // Connections on a schedule each come after the same time, however differently they are apart.
        let is_schedule =
            rounds >= GAPS_MIN && !grows(&self.rounds, self.round_distances as f64 / rounds as f64);
        self.spans.count() >= GAPS_MIN && grows(&self.spans, WORKERS_MAX as f64) && !is_schedule
    }

    /// Whether the responses leave when events come by chance, rather than when work is done: those who wait for events may get them in
    /// the order of their requests, too.
    pub(crate) fn has_pace_of_events(&self) -> bool {
        self.gaps[0].count() >= GAPS_MIN && chance::are_of_events(self.gaps[0].quantiles())
    }

    /// Whether the distances scatter as those of events by chance do, from almost nothing on: what comes so leaves at a rate that
    /// something else gives, and not when a piece of work is done, which takes its least time.
    pub(crate) fn comes_by_chance(&self) -> bool {
        let at_ns = self.gaps[0].quantiles();
        at_ns(0.05).zip(at_ns(0.5)).is_some_and(|(early, middle)| chance::is_far_below(early, middle))
    }

    /// Whether requests are answered in their order, when such events come.
    pub(crate) fn hands_out_events(&self) -> bool {
        self.has_pace_of_events() && self.order.is_one_at_a_time()
    }

    /// Whether one that meets none takes about the pace. Connections that are used in turn, at the rate of something else, are
    /// idle for a whole turn whatever the others do; what waits for one worker is not.
    pub(crate) fn is_pace_of_one(&self, saturation: &Saturation) -> bool {
        let alone = self.met.first().filter(|met| met.count > 0);
        saturation.waiting >= WAIT_FOR_ONE
            && alone.is_some_and(|met| met.sum_ns <= ALONE * met.count as f64 * saturation.pace_ns)
    }

    /// Whether responses come faster the more are in flight: the slope of logarithms is 0 for a saturated server and -1 where
    /// latencies overlap. It must be excluded that it is nearer to the latter.
    fn gets_faster(&self, workers: u32) -> bool {
        let busy = self.rates.iter().filter(|rate| rate.count >= GAPS_MIN && rate.sum > 0.0);
        let points: Vec<(f64, f64, f64)> = busy
            .map(|rate| {
                let count = rate.count as f64;
                let (left, mean) = (rate.left / count, rate.sum / count);
                let variance = (rate.squares / count - mean * mean).max(0.0) / (mean * mean);
                (left, mean.ln(), count / variance.max(1e-4))
            })
            .filter(|(left, _, _)| *left >= f64::from(workers))
            .map(|(left, mean, weight)| (left.ln(), mean, weight))
            .collect();
        let weight: f64 = points.iter().map(|(_, _, w)| w).sum();
        let mean = |of: fn(&(f64, f64, f64)) -> f64| {
            points.iter().map(|point| of(point) * point.2).sum::<f64>() / weight
        };
        let (x, y) = (mean(|point| point.0), mean(|point| point.1));
        let xx: f64 = points.iter().map(|point| point.2 * (point.0 - x).powi(2)).sum();
        let xy: f64 = points.iter().map(|point| point.2 * (point.0 - x) * (point.1 - y)).sum();
        let is_wide = points.iter().any(|point| point.0 >= points[0].0 + OCTAVE);
        is_wide && xx > 0.0 && xy / xx + 3.0 / xx.sqrt() < -0.5
    }
}

/// Several workers at a regular pace let the spread of as many distances be this part of what chance leaves, at most.
const STEADIER: f64 = 0.5;
/// The logarithm of a range of numbers in flight in which it shows whether responses come faster.
const OCTAVE: f64 = std::f64::consts::LN_2;
/// Half of the responses leave together if their distances are below this part of the mean one; with work of very different lengths, one
/// after the other, half of them are at least a tenth of it.
const TOGETHER: f64 = 0.05;
/// One that meets none takes at most so many times the pace if that is its worker's. Connections used in turn take as many times as
/// there are, so that they must be several.
const ALONE: f64 = 1.5;
const WAIT_FOR_ONE: f64 = 2.5;
/// Where responses leave as soon as the one before has, their distances vary no more than the response times, which are sums of them, and
/// where latencies overlap `sqrt(2)` times as much at least. Half-way, and where they are few, what their quartiles may be off.
const AS_VARIED: f64 = 1.15;
const AS_VARIED_FEW: f64 = std::f64::consts::FRAC_1_SQRT_2;
const MANY_GAPS: u64 = 100;
/// Responses that are never closer than this part of the usual distance are spaced by something that all need, if that hardly varies.
/// Few latencies that overlap, and are by chance as far apart, do not stay so.
const SPACED: f64 = 0.8;
const STEADY: f64 = 0.15;
/// Those who wake up last are served first: then the mean time is so many times the median.
const UNFAIR: f64 = 3.0;
/// A request waits at most so many times the pace of those in front of it.
const PACES: f64 = 3.0;
/// This part of the square root of the number of distances is growth of their spread.
const GROWN: f64 = 0.7;
/// Fewest requests that meet none whose mean time is known.
const FEW: u64 = 5;
/// A request that meets none takes less than this many times the pace of all workers: otherwise it met some that were not seen.
const UNSEEN: f64 = 2.0;
/// A response time is at least as many paces of all workers as this, if the pace is one.
const WORKERS_APART: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::super::timeline::Timeline;
    use super::*;

    const MS: u64 = 1_000_000;

    /// When connections get their first responses: nearly evenly within 40 ms.
    const STARTS: [u64; 5] = [0, 7, 16, 25, 31];

    /// What a client does between its responses, on this many connections: each request leaves when `next` says, from the time
    /// at which the thread is free and that of the response.
    fn thoughts(connections: u64, next: impl Fn(&mut fastrand::Rng, u64, u64) -> u64) -> Timeline {
        let mut random = fastrand::Rng::with_seed(5);
        let mut ready: Vec<(u64, u64)> =
            (0..connections).map(|c| (1000 * MS + STARTS[c as usize] * MS, c)).collect();
        let (mut free, mut timeline) = (0, Timeline::default());
        for _ in 0..400 {
            ready.sort_unstable_by(|a, b| b.cmp(a));
            let (response, connection) = ready.pop().unwrap();
            let sent = next(&mut random, free, response);
            free = sent;
            let mut passed = Passed::new(response, sent, 0);
            passed.connection = connection as u32;
            timeline.add(passed);
            ready.push((sent + MS / 2, connection));
        }
        timeline.order(true);
        timeline
    }

    #[test]
    fn a_thread_with_four_connections_has_a_pace_of_its_own() {
        let work = |random: &mut fastrand::Rng, free: u64, response: u64| {
            free.max(response) + 9 * MS + random.u64(..MS) + random.u64(..MS)
        };
        let busy = thoughts(4, work);
        let saturation = busy.queue().saturation(0.0, Seen::BehindPath).unwrap();
        assert!(
            (saturation.pace_ns / 1e7 - 1.0).abs() < 0.05 && saturation.workers == Some(1),
            "{saturation:?}"
        );
        assert!(busy.queue().is_own_pace() && busy.queue().is_pace_of_one(&saturation));
    }

    #[test]
    fn connections_used_in_turn_at_a_rate_are_no_thread() {
        let rate = |random: &mut fastrand::Rng, free: u64, response: u64| {
            let gap_ns = 9 * MS + random.u64(..MS) + random.u64(..MS);
            if free == 0 { response + 50 * MS } else { (free + gap_ns).max(response) }
        };
        let pool = thoughts(5, rate);
        let saturation = pool.queue().saturation(0.0, Seen::BehindPath).unwrap();
        assert!(!pool.queue().is_pace_of_one(&saturation), "{saturation:?}");
    }

    #[test]
    fn connections_used_in_turn_when_users_come_are_no_thread() {
        // The connection that is idle for longest carries the next request, whenever that comes.
        let users = |random: &mut fastrand::Rng, free: u64, response: u64| {
            let gap_ns = -(1.0 - random.f64()).ln() * 10e6;
            (free.max(1000 * MS) + gap_ns as u64).max(response)
        };
        let pool = thoughts(4, users);
        assert!(pool.queue().comes_by_chance());
        // Work takes its least time, even where its length varies by a factor of ten.
        let work = |random: &mut fastrand::Rng, free: u64, response: u64| {
            free.max(response) + ((random.f64() * 10f64.ln()).exp() * 2e6) as u64
        };
        assert!(!thoughts(4, work).queue().comes_by_chance());
    }

    /// Requests at even distances, each answered by `ends` with the time of the response before.
    fn at_even_distances(ends: impl Fn(&mut fastrand::Rng, u64, u64) -> u64) -> Timeline {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut timeline, mut free) = (Timeline::default(), 0);
        for n in 0..400 {
            let came = n * 5 * MS + random.u64(..MS / 20);
            free = ends(&mut random, came, free);
            timeline.add(Passed::new(came, free, 0));
        }
        timeline.order(true);
        timeline
    }

    #[test]
    fn requests_from_a_clock_give_no_server_their_pace() {
        // Each takes 20 or 22 ms, wherever the others are, in the order of requests.
        let far = |random: &mut fastrand::Rng, came: u64, free: u64| {
            (came + 20 * MS + random.u64(..2) * 2 * MS + random.u64(..MS / 4)).max(free + 1)
        };
        assert_eq!(at_even_distances(far).queue().saturation(0.0, Seen::AtSource), None);
        // Work of 5.2 ms does not keep up with the clock.
        let slow = |random: &mut fastrand::Rng, came: u64, free: u64| {
            free.max(came) + 4 * MS + random.u64(..24 * MS / 10)
        };
        let saturation = at_even_distances(slow).queue().saturation(0.0, Seen::BehindPath).unwrap();
        assert!(
            (saturation.pace_ns / 5.2e6 - 1.0).abs() < 0.05 && saturation.workers == Some(1),
            "{saturation:?}"
        );
    }

    #[test]
    fn connections_on_a_schedule_or_after_a_sleep_have_none() {
        // Each in its turn at a tick of 10 ms, and each 40 ms after its response.
        let tick = |random: &mut fastrand::Rng, free: u64, response: u64| {
            free.max(response) / (10 * MS) * (10 * MS) + 10 * MS + random.u64(..MS)
        };
        let sleep = |random: &mut fastrand::Rng, _, response: u64| response + 39 * MS + random.u64(..MS);
        for connections in 2..=5 {
            assert!(!thoughts(connections, tick).queue().is_own_pace(), "{connections}");
            assert!(!thoughts(connections, sleep).queue().is_own_pace(), "{connections}");
        }
    }
}
