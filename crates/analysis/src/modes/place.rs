//! The place of a difference: the segment that holds most of it.

use super::series::{self, Series};
use super::{Point, drift};
use crate::parts::Part;

/// The share of a difference that a segment must hold to be named as its place.
const HOLDS: f64 = 0.7;

/// The segment with the largest share of a difference: the finest one that holds most of it, else both ways of the network
/// together, else the whole.
pub(super) fn place_of(whole: (Part, f64), difference: impl Fn(Part) -> Option<f64>) -> Part {
    let (whole, all) = whole;
    if all == 0.0 {
        return whole;
    }
    let share = |segment: Part| difference(segment).map(|difference| (segment, difference / all));
    let leaves = [Part::RequestPath, Part::ResponsePath, Part::Server];
    let largest = leaves.into_iter().filter_map(share).max_by(|a, b| a.1.total_cmp(&b.1));
    let candidates = [largest, share(Part::Network)];
    let holder = candidates.into_iter().flatten().find(|(_, share)| *share >= HOLDS);
    holder.map_or(whole, |(segment, _)| segment)
}

/// The place of a difference of a part that is the sum of others, from each part's series.
fn of_series(points: &[Point], whole: Part, difference: impl Fn(&Series) -> f64) -> Part {
    let of = |segment: Part| Series::of(points, segment).map(|series| difference(&series));
    of(whole).map_or(whole, |all| place_of((whole, all), of))
}

/// The place of the difference between slow operations and the others.
pub(super) fn home_of(points: &[Point], whole: Part, is_slow: &[bool]) -> Part {
    if whole != Part::RoundTrip {
        return whole;
    }
    of_series(points, whole, |series| {
        let mean = |slow: bool| {
            let values = series.values.iter().zip(is_slow).filter(|(_, s)| **s == slow).map(|(v, _)| *v);
            let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
            sum / f64::max(count, 1.0)
        };
        mean(true) - mean(false)
    })
}

/// The place of a drift of the whole: the segment that moved by about as much.
pub(super) fn drift_home(points: &[Point], drift: &drift::Drift) -> Part {
    let count = points.len();
    // The largest jump, or the first and the last tenth of a ramp.
    let (before, behind) = match drift {
        drift::Drift::Ramp { .. } => (0..count / 10, count - count / 10..count),
        drift::Drift::Jumps(jumps) => {
            let height = |jump: &drift::Jump| (jump.levels_us.1 - jump.levels_us.0).abs();
            let place = (0..jumps.len()).max_by(|&a, &b| height(&jumps[a]).total_cmp(&height(&jumps[b])));
            let place = place.unwrap_or(0);
            let at = |place: usize| jumps.get(place).map_or(count, |jump| jump.at.min(count));
            let from = if place == 0 { 0 } else { at(place - 1) };
            (from..at(place), at(place)..at(place + 1))
        }
    };
    of_series(points, Part::RoundTrip, |series| {
        let level = |range: std::ops::Range<usize>| {
            series::median(series.values.get(range).map(<[f64]>::to_vec).unwrap_or_default())
        };
        level(behind.clone()) - level(before.clone())
    })
}
