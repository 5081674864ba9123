//! Closure: whether a point's figures agree with evidence that was obtained in another way.
//!
//! A breakdown sums to the round trip whatever its inputs are, because a part of every segment is a remainder. It is true only
//! if the segments, the CPU accounts and the client's round trip agree with observers that share nothing with them: the
//! kernel's own events ([`crate::stages`]), recorded in one more run of the same point together with all the others.

use record::Side;
use serde::{Deserialize, Serialize};

use crate::breakdown::{Breakdown, NegativeTerm};
use crate::cost::CpuCost;
use crate::segments::Segments;
use crate::stages::{Segment, SideWork, Traced};

/// What all observers of one run saw in its measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// The kernel's events.
    pub traced: Traced,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Operations that the client issued, also before and after the measured time.
    pub issued: u64,
    /// Of these, followed through all four capture points.
    pub followed: u64,
    /// The capture points, over the operations that finished in the measured time.
    pub segments: Segments,
    /// Mean round trip of these operations by the client's clock readings, all of them, microseconds.
    pub rtt_us: f64,
    /// CPU work of an operation by the kernel's accounts.
    pub accounts: CpuCost,
    /// Resolution of those accounts, microseconds per operation.
    pub accounts_within_us: f64,
    /// Whether each side has one CPU of its own, so that accounts of CPUs are accounts of sides.
    pub own_cpus: bool,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Comparison {
    /// Operations that each of the ten points counted, with those that the client issued; the worst point.
    Counts,
    /// Operations in the ten stages, with the queue depth.
    QueueDepth,
    /// Time in the ten stages, with the client's round trip.
    RoundTrip,
    /// Time in the stages of a segment, with the capture points.
    Segment(Segment),
    /// Share of a segment's time without a cause that was seen, with none, percent.
    Unexplained(Segment),
    /// CPU work of a side, with its CPU accounts.
    Work(Side),
    /// The same in the run without the wire's rate limit, from which service times come.
    WorkUnlimited(Side),
    /// TPTmin of the breakdown, with the measured time between completions: a ring is not faster than its bottleneck.
    Bottleneck,
    /// Service times of a side at the measured rate, percent of its time, with what its CPU was busy.
    Service(Side),
    /// A path's time in the observed run, with the capture points of the traced one: the same path.
    Path(Segment),
    /// Operations followed through all capture points, with those that the client issued.
    Followed,
    /// Mean round trip of the followed operations, with that of all.
    FollowedRoundTrip,
}

impl Comparison {
    /// What is compared, in a few words.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::Counts => "operations counted at the worst of ten points, with those issued".into(),
            Self::QueueDepth => "operations in the ten stages, with the queue depth".into(),
            Self::RoundTrip => "time in the ten stages, with the client's round trip, us".into(),
            Self::Segment(segment) => {
                format!("time in the {}'s stages, with its capture points, us", segment.name())
            }
            Self::Unexplained(segment) => {
                format!("time in the {} without a cause that was seen, %", segment.name())
            }
            Self::Work(side) => format!("the {}'s work, with its CPU accounts, us", side.name()),
            Self::WorkUnlimited(side) => {
                format!("the {}'s work without the wire's rate limit, with its CPU accounts, us", side.name())
            }
            Self::Bottleneck => "TPTmin, with the time between completions, us".into(),
            Self::Service(side) => {
                format!("the {}'s service times at the measured rate, with its CPU's use, %", side.name())
            }
            Self::Path(segment) => {
                format!("the {} in the observed run, with the traced one, us", segment.name())
            }
            Self::Followed => "operations followed through all capture points, with those issued".into(),
            Self::FollowedRoundTrip => "round trip of the followed operations, with that of all, us".into(),
        }
    }
}

/// A comparison and its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What is compared.
    pub comparison: Comparison,
    /// The one value, in the unit of the comparison.
    pub found: f64,
    /// The other one.
    pub expected: f64,
    /// How far they may be apart.
    pub limit: f64,
}

impl Check {
    /// Whether the values agree.
    #[must_use]
    pub fn holds(&self) -> bool {
        // A value that is no number agrees with nothing.
        (self.found - self.expected).abs() <= self.limit
    }
}

