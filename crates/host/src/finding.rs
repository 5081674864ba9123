//! What is wrong with a host, what it costs, and what mends it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::change::Change;

/// Something on a host that makes round trips longer or less safe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// Its name, which never changes: `half-duplex`. Also the name of its page in `--explain`.
    pub id: String,
    /// How bad it is.
    pub severity: Severity,
    /// Where: `eth0`, `10.0.0.1:3260 -> 10.0.0.2:51514`, `tcp`.
    pub subject: String,
    /// What was measured, with its unit: `100 Mb/s, half duplex`.
    pub measured: String,
    /// Why it matters, in one or two sentences.
    pub why: String,
    /// What it costs, where the model can say.
    pub cost: Option<Cost>,
    /// Exact commands for this system, in order.
    pub commands: Vec<String>,
    /// What `roundtrip host tune` does about it; empty where only a person can act.
    pub changes: Vec<Change>,
    /// What the other end must do, where it must.
    pub other_end: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; it costs little, or only some loads.
    Note,
    /// It costs time.
    Slow,
    /// Data or connections are lost, or time by orders of magnitude.
    Broken,
}

/// What a finding costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Time of a round trip that it may add, microseconds.
    pub us_per_round_trip: Option<f64>,
    /// The most that a connection or the link can carry with it, bits per second.
    pub bits_per_second_at_most: Option<f64>,
}
