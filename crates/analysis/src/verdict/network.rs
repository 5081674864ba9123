//! Verdicts on the path: one segment a round trip, congestion window, round trips, queues.

use record::units::counted;
use record::{ConnectionFacts, Flights, Side, StallKind, Transit};

use super::case::{Case, HABIT, duration, lasted_ns, significant};
use super::chain::Chain;
use super::found::Found;
use super::gain::Loss;
use super::{Frames, Gain, VerdictKind};
use crate::ledger::Class;

/// Fewest events that cannot be a coincidence.
const COINCIDENCE: u64 = 3;

pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    ack_clocked(case, found);
    windows(case, found);
    round_trips(case, found);
    queues(case, found);
    clock_steps(case, found);
}

/// Steps of the capturing clock.
fn clock_steps(case: &Case<'_>, found: &mut Found) {
    let steps = &case.evidence.clock_steps;
    let Some(&(vantage, first)) = steps.first() else { return };
    let direction = if first.by_ns < 0 { "back" } else { "forward" };
    let more = match steps.len() - 1 {
        0 => String::new(),
        more => format!(", and set {more} more times"),
    };
    let text = format!(
        "the capturing clock was set {direction} by {} before frame {}{more}: the time stamps of both hosts went on \
         without a jump; operations across it are left out",
        duration(first.by_ns.unsigned_abs() as f64 / 1000.0),
        first.frame
    );
    let numbers: Vec<[u64; 3]> =
        steps.iter().filter(|step| step.0 == vantage).map(|step| [step.1.frame, 0, 0]).collect();
    let frames = case.frames(vantage, &numbers);
    found.push(case.verdict(VerdictKind::ClockStep, 0, 0.0, frames, text, None));
}

/// Senders whose messages came in several flights.
fn limited<'a>(
    case: &Case<'a>,
    is_such: impl Fn(&Flights) -> bool,
) -> impl Iterator<Item = (&'a ConnectionFacts, Side)> {
    let senders = case.evidence.senders().map(|(_, facts, side)| (facts, side));
    senders.filter(move |(facts, side)| is_such(&facts.conduct(*side).flights))
}

/// A verdict on the waits of operations for one cause.
fn waited(
    case: &Case<'_>,
    found: &mut Found,
    kind: VerdictKind,
    stall: StallKind,
    frames: Frames,
    text: String,
) {
    let (operations, lost_ns) = found.claim(case, &[stall]);
    let mut loss = case.loss_of(&[stall]);
    match kind {
        VerdictKind::BufferLimited => loss = loss.but_slow_start(limited(case, |flights| flights.runs > 0)),
        VerdictKind::CongestionWindow => {
            loss = loss.but_window(limited(case, |flights| flights.runs > flights.later_runs));
        }
        _ => {}
    }
    let gain = loss.gain(case.most());
    found.push(case.verdict(kind, operations, lost_ns as f64 / 1000.0, frames, text, gain));
}

/// Small segments that left together with others, of all small ones, above which Nagle's algorithm is off.
const TOGETHER_MAX: f64 = 0.05;

/// Nagle's algorithm without a delayed ACK: one small segment leaves in each round trip.
fn ack_clocked(case: &Case<'_>, found: &mut Found) {
    let mut seen = case.evidence.stalls(StallKind::AckClocked);
    seen.retain(|(side, _, stalls)| {
        let conducts = stalls.connections.iter().filter_map(|&c| case.evidence.near(c, *side));
        let (mut alone, mut together) = (0, 0);
        for (_, facts) in conducts {
            let conduct = facts.conduct(*side);
            (alone, together) = (alone + conduct.small_alone, together + conduct.small_together);
        }
        let is_one_at_a_time = together as f64 <= TOGETHER_MAX * (alone + together).max(1) as f64;
        stalls.count >= HABIT && is_one_at_a_time && stalls.count * 8 >= alone
    });
    let Some(&(side, vantage, stalls)) = seen.iter().max_by_key(|(_, _, stalls)| stalls.wait_ns) else {
        return;
    };
    let text = format!(
        "{} times a small segment of the {} left only when the ACK of the small one before came, {} after there was \
         something to send: Nagle's algorithm lets one leave in each round trip of the network",
        stalls.count,
        side.name(),
        duration(stalls.wait_ns as f64 / stalls.count.max(1) as f64 / 1000.0)
    );
    let frames = case.frames(vantage, &stalls.frames);
    waited(case, found, VerdictKind::AckClocked, StallKind::AckClocked, frames, text);
    // A turn holds any number of requests: what they lose together is the time of their connection.
    let held =
        || stalls.connections.iter().filter_map(|&c| case.evidence.near(c, side)).map(|(_, facts)| facts);
    if side == Side::Client
        && held().all(|facts| facts.protocol == "turns")
        && let Some(verdict) = found.verdicts.last_mut()
    {
        verdict.gain = Loss::of_connections(held(), stalls.wait_ns).gain(case.most());
    }
    found.held = stalls.connections.clone();
}

