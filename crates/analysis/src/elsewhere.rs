//! What a point should be, from points that do not include it: the model with the figures of two other block sizes.

use model::extras::Extras;
use serde::{Deserialize, Serialize};

use crate::cost::{CpuCost, PathCost};
use crate::predict::calibrate;
use crate::segments::{SegmentFigures, Segments};

/// Figures of one block size that a ring is made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeFigures {
    /// Bytes of an operation.
    pub block_bytes: u64,
    /// Its segments at queue depth 1.
    pub depth_one: Segments,
    /// CPU work of an operation with the CPUs as the bottleneck.
    pub service: CpuCost,
}

impl SizeFigures {
    /// The figures of a size on the straight line through two others: a message's costs are one part for each message and one for
    /// each byte. Times that would be negative are zero.
    #[must_use]
    pub fn between(a: &Self, b: &Self, block_bytes: u64) -> Self {
        let share =
            (block_bytes as f64 - a.block_bytes as f64) / (b.block_bytes as f64 - a.block_bytes as f64);
        let at = |a: f64, b: f64| (a + (b - a) * share).max(0.0);
        let segment = |of: fn(&Segments) -> SegmentFigures| SegmentFigures {
            mean_us: at(of(&a.depth_one).mean_us, of(&b.depth_one).mean_us),
            ..SegmentFigures::default()
        };
        let path = |of: fn(&Segments) -> Option<SegmentFigures>| {
            let (a, b) = (of(&a.depth_one)?, of(&b.depth_one)?);
            Some(SegmentFigures { mean_us: at(a.mean_us, b.mean_us), ..SegmentFigures::default() })
        };
        let work = |of: fn(&CpuCost) -> f64| at(of(&a.service), of(&b.service));
        Self {
            block_bytes,
            depth_one: Segments {
                operations: a.depth_one.operations.min(b.depth_one.operations),
                rtt: segment(|s| s.rtt),
                client: segment(|s| s.client),
                server: segment(|s| s.server),
                network: segment(|s| s.network),
                request_path: path(|s| s.request_path),
                response_path: path(|s| s.response_path),
                ..Segments::default()
            },
            service: CpuCost {
                client_thread_us: work(|c| c.client_thread_us),
                client_softirq_us: work(|c| c.client_softirq_us),
                server_thread_us: work(|c| c.server_thread_us),
                server_softirq_us: work(|c| c.server_softirq_us),
            },
        }
    }
}

/// Operations per second at a size and queue depth by the model, from the two nearest other sizes; `None` if there are not two, or
/// if they make no ring. `path` is the wire's arithmetic for this size.
#[must_use]
pub fn predicted_iops(
    sizes: &[SizeFigures],
    block_bytes: u64,
    queue_depth: u32,
    path: Option<&PathCost>,
) -> Option<f64> {
    let mut others: Vec<&SizeFigures> = sizes.iter().filter(|size| size.block_bytes != block_bytes).collect();
    others.sort_by_key(|size| size.block_bytes.abs_diff(block_bytes));
    let [a, b, ..] = others.as_slice() else { return None };
    let own = SizeFigures::between(a, b, block_bytes);
    let ring = calibrate(&own.depth_one, &own.service, path, 0.0).ok()?.ring;
    ring.exact(queue_depth, &Extras::default()).ok().map(|exact| exact.iops)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(block_bytes: u64, rtt: f64, service: f64) -> SizeFigures {
        let mean = |mean_us| SegmentFigures { mean_us, ..SegmentFigures::default() };
        SizeFigures {
            block_bytes,
            depth_one: Segments {
                operations: 10,
                rtt: mean(rtt),
                client: mean(rtt / 4.0),
                server: mean(rtt / 4.0),
                network: mean(rtt / 2.0),
                ..Segments::default()
            },
            service: CpuCost {
                client_thread_us: service / 2.0,
                client_softirq_us: 0.0,
                server_thread_us: service,
                server_softirq_us: 0.0,
            },
        }
    }

    #[test]
    fn a_size_between_two_others_is_predicted_from_them_and_not_from_itself() {
        let path = PathCost { w1_us: 1.0, w2_us: 2.0, token_bucket: true };
        let others = [size(512, 50.0, 4.0), size(4096, 78.0, 11.0)];
        let iops = |sizes: &[SizeFigures], depth| predicted_iops(sizes, 2048, depth, Some(&path)).unwrap();
        // The line gives 62 us at depth 1 and 7 us of the server.
        assert!((iops(&others, 1) - 1e6 / 62.0).abs() < 1.0, "{}", iops(&others, 1));
        assert!((iops(&others, 128) - 1e6 / 7.0).abs() < 1e6 / 7.0 * 0.01, "{}", iops(&others, 128));
        let with_itself = [others[0], others[1], size(2048, 900.0, 300.0)];
        assert_eq!(iops(&others, 1).to_bits(), iops(&with_itself, 1).to_bits());
        assert_eq!(predicted_iops(&others[..1], 2048, 1, Some(&path)), None);
        assert_eq!(predicted_iops(&others, 512, 1, Some(&path)), None, "one other size is no line");
    }
}
