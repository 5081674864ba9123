//! Counterfactuals: what another setting would do to throughput and round trip.

use serde::Serialize;

use super::extras::{Coalescing, SLOW_EVERY_MAX, Side, Slow};
use super::setup::{Nagle, Setup};
use super::{ModelError, Ring, Role, Stage, check_queue_depth};
use crate::known::Known;
use record::units::{parse_bit_rate, parse_size, parse_time_ns};
use record::wire::{Link, Messages};

/// One prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// `mtu=1500`, or several with commas.
    pub change: String,
    /// Operations per second before and after.
    pub iops_before: Known,
    /// See `iops_before`.
    pub iops_after: Known,
    /// Round trip before and after, microseconds.
    pub rtt_us_before: Known,
    /// See `rtt_us_before`.
    pub rtt_us_after: Known,
    /// The bottleneck after the change.
    pub bottleneck_after: String,
    /// `iops_after / iops_before - 1`.
    pub gain: f64,
}

/// The settings that can be changed, as an error lists them.
pub const KEYS: &str = "use bandwidth, mtu, ip, timestamps, vlan, digests, block-size, queue-depth, sessions, think, \
                        coalescing, slow, nodelay, client-nodelay, flush, client-ack-delay, \
                        server-ack-delay, sends, sl, cl, server-cpu, client-cpu, STAGE.service or STAGE.latency";

/// A setting that can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting<'a> {
    Bandwidth,
    Mtu,
    Ip,
    Timestamps,
    Vlan,
    Digests,
    BlockSize,
    QueueDepth,
    Sessions,
    Think,
    Coalescing,
    Slow,
    Nodelay(Host),
    /// Held data leaves when the server's thread goes idle.
    Flush,
    /// The delayed ACK that a side sends.
    AckDelay(Host),
    Sends,
    /// Which stages of a side share its CPU.
    Cpu(Host),
    /// A time of some stages.
    Time(Stages<'a>, StageTime),
}

/// A side of the ring with CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Server,
    Client,
}

impl Host {
    fn role(self) -> Role {
        match self {
            Self::Server => Role::Server,
            Self::Client => Role::Client,
        }
    }

    /// The resource of a CPU that its stages share.
    fn cpu(self) -> &'static str {
        match self {
            Self::Server => "server CPU",
            Self::Client => "client CPU",
        }
    }
}

/// The stages whose time is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stages<'a> {
    /// The stage of that name.
    Named(&'a str),
    /// The CPU stages of a side without the interrupt, whose latency also a polling thread pays.
    Threads(Host),
}

