//! A study's closure: independent evidence beside what it is evidence for.

use analysis::closure::{Check, Comparison};
use analysis::stages::{Cause, Segment, Stage, Traced};
use analysis::{ClosureOutcome, Stanza, TermValue};
use output::text::line;
use study::StudyResult;

use crate::terminal::{thousands, us};

/// A table's headings and rows, behind the cells that name a stanza.
pub(crate) struct Rows<'a> {
    /// The headings of the cells.
    pub(crate) headings: Vec<String>,
    /// The stanzas and their cells.
    pub(crate) rows: Vec<(&'a Stanza, Vec<String>)>,
}

/// The outcome for the whole study, in a sentence or two.
#[must_use]
pub(crate) fn closure(result: &StudyResult) -> String {
    let of = |outcome| result.with(outcome).count();
    let (holds, fails) = (of(ClosureOutcome::Holds), of(ClosureOutcome::Fails));
    let (not_verified, unreliable) = (of(ClosureOutcome::NotVerified), of(ClosureOutcome::Unreliable));
    let points = result.stanzas.len();
    let mut text = if fails > 0 {
        format!("Closure: FAILS at {fails} of {points} points.")
    } else if holds == points {
        format!(
            "Closure: holds at all {points} points: capture points, CPU accounts and the client's round trip agree with the kernel's own \
             events."
        )
    } else if holds == 0 {
        format!("Closure: not verified: no point holds, of {points}.")
    } else {
        format!("Closure: holds at {holds} of {points} points.")
    };
    if fails > 0 && holds > 0 {
        text.push_str(&format!(" It holds at {holds}."));
    }
    if not_verified > 0 && holds + fails + unreliable > 0 {
        text.push_str(&format!(" Not verified: {not_verified}."));
    }
    if unreliable > 0 {
        text.push_str(&format!(
            " Unreliable, because the machine was disturbed each time they were measured: {unreliable}."
        ));
    }
    let followed: u64 = result.stanzas.iter().map(|s| s.followed).sum();
    let completed: u64 = result.stanzas.iter().map(|s| s.completed).sum();
    text.push_str(&format!(
        "\nFollowed {} of {} operations through all four points.",
        thousands(followed as f64),
        thousands(completed as f64)
    ));
    for (why, points) in reasons(result) {
        text.push_str(&format!("\n- {points}: {}", line(&why)));
    }
    text
}

/// Whether a term is below zero by more than its uncertainty.
pub(crate) fn is_contradiction(stanza: &Stanza, term: &TermValue) -> bool {
    stanza.breakdown.negative.iter().any(|negative| negative.terms == term.terms)
}

/// The terms that a drawing to scale cannot have, since they are below zero, in sentences; and whether each is a contradiction or
/// within its uncertainty.
pub(crate) fn not_drawn(stanza: &Stanza) -> Vec<(String, bool)> {
    let below = stanza.breakdown.terms.iter().filter(|term| term.mean_us < 0.0);
    let text = |term: &TermValue| {
        let (name, mean, within) = (&term.terms, us(term.mean_us), us(term.within_us));
        if is_contradiction(stanza, term) {
            let why = "the service times are longer than this point had time for";
            (
                format!(
                    "contradiction: {name} is {mean} us, below zero by more than its uncertainty of {within} us: {why}; not to scale"
                ),
                true,
            )
        } else {
            (format!("not drawn: {name} is {mean} us, zero within its uncertainty of {within} us"), false)
        }
    };
    below.map(text).collect()
}

/// Why points do not close: each reason once, with the points that have it.
fn reasons(result: &StudyResult) -> Vec<(String, String)> {
    let mut all: Vec<(String, Vec<String>)> = Vec::new();
    for stanza in &result.stanzas {
        let name =
            format!("{} B, {}, queue depth {}", stanza.block_size_bytes, stanza.policy, stanza.queue_depth);
        let outcome = stanza.closure.outcome.text();
        for why in &stanza.closure.reasons {
            let why = format!("{outcome}: {why}");
            match all.iter_mut().find(|(own, _)| *own == why) {
                Some((_, names)) => names.push(name.clone()),
                None => all.push((why, vec![name.clone()])),
            }
        }
    }
    let points = |names: Vec<String>| match names.as_slice() {
        [one] => one.clone(),
        many if many.len() == result.stanzas.len() => "all points".to_owned(),
        many => format!("{} points", many.len()),
    };
    all.into_iter().map(|(why, names)| (why, points(names))).collect()
}

