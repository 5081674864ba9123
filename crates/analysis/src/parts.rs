//! The parts of a round trip, and the sum and distribution of each over many operations.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A part of an exchange's time that capture points can separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// From the first byte of a request to its last.
    Sending,
    /// From the request's last byte to the response's last byte, at the client (C2 - C1).
    RoundTrip,
    /// From the request's last byte to the response's last byte, at the server (S2 - S1).
    Server,
    /// The round trip without the server.
    Network,
    /// From the client's capture point to the server's (S1 - C1).
    RequestPath,
    /// From the server's capture point to the client's (C2 - S2).
    ResponsePath,
    /// From the request's last byte to the response's first, where only one side was seen.
    FirstByte,
    /// From the response's first byte to its last, where it takes several packets: how fast it is sent and carried.
    Transfer,
    /// From the server's request for data (R2T, 100 Continue) to the last of the data.
    DataPhase,
    /// From a response to the request that replaces it: the client, and everything between it and the capture
    /// point.
    Client,
    /// From the first SYN of a connection until it could carry its first request.
    SetUp,
    /// The mean time between the pieces of a response that comes in three or more.
    Gap,
    /// The longest time between the pieces of such a response.
    LongestGap,
    /// The operation as its user sees it: from the request's first byte, or from when TCP began to hold it, to the
    /// response's last byte.
    Whole,
}

impl Part {
    /// All of them, in the order of a table.
    pub const ALL: [Part; 14] = [
        Part::Client,
        Part::Sending,
        Part::RoundTrip,
        Part::FirstByte,
        Part::Transfer,
        Part::Gap,
        Part::LongestGap,
        Part::DataPhase,
        Part::RequestPath,
        Part::Server,
        Part::ResponsePath,
        Part::Network,
        Part::Whole,
        // Of a connection, and no part of the others.
        Part::SetUp,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Sending => "sending",
            Part::RoundTrip => "round trip",
            Part::Server => "server",
            Part::Network => "network",
            Part::RequestPath => "request path",
            Part::ResponsePath => "response path",
            Part::FirstByte => "first byte",
            Part::Transfer => "transfer",
            Part::DataPhase => "data phase",
            Part::Client => "client",
            Part::SetUp => "set-up",
            Part::Gap => "gap",
            Part::LongestGap => "longest gap",
            Part::Whole => "whole",
        }
    }
}

/// Figures of a part, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartFigures {
    /// The part.
    pub part: Part,
    /// Exchanges in which it was seen.
    pub operations: u64,
    /// Mean over them.
    pub mean_us: f64,
    /// Median, and percentiles.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Longest.
    pub max_us: f64,
}

/// One part's sum and distribution.
#[derive(Debug)]
pub(crate) struct Tally {
    count: u64,
    sum_ns: i128,
    /// The values themselves, up to `values_max`.
    values: Vec<i64>,
    values_max: usize,
    histogram: Option<Box<Histogram<u32>>>,
}

/// Values kept before they are converted to a histogram, which takes 13 KiB: many stanzas have two exchanges.
const FEW: usize = 32;

/// Two digits: 1 % of a microsecond is finer than a capture's stamps.
const DIGITS: u8 = 2;
/// The range of a distribution, nanoseconds; values outside count at its ends.
const LEAST_NS: u64 = 64;
const MOST_NS: u64 = 100_000_000_000;

impl Default for Tally {
    fn default() -> Self {
        Self { count: 0, sum_ns: 0, values: Vec::new(), values_max: FEW, histogram: None }
    }
}

impl Tally {
    /// A tally that keeps every value, for a run whose records are in memory: its percentiles are exact.
    pub(crate) fn exact() -> Self {
        Self { values_max: usize::MAX, ..Self::default() }
    }

    #[inline]
    pub(crate) fn add(&mut self, ns: i64) {
        self.count += 1;
        self.sum_ns += i128::from(ns);
        match &mut self.histogram {
            Some(histogram) => histogram.saturating_record(at_least_zero(ns)),
            None if self.values.len() < self.values_max => self.values.push(ns),
            None => {
                // The bounds are valid constants, so this always succeeds.
                self.histogram = Histogram::new_with_bounds(LEAST_NS, MOST_NS, DIGITS).ok().map(Box::new);
                if let Some(histogram) = &mut self.histogram {
                    let all = self.values.drain(..).chain([ns]);
                    all.for_each(|ns| histogram.saturating_record(at_least_zero(ns)));
                }
            }
        }
    }

    /// Number of values.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Arithmetic mean, microseconds; 0 if empty.
    pub(crate) fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.count.max(1) as f64 / 1000.0
    }

    /// The values at ascending quantiles, microseconds; 0 if empty.
    pub(crate) fn at_us<const N: usize>(&self, quantiles: [f64; N]) -> [f64; N] {
        if let Some(histogram) = &self.histogram {
            return quantiles.map(|q| histogram.value_at_quantile(q) as f64 / 1000.0);
        }
        let mut values = self.values.clone();
        quantiles.map(|quantile| {
            // The least value that this share does not exceed, as of a histogram.
            let place = ((values.len() as f64 * quantile).ceil() as usize).saturating_sub(1);
            match values.is_empty() {
                true => 0.0,
                false => *values.select_nth_unstable(place).1 as f64 / 1000.0,
            }
        })
    }

    /// Figures for reports; `None` if empty.
    pub(crate) fn figures(&self, part: Part) -> Option<PartFigures> {
        let [p50_us, p90_us, p99_us, max_us] = self.at_us([0.5, 0.9, 0.99, 1.0]);
        let mean_us = self.mean_us();
        (self.count > 0).then_some(PartFigures {
            part,
            operations: self.count,
            mean_us,
            p50_us,
            p90_us,
            p99_us,
            max_us,
        })
    }
}

/// Negative times come from stamps that are out of order. The sum includes them; a histogram counts them in its lowest bin.
fn at_least_zero(ns: i64) -> u64 {
    ns.max(0).unsigned_abs()
}
