//! Verdicts on the behaviour of TCP: holds, timers, windows, losses.

use record::{Conduct, ConnectionFacts, Side, StallKind};

use super::case::{Case, duration, lasted_ns, significant};
use super::evidence::Stalls;
use super::found::Found;
use super::no_response::Outage;
use super::{Frames, VerdictKind};
use crate::ledger::LOSSES;

/// Fewest stalls that cannot be a coincidence.
const COINCIDENCE: u64 = 3;

pub(super) fn judge(case: &Case<'_>, outage: &Outage, found: &mut Found) {
    holds(case, found);
    corks(case, found);
    windows(case, found);
    losses(case, outage, found);
    trains(case, found);
}

/// A sum of times. Saturates, because a file may have absurd stamps.
fn total(times: impl IntoIterator<Item = u64>) -> u64 {
    times.into_iter().fold(0, u64::saturating_add)
}

/// The names of the waiting sender and of its peer.
fn whose(side: Side) -> (&'static str, &'static str) {
    (side.name(), side.peer().name())
}

/// A verdict on the stalls of one kind, of one or both sides' data.
fn stalled(
    case: &Case<'_>,
    found: &mut Found,
    kind: VerdictKind,
    stall: StallKind,
    seen: &[(Side, u32, &Stalls)],
    text: impl Fn(Side, &Stalls) -> String,
) {
    let Some(&(_, vantage, _)) = seen.iter().max_by_key(|(_, _, stalls)| stalls.wait_ns) else { return };
    let cost_ns = total(seen.iter().map(|(_, _, stalls)| stalls.wait_ns));
    let connections = seen.iter().flat_map(|(_, _, stalls)| &stalls.connections);
    let (lasted, exchanges) = case.lasted(connections);
    let frames = case.frames(vantage, seen.iter().filter(|s| s.1 == vantage).flat_map(|s| &s.2.frames));
    let sentences: Vec<String> = seen.iter().map(|(side, _, stalls)| text(*side, stalls)).collect();
    let gain = case.gain(cost_ns, lasted, exchanges);
    let (operations, lost_ns) = found.claim(case, &[stall]);
    let cost_us = lost_ns as f64 / 1000.0;
    found.push(case.verdict(kind, operations, cost_us, frames, sentences.join("; "), gain));
}

/// Mean wait in words.
fn mean_wait(stalls: &Stalls) -> String {
    duration(stalls.wait_ns as f64 / stalls.count.max(1) as f64 / 1000.0)
}

/// Nagle and delayed acknowledgements.
fn holds(case: &Case<'_>, found: &mut Found) {
    let evidence = case.evidence;
    let apart = evidence.stalls(StallKind::NagleHeaderThenBody);
    stalled(
        case,
        found,
        VerdictKind::HeaderBodyApart,
        StallKind::NagleHeaderThenBody,
        &apart,
        |side, stalls| {
            let (sender, receiver) = whose(side);
            format!(
                "{} times the {sender} sent a message's header and body apart; Nagle's algorithm held the body \
                 until the {receiver}'s delayed ACK of the header came: {} each",
                stalls.count,
                mean_wait(stalls)
            )
        },
    );
    let within = evidence.stalls(StallKind::NagleWithinMessage);
    stalled(
        case,
        found,
        VerdictKind::NagleDelayedAck,
        StallKind::NagleWithinMessage,
        &within,
        |side, stalls| {
            let (sender, receiver) = whose(side);
            format!(
                "{} times the {sender} sent a message in several writes; Nagle's algorithm held the rest until \
                 the {receiver}'s delayed ACK of a small segment came: {} each",
                stalls.count,
                mean_wait(stalls)
            )
        },
    );
    // Between messages only its regularity distinguishes a hold from a client that acted at that time.
    let mut between = evidence.stalls(StallKind::NagleBetweenMessages);
    between.retain(|(side, _, stalls)| {
        let pauses: u64 = stalls
            .connections
            .iter()
            .filter_map(|&connection| evidence.near(connection, *side))
            .map(|(_, facts)| facts.conduct(*side).pauses)
            .sum();
        stalls.count >= COINCIDENCE && stalls.count * 2 >= pauses
    });
    stalled(
        case,
        found,
        VerdictKind::NagleDelayedAck,
        StallKind::NagleBetweenMessages,
        &between,
        |side, stalls| {
            let (sender, receiver) = whose(side);
            format!(
                "{} times Nagle's algorithm held the {sender}'s next small message until the {receiver}'s \
                 delayed ACK of the one before came: {} each",
                stalls.count,
                mean_wait(stalls)
            )
        },
    );
    let mut late = evidence.stalls(StallKind::DelayedAck);
    late.retain(|(_, _, stalls)| stalls.count >= COINCIDENCE);
    stalled(case, found, VerdictKind::DelayedAck, StallKind::DelayedAck, &late, |side, stalls| {
        let (sender, receiver) = whose(side);
        format!(
            "{} times the {sender} had reached its limit of unacknowledged data and was idle until the {receiver}'s \
                 delayed ACK came: {} each",
            stalls.count,
            mean_wait(stalls)
        )
    });
    let mut data = evidence.stalls(StallKind::SlowData);
    data.retain(|(_, _, stalls)| stalls.count >= COINCIDENCE);
    stalled(case, found, VerdictKind::SlowInitiator, StallKind::SlowData, &data, |_, stalls| {
        format!(
            "{} times the client sent the data that the server had solicited only after {}",
            stalls.count,
            mean_wait(stalls)
        )
    });
}

