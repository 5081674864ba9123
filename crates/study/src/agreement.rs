//! Whether the points that calibrate a model agree with their repeats and with their neighbours.
//!
//! The model of a size and policy comes from its queue depth 1 and its deepest point. A disturbed one makes every prediction
//! wrong without a sign of it. The machine's own counters show only some disturbances, so the figures are compared:
//! with the point's other runs, with the other send policies at queue depth 1 (where no policy holds anything back), and
//! with the neighbouring depths.

use record::units::grouped;

/// How far a run may be from the median of its point, as a share.
const RUN_WITHIN: f64 = 0.25;
/// How far queue depth 1 may be from that of the other policies, as a factor either way.
const POLICY_FACTOR: f64 = 1.4;
/// A closed ring has at most n times the throughput of one operation; latencies that shrink with the load allow for this more.
const DEPTH_FACTOR: f64 = 1.5;
/// Depths that are compared with queue depth 1: deeper ones shrink the latencies further.
const SHALLOW: u32 = 4;
/// The deepest point has at least this share of the best one.
const DEEPEST_SHARE: f64 = 0.7;

/// Throughput of a queue depth, operations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
struct AtDepth {
    /// Queue depth.
    queue_depth: u32,
    /// Median of its runs.
    iops: f64,
}

/// A calibrating point and what it is compared with.
#[derive(Clone, Copy, Debug)]
struct Compared<'a> {
    /// The throughput of each of its runs.
    runs: &'a [f64],
    /// All depths of its size and policy, the first and the last included, ascending.
    depths: &'a [AtDepth],
    /// The depth of the point.
    queue_depth: u32,
    /// Queue depth 1 of the same size with the other policies.
    other_policies: &'a [f64],
}

/// The value in the middle; the greater of two.
#[must_use]
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied()
}

/// Half of the range of a point's runs, as a share of their median: how well the point repeats. `None` for a single run.
#[must_use]
pub(crate) fn repeatability(runs: &[f64]) -> Option<f64> {
    let middle = median(runs).filter(|middle| runs.len() > 1 && *middle > 0.0)?;
    let (least, greatest) = runs
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, greatest), &run| (least.min(run), greatest.max(run)));
    Some((greatest - least) / 2.0 / middle)
}

/// The points of a size and policy: the runs of each depth, ascending.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// Bytes of an operation.
    pub(crate) block_bytes: u64,
    /// Each depth with the throughput of its runs.
    pub(crate) depths: Vec<(u32, Vec<f64>)>,
}

/// Why a point of a group needs another run; `None` where it agrees with all that it can be compared with. Other policies are
/// compared at their queue depth 1, and only those of the same size.
#[must_use]
pub(crate) fn contradiction_in(groups: &[Group], index: usize, depth_index: usize) -> Option<String> {
    let group = groups.get(index)?;
    let (queue_depth, runs) = group.depths.get(depth_index)?;
    let depths: Vec<AtDepth> = group
        .depths
        .iter()
        .filter_map(|(queue_depth, runs)| Some(AtDepth { queue_depth: *queue_depth, iops: median(runs)? }))
        .collect();
    let other_policies: Vec<f64> = groups
        .iter()
        .enumerate()
        .filter(|(other, g)| *other != index && g.block_bytes == group.block_bytes)
        .filter_map(|(_, g)| median(&g.depths.first().filter(|(depth, _)| *depth == 1)?.1))
        .collect();
    contradiction(&Compared {
        runs,
        depths: &depths,
        queue_depth: *queue_depth,
        other_policies: &other_policies,
    })
}

