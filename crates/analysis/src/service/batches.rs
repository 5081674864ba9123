//! Responses that leave together: an event loop that works on all requests it has, one after another, and sends its responses at
//! the end.
//!
//! No distance within a batch says anything. But while requests wait, the time from one batch to the next is that of the work
//! on it: it is in proportion to the batch's size. A timer's ticks are as far apart whatever the size, and so are the batches
//! of clients that a latency keeps in step.
//!
//! Where clients' number is constant, a latency can keep two groups of them at distances that happen to be in proportion to
//! their sizes. Then each response comes its latency after its request; behind a batch that it has waited for, it comes when
//! that one has ended, however long that took: its time grows by what it waits.

use super::sample::Sample;
use super::timeline::Passed;

/// Responses leave together if they are closer than this part of their response time.
const TOGETHER: u64 = 32;
/// Sizes of batches that are told apart, in octaves: of 1, of 2 and 3, of 4 to 7, ...
const SIZES: usize = 16;
/// Fewest batches of a size, and of all.
const BATCHES_MIN: u64 = 10;
const ALL_MIN: u64 = 30;
/// Largest deviation of the time for each response between sizes, as a share.
const DEVIATION: f64 = 0.25;
/// Sizes differ at least so much, and batches are so large on average: otherwise responses leave one by one.
const SIZES_APART: f64 = 2.0;

/// And of those that wait for each other: each batch has some work of its own.
const DEVIATION_WAITING: f64 = 0.5;
/// The distance from the batch before varies by this part of what the response time varies, if that batch is waited for.
const STEADIER: f64 = 0.5;

/// The batches of one size.
#[derive(Clone, Debug, Default)]
struct Sum {
    batches: u64,
    responses: u64,
    gaps_ns: u64,
    /// The distances from the batch before, and the times of the batches' first requests.
    gaps: Sample,
    times: Sample,
}

/// The batches of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batches {
    sums: [Sum; SIZES],
    /// The current batch: its size, the time since the one before, if all of its requests waited meanwhile.
    size: u64,
    gap_ns: Option<u64>,
    /// The time of its first request, ns.
    first_ns: u64,
    /// The end of the batch before, if it left requests waiting, and the last response.
    before_ns: Option<u64>,
    last: Option<(u64, u32)>,
}

impl Batches {
    /// Adds a response in the order of responses, and the number that it left in flight.
    pub(crate) fn went(&mut self, passed: &Passed, left: u32) {
        let now_ns = passed.ended_ns;
        let together_ns = (now_ns - passed.began_ns) / TOGETHER;
        let is_same = self.last.is_some_and(|(last_ns, _)| now_ns - last_ns.min(now_ns) <= together_ns);
        if !is_same {
            self.close();
            // A batch behind one that left none waiting began with its first request.
            self.before_ns = self.last.filter(|(_, left)| *left > 0).map(|(ns, _)| ns);
            self.size = 0;
            self.gap_ns = self.before_ns.map(|before_ns| now_ns - before_ns.min(now_ns));
            self.first_ns = now_ns - passed.began_ns;
        }
        let has_waited = self.before_ns.is_some_and(|before_ns| passed.began_ns <= before_ns);
        if !has_waited || passed.is_delayed {
            self.gap_ns = None;
        }
        self.size += 1;
        self.last = Some((now_ns, left));
    }

    fn close(&mut self) {
        let Some((gap_ns, place)) = self.gap_ns.zip(self.size.checked_ilog2()) else { return };
        let sum = &mut self.sums[(place as usize).min(SIZES - 1)];
        sum.batches += 1;
        sum.responses += self.size;
        sum.gaps_ns = sum.gaps_ns.saturating_add(gap_ns);
        sum.gaps.add(gap_ns);
        sum.times.add(self.first_ns);
    }

    /// Whether responses come when the batch before them has ended, for batches of some size: then the distance from that batch
    /// is steadier than the response time. Where latencies overlap, it varies more.
    pub(crate) fn waits_for_each_other(&self) -> bool {
        let known = self.sums.iter().filter(|sum| sum.batches >= ALL_MIN);
        let mut spreads = known.filter_map(|sum| sum.gaps.quartiles().zip(sum.times.quartiles()));
        spreads.any(|(gaps, times)| gaps.spread() < STEADIER * times.spread())
    }