/// Relative difference that two observers of one time may have.
pub const WITHIN: f64 = 0.01;
/// Places of two observers' stamps on an operation's way may be this far apart, microseconds, besides the time in which the sender's
/// capture has a packet: the receiver's capture works, too, between the tracepoint of an arrival and its stamp, and no event shows for
/// how long. Measured: up to 0.6 us in a release build, 1.8 us in a development build.
pub const PLACES_US: f64 = 2.0;
/// Share of a segment that may have no cause.
pub const UNEXPLAINED: f64 = 0.05;
/// Time without a cause that each stage may have, microseconds: between the end of an interrupt's handler and what it started.
pub const UNEXPLAINED_US: f64 = 0.25;
/// Relative difference of CPU accounts from the events, besides their resolution.
const ACCOUNTS_WITHIN: f64 = 0.05;
/// Operations that may be missing among those followed.
const MISSING: f64 = 0.0005;

impl Evidence {
    /// All comparisons.
    #[must_use]
    pub fn checks(&self) -> Vec<Check> {
        let traced = &self.traced;
        let mut checks = Vec::new();
        let mut check = |comparison, found: f64, expected: f64, limit: f64| {
            checks.push(Check { comparison, found, expected, limit });
        };
        let issued = self.issued as f64;
        let worst =
            traced.counts.iter().map(|count| count.operations).max_by_key(|own| own.abs_diff(self.issued));
        check(Comparison::Counts, worst.unwrap_or(0) as f64, issued, 0.0);
        let depth = f64::from(self.queue_depth);
        // Half an operation, because one that a counter missed shifts the sum by a whole one. A level below zero is such a miss, too.
        let least = traced.stages.iter().map(|stage| stage.least).min().unwrap_or(0).min(0);
        check(Comparison::QueueDepth, traced.operations() + least as f64, depth, 0.5_f64.min(depth * WITHIN));
        check(Comparison::RoundTrip, traced.round_trip_us(), self.rtt_us, self.rtt_us * WITHIN);
        let segments = &self.segments;
        for (segment, figures) in [
            (Segment::Client, Some(segments.client)),
            (Segment::RequestPath, segments.request_path),
            (Segment::Server, Some(segments.server)),
            (Segment::ResponsePath, segments.response_path),
        ] {
            let captured = figures.map_or(f64::NAN, |figures| figures.mean_us);
            let (least, most) = traced.captured_us(segment);
            // The value in that range which is nearest to the captured one; no number agrees with none.
            let found = if captured.is_nan() { least } else { captured.clamp(least, most.max(least)) };
            check(Comparison::Segment(segment), found, captured, captured * WITHIN + PLACES_US);
            if traced.sees_interrupts {
                let stages = traced.stages.iter().filter(|stage| stage.stage.segment() == segment).count();
                let time_us = traced.segment_us(segment).max(f64::MIN_POSITIVE);
                let limit = UNEXPLAINED.max(UNEXPLAINED_US * stages as f64 / time_us);
                let found = traced.unexplained(segment) * 100.0;
                check(Comparison::Unexplained(segment), found, 0.0, limit * 100.0);
            }
        }
        check(Comparison::Followed, self.followed as f64, issued, issued * MISSING);
        check(Comparison::FollowedRoundTrip, segments.rtt.mean_us, self.rtt_us, self.rtt_us * WITHIN / 2.0);
        checks.extend(self.work(Comparison::Work));
        checks
    }

    /// The comparisons that do not hold, in a sentence each.
    #[must_use]
    pub fn contradictions(&self) -> Vec<String> {
        self.checks().iter().filter_map(failure).collect()
    }

    /// The CPU accounts of both sides with the events, where both are known.
    fn work(&self, comparison: fn(Side) -> Comparison) -> Vec<Check> {
        // Without interrupts and idle states the events lack a part of the work.
        if !self.own_cpus || !self.traced.sees_interrupts {
            return Vec::new();
        }
        let a = &self.accounts;
        let sides = [
            (Side::Client, self.traced.client, a.client_thread_us + a.client_softirq_us),
            (Side::Server, self.traced.server, a.server_thread_us + a.server_softirq_us),
        ];
        let check = |(side, traced, found): (Side, SideWork, f64)| {
            // The accounts count a part of the transitions as work: the expected value is anywhere in between.
            let half = traced.transitions_us / 2.0;
            let expected = traced.busy_us + half;
            let limit = half + expected * ACCOUNTS_WITHIN + self.accounts_within_us;
            Check { comparison: comparison(side), found, expected, limit }
        };
        sides.map(check).into()
    }
}

