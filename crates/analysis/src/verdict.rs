//! Causes of slow operations: verdicts with their evidence, cost, remedy and expected gain.

mod case;
mod chain;
mod coming;
mod cork;
mod duplex;
mod errors;
mod evidence;
mod flow_control;
mod found;
mod gain;
mod judge;
mod link;
mod network;
mod no_response;
mod notes;
mod rare;
mod rate;
mod remedy;
mod server;
mod setup;
mod setups;
mod stream;
mod streams;
mod tcp;
mod trains;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use case::{CaptureLoss, Case, Link};
pub use coming::Coming;
pub(crate) use cork::KINDS as DOUBTFUL;
pub use evidence::Evidence;
pub use judge::{Judgement, WEIGHT_MIN, judge};
pub use remedy::{Remedy, remedies};

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
    /// A window of the application protocol's flow control (HTTP/2) is smaller than a round trip's data.
    FlowControlWindow,
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
    /// The service works all the time: requests wait for each other at the server.
    Saturated,
    /// A few operations take many times longer than the others, at intervals or in a share of the requests.
    RareStalls,
    /// Connections are refused, or their handshake is reset or never answered.
    FailedConnects,
    /// SYN segments were dropped by a server whose accept queue is full: they were sent again after 1 s, 3 s, 7 s.
    AcceptBacklog,
    /// Each request has a connection of its own and pays for its handshake and its small congestion window.
    ConnectionPerRequest,
    /// Connections are reset, or closed by the server, while requests are in flight.
    Resets,
    /// The service answers with errors (HTTP 5xx, SCSI CHECK CONDITION).
    ErrorAnswers,
    /// Nagle's algorithm sends one small segment for each round trip, although acknowledgements are prompt.
    AckClocked,
    /// The congestion window, not the application and not the receiver, limits what is in flight.
    CongestionWindow,
    /// The congestion window is small again after each idle time.
    SlowStartAfterIdle,
    /// Operations follow one another, each at the cost of a round trip of the network.
    RoundTripBound,
    /// The server answers at the ticks of a timer.
    ServerTimer,
    /// A queue on the path grows under load: the round trip of the network is many times that of the idle path.
    Bufferbloat,
    /// The capturing clock was set while it captured: times across the step are wrong.
    ClockStep,
    /// Requests never got a response.
    NoResponse,
    /// The client waits for 100 Continue, which the server never sends, before it sends a body.
    ContinueUnanswered,
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
            | VerdictKind::DuplexMismatch
            | VerdictKind::LinkFull
            | VerdictKind::CpuBound
            | VerdictKind::SlowInitiator
            | VerdictKind::NoResponse
            | VerdictKind::FailedConnects
            | VerdictKind::Resets
            | VerdictKind::ErrorAnswers
            | VerdictKind::ClockStep
            | VerdictKind::RoundTripBound
            | VerdictKind::CaptureLoss => false,
            VerdictKind::HeaderBodyApart
            | VerdictKind::NagleDelayedAck
            | VerdictKind::UnfinishedCork
            | VerdictKind::DelayedAck
            | VerdictKind::SmallSegments
            | VerdictKind::WindowLimited
            | VerdictKind::FlowControlWindow
            | VerdictKind::BufferLimited
            | VerdictKind::PathMtuBlackHole
            | VerdictKind::Retransmission
            | VerdictKind::Saturated
            | VerdictKind::RareStalls
            | VerdictKind::AcceptBacklog
            | VerdictKind::ConnectionPerRequest
            | VerdictKind::AckClocked
            | VerdictKind::CongestionWindow
            | VerdictKind::SlowStartAfterIdle
            | VerdictKind::ServerTimer
            | VerdictKind::Bufferbloat
            | VerdictKind::ContinueUnanswered
            | VerdictKind::SlowTarget => true,
        }
    }
}

impl VerdictKind {
    /// Whether the verdict is on the server's own time, rather than on what delayed its data.
    fn is_of_the_server(self) -> bool {
        use VerdictKind::{RareStalls, Saturated, ServerTimer, SlowTarget};
        matches!(self, SlowTarget | Saturated | RareStalls | ServerTimer)
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

/// The expected gain: what the operations concerned would take without the time that they lost.
///
/// A capture does not always show what comes next. Then the gain is an interval: the factor is the best estimate, or the most that
/// is possible, and `throughput_least` is what is certain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gain {
    /// Factor on the operations per second of the affected services, if each request follows a response.
    pub throughput_factor: f64,
    /// The least factor that is to be expected; `throughput_factor` where the capture shows all that remains.
    pub throughput_least: f64,
    /// Mean time of an operation now and after the remedy, microseconds.
    pub operation_us: Option<(f64, f64)>,
    /// The longest mean time of an operation after the remedy that is to be expected, microseconds.
    pub operation_most_us: Option<f64>,
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
        VerdictKind::FlowControlWindow => "flow-control window full",
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
        VerdictKind::Saturated => "server saturated",
        VerdictKind::RareStalls => "rare stalls",
        VerdictKind::FailedConnects => "failed connects",
        VerdictKind::AcceptBacklog => "accept backlog full",
        VerdictKind::ConnectionPerRequest => "connection per request",
        VerdictKind::Resets => "connections reset or closed",
        VerdictKind::ErrorAnswers => "error answers",
        VerdictKind::AckClocked => "Nagle, one segment a round trip",
        VerdictKind::CongestionWindow => "congestion window",
        VerdictKind::SlowStartAfterIdle => "slow start after idle",
        VerdictKind::RoundTripBound => "round trips one after another",
        VerdictKind::ServerTimer => "server timer",
        VerdictKind::Bufferbloat => "queue on the path",
        VerdictKind::ClockStep => "capture clock stepped",
        VerdictKind::ContinueUnanswered => "100 Continue not sent",
        VerdictKind::CaptureLoss => "capture incomplete",
    }
}