impl Stages<'_> {
    fn contain(self, stage: &Stage) -> bool {
        match self {
            Self::Named(name) => stage.name == name,
            Self::Threads(host) => stage.role() == host.role() && !stage.interrupt,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StageTime {
    Service,
    StartLatency,
}

impl<'a> Setting<'a> {
    fn parse(key: &'a str) -> Option<Self> {
        Some(match key {
            "bandwidth" => Self::Bandwidth,
            "mtu" => Self::Mtu,
            "ip" => Self::Ip,
            "timestamps" => Self::Timestamps,
            "vlan" => Self::Vlan,
            "digests" => Self::Digests,
            "block-size" => Self::BlockSize,
            "queue-depth" => Self::QueueDepth,
            "sessions" => Self::Sessions,
            "think" => Self::Think,
            "coalescing" => Self::Coalescing,
            "slow" => Self::Slow,
            "nodelay" => Self::Nodelay(Host::Server),
            "client-nodelay" => Self::Nodelay(Host::Client),
            "flush" => Self::Flush,
            "client-ack-delay" | "ack-delay" => Self::AckDelay(Host::Client),
            "server-ack-delay" => Self::AckDelay(Host::Server),
            "sends" => Self::Sends,
            "sl" => Self::Time(Stages::Threads(Host::Server), StageTime::StartLatency),
            "cl" => Self::Time(Stages::Threads(Host::Client), StageTime::StartLatency),
            "server-cpu" => Self::Cpu(Host::Server),
            "client-cpu" => Self::Cpu(Host::Client),
            _ => match key.split_once('.')? {
                (stage, "service") => Self::Time(Stages::Named(stage), StageTime::Service),
                (stage, "latency") => Self::Time(Stages::Named(stage), StageTime::StartLatency),
                _ => return None,
            },
        })
    }
}

impl Setup {
    /// The same setup with one setting changed: `key=value`.
    ///
    /// # Errors
    /// When there is no such setting, or the value is impossible.
    pub fn with(&self, change: &str) -> Result<Self, ModelError> {
        let (key, value) =
            change.split_once('=').ok_or_else(|| ModelError::new("what-if", change, "write KEY=VALUE"))?;
        let (key, value) = (key.trim(), value.trim());
        let setting = Setting::parse(key).ok_or_else(|| ModelError::new("what-if", key, KEYS))?;
        let mut setup = Self { terms: None, ..self.clone() };
        let wrong = |e: record::units::UnitError| ModelError::new(key, e, "see its units");
        let flag = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(ModelError::new(key, value, "on or off is possible")),
        };
        let link = self.link;
        let messages = self.messages;
        match setting {
            Setting::Bandwidth => {
                let bits_per_second = parse_bit_rate(value).map_err(wrong)?;
                setup.rewire(Link { bits_per_second, ..link }, messages)?;
            }
            Setting::Mtu => {
                let mtu_bytes = parse_mtu(key, value)?;
                setup.rewire(Link { mtu_bytes, ..link }, messages)?;
            }
            Setting::Ip => {
                let ipv6 = parse_is_ipv6(key, value)?;
                setup.rewire(Link { ipv6, ..link }, messages)?;
            }
            Setting::Timestamps => setup.rewire(Link { timestamps: flag()?, ..link }, messages)?,
            Setting::Vlan => setup.rewire(Link { vlan: flag()?, ..link }, messages)?,
            Setting::Digests => {
                let Digests { header, data } = parse_digests(key, value)?;
                setup.rewire(link, Messages { header_digest: header, data_digest: data, ..messages })?;
            }
            Setting::BlockSize => {
                let block_bytes = parse_size(value).map_err(wrong)?;
                setup.rewire(link, Messages { block_bytes, ..messages })?;
            }
            Setting::QueueDepth => {
                setup.queue_depth =
                    value.parse().map_err(|_| ModelError::new(key, value, "1 to 65536 is possible"))?;
                check_queue_depth(setup.queue_depth)?;
            }
            Setting::Sessions => {
                setup.sessions = value
                    .parse()
                    .ok()
                    .filter(|&n| n > 0)
                    .ok_or_else(|| ModelError::new(key, value, "1 or more sessions are possible"))?;
            }
            Setting::Think => setup.extras.think_us = time_us(key, value)?,
            Setting::Coalescing => setup.extras.coalescing = parse_coalescing(key, value)?,
            Setting::Slow => setup.extras.slow = parse_slow(key, value)?,
            Setting::Nodelay(Host::Server) => {
                setup.nagle = if flag()? { None } else { Some(self.nagle.unwrap_or_default()) };
            }
            Setting::Nodelay(Host::Client) => {
                setup.client_nagle = if flag()? { None } else { Some(self.client_nagle.unwrap_or_default()) };
            }
            Setting::Flush => {
                let flushes_when_idle = flag()?;
                let of_server = needs_nagle(self.nagle, key, value)?;
                setup.nagle = Some(Nagle { flushes_when_idle, ..of_server });
            }
            // The client's delayed ACK holds the server's data back, and the other way round.
            Setting::AckDelay(host) => {
                let ack_delay_us = ack_delay_us(key, value)?;
                match host {
                    Host::Client => {
                        let held = needs_nagle(self.nagle, key, value)?;
                        setup.nagle = Some(Nagle { ack_delay_us, ..held });
                    }
                    Host::Server => {
                        let held = needs_nagle(self.client_nagle, key, value)?;
                        setup.client_nagle = Some(Nagle { ack_delay_us, ..held });
                    }
                }
            }
            Setting::Sends => {
                let sends = value.parse().ok().filter(|n| (1..=2).contains(n)).ok_or_else(|| {
                    ModelError::new(
                        key,
                        value,
                        "1 (a response in one send) or 2 (header and data apart) is possible",
                    )
                })?;
                setup.nagle = self.nagle.map(|nagle| Nagle { sends, ..nagle });
            }
            Setting::Cpu(host) => setup.place(host, key, value)?,
            Setting::Time(stages, time) => setup.set_time(stages, time, value)?,
        }
        Ok(setup)
    }

    fn set_time(&mut self, of: Stages<'_>, time: StageTime, value: &str) -> Result<(), ModelError> {
        let name = match of {
            Stages::Named(name) => name,
            Stages::Threads(Host::Server) => "S",
            Stages::Threads(Host::Client) => "C",
        };
        let us = if value == "0" { 0.0 } else { time_us(name, value)? };
        let mut stages = self.ring.stages().to_vec();
        let mut found = false;
        for stage in stages.iter_mut().filter(|stage| of.contain(stage)) {
            found = true;
            // A time set by hand has no uncertainty.
            match time {
                StageTime::StartLatency => (stage.start_latency_us, stage.latency_within_us) = (us, 0.0),
                StageTime::Service => (stage.service_us, stage.service_within_us) = (us, 0.0),
            }
        }
        if !found {
            return Err(ModelError::new("what-if", name, "there is no such stage in this ring"));
        }
        self.ring = Ring::new(stages)?;
        Ok(())
    }

    /// Gives each stage of a side a CPU of its own, or all of them one.
    fn place(&mut self, host: Host, key: &str, value: &str) -> Result<(), ModelError> {
        let (thread_is_own, transmit_is_own) = match value {
            "own" => (true, true),
            "transmit-apart" => (false, true),
            "shared" => (false, false),
            _ => return Err(ModelError::new(key, value, "own, transmit-apart or shared is possible")),
        };
        let is_of_host = |stage: &Stage| stage.role() == host.role();
        let count = self.ring.stages().iter().filter(|stage| is_of_host(stage)).count();
        if count < 2 {
            return Err(ModelError::new(
                key,
                value,
                "this ring has that side's work as one sum; its softirq and thread must be known apart",
            ));
        }
        let stages = self.ring.stages().iter().map(|s| {
            if !is_of_host(s) {
                s.clone()
            } else if thread_is_own || transmit_is_own && matches!(s.name.as_str(), "SK" | "CK") {
                // A stage on a CPU of its own interrupts no other.
                Stage { interrupt: false, resource: s.name.clone(), ..s.clone() }
            } else {
                let interrupt = matches!(s.name.as_str(), "SI" | "CI" | "SK" | "CK");
                Stage { interrupt, resource: host.cpu().to_owned(), ..s.clone() }
            }
        });
        self.ring = Ring::new(stages.collect())?;
        Ok(())
    }

    /// Predicts each change alone, and all together where there are several; the greatest gain first.
    ///
    /// # Errors
    /// When a change is impossible.
    pub fn predict(&self, changes: &[String]) -> Result<Vec<Prediction>, ModelError> {
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let before = self.outcome(self.queue_depth)?;
        let mut setups = Vec::new();
        let mut together = self.clone();
        for change in changes {
            setups.push((change.clone(), self.with(change)?));
            together = together.with(change)?;
        }
        if changes.len() > 1 {
            setups.push((changes.join(","), together));
        }
        let mut all = setups
            .into_iter()
            .map(|(change, setup)| {
                let after = setup.outcome(setup.queue_depth)?;
                Ok(Prediction {
                    change,
                    iops_before: before.iops,
                    iops_after: after.iops,
                    rtt_us_before: before.rtt_us,
                    rtt_us_after: after.rtt_us,
                    bottleneck_after: after.bottleneck,
                    gain: after.iops.value / before.iops.value - 1.0,
                })
            })
            .collect::<Result<Vec<_>, ModelError>>()?;
        all.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        Ok(all)
    }
}

fn needs_nagle(nagle: Option<Nagle>, key: &str, value: &str) -> Result<Nagle, ModelError> {
    nagle.ok_or_else(|| {
        ModelError::new(
            key,
            value,
            "it changes nothing while the other side has TCP_NODELAY: set nodelay=off or client-nodelay=off",
        )
    })
}

pub(super) fn time_us(key: &str, text: &str) -> Result<f64, ModelError> {
    Ok(parse_time_ns(text).map_err(|e| ModelError::new(key, e, "see its units"))? as f64 / 1000.0)
}

/// Longest delay of an acknowledgement, microseconds (RFC 1122 4.2.3.2: less than 0.5 s).
const ACK_DELAY_MAX_US: f64 = 500_000.0;

pub(super) fn ack_delay_us(key: &str, text: &str) -> Result<f64, ModelError> {
    let us = time_us(key, text)?;
    if us > ACK_DELAY_MAX_US {
        return Err(ModelError::new(key, text, "at most 500ms is possible: RFC 1122, 4.2.3.2"));
    }
    Ok(us)
}

pub(super) fn parse_mtu(key: &str, text: &str) -> Result<u32, ModelError> {
    text.parse()
        .ok()
        .filter(|mtu| (68..=65_535).contains(mtu))
        .ok_or_else(|| ModelError::new(key, text, "68 to 65535 bytes is possible"))
}

/// Whether the version is 6.
pub(super) fn parse_is_ipv6(key: &str, text: &str) -> Result<bool, ModelError> {
    match text {
        "4" => Ok(false),
        "6" => Ok(true),
        _ => Err(ModelError::new(key, text, "4 or 6 is possible")),
    }
}

/// The digests of a PDU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digests {
    pub(super) header: bool,
    pub(super) data: bool,
}

