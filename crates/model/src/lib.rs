//! The analytic model of any ring of stages: identities, bounds, knee, band, exact behaviour.
//!
//! A ring is a list of stages in flow order. Each has a service time, a start latency and a resource it
//! runs on; stages of one resource (a CPU, a direction of the wire) run serially. The paper's four- and
//! eight-stage rings are lists of this kind.
//!
//! [`Ring`] is the entry for a ring whose times are known: [`Ring::new`] checks it once, and every other call takes a
//! valid ring, reads it and may be made in any order. [`setup::Setup`] adds the wire, the messages, Nagle's algorithm
//! and several sessions, and its [`outcome`](setup::Setup::outcome) chooses between the computations below.
//! [`calibrate`] makes a ring from two measured runs, [`file`](mod@file) reads any of these from text.
//!
//! ```
//! use model::extras::Extras;
//! use model::{Ring, Stage};
//!
//! # fn main() -> Result<(), model::ModelError> {
//! let ring = Ring::new(vec![
//!     Stage::own("W1", 1.1, 10.0),
//!     Stage::own("SP", 15.9, 16.7),
//!     Stage::own("W2", 5.2, 10.0),
//!     Stage::own("CP", 8.6, 23.7),
//! ])?;
//! // One operation pays every service time and every start latency.
//! assert!((ring.rtt_alone_us() - 91.2).abs() < 1e-9);
//! // The server thread limits the ring to 1 / 15.9 us from queue depth 4.7.
//! assert_eq!(ring.bottleneck().stages, "SP");
//! assert!((ring.knee() - 4.69).abs() < 0.01);
//! // The exact behaviour lies in the guaranteed band at every queue depth.
//! let (band, exact) = (ring.band(3)?, ring.exact(3, &Extras::default())?);
//! assert!(band.low <= exact.iops_low && exact.iops_high <= band.high * 1.001);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

pub mod bound;
pub mod calibrate;
mod events;
pub mod exact;
pub mod extras;
pub mod file;
mod gate;
pub mod known;
pub mod known_zero;
pub mod mva;
pub mod nagle;
pub mod preset;
mod recursion;
mod run;
pub mod setup;
pub mod terms;
pub mod transfer;
pub mod what_if;

pub use bound::Bound;
pub use known::Known;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::bound::knee;

/// A model that a file or a preset describes.
#[derive(Clone, Debug, PartialEq)]
pub enum Model {
    /// Requests and responses round a ring.
    Ring(Box<setup::Setup>),
    /// A bulk copy.
    Copy(transfer::CopyModel),
    /// A request in two segments.
    Post(transfer::Post),
}

/// Longest service time or latency that is accepted, microseconds: ten minutes.
pub const TIME_US_MAX: f64 = 6e8;
/// Most stages of a ring.
pub const STAGES_MAX: usize = 64;
/// Deepest queue.
pub const QUEUE_DEPTH_MAX: u32 = 65_536;

/// One stage: one queue and one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// Its name, such as `SP` or `W2`. The first letter is the stage's [`Role`].
    pub name: String,
    /// Time for one operation, microseconds.
    pub service_us: f64,
    /// Time from an arrival at the idle stage until it begins, microseconds.
    pub start_latency_us: f64,
    /// The resource that it runs on: stages with the same resource run serially.
    pub resource: String,
    /// A pacer (a token bucket, a rate limit): keeps operations `service_us` apart; one that arrives later
    /// than that passes without delay. Its service time limits the rate and is not part of an undisturbed round trip.
    #[serde(default)]
    pub paced: bool,
    /// Runs at interrupt level: it preempts the other stages of its resource.
    #[serde(default)]
    pub interrupt: bool,
    /// The part of the service time that each received packet costs once, microseconds: messages that Nagle's algorithm
    /// collects in one packet share it. On the wire, its headers.
    #[serde(default)]
    pub per_received_us: f64,
    /// The same of each sent packet.
    #[serde(default)]
    pub per_sent_us: f64,
    /// Uncertainty of the service time, either way, microseconds; 0 for a time that was given and not measured.
    #[serde(default)]
    pub service_within_us: f64,
    /// Uncertainty of the start latency.
    #[serde(default)]
    pub latency_within_us: f64,
}

