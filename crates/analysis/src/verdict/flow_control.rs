//! The verdict on windows of the application protocol's own flow control (HTTP/2, RFC 9113 5.2).

use record::{Side, StallKind};

use super::VerdictKind;
use super::case::Case;
use super::evidence::Stalls;
use super::found::Found;
use super::tcp::{COINCIDENCE, WINDOW_SHARE, mean_wait, stalled, whose};

/// A receiver that reads at once gives room a round trip after the data left; of a wait that is so many times as long, most is the
/// receiver's own time, or that of a queue or a full link: a larger window would be full as well.
const TRIPS: u64 = 2;

pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    let ledger = &case.evidence.ledger;
    let waited_ns = ledger.waits(StallKind::FlowControl).1;
    if (waited_ns as f64) < WINDOW_SHARE * ledger.time_ns() as f64 {
        return;
    }
    let mut seen = case.evidence.stalls(StallKind::FlowControl);
    seen.retain(|(side, _, stalls)| stalls.count >= COINCIDENCE && is_of_the_window(case, *side, stalls));
    let kind = VerdictKind::FlowControlWindow;
    stalled(case, found, kind, StallKind::FlowControl, &seen, |side, stalls| {
        let (sender, receiver) = whose(side);
        format!(
            "{} times the {sender} had used up the {receiver}'s window of flow control and could not continue until an \
             update of it came, about a round trip later: {} each",
            stalls.count,
            mean_wait(stalls)
        )
    });
}

/// Whether the waits are round trips.
fn is_of_the_window(case: &Case<'_>, side: Side, stalls: &Stalls) -> bool {
    let facts = stalls.connections.iter().filter_map(|&connection| case.evidence.near(connection, side));
    let trip_ns = facts.map(|(_, facts)| facts.round_trip_ns()).max().unwrap_or(0);
    stalls.wait_at_ns(0.5) <= trip_ns.saturating_mul(TRIPS)
}
