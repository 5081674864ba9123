//! The unit of all times of a page.

/// A unit of time. A page has one, so that no two of its times need to be converted to be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds.
    #[default]
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
}

/// Times of which most are longer are told in the next unit, microseconds.
const MICROSECONDS_MAX: f64 = 20_000.0;
const MILLISECONDS_MAX: f64 = 20_000_000.0;

impl Unit {
    /// The unit in which times like these, in microseconds, have few digits: that of the one in the middle.
    #[must_use]
    pub fn of(times_us: impl IntoIterator<Item = f64>) -> Self {
        let mut times: Vec<f64> = times_us.into_iter().filter(|us| us.is_finite() && *us > 0.0).collect();
        times.sort_by(f64::total_cmp);
        match times.get(times.len() / 2) {
            Some(&us) if us > MILLISECONDS_MAX => Self::Seconds,
            Some(&us) if us > MICROSECONDS_MAX => Self::Milliseconds,
            _ => Self::Microseconds,
        }
    }

    /// Its sign.
    #[must_use]
    pub fn sign(self) -> &'static str {
        match self {
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    /// A time of so many microseconds in this unit.
    #[must_use]
    pub fn value(self, us: f64) -> f64 {
        match self {
            Self::Microseconds => us,
            Self::Milliseconds => us / 1e3,
            Self::Seconds => us / 1e6,
        }
    }

    /// That, to a tenth of a microsecond, or to a thousandth of a larger unit.
    #[must_use]
    pub fn text(self, us: f64) -> String {
        if !us.is_finite() {
            return "-".to_owned();
        }
        // No time; as digits it would be wider than a page.
        if us.abs() >= 1e18 {
            return format!("{:.3e}", self.value(us));
        }
        match self {
            Self::Microseconds => format!("{us:.1}"),
            other => format!("{:.3}", other.value(us)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_in_the_middle_chooses() {
        assert_eq!(Unit::of([50.0, 60.0, 44_000.0]), Unit::Microseconds);
        assert_eq!(Unit::of([50.0, 44_000.0, 45_000.0]), Unit::Milliseconds);
        assert_eq!(Unit::of([f64::NAN, 0.0, 3e7]), Unit::Seconds);
        assert_eq!(Unit::of([]), Unit::Microseconds);
    }

    #[test]
    fn times_keep_their_value() {
        assert_eq!(Unit::Microseconds.text(44_012.34), "44012.3");
        assert_eq!(Unit::Milliseconds.text(44_012.34), "44.012");
        assert_eq!(Unit::Seconds.text(1e6), "1.000");
        assert_eq!(Unit::Seconds.text(f64::INFINITY), "-");
        assert_eq!(Unit::Microseconds.text(-1e300), "-1.000e300");
    }
}