impl Stage {
    /// A stage on a resource of its own.
    #[must_use]
    pub fn own(name: &str, service_us: f64, start_latency_us: f64) -> Self {
        Self {
            name: name.to_owned(),
            service_us,
            start_latency_us,
            resource: name.to_owned(),
            paced: false,
            interrupt: false,
            per_received_us: 0.0,
            per_sent_us: 0.0,
            service_within_us: 0.0,
            latency_within_us: 0.0,
        }
    }

    /// A pacer on a resource of its own.
    #[must_use]
    pub fn pacer(name: &str, spacing_us: f64) -> Self {
        Self { paced: true, ..Self::own(name, spacing_us, 0.0) }
    }

    /// The same stage with uncertainties, microseconds.
    #[must_use]
    pub fn known_within(self, service_us: f64, latency_us: f64) -> Self {
        Self { service_within_us: service_us, latency_within_us: latency_us, ..self }
    }

    /// The same stage with the parts of its service time that each received and each sent packet costs once, microseconds.
    #[must_use]
    pub fn per_packet(self, received_us: f64, sent_us: f64) -> Self {
        Self { per_received_us: received_us, per_sent_us: sent_us, ..self }
    }

    /// Service time of an operation whose message came as one of `received` in a packet and leaves as one of `sent`,
    /// microseconds.
    #[must_use]
    pub fn packed_us(&self, received: f64, sent: f64) -> f64 {
        let saved = |us: f64, together: f64| us * (1.0 - 1.0 / together.max(1.0));
        self.service_us - saved(self.per_received_us, received) - saved(self.per_sent_us, sent)
    }

    /// Time of an undisturbed operation in the stage without start latency, microseconds.
    #[must_use]
    pub fn way_us(&self) -> f64 {
        if self.paced { 0.0 } else { self.service_us }
    }

    /// Its role, by its name.
    #[must_use]
    pub fn role(&self) -> Role {
        Role::of(&self.name)
    }

    /// The same stage on a named resource.
    #[must_use]
    pub fn on(self, resource: &str) -> Self {
        Self { resource: resource.to_owned(), ..self }
    }
}

/// The part of a ring that a stage belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The server's host: `SI`, `SP`, `SK`.
    Server,
    /// The client's host: `CI`, `CP`, `CK`.
    Client,
    /// The wire: `W1`, `W2`.
    Wire,
    /// Any other name.
    Other,
}

impl Role {
    /// The role of the stage, or of the first of several stages joined by `+`.
    #[must_use]
    pub fn of(stages: &str) -> Self {
        match stages.as_bytes().first() {
            Some(b'S') => Self::Server,
            Some(b'C') => Self::Client,
            Some(b'W') => Self::Wire,
            _ => Self::Other,
        }
    }
}

/// A value that no ring can have.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{key} = {given}: {allowed}")]
pub struct ModelError {
    /// The key of the value.
    pub key: String,
    /// The given value.
    pub given: String,
    /// The possible values.
    pub allowed: &'static str,
}

impl ModelError {
    pub(crate) fn new(key: impl Into<String>, given: impl std::fmt::Display, allowed: &'static str) -> Self {
        Self { key: key.into(), given: given.to_string(), allowed }
    }
}

/// A valid ring.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ring {
    stages: Vec<Stage>,
}

/// The work of one resource per operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Load {
    /// The resource.
    pub resource: String,
    /// Its stages, such as `SI+SP+SK`.
    pub stages: String,
    /// Their service times together, microseconds.
    pub service_us: f64,
}

/// How busy a resource is.
#[derive(Clone, Debug, PartialEq)]
pub struct Utilisation {
    /// The resource and its work.
    pub load: Load,
    /// Share of the time that it works, 0 to 1.
    pub share: f64,
}

/// An end of the range that measured times are known to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// Every time at its greatest.
    Slow,
    /// Every time at its least.
    Fast,
}

