//! How arguments are read: sizes, times and lists, by the project's own units.

use std::time::Duration;

use ring::units::{parse_bit_rate, parse_size, parse_time_ns};

/// A size: 512, 4k, 1M.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|e| e.to_string())
}

/// A time: 500ms, 5s.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    parse_time_ns(text).map(Duration::from_nanos).map_err(|e| e.to_string())
}

/// A link's rate: 1gbit.
pub(crate) fn rate(text: &str) -> Result<u64, String> {
    parse_bit_rate(text).map_err(|e| e.to_string())
}

/// A disk: N=store.
pub(crate) fn lun(text: &str) -> Result<(u16, store::StoreSpec), String> {
    let (number, spec) = text.split_once('=').ok_or("write NUMBER=STORE, such as 0=ram:1G")?;
    let number = number.parse().map_err(|_| format!("'{number}' is no LUN; use 0 to 255"))?;
    if number > 255 {
        return Err(format!("LUN {number}: use 0 to 255"));
    }
    Ok((number, spec.parse().map_err(|e: store::SpecError| e.to_string())?))
}
