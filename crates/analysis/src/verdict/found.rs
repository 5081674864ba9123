//! The verdicts found so far, and the part of the excess that they have claimed: each nanosecond at most once.

use record::StallKind;

use super::Verdict;
use super::case::Case;

/// The verdicts so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) verdicts: Vec<Verdict>,
    claimed: [bool; StallKind::ALL.len()],
    /// The part of the classes' rest that a verdict has claimed, nanoseconds.
    pub(super) rest_ns: u128,
    /// The part of the time without a response that a verdict has claimed, nanoseconds.
    pub(super) unanswered_ns: u128,
}

impl Found {
    pub(super) fn push(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
    }

    /// Claims the waits of kinds for one verdict, and returns those that no earlier verdict has: operations, and
    /// nanoseconds. An operation with several kinds counts once for each of them, at most as often as there are operations.
    pub(super) fn claim(&mut self, case: &Case<'_>, kinds: &[StallKind]) -> (u64, u128) {
        let mut all = (0, 0);
        for &kind in kinds {
            if !std::mem::replace(&mut self.claimed[kind as usize], true) {
                let (operations, ns) = case.evidence.ledger.waits(kind);
                all = (all.0 + operations, all.1 + ns);
            }
        }
        all
    }

    /// The waits that no verdict has claimed, nanoseconds.
    pub(super) fn unclaimed_waits_ns(&self, case: &Case<'_>) -> u128 {
        let open = StallKind::ALL.into_iter().filter(|&kind| !self.claimed[kind as usize]);
        open.map(|kind| case.evidence.ledger.waits(kind).1).sum()
    }
}
