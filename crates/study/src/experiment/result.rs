//! What came of an experiment.

use analysis::verdict::Verdict;
use serde::{Deserialize, Serialize};

use super::{Case, Experiment};
use crate::machine::Machine;
use crate::place::Disturbance;
use crate::trace::TraceFrame;

/// What one run found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// In the work's unit.
    pub figure: f64,
    /// The median time of an exchange, us, where there are exchanges.
    pub p50_us: Option<f64>,
    /// The first exchanges: when each began, ms since the first, and its time, us.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<(f64, f64)>,
}

/// A run that is over: what is kept, so that an experiment that was interrupted can go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptRun {
    /// Its case's label.
    pub case: String,
    /// Which of the case's runs, from 0.
    pub round: u32,
    /// What it found.
    pub found: Found,
    /// What the same found, right afterwards, while its packets were kept.
    pub traced: Option<f64>,
    /// Who else used the CPUs meanwhile.
    pub disturbance: Disturbance,
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseResult {
    /// It.
    pub case: Case,
    /// MTU of what it ran over, bytes.
    pub mtu_bytes: u32,
    /// `1/s` or `MB/s`.
    pub unit: &'static str,
    /// Every run, in the order in which they were made.
    pub runs: Vec<KeptRun>,
    /// The median figure, the least and the greatest.
    pub median: f64,
    /// See `median`.
    pub least: f64,
    /// See `median`.
    pub greatest: f64,
    /// The median of the runs' median times, us.
    pub p50_us: Option<f64>,
    /// To the case that it is compared with.
    pub ratio: Option<f64>,
    /// What the wire lets pass of application data, in MB/s, for figures in MB/s.
    pub limit: Option<f64>,
    /// What keeping packets costs: the median, over the runs, of the share that is lost while they are kept.
    pub observer_cost: Option<f64>,
    /// What its packets say made it slow.
    pub verdicts: Vec<Verdict>,
    /// Two exchanges frame by frame, as the client's end of the wire saw them.
    pub frames: Vec<TraceFrame>,
    /// The file that they are from, below the directory of the experiment.
    pub trace: Option<String>,
}

/// What came of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct ExperimentResult {
    /// The plan.
    pub plan: Experiment,
    /// Where; the server's host where there are two.
    pub machine: Machine,
    /// The client's, where it is another.
    pub client_machine: Option<Machine>,
    /// There was a wire.
    pub wire: bool,
    /// Rate of it, bits per second.
    pub bits_per_second: u64,
    /// CPUs of client and server.
    pub cpus: (usize, usize),
    /// What the reader must know.
    pub warnings: Vec<String>,
    /// The cases.
    pub cases: Vec<CaseResult>,
}

/// The middle one.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl CaseResult {
    /// From its runs; ratios are made when all are known.
    pub(super) fn of(case: &Case, mtu_bytes: u32, runs: Vec<KeptRun>, limit: Option<f64>) -> Self {
        let figures = || runs.iter().map(|run| run.found.figure);
        let costs = runs.iter().filter_map(|run| Some(1.0 - run.traced? / run.found.figure)).collect();
        Self {
            mtu_bytes,
            unit: case.work.unit(),
            median: median(figures().collect()).unwrap_or(0.0),
            least: figures().fold(f64::INFINITY, f64::min),
            greatest: figures().fold(0.0, f64::max),
            p50_us: median(runs.iter().filter_map(|run| run.found.p50_us).collect()),
            ratio: None,
            limit,
            observer_cost: median(costs),
            verdicts: Vec::new(),
            frames: Vec::new(),
            trace: None,
            case: case.clone(),
            runs,
        }
    }

    /// The samples of its first run that has some.
    #[must_use]
    pub fn samples(&self) -> &[(f64, f64)] {
        self.runs.iter().map(|run| &run.found.samples[..]).find(|samples| !samples.is_empty()).unwrap_or(&[])
    }
}
