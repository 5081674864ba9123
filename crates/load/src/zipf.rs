//! Zipf's distribution over a range of any size, in constant time and memory.

use fastrand::Rng;

/// Draws ranks 1 to `count` with probability proportional to 1 / rank^exponent, by rejection-inversion (W. Hoermann and
/// G. Derflinger, "Rejection-inversion to generate variates from monotone discrete distributions", 1996). Tables of
/// cumulative frequencies would take gigabytes for a disk's blocks; `rand_distr` needs `rand`'s generators.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    /// The integral of the density at the left end of the first rank, and at the right end of the last.
    first: f64,
    last: f64,
    /// Distance below which a rounded draw is accepted without its density.
    squeeze: f64,
}

impl Zipf {
    /// Creates the distribution; `None` unless there is at least one rank and the exponent is above 0 and at most 10.
    #[must_use]
    pub fn new(count: u64, exponent: f64) -> Option<Self> {
        if count == 0 || !(exponent > 0.0 && exponent <= 10.0) {
            return None;
        }
        let mut zipf = Self { count: count as f64, exponent, first: 0.0, last: 0.0, squeeze: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(zipf.count + 0.5);
        zipf.squeeze = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        Some(zipf)
    }

    /// Draws a rank, 1 to `count`.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let area = self.last + rng.f64() * (self.first - self.last);
            let exact = self.inverse(area);
            let rank = exact.round().clamp(1.0, self.count);
            if rank - exact <= self.squeeze || area >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density from 1 to `x`.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        growth((1.0 - self.exponent) * log) * log
    }

    /// The inverse of [`Self::integral`].
    fn inverse(&self, area: f64) -> f64 {
        // Rounding may exceed the pole of exponents above 1.
        let scaled = (area * (1.0 - self.exponent)).max(-1.0);
        (logarithm(scaled) * area).exp()
    }
}

/// (e^x - 1) / x, exact near zero.
fn growth(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, exact near zero.
fn logarithm(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frequencies against 1 / rank^exponent over the sum of all: within five standard deviations each, and chi-squared
    /// over all ranks.
    #[test]
    fn frequencies_are_the_analytic_ones() {
        const DRAWS: usize = 400_000;
        for (count, exponent) in [(50, 0.5), (50, 1.0), (50, 1.1), (200, 1.2), (30, 2.5), (2, 1.1), (1, 1.0)]
        {
            let zipf = Zipf::new(count, exponent).unwrap();
            let mut rng = Rng::with_seed(11);
            let mut seen = vec![0_u64; count as usize];
            (0..DRAWS).for_each(|_| seen[zipf.draw(&mut rng) as usize - 1] += 1);
            let weight = |rank: usize| ((rank + 1) as f64).powf(-exponent);
            let sum: f64 = (0..count as usize).map(weight).sum();
            let mut squared = 0.0;
            for (rank, &seen) in seen.iter().enumerate() {
                let share = weight(rank) / sum;
                let expected = share * DRAWS as f64;
                let deviation = (expected * (1.0 - share)).sqrt().max(1e-9);
                let off = (seen as f64 - expected).abs();
                assert!(off < 5.0 * deviation + 1e-6, "exponent {exponent}, rank {rank}: {seen}, {expected}");
                squared += off * off / expected;
            }
            let freedom = count as f64 - 1.0;
            assert!(squared <= freedom + 5.0 * (2.0 * freedom).sqrt() + 1e-6, "{exponent}: {squared}");
        }
    }

    #[test]
    fn huge_ranges_stay_in_range_and_impossible_ones_are_refused() {
        let count = 1 << 40;
        let zipf = Zipf::new(count, 1.1).unwrap();
        let mut rng = Rng::with_seed(2);
        let drawn: Vec<u64> = (0..20_000).map(|_| zipf.draw(&mut rng)).collect();
        assert!(drawn.iter().all(|rank| (1..=count).contains(rank)));
        assert!(
            drawn.iter().any(|&rank| rank > 1 << 20)
                && drawn.iter().filter(|&&rank| rank == 1).count() > 1000
        );
        for (count, exponent) in [(0, 1.0), (5, 0.0), (5, -1.0), (5, f64::NAN), (5, f64::INFINITY), (5, 10.5)]
        {
            assert!(Zipf::new(count, exponent).is_none(), "{count} {exponent}");
        }
    }
}
