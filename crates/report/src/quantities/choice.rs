//! Which parts of a run are shown closer: where it changes most, and otherwise its middle.

use super::{Quantity, Timed};

/// Operations of a close-up.
pub(super) const CLOSE_UP: usize = 48;
/// Fewest operations of a view that is no close-up.
const VIEW_MIN: usize = 3 * CLOSE_UP;
/// Slices in which a change is searched, and fewest operations of one.
const SLICES: usize = 32;
const SLICE_MIN: usize = 16;
/// A change is one if it is so many times as large as the differences at half of the other places, and this part of the median.
const CHANGE_FROM: f32 = 4.0;
const CHANGE_MIN: f32 = 0.04;
/// Length of views between a long run and a second.
const SECOND_NS: u64 = 1_000_000_000;

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Its stretch, and the operations in it.
    pub(super) stretch: usize,
    /// See `stretch`.
    pub(super) from: usize,
    /// See `stretch`.
    pub(super) to: usize,
    /// Its span, nanoseconds since the epoch.
    pub(super) from_ns: u64,
    /// See `from_ns`.
    pub(super) to_ns: u64,
}

/// The parts that are shown closer.
#[derive(Clone, Debug, Default)]
pub(super) struct Choice {
    /// Views of decreasing length, each within the one before.
    pub(super) views: Vec<Part>,
    /// Close-ups: one before and one after a change, or one.
    pub(super) close_ups: Vec<Part>,
}

/// Chooses the parts of a run that began and ended at these times.
pub(super) fn choose(stretches: &[Vec<Timed>], whole_ns: u64) -> Choice {
    let Some(quantity) = principal(stretches) else { return Choice::default() };
    let changes = stretches.iter().map(|operations| change(operations, quantity));
    let strongest = changes
        .enumerate()
        .filter_map(|(n, change)| Some((n, change?)))
        .max_by(|a, b| a.1.size.total_cmp(&b.1.size));
    let longest =
        || stretches.iter().enumerate().max_by_key(|(_, operations)| operations.len()).map(|(n, _)| n);
    let Some(stretch) = strongest.map(|(stretch, _)| stretch).or_else(longest) else {
        return Choice::default();
    };
    let operations = &stretches[stretch];
    let place = strongest.map(|(_, change)| change.place);
    let focus = place.unwrap_or(operations.len() / 2).min(operations.len().saturating_sub(1));
    let part = |from: usize, to: usize| Part {
        stretch,
        from,
        to,
        from_ns: operations[from].at_ns,
        to_ns: operations[to - 1].at_ns,
    };
    let mut views = Vec::new();
    let mut outer_ns = whole_ns;
    for length_ns in lengths(whole_ns) {
        let Some(view) = view(operations, focus, length_ns) else { continue };
        let (from, to) = view;
        if length_ns / 2 <= outer_ns / 3 && to - from >= VIEW_MIN {
            let from_ns = operations[from].at_ns;
            views.push(Part { from_ns, to_ns: from_ns.saturating_add(length_ns), ..part(from, to) });
            outer_ns = length_ns;
        }
    }
    let close_ups = match place {
        _ if operations.len() < 2 * CLOSE_UP => Vec::new(),
        Some(place) => {
            // A change is found within a slice.
            let before = place.saturating_sub(SLICE_MIN).max(CLOSE_UP);
            let after = (place + SLICE_MIN).min(operations.len() - CLOSE_UP);
            vec![part(before - CLOSE_UP, before), part(after, after + CLOSE_UP)]
        }
        None => {
            let from = focus.saturating_sub(CLOSE_UP / 2).min(operations.len() - CLOSE_UP);
            vec![part(from, from + CLOSE_UP)]
        }
    };
    Choice { views, close_ups }
}

/// Lengths of views, longest first, nanoseconds: a second, 100 ms, and something between a long run and a second.
fn lengths(whole_ns: u64) -> Vec<u64> {
    let seconds = whole_ns / SECOND_NS;
    let between = (seconds > 60).then(|| SECOND_NS * 10_u64.pow(seconds.ilog10().div_ceil(2)));
    between.into_iter().chain([SECOND_NS, SECOND_NS / 10]).collect()
}

/// The operations of a view of this length around one of them; `None` if the stretch is shorter.
fn view(operations: &[Timed], focus: usize, length_ns: u64) -> Option<(usize, usize)> {
    let (first, last) = (operations.first()?.at_ns, operations.last()?.at_ns);
    if last - first < length_ns {
        return None;
    }
    let begin = operations[focus].at_ns.saturating_sub(length_ns / 2).clamp(first, last - length_ns);
    let place = |at_ns: u64| operations.partition_point(|timed| timed.at_ns < at_ns);
    Some((place(begin), place(begin + length_ns)))
}

/// The quantity whose changes are searched: the network's, or the most inclusive one that is known.
fn principal(stretches: &[Vec<Timed>]) -> Option<Quantity> {
    let wanted = [Quantity::Network, Quantity::OutsideClient, Quantity::Server, Quantity::Client];
    let is_known =
        |quantity: &Quantity| stretches.iter().flatten().any(|timed| timed.us(*quantity).is_some());
    wanted.into_iter().find(is_known)
}

