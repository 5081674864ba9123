//! The search for the largest size that passes.

/// What became of a packet of some size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It arrived.
    Passed,
    /// It vanished, again and again.
    Lost,
    /// Neither is sure.
    Unknown,
}

/// Narrows the gap between a size that passes and a larger one that is lost, bytes, until they are neighbours, or a fate is
/// unknown. At most 16 steps for sizes up to 65536.
pub(super) fn narrow(mut passes: u32, mut lost: u32, mut fate: impl FnMut(u32) -> Fate) -> (u32, u32) {
    // Where tunnels and DSL end: trying these first ends most searches after two steps.
    let mut usual = [1280, 1281, 1500, 1501, 1492, 1493, 1400, 1401, 1420, 1421].into_iter();
    while lost.saturating_sub(passes) > 1 {
        let likely = usual.by_ref().find(|size| (passes + 1..lost).contains(size));
        let size = likely.unwrap_or(passes + (lost - passes) / 2);
        match fate(size) {
            Fate::Passed => passes = size,
            Fate::Lost => lost = size,
            Fate::Unknown => break,
        }
    }
    (passes, lost)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_limit_is_found_in_few_steps(limit in 68_u32..65_535, above in 1_u32..60_000) {
            let mut steps = 0;
            let (passes, lost) = narrow(64, (limit + above).min(65_536), |size| {
                steps += 1;
                if size <= limit { Fate::Passed } else { Fate::Lost }
            });
            prop_assert_eq!((passes, lost), (limit, limit + 1));
            prop_assert!(steps <= 26, "{}", steps);
        }
    }

    #[test]
    fn an_unknown_fate_ends_the_search_with_what_is_known() {
        assert_eq!(narrow(64, 9000, |_| Fate::Unknown), (64, 9000));
        assert_eq!(narrow(64, 64, |_| Fate::Passed), (64, 64));
    }

    #[test]
    fn usual_limits_take_two_steps() {
        let mut tried = Vec::new();
        let found = narrow(576, 1500, |size| {
            tried.push(size);
            if size <= 1280 { Fate::Passed } else { Fate::Lost }
        });
        assert_eq!((found, tried), ((1280, 1281), vec![1280, 1281]));
    }
}
