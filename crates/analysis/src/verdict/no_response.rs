//! Requests that never got a response. Connections that were never established are in [`super::setups`].

use std::net::SocketAddr;

use record::units::counted;
use record::{ConnectionFacts, Exchange, StallKind, Verb};

use super::case::{Case, HABIT, duration};
use super::coming::{Begun, Coming};
use super::found::Found;
use super::tcp::black_holes;
use super::{Frames, VerdictKind, setup};

/// A request without a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered {
    began_ns: u64,
    /// When its last byte passed.
    asked_ns: u64,
    /// When its sender began to wait: then, or when the last byte of the response passed, if it has begun.
    waits_from_ns: u64,
    frame: u64,
    /// Retransmissions of a large segment did not arrive: the path-MTU black hole has a verdict of its own.
    is_in_black_hole: bool,
    is_turn: bool,
    /// The response, if it has begun.
    begun: Option<Begun>,
}

impl Unanswered {
    pub(super) fn of(exchange: &Exchange) -> Self {
        let began_ns = exchange.request.began.ns().unwrap_or(0);
        let asked_ns = exchange.request.ended.ns().unwrap_or(began_ns).max(began_ns);
        Self {
            began_ns,
            waits_from_ns: exchange.response.ended.ns().unwrap_or(asked_ns).max(asked_ns),
            asked_ns,
            frame: exchange.request.first_frame,
            is_in_black_hole: exchange.stalls.contains(StallKind::BlackHole),
            is_turn: exchange.op.verb == Verb::Turn || exchange.overlaps,
            begun: Begun::of(exchange),
        }
    }
}

/// A request without a response counts if its user has waited this long, nanoseconds: others were in flight when the capture
/// ended.
const PATIENCE_NS: u64 = 1_000_000_000;
/// The same for the rest of a response that has begun.
const REST_PATIENCE_NS: u64 = 10 * PATIENCE_NS;
/// How long a wait lasts at most after the last packet of a connection that was not closed, nanoseconds: Linux gives data up
/// after about a quarter of an hour (tcp_retries2), and captures are merged that lie years apart.
const GIVEN_UP_NS: u64 = 900_000_000_000;
/// A request is overdue after this multiple of the longest answered one of its service.
const OVERDUE: u64 = 2;
/// The same for messages of an unknown protocol, of which nothing but such a habit shows that they are requests at all.
const OVERDUE_TURN: u64 = 10;

/// A connection as its requests without a response need it.
struct Waiting<'a> {
    facts: &'a ConnectionFacts,
    /// When the waits end at the latest.
    until_ns: u64,
    /// The longest operation of the service that ended, nanoseconds.
    longest_ns: u64,
}

/// What is known of a request without a response.
enum Fate {
    /// It will get none.
    Lost,
    /// It may be no request, and its sender may not wait.
    Unknown,
    /// It was in flight when the capture ended, or needs no response.
    Fine,
}

impl<'a> Waiting<'a> {
    fn of(case: &Case<'_>, vantage: u32, facts: &'a ConnectionFacts) -> Self {
        let until_ns = if facts.has_ended {
            facts.ended_ns
        } else {
            case.evidence.newest_ns(vantage).min(facts.ended_ns.saturating_add(GIVEN_UP_NS))
        };
        Self { facts, until_ns, longest_ns: case.evidence.services.longest_of(facts.server) }
    }

    fn ns(&self, request: &Unanswered) -> u64 {
        self.until_ns.saturating_sub(request.waits_from_ns)
    }

    fn fate(&self, request: &Unanswered) -> Fate {
        let waited_ns = self.ns(request);
        // Servers that limit a download's rate pause for seconds.
        let patience_ns =
            if request.waits_from_ns > request.asked_ns { REST_PATIENCE_NS } else { PATIENCE_NS };
        if waited_ns < patience_ns {
            return Fate::Fine;
        }
        if !request.is_turn {
            // Its client gave it up. Otherwise it may still be answered, as late as others were.
            let is_overdue = self.facts.has_ended || waited_ns >= self.longest_ns.saturating_mul(OVERDUE);
            return if is_overdue { Fate::Lost } else { Fate::Fine };
        }
        // The last words of a connection need no response, and one that sends on and on waits for none.
        let is_farewell = self.facts.has_ended && self.facts.exchanges > 0;
        if is_farewell || request.asked_ns - request.began_ns > waited_ns {
            return Fate::Fine;
        }
        let exchanges = self.facts.exchanges;
        // The messages of a log-in are fewer, and many a connection is idle after them until its server has something to tell.
        // Beside the pace of the connection, too: one that is idle for most of the time may be idle again.
        let cycle_ns = request.began_ns.saturating_sub(self.facts.began_ns) / exchanges.max(1);
        let usual_ns = self.longest_ns.max(cycle_ns);
        let is_overdue = exchanges >= HABIT && waited_ns >= usual_ns.saturating_mul(OVERDUE_TURN);
        if is_overdue { Fate::Lost } else { Fate::Unknown }
    }
}

