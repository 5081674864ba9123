//! Verdicts on the behaviour of TCP: holds, timers, windows, losses.

use record::{Conduct, ConnectionFacts, Side, StallKind};

use super::case::{Case, duration, lasted_ns, significant};
use super::cork::TIMER_SPREAD_NS;
use super::duplex;
use super::evidence::Stalls;
use super::found::Found;
use super::gain::Loss;
use super::no_response::Outage;
use super::{VerdictKind, cork, flow_control, trains};
use crate::ledger::LOSSES;

/// Fewest stalls that cannot be a coincidence.
pub(super) const COINCIDENCE: u64 = 3;

pub(super) fn judge(case: &Case<'_>, outage: &Outage, found: &mut Found) {
    holds(case, found);
    cork::judge(case, found);
    expectations(case, found);
    windows(case, found);
    flow_control::judge(case, found);
    losses(case, outage, found);
    trains::judge(case, found);
}

/// A sum of times. Saturates, because a file may have absurd stamps.
fn total(times: impl IntoIterator<Item = u64>) -> u64 {
    times.into_iter().fold(0, u64::saturating_add)
}

/// The names of the waiting sender and of its peer.
pub(super) fn whose(side: Side) -> (&'static str, &'static str) {
    (side.name(), side.peer().name())
}

/// Waits that end with a late acknowledgement.
const LATE_ACKS: [StallKind; 4] = [
    StallKind::DelayedAck,
    StallKind::NagleHeaderThenBody,
    StallKind::NagleWithinMessage,
    StallKind::NagleBetweenMessages,
];

/// A verdict on the stalls of one kind, of one or both sides' data.
pub(super) fn stalled(
    case: &Case<'_>,
    found: &mut Found,
    kind: VerdictKind,
    stall: StallKind,
    seen: &[(Side, u32, &Stalls)],
    text: impl Fn(Side, &Stalls) -> String,
) {
    let Some(&(_, vantage, _)) = seen.iter().max_by_key(|(_, _, stalls)| stalls.wait_ns) else { return };
    let frames = case.frames(vantage, seen.iter().filter(|s| s.1 == vantage).flat_map(|s| &s.2.frames));
    let sentences: Vec<String> = seen.iter().map(|(side, _, stalls)| text(*side, stalls)).collect();
    // Who gets acknowledgements at once waits for none of them, whatever else he waits for besides.
    let gain = match stall {
        StallKind::DelayedAck => case.gain_without(&LATE_ACKS),
        _ => case.gain_without(&[stall]),
    };
    let (operations, lost_ns) = found.claim(case, &[stall]);
    let cost_us = lost_ns as f64 / 1000.0;
    found.push(case.verdict(kind, operations, cost_us, frames, sentences.join("; "), gain));
}

/// Mean wait in words.
pub(super) fn mean_wait(stalls: &Stalls) -> String {
    duration(stalls.wait_ns as f64 / stalls.count.max(1) as f64 / 1000.0)
}

/// No acknowledgement is delayed for longer, nanoseconds (RFC 1122 4.2.3.2): data that comes later had another reason, such as the
/// interval of a heartbeat.
const DELAY_MAX_NS: u64 = 500_000_000;

/// Whether the waits can be those of one peer's delayed acknowledgements: several, and close together. Timers are 40 ms (Linux,
/// Windows, FreeBSD), 100 ms (macOS) or 200 ms (older Windows, whose ticks of 100 ms leave 100 to 200 ms), beyond the round trip;
/// what a path, a queue or a program delays is spread more widely.
fn agree(case: &Case<'_>, side: Side, stalls: &Stalls) -> bool {
    let trips = stalls.connections.iter().filter_map(|&connection| case.evidence.near(connection, side));
    let trip_ns = trips.map(|(_, facts)| facts.round_trip_ns()).filter(|&ns| ns > 0).min().unwrap_or(0);
    let spread_ns = stalls.wait_at_ns(0.9).saturating_sub(stalls.wait_at_ns(0.1));
    let timer_ns = stalls.wait_at_ns(0.5).saturating_sub(trip_ns);
    let is_allowed = timer_ns <= DELAY_MAX_NS;
    stalls.count >= COINCIDENCE && is_allowed && spread_ns <= TIMER_SPREAD_NS.max(timer_ns / 10 * 6)
}