/// The figures of a point that are printed, and come from other runs than the evidence.
#[derive(Clone, Copy, Debug)]
pub struct Printed<'a> {
    /// Operations per second without observers.
    pub iops: f64,
    /// Share of that time in which the client's and the server's CPU were busy, 0 to 1.
    pub cpu_busy: (f64, f64),
    /// The service times of this size and policy.
    pub service: &'a CpuCost,
    /// What all observers saw of the run that they come from, if it was one without the wire's rate limit.
    pub unlimited: Option<&'a Evidence>,
    /// The segments of the observed run.
    pub segments: &'a Segments,
    /// Their breakdown.
    pub breakdown: &'a Breakdown,
}

/// A side whose CPU is at least so busy works all the time on operations.
const SATURATED_FROM: f64 = 0.93;
/// Difference of service times from a CPU's use where it is saturated, relative.
const SATURATED_WITHIN: f64 = 0.15;
/// Service times at the measured rate may exceed the CPU's use by this share of the time, and TPTmin the time between completions:
/// they come from other runs, in which fewer or more operations share a call.
const BUSY_WITHIN: f64 = 0.05;
/// The paths of two runs of one point differ by less than the path itself and this, microseconds: packets share their waits at depth.
const PATH_WITHIN_US: f64 = 5.0;

impl Printed<'_> {
    /// Comparisons of what is printed with what was measured beside it and with the evidence.
    #[must_use]
    pub fn checks(&self, evidence: &Evidence) -> Vec<Check> {
        let mut checks = self.unlimited.map_or_else(Vec::new, |run| run.work(Comparison::WorkUnlimited));
        // A bound in one direction: the distance beyond the bound is at most the limit.
        let mut at_most = |comparison, found: f64, most: f64, limit: f64| {
            checks.push(Check { comparison, found: found.max(most), expected: most, limit });
        };
        let tpt_us = 1e6 / self.iops;
        at_most(Comparison::Bottleneck, self.breakdown.limit.tpt_min_us, tpt_us, tpt_us * BUSY_WITHIN);
        if evidence.own_cpus {
            let s = self.service;
            for (side, work_us, busy) in [
                (Side::Client, s.client_thread_us + s.client_softirq_us, self.cpu_busy.0),
                (Side::Server, s.server_thread_us + s.server_softirq_us, self.cpu_busy.1),
            ] {
                let used = work_us / tpt_us * 100.0;
                let busy_percent = busy * 100.0;
                if busy >= SATURATED_FROM {
                    let limit = busy_percent * SATURATED_WITHIN;
                    let comparison = Comparison::Service(side);
                    checks.push(Check { comparison, found: used, expected: busy_percent, limit });
                } else {
                    let found = used.max(busy_percent);
                    let limit = BUSY_WITHIN * 100.0;
                    checks.push(Check {
                        comparison: Comparison::Service(side),
                        found,
                        expected: busy_percent,
                        limit,
                    });
                }
            }
        }
        for (segment, printed, traced) in [
            (Segment::RequestPath, self.segments.request_path, evidence.segments.request_path),
            (Segment::ResponsePath, self.segments.response_path, evidence.segments.response_path),
        ] {
            let (Some(printed), Some(traced)) = (printed, traced) else { continue };
            checks.push(Check {
                comparison: Comparison::Path(segment),
                found: printed.mean_us,
                expected: traced.mean_us,
                limit: traced.mean_us + PATH_WITHIN_US,
            });
        }
        checks
    }
}

/// What is known about a point's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClosureOutcome {
    /// Every comparison with independent evidence agrees.
    Holds,
    /// One does not, or a term is below zero.
    Fails,
    /// There is no independent evidence.
    NotVerified,
    /// The machine was disturbed while the point was measured, each time.
    Unreliable,
}

impl ClosureOutcome {
    /// A word or two for a table.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::Fails => "FAILS",
            Self::NotVerified => "not verified",
            Self::Unreliable => "unreliable",
        }
    }
}

