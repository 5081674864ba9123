//! Structure in the operations of one stanza.

use serde::{Deserialize, Serialize};

/// One operation as the search for structure sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When its request passed, nanoseconds since the epoch.
    pub time_ns: u64,
    /// Its round trip, microseconds.
    pub round_trip_us: f32,
    /// Its segments.
    pub parts: Parts,
}

/// The segments of an operation, microseconds; NaN where not observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// The client's time.
    pub client_us: f32,
    /// The server's time.
    pub server_us: f32,
    /// The network's time, both ways.
    pub network_us: f32,
    /// From the client to the server.
    pub request_path_us: f32,
    /// And back.
    pub response_path_us: f32,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Operations that it concerns.
    pub operations: u64,
    /// In a sentence.
    pub text: String,
}

/// Searches.
#[must_use]
pub fn find(_points: &[Point]) -> Vec<Finding> {
    Vec::new()
}
