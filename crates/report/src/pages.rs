//! Results as pages: what each one shows. How a page looks is of the crate `page`.

mod analysis;
mod bench;
mod comparison;
mod experiment;
mod profile;
mod simulation;
mod study;
mod terms;

use ::study::{ExperimentResult, StudyResult};
use analyzer::AnalysisResult;
use compare::{Comparison, Profile};
use load::RunResult;
use page::{Page, Part};

pub use page::Unit;

pub use simulation::SimulatedRuns;

/// A picture of a point's operations over time.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its file, as it is named in the page.
    pub file: String,
    /// The picture.
    pub svg: String,
}

/// A result that a page shows.
#[derive(Clone, Copy, Debug)]
pub enum Result<'a> {
    /// An analysis, and its operations over time where they are at hand.
    Analysis(&'a AnalysisResult, Option<&'a Profile>),
    /// What was loaded, and the runs of `bench`.
    Bench(&'a str, &'a [RunResult]),
    /// A study with pictures.
    Study(&'a StudyResult, &'a [Figure]),
    /// Cases with pictures.
    Experiment(&'a ExperimentResult, &'a [Figure]),
    /// Simulated runs.
    Simulation(&'a SimulatedRuns),
    /// Before against after, and both over time where they are at hand.
    Comparison(&'a Comparison, Option<(&'a Profile, &'a Profile)>),
    /// What was kept of an analysis.
    Profile(&'a Profile),
}

/// The page of these results.
#[must_use]
pub fn page(results: &[Result<'_>]) -> Page {
    let unit = Unit::of(results.iter().flat_map(times_us));
    let reports: Vec<page::Report> = results.iter().map(|result| report(result, unit)).collect();
    let title = match reports.as_slice() {
        [one] => format!("{} - Roundtrip", one.heading),
        many => format!("{} results - Roundtrip", many.len()),
    };
    Page { title, unit, reports }
}

/// The times of a result that decide which unit its page has, microseconds.
fn times_us(result: &Result<'_>) -> Vec<f64> {
    match result {
        Result::Analysis(result, _) => {
            result.services.iter().flat_map(|row| [row.figures.p50_us, row.figures.p99_us]).collect()
        }
        Result::Bench(_, runs) => {
            runs.iter().flat_map(|run| [run.latency_us.p50, run.latency_us.p99]).collect()
        }
        Result::Study(result, _) => result.stanzas.iter().map(|stanza| stanza.rtt_us).collect(),
        Result::Experiment(result, _) => result.cases.iter().filter_map(|case| case.p50_us).collect(),
        Result::Simulation(runs) => runs.runs.iter().map(|run| run.rtt_us.p50).collect(),
        Result::Comparison(compared, _) => {
            let means = compared.rows.iter().filter_map(|row| row.quantity("p50 us"));
            means.map(|change| change.after).collect()
        }
        Result::Profile(profile) => profile::medians_us(profile),
    }
}

fn report(result: &Result<'_>, unit: Unit) -> page::Report {
    match *result {
        Result::Analysis(result, profile) => analysis::report(result, profile, unit),
        Result::Bench(url, runs) => bench::report(url, runs, unit),
        Result::Study(result, figures) => study::report(result, figures, unit),
        Result::Experiment(result, figures) => experiment::report(result, figures, unit),
        Result::Simulation(runs) => simulation::report(runs, unit),
        Result::Comparison(compared, profiles) => comparison::report(compared, profiles, unit),
        Result::Profile(profile) => profile::report(profile, unit),
    }
}

/// A rate with three digits or more.
fn rate(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => crate::terminal::thousands(value),
    }
}

/// Most of all pictures of a report, bytes: a page is to be sent by mail.
const PICTURES_BYTES_MAX: usize = 2 << 20;

/// Warnings as a part.
fn notes(warnings: &[String]) -> Vec<Part> {
    if warnings.is_empty() { Vec::new() } else { vec![Part::Notes(warnings.to_vec())] }
}

/// The six quantities of single operations over time.
fn pictures(figures: &[Figure]) -> Vec<Part> {
    let mut bytes = 0;
    let (mut parts, mut left_out) = (Vec::new(), Vec::new());
    for figure in figures {
        bytes += figure.svg.len();
        if bytes <= PICTURES_BYTES_MAX {
            parts.push(Part::Picture(figure.file.clone(), figure.svg.clone()));
        } else {
            bytes -= figure.svg.len();
            left_out.push(Part::File("Too large for the page:".to_owned(), figure.file.clone()));
        }
    }
    parts.extend(left_out);
    parts
}
