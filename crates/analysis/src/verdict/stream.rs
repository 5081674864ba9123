//! Verdicts on answers that come in pieces: what delays the first piece and the gaps between them.

use record::StallKind;

use super::case::{Case, duration, significant};
use super::found::Found;
use super::remedy::remedies;
use super::streams::Held;
use super::{Gain, Verdict, VerdictKind};

/// Fewest held responses that are no accident.
const ACCIDENTS: u64 = 3;

/// Where Nagle's algorithm held the pieces of streams, the verdict is on these: a stream does not take longer by it, its user
/// waits for the first piece and between pieces.
pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    let streams = &case.evidence.streams;
    let is_of_streams = |held: Held, stall: StallKind| {
        held.operations >= ACCIDENTS && 2 * held.operations >= case.evidence.ledger.waits(stall).0
    };
    let pieces = significant(streams.pieces as f64 / streams.operations.max(1) as f64);
    // The first verdict of this kind is that on waits within messages.
    if is_of_streams(streams.gaps_held, StallKind::NagleWithinMessage)
        && let Some(verdict) = verdict(found, VerdictKind::NagleDelayedAck)
    {
        let Held { operations, ns } = streams.gaps_held;
        verdict.text = format!(
            "Nagle's algorithm held pieces of {operations} responses, of {pieces} pieces each, until the delayed ACK of the \
             piece before came: {} in each response",
            duration(ns as f64 / operations as f64 / 1000.0)
        );
        let gaps = streams.pieces.saturating_sub(streams.operations);
        verdict.gain = gain("gap between pieces", streams.gaps_ns, ns, gaps, 0.0);
    }
    if is_of_streams(streams.first_held, StallKind::NagleHeaderThenBody)
        && let Some(verdict) = verdict(found, VerdictKind::HeaderBodyApart)
    {
        let Held { operations, ns } = streams.first_held;
        verdict.kind = VerdictKind::NagleDelayedAck;
        verdict.remedy = remedies(VerdictKind::NagleDelayedAck);
        verdict.text = format!(
            "Nagle's algorithm held the first piece of {operations} responses, of {pieces} pieces each, until the delayed \
             ACK of their head came: {} each",
            duration(ns as f64 / operations as f64 / 1000.0)
        );
        let away_us = away_us(case, StallKind::NagleHeaderThenBody);
        verdict.gain = gain("first piece", streams.first_ns, ns, streams.operations, away_us);
    }
}

fn verdict(found: &mut Found, kind: VerdictKind) -> Option<&mut Verdict> {
    found.verdicts.iter_mut().find(|verdict| verdict.kind == kind)
}

/// The way between the capture point and the clients of operations with such a wait, microseconds: their users wait for it, too.
fn away_us(case: &Case<'_>, stall: StallKind) -> f64 {
    let classes = case.evidence.ledger.classes().iter();
    let (count, away_ns) = classes.fold((0, 0.0), |(count, away_ns), class| {
        let waiters = class.waiters(stall);
        (count + waiters, away_ns + waiters as f64 * class.away_ns() as f64)
    });
    away_ns / count.max(1) as f64 / 1000.0
}

/// The gain on a part of a streamed response from removing what Nagle's algorithm held of it; `away_us` of it passes unseen.
fn gain(part: &str, now_ns: u128, held_ns: u128, count: u64, away_us: f64) -> Option<Gain> {
    let each_us = |ns: u128| ns as f64 / count.max(1) as f64 / 1000.0 + away_us;
    let (now_us, then_us) = (each_us(now_ns), each_us(now_ns.saturating_sub(held_ns)));
    let factor = now_us / then_us;
    (factor.is_finite() && factor > 1.0).then(|| Gain {
        throughput_factor: 1.0,
        throughput_least: 1.0,
        operation_us: Some((now_us, then_us)),
        operation_most_us: Some(then_us),
        text: format!(
            "the {part} takes {} instead of {} on average: {} times as fast",
            duration(then_us),
            duration(now_us),
            significant(factor)
        ),
    })
}
