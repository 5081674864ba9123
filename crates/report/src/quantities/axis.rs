//! Axes: a range of values that outliers do not squeeze, ticks, and labels with units.

use super::Quantity;
use super::summary::{Distribution, Source};

/// An axis ends at the greatest value below so many times the 90th percentile of the largest quantity: a tenth of the operations is
/// never beyond it, and a single one never takes more than three quarters of the height.
const REACH: f64 = 4.0;

/// A range of values, microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    /// Its lower end: 0, or negative where values are.
    pub(super) low: f64,
    /// Its upper end, positive.
    pub(super) high: f64,
}

impl Range {
    /// The range that shows the operations of a panel.
    pub(super) fn of(source: &Source<'_>) -> Self {
        let mut size = 0.0_f64;
        for quantity in Quantity::ALL {
            let all = Distribution::of(source, quantity);
            let ends = [all.quantile(0.9), all.quantile(0.1).map(|us| -us)];
            size = ends.into_iter().flatten().map(f64::from).fold(size, f64::max);
        }
        let reach = REACH * size;
        let (mut low, mut high) = (0.0_f64, 0.0_f64);
        for quantity in Quantity::ALL {
            source.each(quantity, &mut |_, us, _| {
                let us = f64::from(us);
                if us.abs() <= reach {
                    (low, high) = (low.min(us), high.max(us));
                }
            });
        }
        let margin = (high - low) * 0.06;
        let high = if high > 0.0 { high + margin } else { (-low).max(1.0) * 0.2 };
        Self { low: if low < 0.0 { low - margin } else { 0.0 }, high }
    }

    /// Where a value is: 0 at the upper end, 1 at the lower one.
    pub(super) fn depth(&self, us: f64) -> f64 {
        (self.high - us) / (self.high - self.low)
    }
}

/// Round values in a range, about so many.
pub(super) fn ticks(low: f64, high: f64, about: f64) -> Vec<f64> {
    let rough = (high - low) / about;
    if !(rough.is_finite() && rough > 0.0) {
        return Vec::new();
    }
    let power = 10.0_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough).unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    (first..)
        .map(|number| number as f64 * step)
        .take_while(|tick| *tick <= high + step * 1e-9)
        .take(50)
        .collect()
}

/// A time with its unit, to so many decimals of the unit as a step between ticks needs. The largest time of the axis chooses the
/// unit; all in microseconds.
pub(super) fn label(us: f64, step_us: f64, largest_us: f64) -> String {
    let (unit, name) = if largest_us >= 1e6 && step_us >= 1e5 {
        (1e6, "s")
    } else if largest_us >= 1e4 || step_us >= 1e3 {
        (1e3, "ms")
    } else {
        (1.0, "us")
    };
    let decimals = (-(step_us / unit).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{:.decimals$} {name}", us / unit)
}

/// A time to three digits or more, with its unit.
pub(crate) fn time(us: f64) -> String {
    match us.abs() {
        size if size < 1_000.0 => format!("{us:.1} us"),
        size if size < 10_000.0 => format!("{:.2} ms", us / 1e3),
        size if size < 1_000_000.0 => format!("{:.1} ms", us / 1e3),
        size if size < 100_000_000.0 => format!("{:.2} s", us / 1e6),
        _ => format!("{:.0} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_labels_say_their_unit() {
        let labels = |low: f64, high: f64| -> Vec<String> {
            let all = ticks(low, high, 5.0);
            all.iter().map(|us| label(*us, all[1] - all[0], high.max(-low))).collect()
        };
        assert_eq!(labels(0.0, 243.0), ["0 us", "50 us", "100 us", "150 us", "200 us"]);
        assert_eq!(labels(0.0, 44_000.0), ["0 ms", "10 ms", "20 ms", "30 ms", "40 ms"]);
        assert_eq!(labels(0.0, 3_900_000.0), ["0 s", "1 s", "2 s", "3 s"]);
        assert_eq!(labels(-60.0, 90.0), ["-50 us", "0 us", "50 us"]);
        assert_eq!(labels(1_953_000.0, 1_955_700.0), ["1953 ms", "1954 ms", "1955 ms"]);
        assert_eq!(labels(0.0, 0.2), ["0.00 us", "0.05 us", "0.10 us", "0.15 us", "0.20 us"]);
        for (low, high) in [(0.0, 0.0), (5.0, f64::INFINITY), (f64::NAN, 1.0), (1e300, 1e301)] {
            assert!(ticks(low, high, 5.0).len() <= 50);
        }
        assert!(ticks(1e18, 1e18 + 1.0, 5.0).len() <= 50, "steps below a float's resolution");
    }

    #[test]
    fn times_have_three_digits_or_more() {
        for (us, text) in [
            (0.0, "0.0 us"),
            (-13.7, "-13.7 us"),
            (243.44, "243.4 us"),
            (2_514.0, "2.51 ms"),
            (43_938.0, "43.9 ms"),
            (10e6, "10.00 s"),
            (3_600e6, "3600 s"),
        ] {
            assert_eq!(time(us), text);
        }
    }
}
