//! Verdicts on rate: a client that works on one response after the other, CPUs, and the link.

use super::case::{Case, HABIT, duration, significant};
use super::found::Found;
use super::{Frames, Gain, VerdictKind, link};
use crate::parts::Part;
use crate::traffic::TrafficStanza;

pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    let of_the_link = link::judge(case);
    let is_full = of_the_link.as_ref().is_some_and(|verdict| verdict.kind == VerdictKind::LinkFull);
    let is_saturated = found.verdicts.iter().any(|verdict| verdict.kind == VerdictKind::Saturated);
    // Data that TCP delayed looks like a slow peer, and a sender that fills a link waits for it.
    if !is_full && !found.is_explained(case) {
        slow_initiator(case, found);
    }
    // A queue at the server is why the link is idle; more depth only makes it longer. Neither does it help against losses.
    let is_open = !is_saturated && !found.is_explained(case);
    found.verdicts.extend(of_the_link.filter(|verdict| verdict.kind == VerdictKind::LinkFull || is_open));
    if case.cpu_busy.is_some() {
        cpu(case, found);
    } else if !is_full && !is_saturated {
        saturation(case, found);
    }
}

/// A client limits the rate from this share of the cycle on.
const CLIENT_SHARE: f64 = 0.75;

/// A client that always has responses waiting, and takes them one at a time: its requests leave at the pace of its own work,
/// whatever the server does. A client that waits between a response and its next request, without others waiting meanwhile,
/// may do so by design: a poll, a user, a schedule. The packets do not show which, so it gets no verdict.
fn slow_initiator(case: &Case<'_>, found: &mut Found) {
    for (client, busy) in case.evidence.services.busy_clients() {
        let own = |stanza: &&TrafficStanza| {
            let connection = stanza.connection;
            connection.and_then(|connection| case.evidence.services.client(connection)) == Some(client)
        };
        let mut sums = (0, 0.0, 0.0);
        for stanza in case.stanzas.iter().filter(own) {
            let count = stanza.operations as f64;
            let mean = |part| stanza.mean_us(part).unwrap_or(0.0) * count;
            sums = (sums.0 + stanza.operations, sums.1 + mean(Part::Client), sums.2 + mean(Part::RoundTrip));
        }
        let (operations, pauses_us, round_trips_us) = sums;
        if operations < HABIT || pauses_us < CLIENT_SHARE * (pauses_us + round_trips_us) {
            continue;
        }
        let (each_us, count) = (busy.pace_ns / 1000.0, operations as f64);
        let text = format!(
            "the client {client} works on one response at a time, {} each, while {} others wait for it: a request leaves {} \
             after the response that it replaces, the server responds in {}",
            duration(each_us),
            significant(busy.waiting),
            duration(pauses_us / count),
            duration(round_trips_us / count)
        );
        let (now_us, then_us) = ((pauses_us + round_trips_us) / count, round_trips_us / count);
        let gain = (then_us > 0.0).then(|| Gain {
            throughput_factor: now_us / then_us,
            throughput_least: now_us / then_us,
            operation_us: Some((now_us, then_us)),
            operation_most_us: Some(then_us),
            text: format!(
                "at most {} times as many operations if the client took its responses at once",
                significant(now_us / then_us)
            ),
        });
        let kind = VerdictKind::SlowInitiator;
        let mut verdict = case.verdict(kind, operations, 0.0, Frames::default(), text, gain);
        verdict.pauses_us = pauses_us;
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
        throughput_least: 1.0,
        operation_us: None,
        operation_most_us: None,
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
