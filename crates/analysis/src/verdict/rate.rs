//! Verdicts on rate: which side is slow when TCP is not, and whether the link is full.

use model::bound::queue_depth_network_bound;

use super::case::{Case, duration, significant};
use super::{Frames, Gain, Verdict, VerdictKind};
use crate::parts::Part;
use crate::traffic::TrafficStanza;

pub(super) fn judge(case: &Case<'_>, verdicts: &mut Vec<Verdict>) {
    // Data that TCP delayed looks like a slow peer, and already has a verdict.
    let explained_us: f64 = verdicts.iter().map(|v: &Verdict| v.cost_us).sum();
    let all_us: f64 = case.stanzas.iter().map(total_us).sum();
    let mut of_the_link = Vec::new();
    link(case, &mut of_the_link);
    let is_full = of_the_link.iter().any(|v| v.kind == VerdictKind::LinkFull);
    if explained_us < 0.5 * all_us {
        slow_target(case, verdicts);
        // A sender that fills a link waits for it; before the capture point this looks like a pause.
        if !is_full {
            slow_initiator(case, verdicts);
        }
    }
    verdicts.append(&mut of_the_link);
    if case.cpu_busy.is_some() {
        cpu(case, verdicts);
    } else if !is_full {
        saturation(case, verdicts);
    }
}

/// Time of all exchanges of a stanza, microseconds.
fn total_us(stanza: &TrafficStanza) -> f64 {
    let round_trip = stanza.mean_us(Part::RoundTrip).or(stanza.mean_us(Part::Server)).unwrap_or(0.0);
    let sending = stanza.mean_us(Part::Sending).unwrap_or(0.0);
    (round_trip + sending) * stanza.operations as f64
}

/// Fewest operations that distinguish a pattern from an accident.
const HABIT: u64 = 20;
/// Time per operation above which a server gets a verdict, microseconds: a solid-state disk
/// behind a network responds in less.
const SLOW_US: f64 = 1000.0;
/// Outliers exceed the median by this factor, and this minimum, microseconds.
const OUTLIER_FACTOR: f64 = 20.0;
const OUTLIER_US: f64 = 10_000.0;

/// The server's part of a stanza: its own, or (seen from the client alone) the round trip without the
/// shortest network round trip.
fn server_part(case: &Case<'_>, stanza: &TrafficStanza) -> Option<(Part, f64)> {
    if stanza.part(Part::Server).is_some() {
        return Some((Part::Server, 0.0));
    }
    let facts = case.evidence.facts(stanza.connection?)?;
    // From the client's point, the network round trip to the server.
    Some((Part::RoundTrip, facts.client_conduct.ack_min_ns as f64 / 1000.0))
}

fn slow_target(case: &Case<'_>, verdicts: &mut Vec<Verdict>) {
    let (mut operations, mut cost_us, mut sentences) = (0, 0.0, Vec::new());
    for stanza in case.stanzas.iter().filter(|s| s.operations >= HABIT) {
        let Some((part, way_us)) = server_part(case, stanza) else { continue };
        let Some(figures) = stanza.part(part) else { continue };
        // Operations that queue behind one another have shorter service times.
        let each = |us: f64| (us - way_us).max(0.0) / stanza.queue_depth.1.max(1.0);
        if each(figures.p50_us) >= SLOW_US {
            operations += stanza.operations;
            cost_us += (figures.mean_us - way_us).max(0.0) * stanza.operations as f64;
            sentences.push(format!(
                "the server takes {} for a {} of {} bytes ({} in flight)",
                duration(each(figures.p50_us)),
                stanza.operation,
                stanza.block_size_bytes.round(),
                significant(stanza.queue_depth.1)
            ));
        } else if figures.p99_us > OUTLIER_US
            && figures.p99_us > OUTLIER_FACTOR * figures.p50_us
            && figures.mean_us > 2.0 * figures.p50_us
        {
            let slow = stanza.operations / 100;
            operations += slow.max(1);
            cost_us += (figures.mean_us - figures.p50_us) * stanza.operations as f64;
            sentences.push(format!(
                "one {} in a hundred takes the server {} and more, half of them {}",
                stanza.operation,
                duration(figures.p99_us),
                duration(figures.p50_us)
            ));
        }
    }
    if let Some(first) = sentences.into_iter().next() {
        verdicts.push(case.verdict(
            VerdictKind::SlowTarget,
            operations,
            cost_us,
            Frames::default(),
            first,
            None,
        ));
    }
}

