//! Verdicts on rate: which side is slow when TCP is not, and whether the link is full.

use model::bound::queue_depth_network_bound;

use super::case::{Case, duration, significant};
use super::found::Found;
use super::{Frames, Gain, VerdictKind};
use crate::ledger::{Class, SERVER_ALLOWANCE_NS};
use crate::parts::Part;
use crate::traffic::TrafficStanza;

pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    // Data that TCP delayed looks like a slow peer, and already has a verdict.
    let explained_us: f64 = found.verdicts.iter().map(|verdict| verdict.cost_us).sum();
    let all_us = case.evidence.ledger.time_ns() as f64 / 1000.0;
    let mut of_the_link = Found::default();
    link(case, &mut of_the_link);
    let is_full = of_the_link.verdicts.iter().any(|v| v.kind == VerdictKind::LinkFull);
    if explained_us < 0.5 * all_us {
        slow_target(case, found);
        // A sender that fills a link waits for it; before the capture point this looks like a pause.
        if !is_full {
            slow_initiator(case, found);
        }
    }
    found.verdicts.append(&mut of_the_link.verdicts);
    if case.cpu_busy.is_some() {
        cpu(case, found);
    } else if !is_full {
        saturation(case, found);
    }
}

/// Fewest operations that distinguish a pattern from an accident.
const HABIT: u64 = 20;
/// Pauses of a client from this length on limit a rate, microseconds.
const SLOW_US: f64 = 1000.0;
/// Outliers exceed the typical time of their class by this factor, and this minimum, nanoseconds.
const OUTLIER_FACTOR: u64 = 20;
const OUTLIER_NS: u64 = 10_000_000;
/// Fewest outliers that are no accident.
const OUTLIERS: u64 = 3;

/// What a class of operations says about its server.
struct Slow {
    operations: u64,
    lost_ns: u128,
    sentence: String,
}

/// A class whose server takes longer than the allowance for its typical operation.
fn always_slow(class: &Class) -> Option<Slow> {
    let server_ns = class.typical_server_ns();
    if class.operations < HABIT || server_ns <= class.allowance_ns() {
        return None;
    }
    let rest = class.rest(class.reference_ns());
    let each_ns = server_ns.saturating_sub(class.network_ns()) as f64 / class.queue_depth().max(1.0);
    let sentence = format!(
        "the server takes {} for a {} of {} bytes ({} in flight), {} of which count as normal",
        duration(each_ns / 1000.0),
        class.operation(),
        class.block_size_bytes().round(),
        significant(class.queue_depth()),
        duration(SERVER_ALLOWANCE_NS as f64 / 1000.0)
    );
    Some(Slow { operations: rest.operations, lost_ns: rest.server_ns, sentence })
}

/// A class with a few operations that cost as much as all the others.
fn tail(class: &Class) -> Option<Slow> {
    let reference_ns = class.reference_ns();
    let outlier_ns = reference_ns.saturating_mul(OUTLIER_FACTOR).max(OUTLIER_NS);
    let rest = class.rest(outlier_ns);
    let others_ns = u128::from(reference_ns) * u128::from(class.operations - rest.operations);
    if class.operations < HABIT || rest.operations < OUTLIERS || rest.server_ns < others_ns {
        return None;
    }
    let sentence = format!(
        "{} of {} {}s took the server {} each, the others {}",
        rest.operations,
        class.operations,
        class.operation(),
        duration(rest.server_ns as f64 / rest.operations as f64 / 1000.0),
        duration(class.typical_server_ns() as f64 / 1000.0)
    );
    Some(Slow { operations: rest.operations, lost_ns: rest.server_ns, sentence })
}