/// Largest spread of waits that the ticks of one timer can explain, nanoseconds.
const TIMER_SPREAD_NS: u64 = 12_000_000;

/// Data that was sent by a timer.
fn corks(case: &Case<'_>, found: &mut Found) {
    for kind in [StallKind::CorkWithinMessage, StallKind::CorkedAnswer] {
        let mut seen = case.evidence.stalls(kind);
        // The waits of one timer are close together, those of a slow disk are not.
        seen.retain(|(_, _, stalls)| {
            let spread = stalls.wait_at_ns(0.9) - stalls.wait_at_ns(0.1);
            stalls.count >= COINCIDENCE && spread <= TIMER_SPREAD_NS
        });
        stalled(case, found, VerdictKind::UnfinishedCork, kind, &seen, |side, stalls| {
            format!(
                "{} times data of the {} left {} late, released by a timer and not by a received segment: \
                 MSG_MORE or TCP_CORK was set and not lifted",
                stalls.count,
                side.name(),
                mean_wait(stalls)
            )
        });
    }
}

/// Share of a connection's time above which waiting for acknowledgements yields a verdict.
const WAIT_SHARE: f64 = 0.2;
/// Fewest waits that form a pattern.
const WAITS: u64 = 50;

/// Windows and buffers that are too small.
fn windows(case: &Case<'_>, found: &mut Found) {
    let mut limited: [Vec<(u32, &ConnectionFacts, Side)>; 2] = [Vec::new(), Vec::new()];
    for (vantage, facts, side) in case.evidence.senders() {
        let conduct = facts.conduct(side);
        let lasted = lasted_ns(facts).max(1) as f64;
        let share = |ns: u64| ns as f64 / lasted;
        if conduct.window_waits >= WAITS && share(conduct.window_wait_ns) >= WAIT_SHARE {
            limited[0].push((vantage, facts, side));
        } else if share(conduct.ack_wait_ns - conduct.window_wait_ns) >= WAIT_SHARE
            && is_buffer_limited(conduct)
        {
            limited[1].push((vantage, facts, side));
        }
    }
    for (kind, all) in [VerdictKind::WindowLimited, VerdictKind::BufferLimited].into_iter().zip(&limited) {
        let Some((vantage, _, _)) = all.first() else { continue };
        let is_window = kind == VerdictKind::WindowLimited;
        let wait = |c: &Conduct| if is_window { c.window_wait_ns } else { c.ack_wait_ns - c.window_wait_ns };
        let cost_ns = total(all.iter().map(|(_, facts, side)| wait(facts.conduct(*side))));
        let lasted = total(all.iter().map(|(_, facts, _)| lasted_ns(facts)));
        let exchanges: u64 = all.iter().map(|(_, facts, _)| facts.exchanges).sum();
        let frames =
            case.frames(*vantage, all.iter().map(|(_, facts, side)| &facts.conduct(*side).ack_wait_frames));
        let sentence = |(_, facts, side): &(u32, &ConnectionFacts, Side)| {
            let conduct = facts.conduct(*side);
            let (sender, receiver) = whose(*side);
            let share = wait(conduct) as f64 / lasted_ns(facts).max(1) as f64 * 100.0;
            if is_window {
                format!(
                    "for {share:.0} % of the time of {} the {receiver}'s window, {} bytes at most, was full and \
                     the {sender} could send nothing",
                    facts.client, conduct.window_max_bytes
                )
            } else {
                format!(
                    "for {share:.0} % of the time of {} the {sender} had a message to send, but waited for an ACK with \
                     {} bytes in flight, while the {receiver}'s window had room for {}: its \
                     send buffer or congestion window is too small",
                    facts.client,
                    conduct.ack_wait_bytes / conduct.ack_waits.max(1),
                    conduct.window_max_bytes
                )
            }
        };
        let text = all.iter().take(3).map(sentence).collect::<Vec<_>>().join("; ");
        let gain = case.gain(cost_ns, lasted, exchanges);
        let stall = if is_window { StallKind::WindowFull } else { StallKind::AckWait };
        let (operations, lost_ns) = found.claim(case, &[stall]);
        found.push(case.verdict(kind, operations, lost_ns as f64 / 1000.0, frames, text, gain));
    }
}