/// Each point's evidence.
pub(crate) fn evidence(result: &StudyResult) -> Rows<'_> {
    let headings = [
        "tracer",
        "responses\nper packet",
        "in the stages",
        "stages us",
        "RTT us",
        "segments",
        "unexplained",
        "client CPU us\n(by events)",
        "server CPU us\n(by events)",
        "model",
        "simulator",
        "closure",
    ];
    let row = |s| -> (&Stanza, Vec<String>) {
        let stanza: &Stanza = s;
        let found =
            |wanted: Comparison| stanza.closure.checks.iter().find(|check| check.comparison == wanted);
        let range = |check: Option<&Check>| {
            check.map_or("-".into(), |c| {
                format!("{} ({} to {})", us(c.found), us(c.expected - c.limit), us(c.expected + c.limit))
            })
        };
        let worst = |of: &dyn Fn(Segment) -> Comparison| {
            let checks = Segment::ALL.into_iter().filter_map(|segment| Some((segment, found(of(segment))?)));
            checks.max_by(|a, b| {
                let far = |c: &Check| (c.found - c.expected).abs() / c.limit;
                far(a.1).total_cmp(&far(b.1))
            })
        };
        let segments = worst(&Comparison::Segment).map_or("-".into(), |(segment, c)| {
            format!("{} {} / {}", segment.name(), us(c.found), us(c.expected))
        });
        let unexplained =
            worst(&Comparison::Unexplained).map_or("-".into(), |(_, c)| format!("{:.1}%", c.found.abs()));
        let error = |iops: Option<f64>| {
            iops.map_or("-".into(), |iops| format!("{:+.0}%", (iops / stanza.iops - 1.0) * 100.0))
        };
        let value = |check: Option<&Check>, of: &dyn Fn(&Check) -> String| check.map_or("-".into(), of);
        let cells = vec![
            error(stanza.iops_traced),
            stanza
                .evidence
                .as_ref()
                .map_or("-".into(), |evidence| format!("{:.2}", evidence.traced.responses_per_packet)),
            value(found(Comparison::QueueDepth), &|c| format!("{:.2}", c.found)),
            value(found(Comparison::RoundTrip), &|c| us(c.found)),
            value(found(Comparison::RoundTrip), &|c| us(c.expected)),
            segments,
            unexplained,
            range(found(Comparison::Work(record::Side::Client))),
            range(found(Comparison::Work(record::Side::Server))),
            error(stanza.model_iops),
            error(stanza.simulated_iops),
            stanza.closure.outcome.text().to_owned(),
        ];
        (stanza, cells)
    };
    let is_seen = result.stanzas.iter().any(|stanza| stanza.evidence.is_some());
    let rows = if is_seen { result.stanzas.iter().map(row).collect() } else { Vec::new() };
    Rows { headings: headings.map(str::to_owned).to_vec(), rows }
}

/// The ring's stages by the kernel's events.
pub(crate) fn stages(result: &StudyResult) -> Rows<'_> {
    let mut headings: Vec<String> = Stage::ALL.iter().map(|stage| stage.name().replace(' ', "\n")).collect();
    headings.push("sum".into());
    let cell = |traced: &Traced, stage: Stage| {
        let part = |cause: Cause| {
            let time_us = traced.time_us(stage, cause);
            (time_us >= 0.05).then(|| format!("{} {}", cause.name(), us(time_us)))
        };
        let parts = match stage {
            Stage::RequestPath | Stage::ResponsePath => part(Cause::Interrupt),
            Stage::ServerReceive | Stage::ClientReceive => part(Cause::Runnable),
            _ => None,
        };
        let sum = us(traced.mean_us(stage));
        parts.map_or(sum.clone(), |parts| format!("{sum} ({parts})"))
    };
    let row = |s| -> Option<(&Stanza, Vec<String>)> {
        let stanza: &Stanza = s;
        let traced = &stanza.evidence.as_ref()?.traced;
        let mut cells: Vec<String> = Stage::ALL.iter().map(|stage| cell(traced, *stage)).collect();
        cells.push(us(traced.round_trip_us()));
        Some((stanza, cells))
    };
    let ends = result.stanzas.iter().filter(|stanza| result.is_end(stanza.queue_depth));
    Rows { headings, rows: ends.filter_map(row).collect() }
}
