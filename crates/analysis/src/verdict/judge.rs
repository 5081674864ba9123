//! From evidence to verdicts.

use super::case::Case;
use super::found::Found;
use super::no_response::Outage;
use super::{Frames, Verdict, VerdictKind, no_response, rate, tcp};
use crate::ledger::Excess;

/// The verdicts, the costliest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// The verdicts.
    pub verdicts: Vec<Verdict>,
    /// Verdicts on time that have too little weight: less than [`WEIGHT_MIN`] of the time of all operations.
    pub minor: Vec<Verdict>,
    /// The account of the operations' time.
    pub excess: Excess,
}

/// Share of the time of all operations below which a verdict on lost time is a note.
pub const WEIGHT_MIN: f64 = 0.02;

/// Returns the verdicts on a case.
#[must_use]
pub fn judge(case: &Case<'_>) -> Judgement {
    let outage = Outage::of(case);
    let ledger = &case.evidence.ledger;
    let all_ns = ledger.time_ns() + outage.all_ns();
    let mut found = Found::default();
    tcp::judge(case, &outage, &mut found);
    no_response::judge(case, &outage, &mut found);
    rate::judge(case, &mut found);
    capture_loss(case, &mut found);

    let us = |ns: u128| ns as f64 / 1000.0;
    let rest_ns: u128 = ledger.classes().iter().map(|class| class.rest(class.reference_ns()).ns).sum();
    let mut unexplained_us = us(found.unclaimed_waits_ns(case))
        + us(rest_ns.saturating_sub(found.rest_ns))
        + us(outage.all_ns().saturating_sub(found.unanswered_ns));
    // An estimate cannot exceed what is left to explain.
    for verdict in found.verdicts.iter_mut().filter(|verdict| verdict.kind == VerdictKind::SmallSegments) {
        verdict.weight = verdict.cost_us / us(all_ns).max(f64::MIN_POSITIVE);
        verdict.cost_us = verdict.cost_us.min(unexplained_us);
        unexplained_us -= verdict.cost_us;
    }
    for verdict in found.verdicts.iter_mut().filter(|verdict| verdict.kind != VerdictKind::SmallSegments) {
        verdict.weight = verdict.cost_us / us(all_ns).max(f64::MIN_POSITIVE);
    }
    let is_minor = |verdict: &Verdict| verdict.kind.is_of_lost_time() && verdict.weight < WEIGHT_MIN;
    let (mut minor, mut verdicts): (Vec<_>, Vec<_>) = found.verdicts.into_iter().partition(is_minor);
    for all in [&mut minor, &mut verdicts] {
        all.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
    }
    let sum_us = |all: &[Verdict]| all.iter().map(|verdict| verdict.cost_us).fold(0.0, |sum, us| sum + us);
    let excess = Excess {
        operations_us: us(all_ns),
        excess_us: us(ledger.excess_ns() + outage.all_ns()),
        verdicts_us: sum_us(&verdicts),
        minor_us: sum_us(&minor),
        unexplained_us,
    };
    Judgement { verdicts, minor, excess }
}

fn capture_loss(case: &Case<'_>, found: &mut Found) {
    let loss = case.loss;
    if loss.holes == 0 && loss.drops == 0 {
        return;
    }
    found.push(case.verdict(
        VerdictKind::CaptureLoss,
        loss.operations,
        0.0,
        Frames::default(),
        format!(
            "the capture lost packets: {} holes of {} bytes in all, {} packets dropped by the capturing system; \
             about {} operations are missing",
            loss.holes, loss.hole_bytes, loss.drops, loss.operations
        ),
        None,
    ));
}
