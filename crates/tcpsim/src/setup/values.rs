//! Values of a setup: text with a unit, or a number.

use record::units::{parse_bit_rate, parse_size, parse_time_ns};
use serde::{Deserialize, Deserializer};

use crate::Ns;
use crate::profile::Profile;

/// A value as text, or as a number without a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum Text {
    Words(String),
    Number(i64),
}

fn with<'de, D: Deserializer<'de>, T, E: std::fmt::Display>(
    from: D,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    let text = match Text::deserialize(from)? {
        Text::Words(text) => text,
        // As if it were quoted: sizes need no unit, times do.
        Text::Number(number) => number.to_string(),
    };
    parse(&text).map_err(|error| serde::de::Error::custom(format!("{text}: {error}")))
}

pub(super) fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Ns, D::Error> {
    with(from, parse_time_ns)
}

pub(super) fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Ns>, D::Error> {
    time(from).map(Some)
}

pub(super) fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    with(from, parse_size)
}

pub(super) fn some_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    size(from).map(Some)
}

pub(super) fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    with(from, |text| if text == "none" { Ok(0) } else { parse_bit_rate(text) })
}

pub(super) fn profile<'de, D: Deserializer<'de>>(from: D) -> Result<Profile, D::Error> {
    let names = || Profile::ALL.map(|profile| profile.name).join(", ");
    with(from, |name| Profile::named(name).ok_or_else(|| format!("no such TCP; there are {}", names())))
}
