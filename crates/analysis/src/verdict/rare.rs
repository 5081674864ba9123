//! Operations that take many times longer than others of their kind, and are few: pauses of the server.
//!
//! A long tail is no pause: response times of healthy services scatter, and the longest of thousands are long. A pause is a
//! group of its own: between the others and it there are fewer operations than any tail leaves there. The test is against
//! a tail so heavy that it has no mean (Pareto's with exponent 1/2): of the operations above `V`, a share of `(V / L)^0.5`
//! is above `L`. More than that, beyond chance, are a group.

use record::{Side, StallKind};

use super::case::{Case, HABIT, duration, significant};
use super::found::Found;
use super::gain::Loss;
use super::{Frames, VerdictKind};
use crate::ledger::{Class, SERVER_ALLOWANCE_NS};
use crate::service::keys::SlowKeys;
use crate::service::longest::Long;

/// More than this share of the operations are not rare.
const RARE: f64 = 0.1;
/// They take at least so many times the typical time.
const LONGER: u64 = 4;
/// The logarithm of the chance that a heavy tail looks like a group: one in a million, for some thousand places in which it
/// is searched.
const CHANCE: f64 = -13.8;
/// The exponent of that tail.
const TAIL: f64 = 0.5;
/// A server's time below this part of the network's counts as that part.
const NETWORK_PART: u64 = 4;
/// A pause is no wait that TCP made if it is so many times as long as they are.
pub(super) const LONGER_THAN_WAITS: u64 = 4;
/// A shorter time shows as none, microseconds.
const SHOWN_US: f64 = 0.005;
/// Most frames of the verdict.
const FRAMES_MAX: usize = 200;
/// Fewest pauses, and the largest deviation of their distances as a share of the mean, of a period. Four random distances
/// are that even once in a thousand times.
const PAUSES_MIN: usize = 5;
const EVEN: f64 = 0.15;

/// The operations of a class beyond a limit on the server's time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beyond {
    pub(super) operations: u64,
    /// The server's time of them, ns.
    pub(super) sum_ns: u128,
    /// The part of it that exceeds the typical time, ns.
    pub(super) lost_ns: u128,
    limit_ns: u64,
}

/// The operations of a class beyond a limit.
pub(super) fn beyond(class: &Class, limit_ns: u64) -> Beyond {
    let mut all = Beyond { limit_ns, ..Beyond::default() };
    for (_, count, sum_ns) in class.server_times().filter(|(edge, _, _)| *edge >= limit_ns) {
        all.operations += count;
        all.sum_ns += sum_ns;
    }
    let typical = u128::from(class.typical_server_ns()) * u128::from(all.operations);
    // No more than what the class's operations exceed their reference.
    all.lost_ns = all.sum_ns.saturating_sub(typical).min(class.rest(class.reference_ns()).ns);
    all
}

/// The largest group of rare and long operations. Times are the server's own: the network's is not made longer by a pause.
fn group(class: &Class) -> Option<Beyond> {
    let network_ns = class.network_ns().min(class.typical_server_ns());
    let own_ns = |ns: u64| ns.saturating_sub(network_ns);
    // Less than a part of the network's time may be its own variation.
    let typical_ns = own_ns(class.typical_server_ns()).max(network_ns / NETWORK_PART).max(1);
    let least_ns = typical_ns.saturating_mul(LONGER).max(typical_ns.saturating_add(SERVER_ALLOWANCE_NS));
    let buckets: Vec<(u64, u64)> = class
        .server_times()
        .map(|(edge, count, _)| (own_ns(edge), count))
        .filter(|(edge, _)| *edge > typical_ns)
        .collect();
    let mut above = 0;
    let mut places: Vec<(u64, u64)> = Vec::with_capacity(buckets.len());
    for &(edge, count) in buckets.iter().rev() {
        above += count;
        places.push((edge, above));
    }
    places.reverse();
    let most = RARE * class.operations as f64;
    let limits = places.iter().filter(|(edge, above)| *edge >= least_ns && *above as f64 <= most);
    let is_group = |limit_ns: u64, above: u64| {
        // `V` is anywhere between the typical time and the group; the place behind an empty stretch begins it.
        let from = std::iter::once((typical_ns, places.first().map_or(above, |(_, all)| *all)));
        let behind = places.windows(2).map(|pair| (pair[0].0 + (pair[0].0 + network_ns) / 32, pair[1].1));
        let mut starts = from.chain(behind).filter(|(from_ns, _)| *from_ns < limit_ns);
        starts.any(|(from_ns, all)| {
            let expected = (from_ns as f64 / limit_ns as f64).powf(TAIL);
            chance(above, all, expected) < CHANCE
        })
    };
    let (limit_ns, _) = limits.copied().find(|&(limit_ns, above)| is_group(limit_ns, above))?;
    Some(beyond(class, limit_ns + network_ns))
}