/// Whether flights are larger than the ones before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Growth {
    Each,
    None,
}

/// What flights of all senders say.
#[derive(Default)]
struct Limited {
    flights: Flights,
    round_trip_ns: u64,
    /// Exchanges of the connections that have such flights.
    exchanges: u64,
}

impl Limited {
    /// Whether most messages did not wait: the window of a new connection has grown, as it does on each, and stays large.
    fn has_warmed_up(&self) -> bool {
        self.exchanges > 2 * self.flights.runs
    }

    /// The sum over all senders whose flights grow, as a congestion window does, or over those whose flights stay as they are.
    fn of(case: &Case<'_>, growth: Growth, is_after_idle: bool) -> Self {
        let of = |facts: &ConnectionFacts, side| {
            let conduct = facts.conduct(side);
            if is_after_idle { conduct.flights_after_idle } else { conduct.flights }
        };
        let loses = [Side::Client, Side::Server].map(|side| {
            let mut of_side = case.evidence.senders().filter(|sender| sender.2 == side);
            of_side.any(|(_, facts, side)| facts.conduct(side).retransmitted > 0)
        });
        let mut all = Self::default();
        for (_, facts, side) in case.evidence.senders() {
            let flights = of(facts, side);
            // A window that grows is that of a connection's beginning, or a loss before the capture has made it small.
            let is_beginning = growth == Growth::Each && !is_after_idle;
            if facts.handshake_ns.is_none() && (is_beginning || loses[side as usize]) {
                continue;
            }
            // A congestion window that has grown stays large: who stops at the same number of bytes again and again has
            // another limit.
            let is_same = flights.later_most_bytes * 4 <= flights.later_least_bytes * 5;
            let is_constant = flights.grown * 2 < flights.next
                || !is_after_idle && flights.later_runs >= COINCIDENCE && is_same;
            if is_constant != (growth == Growth::None) {
                continue;
            }
            let sum = &mut all.flights;
            sum.runs += flights.runs;
            sum.next += flights.next;
            sum.grown += flights.grown;
            sum.first_bytes += flights.first_bytes;
            sum.later_runs += flights.later_runs;
            all.exchanges += if flights.runs > 0 { facts.exchanges } else { 0 };
            all.round_trip_ns = all.round_trip_ns.max(facts.round_trip_ns());
        }
        all
    }

    fn text(&self, what: &str) -> String {
        let Flights { runs, next, first_bytes, .. } = self.flights;
        format!(
            "{runs} messages {what}: {} bytes leave at first, then more in each round trip of {}, {} round trips for \
             each; the receiver's window has room for more",
            first_bytes / runs.max(1),
            duration(self.round_trip_ns as f64 / 1000.0),
            significant((runs + next) as f64 / runs.max(1) as f64)
        )
    }
}

/// Windows that are small behind a pause cost a good part of the time from this share on.
const RESTARTS_SHARE: f64 = 0.2;

