//! Counterfactuals: what another setting would do to throughput and round trip.

use serde::Serialize;

use super::recursion::Extras;
use super::{ModelError, Ring, Stage, check_queue_depth};
use crate::units::{parse_bit_rate, parse_size, parse_time_ns};
use crate::wire::Wire;

/// A ring with what its stages' times follow from, so that settings can be changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The stages.
    pub ring: Ring,
    /// The wire.
    pub wire: Wire,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Queue depth that predictions are made for.
    pub queue_depth: u32,
    /// Everything that is no stage.
    pub extras: Extras,
}

/// One prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// `mtu=1500`, or several with commas.
    pub change: String,
    /// Operations per second before and after.
    pub iops_before: f64,
    /// See `iops_before`.
    pub iops_after: f64,
    /// Round trip before and after, microseconds.
    pub rtt_us_before: f64,
    /// See `rtt_us_before`.
    pub rtt_us_after: f64,
    /// The bottleneck after the change.
    pub bottleneck_after: String,
    /// `iops_after / iops_before - 1`.
    pub gain: f64,
}

/// The settings that can be changed.
pub const KEYS: &str = "bandwidth, mtu, block-size, queue-depth, think, coalescing, or STAGE.service and STAGE.latency; sl and cl for \
                        the threads' latencies";

impl Setup {
    /// The same with one setting changed: `key=value`.
    ///
    /// # Errors
    /// When there is no such setting, or the value is impossible.
    pub fn with(&self, change: &str) -> Result<Self, ModelError> {
        let (key, value) =
            change.split_once('=').ok_or_else(|| ModelError::new("what-if", change, "write KEY=VALUE"))?;
        let mut setup = self.clone();
        let wrong = |e: crate::units::UnitError| ModelError::new(key, e, "see its units");
        match key {
            "bandwidth" => {
                let wire = Wire { bits_per_second: parse_bit_rate(value).map_err(wrong)?, ..self.wire };
                setup.rewire(wire, self.block_bytes)?;
            }
            "mtu" => {
                let mtu: u32 = value
                    .parse()
                    .map_err(|_| ModelError::new(key, value, "68 to 65535 bytes is possible"))?;
                if mtu <= self.wire.tcpip_bytes || !(68..=65_535).contains(&mtu) {
                    return Err(ModelError::new(key, value, "68 to 65535 bytes is possible"));
                }
                setup.rewire(Wire { mtu_bytes: mtu, ..self.wire }, self.block_bytes)?;
            }
            "block-size" => {
                let bytes = parse_size(value).map_err(wrong)?;
                if bytes == 0 || bytes > 1 << 30 {
                    return Err(ModelError::new(key, value, "1 byte to 1G is possible"));
                }
                setup.rewire(self.wire, bytes)?;
            }
            "queue-depth" => {
                setup.queue_depth =
                    value.parse().map_err(|_| ModelError::new(key, value, "1 to 65536 is possible"))?;
                check_queue_depth(setup.queue_depth)?;
            }
            "think" => setup.extras.think_us = parse_time_ns(value).map_err(wrong)? as f64 / 1000.0,
            "coalescing" => {
                let (hold, packets) = value.split_once('/').unwrap_or((value, "64"));
                setup.extras.coalescing.hold_us = parse_time_ns(hold).map_err(wrong)? as f64 / 1000.0;
                setup.extras.coalescing.packets =
                    packets.parse().ok().filter(|&n| n > 0).ok_or_else(|| {
                        ModelError::new(key, value, "write TIME or TIME/PACKETS, such as 50us/8")
                    })?;
            }
            "sl" => setup.change("S", true, value)?,
            "cl" => setup.change("C", true, value)?,
            _ => match key.split_once('.') {
                Some((stage, "service")) => setup.change(stage, false, value)?,
                Some((stage, "latency")) => setup.change(stage, true, value)?,
                _ => return Err(ModelError::new("what-if", key, KEYS)),
            },
        }
        Ok(setup)
    }

