//! From evidence to verdicts.

use record::units::counted;

use super::case::Case;
use super::coming::Coming;
use super::found::Found;
use super::no_response::Outage;
use super::{
    Frames, Gain, Verdict, VerdictKind, network, no_response, notes, rate, server, setup, stream, tcp,
};
use crate::ledger::{Class, Excess};

/// The verdicts, the costliest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// The verdicts.
    pub verdicts: Vec<Verdict>,
    /// Verdicts on time that have too little weight: less than [`WEIGHT_MIN`] of the time of all operations.
    pub minor: Vec<Verdict>,
    /// The account of the operations' time.
    pub excess: Excess,
    /// Responses that were still coming when the capture ended.
    pub coming: Coming,
}

/// Share of the time of all operations below which a verdict on lost time is a note.
pub const WEIGHT_MIN: f64 = 0.02;

/// Returns the verdicts on a case.
#[must_use]
pub fn judge(case: &Case<'_>) -> Judgement {
    let outage = Outage::of(case);
    let ledger = &case.evidence.ledger;
    let references_ns = ledger.classes().iter().map(Class::reference_ns).collect();
    let mut found = Found::beyond(references_ns);
    tcp::judge(case, &outage, &mut found);
    network::judge(case, &mut found);
    stream::judge(case, &mut found);
    no_response::judge(case, &outage, &mut found);
    server::judge(case, &mut found);
    rate::judge(case, &mut found);
    // Its time lies outside of operations: it says nothing on which side is slow in them.
    setup::judge(case, &mut found);
    capture_loss(case, &mut found);
    notes::judge(case, &mut found);

    let all_ns = ledger.time_ns() + outage.all_ns() + found.setups_ns;
    let us = |ns: u128| ns as f64 / 1000.0;
    let rest_ns = ledger.rest_ns(&found.references_ns);
    let mut unexplained_us = us(found.unclaimed_waits_ns(case))
        + us(rest_ns.saturating_sub(found.rest_ns))
        + us(outage.all_ns().saturating_sub(found.unanswered_ns));
    // An estimate cannot exceed what is left to explain.
    for verdict in found.verdicts.iter_mut().filter(|verdict| verdict.kind == VerdictKind::SmallSegments) {
        verdict.weight = (verdict.cost_us / us(all_ns).max(f64::MIN_POSITIVE)).min(1.0);
        verdict.cost_us = verdict.cost_us.min(unexplained_us);
        unexplained_us -= verdict.cost_us;
    }
    for verdict in found.verdicts.iter_mut().filter(|verdict| verdict.kind != VerdictKind::SmallSegments) {
        verdict.weight = (verdict.cost_us / us(all_ns).max(f64::MIN_POSITIVE)).min(1.0);
    }
    // The account has no more than the operations' time, and each of its parts no more than what the others leave.
    let excess_us =
        us(ledger.excess_ns(&found.references_ns) + outage.all_ns() + found.setups_ns + found.greetings_ns)
            .min(us(all_ns));
    unexplained_us = limit(found.verdicts.iter_mut().chain(&mut found.notes), excess_us);
    let is_minor = |verdict: &Verdict| {
        verdict.kind.is_of_lost_time()
            && (verdict.weight < WEIGHT_MIN || verdict.gain.as_ref().is_some_and(Gain::is_nothing))
    };
    let (mut minor, mut verdicts): (Vec<_>, Vec<_>) =
        std::mem::take(&mut found.verdicts).into_iter().partition(is_minor);
    minor.append(&mut found.notes);
    for all in [&mut minor, &mut verdicts] {
        all.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
    }
    let sum_us = |all: &[Verdict]| all.iter().map(|verdict| verdict.cost_us).fold(0.0, |sum, us| sum + us);
    let excess = Excess {
        operations_us: us(all_ns),
        excess_us,
        verdicts_us: sum_us(&verdicts),
        minor_us: sum_us(&minor),
        unexplained_us,
    };
    Judgement { verdicts, minor, excess, coming: outage.coming }
}

/// Limits the costs to the excess, the first ones first, and returns what of it is not explained, microseconds.
fn limit<'a>(verdicts: impl Iterator<Item = &'a mut Verdict>, excess_us: f64) -> f64 {
    verdicts.fold(excess_us, |left_us, verdict| {
        verdict.cost_us = verdict.cost_us.min(left_us);
        left_us - verdict.cost_us
    })
}

/// A gain below this factor is not worth a change.
const WORTH: f64 = 1.03;

impl Gain {
    /// Whether the remedy gains next to nothing, in time and in operations.
    fn is_nothing(&self) -> bool {
        let is_as_long = self.operation_us.is_some_and(|(now_us, then_us)| now_us < WORTH * then_us);
        self.throughput_factor < WORTH && is_as_long
    }
}

fn capture_loss(case: &Case<'_>, found: &mut Found) {
    let loss = case.loss;
    if loss.holes == 0 && loss.drops == 0 {
        return;
    }
    let missing = match (loss.operations, loss.unknown_holes) {
        (1, 0) => "about one operation is missing".to_owned(),
        (operations, 0) => format!("about {operations} operations are missing"),
        (0, _) => "an unknown number of operations is missing".to_owned(),
        (operations, holes) => {
            format!(
                "about {operations} operations are missing, and an unknown number in {holes} of the holes"
            )
        }
    };
    found.push(case.verdict(
        VerdictKind::CaptureLoss,
        loss.operations,
        0.0,
        Frames::default(),
        format!(
            "the capture lost packets: {} of {} bytes in all, {} dropped by the capturing system; {missing}",
            counted(loss.holes, "hole"),
            loss.hole_bytes,
            counted(loss.drops, "packet")
        ),
        None,
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_no_more_than_the_excess() {
        let of = |cost_us| Verdict {
            kind: VerdictKind::SlowTarget,
            operations: 1,
            share: 1.0,
            cost_us,
            weight: 0.0,
            pauses_us: 0.0,
            frames: Frames::default(),
            text: String::new(),
            remedy: Vec::new(),
            gain: None,
        };
        let mut all = [of(60.0), of(70.0), of(5.0)];
        assert!(limit(all.iter_mut(), 100.0).abs() < 1e-9);
        assert_eq!(all.map(|verdict| verdict.cost_us), [60.0, 40.0, 0.0]);
        assert!((limit([of(30.0)].iter_mut(), 100.0) - 70.0).abs() < 1e-9);
    }

    #[test]
    fn a_gain_is_nothing_only_in_time_and_in_operations() {
        let gain = |throughput_factor, operation_us| Gain {
            throughput_factor,
            throughput_least: throughput_factor,
            operation_us,
            operation_most_us: None,
            text: String::new(),
        };
        assert!(gain(1.02, Some((100.0, 98.0))).is_nothing());
        // Requests that come by themselves come no faster, and take half the time.
        assert!(!gain(1.0, Some((100.0, 50.0))).is_nothing());
        assert!(!gain(1.5, Some((100.0, 98.0))).is_nothing());
        assert!(!gain(1.02, None).is_nothing());
    }
}
