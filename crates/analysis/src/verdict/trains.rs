//! Verdicts on messages that are sent in many small segments.

use record::Conduct;

use super::case::{Case, significant};
use super::found::Found;
use super::gain::Loss;
use super::{Frames, VerdictKind};
use crate::ledger::Class;

/// Fewest trains that are no coincidence.
const COINCIDENCE: u64 = 3;

/// Cost of a packet beyond its bytes: about a microsecond of CPU at either end, and 90 bytes of
/// headers on the wire.
const PACKET_US: f64 = 2.0;

/// What trains would not take if each message were written at once, nanoseconds: its full segments leave as close behind one another
/// as the small ones did, at best, and no faster than the link carries their bytes.
fn saved_of_train_ns(case: &Case<'_>, conduct: &Conduct) -> f64 {
    let full = conduct.train_bytes as f64 / f64::from(conduct.mss_bytes.max(1));
    let took_ns = conduct.train_ns as f64;
    let each_ns = took_ns / conduct.train_segments.max(1) as f64;
    (took_ns - (full * each_ns).max(case.carried_ns(conduct.train_bytes))).max(0.0)
}

/// Messages in many small segments.
pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    let (mut trains, mut segments, mut messages, mut saved_ns) = (0, 0, 0, 0.0);
    let (mut first, mut who, mut vantage_of) = ([0; 2], None, 0);
    for (vantage, facts, side) in case.evidence.senders() {
        let conduct = facts.conduct(side);
        if conduct.trains >= COINCIDENCE && conduct.trains * 10 >= conduct.messages {
            trains += conduct.trains;
            segments += conduct.train_segments;
            messages += conduct.messages;
            saved_ns += saved_of_train_ns(case, conduct);
            if who.is_none() {
                (first, who, vantage_of) = (conduct.train_frames, Some(side), vantage);
            }
        }
    }
    let Some(side) = who else { return };
    let input = case.inputs.get(vantage_of as usize).copied().unwrap_or(0);
    let cost_us = (segments - trains) as f64 * PACKET_US;
    let text = format!(
        "{trains} of {messages} messages of the {} were sent in trains of small segments, {} for each, where a few \
         full segments would suffice",
        side.name(),
        significant(segments as f64 / trains.max(1) as f64)
    );
    let mut loss = Loss::of(case, Class::time_ns);
    loss.lost_ns = saved_ns;
    let gain = loss.gain(case.most_in_full());
    let frames = Frames { input, numbers: first.to_vec() };
    found.push(case.verdict(VerdictKind::SmallSegments, trains, cost_us, frames, text, gain));
}