/// Throughput that no start phase can fall below or exceed, operations per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Band {
    /// min(QD / sum(P + L), 1 / max P); where a shared resource's order is not determined, 1 / sum(P + L).
    pub low: f64,
    /// min(QD / sum P, 1 / max P).
    pub high: f64,
}

impl Load {
    /// The role of its first stage.
    #[must_use]
    pub fn role(&self) -> Role {
        Role::of(&self.stages)
    }
}

impl Ring {
    /// A ring of these stages, in flow order.
    ///
    /// # Errors
    /// When a time is negative or above [`TIME_US_MAX`], there is no stage or more than [`STAGES_MAX`], or no stage takes
    /// any time.
    pub fn new(stages: Vec<Stage>) -> Result<Self, ModelError> {
        if stages.is_empty() || stages.len() > STAGES_MAX {
            return Err(ModelError::new("stages", stages.len(), "a ring has 1 to 64 stages"));
        }
        let time = "0 to 600s is possible";
        for stage in &stages {
            let range = 0.0..=TIME_US_MAX;
            if !range.contains(&stage.service_us) {
                return Err(ModelError::new(format!("{}.service", stage.name), stage.service_us, time));
            }
            if !range.contains(&stage.start_latency_us) {
                return Err(ModelError::new(format!("{}.latency", stage.name), stage.start_latency_us, time));
            }
            for (key, us) in [("received", stage.per_received_us), ("sent", stage.per_sent_us)] {
                if !(us >= 0.0
                    && stage.per_received_us + stage.per_sent_us <= stage.service_us * (1.0 + 1e-9))
                {
                    let key = format!("{}.per-packet-{key}", stage.name);
                    return Err(ModelError::new(key, us, "parts of the service time are possible"));
                }
            }
        }
        if stages.iter().all(|s| s.service_us == 0.0) {
            return Err(ModelError::new("service", 0, "at least one stage must take time"));
        }
        Ok(Self { stages })
    }

    /// The ring with every time at one end of its uncertainty.
    #[must_use]
    pub fn at_edge(&self, edge: Edge) -> Ring {
        let sign = match edge {
            Edge::Slow => 1.0,
            Edge::Fast => -1.0,
        };
        let edge = |value: f64, within: f64| (value + sign * within).max(0.0);
        let stages = self.stages.iter().map(|s| {
            let service_us = edge(s.service_us, s.service_within_us);
            // The parts of a packet keep their share.
            let share = if s.service_us > 0.0 { service_us / s.service_us } else { 0.0 };
            Stage {
                service_us,
                per_received_us: s.per_received_us * share,
                per_sent_us: s.per_sent_us * share,
                start_latency_us: edge(s.start_latency_us, s.latency_within_us),
                ..s.clone()
            }
        });
        Ring { stages: stages.collect() }
    }

    /// Whether any of its times has an uncertainty.
    #[must_use]
    pub fn is_uncertain(&self) -> bool {
        self.stages.iter().any(|s| s.service_within_us > 0.0 || s.latency_within_us > 0.0)
    }

    /// The stages, in flow order.
    #[must_use]
    pub fn stages(&self) -> &[Stage] {
        &self.stages
    }

    /// RTTmin: the round trip without queueing and without start latencies, microseconds.
    #[must_use]
    pub fn rtt_min_us(&self) -> f64 {
        self.stages.iter().map(Stage::way_us).sum()
    }

    /// All start latencies, microseconds; at queue depth 1 every operation pays them all.
    #[must_use]
    pub fn latencies_us(&self) -> f64 {
        self.stages.iter().map(|s| s.start_latency_us).sum()
    }

    /// RTT at queue depth 1, microseconds.
    #[must_use]
    pub fn rtt_alone_us(&self) -> f64 {
        self.rtt_min_us() + self.latencies_us()
    }

