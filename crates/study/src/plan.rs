//! Plans: what a study measures, as TOML.

use std::time::Duration;

use policy::{SendPolicy, Sending};
use record::units::parse_size;
use serde::{Deserialize, Deserializer, Serialize};

use crate::experiment::Experiment;
use crate::placement::Placement;
use crate::values::{check_common, rate, size, time, toml_error};

/// A built-in plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltIn {
    /// Its name on the command line.
    pub name: &'static str,
    /// The plan as TOML.
    pub text: &'static str,
}

/// The built-in plans.
pub const PLANS: [BuiltIn; 7] = [
    BuiltIn { name: "quick", text: include_str!("plans/quick.toml") },
    BuiltIn { name: "paper", text: include_str!("plans/paper.toml") },
    BuiltIn { name: "figures", text: include_str!("plans/figures.toml") },
    BuiltIn { name: "post", text: include_str!("plans/post.toml") },
    BuiltIn { name: "pathology", text: include_str!("plans/pathology.toml") },
    BuiltIn { name: "nagle-write", text: include_str!("plans/nagle-write.toml") },
    BuiltIn { name: "copy", text: include_str!("plans/copy.toml") },
];

/// A congestion control without pacing, which would hold responses back.
pub(crate) const CONGESTION: &str = "cubic";

/// Deepest queue of a plan.
const DEPTH_MAX: u32 = load::initiator::bench::QUEUE_DEPTH_MAX;

/// CPU time is accounted in steps of 10 ms, so that shorter runs are meaningless.
pub const SHORTEST_RUNTIME: Duration = Duration::from_millis(100);

/// A plan of either kind.
#[derive(Clone, Debug, PartialEq)]
pub enum AnyPlan {
    /// The breakdown of round trips at several sizes, send policies and depths.
    Ring(Plan),
    /// A comparison of cases that differ in one property.
    Cases(Experiment),
}

/// A study's points and how each is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its name.
    pub name: String,
    /// A description in one line.
    #[serde(default)]
    pub about: String,
    /// Read sizes, bytes.
    pub block_bytes: Vec<u64>,
    /// Depths; the first is 1, the last should saturate the ring.
    pub queue_depths: Vec<u32>,
    /// Send policies of the target, each with or without Nagle's algorithm on the client's side.
    pub policies: Vec<Sending>,
    /// Number of measurements of each point.
    #[serde(default = "once")]
    pub repeats: u32,
    /// Measured time of each run (a point has two each time: one bare, one observed).
    pub runtime: Duration,
    /// Time before it.
    pub ramp: Duration,
    /// Rate of the wire, bits per second.
    pub bits_per_second: u64,
    /// MTU of the wire, bytes.
    pub mtu_bytes: u32,
    /// TCP congestion control of both sides.
    pub congestion: String,
    /// Size of the zero disk, bytes.
    pub disk_bytes: u64,
    /// The CPUs.
    #[serde(default)]
    pub placement: Placement,
    /// Published figures of some points.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// A way to send, or a list of them.
fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Sending>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        One(String),
        More(Vec<String>),
    }
    let all = match Written::deserialize(from)? {
        Written::One(one) => vec![one],
        Written::More(all) => all,
    };
    all.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

fn once() -> u32 {
    1
}

/// The published figures of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Published {
    /// Read size.
    #[serde(deserialize_with = "size")]
    pub block: u64,
    /// Ways to send that may have given these figures: one, or several where the text leaves it open.
    #[serde(deserialize_with = "one_or_more")]
    pub send: Vec<Sending>,
    /// Queue depth.
    pub depth: u32,
    /// Operations per second.
    pub iops: Option<f64>,
    /// Mean round trip, us.
    pub rtt_us: Option<f64>,
    /// C2 - C1, us.
    pub outside_client_us: Option<f64>,
    /// S2 - S1, us.
    pub server_us: Option<f64>,
    /// Busy cycles that served 1, 2, ... requests, percent.
    #[serde(default)]
    pub busy_percent: Vec<f64>,
}

/// The TOML of a plan of a ring.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RingText {
    name: String,
    about: String,
    #[serde(deserialize_with = "rate")]
    rate: u64,
    #[serde(deserialize_with = "time")]
    runtime: Duration,
    #[serde(default = "once")]
    repeats: u32,
    ring: RingTable,
    #[serde(default)]
    placement: Placement,
    #[serde(default)]
    published: Vec<Published>,
}

/// The points.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RingTable {
    mtu: u32,
    block: Vec<String>,
    send: Vec<Sending>,
    depth: Vec<u32>,
}

impl AnyPlan {
    /// Reads a plan: a [`Plan`] if it has a `[ring]`, else an [`Experiment`] of `[[case]]`s.
    ///
    /// # Errors
    /// The first mistake, with its place.
    pub fn read(text: &str) -> Result<Self, String> {
        let table: toml::Table = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
        if table.contains_key("ring") {
            let text: RingText = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
            let blocks = text
                .ring
                .block
                .iter()
                .map(|size| parse_size(size).map_err(|error| format!("block '{size}': {error}")));
            let plan = Plan {
                name: text.name,
                about: text.about,
                block_bytes: blocks.collect::<Result<_, _>>()?,
                queue_depths: text.ring.depth,
                policies: text.ring.send,
                repeats: text.repeats,
                runtime: text.runtime,
                bits_per_second: text.rate,
                mtu_bytes: text.ring.mtu,
                placement: text.placement,
                published: text.published,
                ..Plan::quick()
            };
            return plan.complete().map(Self::Ring);
        }
        Experiment::read(text).map(Self::Cases)
    }
}