/// A bound (Chernoff) on the logarithm of the chance that at least `above` of `all` are, if each is with a probability.
fn chance(above: u64, all: u64, probability: f64) -> f64 {
    let share = above as f64 / all.max(1) as f64;
    if share <= probability {
        return 0.0;
    }
    let part = |a: f64, b: f64| if a > 0.0 { a * (a / b).ln() } else { 0.0 };
    -(all as f64) * (part(share, probability) + part(1.0 - share, 1.0 - probability))
}

/// What a class's pauses and slow operations take at least where TCP makes most of its operations wait: one of its waits that was
/// not recognised as such is none of the server's.
pub(super) fn beyond_waits_ns(class: &Class) -> u64 {
    let usual = StallKind::ALL.into_iter().filter(|&kind| 2 * class.waiters(kind) > class.operations);
    let means = usual.map(|kind| class.waited_ns(&[kind]) / u128::from(class.waiters(kind)));
    u64::try_from(means.max().unwrap_or(0)).unwrap_or(u64::MAX).saturating_mul(LONGER_THAN_WAITS)
}

/// Adds the verdict on classes whose pauses take at least a time, and returns the places of those that it is on.
pub(super) fn judge(
    case: &Case<'_>,
    classes: &[(usize, &Class)],
    least_ns: u64,
    found: &mut Found,
) -> Vec<usize> {
    let known = classes.iter().filter(|(_, class)| class.operations >= HABIT);
    let mut groups: Vec<(usize, &Class, Beyond)> =
        known.filter_map(|&(place, class)| Some((place, class, group(class)?))).collect();
    groups.retain(|(_, class, group)| group.limit_ns >= least_ns.max(beyond_waits_ns(class)));
    groups.sort_by_key(|(_, _, group)| std::cmp::Reverse(group.lost_ns));
    let Some(&(_, class, first)) = groups.first() else { return Vec::new() };
    let lost_ns: u128 = groups.iter().map(|(_, _, group)| group.lost_ns).sum();
    let operations = groups.iter().map(|(_, _, group)| group.operations).sum();
    let longest = case.evidence.services.longest(class.service());
    let long: Vec<Long> = longest.map_or_else(Vec::new, |(all, _)| all.some(first.limit_ns));
    let all = longest.and_then(|(all, from_ns)| Some((all.at_least(first.limit_ns)?, from_ns)));
    let keys = case.evidence.services.slow_keys(class.service(), &long, first.operations);
    let once =
        keys.is_none() && all.as_ref().is_some_and(|(all, _)| groups.len() == 1 && starts(all).len() == 1);
    let time_ns = case.evidence.ledger.time_ns().max(1);
    // Operations that TCP delayed are not among the longest, and where it delayed nearly all, the others' time is not known.
    let most_ns = long.iter().map(|long| long.server_ns).max();
    let others_us = class.typical_server_ns() as f64 / 1000.0;
    let text = format!(
        "{}{} of {} {}s took the server {} each{}, the others {}: {:.1} % of the time of all operations{}{}",
        keys.as_ref().map_or(String::new(), of_keys),
        first.operations,
        class.operations,
        class.operation(),
        duration(first.sum_ns as f64 / first.operations.max(1) as f64 / 1000.0),
        most_ns.map_or(String::new(), |ns| format!(" (at most {})", duration(ns as f64 / 1000.0))),
        if others_us < SHOWN_US { "no time that the capture shows".to_owned() } else { duration(others_us) },
        lost_ns as f64 / time_ns as f64 * 100.0,
        all.filter(|(all, _)| !all.is_empty() && keys.is_none())
            .map_or(String::new(), |(all, from_ns)| pauses(&all, from_ns)),
        match groups.len() - 1 {
            0 => String::new(),
            more => format!("; {more} more kinds of operations have such"),
        }
    );
    found.rest_ns += lost_ns;
    let frames = frames(case, class.service(), first.limit_ns);
    let kind = if keys.is_some() { VerdictKind::SlowTarget } else { VerdictKind::RareStalls };
    let mut loss =
        Loss::of(case, |class| u128::from(groups.iter().any(|(_, of, _)| of.service() == class.service())));
    loss.lost_ns = lost_ns as f64;
    let gain = loss.gain(case.most());
    let verdict = case.verdict(kind, operations, lost_ns as f64 / 1000.0, frames, text, gain);
    // One pause is an event, not a habit of the server: the capture's machine may have slept, or its clock been set.
    if once || keys.is_some_and(|keys| keys.is_apart) {
        found.notes.push(verdict);
    } else if kind == VerdictKind::SlowTarget {
        found.push_slow(class.service(), verdict, true);
    } else {
        found.push(verdict);
    }
    groups.iter().map(|(place, _, _)| *place).collect()
}

