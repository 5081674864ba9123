//! Verdicts on the server: requests that wait for each other, a client that waits for the server all the time, and some
//! operations that are much slower than others of their kind.
//!
//! A server that takes long is no fault by itself: a query may need its 20 ms. A verdict needs a contrast: with the same
//! request when it meets no other, with others of its kind, or with a client that is ready all the time, where the server's
//! time is the rate. Without it the time is stated, in the table of services and as a note.

use record::StallKind;

use super::case::{Case, HABIT, duration, significant};
use super::found::Found;
use super::gain::Loss;
use super::{Frames, Gain, Verdict, VerdictKind, link, rare, setup};
use crate::ledger::{Class, SERVER_ALLOWANCE_NS};
use crate::service::Saturated;
use crate::service::ticks::Timer;

pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    let is_full = link::judge(case).is_some_and(|verdict| verdict.kind == VerdictKind::LinkFull);
    // Data that TCP delayed looks like a slow server, and so does one behind a full link.
    if is_full {
        return;
    }
    if found.is_explained(case) {
        stalls_beyond_waits(case, found);
        return;
    }
    let mut saturated = case.evidence.services.saturated();
    let timers = case.evidence.services.timers();
    // Responses of one tick leave together, like those of a queue.
    saturated.retain(|saturated| !timers.iter().any(|(server, _, _)| saturated.server == *server));
    // What hands out events to those who wait for them in a row is no worker.
    let (by_events, saturated): (Vec<_>, Vec<_>) =
        saturated.into_iter().partition(|saturated| saturated.is_of_events);
    let classes = case.evidence.ledger.classes();
    let mut slow = Vec::new();
    let mut by_design = Vec::new();
    for (place, class) in classes.iter().enumerate().filter(|(_, class)| !class.awaits_event()) {
        let own = |saturated: &&Saturated| saturated.server == class.service();
        if let Some(of) = saturated.iter().find(own) {
            found.references_ns[place] = class.at_most_ns(of.saturation.alone_ns as u64);
            continue;
        }
        if let Some((_, _, timer)) = timers.iter().find(|(server, _, _)| *server == class.service()) {
            found.references_ns[place] = class.at_most_ns(timer.alone_ns as u64);
            continue;
        }
        if by_events.iter().any(|of| of.server == class.service()) {
            by_design.push(class);
            continue;
        }
        match demand(case, class) {
            Demand::Full => {
                found.references_ns[place] = class.allowed_ns();
                slow.push((place, class));
            }
            Demand::Unknown => by_design.push(class),
            Demand::Fast => {}
        }
    }
    for of in &saturated {
        self::saturated(case, of, found);
    }
    for (server, name, timer) in &timers {
        self::timer(case, &Named { place: *server, name: *name }, timer, found);
    }
    always_slow(case, &slow, found);
    let is_open = |place: usize, class: &Class| {
        !class.awaits_event()
            && !slow.iter().any(|(of, _)| *of == place)
            && !saturated.iter().any(|saturated| saturated.server == class.service())
            && !timers.iter().any(|(server, _, _)| *server == class.service())
    };
    let mut others: Vec<(usize, &Class)> =
        classes.iter().enumerate().filter(|(place, class)| is_open(*place, class)).collect();
    let stalled = rare::judge(case, &others, 0, found);
    others.retain(|(place, _)| !stalled.contains(place));
    tail(case, &others, found);
    note(case, &by_design, found);
}

/// Pauses of a server where TCP explains most of the time, if they are much longer than TCP's waits.
fn stalls_beyond_waits(case: &Case<'_>, found: &mut Found) {
    let ledger = &case.evidence.ledger;
    let means = StallKind::ALL.into_iter().map(|kind| {
        let (operations, sum_ns) = ledger.waits(kind);
        u64::try_from(sum_ns / u128::from(operations.max(1))).unwrap_or(u64::MAX)
    });
    let least_ns = means.max().unwrap_or(0).saturating_mul(rare::LONGER_THAN_WAITS);
    let classes = ledger.classes().iter().enumerate().filter(|(_, class)| !class.awaits_event());
    let classes: Vec<(usize, &Class)> = classes.collect();
    rare::judge(case, &classes, least_ns, found);
}