/// A client whose pauses have at least this share of the cycle, and this length, limits the rate.
const CLIENT_SHARE: f64 = 0.75;

fn slow_initiator(case: &Case<'_>, verdicts: &mut Vec<Verdict>) {
    let mut worst: Option<(&TrafficStanza, f64)> = None;
    for stanza in case.stanzas.iter().filter(|s| s.operations >= HABIT) {
        let (Some(client), Some(round_trip)) = (stanza.part(Part::Client), stanza.part(Part::RoundTrip))
        else {
            continue;
        };
        let share = client.mean_us / (client.mean_us + round_trip.mean_us);
        if client.p50_us >= SLOW_US && share >= CLIENT_SHARE && client.operations >= HABIT {
            let cost = client.mean_us * client.operations as f64;
            if worst.is_none_or(|(_, c)| cost > c) {
                worst = Some((stanza, cost));
            }
        }
    }
    let Some((stanza, cost_us)) = worst else { return };
    let (client, round_trip) = (stanza.mean_us(Part::Client), stanza.mean_us(Part::RoundTrip));
    let (client, round_trip) = (client.unwrap_or(0.0), round_trip.unwrap_or(0.0));
    let text = format!(
        "the client waits {} between a response and its next {}, the server responds in {}",
        duration(client),
        stanza.operation,
        duration(round_trip)
    );
    let gain = Gain {
        throughput_factor: (client + round_trip) / round_trip.max(1.0),
        operation_us: Some((client + round_trip, round_trip)),
        text: format!(
            "at most {} times as many operations if the client always had the next one ready",
            significant((client + round_trip) / round_trip.max(1.0))
        ),
    };
    verdicts.push(case.verdict(
        VerdictKind::SlowInitiator,
        stanza.operations,
        cost_us,
        Frames::default(),
        text,
        Some(gain),
    ));
}

/// A link is full from this share of its rate on.
const FULL: f64 = 0.9;
/// A link is nearly idle below this share.
const IDLE: f64 = 0.6;

/// The link's rate against the traffic, for the stanza that moved most.
fn link(case: &Case<'_>, verdicts: &mut Vec<Verdict>) {
    let Some(link) = case.link else { return };
    let bytes_per_second = link.bits_per_second / 8.0 * link.efficiency;
    let Some(stanza) = case
        .stanzas
        .iter()
        .filter(|s| s.operations >= HABIT && s.seconds > 0.0)
        .max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))
    else {
        return;
    };
    let share = stanza.bytes_per_second / bytes_per_second;
    let text = format!(
        "{}s of {} bytes move {} MB/s, {:.0} % of the link's rate",
        stanza.operation,
        stanza.block_size_bytes.round(),
        significant(stanza.bytes_per_second / 1e6),
        share * 100.0
    );
    let kind_of =
        |kind, gain| case.verdict(kind, stanza.operations, 0.0, Frames::default(), text.clone(), gain);
    if share >= FULL {
        verdicts.push(kind_of(VerdictKind::LinkFull, None));
        return;
    }
    // A ring in which every request takes the place of a response, and whose link is idle most of the time.
    let (Some(client), Some(round_trip), Some(wire)) =
        (stanza.mean_us(Part::Client), stanza.mean_us(Part::RoundTrip), stanza.wire_us)
    else {
        return;
    };
    let depth = stanza.queue_depth.1;
    let spacing_us = stanza.block_size_bytes / bytes_per_second * 1e6;
    let needed = queue_depth_network_bound(client, round_trip, 0.0, spacing_us.max(wire / 2.0)).ceil();
    let is_waiting = client < round_trip && stanza.queue_depth.0 == stanza.queue_depth.2;
    if share < IDLE && needed > depth && is_waiting {
        let factor = (needed / depth).min(FULL / share);
        let gain = Gain {
            throughput_factor: factor,
            operation_us: None,
            text: format!(
                "a queue depth of {needed} would fill the link, if the server's time stays the same: up to {} times as \
                 many operations",
                significant(factor)
            ),
        };
        let mut verdict = kind_of(VerdictKind::QueueDepthLow, Some(gain));
        verdict.text = format!("{text}, with {} in flight; {needed} would fill it", significant(depth));
        verdicts.push(verdict);
    }
}

