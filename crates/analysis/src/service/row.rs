//! The rows of a report: services, their details, and their kinds of operations.

use record::OpKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::figures::{Figures, LargestPart};

/// One service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceRow {
    /// The server's address and port; absent where the capture has more servers than are told apart.
    pub service: Option<String>,
    /// The operation's name.
    pub operation: String,
    /// The protocol: that of its decoder, `turns`, or the name of one that is recognised and followed as turns.
    #[serde(default)]
    pub protocol: Option<String>,
    /// Operations that may be several: turns in which a side did not wait for the other, or of a protocol that has several requests in
    /// flight. Their times are per turn, not per request.
    #[serde(default)]
    pub overlapping: u64,
    /// Turns that may be several operations, because several lines or records of each were answered by several.
    #[serde(default)]
    pub several: u64,
    /// Turns of which bytes of the request are not in the capture (snap length), so that they may be several operations.
    #[serde(default)]
    pub unread: u64,
    /// The direction of its data.
    pub kind: OpKind,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Figures,
    /// Most operations in flight at once.
    pub in_flight_max: u32,
    /// Share of the time in which at least one operation of the server was in flight, whatever its kind.
    pub busy_share: f64,
    /// Where most of the time goes; absent where no stamps show it.
    pub largest_part: Option<LargestPart>,
    /// By client, the one with the most time first.
    pub clients: Vec<DetailRow>,
    /// By size of the data, in powers of two.
    pub sizes: Vec<DetailRow>,
    /// By key: the path, the statement, the prefix of a key, as far as the protocol has one.
    #[serde(default)]
    pub keys: Vec<DetailRow>,
}

/// Some operations of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DetailRow {
    /// The client's address, the size in bytes, or the key with its numbers, identifiers and literals folded; `others` for those beyond the
    /// limit.
    pub name: String,
    /// Their figures.
    #[serde(flatten)]
    pub figures: Figures,
}

/// Operations of a service whose data has about the same size.
#[derive(Clone, Debug, PartialEq)]
pub struct KindRow {
    /// The server's address and port.
    pub service: Option<String>,
    /// The operation's name.
    pub operation: String,
    /// The direction of its data.
    pub direction: OpKind,
    /// Their connection, if they are all of one.
    pub connection: Option<u32>,
    /// Their number.
    pub operations: u64,
    /// Mean data, bytes.
    pub block_size_bytes: f64,
}
