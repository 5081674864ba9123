//! What `analyze` says of a case's captures, beside what must be said.

use std::path::Path;

use serde_json::Value;

use super::case::{Case, Measure, Measured};
use super::common::roundtrip;
use super::known::Fault;

/// A predicted gain is right within this share of the measured one.
pub const GAIN_TOLERANCE: f64 = 0.2;
/// Operations of a connection that is that of a client for the whole run.
const OPERATIONS_OF_A_CLIENT: f64 = 20.0;

/// What was found in the captures of a case.
pub struct Outcome {
    pub case: String,
    pub faults: Vec<Fault>,
    expected: String,
    found: Vec<String>,
    predicted: Option<(f64, f64)>,
    /// Each figure that was measured; they differ where the runs differ by more than the cause.
    measured: Vec<f64>,
}

/// A predicted gain, from the least to the most, beside what was measured.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Compared {
    /// Both ends are near one measured figure.
    Right,
    /// A measured figure is inside or near, but one end is further away from each than it may be: true, but too vague.
    Wide,
    /// Every measured figure is outside.
    Wrong,
}

impl Compared {
    fn of((least, most): (f64, f64), measured: &[f64]) -> Self {
        let reaches =
            |figure: f64| least <= figure * (1.0 + GAIN_TOLERANCE) && most >= figure * (1.0 - GAIN_TOLERANCE);
        let is_near = |end: f64, figure: f64| (end / figure - 1.0).abs() <= GAIN_TOLERANCE;
        if measured.iter().any(|&figure| is_near(least, figure) && is_near(most, figure)) {
            Self::Right
        } else if measured.iter().any(|&figure| reaches(figure)) {
            Self::Wide
        } else {
            Self::Wrong
        }
    }
}

impl Outcome {
    /// A line of the table.
    pub fn line(&self, width: usize) -> String {
        let predicted = match self.predicted {
            None => "-".to_owned(),
            Some((least, most)) if most <= 1.01 * least => format!("{most:.2}"),
            Some((least, most)) => format!("{least:.2} to {most:.2}"),
        };
        let measured: Vec<String> = self.measured.iter().map(|figure| format!("{figure:.2}")).collect();
        let verdict = match self.faults.as_slice() {
            [] => "ok".to_owned(),
            faults => faults
                .iter()
                .map(|fault| format!("{} ({})", fault.what, fault.kind))
                .collect::<Vec<_>>()
                .join(", "),
        };
        format!(
            "{:width$}  expected {:24}  found {:40}  gain {:>16} measured {:>16}  {verdict}",
            self.case,
            self.expected,
            if self.found.is_empty() { "-".to_owned() } else { self.found.join(" ") },
            predicted,
            if measured.is_empty() { "-".to_owned() } else { measured.join(", ") },
        )
    }
}

/// The output of `analyze --json` for one variant of a case, or why there is none.
fn analyze(case: &Case, captures: &Path, mended: bool) -> Result<Value, String> {
    let mut command = roundtrip();
    command.args(["analyze", "--json"]).args(if mended { &case.arguments_mended } else { &case.arguments });
    for (option, file) in case.files(mended) {
        command.args(option).arg(captures.join(file));
    }
    let output = command.output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout)
        .map_err(|_| format!("no output: {}", text.lines().next().unwrap_or_default()))
}

fn kinds(report: &Value) -> Vec<String> {
    let kinds =
        report["verdicts"].as_array().into_iter().flatten().filter_map(|verdict| verdict["kind"].as_str());
    kinds.map(str::to_owned).collect()
}

/// A gain that a verdict predicts: the least and the most, by the case's measure, and the time of an operation before the remedy.
struct Predicted {
    least: f64,
    most: f64,
    before_us: Option<f64>,
}

/// The gain that the first verdict of these kinds predicts.
fn predicted(report: &Value, case: &Case) -> Option<Predicted> {
    let is_expected = |verdict: &&Value| case.expect.iter().any(|kind| verdict["kind"] == kind.as_str());
    let gain = &report["verdicts"].as_array()?.iter().find(is_expected)?["gain"];
    let times = gain["operation_us"].as_array().map(|times| times.iter().filter_map(Value::as_f64).collect());
    let times: Vec<f64> = times.unwrap_or_default();
    let (least, most, before_us) = match (case.measure, times.as_slice()) {
        (Measure::Mean | Measure::First, &[before, after]) if after > 0.0 => {
            (before / gain["operation_most_us"].as_f64()?, before / after, Some(before))
        }
        _ => (gain["throughput_least"].as_f64()?, gain["throughput_factor"].as_f64()?, None),
    };
    Some(Predicted { least: least.min(case.size), most: most.min(case.size), before_us })
}