    /// The time for each response, ns, if batches take a time in proportion to their size.
    pub(crate) fn pace_ns(&self) -> Option<f64> {
        let known = self.sums.iter().filter(|sum| sum.batches >= BATCHES_MIN);
        let points: Vec<(f64, f64)> = known
            .map(|sum| {
                let (batches, responses) = (sum.batches as f64, sum.responses as f64);
                (responses / batches, sum.gaps_ns as f64 / responses)
            })
            .collect();
        let (first, last) = (points.first()?, points.last()?);
        let all = |of: fn(&Sum) -> u64| self.sums.iter().map(of).fold(0, u64::saturating_add);
        let (batches, responses) = (all(|sum| sum.batches), all(|sum| sum.responses));
        let pace_ns = all(|sum| sum.gaps_ns) as f64 / responses.max(1) as f64;
        let deviation = if self.waits_for_each_other() { DEVIATION_WAITING } else { DEVIATION };
        let is_even = points.iter().all(|(_, each)| (each - pace_ns).abs() <= deviation * pace_ns);
        let is_batched = responses as f64 >= SIZES_APART * batches as f64;
        let is_known = batches >= ALL_MIN && last.0 >= SIZES_APART * first.0;
        (is_known && is_batched && is_even && pace_ns > 0.0).then_some(pace_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Batches of these sizes in turn, each `after(size)` behind the one before; its requests came before that.
    fn batches(sizes: &[u64], after: impl Fn(u64) -> u64) -> Option<f64> {
        let mut all = Batches::default();
        let (mut before, mut now) = (1000 * MS, 1100 * MS);
        for _ in 0..40 {
            for &size in sizes {
                for i in 0..size {
                    all.went(&Passed::new(before - MS, now + i * 1000, 0), 5);
                }
                before = now + size * 1000;
                now = before + after(size);
            }
        }
        all.pace_ns()
    }

    #[test]
    fn batches_that_take_a_time_in_proportion_to_their_size_show_the_pace() {
        // The distance is that of the size that follows: of two sizes in turn, the other one's.
        let sizes = [1, 9];
        let pace = batches(&sizes, |size| (10 - size) * 2 * MS).unwrap();
        assert!((pace / 2e6 - 1.0).abs() < 0.05, "{pace}");
    }

    /// A cycle of clients in two groups, whose times vary from turn to turn: `waits` for the other group, or does not.
    fn groups(waits: bool) -> Batches {
        let mut random = fastrand::Rng::with_seed(3);
        let mut all = Batches::default();
        let mut now = 1000 * MS;
        let mut began = [now - 9 * MS, now - MS];
        for turn in 0..80 {
            let (own, size) = if turn % 2 == 0 { (0, 1) } else { (1, 9) };
            let work = size * 2 * MS + random.u64(..size * MS / 10);
            // One latency of about 20 ms keeps the groups at a distance of about 2 ms.
            let latency = 20 * MS + random.u64(..MS / 10);
            let end = if waits { now + work } else { (began[own] + latency).max(now + 1) };
            for i in 0..size {
                all.went(&Passed::new(began[own], end + i * 1000, 0), 5);
            }
            now = end + size * 1000;
            began[own] = now + if waits { random.u64(..MS / 2) } else { 0 };
        }
        all
    }

    #[test]
    fn a_batch_that_waits_for_the_one_before_ends_a_steady_time_after_it() {
        let waiting = groups(true);
        assert!(waiting.waits_for_each_other() && waiting.pace_ns().is_some());
        assert!(!groups(false).waits_for_each_other());
    }

    #[test]
    fn ticks_and_batches_of_one_size_show_none() {
        assert_eq!(batches(&[1, 9], |_| 10 * MS), None);
        assert_eq!(batches(&[9, 9], |_| 18 * MS), None);
        assert_eq!(batches(&[1, 1], |_| 2 * MS), None);
    }

    #[test]
    fn a_batch_whose_requests_came_later_does_not_count() {
        let mut all = Batches::default();
        for i in 0..100 {
            let size = 1 + i % 2 * 8;
            let now = 1000 * MS + i * 20 * MS;
            for k in 0..size {
                all.went(&Passed::new(now - 10 * MS - (1 - i % 2) * 8 * MS, now + k * 1000, 0), 5);
            }
        }
        assert_eq!(all.pace_ns(), None);
    }
}
