//! Parsers of arguments: sizes, times and lists, with the units of `record::units`.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use load::initiator::{BlockShare, IscsiUrl, LoginSpec};
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

/// Sizes with their shares: 4k/60:64k/40. Sizes without a share divide the rest.
pub(crate) fn block_split(text: &str) -> Result<BlockSplit, String> {
    let mut shares = Vec::new();
    for part in text.split(':') {
        let (bytes, percent) = part.split_once('/').unwrap_or((part, ""));
        let percent = match percent.trim() {
            "" => None,
            percent => {
                Some(percent.parse::<u32>().ok().filter(|percent| *percent <= 100).ok_or_else(|| {
                    format!("'{percent}' in '{text}' is not a percentage; write 4k/60:64k/40")
                })?)
            }
        };
        shares.push((size(bytes)?, percent));
    }
    let given: u32 = shares.iter().filter_map(|(_, percent)| *percent).sum();
    let open = shares.iter().filter(|(_, percent)| percent.is_none()).count() as u32;
    if given > 100 || (open == 0 && given != 100) {
        return Err(format!("'{text}': the percentages add up to {given}, not 100; write 4k/60:64k/40"));
    }
    // The first sizes without a share take what the division leaves.
    let (each, mut left) = ((100 - given) / open.max(1), (100 - given) % open.max(1));
    let shares = shares.into_iter().map(|(block_bytes, percent)| {
        let percent = percent.unwrap_or_else(|| {
            let extra = u32::from(left > 0);
            left -= extra;
            each + extra
        });
        BlockShare { block_bytes, percent }
    });
    Ok(BlockSplit(shares.collect()))
}

/// Operation sizes with their shares.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BlockSplit(pub(crate) Vec<BlockShare>);

/// A percentage.
pub(crate) fn percent(text: &str) -> Result<u32, String> {
    let percent =
        text.strip_suffix('%').unwrap_or(text).parse::<u32>().ok().filter(|percent| *percent <= 100);
    percent.ok_or_else(|| format!("'{text}' is not a percentage; use 0 to 100"))
}

/// An address to listen on: 127.0.0.1:3260, [::1]:3260 or localhost:3260. Of a name's addresses it is the first of IPv4, or
/// the first if there is none.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let form = "write 127.0.0.1:3260, [::1]:3260 or localhost:3260";
    let all: Vec<SocketAddr> = match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            text.to_socket_addrs().map_err(|error| format!("'{text}': {error}; {form}"))?.collect()
        }
        _ => return Err(format!("'{text}' is not an address with a port; {form}")),
    };
    let first = all.iter().find(|address| address.is_ipv4()).or(all.first());
    first.copied().ok_or_else(|| format!("'{text}': the name has no address; {form}"))
}

/// How the initiator logs in.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "iSCSI login")]
pub(crate) struct LoginArgs {
    /// InitiatorName, such as iqn.2026-11.example:host
    #[arg(long, value_name = "IQN")]
    initiator_name: Option<String>,
    /// CHAP user; by default the one in the URL
    #[arg(long, value_name = "NAME")]
    chap_user: Option<String>,
    /// File with the CHAP secret, which not every user may read; by default the secret is in ROUNDTRIP_CHAP_SECRET
    #[arg(long, value_name = "FILE")]
    chap_secret_file: Option<PathBuf>,
    /// Name that the target must prove to have (mutual CHAP); by default any
    #[arg(long, value_name = "NAME")]
    chap_mutual_user: Option<String>,
    /// File with the target's secret, which the target must prove to know (mutual CHAP); by default the secret is in
    /// ROUNDTRIP_CHAP_MUTUAL_SECRET, and without either the target need not prove anything
    #[arg(long, value_name = "FILE")]
    chap_mutual_secret_file: Option<PathBuf>,
    /// Require CRC32C digests of headers
    #[arg(long)]
    header_digest: bool,
    /// Require CRC32C digests of data
    #[arg(long)]
    data_digest: bool,
}

impl LoginArgs {
    /// Whether any option is given.
    pub(crate) fn is_given(&self) -> bool {
        let plain = LoginSpec {
            initiator_name: self.initiator_name.clone(),
            chap_user: self.chap_user.clone(),
            chap_secret_file: self.chap_secret_file.clone(),
            chap_mutual_user: self.chap_mutual_user.clone(),
            chap_mutual_secret_file: self.chap_mutual_secret_file.clone(),
            ..self.digests()
        };
        plain != LoginSpec::default()
    }

    /// The digests alone, without authentication.
    pub(crate) fn digests(&self) -> LoginSpec {
        LoginSpec { header_digest: self.header_digest, data_digest: self.data_digest, ..LoginSpec::default() }
    }

    /// The login to a target; the URL may name the CHAP user.
    pub(crate) fn spec(&self, url: &IscsiUrl) -> LoginSpec {
        LoginSpec {
            initiator_name: self.initiator_name.clone(),
            chap_user: self.chap_user.clone().or_else(|| url.user.clone()),
            chap_secret_file: self.chap_secret_file.clone(),
            chap_mutual_user: self.chap_mutual_user.clone(),
            chap_mutual_secret_file: self.chap_mutual_secret_file.clone(),
            ..self.digests()
        }
    }
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
    let listen = listen(address)?;
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
    fn shares_are_percentages_and_the_rest_is_divided() {
        let text = |text| {
            let BlockSplit(shares) = block_split(text).unwrap();
            shares.iter().map(|s| format!("{}/{}", s.block_bytes, s.percent)).collect::<Vec<_>>().join(":")
        };
        assert_eq!(text("4k/60:64k/40"), "4096/60:65536/40");
        assert_eq!(text("4k/50:8k/:16k/"), "4096/50:8192/25:16384/25");
        assert_eq!(text("512:1k:2k"), "512/34:1024/33:2048/33");
        for wrong in
            ["", "4k/", "4k/60", "4k/60:8k/60", "4k/x:8k/50", "4kk/50:8k/50", "4k/101:8k/", "4k/60;8k/40"]
        {
            assert!(block_split(wrong).is_err() || wrong == "4k/", "{wrong}");
        }
        assert_eq!((percent("70"), percent("70%")), (Ok(70), Ok(70)));
        assert!(["101", "-1", "x", "", "70.5"].iter().all(|wrong| percent(wrong).is_err()));
    }

    #[test]
    fn addresses_may_be_names() {
        assert_eq!(listen("localhost:3260").unwrap().to_string(), "127.0.0.1:3260");
        assert_eq!(listen("[::1]:7").unwrap().to_string(), "[::1]:7");
        for wrong in ["", "localhost", ":3260", "localhost:x", "localhost:70000", "1.2.3.4"] {
            assert!(listen(wrong).unwrap_err().contains("localhost:3260"), "{wrong}");
        }
        assert_eq!(portal("localhost:5,group=2").unwrap().group, 2);
    }

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
