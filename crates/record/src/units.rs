//! Sizes, times and rates in human-readable form: `4k`, `1G`, `16.7us`, `1gbit`.
//!
//! The one units module of the project. Sizes are binary (`4k` is 4096 bytes, as in storage tools); bit rates are
//! decimal (`1gbit` is 10^9 bits per second, as in network tools). Neither
//! `bytesize` (decimal `k`) nor `humantime` (no fractions) parses this syntax.

use thiserror::Error;

/// A quantity cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// The text does not begin with a number.
    #[error("'{text}' does not begin with a number; write {example}")]
    NoNumber {
        /// What was given.
        text: String,
        /// A valid example.
        example: &'static str,
    },
    /// There is no unit, and none goes without saying.
    #[error("'{text}' has no unit; write {text}{unit} or another of {allowed}")]
    NoUnit {
        /// What was given.
        text: String,
        /// A likely unit.
        unit: &'static str,
        /// The valid units.
        allowed: &'static str,
    },
    /// The letters after the number are not a unit of this quantity.
    #[error("'{unit}' in '{text}' is not a unit here; use {allowed}")]
    UnknownUnit {
        /// What was given.
        text: String,
        /// The unknown letters.
        unit: String,
        /// The valid units.
        allowed: &'static str,
    },
    /// The quantity does not fit, or is not a whole number of its smallest unit.
    #[error("'{text}' is out of range: {allowed}")]
    OutOfRange {
        /// What was given.
        text: String,
        /// What is allowed.
        allowed: &'static str,
    },
}

/// Splits `16.7us` into the number and the lower-case unit.
fn split<'a>(text: &'a str, example: &'static str) -> Result<(&'a str, String), UnitError> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    if number.parse::<f64>().is_err() {
        return Err(UnitError::NoNumber { text: text.to_owned(), example });
    }
    Ok((number, unit.trim().to_ascii_lowercase()))
}

/// Bytes from `512`, `4k`, `1M`, `1G`, `1T` (binary; `KiB` and `KB` forms are accepted too). Whole numbers
/// only, so that no size is silently rounded.
///
/// # Errors
/// When the number is missing, the unit is unknown, or the size does not fit 64 bits.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text, "512, 4k, 1M or 1G")?;
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        "p" | "pb" | "pib" => 50,
        _ => {
            return Err(UnitError::UnknownUnit {
                text: text.to_owned(),
                unit,
                allowed: "k, M, G, T or P (powers of 1024)",
            });
        }
    };
    let out_of_range = || UnitError::OutOfRange {
        text: text.to_owned(),
        allowed: "a whole number of bytes that fits 63 bits",
    };
    let count: u64 = number.parse().map_err(|_| out_of_range())?;
    count.checked_mul(1 << shift).filter(|&bytes| bytes <= i64::MAX as u64).ok_or_else(out_of_range)
}

/// Nanoseconds from `500ms`, `5s`, `16.7us`, `388ns`, `2m`.
///
/// # Errors
/// When the number is missing, the unit is missing or unknown, or the time does not fit.
pub fn parse_time_ns(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text, "500ms, 5s or 16.7us")?;
    let factor = match unit.as_str() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "" => {
            return Err(UnitError::NoUnit {
                text: text.to_owned(),
                unit: "s",
                allowed: "ns, us, ms, s or m",
            });
        }
        _ => {
            return Err(UnitError::UnknownUnit {
                text: text.to_owned(),
                unit,
                allowed: "ns, us, ms, s or m",
            });
        }
    };
    let ns = number.parse::<f64>().unwrap_or(f64::NAN) * factor;
    // A century: far above any sensible time, far below what 64 bits hold.
    if !(0.0..=3.2e18).contains(&ns) {
        return Err(UnitError::OutOfRange { text: text.to_owned(), allowed: "0 to 100 years" });
    }
    Ok(ns.round() as u64)
}

