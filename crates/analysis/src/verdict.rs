//! Why operations were slow: each verdict with its evidence, what it cost, the remedy and the gain to expect.

mod case;
mod evidence;
mod judge;
mod rate;
mod remedy;
mod tcp;

use serde::{Deserialize, Serialize};

pub use case::{CaptureLoss, Case, Link};
pub use evidence::Evidence;
pub use judge::{Judgement, judge};
pub use remedy::Remedy;

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// Header and body of a message were sent apart, and Nagle held the body until a delayed ACK came.
    HeaderBodyApart,
    /// Nagle held a small segment until a delayed ACK came.
    NagleDelayedAck,
    /// MSG_MORE or TCP_CORK was set and never lifted: a 200 ms timer sent the data.
    UnfinishedCork,
    /// The peer's delayed ACK stopped a sender that could have no more on its way.
    DelayedAck,
    /// Messages are sent in many small segments.
    SmallSegments,
    /// The receiver's window was full.
    WindowLimited,
    /// The sender's buffer or congestion window held less than the path takes.
    BufferLimited,
    /// Large segments vanish on the path, and nobody says so.
    PathMtuBlackHole,
    /// Data was lost and sent again.
    Retransmission,
    /// Losses only while both sides send: one end of a cable is half duplex.
    DuplexMismatch,
    /// The server takes long.
    SlowTarget,
    /// The client takes long.
    SlowInitiator,
    /// Too few operations are in flight to fill the link.
    QueueDepthLow,
    /// The link is full.
    LinkFull,
    /// A CPU is busy all the time.
    CpuBound,
    /// The capture lost packets: what is said of the rest may be incomplete.
    CaptureLoss,
}

/// Frames that prove a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// Which input, counted from 0.
    pub input: u32,
    /// Frame numbers, as Wireshark counts them.
    pub numbers: Vec<u64>,
}

/// What there is to gain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// The affected connections' operations per second, times this.
    pub throughput_factor: f64,
    /// Mean time of an operation now and without what was found, microseconds.
    pub operation_us: Option<(f64, f64)>,
    /// In words.
    pub text: String,
}

/// One verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What was found.
    pub kind: VerdictKind,
    /// Operations that it concerns.
    pub operations: u64,
    /// Their share of all operations.
    pub share: f64,
    /// What it cost all of them together, microseconds.
    pub cost_us: f64,
    /// The frames that prove it.
    pub frames: Frames,
    /// What happened, in a sentence with its figures.
    pub text: String,
    /// What to do, system by system.
    pub remedy: Vec<Remedy>,
    /// What that gains; absent where it cannot be said.
    pub gain: Option<Gain>,
}

/// The name of a kind, in words.
#[must_use]
pub fn name(kind: VerdictKind) -> &'static str {
    match kind {
        VerdictKind::HeaderBodyApart => "header and body sent apart",
        VerdictKind::NagleDelayedAck => "Nagle against delayed ACK",
        VerdictKind::UnfinishedCork => "unfinished MSG_MORE or cork",
        VerdictKind::DelayedAck => "delayed ACK",
        VerdictKind::SmallSegments => "trains of small segments",
        VerdictKind::WindowLimited => "receive window full",
        VerdictKind::BufferLimited => "send buffer too small",
        VerdictKind::PathMtuBlackHole => "path-MTU black hole",
        VerdictKind::Retransmission => "packet loss",
        VerdictKind::DuplexMismatch => "duplex mismatch",
        VerdictKind::SlowTarget => "slow target",
        VerdictKind::SlowInitiator => "slow initiator",
        VerdictKind::QueueDepthLow => "queue depth too low",
        VerdictKind::LinkFull => "link full",
        VerdictKind::CpuBound => "CPU bound",
        VerdictKind::CaptureLoss => "capture incomplete",
    }
}
