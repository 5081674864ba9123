//! Requests and connection attempts that never got a response.

use record::{ConnectionFacts, Exchange, StallKind, Verb};

use super::case::{Case, duration};
use super::found::Found;
use super::{Frames, VerdictKind};

/// A request without a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered {
    began_ns: u64,
    frame: u64,
    /// Retransmissions of a large segment did not arrive: the path-MTU black hole has a verdict of its own.
    is_in_black_hole: bool,
    is_turn: bool,
}

impl Unanswered {
    pub(super) fn of(exchange: &Exchange) -> Self {
        Self {
            began_ns: exchange.request.began.ns().unwrap_or(0),
            frame: exchange.request.first_frame,
            is_in_black_hole: exchange.stalls.contains(StallKind::BlackHole),
            is_turn: exchange.op.verb == Verb::Turn,
        }
    }
}

/// A request without a response counts if its user has waited this long, nanoseconds: others were in flight when the capture
/// ended.
const PATIENCE_NS: u64 = 1_000_000_000;

/// The requests that count, and the time that they have waited.
#[derive(Debug, Default)]
pub(super) struct Outage {
    pub(super) requests: u64,
    pub(super) attempts: u64,
    pub(super) wait_ns: u128,
    longest_ns: u64,
    vantage: u32,
    frames: Vec<u64>,
    services: Vec<String>,
    /// The requests in a path-MTU black hole.
    pub(super) in_black_hole: u64,
    pub(super) black_hole_ns: u128,
}

impl Outage {
    /// Gathers the requests without a response.
    pub(super) fn of(case: &Case<'_>) -> Self {
        let evidence = case.evidence;
        let mut outage = Self::default();
        for (_, facts) in evidence.connections() {
            let Some((vantage, facts, all)) = evidence.unanswered_of(facts.connection) else { continue };
            let until_ns = if facts.has_ended { facts.ended_ns } else { evidence.newest_ns };
            let conduct = &facts.client_conduct;
            let is_one_way = !facts.both_directions && conduct.retransmitted == 0 && facts.packets > 10;
            if is_one_way {
                continue;
            }
            for request in all {
                // The last words of a connection need no response.
                let is_farewell = request.is_turn && facts.has_ended && facts.exchanges > 0;
                let waited_ns = until_ns.saturating_sub(request.began_ns);
                let counts = waited_ns >= PATIENCE_NS || evidence.operations == 0;
                if is_farewell || !counts {
                    continue;
                }
                if request.is_in_black_hole {
                    outage.in_black_hole += 1;
                    outage.black_hole_ns += u128::from(waited_ns);
                } else {
                    outage.requests += 1;
                    outage.wait(facts, vantage, request.frame, waited_ns);
                }
            }
        }
        for (vantage, facts) in evidence.attempts() {
            let waited_ns = evidence.newest_ns.saturating_sub(facts.began_ns);
            // A single SYN may be in flight when the capture ends.
            if facts.packets >= 2 || waited_ns >= PATIENCE_NS {
                let until_ns = if facts.has_ended { facts.ended_ns } else { evidence.newest_ns };
                outage.attempts += 1;
                outage.wait(facts, vantage, 0, until_ns.saturating_sub(facts.began_ns));
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
    let Outage { requests, attempts, wait_ns, longest_ns, .. } = *outage;
    if requests + attempts == 0 {
        return;
    }
    let mut parts = Vec::new();
    if requests > 0 {
        parts.push(format!("{requests} requests never got a response"));
    }
    if attempts > 0 {
        parts.push(format!("{attempts} connections were requested and not established"));
    }
    let text = format!(
        "{} ({}); the longest wait until the capture's or the connection's end was {}",
        parts.join(", "),
        outage.services.join(", "),
        duration(longest_ns as f64 / 1000.0)
    );
    let input = case.inputs.get(outage.vantage as usize).copied().unwrap_or(0);
    let frames = Frames { input, numbers: outage.frames.clone() };
    found.unanswered_ns += wait_ns;
    let cost_us = wait_ns as f64 / 1000.0;
    let mut verdict = case.verdict(VerdictKind::NoResponse, requests + attempts, cost_us, frames, text, None);
    // Of all requests: those that got a response, those that got none, and those that could not even be sent.
    let all = case.evidence.operations + case.evidence.requests_unanswered() + attempts;
    verdict.share = verdict.operations as f64 / all.max(1) as f64;
    found.push(verdict);
}