/// The mean time of an operation, or until its first byte, in a capture, microseconds. The client's own figure has its own work
/// besides, which no capture shows.
fn captured_us(report: &Value, measure: Measure) -> Option<f64> {
    let operations = report["operations"].as_f64()?;
    match measure {
        Measure::Rate => None,
        Measure::Mean => Some(report["excess"]["operations_us"].as_f64()? / operations),
        Measure::First => {
            let parts = report["stanzas"].as_array()?.iter().flat_map(|stanza| stanza["parts"].as_array());
            let first = parts.flatten().filter(|part| part["part"] == "first_byte");
            let sums =
                first.filter_map(|part| Some((part["mean_us"].as_f64()?, part["operations"].as_f64()?)));
            let (ns, count) = sums.fold((0.0, 0.0), |sum, (us, count)| (sum.0 + us * count, sum.1 + count));
            (count > 0.0).then_some(ns / count)
        }
    }
}

/// How much faster the clients of a capture were while all of them were at work than over the whole of it: each makes a given number of
/// requests, and chance may delay one of them, so that at the end it is alone. 1 where connections are not those of clients.
fn together(report: &Value) -> f64 {
    let connections = report["connections"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of = |connection: &Value| Some((connection["operations"].as_f64()?, connection["seconds"].as_f64()?));
    let all: Vec<(f64, f64)> = connections.iter().filter_map(of).collect();
    if all.iter().any(|&(operations, _)| operations < OPERATIONS_OF_A_CLIENT) {
        return 1.0;
    }
    let rate: f64 = all.iter().map(|(operations, seconds)| operations / seconds).sum();
    let operations: f64 = all.iter().map(|(operations, _)| operations).sum();
    let seconds = all.iter().map(|&(_, seconds)| seconds).fold(0.0, f64::max);
    if operations > 0.0 { rate * seconds / operations } else { 1.0 }
}

/// Compares what `analyze` says of the captures of a case with what must be said.
pub fn judge(case: &Case, captures: &Path) -> Outcome {
    let fault = |what: &str, kind: &str| Fault {
        case: case.name.clone(),
        what: what.to_owned(),
        kind: kind.to_owned(),
    };
    let measured = Measured::read(captures, case).gains(case);
    let mut outcome = Outcome {
        case: case.name.clone(),
        faults: Vec::new(),
        expected: if case.healthy { "-".to_owned() } else { case.expect.join("|") },
        found: Vec::new(),
        predicted: None,
        measured,
    };
    let report = match analyze(case, captures, false) {
        Ok(report) => report,
        Err(error) => {
            let what = if case.healthy { "false alarm" } else { "missed" };
            outcome.faults.push(fault(what, case.expect.first().map_or("unusable", String::as_str)));
            outcome.found.push(error);
            return outcome;
        }
    };
    outcome.found = kinds(&report);
    if case.healthy {
        outcome.faults.extend(outcome.found.iter().map(|kind| fault("false alarm", kind)));
        return outcome;
    }
    let is_named = outcome.found.iter().any(|kind| case.expect.contains(kind));
    if !is_named {
        outcome.faults.push(fault("missed", &case.expect.join("|")));
    }
    let others = outcome.found.iter().filter(|kind| !case.expect.contains(kind) && !case.also.contains(kind));
    outcome.faults.extend(others.map(|kind| fault("besides", kind)));
    let predicted = predicted(&report, case);
    if case.is_mended {
        let together_before = together(&report);
        match analyze(case, captures, true) {
            Ok(report) => {
                if case.measure == Measure::Rate {
                    let factor = together(&report) / together_before;
                    outcome.measured.iter_mut().for_each(|gain| *gain *= factor);
                }
                let is_still = |kind: &String| case.expect.contains(kind) && !case.still.contains(kind);
                outcome
                    .faults
                    .extend(kinds(&report).into_iter().filter(is_still).map(|kind| fault("mended", &kind)));
                let before_us = predicted.as_ref().and_then(|predicted| predicted.before_us);
                if let (Some(before), Some(after)) = (before_us, captured_us(&report, case.measure)) {
                    outcome.measured.push(before / after);
                }
            }
            Err(_) => outcome.faults.push(fault("mended", "unusable")),
        }
    }
    outcome.predicted = predicted.map(|predicted| (predicted.least, predicted.most));
    if is_named && !outcome.measured.is_empty() {
        let what = match outcome.predicted.map(|predicted| Compared::of(predicted, &outcome.measured)) {
            Some(Compared::Right) => None,
            Some(Compared::Wide) => Some("wide"),
            Some(Compared::Wrong) => Some("gain"),
            None => Some("no gain"),
        };
        outcome.faults.extend(what.map(|what| fault(what, &case.expect.join("|"))));
    }
    outcome
}

#[test]
fn an_interval_is_right_only_if_both_its_ends_are_near_one_figure() {
    assert_eq!(Compared::of((9.0, 11.0), &[10.0]), Compared::Right);
    assert_eq!(Compared::of((5.0, 7000.0), &[10.0]), Compared::Wide);
    assert_eq!(Compared::of((9.0, 16.0), &[10.0]), Compared::Wide);
    assert_eq!(Compared::of((10.0, 20.0), &[10.0, 20.0]), Compared::Wide, "each end near another figure");
    assert_eq!(Compared::of((12.5, 13.0), &[10.0]), Compared::Wrong);
    assert_eq!(Compared::of((14.0, 15.0), &[10.0, 20.0]), Compared::Wrong, "between two figures");
}
