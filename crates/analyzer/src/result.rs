//! What an analysis found, as JSON and reports show it.

use analysis::traffic::TrafficStanza;
use analysis::verdict::Verdict;
use record::OpKind;
use serde::{Deserialize, Serialize};

use analysis::clocks::Clocks;

/// An input, as far as it was read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRow {
    /// Its name.
    pub name: String,
    /// Frames in it.
    pub frames: u64,
    /// Their interfaces' names, where given.
    pub interfaces: Vec<String>,
    /// Packets that the capturing system dropped, where it counted.
    pub drops: Option<u64>,
    /// What is wrong with it.
    pub complaint: Option<String>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionRow {
    /// Its number.
    pub connection: u32,
    /// The client's end.
    pub client: String,
    /// The server's end.
    pub server: String,
    /// What is spoken on it.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HoleRow {
    /// Which input.
    pub input: u32,
    /// Which connection.
    pub connection: Option<u32>,
    /// Where and why.
    #[serde(flatten)]
    pub hole: capture::StreamHole,
    /// Operations that it may have cost: its bytes over those of an operation.
    pub operations: f64,
}

/// What an analysis found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnalysisResult {
    /// What was read.
    pub inputs: Vec<InputRow>,
    /// Segments of the selected connections.
    pub packets: u64,
    /// Their bytes on the wire.
    pub bytes: u64,
    /// Exchanges that ended.
    pub operations: u64,
    /// Those that both sides saw, and those that only one of both did.
    pub operations_both_sides: u64,
    /// See `operations_both_sides`.
    pub operations_one_side: u64,
    /// What was counted of frames, all capture points together.
    pub frames: capture::FrameCounters,
    /// What was counted of streams and messages, all capture points together.
    pub streams: capture::Counters,
    /// The connections with the most operations.
    pub connections: Vec<ConnectionRow>,
    /// Connections that are not listed.
    pub connections_not_listed: u64,
    /// The first holes.
    pub holes: Vec<HoleRow>,
    /// Where the time went.
    pub stanzas: Vec<TrafficStanza>,
    /// Structure in the operations of a stanza.
    pub modes: Vec<ModeRow>,
    /// Why it was slow.
    pub verdicts: Vec<Verdict>,
    /// How far the clocks of two inputs are apart.
    pub clocks: Option<Clocks>,
    /// What else should be known.
    pub notes: Vec<String>,
}

/// Structure that was found in the operations of a stanza.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModeRow {
    /// Which connection.
    pub connection: Option<u32>,
    /// What was asked for.
    pub operation: String,
    /// Which way the data went.
    pub kind: OpKind,
    /// Mean data of an exchange, bytes.
    pub block_size_bytes: f64,
    /// What was found.
    #[serde(flatten)]
    pub finding: analysis::modes::Finding,
}