/// How much a client wants of a server that is slower than the allowance.
enum Demand {
    /// The server is not slow.
    Fast,
    /// A client is always ready, and the server's time is most of its cycle.
    Full,
    /// The client waits between its requests, or packets do not show whether it does.
    Unknown,
}

/// A client's time up to this share of an operation's is none: it is always ready.
const READY: f64 = 0.1;
/// A server whose time is this share of the cycle of such a client limits its rate.
const SERVER_SHARE: f64 = 0.3;
/// Clients whose requests are in flight for this share of the time of their most are always ready, too, whatever connections
/// they use: those that come by chance leave more room (the square root of their number, once for each deviation).
const OCCUPIED: f64 = 0.9;

fn demand(case: &Case<'_>, class: &Class) -> Demand {
    let server_ns = class.typical_server_ns();
    if class.operations < HABIT || server_ns <= class.allowance_ns() {
        return Demand::Fast;
    }
    // Some that take very long, for example behind a queue on the path, do not make the typical time too long.
    let own_ns = class.mean_server_ns().min(server_ns as f64) - class.network_ns() as f64;
    let services = &case.evidence.services;
    let is_paced = class.is_paced_by_client() || services.is_paced_by_requests(class.service());
    if services.is_behind_transfers(class.service()) || is_paced || is_held(case, class) {
        return Demand::Unknown;
    }
    match class.cycle_ns() {
        Some((time_ns, thought_ns))
            if class.own_thought_ns() <= READY * time_ns
                && own_ns >= SERVER_SHARE * (time_ns + thought_ns) =>
        {
            Demand::Full
        }
        None if services.occupancy(class.service()) >= OCCUPIED => Demand::Full,
        _ => Demand::Unknown,
    }
}

/// Whether requests seem to be held by design: by their times, or because their paths have connections of their own, while the server
/// answers others at once.
fn is_held(case: &Case<'_>, class: &Class) -> bool {
    let services = &case.evidence.services;
    let long = services
        .longest(class.service())
        .map_or_else(Vec::new, |(all, _)| all.some(class.typical_server_ns() / 2));
    class.is_held()
        || services.hands_out_events(class.service())
        || services.slow_keys(class.service(), &long, class.operations).is_some_and(|keys| keys.is_apart)
}

/// A class's typical server time without the network, microseconds.
fn own_us(class: &Class) -> f64 {
    class.typical_server_ns().saturating_sub(class.network_ns()) as f64 / 1000.0
}

/// The same for each operation in flight.
fn each_us(class: &Class) -> f64 {
    own_us(class) / class.queue_depth().max(1.0)
}