/// Whether the sender causes its own waits for acknowledgements: they recur, always at about the
/// same number of bytes, and the round trip stays at its minimum (no queue, so the link is not full).
fn is_buffer_limited(conduct: &Conduct) -> bool {
    let (waits, timed) = (conduct.ack_waits.max(1), conduct.acks_timed.max(1));
    let held = conduct.ack_wait_bytes as f64 / waits as f64;
    let ack_mean = conduct.ack_sum_ns as f64 / timed as f64;
    waits >= WAITS
        && f64::from(conduct.in_flight_max_bytes) <= 2.5 * held
        && held < 0.8 * f64::from(conduct.window_max_bytes)
        && ack_mean <= 4.0 * conduct.ack_min_ns as f64
}

/// Share of retransmitted segments above which a sender gets a verdict.
const LOSS_SHARE: f64 = 0.001;

/// Losses and their patterns.
fn losses(case: &Case<'_>, outage: &Outage, found: &mut Found) {
    let evidence = case.evidence;
    let holes = evidence.stalls(StallKind::BlackHole);
    stalled(case, found, VerdictKind::PathMtuBlackHole, StallKind::BlackHole, &holes, |side, stalls| {
        let (sender, receiver) = whose(side);
        format!(
            "{} times a segment of {} bytes from the {sender} did not reach the {receiver} despite \
                 retransmissions, while smaller ones did: a path with a smaller MTU drops large packets without \
                 an ICMP message; {} each until the capture's end or a smaller segment",
            stalls.count,
            stalls.segment_bytes,
            mean_wait(stalls)
        )
    });
    // Requests that never came out of it are part of its cost.
    if let Some(verdict) = found.verdicts.last_mut().filter(|v| v.kind == VerdictKind::PathMtuBlackHole) {
        verdict.operations += outage.in_black_hole;
        verdict.cost_us += outage.black_hole_ns as f64 / 1000.0;
        found.unanswered_ns += outage.black_hole_ns;
    }
    let mut repeated = evidence.stalls(StallKind::Timeout);
    repeated.extend(evidence.stalls(StallKind::FastRetransmit));
    let (mut segments, mut again, mut after_timeout) = (0, 0, 0);
    for (_, facts, side) in evidence.senders() {
        let conduct = facts.conduct(side);
        if is_duplex_mismatch(conduct) {
            duplex_mismatch(case, facts, side, found);
            return;
        }
        segments += conduct.segments;
        again += conduct.retransmitted;
        after_timeout += conduct.timeouts;
    }
    let lasted = total(evidence.connections().map(|(_, facts)| lasted_ns(facts)));
    let exchanges: u64 = evidence.connections().map(|(_, facts)| facts.exchanges).sum();
    // A path-MTU black hole repeats every large segment and has a verdict of its own.
    let waits = |kind: StallKind| total(evidence.stalls(kind).iter().map(|s| s.2.wait_ns));
    let timeouts: u64 = evidence.stalls(StallKind::Timeout).iter().map(|s| s.2.count).sum();
    let cost_ns = waits(StallKind::Timeout).saturating_add(waits(StallKind::FastRetransmit));
    let is_costly = cost_ns as f64 >= 0.01 * lasted.max(1) as f64;
    let is_common = again as f64 >= LOSS_SHARE * segments.max(1) as f64 && again >= COINCIDENCE;
    if again == 0 || !(is_costly || is_common) || (timeouts == 0 && !is_common) {
        return;
    }
    if !holes.is_empty() && timeouts < COINCIDENCE {
        return;
    }
    let Some((_, vantage, _)) = repeated.iter().max_by_key(|s| s.2.count) else { return };
    let frames = case.frames(*vantage, repeated.iter().filter(|s| s.1 == *vantage).flat_map(|s| &s.2.frames));
    let (_, lost_ns) = found.claim(case, &LOSSES);
    let (operations, _) = evidence.ledger.retransmissions();
    let text = format!(
        "{again} of {segments} segments ({} %) were retransmitted, {after_timeout} of them only after a time-out: the \
         path loses packets",
        significant(again as f64 / segments.max(1) as f64 * 100.0),
    );
    let gain = case.gain(cost_ns, lasted, exchanges);
    let cost_us = lost_ns as f64 / 1000.0;
    found.push(case.verdict(VerdictKind::Retransmission, operations, cost_us, frames, text, gain));
}