/// Congestion windows that are small again and again.
fn windows(case: &Case<'_>, found: &mut Found) {
    let restarts = Limited::of(case, Growth::Each, true);
    let frames_of = |stall| {
        let seen = case.evidence.stalls(stall);
        let most = seen.iter().max_by_key(|(_, _, stalls)| stalls.wait_ns);
        most.map(|(_, vantage, stalls)| case.frames(*vantage, &stalls.frames))
    };
    // Growth shows itself in the second flight of a run, at the earliest.
    if restarts.flights.runs >= COINCIDENCE
        && let Some(frames) = frames_of(StallKind::SlowStartAfterIdle)
    {
        let text = restarts.text("began with a small congestion window after an idle time");
        let (kind, stall) = (VerdictKind::SlowStartAfterIdle, StallKind::SlowStartAfterIdle);
        waited(case, found, kind, stall, frames, text);
        // It comes back with each pause, so it is a habit if it costs a good part of the time, however many do not wait.
        let is_cheap = found.verdicts.last().is_some_and(|verdict| {
            verdict.cost_us * 1000.0 < RESTARTS_SHARE * case.evidence.ledger.time_ns() as f64
        });
        if restarts.has_warmed_up()
            && is_cheap
            && let Some(verdict) = found.verdicts.pop()
        {
            found.notes.push(verdict);
        }
    }
    let flights = |growth| Limited::of(case, growth, false);
    let Some(frames) = frames_of(StallKind::CongestionWindow) else { return };
    let (growing, constant) = (flights(Growth::Each), flights(Growth::None));
    let stall = StallKind::CongestionWindow;
    if growing.flights.runs >= COINCIDENCE && growing.flights.grown > 0 {
        let text = growing.text("waited for the sender's congestion window");
        waited(case, found, VerdictKind::CongestionWindow, stall, frames, text);
        if growing.has_warmed_up()
            && let Some(verdict) = found.verdicts.pop()
        {
            found.notes.push(verdict);
        }
    } else if constant.flights.next.max(constant.flights.later_runs) >= HABIT {
        let Flights { runs, next, first_bytes, .. } = constant.flights;
        let text = format!(
            "in each round trip of {} about {} bytes of a message leave, {} round trips for each, and the receiver's window has \
             room for more: the sender's send buffer is too small, or its congestion window does not grow",
            duration(constant.round_trip_ns as f64 / 1000.0),
            first_bytes / runs.max(1),
            significant((runs + next) as f64 / runs.max(1) as f64)
        );
        waited(case, found, VerdictKind::BufferLimited, stall, frames, text);
    }
}

/// Round trips from which on they are a network's, nanoseconds: within a building they are shorter.
const NETWORK_NS: u64 = 1_000_000;
/// Shares of a connection's operations that follow at once, and of the network in their time, from which on they are a chain.
const CHAIN_SHARE: f64 = 0.5;

/// The share of all operations that are of chains at least.
const CHAINED: f64 = 0.1;

/// A chain of operations whose time is the network's.
struct Chatty<'a> {
    facts: &'a ConnectionFacts,
    vantage: u32,
    chain: &'a Chain,
    round_trip_ns: u64,
}

/// The round trip between hosts of one building, nanoseconds: it remains, wherever the client is, and of a large batch.
pub(super) const NEARBY_NS: f64 = 100_000.0;

/// The gain of operations that do not pay for the network. It depends on what is done: of a batch of ten at most ten times.
fn nearby(time_ns: f64, lost_ns: f64, operations: u64) -> Option<Gain> {
    let each_us = |ns: f64| ns / operations as f64 / 1000.0;
    let (now_us, then_us) = (each_us(time_ns), each_us(time_ns - lost_ns));
    let factor = now_us / then_us;
    (factor.is_finite() && factor > 1.0).then(|| Gain {
        throughput_factor: factor,
        throughput_least: factor,
        operation_us: Some((now_us, then_us)),
        operation_most_us: Some(then_us),
        text: format!(
            "at most {} times as many operations: with so many in a batch or in flight, or with a client {} from the server",
            significant(factor),
            duration(NEARBY_NS / 1000.0)
        ),
    })
}