pub(super) fn parse_digests(key: &str, text: &str) -> Result<Digests, ModelError> {
    let (header, data) = match text {
        "none" => (false, false),
        "header" => (true, false),
        "data" => (false, true),
        "both" => (true, true),
        _ => return Err(ModelError::new(key, text, "none, header, data or both is possible")),
    };
    Ok(Digests { header, data })
}

/// `50us`, `50us/8`, `50us/8@server`, `off`.
pub(super) fn parse_coalescing(key: &str, text: &str) -> Result<Coalescing, ModelError> {
    if text == "off" {
        return Ok(Coalescing::default());
    }
    let allowed =
        "write TIME or TIME/PACKETS, such as 50us/8; @server or @both behind it for the other side's card";
    let (times, side) = text.split_once('@').unwrap_or((text, "client"));
    let (hold, packets) = times.split_once('/').unwrap_or((times, "64"));
    let wrong = || ModelError::new(key, text, allowed);
    Ok(Coalescing {
        hold_us: time_us(key, hold)?,
        packets: packets.parse().ok().filter(|&n| n > 0).ok_or_else(wrong)?,
        side: match side {
            "client" => Side::Client,
            "server" => Side::Server,
            "both" => Side::Both,
            _ => return Err(wrong()),
        },
    })
}

