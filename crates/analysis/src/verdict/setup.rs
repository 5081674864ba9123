//! Verdicts on connections: set-up, refusals, resets and error answers.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use record::StallKind;
use record::units::counted;

use super::case::{Case, HABIT, duration, significant};
use super::found::Found;
use super::judge::WEIGHT_MIN;
use super::setups::Service;
use super::{Frames, Gain, VerdictKind};
use crate::ledger::Class;

pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    failed_connects(case, found);
    accept_backlog(case, found);
    connection_per_request(case, found);
    resets(case, found);
    error_answers(case, found);
}

/// Fewest events that are no accident.
const ACCIDENTS: u64 = 3;
/// Most services that a verdict names.
const NAMED: usize = 3;

/// A service at the capture point that judges it.
type Row<'a> = (SocketAddr, u32, &'a Service);

/// The names of services, as far as a sentence holds them.
fn names(rows: &[Row<'_>]) -> String {
    let mut text: Vec<String> = rows.iter().take(NAMED).map(|(server, ..)| server.to_string()).collect();
    if rows.len() > NAMED {
        text.push(format!("{} more", rows.len() - NAMED));
    }
    text.join(", ")
}

/// Frames of the services that the first one's capture point saw.
fn frames<'a>(case: &Case<'_>, rows: &[Row<'a>], of: impl Fn(&'a Service) -> &'a [[u64; 3]]) -> Frames {
    let Some(&(_, vantage, _)) = rows.first() else { return Frames::default() };
    case.frames(vantage, rows.iter().filter(|row| row.1 == vantage).flat_map(|row| of(row.2)))
}