/// The requests that count, and the time that they have waited.
#[derive(Debug, Default)]
pub(super) struct Outage {
    pub(super) requests: u64,
    pub(super) wait_ns: u128,
    longest_ns: u64,
    vantage: u32,
    frames: Vec<u64>,
    services: Vec<String>,
    /// The requests in a path-MTU black hole.
    pub(super) in_black_hole: u64,
    pub(super) black_hole_ns: u128,
    /// Messages of which nothing shows that they need a response.
    unknown: u64,
    unknown_at: Option<SocketAddr>,
    /// Responses that were cut off by the end of the capture.
    pub(super) coming: Coming,
}

impl Outage {
    /// Gathers the requests without a response.
    pub(super) fn of(case: &Case<'_>) -> Self {
        let evidence = case.evidence;
        let mut outage = Self::default();
        // Another capture point than the sender's does not see what vanishes, nor that it is sent again.
        let vanishing = black_holes(case);
        let resetting: Vec<_> = setup::resetting(case).into_iter().map(|(server, ..)| server).collect();
        for (_, facts) in evidence.connections() {
            let Some((vantage, facts, all)) = evidence.unanswered_of(facts.connection) else { continue };
            // A reset is an answer of a kind, and has a verdict of its own.
            let is_broken = facts.setup.requests_reset > 0 || facts.setup.requests_closed > 0;
            if is_broken && resetting.contains(&facts.server) {
                continue;
            }
            // Only one direction was captured. A server that does not even acknowledge is asked again.
            if !facts.both_directions && facts.client_conduct.retransmitted == 0 {
                continue;
            }
            let has_black_hole =
                vanishing.iter().any(|(.., all)| all.connections.contains(&facts.connection));
            let waiting = Waiting::of(case, vantage, facts);
            for request in all {
                let waited_ns = waiting.ns(request);
                if (request.is_in_black_hole && !vanishing.is_empty()) || has_black_hole {
                    if waited_ns >= PATIENCE_NS {
                        outage.in_black_hole += 1;
                        outage.black_hole_ns += u128::from(waited_ns);
                    }
                    continue;
                }
                match waiting.fate(request) {
                    Fate::Lost => {
                        outage.requests += 1;
                        outage.wait(facts, vantage, request.frame, waited_ns);
                    }
                    Fate::Unknown => {
                        outage.unknown += 1;
                        outage.unknown_at.get_or_insert(facts.server);
                    }
                    Fate::Fine => {
                        if let Some(begun) = request.begun.as_ref().filter(|_| !facts.has_ended) {
                            outage.coming.add(begun);
                        }
                    }
                }
            }
        }
        outage
    }

    fn wait(&mut self, facts: &ConnectionFacts, vantage: u32, frame: u64, ns: u64) {
        self.wait_ns += u128::from(ns);
        self.longest_ns = self.longest_ns.max(ns);
        if self.frames.is_empty() {
            self.vantage = vantage;
        }
        if self.vantage == vantage && frame > 0 && self.frames.len() < FRAMES_MAX {
            self.frames.push(frame);
        }
        let service = facts.server.to_string();
        if self.services.len() < SERVICES_NAMED && !self.services.contains(&service) {
            self.services.push(service);
        }
    }

    /// All time without a response, nanoseconds.
    pub(super) fn all_ns(&self) -> u128 {
        self.wait_ns + self.black_hole_ns
    }
}

/// Most frames of the verdict.
const FRAMES_MAX: usize = 1000;
/// Most services that the verdict names.
const SERVICES_NAMED: usize = 3;

pub(super) fn judge(case: &Case<'_>, outage: &Outage, found: &mut Found) {
    let Outage { requests, wait_ns, longest_ns, .. } = *outage;
    unknown(case, outage, found);
    if requests == 0 {
        return;
    }
    let text = format!(
        "{} never got a response ({}); the longest wait until the capture's or the connection's end was {}",
        counted(requests, "request"),
        outage.services.join(", "),
        duration(longest_ns as f64 / 1000.0)
    );
    let input = case.inputs.get(outage.vantage as usize).copied().unwrap_or(0);
    let frames = Frames { input, numbers: outage.frames.clone() };
    found.unanswered_ns += wait_ns;
    let cost_us = wait_ns as f64 / 1000.0;
    let mut verdict = case.verdict(VerdictKind::NoResponse, requests, cost_us, frames, text, None);
    // Of all requests: those that got a response, and those that got none.
    let all = case.evidence.operations + case.evidence.requests_unanswered();
    verdict.share = verdict.operations as f64 / all.max(1) as f64;
    found.push(verdict);
}

/// States messages without an answer of which nothing shows that they need one.
fn unknown(case: &Case<'_>, outage: &Outage, found: &mut Found) {
    let Some(server) = outage.unknown_at else { return };
    let text = format!(
        "{} of an unknown protocol got no answer ({server}); nothing in the capture shows whether {}",
        counted(outage.unknown, "message"),
        if outage.unknown == 1 { "it needs one" } else { "they need one" },
    );
    let frames = Frames::default();
    found.notes.push(case.verdict(VerdictKind::NoResponse, outage.unknown, 0.0, frames, text, None));
}