/// `3/203us` for one operation in three that takes 203 us longer; `off`.
pub(super) fn parse_slow(key: &str, text: &str) -> Result<Slow, ModelError> {
    if text == "off" {
        return Ok(Slow::default());
    }
    let wrong = || ModelError::new(key, text, "write N/TIME, such as 3/203us for one in three");
    let (every, extra) = text.split_once('/').ok_or_else(wrong)?;
    let every = every.parse().ok().filter(|&n| n > 0).ok_or_else(wrong)?;
    if every > SLOW_EVERY_MAX {
        return Err(ModelError::new(key, text, "one in at most 100000 operations can be slow"));
    }
    Ok(Slow { every, extra_us: time_us(key, extra)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn setup(queue_depth: u32) -> Setup {
        Setup { queue_depth, ..Preset::named("seed-512").unwrap().setup().unwrap() }
    }

    /// Softirq and thread apart, on one CPU per side.
    fn apart() -> Setup {
        let side = |i: &str, p: &str, cpu: &str| {
            let softirq = Stage { interrupt: true, ..Stage::own(i, 6.0, 10.0).on(cpu) };
            [softirq, Stage::own(p, 9.0, 5.0).on(cpu)]
        };
        let mut stages = vec![Stage::own("W1", 1.0, 0.0)];
        stages.extend(side("SI", "SP+SK", "server CPU"));
        stages.push(Stage::own("W2", 5.0, 0.0));
        stages.extend([Stage::own("CI+CP+CK", 8.0, 10.0)]);
        Setup { ring: Ring::new(stages).unwrap(), queue_depth: 128, ..setup(128) }
    }

    #[test]
    fn every_listed_key_is_a_setting() {
        let (names, stages) = KEYS.trim_start_matches("use ").split_once(", STAGE.").unwrap();
        assert_eq!(stages, "service or STAGE.latency");
        for key in names.split(", ").chain(["SP.service", "SP.latency"]) {
            assert!(Setting::parse(key).is_some(), "{key}");
        }
        assert_eq!(Setting::parse("SP.colour"), None);
    }

    #[test]
    fn changes_are_ranked_by_gain() {
        let changes = ["bandwidth=10gbit".to_owned(), "sl=0".to_owned(), "queue-depth=32".to_owned()];
        let all = setup(4).predict(&changes).unwrap();
        assert_eq!(all.len(), 4, "each alone, and all together");
        assert!(all.windows(2).all(|w| w[0].gain >= w[1].gain));
        let gain = |change: &str| all.iter().find(|p| p.change == change).unwrap().gain;
        assert!(gain("queue-depth=32") > 2.0, "{all:?}");
        assert!(gain("sl=0") > 0.0 && gain("bandwidth=10gbit") < 0.1);
    }

    #[test]
    fn a_larger_block_makes_the_wire_the_bottleneck() {
        let after = setup(32).with("block-size=4k").unwrap();
        assert_eq!(after.ring.bottleneck().stages, "W2");
        assert!((after.ring.tpt_min_us() - Preset::link().wire().own_packets_us(4144)).abs() < 1e-9);
    }

    #[test]
    fn impossible_changes_are_rejected_by_name() {
        for (change, named) in [
            ("mtu=40", "68 to 65535"),
            ("bandwidth=0gbit", "bandwidth"),
            ("queue-depth=0", "1 to 65536"),
            ("block-size=0", "1 byte to 1G"),
            ("colour=red", "bandwidth, mtu"),
            ("XX.service=1us", "no such stage"),
            ("sl=-3us", "number"),
            ("nonsense", "KEY=VALUE"),
            ("coalescing=50us/0", "TIME/PACKETS"),
            ("coalescing=50us/8@nowhere", "@server"),
            ("slow=3", "N/TIME"),
            ("slow=100001/1s", "one in at most 100000"),
            ("nodelay=maybe", "on or off"),
            ("ip=5", "4 or 6"),
            ("digests=all", "none, header"),
            ("sends=3", "1 (a response"),
            ("sessions=0", "1 or more"),
            ("server-cpu=own", "as one sum"),
        ] {
            let error = setup(1).with(change).unwrap_err().to_string();
            assert!(error.contains(named), "{change}: {error}");
        }
    }

    #[test]
    fn nodelay_removes_the_delayed_ack_of_two_sends() {
        let nagle = Some(Nagle { sends: 2, ..Nagle::default() });
        let all =
            Setup { nagle, ..setup(4) }.predict(&["nodelay=on".to_owned(), "sends=1".to_owned()]).unwrap();
        let gain = |change: &str| all.iter().find(|p| p.change == change).unwrap().gain;
        assert!(gain("nodelay=on") > 50.0 && gain("sends=1") > 50.0, "{all:?}");
    }

    #[test]
    fn softirq_on_its_own_cpu_no_longer_counts_in_the_limit() {
        // The paper: SI + SP and max(SI, SP).
        let setup = apart();
        assert!((setup.ring.tpt_min_us() - 15.0).abs() < 1e-9);
        let own = setup.with("server-cpu=own").unwrap();
        assert!((own.ring.tpt_min_us() - 9.0).abs() < 1e-9);
        assert_eq!(own.with("server-cpu=shared").unwrap().ring, setup.ring);
        let gain = setup.predict(&["server-cpu=own".to_owned()]).unwrap()[0].gain;
        assert!((gain - (15.0 / 9.0 - 1.0)).abs() < 0.05, "{gain}");
    }

    #[test]
    fn headers_and_digests_cost_their_bytes() {
        let before = setup(64).with("block-size=64k").unwrap();
        let w2 = |s: &Setup| s.ring.stages()[2].service_us;
        for (change, bytes) in
            [("ip=6", 160.0), ("digests=both", 8.0), ("vlan=on", 32.0), ("timestamps=off", -96.0)]
        {
            let after = before.with(change).unwrap();
            assert!(
                (w2(&after) - w2(&before) - bytes * 0.008).abs() < 1e-9,
                "{change}: {}",
                w2(&after) - w2(&before)
            );
        }
    }
}