fn sum(rows: &[Row<'_>], of: impl Fn(&Service) -> u64) -> u64 {
    rows.iter().map(|row| of(row.2)).sum()
}

fn sum_ns(rows: &[Row<'_>], of: impl Fn(&Service) -> u128) -> u128 {
    rows.iter().map(|row| of(row.2)).sum()
}

/// Share of failed connections from which on they are a fault of the service.
const FAILED_SHARE: f64 = 0.01;
/// Services with few failed connections and none established: from so many on they are the ports of a scan.
const SCANNED: usize = 8;
const SCAN_ATTEMPTS: u64 = 2;

fn failed(case: &Case<'_>, service: &Service) -> u64 {
    service.refused + service.aborted + case.evidence.setups.unanswered(service)
}

fn failed_connects(case: &Case<'_>, found: &mut Found) {
    let all = case.evidence.setups.services();
    let is_probed = |service: &Service| service.established == 0 && service.attempts <= SCAN_ATTEMPTS;
    let probed = all.iter().filter(|row| failed(case, row.2) > 0 && is_probed(row.2)).count();
    let failing = all.iter().copied().filter(|&(server, _, service)| {
        let count = failed(case, service);
        // A client that fell back to the other IP version lost nothing.
        let has_fallback = all.iter().any(|(other, _, theirs)| {
            other.port() == server.port()
                && other.is_ipv4() != server.is_ipv4()
                && theirs.established >= count
        });
        let is_frequent = count >= ACCIDENTS && count as f64 >= FAILED_SHARE * service.attempts as f64;
        let is_all_there_is = count > 0 && case.evidence.operations == 0;
        let is_scan = probed > SCANNED && is_probed(service);
        (is_frequent || is_all_there_is) && !is_scan && !has_fallback
    });
    let mut rows: Vec<Row<'_>> = failing.collect();
    rows.sort_by_key(|row| std::cmp::Reverse(failed(case, row.2)));
    if rows.is_empty() {
        return;
    }
    let count = sum(&rows, |service| failed(case, service));
    let mut ways = Vec::new();
    for (number, way) in [
        (sum(&rows, |s| s.refused), "refused by a reset"),
        (sum(&rows, |s| s.aborted), "reset right after the handshake"),
        (sum(&rows, |s| case.evidence.setups.unanswered(s)), "never answered"),
    ] {
        if number > 0 {
            ways.push(format!("{number} {way}"));
        }
    }
    let lost_ns = sum_ns(&rows, |s| s.failed_ns);
    // A client of which only one SYN was seen may wait or not.
    let waited = match lost_ns {
        0 => String::new(),
        _ => {
            let each_us = lost_ns as f64 / count.max(1) as f64 / 1000.0;
            format!("; {} on average until the client gave up", duration(each_us))
        }
    };
    let text = format!(
        "{count} of {} to {} {} not established: {}{waited}",
        counted(sum(&rows, |s| s.attempts), "connection"),
        names(&rows),
        if count == 1 { "was" } else { "were" },
        ways.join(", "),
    );
    found.setups_ns += lost_ns;
    let frames = frames(case, &rows, |s| &s.failed_frames);
    let cost_us = lost_ns as f64 / 1000.0;
    let mut verdict = case.verdict(VerdictKind::FailedConnects, count, cost_us, frames, text, None);
    verdict.share = count as f64 / (case.evidence.operations + count) as f64;
    found.push(verdict);
}

/// Whether more SYNs were repeated than the loss of the path explains, while the service accepted other connections; or the
/// server itself dropped the end of handshakes. At the server, the path has lost none of the SYNs that passed.
fn overflows(service: &Service) -> bool {
    let contested = service.contested().count() as u64;
    let seen = contested + service.dropped;
    // Of all segments but the first, which a full queue drops too. With none lost, three is what chance could hide (95 %).
    let segments = service.segments.saturating_sub(service.attempts).max(1);
    let lost = (service.sent_again as f64 + 3.0) / (segments as f64 + 3.0);
    // A SYN is sent again if it or its answer is lost, and seldom for another reason: three standard deviations.
    let chance = (2.0 * lost).min(1.0);
    let expected = service.attempts as f64 * chance;
    let limit = expected + 3.0 * (expected * (1.0 - chance)).sqrt();
    let is_more = seen as f64 > limit
        || service.is_at_server() && seen as f64 >= FAILED_SHARE * service.attempts as f64;
    seen >= ACCIDENTS && is_more
}

/// Whether connections with one request each wait for a service whose accept queue overflows. Where it accepts them one by one, what
/// their requests wait for each other is their time in that queue.
pub(super) fn queues_at_accept(case: &Case<'_>, server: Option<SocketAddr>) -> bool {
    let all = case.evidence.setups.services();
    let own = all.iter().find(|(of, ..)| Some(*of) == server);
    own.is_some_and(|(_, _, service)| overflows(service) && 2 * service.used_once > service.used)
}

fn accept_backlog(case: &Case<'_>, found: &mut Found) {
    let all = case.evidence.setups.services();
    let mut rows: Vec<Row<'_>> = all.into_iter().filter(|row| overflows(row.2)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.2.waited_ns));
    if rows.is_empty() {
        return;
    }
    let waited_ns = sum_ns(&rows, |s| s.waited_ns);
    let (_, held_ns) = found.claim(case, &[StallKind::AcceptQueue]);
    let (repeated, dropped) = (sum(&rows, |s| s.repeated), sum(&rows, |s| s.dropped));
    let mut parts = Vec::new();
    if repeated > 0 {
        parts.push(format!(
            "{repeated} of {} had to send a SYN again, {} on average, while others were accepted",
            counted(sum(&rows, |s| s.attempts), "connection"),
            duration(waited_ns as f64 / repeated as f64 / 1000.0)
        ));
    }
    if dropped > 0 {
        parts.push(format!(
            "of {dropped} the server dropped the last ACK of the handshake and the first request"
        ));
    }
    let cause = match dropped {
        0 => "the accept queue is full, or something before the service drops SYNs",
        _ => "the accept queue is full",
    };
    let pace = found.accepts_each_us.map_or(String::new(), |each_us| {
        format!("; it accepts and answers one request in {}", duration(each_us))
    });
    let text = format!("{}: {}: {cause}{pace}", names(&rows), parts.join("; "));
    let lost_ns = waited_ns + held_ns + found.at_accept_ns;
    found.setups_ns += waited_ns;
    let requests = sum(&rows, |s| s.requests);
    let now_ns = sum_ns(&rows, |s| s.handshakes_ns + s.greetings_ns + s.waited_ns + s.requests_ns);
    // A program that accepts connections too slowly lets those in the queue wait, too: a longer queue alone does not mend that.
    let classes = case.evidence.ledger.classes();
    let fastest_ns = classes.iter().map(Class::fastest_ns).min().unwrap_or(0);
    let served_ns = sum_ns(&rows, |s| s.requests_ns).saturating_sub(held_ns);
    let queued_ns = served_ns.saturating_sub(u128::from(fastest_ns) * u128::from(requests));
    // Nor does the capture show what a program would take that does not accept at the pace that they wait for.
    let is_told = found.at_accept_ns == 0;
    let gain = gain(now_ns, lost_ns, requests).filter(|_| is_told).map(|gain| {
        let prompt_us = now_ns.saturating_sub(lost_ns + queued_ns) as f64 / requests as f64 / 1000.0;
        let text = match queued_ns * 20 > now_ns.saturating_sub(lost_ns) {
            true => format!("{}; {} if the program accepts at once", gain.text, duration(prompt_us)),
            false => gain.text,
        };
        Gain { text, ..gain }
    });
    let kept =
        |s: &Service| [s.dropped_frames.clone(), s.contested().map(|wait| wait.frames).collect()].concat();
    let vantage = rows[0].1;
    let numbers: Vec<[u64; 3]> =
        rows.iter().filter(|row| row.1 == vantage).flat_map(|row| kept(row.2)).collect();
    let frames = case.frames(vantage, &numbers);
    let cost_us = lost_ns as f64 / 1000.0;
    found.push(case.verdict(VerdictKind::AcceptBacklog, repeated + dropped, cost_us, frames, text, gain));
}

/// The gain from removing a part of the time of some requests, with the set-up of their connections.
fn gain(now_ns: u128, lost_ns: u128, requests: u64) -> Option<Gain> {
    if requests == 0 || lost_ns == 0 {
        return None;
    }
    let each_us = |ns: u128| ns as f64 / requests as f64 / 1000.0;
    let now_us = each_us(now_ns);
    let then_us = each_us(now_ns.saturating_sub(lost_ns));
    let factor = now_us / then_us;
    (factor.is_finite() && factor > 1.0).then(|| Gain {
        throughput_factor: factor,
        throughput_least: factor,
        operation_us: Some((now_us, then_us)),
        operation_most_us: Some(then_us),
        text: format!(
            "a request with its share of the connection's set-up takes {} instead of {}: {} times as fast",
            duration(then_us),
            duration(now_us),
            significant(factor),
        ),
    })
}

/// Share of the user's time from which on the set-up is worth saving.
const SETUP_SHARE: f64 = 0.05;

/// Whether most connections carry one request, and their set-up is a large part of what the user waits for. A service that is
/// asked so seldom that all set-ups together take less than [`WEIGHT_MIN`] of the time, such as by health checks, has no use
/// for open connections. Neither has one whose clients come once each.
fn is_wasteful(service: &Service) -> bool {
    // A SYN that is sent again delays its request: fewer connections would lose fewer.
    let set_up_ns = service.handshakes_ns + service.greetings_ns + service.waited_ns;
    let user_ns = set_up_ns + service.requests_ns;
    let lasted_ns = service.ended_ns.saturating_sub(service.began_ns);
    service.used >= HABIT
        && 2 * service.used_once > service.used
        && 2 * service.first_used < service.used
        && set_up_ns as f64 >= SETUP_SHARE * user_ns as f64
        && set_up_ns as f64 >= WEIGHT_MIN * lasted_ns as f64
}

fn connection_per_request(case: &Case<'_>, found: &mut Found) {
    let all = case.evidence.setups.services();
    let mut rows: Vec<Row<'_>> = all.into_iter().filter(|row| is_wasteful(row.2)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.2.handshakes_ns + row.2.greetings_ns));
    if rows.is_empty() {
        return;
    }
    let (used, once, requests) =
        (sum(&rows, |s| s.used), sum(&rows, |s| s.used_once), sum(&rows, |s| s.requests));
    let (handshakes_ns, greetings_ns) =
        (sum_ns(&rows, |s| s.handshakes_ns), sum_ns(&rows, |s| s.greetings_ns));
    let set_up_ns = handshakes_ns + greetings_ns;
    let waited_ns = sum_ns(&rows, |s| s.waited_ns);
    let now_ns = set_up_ns + waited_ns + sum_ns(&rows, |s| s.requests_ns);
    let greeting =
        if sum(&rows, |s| s.greeted) > 0 { " and the greeting behind it (TLS, log-in)" } else { "" };
    let again = match waited_ns {
        0 => String::new(),
        ns => {
            format!(", SYNs that were sent again {} on average", duration(ns as f64 / used as f64 / 1000.0))
        }
    };
    let text = format!(
        "{once} of {used} connections to {} carried one request; the handshake{greeting} took {} of each{again}, {:.0} % of what \
         its user waited",
        names(&rows),
        duration(set_up_ns as f64 / used as f64 / 1000.0),
        (set_up_ns + waited_ns) as f64 / now_ns.max(1) as f64 * 100.0
    );
    // At a server's capture point a greeting takes longer than its exchanges there.
    let in_operations_ns = sum_ns(&rows, |s| s.greeting_exchanges_ns).min(set_up_ns);
    found.setups_ns += set_up_ns - in_operations_ns;
    found.greetings_ns += in_operations_ns;
    let frames = frames(case, &rows, |s| &s.frames);
    let gain = gain(now_ns, set_up_ns + waited_ns, requests);
    let cost_us = set_up_ns as f64 / 1000.0;
    found.push(case.verdict(VerdictKind::ConnectionPerRequest, requests, cost_us, frames, text, gain));
}

/// Share of failed requests from which on they are a fault of the service, as for lost segments.
const ERROR_SHARE: f64 = 0.001;

/// Whether so many of a service's requests failed that it is no accident.
fn is_frequent(count: u64, all: u64) -> bool {
    count >= ACCIDENTS && count as f64 >= ERROR_SHARE * all as f64
}

/// The services whose resets get a verdict.
pub(super) fn resetting<'a>(case: &Case<'a>) -> Vec<(SocketAddr, u32, &'a Service)> {
    let all = case.evidence.setups.services();
    let is_reset = |service: &Service| {
        let count = service.requests_broken();
        is_frequent(count, service.exchanges + count) || (count > 0 && case.evidence.operations == 0)
    };
    let mut rows: Vec<_> = all.into_iter().filter(|row| is_reset(row.2)).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.2.requests_broken()));
    rows
}