/// Why the point needs another run; `None` where all agree.
#[must_use]
fn contradiction(point: &Compared<'_>) -> Option<String> {
    let own = median(point.runs)?;
    let thousands = |iops: f64| grouped(iops.round() as u64);
    // Two runs that disagree do not tell which is right, and with three the median is.
    if point.runs.len() < 3
        && let Some(run) = point.runs.iter().find(|run| (*run / own - 1.0).abs() > RUN_WITHIN)
    {
        return Some(format!("its runs differ: {} and {} IOPS", thousands(*run), thousands(own)));
    }
    if point.queue_depth == 1
        && let Some(others) = median(point.other_policies)
        && !(1.0 / POLICY_FACTOR..=POLICY_FACTOR).contains(&(own / others))
    {
        return Some(format!(
            "{} IOPS, where the other send policies have {} at queue depth 1",
            thousands(own),
            thousands(others)
        ));
    }
    if point.queue_depth == 1
        && let Some(next) = point.depths.iter().find(|next| (2..=SHALLOW).contains(&next.queue_depth))
        && next.iops > DEPTH_FACTOR * f64::from(next.queue_depth) * own
    {
        return Some(format!(
            "{} IOPS, where queue depth {} has {}, more than {} times as many",
            thousands(own),
            next.queue_depth,
            thousands(next.iops),
            next.queue_depth
        ));
    }
    let best = point.depths.iter().max_by(|a, b| a.iops.total_cmp(&b.iops))?;
    if point.queue_depth > best.queue_depth && own < DEEPEST_SHARE * best.iops {
        return Some(format!(
            "{} IOPS, where queue depth {} has {}",
            thousands(own),
            best.queue_depth,
            thousands(best.iops)
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depths(iops: &[(u32, f64)]) -> Vec<AtDepth> {
        iops.iter().map(|&(queue_depth, iops)| AtDepth { queue_depth, iops }).collect()
    }

    #[test]
    fn a_disturbed_depth_one_run_is_found_by_its_neighbours() {
        // A run of a study in which the model was then half of the measured throughput at every depth.
        let nagle = depths(&[(1, 2883.0), (2, 14_500.0), (128, 190_000.0)]);
        let point = Compared { runs: &[2883.0], depths: &nagle, queue_depth: 1, other_policies: &[11_200.0] };
        assert!(contradiction(&point).is_some_and(|why| why.contains("other send policies have 11 200")));
        // One policy alone: by the next depth.
        let alone = Compared { other_policies: &[], ..point };
        assert!(contradiction(&alone).is_some_and(|why| why.contains("queue depth 2 has 14 500")));
        // Two more runs settle it.
        let again = Compared { runs: &[2883.0, 11_100.0, 11_300.0], ..point };
        let calm = depths(&[(1, 11_100.0), (2, 14_500.0), (128, 190_000.0)]);
        assert_eq!(contradiction(&Compared { depths: &calm, ..again }), None);
    }

    #[test]
    fn policies_are_compared_with_those_of_their_own_size() {
        let group = |block_bytes, depths: &[(u32, f64)]| Group {
            block_bytes,
            depths: depths.iter().map(|&(depth, iops)| (depth, vec![iops])).collect(),
        };
        let disturbed = group(512, &[(1, 2883.0), (128, 190_000.0)]);
        let other = |bytes, depth| [disturbed.clone(), group(bytes, &[(depth, 11_200.0), (128, 29_000.0)])];
        assert!(contradiction_in(&other(512, 1), 0, 0).is_some_and(|why| why.contains("11 200")));
        assert_eq!(contradiction_in(&other(4096, 1), 0, 0), None, "another size has another rate");
        assert_eq!(contradiction_in(&other(512, 2), 0, 0), None, "queue depth 2 is no queue depth 1");
        let fast =
            [group(512, &[(1, 20_000.0), (128, 190_000.0)]), group(512, &[(1, 11_200.0), (128, 29_000.0)])];
        assert!(contradiction_in(&fast, 0, 0).is_some(), "not with itself");
        assert_eq!(contradiction_in(&other(512, 1), 2, 0), None);
    }

    #[test]
    fn two_runs_that_differ_need_a_third() {
        let depths = depths(&[(1, 11_000.0), (128, 150_000.0)]);
        let at_depth = |runs: &[f64]| {
            contradiction(&Compared { runs, depths: &depths, queue_depth: 128, other_policies: &[] })
        };
        assert!(at_depth(&[100_000.0, 150_000.0]).is_some());
        assert_eq!(at_depth(&[140_000.0, 150_000.0]), None);
        assert_eq!(at_depth(&[100_000.0, 149_000.0, 150_000.0]), None, "the median is none of the strays");
    }

    #[test]
    fn a_deepest_point_below_a_shallower_one_is_measured_again() {
        let depths = depths(&[(1, 11_000.0), (8, 110_000.0), (128, 60_000.0)]);
        let point = Compared { runs: &[60_000.0], depths: &depths, queue_depth: 128, other_policies: &[] };
        assert!(contradiction(&point).is_some_and(|why| why.contains("queue depth 8 has 110 000")));
    }

    #[test]
    fn healthy_rings_are_left_alone() {
        // The published curve, a ring whose latencies shrink with the load, a wire that is full from the start.
        for healthy in [
            &[(1, 3627.0), (2, 7250.0), (16, 58_500.0), (128, 63_000.0)][..],
            &[(1, 11_000.0), (2, 31_000.0), (8, 112_000.0), (32, 83_000.0), (128, 112_000.0)],
            &[(1, 9800.0), (128, 29_693.0)],
            &[(1, 900.0)],
        ] {
            let depths = depths(healthy);
            for (index, at) in depths.iter().enumerate() {
                let is_end = index == 0 || index + 1 == depths.len();
                let point = Compared {
                    runs: &[at.iops],
                    depths: &depths,
                    queue_depth: at.queue_depth,
                    other_policies: &[depths[0].iops * 1.2],
                };
                assert!(!is_end || contradiction(&point).is_none(), "{point:?}");
            }
        }
    }

    #[test]
    fn repeatability_is_half_of_the_range() {
        assert_eq!(repeatability(&[90.0, 100.0, 120.0]), Some(0.15));
        assert_eq!(repeatability(&[100.0]), None);
        assert_eq!(repeatability(&[]), None);
    }
}
