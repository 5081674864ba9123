//! Losses while the other direction is sending: one end of a cable is in half duplex, the other in full duplex.
//!
//! The verdict is about the packets of the direction that carries little. They overflow no queue of their own, so what loses
//! them only while the other direction is sending is the cable. The time that the losses cost is that of `retransmission`.

use record::{Conduct, ConnectionFacts, Passed, Side, StallKind};

use super::case::{Case, significant};
use super::found::Found;
use super::{Frames, VerdictKind};
use crate::ledger::LOSSES;

/// Fewest losses while the other direction is sending that form a pattern, and the least share of the packets.
const LOST_MIN: u64 = 8;
const LOST_SHARE: f64 = 0.01;
/// While the other direction is quiet, losses are this much rarer.
const RARER: f64 = 0.25;
/// Chance of so few losses while it is quiet, if it made no difference: with this one or less it does.
const CHANCE: f64 = 1e-3;
/// The direction that carries little has at most this share of the other one's bytes.
const LITTLE: f64 = 0.25;

/// The probability of `count` events or fewer where `expected` are expected (Poisson).
fn at_most(count: u64, expected: f64) -> f64 {
    let mut term = (-expected).exp();
    let mut sum = term;
    for n in 1..=count {
        term *= expected / n as f64;
        sum += term;
    }
    sum
}

/// Whether packets that crossed others were lost, and those that crossed none were not.
fn tells([quiet, busy]: [Passed; 2]) -> bool {
    let share = |of: Passed| of.lost as f64 / of.sent.max(1) as f64;
    let expected = quiet.sent as f64 * share(busy);
    busy.lost >= LOST_MIN
        && share(busy) >= LOST_SHARE
        && share(quiet) <= RARER * share(busy)
        && at_most(quiet.lost, expected) <= CHANCE
}

/// Whether a sender loses only while its peer is sending: collisions at the half-duplex end of a cable.
pub(super) fn is_within_traffic(conduct: &Conduct) -> bool {
    let share = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    conduct.retransmitted >= 20
        && share(conduct.retransmitted, conduct.segments + conduct.retransmitted) >= 0.005
        && share(conduct.retransmitted_against_traffic, conduct.retransmitted) >= 0.9
        && share(conduct.against_traffic, conduct.segments) <= 0.6
}

pub(super) fn within_traffic(case: &Case<'_>, facts: &ConnectionFacts, side: Side, found: &mut Found) {
    let conduct = facts.conduct(side);
    let percent = |a: u64, b: u64| a as f64 / b.max(1) as f64 * 100.0;
    let text = format!(
        "{} of {} segments of the {} were lost, {:.0} % of them while the other side was sending too, although it \
         was sending only {:.0} % of the time: one end of a cable is in half duplex and the other in full duplex",
        conduct.retransmitted,
        conduct.segments,
        side.name(),
        percent(conduct.retransmitted_against_traffic, conduct.retransmitted),
        percent(conduct.against_traffic, conduct.segments),
    );
    let stalls: Vec<_> = [StallKind::Timeout, StallKind::FastRetransmit]
        .iter()
        .flat_map(|&k| case.evidence.stalls(k))
        .collect();
    let vantage = stalls.first().map_or(0, |s| s.1);
    let frames = case.frames(vantage, stalls.iter().filter(|s| s.1 == vantage).flat_map(|s| &s.2.frames));
    let gain = case.loss_of_data().gain(case.most());
    let (_, lost_ns) = found.claim(case, &LOSSES);
    let (operations, _) = case.evidence.ledger.retransmissions();
    let cost_us = lost_ns as f64 / 1000.0;
    found.push(case.verdict(VerdictKind::DuplexMismatch, operations, cost_us, frames, text, gain));
}

/// Packets that a sender counts, missing behind the loss. The time is left to the verdict on the losses.
pub(super) fn judge(case: &Case<'_>, frames: &Frames, found: &mut Found) {
    // What the capture lacks looks as if it were lost on the way, and it lacks most where most passes.
    if case.loss.holes > 0 || case.loss.drops > 0 {
        return;
    }
    for side in [Side::Client, Side::Server] {
        let bytes = |side| {
            let of = case.evidence.senders().filter(|sender| sender.2 == side);
            of.map(|(_, facts, side)| facts.conduct(side).bytes).sum::<u64>() as f64
        };
        if bytes(side) > LITTLE * bytes(side.peer()) {
            continue;
        }
        let at = |vantage| {
            let here =
                case.evidence.connections().filter_map(|(_, f)| case.evidence.seen(f.connection, vantage));
            here.map(|facts| facts.conduct(side).crossing).fold([Passed::default(); 2], |all, one| {
                [0, 1].map(|n| Passed { sent: all[n].sent + one[n].sent, lost: all[n].lost + one[n].lost })
            })
        };
        let points = (0..case.inputs.len() as u32).map(at);
        let Some([quiet, busy]) = points.into_iter().find(|counts| tells(*counts)) else { continue };
        let percent = |of: Passed| significant(of.lost as f64 / of.sent.max(1) as f64 * 100.0);
        let text = format!(
            "{} of {} packets of the {} were lost ({} %) while the other direction was sending, and {} of {} ({} %) while \
             it was not: one end of a cable is in half duplex and the other in full duplex",
            busy.lost,
            busy.sent,
            side.name(),
            percent(busy),
            quiet.lost,
            quiet.sent,
            percent(quiet),
        );
        let gain = case.loss_of_data().gain(case.most());
        let (operations, _) = case.evidence.ledger.retransmissions();
        found.push(case.verdict(VerdictKind::DuplexMismatch, operations, 0.0, frames.clone(), text, gain));
        return;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(sent: u64, lost: u64) -> Passed {
        Passed { sent, lost }
    }

    #[test]
    fn losses_only_against_traffic_tell_and_losses_by_chance_do_not() {
        assert!(tells([passed(200, 0), passed(1000, 120)]));
        assert!(tells([passed(400, 2), passed(1000, 120)]));
        // A path that loses one in eight, whatever passes.
        assert!(!tells([passed(200, 25), passed(1000, 120)]));
        // One that loses less when little passes, but loses.
        assert!(!tells([passed(4000, 200), passed(1000, 120)]));
        // Too few that crossed nothing, too few losses, and too rare ones.
        assert!(!tells([passed(20, 0), passed(1000, 120)]));
        assert!(!tells([passed(900, 0), passed(70, 7)]));
        assert!(!tells([passed(90_000, 0), passed(90_000, 90)]));
    }

    #[test]
    fn chances_are_poisson_s() {
        assert!((at_most(0, 2.0) - (-2.0_f64).exp()).abs() < 1e-12);
        assert!((at_most(2, 2.0) - 5.0 * (-2.0_f64).exp()).abs() < 1e-12);
    }
}
