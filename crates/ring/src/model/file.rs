//! Rings as people write them: TOML with units.

use serde::Deserialize;

use super::recursion::{Coalescing, Extras, Slow};
use super::what_if::Setup;
use super::{ModelError, Ring, Stage, check_queue_depth};
use crate::units::{UnitError, parse_bit_rate, parse_size, parse_time_ns};
use crate::wire::Wire;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    ring: RingTable,
    #[serde(default)]
    wire: WireTable,
    #[serde(default)]
    stage: Vec<StageTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct RingTable {
    block_size: String,
    queue_depth: u32,
    think: String,
    coalescing: String,
    coalescing_packets: u32,
    slow_every: u32,
    slow_extra: String,
}

impl Default for RingTable {
    fn default() -> Self {
        Self {
            block_size: "512".into(),
            queue_depth: 1,
            think: "0us".into(),
            coalescing: "0us".into(),
            coalescing_packets: 64,
            slow_every: 0,
            slow_extra: "0us".into(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct WireTable {
    bandwidth: String,
    mtu: u32,
    tcpip: u32,
    mac: u32,
}

impl Default for WireTable {
    fn default() -> Self {
        Self { bandwidth: "1gbit".into(), mtu: 9000, tcpip: 52, mac: 38 }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StageTable {
    name: String,
    service: Option<String>,
    latency: Option<String>,
    resource: Option<String>,
    #[serde(default)]
    paced: bool,
}

/// Reads a ring. W1 and W2 need no service time: it follows from the wire.
///
/// # Errors
/// When the text is no TOML of this form, or a value is impossible; the key is named.
pub fn read(text: &str) -> Result<Setup, ModelError> {
    let file: File = toml::from_str(text)
        .map_err(|e| ModelError::new("file", e.message(), "see `roundtrip model --help` for the form"))?;
    let us = |key: String, text: &str| -> Result<f64, ModelError> {
        Ok(parse_time_ns(text).map_err(|e| wrong(key, &e))? as f64 / 1000.0)
    };
    let w = &file.wire;
    let wire = Wire {
        bits_per_second: parse_bit_rate(&w.bandwidth).map_err(|e| wrong("wire.bandwidth", &e))?,
        mtu_bytes: w.mtu,
        tcpip_bytes: w.tcpip,
        mac_bytes: w.mac,
    };
    if w.mtu > 65_535 || w.mtu <= w.tcpip {
        return Err(ModelError::new(
            "wire.mtu",
            w.mtu,
            "more than the headers and at most 65535 bytes is possible",
        ));
    }
    let block_bytes = parse_size(&file.ring.block_size).map_err(|e| wrong("ring.block-size", &e))?;
    if block_bytes == 0 || block_bytes > 1 << 30 {
        return Err(ModelError::new("ring.block-size", block_bytes, "1 byte to 1G is possible"));
    }
    check_queue_depth(file.ring.queue_depth)?;
    let stages = file
        .stage
        .iter()
        .map(|s| {
            let service_us = match (&s.service, s.name.as_str()) {
                (Some(text), _) => us(format!("{}.service", s.name), text)?,
                (None, "W1") => wire.own_packets_us(48),
                (None, "W2") => wire.own_packets_us(block_bytes + 48),
                (None, name) => {
                    return Err(ModelError::new(
                        format!("{name}.service"),
                        "nothing",
                        "only W1 and W2 follow from the wire",
                    ));
                }
            };
            let start_latency_us = us(format!("{}.latency", s.name), s.latency.as_deref().unwrap_or("0us"))?;
            let resource = s.resource.clone().unwrap_or_else(|| s.name.clone());
            Ok(Stage { name: s.name.clone(), service_us, start_latency_us, resource, paced: s.paced })
        })
        .collect::<Result<Vec<_>, _>>()?;
    if stages.is_empty() {
        return Err(ModelError::new("stage", "none", "write at least one [[stage]]"));
    }
    let extras = Extras {
        think_us: us("ring.think".into(), &file.ring.think)?,
        coalescing: Coalescing {
            hold_us: us("ring.coalescing".into(), &file.ring.coalescing)?,
            packets: file.ring.coalescing_packets,
        },
        slow: Slow {
            every: file.ring.slow_every,
            extra_us: us("ring.slow-extra".into(), &file.ring.slow_extra)?,
        },
    };
    Ok(Setup { ring: Ring::new(stages)?, wire, block_bytes, queue_depth: file.ring.queue_depth, extras })
}

fn wrong(key: impl Into<String>, error: &UnitError) -> ModelError {
    ModelError::new(key, error, "see its units")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [wire]
        bandwidth = "1gbit"
        mtu = 9000
        [ring]
        block-size = "512"
        queue-depth = 4
        [[stage]]
        name = "W1"
        latency = "102.25us"
        [[stage]]
        name = "SP"
        service = "15.9us"
        latency = "16.7us"
        [[stage]]
        name = "W2"
        latency = "102.25us"
        [[stage]]
        name = "CP"
        service = "8.6us"
        latency = "23.7us"
    "#;

    #[test]
    fn a_file_gives_the_published_run() {
        let setup = read(GOOD).unwrap();
        assert_eq!(setup.queue_depth, 4);
        assert!((setup.ring.rtt_alone_us() - 275.7).abs() < 0.06, "{}", setup.ring.rtt_alone_us());
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (from, to, named) in [
            ("mtu = 9000", "mtu = 40", "wire.mtu = 40"),
            ("1gbit", "0gbit", "wire.bandwidth"),
            ("\"512\"", "\"0\"", "ring.block-size = 0"),
            ("queue-depth = 4", "queue-depth = 0", "queue-depth = 0"),
            ("15.9us", "-1us", "SP.service"),
            ("service = \"8.6us\"", "colour = \"red\"", "colour"),
            ("service = \"8.6us\"", "", "CP.service = nothing"),
        ] {
            let error = read(&GOOD.replace(from, to)).unwrap_err().to_string();
            assert!(error.contains(named), "{named}: {error}");
        }
        assert!(read("").unwrap_err().to_string().contains("[[stage]]"));
        assert!(read("nonsense").is_err());
    }
}