/// Nagle and delayed acknowledgements.
fn holds(case: &Case<'_>, found: &mut Found) {
    let evidence = case.evidence;
    let mut apart = evidence.stalls(StallKind::NagleHeaderThenBody);
    apart.retain(|(side, _, stalls)| agree(case, *side, stalls));
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
    let mut within = evidence.stalls(StallKind::NagleWithinMessage);
    within.retain(|(side, _, stalls)| agree(case, *side, stalls));
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
        agree(case, *side, stalls) && stalls.count * 2 >= pauses
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
    late.retain(|(side, _, stalls)| agree(case, *side, stalls));
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
    data.retain(|(_, vantage, stalls)| stalls.count >= COINCIDENCE && is_late_data(case, *vantage, stalls));
    stalled(case, found, VerdictKind::SlowInitiator, StallKind::SlowData, &data, |_, stalls| {
        format!(
            "{} times the client sent the data that the server had solicited only after {}",
            stalls.count,
            mean_wait(stalls)
        )
    });
}

/// Bodies that waited in vain for 100 Continue.
fn expectations(case: &Case<'_>, found: &mut Found) {
    let mut seen = case.evidence.stalls(StallKind::ContinueAwaited);
    seen.retain(|(_, _, stalls)| stalls.count >= COINCIDENCE);
    let (kind, stall) = (VerdictKind::ContinueUnanswered, StallKind::ContinueAwaited);
    stalled(case, found, kind, stall, &seen, |_, stalls| {
        format!(
            "{} times the client announced that it waits for 100 Continue before it sends the body (`Expect: 100-continue`), the \
             server sent none, and the client sent the body after {}",
            stalls.count,
            mean_wait(stalls)
        )
    });
}

/// A client's data is late if it comes so long after the network's round trip to the client, nanoseconds, and a quarter of it.
const LATE_DATA_NS: u64 = 20_000_000;

/// Whether the client, and not the network between it and the capture point, took the time until its data came.
fn is_late_data(case: &Case<'_>, vantage: u32, stalls: &Stalls) -> bool {
    let facts = stalls.connections.iter().filter_map(|&connection| case.evidence.seen(connection, vantage));
    let away_ns = facts.map(|facts| facts.path_ns(Side::Client)).max().unwrap_or(0);
    stalls.wait_at_ns(0.5) >= LATE_DATA_NS + away_ns + away_ns / 4
}

/// Share of a connection's time above which waiting for acknowledgements yields a verdict.
const WAIT_SHARE: f64 = 0.2;
/// Share of the operations' time from which on waits for a full window yield a verdict.
pub(super) const WINDOW_SHARE: f64 = 0.1;
/// Over a network with such a round trip, nanoseconds, a program's own pace does not look like acknowledgements.
const NETWORK_NS: u64 = 1_000_000;
/// Fewest waits that form a pattern.
const WAITS: u64 = 50;

/// Windows and buffers that are too small.
fn windows(case: &Case<'_>, found: &mut Found) {
    let mut limited: [Vec<(u32, &ConnectionFacts, Side)>; 2] = [Vec::new(), Vec::new()];
    let ledger = &case.evidence.ledger;
    let of_time = |stall| ledger.waits(stall).1 as f64 / ledger.time_ns().max(1) as f64;
    let [of_window, of_acks] = [StallKind::WindowFull, StallKind::AckWait].map(of_time);
    for (vantage, facts, side) in case.evidence.senders() {
        let conduct = facts.conduct(side);
        let lasted = lasted_ns(facts).max(1) as f64;
        let share = |ns: u64| ns as f64 / lasted;
        // That a window had no room is seen, and needs no pattern. A connection may be idle for most of its time.
        let recurs = conduct.window_waits >= COINCIDENCE || conduct.zero_windows > 0;
        let is_long = share(conduct.window_wait_ns) >= WAIT_SHARE || of_window >= WINDOW_SHARE;
        if recurs && is_long {
            limited[0].push((vantage, facts, side));
        } else if is_buffer_limited(conduct)
            && (of_acks >= WINDOW_SHARE && facts.round_trip_ns() >= NETWORK_NS
                || share(conduct.ack_wait_ns.saturating_sub(conduct.window_wait_ns)) >= WAIT_SHARE)
        {
            limited[1].push((vantage, facts, side));
        }
    }
    for (kind, all) in [VerdictKind::WindowLimited, VerdictKind::BufferLimited].into_iter().zip(&limited) {
        let Some((vantage, _, _)) = all.first() else { continue };
        let is_window = kind == VerdictKind::WindowLimited;
        let wait = |c: &Conduct| if is_window { c.window_wait_ns } else { c.ack_wait_ns - c.window_wait_ns };
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
        let stall = if is_window { StallKind::WindowFull } else { StallKind::AckWait };
        let mut loss = case.loss_of(&[stall]);
        if is_window {
            slow_reader(&mut loss, all);
        }
        loss = loss.but_slow_start(all.iter().map(|(_, facts, side)| (*facts, *side)));
        let gain = loss.gain(case.most());
        let (operations, lost_ns) = found.claim(case, &[stall]);
        found.push(case.verdict(kind, operations, lost_ns as f64 / 1000.0, frames, text, gain));
    }
}

