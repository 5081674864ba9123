//! Structure in the operations of one stanza: regimes, and in each of them modes, patterns in their order and in time,
//! drifts, diverging clocks.
//!
//! Change points come first, because a pattern of a third of a record is none of the record. Each search reports a finding
//! only if chance can be excluded; later searches do not report an explained pattern again.

mod changes;
mod counts;
mod difference;
mod dip;
mod drift;
mod every_nth;
mod mixture;
mod patterns;
mod period;
mod place;
mod regimes;
mod series;
mod skew;
mod words;

use record::{Op, Split};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use dip::dip;
pub use mixture::Mode;
pub use period::Shape;
pub use regimes::Regime;

use crate::parts::Part;

/// One operation in the search for structure.
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
    /// The network's time, both directions.
    pub network_us: f32,
    /// From the client to the server.
    pub request_path_us: f32,
    /// From the server to the client.
    pub response_path_us: f32,
}

impl Point {
    /// An operation that a study followed; the client's time is that of both its ends. `None` without the client's capture
    /// point.
    #[must_use]
    pub fn of(op: &Op, shared_clock: bool) -> Option<Self> {
        let split = Split::of(op, shared_clock);
        let us = |ns: Option<i64>| ns.map_or(f32::NAN, |ns| (ns as f64 / 1000.0) as f32);
        Some(Self {
            time_ns: op.c1.ns()?,
            round_trip_us: us(split.outside_ns),
            parts: Parts {
                client_us: us(split.client_ns),
                server_us: us(split.server_ns),
                network_us: us(split.network_ns),
                request_path_us: us(split.request_path_ns),
                response_path_us: us(split.response_path_ns),
            },
        })
    }

    /// A part's value, microseconds; NaN where not observed.
    fn part(&self, part: Part) -> f64 {
        f64::from(match part {
            Part::RoundTrip => self.round_trip_us,
            Part::Client => self.parts.client_us,
            Part::Server => self.parts.server_us,
            Part::Network => self.parts.network_us,
            Part::RequestPath => self.parts.request_path_us,
            Part::ResponsePath => self.parts.response_path_us,
            Part::SetUp
            | Part::Sending
            | Part::FirstByte
            | Part::Transfer
            | Part::Gap
            | Part::LongestGap
            | Part::DataPhase
            | Part::Whole => f32::NAN,
        })
    }
}

/// A pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FindingKind {
    /// Its distribution changes, and stays changed for a while.
    Regimes {
        /// In the order of time; together they are all operations.
        regimes: Vec<Regime>,
    },
    /// More than one mode.
    Modes {
        /// From the fastest to the slowest.
        modes: Vec<Mode>,
    },
    /// Slow operations at even distances.
    EveryNth {
        /// Every n-th operation is slow.
        n: u32,
        /// Additional time of the slow ones, microseconds.
        longer_us: f64,
    },
    /// It repeats in time.
    PeriodInTime {
        /// Its period, milliseconds.
        period_ms: f64,
        /// Its shape.
        shape: Shape,
        /// From the lowest to the highest, microseconds.
        height_us: f64,
    },
    /// It grows or falls over the whole record.
    Ramp {
        /// From the beginning to the end, microseconds.
        change_us: f64,
    },
    /// It jumps and stays.
    ChangePoint {
        /// At which operation of the stanza, and after how long, milliseconds.
        at_operation: u64,
        /// See `at_operation`.
        after_ms: f64,
        /// Before and behind it, microseconds.
        levels_us: (f64, f64),
    },
    /// Stamps of two drifting clocks.
    ClockSkew {
        /// Drift, microseconds per second.
        us_per_second: f64,
        /// Largest divergence, microseconds.
        height_us: f64,
        /// Period of the jumps back, milliseconds.
        period_ms: Option<f64>,
    },
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The pattern.
    #[serde(flatten)]
    pub kind: FindingKind,
    /// The segment that contains it.
    pub segment: Part,
    /// Operations examined.
    pub operations: u64,
    /// A sentence for reports.
    pub text: String,
}

/// Searches operations, in the order of their requests, for structure.
#[must_use]
pub fn find(points: &[Point]) -> Vec<Finding> {
    find_numbered(points, |place| place as u64)
}

/// Searches operations of which some were left out, in the order of their requests. `number` gives the number of the
/// operation at a place of `points`, counted from 0; that at their length is the number of all operations.
#[must_use]
pub fn find_numbered(points: &[Point], number: impl Fn(usize) -> u64) -> Vec<Finding> {
    if points.len() < patterns::POINTS_MIN {
        return Vec::new();
    }
    let borders = changes::borders(points);
    if borders.is_empty() {
        let mut findings = patterns::find(points);
        for finding in &mut findings {
            if let FindingKind::ChangePoint { at_operation, .. } = &mut finding.kind {
                *at_operation = number(*at_operation as usize);
            }
        }
        return findings;
    }
    regimes::describe(points, &borders, &number)
}