/// Bits per second from `1gbit`, `100mbit`, `2.5gbit`.
///
/// # Errors
/// When the number is missing, the unit is missing or unknown, or the rate is zero or does not fit.
pub fn parse_bit_rate(text: &str) -> Result<u64, UnitError> {
    let (number, unit) = split(text, "1gbit or 100mbit")?;
    let factor = match unit.as_str() {
        "bit" => 1.0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        "tbit" => 1e12,
        "" => {
            let allowed = "bit, kbit, mbit, gbit or tbit (per second)";
            return Err(UnitError::NoUnit { text: text.to_owned(), unit: "mbit", allowed });
        }
        _ => {
            return Err(UnitError::UnknownUnit {
                text: text.to_owned(),
                unit,
                allowed: "bit, kbit, mbit, gbit or tbit (per second)",
            });
        }
    };
    let bits = number.parse::<f64>().unwrap_or(f64::NAN) * factor;
    if !(1.0..=1e15).contains(&bits) {
        return Err(UnitError::OutOfRange { text: text.to_owned(), allowed: "1bit to 1000tbit" });
    }
    Ok(bits.round() as u64)
}

/// A byte count in exact human-readable form: `512`, `4k`, `1G`.
#[must_use]
pub fn format_size(bytes: u64) -> String {
    for (shift, unit) in [(50, "P"), (40, "T"), (30, "G"), (20, "M"), (10, "k")] {
        if bytes != 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// A bit rate in human-readable form: `1gbit`.
#[must_use]
pub fn format_bit_rate(bits_per_second: u64) -> String {
    for (factor, unit) in [(1e12, "tbit"), (1e9, "gbit"), (1e6, "mbit"), (1e3, "kbit")] {
        let scaled = bits_per_second as f64 / factor;
        if scaled >= 1.0 {
            return format!("{}{unit}", (scaled * 1000.0).round() / 1000.0);
        }
    }
    format!("{bits_per_second}bit")
}

/// A number of things: `1 request`, `12 345 requests`. The plural of `noun` is regular.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// A whole number with its thousands apart: `63 104`.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_exact() {
        for (text, bytes) in [
            ("512", 512),
            ("4k", 4096),
            ("4K", 4096),
            ("4KiB", 4096),
            ("1M", 1 << 20),
            ("1G", 1 << 30),
            ("1T", 1 << 40),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "k", "1.5k", "4x", "-1", "99999999999G", "1 2"] {
            assert!(parse_size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_are_written_as_they_are_read() {
        for bytes in [0, 1, 512, 1000, 4096, 3 << 20, 1 << 30, 1 << 50] {
            assert_eq!(parse_size(&format_size(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn errors_name_the_accepted_forms() {
        let time = parse_time_ns("5").unwrap_err().to_string();
        assert!(time.contains("has no unit; write 5s") && time.contains("ms"), "{time}");
        let time = parse_time_ns("5h").unwrap_err().to_string();
        assert!(time.contains("'h' in '5h'") && time.contains("ns, us, ms, s or m"), "{time}");
        let size = parse_size("4kk").unwrap_err().to_string();
        assert!(size.contains("'kk' in '4kk'") && size.contains("k, M, G, T or P"), "{size}");
        let rate = parse_bit_rate("5").unwrap_err().to_string();
        assert!(rate.contains("write 5mbit"), "{rate}");
    }

    #[test]
    fn times_and_rates_take_fractions_and_need_a_unit() {
        assert_eq!(parse_time_ns("16.7us"), Ok(16_700));
        assert_eq!(parse_time_ns("5s"), Ok(5_000_000_000));
        assert!(parse_time_ns("5").is_err());
        assert!(parse_time_ns("-5s").is_err());
        assert_eq!(parse_bit_rate("2.5gbit"), Ok(2_500_000_000));
        assert!(parse_bit_rate("0gbit").is_err());
        assert!(parse_bit_rate("1").is_err());
        assert_eq!(format_bit_rate(1_000_000_000), "1gbit");
        assert_eq!(format_bit_rate(2_500_000_000), "2.5gbit");
    }

    #[test]
    fn numbers_of_things_are_singular_and_plural() {
        let text = |count| counted(count, "request");
        assert_eq!([text(0), text(1), text(2)], ["0 requests", "1 request", "2 requests"]);
        assert_eq!(text(1_234_567), "1 234 567 requests");
        assert_eq!([grouped(999), grouped(1000)], ["999", "1 000"]);
    }
}