fn resets(case: &Case<'_>, found: &mut Found) {
    let rows = resetting(case);
    if rows.is_empty() {
        return;
    }
    let (reset, closed) = (sum(&rows, |s| s.requests_reset), sum(&rows, |s| s.requests_closed));
    let count = reset + closed;
    let all = sum(&rows, |s| s.exchanges) + count;
    let how = match (reset, closed) {
        (_, 0) => "got a reset instead of an answer".to_owned(),
        (0, _) => "got no answer, because the server closed the connection".to_owned(),
        (_, _) => format!("got no answer: {reset} a reset, {closed} the end of the connection"),
    };
    let text = format!(
        "{count} of {all} requests to {} {how} ({} %)",
        names(&rows),
        significant(count as f64 / all.max(1) as f64 * 100.0)
    );
    let frames = frames(case, &rows, |s| &s.reset_frames);
    let mut verdict = case.verdict(VerdictKind::Resets, count, 0.0, frames, text, None);
    verdict.share = count as f64 / (case.evidence.operations + count) as f64;
    found.push(verdict);
}

fn error_answers(case: &Case<'_>, found: &mut Found) {
    let services = &case.evidence.services;
    let failing = case
        .evidence
        .errors
        .services()
        .filter(|(server, answers)| is_frequent(answers.count, services.operations_of(*server)));
    let mut rows: Vec<_> = failing.collect();
    rows.sort_by_key(|(_, answers)| std::cmp::Reverse(answers.count));
    if rows.is_empty() {
        return;
    }
    let count: u64 = rows.iter().map(|(_, answers)| answers.count).sum();
    let all: u64 = rows.iter().map(|(server, _)| services.operations_of(*server)).sum();
    let mut kinds = BTreeMap::new();
    for (kind, number) in rows.iter().flat_map(|(_, answers)| &answers.kinds) {
        *kinds.entry(*kind).or_insert(0_u64) += number;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, number)| format!("{number} times {kind}")).collect();
    let servers: Vec<String> = rows.iter().take(NAMED).map(|(server, _)| server.to_string()).collect();
    let text = format!(
        "{count} of {all} answers of {} are errors ({} %): {}",
        servers.join(", "),
        significant(count as f64 / all.max(1) as f64 * 100.0),
        kinds.join(", ")
    );
    let numbers: Vec<[u64; 3]> =
        rows.iter().flat_map(|(_, answers)| answers.frames.iter().copied()).collect();
    // An answer does not say which of several inputs numbers its frames.
    let is_one = case.inputs.iter().all(|input| Some(input) == case.inputs.first());
    let frames = if is_one { case.frames(0, &numbers) } else { Frames::default() };
    found.push(case.verdict(VerdictKind::ErrorAnswers, count, 0.0, frames, text, None));
}