    /// The work of each resource per operation, in order of first appearance.
    #[must_use]
    pub fn loads(&self) -> Vec<Load> {
        let mut loads: Vec<Load> = Vec::new();
        for stage in &self.stages {
            match loads.iter_mut().find(|l| l.resource == stage.resource) {
                Some(load) => {
                    load.stages.push('+');
                    load.stages.push_str(&stage.name);
                    load.service_us += stage.service_us;
                }
                None => loads.push(Load {
                    resource: stage.resource.clone(),
                    stages: stage.name.clone(),
                    service_us: stage.service_us,
                }),
            }
        }
        loads
    }

    /// The resource that limits the ring; its service time is TPTmin.
    #[must_use]
    pub fn bottleneck(&self) -> Load {
        let first = Load { resource: String::new(), stages: String::new(), service_us: f64::MIN };
        self.loads().into_iter().fold(first, |best, l| if l.service_us > best.service_us { l } else { best })
    }

    /// TPTmin, microseconds.
    #[must_use]
    pub fn tpt_min_us(&self) -> f64 {
        self.bottleneck().service_us
    }

    /// Greatest throughput, operations per second: 1 / TPTmin.
    #[must_use]
    pub fn iops_max(&self) -> f64 {
        1e6 / self.tpt_min_us()
    }

    /// The queue depth from which the ring stays at its limit: the paper's [1] and [2] as one formula, [`bound::knee`].
    #[must_use]
    pub fn knee(&self) -> f64 {
        let bottleneck = self.bottleneck();
        let others: f64 = self
            .stages
            .iter()
            .filter(|s| s.resource != bottleneck.resource)
            .map(|s| s.start_latency_us)
            .sum();
        knee(self.rtt_min_us(), others, bottleneck.service_us)
    }

    /// The guaranteed band of throughput at a queue depth.
    ///
    /// Where stages that share a resource cannot be merged, or one interrupts another, delayed work can starve the rest of
    /// the ring: then the only guarantee is that one operation at a time makes progress.
    ///
    /// # Errors
    /// When the queue depth is not possible.
    pub fn band(&self, queue_depth: u32) -> Result<Band, ModelError> {
        check_queue_depth(queue_depth)?;
        let (depth, limit) = (f64::from(queue_depth) * 1e6, self.iops_max());
        let low = if self.is_orderly() {
            (depth / self.rtt_alone_us()).min(limit)
        } else {
            let spacing: f64 = self.stages.iter().filter(|s| s.paced).map(|s| s.service_us).sum();
            1e6 / (self.rtt_alone_us() + spacing)
        };
        Ok(Band { low: low.min(limit), high: (depth / self.rtt_min_us()).min(limit) })
    }

    /// Whether operations are served in order everywhere: no stage preempts another, and those that share a resource follow
    /// each other.
    #[must_use]
    pub fn is_orderly(&self) -> bool {
        self.merged().is_some() && !self.stages.iter().any(|s| s.interrupt)
    }

    /// How busy each resource is at a throughput, 0 to 1.
    #[must_use]
    pub fn utilisation(&self, iops: f64) -> Vec<Utilisation> {
        self.loads()
            .into_iter()
            .map(|load| {
                let share = iops * load.service_us / 1e6;
                Utilisation { load, share }
            })
            .collect()
    }

    /// The ring with consecutive stages of one resource merged into one, as the paper treats a thread and the softirq on
    /// its CPU. `None` when stages of one resource are not consecutive (around the ring): this model does not determine
    /// their order of service.
    #[must_use]
    pub fn merged(&self) -> Option<Ring> {
        let mut stages: Vec<Stage> = Vec::new();
        for stage in &self.stages {
            match stages.last_mut() {
                Some(last) if last.resource == stage.resource && !last.paced && !stage.paced => {
                    merge(last, stage);
                }
                _ => stages.push(stage.clone()),
            }
        }
        // Around the ring alike: the last stage is followed by the first.
        if let [first, .., last] = stages.as_slice()
            && first.resource == last.resource
            && !first.paced
            && !last.paced
        {
            let first = stages.remove(0);
            if let Some(last) = stages.last_mut() {
                merge(last, &first);
            }
        }
        let all_own =
            stages.iter().enumerate().all(|(i, s)| stages[..i].iter().all(|t| t.resource != s.resource));
        all_own.then_some(Ring { stages })
    }
}