impl Plan {
    /// The default plan: the paper's sizes, at depth 1 and saturated, without and with Nagle's algorithm.
    #[must_use]
    pub fn quick() -> Self {
        Self {
            name: "quick".to_owned(),
            about: String::new(),
            block_bytes: vec![512, 2048, 4096],
            queue_depths: vec![1, 128],
            policies: vec![SendPolicy::Nodelay.into(), SendPolicy::Nagle.into()],
            repeats: 1,
            runtime: Duration::from_millis(2000),
            ramp: Duration::from_millis(300),
            bits_per_second: 1_000_000_000,
            mtu_bytes: 9000,
            congestion: CONGESTION.to_owned(),
            disk_bytes: 1 << 40,
            placement: Placement::default(),
            published: Vec::new(),
        }
    }

    /// The built-in plan of the paper's points, with its published figures.
    #[must_use]
    pub fn paper() -> Self {
        match AnyPlan::read(include_str!("plans/paper.toml")) {
            Ok(AnyPlan::Ring(plan)) => plan,
            // A test reads every built-in plan.
            Ok(AnyPlan::Cases(_)) | Err(_) => Self::quick(),
        }
    }

    /// Sorts the depths, adds 1, and checks all values.
    ///
    /// # Errors
    /// The first impossible value, and what is possible.
    pub fn complete(mut self) -> Result<Self, String> {
        self.queue_depths.push(1);
        self.queue_depths.sort_unstable();
        self.queue_depths.dedup();
        if let Some(depth) = self.queue_depths.iter().find(|depth| !(1..=DEPTH_MAX).contains(*depth)) {
            return Err(format!("depth {depth}: 1 to {DEPTH_MAX} are possible"));
        }
        let (block, most) =
            (u64::from(store::spec::BLOCK_BYTES_DEFAULT), load::initiator::bench::BLOCK_BYTES_MAX);
        let is_block = |bytes: u64| bytes > 0 && bytes.is_multiple_of(block) && bytes <= most;
        if let Some(bytes) = self.block_bytes.iter().find(|bytes| !is_block(**bytes)) {
            return Err(format!("block {bytes}: multiples of {block} B up to {most} B are possible"));
        }
        if self.block_bytes.is_empty() || self.policies.is_empty() {
            return Err("a ring has at least one block and one send".into());
        }
        if self.runtime < SHORTEST_RUNTIME {
            return Err(format!("runtime {:?}: at least {SHORTEST_RUNTIME:?} is needed", self.runtime));
        }
        check_common(self.repeats, self.mtu_bytes)?;
        Ok(self)
    }

    /// Number of points.
    #[must_use]
    pub fn points(&self) -> usize {
        self.block_bytes.len() * self.queue_depths.len() * self.policies.len()
    }

    /// The published figures of a point.
    #[must_use]
    pub fn published(&self, block_bytes: u64, policy: &str, queue_depth: u32) -> Option<&Published> {
        self.published.iter().find(|known| {
            let is_sent = known.send.iter().any(|send| send.to_string() == policy);
            known.block == block_bytes && is_sent && known.depth == queue_depth
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_plan_is_valid() {
        for BuiltIn { name, text } in PLANS {
            let read = match AnyPlan::read(text) {
                Ok(AnyPlan::Ring(plan)) => plan.name,
                Ok(AnyPlan::Cases(plan)) => plan.name,
                Err(why) => panic!("{name}: {why}"),
            };
            assert_eq!(read, name);
        }
    }

    /// Published figures stand beside measured ones: each has a point, and those with Nagle have one for each explanation.
    #[test]
    fn published_figures_have_points_of_their_own_policy() {
        let paper = PLANS.iter().find(|plan| plan.name == "paper").map(|plan| AnyPlan::read(plan.text));
        let Some(Ok(AnyPlan::Ring(plan))) = paper else { panic!("a ring") };
        for known in &plan.published {
            assert!(known.send.iter().all(|send| plan.policies.contains(send)), "{known:?}");
            assert!(
                plan.block_bytes.contains(&known.block) && plan.queue_depths.contains(&known.depth),
                "{known:?}"
            );
        }
        let cycles =
            |policy: &str, depth| plan.published(512, policy, depth).map(|known| &known.busy_percent[..]);
        // The text leaves open which of these it was.
        for explanation in ["nagle-unflushed", "nagle+client-nagle"] {
            assert_eq!(cycles(explanation, 3), Some(&[50.0, 50.0, 0.0][..]), "{explanation}");
        }
        assert_eq!(cycles("nagle", 3), None);
    }

    #[test]
    fn impossible_rings_are_rejected_by_name() {
        let text =
            |ring: &str| format!("name = 'n'\nabout = 'a'\nrate = '1gbit'\nruntime = '1s'\n[ring]\n{ring}");
        let whole = "mtu = 9000\nblock = ['4k']\nsend = ['nodelay']\ndepth = [8]";
        let AnyPlan::Ring(plan) = AnyPlan::read(&text(whole)).unwrap() else { panic!("a ring") };
        assert_eq!((plan.queue_depths, plan.block_bytes, plan.repeats), (vec![1, 8], vec![4096], 1));
        for (from, to, why) in [
            ("depth = [8]", "depth = [0]", "depth 0"),
            ("'4k'", "'100'", "multiples of 512"),
            ("'nodelay'", "'sometimes'", "sometimes"),
            ("'nodelay'", "'nodelay+nagle'", "nodelay+nagle"),
            ("mtu = 9000", "mtu = 9", "mtu = 9"),
            ("depth = [8]", "depth = [8]\ncolour = 1", "colour"),
        ] {
            let error = AnyPlan::read(&text(&whole.replace(from, to))).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