/// A CPU is the bottleneck from this share of its time on.
const BUSY: f64 = 0.9;

fn cpu(case: &Case<'_>, verdicts: &mut Vec<Verdict>) {
    let Some((client, server)) = case.cpu_busy else { return };
    let (who, busy) = if server >= client { ("server", server) } else { ("client", client) };
    if busy < BUSY {
        return;
    }
    let text = format!("the {who}'s CPU is busy {:.0} % of the time", busy * 100.0);
    let operations = case.evidence.operations;
    verdicts.push(case.verdict(VerdictKind::CpuBound, operations, 0.0, Frames::default(), text, None));
}

/// A ring that is deeper by this factor but not faster by this factor has a saturated stage.
const DEEPER: f64 = 4.0;
const FASTER: f64 = 1.25;

/// Saturation without CPU accounts: the same operation at two queue depths, at the same rate.
fn saturation(case: &Case<'_>, verdicts: &mut Vec<Verdict>) {
    let is_ring = |s: &&TrafficStanza| s.queue_depth_error.is_some() && s.closes == Some(true);
    let rings: Vec<&TrafficStanza> = case.stanzas.iter().filter(is_ring).collect();
    let mut worst: Option<(&TrafficStanza, &TrafficStanza)> = None;
    for deep in &rings {
        let alike = |s: &&&TrafficStanza| {
            s.operation == deep.operation
                && s.block_size_bytes.round() == deep.block_size_bytes.round()
                && deep.queue_depth.1 >= DEEPER * s.queue_depth.1
                && deep.iops < FASTER * s.iops
        };
        let shallow = rings.iter().filter(alike).min_by(|a, b| a.queue_depth.1.total_cmp(&b.queue_depth.1));
        if let Some(shallow) = shallow
            && worst.is_none_or(|(_, w)| deep.operations > w.operations)
        {
            worst = Some((shallow, deep));
        }
    }
    let Some((shallow, deep)) = worst else { return };
    // The operations queue at the side whose time grew with the depth.
    let grew = |part: Part| deep.mean_us(part).zip(shallow.mean_us(part)).map_or(0.0, |(d, s)| d - s);
    let server = if deep.part(Part::Server).is_some() { grew(Part::Server) } else { grew(Part::RoundTrip) };
    let who = if server >= grew(Part::Client) { "the server" } else { "the client" };
    let text = format!(
        "{}s of {} bytes: {} per second with {} in flight, {} with {}: {who} is busy all the time, {} for each",
        deep.operation,
        deep.block_size_bytes.round(),
        deep.iops.round(),
        deep.queue_depth.1.round(),
        shallow.iops.round(),
        shallow.queue_depth.1.round(),
        duration(1e6 / deep.iops)
    );
    let gain = Gain {
        throughput_factor: 1.0,
        operation_us: None,
        text: format!(
            "none from more depth: a queue depth of {} gives the same rate with a {} times shorter wait",
            shallow.queue_depth.1.round(),
            significant(deep.queue_depth.1 / shallow.queue_depth.1)
        ),
    };
    verdicts.push(case.verdict(
        VerdictKind::CpuBound,
        deep.operations,
        0.0,
        Frames::default(),
        text,
        Some(gain),
    ));
}