/// A reader that is slow reads on when all data has arrived: a full window, at the rate of the data before. So its answer, or its next
/// request, comes that much later.
fn slow_reader(loss: &mut Loss, all: &[(u32, &ConnectionFacts, Side)]) {
    for (_, facts, side) in all {
        let conduct = facts.conduct(*side);
        let window = f64::from(conduct.window_max_bytes);
        // The first window is full before anything is read.
        let read = conduct.bytes as f64 - window * conduct.messages as f64;
        if conduct.zero_windows == 0 || read <= 0.0 {
            continue;
        }
        // A reader that is prompt takes a round trip for each window, too: until the sender learns that there is room.
        let window_ns = window * conduct.sending_ns as f64 / read - facts.round_trip_ns() as f64;
        let ns = window_ns.max(0.0) * conduct.messages.min(facts.exchanges) as f64;
        match side {
            Side::Client => {
                loss.lost_ns += ns;
                loss.unsure_ns += ns;
            }
            Side::Server => loss.slow_thought_ns += ns,
        }
    }
}

/// Whether the sender causes its own waits for acknowledgements: they recur, always at about the
/// same number of bytes, and the round trip stays at its minimum (no queue, so the link is not full).
fn is_buffer_limited(conduct: &Conduct) -> bool {
    let (waits, timed) = (conduct.ack_waits.max(1), conduct.acks_timed.max(1));
    let held = conduct.ack_wait_bytes as f64 / waits as f64;
    let ack_mean = conduct.ack_sum_ns as f64 / timed as f64;
    waits >= WAITS
        // A limit is what stops the sender, and not its program.
        && conduct.own_pauses * 4 <= waits
        && f64::from(conduct.in_flight_max_bytes) <= 2.5 * held
        && held < 0.8 * f64::from(conduct.window_max_bytes)
        && ack_mean <= 2.0 * conduct.ack_min_ns as f64
}

/// Share of retransmitted segments above which a sender gets a verdict.
const LOSS_SHARE: f64 = 0.001;

/// Segments that a path drops for their size. Where nothing of a sender's data arrives, the path may pass nothing at all: then
/// several connections must have had it, of which one was set up when the data of another had been lost for long, and no large
/// segment may have arrived on any.
pub(super) fn black_holes<'a>(case: &'a Case<'_>) -> Vec<(Side, u32, &'a Stalls)> {
    let evidence = case.evidence;
    let mut all = evidence.stalls(StallKind::BlackHole);
    all.retain(|&(side, _, stalls)| {
        let of = || stalls.connections.iter().filter_map(|&c| evidence.near(c, side)).map(|(_, facts)| facts);
        let vanished = || of().filter(|facts| facts.conduct(side).vanished > 0);
        if vanished().count() < of().count() {
            return true;
        }
        let first_ns = vanished().map(|facts| facts.began_ns).min().unwrap_or(0);
        let last_ns = vanished().map(|facts| facts.began_ns).max().unwrap_or(0);
        let is_there = |facts: &ConnectionFacts| vanished().any(|other| other.server == facts.server);
        let arrived = evidence.connections().filter(|(_, facts)| is_there(facts));
        let arrived = arrived.map(|(_, facts)| facts.conduct(side).arrived_max_bytes).max().unwrap_or(0);
        vanished().count() as u64 >= COINCIDENCE
            && last_ns.saturating_sub(first_ns) >= LONG_LOST_NS
            && arrived < stalls.segment_bytes
    });
    all
}

