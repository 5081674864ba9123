//! Values of plans: their text forms, and checks common to both kinds of plans.

use std::time::Duration;

use record::units::{parse_bit_rate, parse_size, parse_time_ns};
use serde::{Deserialize, Deserializer};

/// Checks the values that plans of both kinds have.
pub(crate) fn check_common(repeats: u32, mtu_bytes: u32) -> Result<(), String> {
    if !(1..=1000).contains(&repeats) {
        return Err(format!("repeats = {repeats}: 1 to 1000 are possible"));
    }
    if !(576..=65_535).contains(&mtu_bytes) {
        return Err(format!("mtu = {mtu_bytes}: 576 to 65535 bytes are possible"));
    }
    Ok(())
}

pub(crate) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    with(from, parse_bit_rate)
}

pub(crate) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    with(from, parse_size)
}

pub(crate) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    with(from, |text| parse_time_ns(text).map(Duration::from_nanos))
}

fn with<'de, D: Deserializer<'de>, T, E: std::fmt::Display>(
    from: D,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    /// As in a plan, or as this program writes it down.
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Number(u64),
    }
    let text = match Written::deserialize(from)? {
        Written::Text(text) => text,
        Written::Number(number) => number.to_string(),
    };
    parse(&text).map_err(|error| serde::de::Error::custom(format!("{text}: {error}")))
}
