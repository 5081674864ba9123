//! Responses that leave at the ticks of a timer.
//!
//! A server that looks for work at intervals, or sends from a timer, answers a request when its next tick comes. Then the response
//! times are even between a least time and one interval more, and the distances between responses are multiples of the
//! interval, while those between requests are not. Distances are compared, not times: timers drift against the capture's clock, and
//! a server that waits for an interval after each tick has longer ones.

use std::collections::HashMap;
use std::f64::consts::TAU;

/// Operations that are examined, the first of a server.
const KEPT: usize = 1024;
/// Fewest distances.
const DISTANCES_MIN: usize = 40;
/// Shortest interval, ns: below it, waits for a tick are those of a scheduler.
const INTERVAL_MIN_NS: f64 = 1e6;
/// Distances of more intervals than this are left out: the interval is not known well enough for them.
const INTERVALS_MAX: f64 = 32.0;
/// Intervals are tried at this distance from each other, as a share.
const STEP: f64 = 0.002;
/// Rayleigh's statistic `n C^2` that chance exceeds once in a thousand million times (`e^-20`), for some hundred intervals.
const RAYLEIGH: f64 = 20.0;
/// Least mean cosine `C` of the phases: a deviation of an eighth of an interval.
const COHERENT: f64 = 0.7;

/// Fewest operations of a connection that count: those of a connection's set-up, of which each has a kind and a time of its own,
/// are no sample of one distribution.
const OPERATIONS_MIN: usize = 5;
/// A request that follows a response within this part of the longest time is its consequence.
const SOON_PART: u64 = 16;
/// Largest distance between the distribution of the response times and an even one: what a sample exceeds once in a million
/// times (Kolmogorov and Smirnov: `sqrt(ln(2 / p) / 2 n)`), and what service times that are not constant add.
const UNEVEN: f64 = 2.7;
const UNEVEN_MORE: f64 = 0.1;

/// The requests and responses of an operation at a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ticks {
    times: Vec<(u64, u64, u32)>,
}

/// A timer's interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timer {
    /// The interval, ns.
    pub(crate) interval_ns: f64,
    /// The response time without a wait for the tick, ns.
    pub(crate) alone_ns: f64,
    /// The least response time, ns.
    pub(crate) fastest_ns: f64,
    /// Mean response time, ns.
    pub(crate) time_ns: f64,
}

impl Ticks {
    /// Adds an operation of a connection in the order of responses.
    #[inline]
    pub(crate) fn add(&mut self, began_ns: u64, ended_ns: u64, connection: u32) {
        if self.times.len() < KEPT {
            self.times.push((began_ns, ended_ns, connection));
        }
    }

    /// The timer at whose ticks the responses leave.
    pub(crate) fn timer(&self) -> Option<Timer> {
        let times = self.independent();
        let mut took: Vec<f64> = times.iter().map(|(began, ended)| (ended - began) as f64).collect();
        took.sort_unstable_by(f64::total_cmp);
        let at =
            |share: f64| took.get((took.len().saturating_sub(1) as f64 * share).round() as usize).copied();
        // A tenth and nine tenths of an even distribution are four fifths of its length apart.
        let guess_ns = (at(0.9)? - at(0.1)?) / 0.8;
        let alone_ns = at(0.02)?;
        // Hardly any is beyond. A client that pauses for some part of an interval makes them uneven.
        let beyond = took.iter().filter(|&&ns| ns > alone_ns + 1.3 * guess_ns).count();
        let is_even = beyond * 20 <= took.len() && unevenness(&took, alone_ns, guess_ns) <= 0.0;
        if took.len() <= DISTANCES_MIN || guess_ns < INTERVAL_MIN_NS || !is_even {
            return None;
        }
        let mut requests: Vec<u64> = times.iter().map(|(began, _)| *began).collect();
        requests.sort_unstable();
        let responses: Vec<u64> = times.iter().map(|(_, ended)| *ended).collect();
        let steps = (2.0_f64.ln() / STEP) as i32;
        let tried = (-steps / 2..=steps / 2).map(|step| guess_ns * (f64::from(step) * STEP).exp());
        let best = tried.map(|interval| (interval, coherence(&responses, interval)));
        let (interval_ns, (length, count)) = best.max_by(|a, b| a.1.0.total_cmp(&b.1.0))?;
        let (of_requests, _) = coherence(&requests, interval_ns);
        let is_chance = count < DISTANCES_MIN || length * length * (count as f64) < RAYLEIGH;
        if is_chance || length < COHERENT || of_requests > length / 2.0 {
            return None;
        }
        let time_ns = took.iter().sum::<f64>() / took.len() as f64;
        let interval_ns = refined(&responses, interval_ns);
        let fastest_ns = took.first().copied().unwrap_or(alone_ns);
        Some(Timer { interval_ns, alone_ns, fastest_ns, time_ns })
    }
}

impl Ticks {
    /// The requests and responses of connections that have several, without the requests that followed a response at once: they
    /// came because of a tick, and wait for a whole interval.
    fn independent(&self) -> Vec<(u64, u64)> {
        let mut counts: HashMap<u32, usize> = HashMap::new();
        for (_, _, connection) in &self.times {
            *counts.entry(*connection).or_default() += 1;
        }
        let longest = self.times.iter().map(|(began, ended, _)| ended - began).max().unwrap_or(0);
        let mut before: HashMap<u32, u64> = HashMap::new();
        let mut all = Vec::new();
        for &(began, ended, connection) in &self.times {
            let previous = before.insert(connection, ended).unwrap_or(0);
            let is_independent = began >= previous.saturating_add(longest / SOON_PART);
            if is_independent && counts[&connection] >= OPERATIONS_MIN {
                all.push((began, ended));
            }
        }
        all
    }

    /// Operations that are examined.
    pub(crate) fn count(&self) -> usize {
        self.times.len()
    }
}

/// By how much the distance between the distribution of sorted times and an even one between two limits exceeds that of a
/// sample.
fn unevenness(sorted: &[f64], least: f64, length: f64) -> f64 {
    let count = sorted.len() as f64;
    let distance = |(place, ns): (usize, &f64)| {
        let expected = ((ns - least) / length).clamp(0.0, 1.0);
        (expected - place as f64 / count).abs().max((expected - (place + 1) as f64 / count).abs())
    };
    let largest = sorted.iter().enumerate().map(distance).fold(0.0, f64::max);
    largest - UNEVEN / count.sqrt() - UNEVEN_MORE
}

/// An interval that is known well enough to count how many of it the distances are, from their sum. Those of the same tick count: each
/// ends that much nearer to the next one.
fn refined(times: &[u64], interval_ns: f64) -> f64 {
    let distances = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let known = distances.filter(|ns| *ns < INTERVALS_MAX * interval_ns);
    let (sum, count) =
        known.fold((0.0, 0.0), |(sum, count), ns| (sum + ns, count + (ns / interval_ns).round()));
    if count > 0.0 { sum / count } else { interval_ns }
}

/// How near the distances are to multiples of an interval: the mean cosine of their phases, 0 if they are as near to the middle
/// between two; and their number. Those of the same tick are left out.
fn coherence(times: &[u64], interval_ns: f64) -> (f64, usize) {
    let distances = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / interval_ns);
    let phases: Vec<f64> = distances
        .filter(|intervals| (0.5..INTERVALS_MAX).contains(intervals))
        .map(|intervals| (intervals * TAU).cos())
        .collect();
    (phases.iter().sum::<f64>().max(0.0) / phases.len().max(1) as f64, phases.len())
}
