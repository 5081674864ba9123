//! What is left of the excess and has a known place, but gets no verdict: waits that packets prove and that are no habit, and the
//! server's time that varies. Nothing is wrong with it, as far as the capture shows; it is stated so that it is not unexplained.

use record::StallKind;

use super::case::{Case, duration};
use super::found::Found;
use super::{Frames, VerdictKind};
use crate::ledger::{Class, LOSSES};

/// Share of the time of all operations from which on something is stated.
const STATED: f64 = 0.005;

/// Waits that are facts, whether they recur or not. What only its regularity distinguishes from a slow program is none.
const FACTS: [(VerdictKind, &[StallKind], &str); 8] = [
    (VerdictKind::Retransmission, &LOSSES, "for data that was sent again"),
    (VerdictKind::WindowLimited, &[StallKind::WindowFull], "because the receiver's window was full"),
    (
        VerdictKind::FlowControlWindow,
        &[StallKind::FlowControl],
        "until the receiver gave room in a window of flow control (HTTP/2)",
    ),
    (
        VerdictKind::BufferLimited,
        &[StallKind::AckWait],
        "in the middle of a message, until an acknowledgement came",
    ),
    (
        VerdictKind::CongestionWindow,
        &[StallKind::CongestionWindow],
        "in the middle of a message, until acknowledgements made room in the congestion window",
    ),
    (
        VerdictKind::SlowStartAfterIdle,
        &[StallKind::SlowStartAfterIdle],
        "in the middle of a message after an idle time, until acknowledgements made room in the congestion window",
    ),
    (VerdictKind::ContinueUnanswered, &[StallKind::ContinueAwaited], "for 100 Continue, which did not come"),
    (VerdictKind::Bufferbloat, &[StallKind::QueuedOnPath], "in a queue on the path"),
];

pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    waits(case, found);
    varying(case, found);
}

/// Whether a time has enough weight to be stated.
fn is_weighty(case: &Case<'_>, ns: u128) -> bool {
    ns > 0 && ns as f64 >= STATED * case.evidence.ledger.time_ns() as f64
}

fn waits(case: &Case<'_>, found: &mut Found) {
    for (kind, stalls, why) in FACTS {
        let open: Vec<StallKind> = stalls.iter().copied().filter(|stall| !found.is_claimed(*stall)).collect();
        let ns: u128 = open.iter().map(|stall| case.evidence.ledger.waits(*stall).1).sum();
        if !is_weighty(case, ns) {
            continue;
        }
        let (operations, ns) = found.claim(case, &open);
        let us = ns as f64 / 1000.0;
        let text = format!(
            "{} waited {why}, {} in all: too seldom, or too differently, for a verdict on the cause",
            told(operations),
            duration(us)
        );
        found.notes.push(case.verdict(kind, operations, us, Frames::default(), text, None));
    }
}

/// So many operations.
fn told(operations: u64) -> String {
    format!("{operations} operation{}", if operations == 1 { "" } else { "s" })
}

/// The part of the excess that passed until the first byte.
fn varying(case: &Case<'_>, found: &mut Found) {
    let classes = || case.evidence.ledger.classes().iter().zip(&found.references_ns);
    let (mut operations, mut server_ns, mut rest_ns) = (0, 0, 0);
    for (class, &reference_ns) in classes() {
        let rest = class.rest(reference_ns);
        operations += rest.operations;
        server_ns += rest.server_ns;
        rest_ns += rest.ns;
    }
    let left_ns = server_ns.saturating_sub(found.rest_ns).min(rest_ns.saturating_sub(found.rest_ns));
    if !is_weighty(case, left_ns) {
        return;
    }
    let is_seen = classes().any(|(class, _): (&Class, _)| class.has_server());
    let place = if is_seen { "at the server" } else { "at the server, or on the way to it and back" };
    let us = left_ns as f64 / 1000.0;
    let text = format!(
        "the time until the first byte varies {place}: {} took {} longer in all than is typical of their kind",
        told(operations),
        duration(us)
    );
    found.rest_ns += left_ns;
    found.notes.push(case.verdict(VerdictKind::SlowTarget, operations, us, Frames::default(), text, None));
}