fn saturated(case: &Case<'_>, of: &Saturated, found: &mut Found) {
    let Saturated { saturation, busy_share, .. } = *of;
    let (time_us, alone_us) = (saturation.time_ns / 1000.0, saturation.alone_ns / 1000.0);
    let workers = saturation.workers.unwrap_or(1);
    let each_us = saturation.pace_ns * f64::from(workers) / 1000.0;
    let each = duration(each_us);
    let pace = match saturation.workers {
        Some(1) => format!("{each} each, one at a time"),
        Some(workers) => format!("{each} each, {workers} at a time"),
        None => format!("one answer in {each} (how many requests it works on at a time does not show)"),
    };
    let server = of.name.map_or(String::new(), |name| format!("{name} is "));
    let text = format!(
        "{server}saturated: {pace}, {:.0} % of the time; a request takes {}, and {}{} if it meets no other; with {} \
         waiting, more depth or more clients only lengthen the queue",
        busy_share * 100.0,
        duration(time_us),
        if saturation.is_least { "at least " } else { "" },
        duration(alone_us),
        significant(saturation.waiting),
    );
    let mut loss = Loss::of(case, |class| u128::from(class.service() == of.server));
    // Without the queue a request takes as long as one that meets no other; with twice the workers the queue is half as long.
    // No request of those that wait is done sooner than the server's pace allows, whatever others took that met none.
    let least_ns = saturation.alone_ns.max(saturation.pace_ns * f64::from(workers));
    let queued_ns = (saturation.time_ns - least_ns).max(0.0);
    let sure_ns = queued_ns.min(saturation.time_ns / 2.0);
    loss.lost_ns = queued_ns * loss.operations as f64;
    loss.unsure_ns = (queued_ns - sure_ns) * loss.operations as f64;
    let gain = loss.gain(case.most()).map(|gain| Gain {
        text: format!(
            "with {} workers as a beginning, or where requests do not wait for each other: {}",
            saturation.workers.map_or("twice the".to_owned(), |workers| (2 * workers).to_string()),
            gain.text
        ),
        ..gain
    });
    let (operations, lost_ns) = lost(case, of.server, found);
    if setup::queues_at_accept(case, of.name) {
        found.rest_ns += lost_ns;
        found.at_accept_ns += lost_ns;
        found.accepts_each_us = Some(each_us / f64::from(workers));
        return;
    }
    let kind = VerdictKind::Saturated;
    // A queue that a benchmark keeps full is no fault of a server that needs less than a disk for each.
    if saturation.pace_ns < SERVER_ALLOWANCE_NS as f64 {
        found.notes.push(case.verdict(kind, operations, 0.0, Frames::default(), text, gain));
        return;
    }
    found.rest_ns += lost_ns;
    let frames = rare::frames(case, of.server, saturation.time_ns as u64);
    found.push(case.verdict(kind, operations, lost_ns as f64 / 1000.0, frames, text, gain));
}

/// The operations of a server that exceed their references, and the server's part of it, ns.
fn lost(case: &Case<'_>, server: u32, found: &Found) -> (u64, u128) {
    let classes = case.evidence.ledger.classes().iter().zip(&found.references_ns);
    let own = classes.filter(|(class, _)| class.service() == server);
    let rests = own.map(|(class, &reference_ns)| class.rest(reference_ns));
    rests.fold((0, 0), |sum, rest| (sum.0 + rest.operations, sum.1 + rest.server_ns))
}

/// A server, with its address where it is known.
struct Named {
    place: u32,
    name: Option<std::net::SocketAddr>,
}

fn timer(case: &Case<'_>, server: &Named, timer: &Timer, found: &mut Found) {
    let (time_us, interval_us, alone_us) =
        (timer.time_ns / 1000.0, timer.interval_ns / 1000.0, timer.alone_ns / 1000.0);
    let text = format!(
        "{}responses leave at the ticks of a timer, {} apart, whenever the requests come: they take between {} and one interval \
         more, {} on average",
        server.name.map_or(String::new(), |name| format!("{name}: ")),
        duration(interval_us),
        duration(alone_us),
        duration(time_us),
    );
    // A request that follows a response at once waits for the next tick, too: for a whole interval.
    let mut loss = Loss::of(case, |class| match class.service() == server.place {
        true => class.time_ns().saturating_sub(u128::from(class.operations) * timer.fastest_ns as u128),
        false => 0,
    });
    loss.unsure_ns = (timer.alone_ns - timer.fastest_ns) * loss.operations as f64;
    let gain = loss.gain(case.most());
    let (operations, lost_ns) = lost(case, server.place, found);
    found.rest_ns += lost_ns;
    let frames = rare::frames(case, server.place, timer.time_ns as u64);
    let (kind, cost_us) = (VerdictKind::ServerTimer, lost_ns as f64 / 1000.0);
    found.push(case.verdict(kind, operations, cost_us, frames, text, gain));
}

