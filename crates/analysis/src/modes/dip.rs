//! The dip: how far a distribution is from any with one mode.
//!
//! Source: J. A. Hartigan, P. M. Hartigan, "The Dip Test of Unimodality", The Annals of Statistics 13 (1985).

/// The dip of values, sorted or not: the largest distance of their empirical distribution from the nearest
/// unimodal one, between 1/(2n) and 1/4. The square root of n times it has a fixed distribution when the
/// values are uniform.
#[must_use]
pub fn dip(values: &[f64]) -> f64 {
    let mut x: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    x.sort_by(f64::total_cmp);
    let n = x.len();
    if n < 4 {
        return 0.0;
    }
    let (mut low, mut high) = (0, n - 1);
    // In units of 1/n; the distribution jumps by one at each value.
    let mut largest = 1.0_f64;
    loop {
        let minorant = hull(&x, low, high, false);
        let majorant = hull(&x, low, high, true);
        // Where the two are furthest apart: at a touching point of one of them.
        let mut apart = (0.0_f64, low, high);
        for &g in &minorant {
            let gap = at(&x, &majorant, g) - g as f64 + 1.0;
            if gap > apart.0 {
                let next = majorant.iter().copied().find(|&l| l >= g).unwrap_or(high);
                apart = (gap, g, next);
            }
        }
        for &l in &majorant {
            let gap = l as f64 - at(&x, &minorant, l) + 1.0;
            if gap > apart.0 {
                let before = minorant.iter().copied().rev().find(|&g| g <= l).unwrap_or(low);
                apart = (gap, before, l);
            }
        }
        let (gap, left, right) = apart;
        if gap <= largest {
            break;
        }
        // Left of the interval the distribution must be convex, right of it concave.
        for i in low..=left {
            largest = largest.max(i as f64 - at(&x, &minorant, i) + 1.0);
        }
        for i in right..=high {
            largest = largest.max(at(&x, &majorant, i) - i as f64 + 1.0);
        }
        if (left, right) == (low, high) || left >= right {
            break;
        }
        (low, high) = (left, right);
    }
    largest / (2.0 * n as f64)
}

/// The points of the greatest convex minorant (or the least concave majorant) of the distribution between two
/// values.
fn hull(x: &[f64], low: usize, high: usize, concave: bool) -> Vec<usize> {
    let mut points: Vec<usize> = Vec::new();
    for i in low..=high {
        while let [.., a, b] = points[..] {
            let turn = (x[b] - x[a]) * (i as f64 - a as f64) - (b as f64 - a as f64) * (x[i] - x[a]);
            if if concave { turn >= 0.0 } else { turn <= 0.0 } {
                points.pop();
            } else {
                break;
            }
        }
        points.push(i);
    }
    points
}

/// The height of a hull at a value.
fn at(x: &[f64], hull: &[usize], i: usize) -> f64 {
    let place = hull.partition_point(|&p| p <= i);
    let (a, b) = match (hull.get(place.wrapping_sub(1)), hull.get(place)) {
        (Some(&a), Some(&b)) => (a, b),
        (Some(&a), None) | (None, Some(&a)) => return a as f64,
        (None, None) => return i as f64,
    };
    let width = x[b] - x[a];
    if width <= 0.0 { a as f64 } else { a as f64 + (x[i] - x[a]) / width * (b - a) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_samples() {
        // Evenly spaced values are as unimodal as can be.
        let even: Vec<f64> = (0..100).map(f64::from).collect();
        assert!((dip(&even) - 0.005).abs() < 1e-12);
        // Two distant points of equal weight: a quarter, less the rest of 1/n.
        let two: Vec<f64> = (0..100).map(|i| f64::from(i % 2 * 1000) + f64::from(i) * 1e-3).collect();
        assert!((dip(&two) - 0.25).abs() < 0.01, "{}", dip(&two));
    }

    /// The critical value of the search exceeds the dip of uniform values; the published 99 % quantile
    /// for large n is about 0.57.
    #[test]
    fn uniform_values_stay_below_the_critical_value() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut scaled: Vec<f64> = (0..400)
            .map(|_| {
                let values: Vec<f64> = (0..500).map(|_| random.f64()).collect();
                dip(&values) * 500_f64.sqrt()
            })
            .collect();
        scaled.sort_by(f64::total_cmp);
        assert!((0.30..0.42).contains(&scaled[200]), "median {}", scaled[200]);
        assert!((0.50..0.68).contains(&scaled[395]), "99 % {}", scaled[395]);
        assert!(scaled[399] < super::super::mixture::CRITICAL, "largest {}", scaled[399]);
    }
}
