//! The result of an analysis, as shown in JSON and reports.

use analysis::Excess;
use analysis::legs::Leg;
use analysis::service::{ServiceRow, SlowRow};
use analysis::traffic::TrafficStanza;
use analysis::verdict::Verdict;
use record::OpKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use analysis::clocks::Clocks;

/// An input, up to the point where reading ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InputRow {
    /// Its name.
    pub name: String,
    /// Frames in it.
    pub frames: u64,
    /// Their interfaces' names, where given.
    pub interfaces: Vec<String>,
    /// Packets that the capturing system dropped, where it counted.
    pub drops: Option<u64>,
    /// A defect of the file, for the user.
    pub complaint: Option<String>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConnectionRow {
    /// Its number.
    pub connection: u32,
    /// The client's end.
    pub client: String,
    /// The server's end.
    pub server: String,
    /// Its protocol.
    pub protocol: String,
    /// Exchanges that ended.
    pub operations: u64,
    /// From its first packet to its last, seconds.
    pub seconds: f64,
    /// Its packets and bytes.
    pub packets: u64,
    /// See `packets`.
    pub bytes: u64,
    /// Exchanges in flight, on average.
    pub in_flight: f64,
    /// From SYN to SYN+ACK to ACK, microseconds.
    pub handshake_us: Option<f64>,
    /// Shortest time from a segment of the client to its acknowledgement, and the server's, microseconds.
    pub ack_min_us: (f64, f64),
    /// Segments sent again by the client and by the server.
    pub retransmitted: (u64, u64),
    /// Largest segments that client and server send, bytes.
    pub mss_bytes: (u32, u32),
}

/// Bytes that a capture lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HoleRow {
    /// Which input.
    pub input: u32,
    /// Which connection.
    pub connection: Option<u32>,
    /// The stream.
    pub flow: capture::Flow,
    /// Its position, length, time and cause.
    #[serde(flatten)]
    pub missing: capture::Missing,
    /// Operations that it may have cost: its bytes over those of an operation of its connection. `None`: unknown, because the
    /// connection has no operations, or too few could have passed in the time of the hole.
    pub operations: Option<f64>,
}

/// The result of an analysis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AnalysisResult {
    /// When the first and the last frame of all inputs passed, nanoseconds since the epoch; 0 without any. Not in JSON.
    #[serde(skip)]
    pub span_ns: (u64, u64),
    /// Requests without a response in the capture, beside those whose response was coming at its end.
    #[serde(default)]
    pub unanswered: u64,
    /// The inputs.
    pub inputs: Vec<InputRow>,
    /// Segments of the selected connections, each connection as the capture point saw it that saw most of its segments: the
    /// sum over `connections[]`, listed or not. Not the sum over capture points, of which `frames` is.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Exchanges that ended.
    pub operations: u64,
    /// Exchanges that both sides saw, and those that only one of the two saw.
    pub operations_both_sides: u64,
    /// See `operations_both_sides`.
    pub operations_one_side: u64,
    /// Requests whose responses were still coming when the capture ended.
    #[serde(default)]
    pub responses_coming: u64,
    /// Operations that are not counted and shown, because a part of them ends before it begins: the clock was set back.
    #[serde(default)]
    pub operations_backwards: u64,
    /// Operations without the times between capture points, because a request or a response arrives before it leaves: the
    /// clocks of two interfaces of one file differ.
    #[serde(default)]
    pub paths_backwards: u64,
    /// Frame counters, summed over all capture points: a packet that passed two of them counts twice.
    pub frames: capture::FrameCounters,
    /// The frames that belong to no selected connection, over all capture points.
    pub contents: capture::Contents,
    /// Stream and message counters, summed over all capture points.
    pub streams: capture::Counters,
    /// The connections with the most operations.
    pub connections: Vec<ConnectionRow>,
    /// Connections that are not listed.
    pub connections_not_listed: u64,
    /// The first holes.
    pub holes: Vec<HoleRow>,
    /// The services: the operations of one kind at one server, over all connections; the one with the most time first.
    pub services: Vec<ServiceRow>,
    /// The slowest operations, the slowest first.
    #[serde(default)]
    pub slowest: Vec<SlowRow>,
    /// The breakdown by stanza, which is of one connection.
    pub stanzas: Vec<TrafficStanza>,
    /// Proxies of which both legs are in the capture, and the share of their upstreams.
    pub proxies: Vec<Leg>,
    /// Structure in the operations of a service.
    pub modes: Vec<ModeRow>,
    /// The causes of slowness.
    pub verdicts: Vec<Verdict>,
    /// Causes that cost less than 2 % of the time of all operations ([`analysis::verdict::WEIGHT_MIN`]).
    pub minor: Vec<Verdict>,
    /// The account of the time of all operations.
    pub excess: Excess,
    /// Offset and drift between the clocks of two inputs.
    pub clocks: Option<Clocks>,
    /// Limitations of the capture that affect the result.
    pub notes: Vec<String>,
}

/// A pattern in the operations of a service that have about the same size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModeRow {
    /// Their connection; absent if they are of several.
    pub connection: Option<u32>,
    /// The server's address and port.
    pub service: Option<String>,
    /// The operation's name.
    pub operation: String,
    /// The direction of the data.
    pub direction: OpKind,
    /// Mean data of an exchange, bytes.
    pub block_size_bytes: f64,
    /// Operations of the service with about the same size.
    pub stanza_operations: u64,
    /// The pattern; `operations` are those of the sample that was examined.
    #[serde(flatten)]
    pub finding: analysis::modes::Finding,
}