fn slow_target(case: &Case<'_>, found: &mut Found) {
    let classes = case.evidence.ledger.classes().iter();
    let mut slow: Vec<Slow> =
        classes.filter_map(|class| always_slow(class).or_else(|| tail(class))).collect();
    slow.sort_by_key(|slow| std::cmp::Reverse(slow.lost_ns));
    let Some(first) = slow.first() else { return };
    let more = match slow.len() - 1 {
        0 => String::new(),
        more => format!("; {more} more kinds of operations are slow"),
    };
    let text = format!("{}{more}", first.sentence);
    let operations = slow.iter().map(|slow| slow.operations).sum();
    let lost_ns: u128 = slow.iter().map(|slow| slow.lost_ns).sum();
    found.rest_ns += lost_ns;
    let cost_us = lost_ns as f64 / 1000.0;
    found.push(case.verdict(VerdictKind::SlowTarget, operations, cost_us, Frames::default(), text, None));
}

/// A client whose pauses have at least this share of the cycle, and this length, limits the rate.
const CLIENT_SHARE: f64 = 0.75;

fn slow_initiator(case: &Case<'_>, found: &mut Found) {
    let mut slow: Vec<(&TrafficStanza, f64)> = Vec::new();
    for stanza in case.stanzas.iter().filter(|s| s.operations >= HABIT) {
        let (Some(client), Some(round_trip)) = (stanza.part(Part::Client), stanza.part(Part::RoundTrip))
        else {
            continue;
        };
        let share = client.mean_us / (client.mean_us + round_trip.mean_us);
        if client.p50_us >= SLOW_US && share >= CLIENT_SHARE && client.operations >= HABIT {
            slow.push((stanza, client.mean_us * client.operations as f64));
        }
    }
    let Some(&(stanza, _)) = slow.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else { return };
    let (client, round_trip) = (stanza.mean_us(Part::Client), stanza.mean_us(Part::RoundTrip));
    let (client, round_trip) = (client.unwrap_or(0.0), round_trip.unwrap_or(0.0));
    let text = format!(
        "the client waits {} between a response and its next {}, the server responds in {}{}",
        duration(client),
        stanza.operation,
        duration(round_trip),
        if slow.len() > 1 {
            format!("; so in {} of {} stanzas", slow.len(), case.stanzas.len())
        } else {
            String::new()
        }
    );
    let least = round_trip.max(case.least_us());
    let gain = Gain {
        throughput_factor: (client + round_trip) / least,
        operation_us: Some((client + round_trip, least)),
        text: format!(
            "at most {} times as many operations if the client always had the next one ready",
            significant((client + round_trip) / least)
        ),
    };
    let operations = slow.iter().map(|(stanza, _)| stanza.operations).sum();
    let gain = (least > 0.0).then_some(gain);
    let mut verdict =
        case.verdict(VerdictKind::SlowInitiator, operations, 0.0, Frames::default(), text, gain);
    verdict.pauses_us = slow.iter().map(|(_, pauses_us)| pauses_us).sum();
    found.push(verdict);
}

/// A link is full from this share of its rate on.
const FULL: f64 = 0.9;
/// A link is nearly idle below this share.
const IDLE: f64 = 0.6;

/// The link's rate against the traffic, for the stanza that moved most.
fn link(case: &Case<'_>, found: &mut Found) {
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
        found.push(kind_of(VerdictKind::LinkFull, None));
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
        found.push(verdict);
    }
}

/// A CPU is the bottleneck from this share of its time on.
const BUSY: f64 = 0.9;

fn cpu(case: &Case<'_>, found: &mut Found) {
    let Some((client, server)) = case.cpu_busy else { return };
    let (who, busy) = if server >= client { ("server", server) } else { ("client", client) };
    if busy < BUSY {
        return;
    }
    let text = format!("the {who}'s CPU is busy {:.0} % of the time", busy * 100.0);
    let operations = case.evidence.operations;
    found.push(case.verdict(VerdictKind::CpuBound, operations, 0.0, Frames::default(), text, None));
}

/// A ring that is deeper by this factor but not faster by this factor has a saturated stage.
const DEEPER: f64 = 4.0;
const FASTER: f64 = 1.25;

/// Saturation without CPU accounts: the same operation at two queue depths, at the same rate.
fn saturation(case: &Case<'_>, found: &mut Found) {
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
    found.push(case.verdict(
        VerdictKind::CpuBound,
        deep.operations,
        0.0,
        Frames::default(),
        text,
        Some(gain),
    ));
}