fn merge(into: &mut Stage, stage: &Stage) {
    into.name = format!("{}+{}", into.name, stage.name);
    into.service_us += stage.service_us;
    into.start_latency_us += stage.start_latency_us;
    into.per_received_us += stage.per_received_us;
    into.per_sent_us += stage.per_sent_us;
    into.interrupt |= stage.interrupt;
    into.service_within_us = into.service_within_us.hypot(stage.service_within_us);
    into.latency_within_us = into.latency_within_us.hypot(stage.latency_within_us);
}

pub(crate) fn check_queue_depth(queue_depth: u32) -> Result<(), ModelError> {
    if queue_depth == 0 || queue_depth > QUEUE_DEPTH_MAX {
        return Err(ModelError::new("queue-depth", queue_depth, "1 to 65536 is possible"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn four() -> Ring {
        Ring::new(vec![
            Stage::own("W1", 1.1, 10.0),
            Stage::own("SP", 15.9, 16.7),
            Stage::own("W2", 5.2, 10.0),
            Stage::own("CP", 8.6, 23.7),
        ])
        .unwrap()
    }

    #[test]
    fn the_four_stage_ring_has_the_paper_s_identities() {
        let ring = four();
        assert!((ring.rtt_min_us() - 30.8).abs() < 1e-9);
        assert_eq!(ring.bottleneck().stages, "SP");
        // "peak about 63,000 IOPS (TPT 15.9 us)"
        assert!((ring.iops_max() - 62_893.0).abs() < 1.0);
        // [2] with the latencies of the other stages: (RTTmin + CL + CT+SR + ST+CR) / SP.
        assert!((ring.knee() - (30.8 + 43.7) / 15.9).abs() < 1e-9);
        let band = ring.band(1).unwrap();
        assert!((band.low - 1e6 / 91.2).abs() < 1e-6 && band.low <= band.high);
    }

    #[test]
    fn consecutive_stages_of_one_cpu_are_merged() {
        let ring = Ring::new(vec![
            Stage::own("CK", 1.0, 0.0).on("client"),
            Stage::own("W1", 1.0, 2.0),
            Stage::own("SI", 4.0, 1.0).on("server"),
            Stage::own("SP", 9.0, 5.0).on("server"),
            Stage::own("W2", 5.0, 2.0),
            Stage::own("CI", 2.0, 1.0).on("client"),
            Stage::own("CP", 3.0, 5.0).on("client"),
        ])
        .unwrap();
        assert_eq!((ring.bottleneck().stages.as_str(), ring.tpt_min_us()), ("SI+SP", 13.0));
        let merged = ring.merged().unwrap();
        let names: Vec<&str> = merged.stages().iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["W1", "SI+SP", "W2", "CI+CP+CK"], "also around the end of the ring");
        assert!((merged.rtt_alone_us() - ring.rtt_alone_us()).abs() < 1e-9);
        // Client and server on one CPU: their stages do not follow each other.
        let one_cpu = Ring::new(vec![
            Stage::own("W1", 1.0, 0.0),
            Stage::own("SP", 2.0, 0.0).on("cpu"),
            Stage::own("W2", 1.0, 0.0),
            Stage::own("CP", 2.0, 0.0).on("cpu"),
        ])
        .unwrap();
        assert_eq!(one_cpu.merged(), None);
        assert!((one_cpu.tpt_min_us() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn impossible_values_are_rejected_by_name() {
        let text = |stages| Ring::new(stages).unwrap_err().to_string();
        assert!(text(vec![]).contains("1 to 64 stages"));
        assert!(text(vec![Stage::own("SP", -1.0, 0.0)]).contains("SP.service = -1"));
        assert!(text(vec![Stage::own("SP", 1.0, f64::NAN)]).contains("SP.latency = NaN"));
        assert!(text(vec![Stage::own("SP", 0.0, 1.0)]).contains("at least one stage"));
        assert!(four().band(0).unwrap_err().to_string().contains("queue-depth = 0"));
    }
}
