//! The segments between capture points, over all operations of a run.

use record::{Op, Split};
use serde::{Deserialize, Serialize};

use crate::parts::Tally;

/// Mean and percentiles of one segment, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SegmentFigures {
    /// Arithmetic mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
}

/// All segments of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Segments {
    /// Operations included.
    pub operations: u64,
    /// finish - start.
    pub rtt: SegmentFigures,
    /// RTT - (C2 - C1).
    pub client: SegmentFigures,
    /// C1 - start.
    pub client_out: SegmentFigures,
    /// finish - C2.
    pub client_in: SegmentFigures,
    /// S2 - S1.
    pub server: SegmentFigures,
    /// (C2 - C1) - (S2 - S1).
    pub network: SegmentFigures,
    /// S1 - C1, where both sides share a clock.
    pub request_path: Option<SegmentFigures>,
    /// C2 - S2, where both sides share a clock.
    pub response_path: Option<SegmentFigures>,
}

impl Segments {
    /// The segments of complete operations; incomplete ones are ignored.
    #[must_use]
    pub fn of(ops: &[Op], shared_clock: bool) -> Self {
        let complete = || ops.iter().filter(|op| op.is_complete());
        let optional = |of: fn(&Split) -> Option<i64>| {
            let mut tally = Tally::exact();
            complete().filter_map(|op| of(&Split::of(op, shared_clock))).for_each(|ns| tally.add(ns));
            let [p50_us, p99_us] = tally.at_us([0.5, 0.99]);
            (tally.count() > 0).then(|| SegmentFigures { mean_us: tally.mean_us(), p50_us, p99_us })
        };
        let figures = |of| optional(of).unwrap_or_default();
        Self {
            operations: complete().count() as u64,
            rtt: figures(|s| s.rtt_ns),
            client: figures(|s| s.client_ns),
            client_out: figures(|s| s.client_out_ns),
            client_in: figures(|s| s.client_in_ns),
            server: figures(|s| s.server_ns),
            network: figures(|s| s.network_ns),
            request_path: optional(|s| s.request_path_ns),
            response_path: optional(|s| s.response_path_ns),
        }
    }

    /// The same division of a round trip with another mean, microseconds. Unchanged where nothing was measured.
    #[must_use]
    pub fn with_rtt(&self, rtt_us: f64) -> Self {
        let factor = rtt_us / self.rtt.mean_us;
        if !factor.is_finite() {
            return *self;
        }
        let scaled = |f: SegmentFigures| SegmentFigures {
            mean_us: f.mean_us * factor,
            p50_us: f.p50_us * factor,
            p99_us: f.p99_us * factor,
        };
        Self {
            operations: self.operations,
            rtt: scaled(self.rtt),
            client: scaled(self.client),
            client_out: scaled(self.client_out),
            client_in: scaled(self.client_in),
            server: scaled(self.server),
            network: scaled(self.network),
            request_path: self.request_path.map(scaled),
            response_path: self.response_path.map(scaled),
        }
    }
}

#[cfg(test)]
mod tests {
    use record::Stamp;

    use super::*;

    #[test]
    fn a_round_trip_of_another_length_is_divided_alike() {
        let figures = |mean_us| SegmentFigures { mean_us, p50_us: mean_us, p99_us: 2.0 * mean_us };
        let segments = Segments {
            operations: 5,
            rtt: figures(100.0),
            client: figures(20.0),
            server: figures(30.0),
            network: figures(50.0),
            request_path: Some(figures(24.0)),
            ..Segments::default()
        };
        let longer = segments.with_rtt(150.0);
        assert_eq!(longer.operations, 5);
        assert!((longer.rtt.mean_us - 150.0).abs() < 1e-9 && (longer.server.p99_us - 90.0).abs() < 1e-9);
        let parts = longer.client.mean_us + longer.server.mean_us + longer.network.mean_us;
        assert!((parts - 150.0).abs() < 1e-9);
        assert!((longer.request_path.unwrap().mean_us - 36.0).abs() < 1e-9);
        assert_eq!(
            Segments::default().with_rtt(150.0),
            Segments::default(),
            "nothing measured, nothing divided"
        );
    }

    #[test]
    fn segments_add_up_and_directions_need_a_shared_clock() {
        let op = |rtt: u64| Op {
            start: Stamp::at(1000),
            c1: Stamp::at(3000),
            s1: Stamp::at(4000),
            s2: Stamp::at(9000),
            c2: Stamp::at(11_000),
            finish: Stamp::at(1000 + rtt),
            ..Op::default()
        };
        let ops = [op(15_000), op(17_000), Op::default()];
        let s = Segments::of(&ops, true);
        assert_eq!(s.operations, 2);
        assert!((s.rtt.mean_us - 16.0).abs() < 1e-9);
        assert!((s.client.mean_us + s.server.mean_us + s.network.mean_us - s.rtt.mean_us).abs() < 1e-9);
        assert!((s.request_path.unwrap().mean_us - 1.0).abs() < 1e-9);
        assert_eq!(Segments::of(&ops, false).request_path, None);
        assert_eq!(Segments::of(&[], true).operations, 0);
    }
}
