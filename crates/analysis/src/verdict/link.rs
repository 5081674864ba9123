//! The link's rate against all traffic of the capture.

use model::bound::queue_depth_network_bound;
use record::{OpKind, Side};

use super::case::{Case, HABIT, significant};
use super::gain::Loss;
use super::network::NEARBY_NS;
use super::{Frames, Gain, Verdict, VerdictKind};
use crate::ledger::Class;
use crate::parts::Part;
use crate::traffic::TrafficStanza;

/// A link is full from this share of its rate on.
const FULL: f64 = 0.9;
/// A link takes a fifth more, and more than that, below this share.
const IDLE: f64 = 0.75;
/// Share of the bytes that pass while the link is full, if it limits the traffic.
const IN_FULL: f64 = 0.5;

/// A full link, or one that a deeper queue would fill; judged over all connections, in each direction.
pub(super) fn judge(case: &Case<'_>) -> Option<Verdict> {
    let Some(link) = case.link else { return unknown(case) };
    let carried = link.passed.map(|share| link.bits_per_second / 8.0 * share);
    let used = case.evidence.services.link();
    let shares = [Side::Client, Side::Server].map(|side| used.shares(side, carried[side as usize], FULL));
    let is_full = |&(mean, in_full): &(f64, f64)| mean >= FULL || in_full >= IN_FULL;
    let busiest = if shares[0].0 > shares[1].0 { Side::Client } else { Side::Server };
    let full = [Side::Client, Side::Server].into_iter().filter(|side| is_full(&shares[*side as usize]));
    let side = full.max_by_key(|side| used.bytes(*side));
    let (mean, in_full) = shares[side.unwrap_or(busiest) as usize];
    let bytes_per_second = carried[side.unwrap_or(busiest) as usize];
    if case.evidence.operations < HABIT {
        return None;
    }
    // More than a link carries does not pass: the rate that was given is another link's.
    if mean > IMPOSSIBLE {
        return unknown(case);
    }
    if let Some(side) = side {
        let text = format!(
            "the messages of all {}s move {} MB/s, {:.0} % of the link's rate{}",
            side.name(),
            significant(mean * bytes_per_second / 1e6),
            mean * 100.0,
            if mean >= FULL {
                String::new()
            } else {
                format!("; {:.0} % of the bytes pass while it is full", in_full * 100.0)
            }
        );
        let operations = case.evidence.operations;
        let gain = wider(case);
        return Some(case.verdict(VerdictKind::LinkFull, operations, 0.0, Frames::default(), text, gain));
    }
    too_few_in_flight(case, bytes_per_second, shares[0].0.max(shares[1].0))
}

/// The gain of a link that is so fast that nothing waits for it: operations as fast as the first bytes of the fastest one. Where the
/// queue is behind the capture point it is in the client's time. A link that is twice as fast gains twice at most.
fn wider(case: &Case<'_>) -> Option<Gain> {
    let loss = Loss::of(case, Class::time_ns);
    let classes = case.evidence.ledger.classes();
    let first_byte_ns = |class: &Class| {
        let alike = classes.iter().filter(|of| of.service() == class.service());
        let least_ns =
            alike.filter_map(|of| of.server_times().next()).map(|(edge, _, _)| edge).min().unwrap_or(0);
        class.operations as f64 * ((least_ns + class.away_ns()) as f64).max(NEARBY_NS)
    };
    let least_ns: f64 = classes.iter().map(first_byte_ns).sum();
    let factor = loss.cycle_ns / least_ns.max(f64::MIN_POSITIVE);
    (loss.is_loop && factor.is_finite() && factor > 1.0).then(|| Gain {
        throughput_factor: factor,
        throughput_least: factor,
        operation_us: None,
        operation_most_us: None,
        text: format!(
            "at most {} times as many operations, on a link that is so many times as fast",
            significant(factor)
        ),
    })
}

/// A link cannot carry more than its rate for long; queues behind the capture point take a little more.
const IMPOSSIBLE: f64 = 1.2;
/// Share of the time in which packets follow one another at one rate, if the link is full.
const REGULAR: f64 = 0.75;
/// Messages that pass at once on average, where several always have something to send.
const PASSING: f64 = 1.5;

/// A full link whose rate is not given: behind it, packets of several connections follow one another at one rate, whatever
/// is in flight, and several messages are under way all the time.
fn unknown(case: &Case<'_>) -> Option<Verdict> {
    let used = case.evidence.services.link();
    let known = case.evidence.spacings.iter().filter_map(|(regular, side)| Some((regular.as_ref()?, *side)));
    let full = known.filter(|(regular, side)| regular.share >= REGULAR && used.passing(*side) >= PASSING);
    let (regular, side) = full.max_by_key(|(regular, _)| regular.bytes)?;
    if case.evidence.operations < HABIT {
        return None;
    }
    let text = format!(
        "the packets of all {}s follow one another at {} Mb/s in {:.0} % of the time, whatever their connections, and {} messages \
         are under way on average: a link of that rate is full",
        side.name(),
        significant(regular.bits_per_second / 1e6),
        regular.share * 100.0,
        significant(used.passing(side)),
    );
    let operations = case.evidence.operations;
    Some(case.verdict(VerdictKind::LinkFull, operations, 0.0, Frames::default(), text, wider(case)))
}

/// A client whose own time is at most this share of its cycle wants all that it can get: without it, a quarter more at
/// most.
const EAGER: f64 = 0.2;

