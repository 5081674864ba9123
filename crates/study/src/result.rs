//! The result of a study.

use analysis::stanza::from_stanzas;
use analysis::{ClosureOutcome, Stanza};
use model::ModelError;
use model::calibrate::Calibrated;
use model::setup::{Nagle, Setup};
use policy::{SendPolicy, Sending};
use record::wire::{Link, Messages};
use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::plan::Plan;
use crate::sides::Sides;

/// The observer of the four capture points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observation {
    /// Packets, on the interfaces.
    Packets,
    /// The kernel's stamps on both sides' own sockets.
    SocketStamps,
}

/// A study's result: study.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StudyResult {
    /// Version of this layout.
    pub format: u32,
    /// When it began, seconds since the epoch.
    pub began_unix_seconds: u64,
    /// Duration, seconds.
    pub seconds: f64,
    /// The machine; the server's host where there are two.
    pub machine: Machine,
    /// The client's machine, where it is another.
    #[serde(default)]
    pub client_machine: Option<Machine>,
    /// The plan.
    pub plan: Plan,
    /// Whether there was a wire between two namespaces, or loopback.
    pub wire: bool,
    /// The observer of the capture points.
    pub observation: Observation,
    /// TCP congestion control of both sides; absent where the system's default was kept.
    pub congestion: Option<String>,
    /// CPUs of client and server; equal where there is only one.
    pub cpus: Sides<usize>,
    /// Limits of accuracy, disturbances, points that do not close.
    pub warnings: Vec<String>,
    /// The points.
    pub stanzas: Vec<Stanza>,
}

impl StudyResult {
    /// The measured ring of one size and policy (the first where none is given) as a model, calibrated from its
    /// queue depth 1 run and its saturated run alone.
    ///
    /// # Errors
    /// When the study has no such runs, or they make no ring.
    pub fn setup(&self, block_bytes: Option<u64>, policy: Option<&str>) -> Result<Setup, ModelError> {
        let wanted = |s: &&Stanza| {
            block_bytes.is_none_or(|b| b == s.block_size_bytes) && policy.is_none_or(|p| p == s.policy)
        };
        let first = self.stanzas.iter().find(wanted).ok_or_else(|| ModelError {
            key: "study".to_owned(),
            given: format!("no runs of {} B, {}", block_bytes.unwrap_or(0), policy.unwrap_or("any policy")),
            allowed: "choose a block size and a send policy that it measured",
        })?;
        let group = self
            .stanzas
            .iter()
            .filter(|s| s.block_size_bytes == first.block_size_bytes && s.policy == first.policy);
        let link = Link::ethernet(self.plan.bits_per_second, self.plan.mtu_bytes);
        let sending = first.policy.parse().unwrap_or_else(|_| SendPolicy::default().into());
        let in_place = |calibrated| setup_of(calibrated, link, first.block_size_bytes, sending);
        from_stanzas(group, &in_place)
    }

    /// Whether the breakdown of a depth is shown: the first and the last depth of a study with many.
    #[must_use]
    pub fn is_end(&self, queue_depth: u32) -> bool {
        let depths = &self.plan.queue_depths;
        depths.len() <= 3 || depths.first() == Some(&queue_depth) || depths.last() == Some(&queue_depth)
    }

    /// The points with this outcome of their closure.
    pub fn with(&self, outcome: ClosureOutcome) -> impl Iterator<Item = &Stanza> {
        self.stanzas.iter().filter(move |stanza| stanza.closure.outcome == outcome)
    }
}

/// The setup of a measured ring: its wire, its messages and its send policies.
///
/// # Errors
/// When the wire is impossible.
pub(crate) fn setup_of(
    calibrated: Calibrated,
    link: Link,
    block_bytes: u64,
    Sending { policy, client_nagle }: Sending,
) -> Result<Setup, ModelError> {
    let messages = Messages::read(block_bytes);
    let nagle = |flushes_when_idle| Some(Nagle { flushes_when_idle, ..Nagle::default() });
    let mut setup = Setup {
        terms: Some(calibrated.terms),
        nagle: match policy {
            SendPolicy::Nagle => nagle(true),
            policy if policy == SendPolicy::NAGLE_UNFLUSHED => nagle(false),
            _ => None,
        },
        client_nagle: nagle(false).filter(|_| client_nagle),
        ..Setup::new(calibrated.ring, link, messages)
    };
    if setup.nagle.is_some() || setup.client_nagle.is_some() {
        // The measured ring has the packets as they were seen; with Nagle's algorithm the setup decides who shares one.
        setup.rewire(link, messages)?;
    }
    Ok(setup)
}
