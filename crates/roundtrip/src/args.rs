//! Parsers of arguments: sizes, times and lists, with the units of `record::units`.

use std::time::Duration;

use record::units::{parse_bit_rate, parse_size, parse_time_ns};
use socket::options::TcpOptions;

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

/// Rates of an open loop, one after the other.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates(pub(crate) Vec<f64>);

/// Most rates of a run.
const RATES_MAX: usize = 1000;

/// Rates: 1000, or 1000,2000, or 1000..16000/5.
pub(crate) fn rates(text: &str) -> Result<Rates, String> {
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(rate) if (0.01..=1e9).contains(&rate) => Ok(rate),
        _ => Err(format!("'{text}': a rate is 0.01 to 1000000000 operations a second")),
    };
    let Some((first, rest)) = text.split_once("..") else {
        return text.split(',').map(number).collect::<Result<_, _>>().map(Rates);
    };
    let (last, steps) = rest.split_once('/').unwrap_or((rest, "5"));
    let (first, last) = (number(first)?, number(last)?);
    let steps = match steps.trim().parse::<usize>() {
        Ok(steps) if (2..=RATES_MAX).contains(&steps) => steps,
        _ => return Err(format!("'{steps}': a ramp has 2 to {RATES_MAX} rates: 1000..16000/5")),
    };
    let factor = (last / first).powf(1.0 / (steps - 1) as f64);
    Ok(Rates((0..steps).map(|step| first * factor.powi(step as i32)).collect()))
}

/// A portal: 127.0.0.1:3260, or 127.0.0.1:3261,group=2.
pub(crate) fn portal(text: &str) -> Result<iscsi_target::Portal, String> {
    let (address, group) = match text.split_once(",group=") {
        None => (text, 1),
        Some((address, group)) => match group.parse() {
            Ok(group @ 1..) => (address, group),
            _ => return Err(format!("'{group}' is not a portal group; use 1 to 65535")),
        },
    };
    let listen =
        address.parse().map_err(|_| format!("'{address}' is not an address; write 127.0.0.1:3260"))?;
    Ok(iscsi_target::Portal { group, ..iscsi_target::Portal::new(listen) })
}

/// Socket options of the local side.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Socket options")]
pub(crate) struct TcpArgs {
    /// TCP congestion control, such as cubic; by default the system's
    #[arg(long)]
    pub(crate) congestion: Option<String>,
    /// SO_SNDBUF, such as 512k; by default the kernel's choice
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) send_buffer: Option<u64>,
    /// SO_RCVBUF, such as 512k; by default the kernel's choice
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) receive_buffer: Option<u64>,
    /// Acknowledge received data at once (TCP_QUICKACK after each receive)
    #[arg(long)]
    pub(crate) quick_ack: bool,
}

impl TcpArgs {
    pub(crate) fn options(&self, nodelay: bool) -> TcpOptions {
        let bytes = |size: Option<u64>| size.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        TcpOptions {
            nodelay,
            congestion: self.congestion.clone(),
            send_buffer: bytes(self.send_buffer),
            receive_buffer: bytes(self.receive_buffer),
            quick_ack: self.quick_ack,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_a_number_a_list_or_a_ramp() {
        assert_eq!(rates("1000"), Ok(Rates(vec![1000.0])));
        assert_eq!(rates("1000,2500"), Ok(Rates(vec![1000.0, 2500.0])));
        let Rates(ramp) = rates("1000..16000/5").unwrap();
        let rounded: Vec<f64> = ramp.into_iter().map(f64::round).collect();
        assert_eq!(rounded, [1000.0, 2000.0, 4000.0, 8000.0, 16_000.0]);
        for wrong in ["0", "fast", "1000..", "1..2/1", "1..2/9999", "-5", "1,,2"] {
            assert!(rates(wrong).is_err(), "{wrong}");
        }
    }
}