/// The closure of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closure {
    /// The outcome.
    pub outcome: ClosureOutcome,
    /// Why, one sentence each; empty if it holds.
    pub reasons: Vec<String>,
    /// The comparisons with independent evidence.
    pub checks: Vec<Check>,
}

/// What disturbed a point's runs, one sentence each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disturbances<'a> {
    /// The runs whose figures are printed.
    pub printed: &'a [String],
    /// The traced run.
    pub traced: &'a [String],
}

impl Closure {
    /// Judges a point by what is printed of it, the evidence (or why there is none) and what disturbed its runs.
    ///
    /// Observers of one run that contradict each other fail the point also where other runs were disturbed: what is known of a
    /// disturbance comes from CPU accounts, which may be what is wrong. A term below zero fails it always: whatever the reason, the
    /// printed figures contradict each other.
    #[must_use]
    pub fn of(
        printed: &Printed<'_>,
        evidence: Result<&Evidence, &str>,
        disturbances: &Disturbances<'_>,
    ) -> Self {
        let mut checks = evidence.map(Evidence::checks).unwrap_or_default();
        let contradictions: Vec<String> = checks.iter().filter_map(failure).collect();
        let more = evidence.map(|evidence| printed.checks(evidence)).unwrap_or_default();
        let negative: Vec<String> = printed.breakdown.negative.iter().map(negative).collect();
        let mut failures = wrong_sums(printed.breakdown);
        failures.extend(more.iter().filter_map(failure));
        checks.extend(more);
        let (is_calm, is_traced_calm) = (disturbances.printed.is_empty(), disturbances.traced.is_empty());
        let fails = !negative.is_empty()
            || !contradictions.is_empty() && is_traced_calm
            || !failures.is_empty() && is_calm && is_traced_calm;
        let outcome = match evidence {
            _ if fails => ClosureOutcome::Fails,
            _ if !is_calm || !is_traced_calm => ClosureOutcome::Unreliable,
            Ok(_) => ClosureOutcome::Holds,
            Err(_) => ClosureOutcome::NotVerified,
        };
        let mut reasons =
            [&negative, disturbances.printed, disturbances.traced, &failures, &contradictions].concat();
        if let (ClosureOutcome::NotVerified, Err(why)) = (outcome, evidence) {
            reasons.push(why.to_owned());
        }
        Self { outcome, reasons, checks }
    }
}

impl Closure {
    /// Judges a point whose service times, limit and prediction come from another one, `source`, of this name: they are no better
    /// than that one.
    pub fn depend_on(&mut self, source: &Self, name: &str) {
        let rank = |outcome| match outcome {
            ClosureOutcome::Holds => 0,
            ClosureOutcome::NotVerified => 1,
            ClosureOutcome::Unreliable => 2,
            ClosureOutcome::Fails => 3,
        };
        if rank(source.outcome) > rank(self.outcome) {
            self.outcome = source.outcome;
            self.reasons.push(format!("its service times come from {name}: {}", source.outcome.text()));
        }
    }
}

/// A check that does not hold, in a sentence.
fn failure(check: &Check) -> Option<String> {
    (!check.holds()).then(|| {
        format!(
            "{}: {:.2} and {:.2}, which may differ by {:.2}",
            check.comparison.text(),
            check.found,
            check.expected,
            check.limit
        )
    })
}

/// What is wrong with a breakdown by itself.
fn wrong_sums(breakdown: &Breakdown) -> Vec<String> {
    let mut failures = Vec::new();
    if !breakdown.joined.holds {
        failures.push(format!(
            "the joined operations are not those that the client counted: their round trip differs by {:+.2} %, IOPS x RTT by {:+.2} % \
             from the queue depth",
            breakdown.joined.rtt_error * 100.0,
            breakdown.joined.queue_depth_error * 100.0
        ));
    }
    failures
}

fn negative(term: &NegativeTerm) -> String {
    format!(
        "contradiction: {} is {:.1} us, below zero by more than its uncertainty of {:.1} us: the service times are longer than this \
         point had time for",
        term.terms, term.mean_us, term.within_us
    )
}

#[cfg(test)]
mod tests;