/// So long after its first loss, a segment has been sent again at least twice, nanoseconds.
const LONG_LOST_NS: u64 = 1_000_000_000;

/// Losses and their patterns.
fn losses(case: &Case<'_>, outage: &Outage, found: &mut Found) {
    let evidence = case.evidence;
    let holes = black_holes(case);
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
        // Its segments are sent again and again, and what is behind them waits: nothing of that remains.
        let kinds = [StallKind::BlackHole, LOSSES[0], LOSSES[1], LOSSES[2]];
        let (requests, ns) = (outage.in_black_hole + outage.requests, outage.all_ns());
        let loss = case.loss_of(&kinds).of_prompt_clients();
        verdict.gain = loss.with_unanswered(requests, ns).awake_again().gain(case.most());
        found.unanswered_ns += outage.black_hole_ns;
    }
    let mut repeated = evidence.stalls(StallKind::Timeout);
    repeated.extend(evidence.stalls(StallKind::FastRetransmit));
    let (mut segments, mut again, mut after_timeout, mut spurious) = (0, 0, 0, 0);
    for (_, facts, side) in evidence.senders() {
        let conduct = facts.conduct(side);
        if duplex::is_within_traffic(conduct) {
            duplex::within_traffic(case, facts, side, found);
            return;
        }
        segments += conduct.segments + conduct.retransmitted;
        again += conduct.retransmitted;
        after_timeout += conduct.timeouts;
        spurious += conduct.spurious.min(conduct.retransmitted);
    }
    let lost = again - spurious;
    let lasted = total(evidence.connections().map(|(_, facts)| lasted_ns(facts)));
    // A path-MTU black hole repeats every large segment and has a verdict of its own.
    let waits = |kind: StallKind| total(evidence.stalls(kind).iter().map(|s| s.2.wait_ns));
    let timeouts: u64 = evidence.stalls(StallKind::Timeout).iter().map(|s| s.2.count).sum();
    let cost_ns = waits(StallKind::Timeout).saturating_add(waits(StallKind::FastRetransmit));
    let is_costly = cost_ns as f64 >= 0.01 * lasted.max(1) as f64;
    let is_common = lost as f64 >= LOSS_SHARE * segments.max(1) as f64 && lost >= COINCIDENCE;
    if again == 0
        || (lost == 0 && timeouts == 0)
        || !(is_costly || is_common)
        || (timeouts == 0 && !is_common)
    {
        return;
    }
    if !holes.is_empty() && timeouts < COINCIDENCE {
        return;
    }
    let Some((_, vantage, _)) = repeated.iter().max_by_key(|s| s.2.count) else { return };
    let frames = case.frames(*vantage, repeated.iter().filter(|s| s.1 == *vantage).flat_map(|s| &s.2.frames));
    duplex::judge(case, &frames, found);
    let (_, mut lost_ns) = found.claim(case, &LOSSES);
    if holes.is_empty() {
        lost_ns += found.claim(case, &[StallKind::BlackHole]).1;
    }
    let (operations, _) = evidence.ledger.retransmissions();
    let text = format!(
        "{again} of {segments} segments ({} %) were retransmitted, {after_timeout} of them only after a time-out: {}",
        significant(again as f64 / segments.max(1) as f64 * 100.0),
        cause_of_repetitions(again, spurious)
    );
    let gain = case.loss_of_data().gain(case.most());
    let cost_us = lost_ns as f64 / 1000.0;
    found.push(case.verdict(VerdictKind::Retransmission, operations, cost_us, frames, text, gain));
}

/// What repetitions say about the path, given how many of them were of data that had arrived.
fn cause_of_repetitions(again: u64, spurious: u64) -> String {
    match spurious {
        0 => "the path loses packets".to_owned(),
        _ if spurious * 2 > again => format!(
            "{spurious} of them were of data that had arrived (spurious): the path delays or reorders packets or loses \
             acknowledgements, and loses few of the data"
        ),
        _ => format!("the path loses packets; {spurious} of them were of data that had arrived (spurious)"),
    }
}