/// Operations one after another, each at the cost of a round trip.
fn round_trips(case: &Case<'_>, found: &mut Found) {
    let evidence = case.evidence;
    let chatty = |(connection, chain)| {
        let chain: &Chain = chain;
        let (vantage, facts) = evidence.near(connection, Side::Client)?;
        // At the server's capture point the round trip is part of the client's time, not of the operation's.
        let away_ns = match evidence.place(vantage) {
            // Acknowledgements that ride on answers have the server's time, and not the network's.
            Some(Side::Server) => facts.path_ns(Side::Client),
            _ if facts.handshake_ns.is_none() => return None,
            _ => facts.round_trip_ns(),
        };
        let round_trip_ns = away_ns.min(chain.least_ns);
        let cycles_ns = chain.time_ns.saturating_add(chain.thought_ns);
        let mean_ns = cycles_ns as f64 / chain.followed.max(1) as f64;
        let is_chain = chain.followed >= HABIT
            && chain.followed as f64 >= CHAIN_SHARE * chain.operations as f64
            && cycles_ns as f64 >= CHAIN_SHARE * lasted_ns(facts) as f64;
        let is_far = round_trip_ns >= NETWORK_NS && round_trip_ns as f64 >= CHAIN_SHARE * mean_ns;
        // Requests that Nagle's algorithm holds look like those that a program sends one after the other.
        let is_held = found.held.contains(&connection);
        (is_chain && is_far && !is_held).then_some(Chatty { facts, vantage, chain, round_trip_ns })
    };
    let all: Vec<Chatty<'_>> = evidence.chains.iter().filter_map(chatty).collect();
    let Some(most) = all.iter().max_by_key(|chatty| (chatty.chain.followed, chatty.facts.connection)) else {
        return;
    };
    let sum = |of: &dyn Fn(&Chatty<'_>) -> u128| all.iter().map(of).sum::<u128>();
    let operations = sum(&|c| c.chain.followed.into()) as u64;
    let time_ns = sum(&|c| u128::from(c.chain.time_ns) + u128::from(c.chain.thought_ns));
    let network_ns = sum(&|c| u128::from(c.chain.followed) * u128::from(c.round_trip_ns));
    // Some requests that happened to follow at once are no chain of the service.
    if (operations as f64) < CHAINED * evidence.operations as f64 {
        return;
    }
    let text = format!(
        "{} of {} followed one another, each as soon as the one before had ended: {} of \
         the {} that each takes are the network's round trip",
        counted(operations, "operation"),
        counted(all.len() as u64, "connection"),
        duration(most.round_trip_ns as f64 / 1000.0),
        duration(time_ns as f64 / operations.max(1) as f64 / 1000.0)
    );
    let frames = case.frames(most.vantage, &most.chain.frames);
    // Bytes take their time on the link, however short it is.
    let wire_ns = case.wire_ns().max(NEARBY_NS) * operations as f64;
    let gain = nearby(time_ns as f64, network_ns as f64 - wire_ns, operations);
    found.push(case.verdict(VerdictKind::RoundTripBound, operations, 0.0, frames, text, gain));
}

/// A queue is a standing one from this delay on, nanoseconds (RFC 8289: CoDel's target is 5 ms; it is for paths of up to
/// 100 ms, of which it is 5 %).
const QUEUE_NS: u64 = 5_000_000;
/// The round trip under load, as a multiple of the idle one, from which on the queue dominates it.
const BLOATED: f64 = 3.0;
/// Correlation of round trip and bytes in flight from which on the sender's own data is the queue.
const CORRELATED: f64 = 0.5;

/// Queues that grow with the bytes in flight.
fn queues(case: &Case<'_>, found: &mut Found) {
    let mut worst: Option<(u32, &ConnectionFacts, Side, f64, u64)> = None;
    for (vantage, facts, side) in case.evidence.senders() {
        let queueing = &facts.conduct(side).queueing;
        // Both at the same capture point: from it to the receiver and back.
        let idle_ns = facts.path_ns(side.peer());
        let loaded_ns = queueing.mean_ns();
        let is_bloated = queueing.count >= HABIT
            && idle_ns > 0
            && loaded_ns >= BLOATED * idle_ns as f64
            && loaded_ns - idle_ns as f64 >= QUEUE_NS as f64
            && queueing.correlation() >= CORRELATED;
        if is_bloated && worst.is_none_or(|(.., most, _)| loaded_ns > most) {
            worst = Some((vantage, facts, side, loaded_ns, idle_ns));
        }
    }
    let Some((vantage, facts, side, loaded_ns, idle_ns)) = worst else { return behind_others(case, found) };
    let conduct = facts.conduct(side);
    let text = format!(
        "with the {}'s data in flight (up to {} bytes) the round trip is {} instead of {}, and grows with it: the data waits \
         in a queue on the path",
        side.name(),
        conduct.in_flight_max_bytes,
        duration(loaded_ns / 1000.0),
        duration(idle_ns as f64 / 1000.0)
    );
    let frames = case.frames(vantage, [&conduct.ack_wait_frames]);
    let (own, queued_ns) = found.claim(case, &[StallKind::QueuedOnPath]);
    let (others, others_ns) = behind_queue(case, found, loaded_ns - idle_ns as f64);
    let lost_ns = queued_ns + others_ns;
    let operations = (own + others).min(case.evidence.operations);
    let mut loss = Loss::of(case, Class::time_ns);
    loss.lost_ns = lost_ns as f64;
    let gain = loss.gain(f64::INFINITY);
    found.push(case.verdict(
        VerdictKind::Bufferbloat,
        operations,
        lost_ns as f64 / 1000.0,
        frames,
        text,
        gain,
    ));
}

/// The least spread of waits in a queue, of their mean: a queue grows and shrinks, while a capturing clock that is set moves all
/// stamps alike.
const QUEUE_SPREAD: f64 = 0.1;
/// Ratio of the waits of both directions below which they are not two queues but one clock.
const ONE_CLOCK: f64 = 1.25;

/// Queues that other traffic fills, as the senders' time stamps show them.
fn behind_others(case: &Case<'_>, found: &mut Found) {
    let of = |side: Side| {
        let senders = case.evidence.senders_far().filter(|sender| sender.2 == side);
        let (mut all, mut idle_ns, mut point) = (Transit::default(), 0, (0, 0));
        for (vantage, facts, side) in senders {
            let transit = facts.conduct(side).transit;
            if transit.waits > 0 {
                idle_ns = facts.round_trip_ns().max(idle_ns);
            }
            if transit.longest_ns > point.1 {
                point = (vantage, transit.longest_ns);
            }
            all = all.and(transit);
        }
        (side, all, idle_ns, point.0)
    };
    let is_queue = |all: &Transit, idle_ns: u64| {
        let (mean, spread) = all.mean_ns();
        all.waits >= HABIT
            && mean >= ((BLOATED - 1.0) * idle_ns as f64).max(QUEUE_NS as f64)
            && spread >= QUEUE_SPREAD * mean
    };
    let both = [of(Side::Client), of(Side::Server)];
    let [(client, _), (server, _)] = [both[0].1.mean_ns(), both[1].1.mean_ns()];
    if both[0].1.waits > 0 && both[1].1.waits > 0 && client.max(server) < ONE_CLOCK * client.min(server) {
        return;
    }
    let queues = both.into_iter().filter(|(_, all, idle_ns, _)| is_queue(all, *idle_ns));
    let Some((side, all, idle_ns, vantage)) = queues.max_by(|a, b| a.1.wait_ns.total_cmp(&b.1.wait_ns))
    else {
        return;
    };
    let text = format!(
        "{} of {} messages of the {} waited {} on the path, {} at most, behind other data than their connection's: the time \
         stamps of their packets show when they left; the idle round trip is {}",
        all.waits,
        all.count,
        side.name(),
        duration(all.mean_ns().0 / 1000.0),
        duration(all.longest_ns as f64 / 1000.0),
        duration(idle_ns as f64 / 1000.0)
    );
    let frames = case.frames(vantage, [&[all.longest_frame, 0, 0]]);
    waited(case, found, VerdictKind::Bufferbloat, StallKind::QueuedOnPath, frames, text);
}

/// What other operations than those of the queue's own data lost: they take longer than usual, by the queue's delay at most.
fn behind_queue(case: &Case<'_>, found: &mut Found, delay_ns: f64) -> (u64, u128) {
    let mut all = (0, 0);
    for class in case.evidence.ledger.classes() {
        // Operations that take as long as a queue's delay again are those of bulk data.
        let reference_ns = class.reference_ns();
        if reference_ns as f64 > delay_ns {
            continue;
        }
        let rest = class.rest(reference_ns.saturating_add((delay_ns / 4.0) as u64));
        let most_ns = (delay_ns * rest.operations as f64) as u128;
        all = (all.0 + rest.operations, all.1 + rest.ns.min(most_ns));
    }
    found.rest_ns += all.1;
    all
}
