//! From evidence to verdicts.

use super::case::Case;
use super::{Frames, Verdict, VerdictKind, rate, tcp};

/// The verdicts, the costliest first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// The verdicts.
    pub verdicts: Vec<Verdict>,
}

/// Returns the verdicts on a case.
#[must_use]
pub fn judge(case: &Case<'_>) -> Judgement {
    let mut verdicts = Vec::new();
    tcp::judge(case, &mut verdicts);
    rate::judge(case, &mut verdicts);
    capture_loss(case, &mut verdicts);
    verdicts.sort_by(|a, b| b.cost_us.total_cmp(&a.cost_us));
    Judgement { verdicts }
}

fn capture_loss(case: &Case<'_>, verdicts: &mut Vec<Verdict>) {
    let loss = case.loss;
    if loss.holes == 0 && loss.drops == 0 {
        return;
    }
    verdicts.push(case.verdict(
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