/// Whether a sender loses only while its peer is sending: collisions at the half-duplex end of a cable.
fn is_duplex_mismatch(conduct: &Conduct) -> bool {
    let share = |a: u64, b: u64| a as f64 / b.max(1) as f64;
    conduct.retransmitted >= 20
        && share(conduct.retransmitted, conduct.segments) >= 0.005
        && share(conduct.retransmitted_against_traffic, conduct.retransmitted) >= 0.9
        && share(conduct.against_traffic, conduct.segments) <= 0.6
}

fn duplex_mismatch(case: &Case<'_>, facts: &ConnectionFacts, side: Side, found: &mut Found) {
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
    let cost_ns = total(stalls.iter().map(|s| s.2.wait_ns));
    let vantage = stalls.first().map_or(0, |s| s.1);
    let frames = case.frames(vantage, stalls.iter().filter(|s| s.1 == vantage).flat_map(|s| &s.2.frames));
    let gain = case.gain(cost_ns, lasted_ns(facts), facts.exchanges);
    let (_, lost_ns) = found.claim(case, &LOSSES);
    let (operations, _) = case.evidence.ledger.retransmissions();
    let cost_us = lost_ns as f64 / 1000.0;
    found.push(case.verdict(VerdictKind::DuplexMismatch, operations, cost_us, frames, text, gain));
}

/// Cost of a packet beyond its bytes: about a microsecond of CPU at either end, and 90 bytes of
/// headers on the wire.
const PACKET_US: f64 = 2.0;

/// Messages in many small segments.
fn trains(case: &Case<'_>, found: &mut Found) {
    let (mut trains, mut segments, mut messages) = (0, 0, 0);
    let (mut first, mut who, mut vantage_of) = ([0; 2], None, 0);
    let (mut lasted, mut exchanges) = (0_u64, 0);
    for (vantage, facts, side) in case.evidence.senders() {
        let conduct = facts.conduct(side);
        if conduct.trains >= COINCIDENCE && conduct.trains * 10 >= conduct.messages {
            trains += conduct.trains;
            segments += conduct.train_segments;
            messages += conduct.messages;
            lasted = lasted_ns(facts).saturating_add(lasted);
            exchanges += facts.exchanges;
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
    let gain = case.gain((cost_us * 1000.0) as u64, lasted, exchanges);
    let frames = Frames { input, numbers: first.to_vec() };
    found.push(case.verdict(VerdictKind::SmallSegments, trains, cost_us, frames, text, gain));
}
