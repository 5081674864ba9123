//! Which event loop serves a new connection.

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
    fn loops_that_share_a_cpu_share_its_connections() {
        let mut loops = places(&[(Some(0), 0), (Some(0), 0), (Some(1), 0)]);
        for turn in 0..9 {
            let chosen = choose(&loops, Some(0), turn).unwrap();
            loops[chosen].load += 1;
        }
        assert!(loops.iter().all(|place| (2..=4).contains(&place.load)), "{loops:?}");
    }
}