/// Servers that a client which is always ready waits for.
fn always_slow(case: &Case<'_>, slow: &[(usize, &Class)], found: &mut Found) {
    let costs = slow.iter().map(|&(place, class)| (class, class.rest(found.references_ns[place])));
    let mut costs: Vec<_> = costs.filter(|(_, rest)| rest.server_ns > 0).collect();
    costs.sort_by_key(|(_, rest)| std::cmp::Reverse(rest.server_ns));
    let Some(&(class, _)) = costs.first() else { return };
    let (time_ns, thought_ns) = class.cycle_ns().unwrap_or_default();
    let text = format!(
        "the server is where the time goes: it takes {} for a {} of {} bytes ({}), {} of which count as normal, and \
         the client is ready {} after a response of {}{}",
        duration(each_us(class)),
        class.operation(),
        class.block_size_bytes().round(),
        in_flight(case, class),
        duration(SERVER_ALLOWANCE_NS as f64 / 1000.0),
        duration(thought_ns / 1000.0),
        duration(time_ns / 1000.0),
        more(costs.len()),
    );
    let operations = costs.iter().map(|(_, rest)| rest.operations).sum();
    let lost_ns: u128 = costs.iter().map(|(_, rest)| rest.server_ns).sum();
    found.rest_ns += lost_ns;
    let cost_us = lost_ns as f64 / 1000.0;
    let all: Vec<&Class> = slow.iter().map(|(_, class)| *class).collect();
    let gain = faster(case, &all, lost_ns);
    let verdict = case.verdict(VerdictKind::SlowTarget, operations, cost_us, Frames::default(), text, gain);
    found.push_slow(class.service(), verdict, false);
}

/// More requests of all connections than of one are in flight from this factor on.
const MANY: f64 = 1.5;

/// How many requests are in flight: on a connection, and at the server, as the table has it. Where several are, their server may work
/// on them one after the other, at times that do not show it.
fn in_flight(case: &Case<'_>, class: &Class) -> String {
    let (own, all) = (class.queue_depth(), case.evidence.services.in_flight(class.service()));
    if all < MANY * own {
        return format!("{} in flight", significant(own));
    }
    format!(
        "{} in flight on each connection, {} in all: whether they wait for each other does not show",
        significant(own),
        significant(all)
    )
}

/// The gain from a server that does nothing for its response. It still has to receive a request and to send a response, as its client
/// receives a response and sends the next request: that takes it as long. The sentence has the gain from a server that takes what
/// counts as normal, too.
fn faster(case: &Case<'_>, classes: &[&Class], lost_ns: u128) -> Option<Gain> {
    let mut loss =
        Loss::of(case, |class| u128::from(classes.iter().any(|of| of.service() == class.service())));
    let sum = |each_ns: &dyn Fn(&Class) -> f64| -> f64 {
        classes.iter().map(|class| each_ns(class) * class.operations as f64).sum()
    };
    let own_ns = sum(&|class| (class.mean_server_ns() - class.network_ns() as f64).max(0.0));
    let idle_ns = sum(&Class::own_thought_ns).min(own_ns - lost_ns as f64).max(0.0);
    loss.lost_ns = lost_ns as f64;
    let normal = loss.gain(case.most());
    loss.lost_ns = own_ns.max(lost_ns as f64) - idle_ns;
    // Without a client's own time nothing shows what remains.
    loss.unsure_ns = if idle_ns > 0.0 { 0.0 } else { loss.lost_ns - lost_ns as f64 };
    let gain = loss.awake_without_server().gain(case.most())?;
    let Some(normal) = normal.filter(|_| loss.is_loop) else { return Some(gain) };
    let text = format!(
        "if the server takes no longer than the client between two operations, {}; if it takes {}, {} times as many",
        gain.text,
        duration(SERVER_ALLOWANCE_NS as f64 / 1000.0),
        significant(normal.throughput_factor)
    );
    Some(Gain { text, ..gain })
}

