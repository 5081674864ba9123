//! A measured value and its uncertainty.
//!
//! Sums and differences add uncertainties in quadrature (they are taken as independent), and a value is printed only to
//! its first uncertain digit.

use std::fmt;
use std::ops::{Add, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

use record::units::{UnitError, parse_time_ns};

/// A value with its standard uncertainty, in the same unit.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct Known {
    /// The value.
    pub value: f64,
    /// The uncertainty, either way.
    pub plus_minus: f64,
}

impl Known {
    /// A value without uncertainty.
    #[must_use]
    pub const fn exactly(value: f64) -> Self {
        Self { value, plus_minus: 0.0 }
    }

    /// A measured value.
    #[must_use]
    pub fn within(value: f64, plus_minus: f64) -> Self {
        Self { value, plus_minus: plus_minus.abs() }
    }

    /// Relative uncertainty; infinite for an uncertain zero.
    #[must_use]
    pub fn relative(&self) -> f64 {
        if self.plus_minus == 0.0 { 0.0 } else { self.plus_minus / self.value.abs() }
    }

    /// Whether it may be zero or below.
    #[must_use]
    pub fn may_be_zero(&self) -> bool {
        self.value <= self.plus_minus
    }

    /// A written time: `16.7us`, known to half of its last digit, or `16.7us+-0.4us`. Microseconds.
    ///
    /// # Errors
    /// When it is no time.
    pub fn parse_time_us(text: &str) -> Result<Self, UnitError> {
        let us = |text: &str| parse_time_ns(text).map(|ns| ns as f64 / 1000.0);
        let (value, given) = split(text);
        let number = value.trim();
        let unit: String = number.chars().skip_while(|c| c.is_ascii_digit() || *c == '.').collect();
        // Half of the last written digit, in the same unit.
        let half = match number.split_once('.') {
            Some((_, fraction)) => {
                let digits = fraction.chars().take_while(char::is_ascii_digit).count();
                us(&format!("1{unit}"))? * 0.5 * 10_f64.powi(-(digits as i32))
            }
            None => us(&format!("1{unit}")).unwrap_or(0.0) * 0.5,
        };
        Ok(Self::within(us(value)?, given.map_or(Ok(half), us)?))
    }

    /// A bare number or percentage: `63000`, `52.5%`, `63000+-500`; known to half of its last digit unless it says
    /// otherwise. A percentage is returned as a share of one.
    ///
    /// # Errors
    /// When it is not a number, or below zero.
    pub fn parse_number(text: &str) -> Result<Self, UnitError> {
        let percent = text.contains('%');
        let scale = if percent { 0.01 } else { 1.0 };
        let number = |text: &str| {
            let digits = text.trim().trim_end_matches('%').trim_end().replace([',', '_'], "");
            digits.parse::<f64>().ok().filter(|v| v.is_finite() && *v >= 0.0).ok_or_else(|| {
                UnitError::NoNumber { text: text.to_owned(), example: "63000, 63000+-500 or 52.5%" }
            })
        };
        let (value, given) = split(text);
        let digits =
            value.split_once('.').map_or(0, |(_, f)| f.chars().take_while(char::is_ascii_digit).count());
        let half = 0.5 * 10_f64.powi(-(digits as i32));
        Ok(Self::within(number(value)? * scale, given.map_or(Ok(half), number)? * scale))
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once("+-").or_else(|| text.split_once('±')) {
        Some((value, given)) => (value.trim(), Some(given.trim())),
        None => (text.trim(), None),
    }
}

impl Add for Known {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self::within(self.value + other.value, self.plus_minus.hypot(other.plus_minus))
    }
}

impl Sub for Known {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self::within(self.value - other.value, self.plus_minus.hypot(other.plus_minus))
    }
}

impl Mul<f64> for Known {
    type Output = Self;
    fn mul(self, factor: f64) -> Self {
        Self::within(self.value * factor, self.plus_minus * factor)
    }
}

impl Div for Known {
    type Output = Self;
    fn div(self, by: Self) -> Self {
        let value = self.value / by.value;
        Self::within(value, value * self.relative().hypot(by.relative()))
    }
}

impl std::iter::Sum for Known {
    fn sum<I: Iterator<Item = Self>>(values: I) -> Self {
        values.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for Known {
    /// `15.9±0.1`: to the first digit of the uncertainty and no further; what is exact, to three digits behind
    /// the point at most.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounding in arithmetic is no uncertainty.
        if self.plus_minus < 5e-4 {
            let text = format!("{:.3}", self.value);
            return f.write_str(text.trim_end_matches('0').trim_end_matches('.'));
        }
        let place = self.plus_minus.log10().floor() as i32;
        let unit = 10_f64.powi(place);
        let (value, plus_minus) =
            ((self.value / unit).round() * unit, (self.plus_minus / unit).round() * unit);
        let digits = (-place).max(0) as usize;
        write!(f, "{value:.digits$}±{plus_minus:.digits$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_figure_is_known_to_half_of_its_last_digit() {
        let close = |k: Known, value: f64, pm: f64| {
            assert!((k.value - value).abs() < 1e-9 && (k.plus_minus - pm).abs() < 1e-9, "{k:?}");
        };
        close(Known::parse_time_us("275.7us").unwrap(), 275.7, 0.05);
        close(Known::parse_time_us("32us").unwrap(), 32.0, 0.5);
        close(Known::parse_time_us("1.50ms").unwrap(), 1500.0, 5.0);
        close(Known::parse_time_us("16.7us+-0.4us").unwrap(), 16.7, 0.4);
        close(Known::parse_time_us("16.7us ± 400ns").unwrap(), 16.7, 0.4);
        close(Known::parse_number("63,000 +- 500").unwrap(), 63_000.0, 500.0);
        close(Known::parse_number("52.5%").unwrap(), 0.525, 0.0005);
        for wrong in ["", "x", "-5us", "5", "5us+-"] {
            assert!(Known::parse_time_us(wrong).is_err(), "{wrong}");
        }
        assert!(Known::parse_number("-1").is_err() && Known::parse_number("nan").is_err());
    }

    #[test]
    fn prints_to_the_first_uncertain_digit() {
        assert_eq!(Known::within(15.873, 0.126).to_string(), "15.9±0.1");
        assert_eq!(Known::within(204.5, 12.0).to_string(), "200±10");
        assert_eq!(Known::within(62_893.2, 480.0).to_string(), "62900±500");
        assert_eq!(Known::exactly(1.104).to_string(), "1.104");
        assert_eq!(Known::exactly(40.0).to_string(), "40");
    }

    #[test]
    fn uncertainties_add_in_quadrature() {
        let sum = Known::within(10.0, 0.3) + Known::within(5.0, 0.4);
        assert!((sum.plus_minus - 0.5).abs() < 1e-12);
        let ratio = Known::within(0.5, 0.01) / Known::within(50_000.0, 500.0);
        assert!((ratio.relative() - 0.02_f64.hypot(0.01)).abs() < 1e-12);
        assert!(Known::within(0.3, 0.4).may_be_zero());
    }
}