    /// Sets a time of the stages of that name, or, for `S` and `C`, of the CPU stages of that side.
    fn change(&mut self, name: &str, latency: bool, value: &str) -> Result<(), ModelError> {
        let us = match value {
            "0" => 0.0,
            _ => parse_time_ns(value).map_err(|e| ModelError::new(name, e, "see its units"))? as f64 / 1000.0,
        };
        let mut stages = self.ring.stages().to_vec();
        let mut found = false;
        for stage in
            stages.iter_mut().filter(|s| s.name == name || (name.len() == 1 && s.name.starts_with(name)))
        {
            found = true;
            *(if latency { &mut stage.start_latency_us } else { &mut stage.service_us }) = us;
        }
        if !found {
            return Err(ModelError::new("what-if", name, "there is no such stage in this ring"));
        }
        self.ring = Ring::new(stages)?;
        Ok(())
    }

    /// Another wire or size: W1 and W2 follow by arithmetic; CPU work is taken as it was (its part that grows
    /// with the size is not known from one run).
    fn rewire(&mut self, wire: Wire, block_bytes: u64) -> Result<(), ModelError> {
        let stages = self
            .ring
            .stages()
            .iter()
            .map(|s| match s.name.as_str() {
                "W1" => Stage { service_us: wire.own_packets_us(48), ..s.clone() },
                "W2" => Stage { service_us: wire.own_packets_us(block_bytes + 48), ..s.clone() },
                _ => s.clone(),
            })
            .collect();
        self.ring = Ring::new(stages)?;
        self.wire = wire;
        self.block_bytes = block_bytes;
        Ok(())
    }

    /// Predicts each change by itself, and all together where there are several; the greatest gain first.
    ///
    /// # Errors
    /// When a change is impossible.
    pub fn predict(&self, changes: &[String]) -> Result<Vec<Prediction>, ModelError> {
        let before = self.ring.exact(self.queue_depth, &self.extras)?;
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
                let after = setup.ring.exact(setup.queue_depth, &setup.extras)?;
                Ok(Prediction {
                    change,
                    iops_before: before.iops,
                    iops_after: after.iops,
                    rtt_us_before: before.rtt_us,
                    rtt_us_after: after.rtt_us,
                    bottleneck_after: setup.ring.bottleneck().stages,
                    gain: after.iops / before.iops - 1.0,
                })
            })
            .collect::<Result<Vec<_>, ModelError>>()?;
        all.sort_by(|a, b| b.gain.total_cmp(&a.gain));
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::preset::Preset;

    fn setup(queue_depth: u32) -> Setup {
        let preset = Preset::named("seed-512").unwrap();
        Setup {
            ring: preset.ring().unwrap(),
            wire: Preset::wire(),
            block_bytes: preset.block_bytes,
            queue_depth,
            extras: Extras::default(),
        }
    }

    #[test]
    fn changes_are_ranked_by_what_they_gain() {
        let changes = ["bandwidth=10gbit".to_owned(), "sl=0".to_owned(), "queue-depth=32".to_owned()];
        let all = setup(4).predict(&changes).unwrap();
        assert_eq!(all.len(), 4, "each by itself, and all together");
        assert!(all.windows(2).all(|w| w[0].gain >= w[1].gain));
        let gain = |change: &str| all.iter().find(|p| p.change == change).unwrap().gain;
        assert!(gain("queue-depth=32") > 2.0, "{all:?}");
        assert!(gain("sl=0") > 0.0 && gain("bandwidth=10gbit") < 0.1);
    }

    #[test]
    fn a_larger_block_makes_the_wire_the_bottleneck() {
        let after = setup(32).with("block-size=4k").unwrap();
        assert_eq!(after.ring.bottleneck().stages, "W2");
        assert!((after.ring.tpt_min_us() - Preset::wire().own_packets_us(4144)).abs() < 1e-9);
    }

    #[test]
    fn impossible_changes_are_refused_by_name() {
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
        ] {
            let error = setup(1).with(change).unwrap_err().to_string();
            assert!(error.contains(named), "{change}: {error}");
        }
    }
}