/// A ring's own time between a response and the request that replaces it, microseconds: without the network between the capture
/// point and the client. Before the link, a response passes the capture point in less time than the link needs for it: the rest
/// is on its way.
fn own_client_us(case: &Case<'_>, stanza: &TrafficStanza, bytes_per_second: f64) -> Option<f64> {
    let client_us = stanza.mean_us(Part::Client)?;
    let facts = stanza.connection.and_then(|connection| case.evidence.near(connection, Side::Client));
    let path_us = |side| facts.map_or(0, |(_, facts)| facts.path_ns(side)) as f64 / 1000.0;
    let away_us = path_us(Side::Client);
    let is_carried = stanza.kind == OpKind::Read && away_us > path_us(Side::Server);
    let carried_us = if is_carried { stanza.block_size_bytes / bytes_per_second * 1e6 } else { 0.0 };
    let rest_us = carried_us - stanza.mean_us(Part::Transfer).unwrap_or(0.0);
    Some((client_us - away_us - rest_us.max(0.0)).max(0.0))
}

/// Whether the clients of all connections together are ready at once, and not those of one stanza alone.
fn are_eager(case: &Case<'_>, bytes_per_second: f64) -> bool {
    let (mut own_us, mut cycles_us, mut loops, mut operations) = (0.0, 0.0, 0, 0);
    for stanza in case.stanzas {
        operations += stanza.operations;
        let (Some(own), Some(client)) =
            (own_client_us(case, stanza, bytes_per_second), stanza.part(Part::Client))
        else {
            continue;
        };
        let count = client.operations as f64;
        loops += client.operations;
        own_us += count * own;
        cycles_us += count * (client.mean_us + answer_us(stanza).unwrap_or(0.0));
    }
    own_us <= EAGER * cycles_us && 2 * loops > operations
}

/// The cycles of all operations: their time, and the clients' before them, where most of the network's is at a server's capture
/// point.
fn cycles_ns(case: &Case<'_>) -> f64 {
    let thoughts = case.evidence.ledger.classes().iter().map(|class| class.thoughts().1);
    (case.evidence.ledger.time_ns() + thoughts.sum::<u128>()) as f64
}

/// Whether a server takes more than its allowance, and most of a cycle.
fn is_slow(case: &Case<'_>, cycle_us: f64) -> bool {
    // Without a handshake, acknowledgements may ride on answers: then the network's time is not known.
    let knows_network = case.evidence.connections().all(|(_, facts)| facts.handshake_ns.is_some());
    case.evidence.ledger.classes().iter().any(|class| {
        let network_ns = if knows_network { class.network_ns() } else { 0 };
        let own_us = (class.mean_server_ns() - network_ns as f64) / 1000.0;
        let allowance_ns = class.allowance_ns() - class.network_ns().min(class.allowance_ns()) + network_ns;
        let is_long = class.typical_server_ns() > allowance_ns && own_us >= 0.5 * cycle_us;
        is_long && class.operations >= HABIT
    })
}

/// From a request to its response at the capture point, microseconds.
fn answer_us(stanza: &TrafficStanza) -> Option<f64> {
    stanza.mean_us(Part::RoundTrip).or_else(|| stanza.mean_us(Part::Server))
}

/// Operations in flight over all connections, if each ring stays as deep as it is.
fn depth_of_all(case: &Case<'_>) -> f64 {
    let sum: f64 = case.stanzas.iter().map(|stanza| stanza.queue_depth.1 * stanza.seconds).sum();
    sum / case.evidence.services.link().seconds().max(f64::MIN_POSITIVE)
}

/// A ring in which every request takes the place of a response, and whose link is idle most of the time.
fn too_few_in_flight(case: &Case<'_>, bytes_per_second: f64, used: f64) -> Option<Verdict> {
    let most = |stanza: &&TrafficStanza| stanza.operations >= HABIT && stanza.seconds > 0.0;
    let stanzas = case.stanzas.iter().filter(most);
    let stanza = stanzas.max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))?;
    let (client, round_trip, wire) = (stanza.mean_us(Part::Client)?, answer_us(stanza)?, stanza.wire_us?);
    let depth = stanza.queue_depth.1.max(depth_of_all(case));
    let spacing_us = stanza.block_size_bytes / bytes_per_second * 1e6;
    let needed = queue_depth_network_bound(client, round_trip, 0.0, spacing_us.max(wire / 2.0)).ceil();
    // A poll, a schedule, or a user is content with what it gets: only a client that is ready at once waits.
    let is_eager = own_client_us(case, stanza, bytes_per_second)? <= EAGER * (client + round_trip)
        && are_eager(case, bytes_per_second);
    let is_waiting = is_eager && stanza.queue_depth.0 == stanza.queue_depth.2 && stanza.chunks.is_none();
    // What keeps the link idle is neither TCP nor a server that takes long.
    let waits_ns = case.evidence.ledger.waits_ns() as f64;
    let is_waiting = is_waiting && waits_ns <= EAGER * cycles_ns(case) && !is_slow(case, client + round_trip);
    if used >= IDLE || needed <= depth || !is_waiting {
        return None;
    }
    let factor = (needed / depth).min(FULL / used);
    let gain = Gain {
        throughput_factor: factor,
        throughput_least: factor,
        operation_us: None,
        operation_most_us: None,
        text: format!(
            "a queue depth of {needed} would fill the link, if the server's time stays the same: up to {} times as many \
             operations",
            significant(factor)
        ),
    };
    let text = format!(
        "{}s of {} bytes move {} MB/s, and all traffic {:.0} % of the link's rate, with {} in flight; {needed} would fill it",
        stanza.operation,
        stanza.block_size_bytes.round(),
        significant(stanza.bytes_per_second / 1e6),
        used * 100.0,
        significant(depth)
    );
    let kind = VerdictKind::QueueDepthLow;
    Some(case.verdict(kind, stanza.operations, 0.0, Frames::default(), text, Some(gain)))
}