/// Most keys that a sentence names.
const NAMED: usize = 3;

/// That the long operations are those of some keys, in words.
pub(super) fn of_keys(keys: &SlowKeys) -> String {
    let SlowKeys { names, is_apart } = keys;
    let named = names.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = if names.len() == 1 { "one path is slow" } else { "some paths are slow" };
    let held = match is_apart {
        true => " (on connections of their own, as requests that the server holds until something happens)",
        false => "",
    };
    format!("{what}, {named}{more}{held}: ")
}

/// The pauses behind long operations: their begin, end and number of operations. Operations that overlap are of one pause.
fn starts(all: &[Long]) -> Vec<(u64, u64, usize)> {
    let mut starts: Vec<(u64, u64, usize)> = Vec::new();
    for long in all {
        match starts.last_mut() {
            Some((_, until, count)) if long.began_ns <= *until => {
                *until = (*until).max(long.ended_ns);
                *count += 1;
            }
            _ => starts.push((long.began_ns, long.ended_ns, 1)),
        }
    }
    starts
}

/// The pauses, in words.
fn pauses(all: &[Long], from_ns: u64) -> String {
    let starts = starts(all);
    let shared = starts.iter().filter(|(_, _, count)| *count > 1).count();
    let together = if shared * 2 > starts.len() { ", several requests at once" } else { "" };
    let distances: Vec<f64> = starts.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64).collect();
    let count = distances.len() as f64;
    let mean = distances.iter().sum::<f64>() / count.max(1.0);
    let deviation = (distances.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / count.max(1.0)).sqrt();
    let first = starts.first().map_or(0.0, |(start, _, _)| start.saturating_sub(from_ns) as f64);
    if starts.len() >= PAUSES_MIN && deviation <= EVEN * mean {
        return format!(
            ", in {} pauses every {}{together}, the first {} after the first request",
            starts.len(),
            duration(mean / 1000.0),
            duration(first / 1000.0)
        );
    }
    let gap = if starts.len() > 1 {
        format!(", {} apart on average", duration(mean / 1000.0))
    } else {
        String::new()
    };
    format!(", in {} pauses{gap}{together}", significant_count(starts.len()))
}

fn significant_count(count: usize) -> String {
    if count < 1000 { count.to_string() } else { significant(count as f64) }
}

/// The frames of the longest operations of a server, from a limit on, of the capture point that saw most of them.
pub(super) fn frames(case: &Case<'_>, server: u32, limit_ns: u64) -> Frames {
    let Some((longest, _)) = case.evidence.services.longest(server) else { return Frames::default() };
    let mut all = longest.some(limit_ns);
    all.sort_unstable_by_key(|long| std::cmp::Reverse(long.server_ns));
    all.truncate(FRAMES_MAX / 2);
    let vantage_of =
        |long: &Long| case.evidence.near(long.connection, Side::Client).map_or(0, |(point, _)| point);
    let Some(vantage) = all.first().map(vantage_of) else { return Frames::default() };
    let own = all.iter().filter(|long| vantage_of(long) == vantage);
    let frames: Vec<[u64; 3]> = own.map(|long| [long.frames[0], long.frames[1], 0]).collect();
    case.frames(vantage, &frames)
}
