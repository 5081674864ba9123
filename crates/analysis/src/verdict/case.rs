//! The input of the verdicts: the evidence, the stanzas, the link and the losses of the capture.

use record::ConnectionFacts;
use serde::{Deserialize, Serialize};

use super::evidence::Evidence;
use super::remedy::remedies;
use super::{Frames, Gain, Verdict, VerdictKind};
use crate::traffic::TrafficStanza;

/// Fewest operations, or events, that are a habit and no accident.
pub(super) const HABIT: u64 = 20;

/// A link whose rate is known.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Bits per second, each way.
    pub bits_per_second: f64,
    /// Share of it that full frames leave for messages.
    pub efficiency: f64,
    /// The same for the packets of client and server that passed: small ones leave less.
    pub passed: [f64; 2],
}

/// Losses of the capture itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureLoss {
    /// Holes in streams whose bytes had arrived: the capture lost them.
    pub holes: u64,
    /// Bytes in them.
    pub hole_bytes: u64,
    /// Operations that may be missing because of them.
    pub operations: u64,
    /// Holes that may have cost any number of further operations.
    #[serde(default)]
    pub unknown_holes: u64,
    /// Packets that the capturing system reports as dropped.
    pub drops: u64,
}

/// The input of the verdicts.
#[derive(Debug)]
pub struct Case<'a> {
    /// The gathered evidence.
    pub evidence: &'a Evidence,
    /// The stanzas.
    pub stanzas: &'a [TrafficStanza],
    /// The link, if its rate is known.
    pub link: Option<Link>,
    /// Busy share of the busiest CPU of the client and of the server, if known.
    pub cpu_busy: Option<(f64, f64)>,
    /// Losses of the capture.
    pub loss: CaptureLoss,
    /// The input that each capture point's frames are numbered in.
    pub inputs: &'a [u32],
}

impl Case<'_> {
    /// A verdict with its share and its remedies.
    pub(super) fn verdict(
        &self,
        kind: VerdictKind,
        operations: u64,
        cost_us: f64,
        frames: Frames,
        text: String,
        gain: Option<Gain>,
    ) -> Verdict {
        let all = self.evidence.operations.max(operations).max(1) as f64;
        let share = (operations as f64 / all).min(1.0);
        let remedy = remedies(kind);
        let (weight, pauses_us) = (0.0, 0.0);
        Verdict { kind, operations, share, cost_us, weight, pauses_us, frames, text, remedy, gain }
    }

    /// Frames that a capture point saw, in their order.
    pub(super) fn frames<'b>(&self, vantage: u32, frames: impl IntoIterator<Item = &'b [u64; 3]>) -> Frames {
        let mut numbers: Vec<u64> = frames.into_iter().flatten().copied().filter(|&n| n > 0).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let input = self.inputs.get(vantage as usize).copied().unwrap_or(0);
        Frames { input, numbers }
    }
}

/// Duration of a connection, nanoseconds.
pub(super) fn lasted_ns(facts: &ConnectionFacts) -> u64 {
    facts.ended_ns.saturating_sub(facts.began_ns)
}

/// Formats microseconds in a suitable unit.
pub(super) fn duration(us: f64) -> String {
    match us.abs() {
        v if v >= 1e6 => format!("{} s", significant(us / 1e6)),
        v if v >= 1e3 => format!("{} ms", significant(us / 1e3)),
        _ => format!("{} us", significant(us)),
    }
}

/// Formats with three significant digits.
pub(super) fn significant(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}
