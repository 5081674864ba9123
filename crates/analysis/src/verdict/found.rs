//! The verdicts found so far, and the part of the excess that they have claimed: each nanosecond at most once.

use std::collections::BTreeSet;

use record::StallKind;

use super::Verdict;
use super::case::Case;

/// The verdicts so far.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) verdicts: Vec<Verdict>,
    /// What is known and no fault: notes, whatever their weight.
    pub(super) notes: Vec<Verdict>,
    /// The reference of each class, ns.
    pub(super) references_ns: Vec<u64>,
    /// Connections whose requests Nagle's algorithm holds.
    pub(super) held: BTreeSet<u32>,
    claimed: [bool; StallKind::ALL.len()],
    /// The part of the classes' rest that a verdict has claimed, nanoseconds.
    pub(super) rest_ns: u128,
    /// The part of the time without a response that a verdict has claimed, nanoseconds.
    pub(super) unanswered_ns: u128,
    /// Time of connections' set-up that a verdict has claimed: that outside of operations, and that of greetings, which are
    /// operations. Nanoseconds.
    pub(super) setups_ns: u128,
    pub(super) greetings_ns: u128,
    /// What requests wait for each other behind an accept queue that overflows, nanoseconds: part of `rest_ns`. And the time
    /// for each.
    pub(super) at_accept_ns: u128,
    pub(super) accepts_each_us: Option<f64>,
    /// The places of the verdicts on slow servers, by service.
    slow: Vec<(u32, usize)>,
}

impl Found {
    /// Nothing yet, beyond these references of the classes.
    pub(super) fn beyond(references_ns: Vec<u64>) -> Self {
        Self { references_ns, ..Self::default() }
    }

    pub(super) fn push(&mut self, verdict: Verdict) {
        self.verdicts.push(verdict);
    }

    /// Adds a verdict on a slow server. One service has one: what is slow of it in several ways, or sizes, has one remedy. The more
    /// specific sentence comes first.
    pub(super) fn push_slow(&mut self, service: u32, verdict: Verdict, is_specific: bool) {
        let known = self.slow.iter().find(|(of, _)| *of == service).map(|(_, place)| *place);
        let Some(old) = known.and_then(|place| self.verdicts.get_mut(place)) else {
            self.slow.push((service, self.verdicts.len()));
            self.verdicts.push(verdict);
            return;
        };
        let [first, second] =
            if is_specific { [&verdict.text, &old.text] } else { [&old.text, &verdict.text] };
        old.text = format!("{first}; besides, {second}");
        old.operations += verdict.operations;
        old.share = (old.share + verdict.share).min(1.0);
        old.cost_us += verdict.cost_us;
        if old.frames.numbers.is_empty() {
            old.frames = verdict.frames;
        }
        old.gain = match (old.gain.take(), verdict.gain) {
            (Some(one), Some(other)) => one.and(&other),
            (one, other) => one.or(other),
        };
    }

    /// Whether the verdicts so far explain half of the time: then a server or a client only looks slow.
    pub(super) fn is_explained(&self, case: &Case<'_>) -> bool {
        let of_tcp = self.verdicts.iter().filter(|verdict| !verdict.kind.is_of_the_server());
        let explained_us: f64 = of_tcp.map(|verdict| verdict.cost_us).sum();
        explained_us >= 0.5 * case.evidence.ledger.time_ns() as f64 / 1000.0
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

    /// Whether a verdict has claimed the waits of a kind.
    pub(super) fn is_claimed(&self, kind: StallKind) -> bool {
        self.claimed[kind as usize]
    }

    /// The waits that no verdict has claimed, nanoseconds.
    pub(super) fn unclaimed_waits_ns(&self, case: &Case<'_>) -> u128 {
        let open = StallKind::ALL.into_iter().filter(|&kind| !self.claimed[kind as usize]);
        open.map(|kind| case.evidence.ledger.waits(kind).1).sum()
    }
}
