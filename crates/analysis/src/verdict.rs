//! Causes of slow operations: verdicts with their evidence, cost, remedy and expected gain.

mod case;
mod evidence;
mod found;
mod gain;
mod judge;
mod no_response;
mod rate;
mod remedy;
mod tcp;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use case::{CaptureLoss, Case, Link};
pub use evidence::Evidence;
pub use judge::{Judgement, WEIGHT_MIN, judge};
pub use remedy::Remedy;

/// The kind of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// Header and body of a message were sent apart, and Nagle held the body until a delayed ACK came.
    HeaderBodyApart,
    /// Nagle held a small segment until a delayed ACK came.
    NagleDelayedAck,
    /// MSG_MORE or TCP_CORK was set and never lifted: a 200 ms timer sent the data.
    UnfinishedCork,
    /// The peer's delayed ACK stopped a sender that had reached its limit of unacknowledged data.
    DelayedAck,
    /// Messages are sent in many small segments.
    SmallSegments,
    /// The receiver's window was full.
    WindowLimited,
    /// The sender's buffer or congestion window is smaller than the path's capacity.
    BufferLimited,
    /// The path drops large segments without an ICMP message.
    PathMtuBlackHole,
    /// Data was lost and sent again.
    Retransmission,
    /// Losses only while both sides send: one end of a cable is half duplex.
    DuplexMismatch,
    /// The server is slow.
    SlowTarget,
    /// The client is slow.
    SlowInitiator,
    /// Too few operations are in flight to fill the link.
    QueueDepthLow,
    /// The link is full.
    LinkFull,
    /// A CPU is saturated.
    CpuBound,
    /// Requests never got a response.
    NoResponse,
    /// The capture lost packets: other verdicts may be incomplete.
    CaptureLoss,
}

impl VerdictKind {
    /// Whether the verdict is on time that operations lost, rather than on a rate, on time between operations or on the
    /// capture.
    #[must_use]
    pub fn is_of_lost_time(self) -> bool {
        match self {
            VerdictKind::QueueDepthLow
            | VerdictKind::LinkFull
            | VerdictKind::CpuBound
            | VerdictKind::SlowInitiator
            | VerdictKind::NoResponse
            | VerdictKind::CaptureLoss => false,
            VerdictKind::HeaderBodyApart
            | VerdictKind::NagleDelayedAck
            | VerdictKind::UnfinishedCork
            | VerdictKind::DelayedAck
            | VerdictKind::SmallSegments
            | VerdictKind::WindowLimited
            | VerdictKind::BufferLimited
            | VerdictKind::PathMtuBlackHole
            | VerdictKind::Retransmission
            | VerdictKind::DuplexMismatch
            | VerdictKind::SlowTarget => true,
        }
    }
}

/// Frames that prove a verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Frames {
    /// The input, counted from 0.
    pub input: u32,
    /// Frame numbers, as Wireshark counts them.
    pub numbers: Vec<u64>,
}

/// The expected gain, at most what is possible: no operation becomes faster than the fastest one seen, and no link carries
/// more than its rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gain {
    /// Factor on the operations per second of the affected connections.
    pub throughput_factor: f64,
    /// Mean time of an operation now and after the remedy, microseconds.
    pub operation_us: Option<(f64, f64)>,
    /// A sentence for reports.
    pub text: String,
}

/// One verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// The kind.
    pub kind: VerdictKind,
    /// Affected operations, over all of the evidence.
    pub operations: u64,
    /// Their share of all operations.
    pub share: f64,
    /// Time that these operations lost, microseconds: this verdict's part of the excess.
    pub cost_us: f64,
    /// The lost time as a share of the time of all operations.
    pub weight: f64,
    /// Time between operations in which the client sent nothing, microseconds: no part of the operations' time.
    pub pauses_us: f64,
    /// The frames that prove it.
    pub frames: Frames,
    /// A sentence with the figures.
    pub text: String,
    /// The remedies by system.
    pub remedy: Vec<Remedy>,
    /// The expected gain; absent if unknown.
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
        VerdictKind::NoResponse => "no response",
        VerdictKind::CaptureLoss => "capture incomplete",
    }
}
