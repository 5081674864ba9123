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

/// A portal: 127.0.0.1:3260, or 127.0.0.1:3261,group=2.
pub(crate) fn portal(text: &str) -> Result<target::Portal, String> {
    let (address, group) = match text.split_once(",group=") {
        None => (text, 1),
        Some((address, group)) => match group.parse() {
            Ok(group @ 1..) => (address, group),
            _ => return Err(format!("'{group}' is no portal group; use 1 to 65535")),
        },
    };
    let listen = address.parse().map_err(|_| format!("'{address}' is no address; write 127.0.0.1:3260"))?;
    Ok(target::Portal { group, ..target::Portal::new(listen) })
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
