//! The segments between capture points, over all operations of a run.

use record::{Op, Split};
use serde::{Deserialize, Serialize};

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
    /// Operations that went in.
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
    /// The segments of complete operations; those that are not are left out.
    #[must_use]
    pub fn of(ops: &[Op], shared_clock: bool) -> Self {
        let splits: Vec<Split> = ops.iter().filter_map(|op| Split::of(op, shared_clock)).collect();
        let figures = |of: fn(&Split) -> i64| figures(splits.iter().map(of).collect());
        let optional = |of: fn(&Split) -> Option<i64>| {
            shared_clock.then(|| self::figures(splits.iter().filter_map(of).collect()))
        };
        Self {
            operations: splits.len() as u64,
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
}

fn figures(mut values: Vec<i64>) -> SegmentFigures {
    if values.is_empty() {
        return SegmentFigures::default();
    }
    let sum: i128 = values.iter().map(|&v| i128::from(v)).sum();
    let mean_us = sum as f64 / values.len() as f64 / 1000.0;
    let mut at = |q: f64| {
        let index = ((values.len() - 1) as f64 * q).round() as usize;
        *values.select_nth_unstable(index).1 as f64 / 1000.0
    };
    SegmentFigures { mean_us, p50_us: at(0.5), p99_us: at(0.99) }
}

#[cfg(test)]
mod tests {
    use record::Stamp;

    use super::*;

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