fn more(kinds: usize) -> String {
    match kinds.saturating_sub(1) {
        0 => String::new(),
        more => format!("; {more} more kinds of operations are slow"),
    }
}

/// Slow operations exceed the typical time of their class by this factor, and this minimum, nanoseconds.
const OUTLIER_FACTOR: u64 = 20;
const OUTLIER_NS: u64 = 10_000_000;
/// Fewest that are no accident.
const OUTLIERS: u64 = 3;

/// Classes in which some operations, too many to be called rare, take the server as long as all the others.
fn tail(case: &Case<'_>, classes: &[(usize, &Class)], found: &mut Found) {
    let mut slow: Vec<(u64, u128, String, u32)> = Vec::new();
    for (_, class) in classes.iter().filter(|(_, class)| class.operations >= HABIT) {
        let typical_ns = class.typical_server_ns();
        let least_ns = typical_ns.saturating_mul(OUTLIER_FACTOR).max(OUTLIER_NS);
        let limit_ns = least_ns.max(rare::beyond_waits_ns(class));
        let outliers = rare::beyond(class, limit_ns);
        let others_ns = u128::from(typical_ns) * u128::from(class.operations - outliers.operations);
        if outliers.operations < OUTLIERS || outliers.lost_ns < others_ns {
            continue;
        }
        let longest = case.evidence.services.longest(class.service());
        let long = longest.map_or_else(Vec::new, |(all, _)| all.some(limit_ns));
        let keys = case.evidence.services.slow_keys(class.service(), &long, outliers.operations);
        // Requests that are held on connections of their own are no contrast.
        if keys.as_ref().is_some_and(|keys| keys.is_apart) {
            continue;
        }
        let text = format!(
            "{}{} of {} {}s took the server {} each, the others {}",
            keys.as_ref().map_or(String::new(), rare::of_keys),
            outliers.operations,
            class.operations,
            class.operation(),
            duration(outliers.sum_ns as f64 / outliers.operations as f64 / 1000.0),
            duration(typical_ns as f64 / 1000.0)
        );
        slow.push((outliers.operations, outliers.lost_ns, text, class.service()));
    }
    slow.sort_by_key(|(_, lost_ns, ..)| std::cmp::Reverse(*lost_ns));
    let Some((.., first, service)) = slow.first() else { return };
    let text = format!("{first}{}", more(slow.len()));
    let operations = slow.iter().map(|(operations, ..)| operations).sum();
    let lost_ns: u128 = slow.iter().map(|(_, lost_ns, ..)| lost_ns).sum();
    found.rest_ns += lost_ns;
    let cost_us = lost_ns as f64 / 1000.0;
    let mut loss =
        Loss::of(case, |class| u128::from(classes.iter().any(|(_, of)| of.service() == class.service())));
    loss.lost_ns = lost_ns as f64;
    let gain = loss.gain(case.most());
    let verdict = case.verdict(VerdictKind::SlowTarget, operations, cost_us, Frames::default(), text, gain);
    found.push_slow(*service, verdict, true);
}

/// States the time of servers that is long, and of which nothing shows that it is too long.
fn note(case: &Case<'_>, classes: &[&Class], found: &mut Found) {
    let most = classes
        .iter()
        .max_by_key(|class| u128::from(class.typical_server_ns()) * u128::from(class.operations));
    let Some(class) = most else { return };
    let verdict: Verdict = case.verdict(
        VerdictKind::SlowTarget,
        classes.iter().map(|class| class.operations).sum(),
        0.0,
        Frames::default(),
        format!(
            "the server takes {} for a {} of {} bytes; nothing in the capture shows that this is too long{}",
            duration(own_us(class)),
            class.operation(),
            class.block_size_bytes().round(),
            match classes.len() - 1 {
                0 => String::new(),
                more => format!(" ({more} more kinds of operations)"),
            }
        ),
        None,
    );
    found.notes.push(verdict);
}
