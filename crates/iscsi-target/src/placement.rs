//! Which event loop serves a connection: a new one, and those of a loop that has no time left.

/// An event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The CPU that it is pinned to.
    pub(crate) cpu: Option<usize>,
    /// Connections that it serves or will serve.
    pub(crate) load: usize,
}

/// The loop for a connection whose packets the kernel handles on the CPU `incoming`: the one that is pinned there, since what the
/// kernel has touched is in that CPU's caches, and it wakes the loop without another CPU's help. It may serve a quarter more
/// connections than the least loaded one, which is chosen otherwise; of several such, the first from `turn` on. `None` where there
/// is no loop.
pub(crate) fn choose(places: &[Place], incoming: Option<usize>, turn: usize) -> Option<usize> {
    let first = turn % places.len().max(1);
    let in_turn = || (first..places.len()).chain(0..first);
    let least = in_turn().min_by_key(|&index| places[index].load)?;
    let most = places[least].load + places[least].load / 4 + 1;
    let here = |&index: &usize| incoming.is_some() && places[index].cpu == incoming;
    let near = in_turn().filter(here).min_by_key(|&index| places[index].load);
    Some(near.filter(|&index| places[index].load < most).unwrap_or(least))
}

/// The part of its time from which on a loop has none left.
const FULL: f32 = 0.9;
/// Two loops whose parts differ by less are left as they are.
const UNEVEN: f32 = 0.3;

/// The loop that should take connections over from one that works for `own` of its time, and how much of its time: half of what
/// it has less to do, so that the two have as much then. `others` are the parts of the other loops; of several, the first.
pub(crate) fn relief(own: f32, others: impl Iterator<Item = f32>) -> Option<(usize, f32)> {
    let least = others.enumerate().min_by(|(_, a), (_, b)| a.total_cmp(b));
    let (index, part) = least.filter(|&(_, part)| own >= FULL && own - part >= UNEVEN)?;
    Some((index, (own - part) / 2.0))
}

/// The part of its time that a loop that worked for `own` of it works from now on, when it has handed over `moved`: nothing if it
/// has no connection left, in which case it sleeps and looks at nothing until it gets one.
pub(crate) fn rest(own: f32, moved: f32, is_empty: bool) -> f32 {
    if is_empty { 0.0 } else { (own - moved).max(0.0) }
}

/// The connections that a loop hands over: the largest ones that together take at most `excess` of its time. What takes more stays:
/// it would only change places.
pub(crate) fn surplus(mut shares: Vec<(u64, f32)>, excess: f32) -> Vec<(u64, f32)> {
    let mut left = excess;
    shares.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    shares.retain(|&(_, share)| {
        let fits = share > 0.0 && share <= left;
        if fits {
            left -= share;
        }
        fits
    });
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(all: &[(Option<usize>, usize)]) -> Vec<Place> {
        all.iter().map(|&(cpu, load)| Place { cpu, load }).collect()
    }

    #[test]
    fn a_connection_goes_where_its_packets_arrive() {
        let loops = places(&[(Some(4), 0), (Some(6), 0)]);
        for turn in 0..4 {
            assert_eq!(choose(&loops, Some(4), turn), Some(0));
            assert_eq!(choose(&loops, Some(6), turn), Some(1));
            assert_eq!(choose(&loops, Some(5), turn), Some(turn % 2), "no loop is there");
            assert_eq!(choose(&loops, None, turn), Some(turn % 2));
        }
        let free = places(&[(None, 0), (None, 0)]);
        assert_eq!(
            (choose(&free, None, 1), choose(&free, Some(0), 1), choose(&[], Some(0), 7)),
            (Some(1), Some(1), None)
        );
    }

    #[test]
    fn a_loop_gets_a_quarter_more_than_another_at_most() {
        // All packets arrive at one CPU: a switch, or one interrupt for all.
        let mut loops = places(&[(Some(0), 0), (Some(1), 0), (Some(2), 0)]);
        for turn in 0..1000 {
            let chosen = choose(&loops, Some(2), turn).unwrap();
            loops[chosen].load += 1;
            let loads = [loops[0].load, loops[1].load, loops[2].load];
            let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
            assert!(*most <= least + least / 4 + 1, "{loads:?}");
        }
        assert!(loops[2].load > loops[0].load && loops[0].load.abs_diff(loops[1].load) <= 1, "{loops:?}");
    }

    #[test]
    fn only_a_loop_without_time_is_relieved_and_only_by_one_with_time() {
        let to = |own, others: &[f32]| relief(own, others.iter().copied());
        assert_eq!(to(0.8, &[0.0]), None, "it has time");
        assert_eq!(to(1.0, &[0.9, 0.75]), None, "the others have little");
        assert_eq!(to(1.0, &[]), None);
        assert_eq!(to(1.0, &[0.9, 0.5, 0.5]), Some((1, 0.25)));
        assert_eq!(to(1.0, &[0.0]), Some((0, 0.5)));
    }

    #[test]
    fn what_is_handed_over_is_half_of_the_difference_at_most() {
        let ids = |shares: &[f32], excess| {
            let all = (1..).zip(shares.iter().copied()).collect();
            surplus(all, excess).into_iter().map(|(id, _)| id).collect::<Vec<u64>>()
        };
        assert_eq!(ids(&[0.25; 4], 0.5), [1, 2]);
        assert_eq!(ids(&[0.5, 0.5], 0.5), [1]);
        assert_eq!(ids(&[1.0], 0.5), [0; 0], "one alone would only change places");
        assert_eq!(ids(&[0.9, 0.06, 0.04], 0.5), [2, 3], "the others leave the one that takes all");
        assert_eq!(ids(&[0.125, 0.25, 0.1875, 0.375], 0.5), [4, 1]);
        assert_eq!(ids(&[0.0, 0.0, 1.0], 0.5), [0; 0], "idle ones do not matter");
        // It ends: what has moved does not come back.
        let mut loops = [vec![0.09_f32; 11], vec![]];
        for moves in 0.. {
            let busy = loops.each_ref().map(|own| own.iter().sum::<f32>());
            let from = usize::from(busy[1] > busy[0]);
            let Some((_, excess)) = relief(busy[from], [busy[1 - from]].into_iter()) else { break };
            assert!(moves < 2, "{busy:?}");
            let shares: Vec<(u64, f32)> = (0..).zip(loops[from].iter().copied()).collect();
            for (_, share) in surplus(shares, excess) {
                loops[from].pop();
                loops[1 - from].push(share);
            }
        }
        assert_eq!(loops.map(|own| own.len()), [6, 5]);
    }

    /// Its heavy connection has ended just before it hands over the others: the others' loop must not find it full for ever.
    #[test]
    fn a_loop_that_has_handed_over_all_has_time() {
        assert_eq!(rest(0.95, 0.05, true), 0.0);
        assert_eq!(rest(1.0, 0.5, false), 0.5);
        assert_eq!(relief(1.0, [rest(1.0, 0.25, true)].into_iter()), Some((0, 0.5)));
    }

    #[test]
    fn loops_that_share_a_cpu_share_its_connections() {
        let mut loops = places(&[(Some(0), 0), (Some(0), 0), (Some(1), 0)]);
        for turn in 0..9 {
            let chosen = choose(&loops, Some(0), turn).unwrap();
            loops[chosen].load += 1;
        }
        assert!(loops.iter().all(|place| (2..=4).contains(&place.load)), "{loops:?}");
    }
}