/// A change in how values are distributed.
#[derive(Clone, Copy, Debug)]
struct Change {
    /// The first operation after it.
    place: usize,
    /// By how much quantiles differ, as a part of the median.
    size: f32,
}

/// The strongest change in a stretch.
fn change(operations: &[Timed], quantity: Quantity) -> Option<Change> {
    let values: Vec<f32> = operations.iter().map(|timed| timed.us(quantity).unwrap_or(f32::NAN)).collect();
    let found = strongest(&values)?;
    // Closer, in what is around it.
    let (mut from, mut to, mut place) = (0, values.len(), found.place);
    while to - from > 2 * SLICES * SLICE_MIN {
        let around = (to - from) / SLICES * 3;
        (from, to) = (place.saturating_sub(around), (place + around).min(values.len()));
        let Some(closer) = strongest(&values[from..to]) else { break };
        place = from + closer.place;
    }
    Some(Change { place, size: found.size })
}

fn strongest(values: &[f32]) -> Option<Change> {
    let slices = (values.len() / SLICE_MIN).min(SLICES);
    if slices < 6 {
        return None;
    }
    let begin = |slice: usize| values.len() * slice / slices;
    let textures: Vec<[f32; 5]> = (0..slices).map(|s| texture(&values[begin(s)..begin(s + 1)])).collect();
    let differ = |place: usize| {
        let mean = |from: usize, n: usize| (textures[from][n] + textures[from + 1][n]) / 2.0;
        (0..5).map(|n| (mean(place, n) - mean(place - 2, n)).abs()).sum::<f32>() / 5.0
    };
    let places = 2..slices - 1;
    let mut sizes: Vec<f32> = places.clone().map(differ).collect();
    let place = places.max_by(|a, b| differ(*a).total_cmp(&differ(*b)))?;
    let size = differ(place);
    sizes.sort_by(f32::total_cmp);
    let usual = sizes[sizes.len() / 2];
    let median = texture(values)[2].abs().max(0.001);
    let is_one = size > CHANGE_FROM * usual && size > CHANGE_MIN * median;
    is_one.then(|| Change { place: begin(place), size: size / median })
}

/// Quantiles of values: 10, 25, 50, 75 and 90 %; 0 where there are none.
fn texture(values: &[f32]) -> [f32; 5] {
    let mut known: Vec<f32> = values.iter().copied().filter(|us| !us.is_nan()).collect();
    known.sort_by(f32::total_cmp);
    let last = known.len().saturating_sub(1) as f32;
    [0.1, 0.25, 0.5, 0.75, 0.9].map(|share| known.get((last * share) as usize).copied().unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations every 100 us whose network time is `us`.
    fn run(count: u64, us: impl Fn(u64) -> i64) -> Vec<Timed> {
        let timed = |n: u64| Timed::new(n * 100_000, [None, None, Some(us(n) * 1000), None, None, None]);
        (0..count).map(timed).collect()
    }

    #[test]
    fn views_surround_the_change_of_regime() {
        // Every fifth operation of the last third takes longer.
        for begins in [33_000_u64, 20_017, 4_000] {
            let operations =
                run(50_000, |n| if n > begins && n.is_multiple_of(5) { 164 } else { 45 + (n % 3) as i64 });
            let choice = choose(std::slice::from_ref(&operations), 5_000_000_000);
            assert_eq!(choice.views.len(), 2, "a second and 100 ms: {choice:?}");
            for view in &choice.views {
                let at_ns = operations[begins as usize].at_ns;
                assert!(view.from_ns < at_ns && at_ns < view.to_ns, "{begins}: {choice:?}");
            }
            let [before, after] = choice.close_ups[..] else { panic!("two close-ups: {choice:?}") };
            let slow = |part: &Part| {
                operations[part.from..part.to]
                    .iter()
                    .filter(|t| t.us(Quantity::Network) > Some(100.0))
                    .count()
            };
            assert!(slow(&before) <= 2 && slow(&after) >= 8, "{begins}: {choice:?}");
        }
    }

    #[test]
    fn without_a_change_the_middle_is_shown() {
        for operations in [run(50_000, |_| 45), run(50_000, |n| 45 + (n * 7919 % 13) as i64)] {
            let choice = choose(std::slice::from_ref(&operations), 5_000_000_000);
            let middle = operations[25_000].at_ns;
            assert_eq!((choice.views.len(), choice.close_ups.len()), (2, 1));
            assert!(
                choice
                    .views
                    .iter()
                    .chain(&choice.close_ups)
                    .all(|part| part.from_ns < middle && middle < part.to_ns)
            );
        }
    }

    #[test]
    fn few_operations_have_no_closer_view() {
        for count in [0, 1, 2, 50, 95] {
            let choice = choose(&[run(count, |_| 45)], count * 100_000);
            assert!(choice.views.is_empty() && choice.close_ups.is_empty(), "{count}: {choice:?}");
        }
        assert_eq!(choose(&[run(96, |_| 45)], 9_600_000).close_ups.len(), 1);
        assert!(choose(&[], 0).close_ups.is_empty());
    }

    #[test]
    fn long_runs_have_a_view_between() {
        assert_eq!(lengths(5_000_000_000), [1_000_000_000, 100_000_000]);
        assert_eq!(lengths(3_600_000_000_000), [100_000_000_000, 1_000_000_000, 100_000_000]);
    }
}
