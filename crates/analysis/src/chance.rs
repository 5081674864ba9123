//! Times until events that come by chance.
//!
//! A server that holds a request until an event comes answers it whenever that is: at once, or after a long time, and whenever between.
//! Work has a least time, and work of two kinds has two of them. What waits for its turn in front of a worker can have any time, too:
//! but what takes from almost nothing to seconds, without a gap between, is no evidence of a slow server.

/// One in twenty takes as long as this, nanoseconds: a user notices it. Below it, times that differ so much are those of work of which a
/// good part waits for something else, and a slow server's.
const LONG_NS: f64 = 1e9;
/// One in twenty is so many times shorter than half of them (chance alone: 14 times), and one in four is not.
const APART: f64 = 8.0;

/// Whether times with these quantiles, ns, can be those until such events.
pub(crate) fn are_of_events(at_ns: impl Fn(f64) -> Option<f64>) -> bool {
    let [Some(early), Some(lower), Some(middle), Some(late)] = [0.05, 0.25, 0.5, 0.95].map(at_ns) else {
        return false;
    };
    late >= LONG_NS && is_far_below(early, middle) && lower * APART >= middle
}

/// Whether the shortest of some times, one in twenty, are as far below half of them as chance has them.
pub(crate) fn is_far_below(early: f64, middle: f64) -> bool {
    early * APART <= middle
}

#[cfg(test)]
mod tests {
    use super::*;

    fn are(time: impl Fn(&mut fastrand::Rng) -> f64) -> usize {
        let one = |seed: u64| {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut times: Vec<f64> = (0..200).map(|_| time(&mut random)).collect();
            times.sort_unstable_by(f64::total_cmp);
            are_of_events(|share| times.get((share * 199.0).round() as usize).copied())
        };
        (0..100).filter(|&seed| one(seed)).count()
    }

    #[test]
    fn events_by_chance_are_told_from_work() {
        let exponential = |random: &mut fastrand::Rng| -(1.0 - random.f64()).ln();
        let normal = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        assert!(are(|random| 2e9 * exponential(random)) > 90);
        // Work that is half as long at least, of two kinds, with a long tail, and that of a busy server.
        assert_eq!(are(|random| 2e9 * (0.5 + random.f64())), 0);
        assert_eq!(are(|random| if random.f64() < 0.4 { 1e6 } else { 2e9 + 1e8 * random.f64() }), 0);
        assert_eq!(are(|random| 2e9 * (0.7 * normal(random)).exp()), 0);
        assert_eq!(are(|random| 2e8 * exponential(random)), 0);
    }
}
