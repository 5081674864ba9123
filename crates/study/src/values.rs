//! Values of plans: their text forms, and checks common to both kinds of plans.

use std::time::Duration;

use record::units::{parse_bit_rate, parse_size, parse_time_ns};
use serde::{Deserialize, Deserializer, Serializer};

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

/// Writes a rate as a plan has it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn rate_text<S: Serializer>(bits_per_second: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{bits_per_second}bit"))
}

/// Writes a time as a plan has it.
pub(crate) fn time_text<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{}ns", time.as_nanos()))
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

/// The error of a plan. It quotes the plan, unless that seems to hold a secret, which has no place there.
pub(crate) fn toml_error(text: &str, error: &toml::de::Error) -> String {
    let holds_secret = |line: &str| {
        let line = line.to_ascii_lowercase().replace("secret-file", "");
        line.contains("secret")
            || line.contains("password")
            || (line.contains("iscsi:") && line.contains(['%', '@']))
    };
    let is_given = text.to_ascii_lowercase().contains("secret");
    if !is_given && !text.lines().any(holds_secret) {
        return error.to_string();
    }
    let at = error.span().map_or(0, |span| span.start).min(text.len());
    let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
    // Other messages may quote a value.
    let message = error.message();
    let what = match message.split_once('`') {
        Some((begin @ ("unknown field " | "missing field "), rest)) => {
            format!("{begin}`{}`", rest.split('`').next().unwrap_or_default())
        }
        _ => "it cannot be read".to_owned(),
    };
    format!(
        "line {line}: {what}; the line is not shown, because the plan may hold a secret: write chap-secret-file = \"FILE\" instead"
    )
}
