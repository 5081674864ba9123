//! The result of an experiment.

use analysis::modes::Finding;
use analysis::verdict::Verdict;
use serde::{Deserialize, Serialize};

use super::{Case, Experiment, Unit};
use crate::machine::Machine;
use crate::place::Disturbance;
use crate::sides::Sides;
use crate::trace::TraceFrame;

/// The figures of one run.
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

/// The structure of the operations of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Structure {
    /// Operations that were followed through all capture points.
    pub operations: u64,
    /// Regimes and patterns in them.
    pub findings: Vec<Finding>,
}

/// A completed run, as the journal keeps it for an interrupted experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptRun {
    /// Its case's label.
    pub case: String,
    /// Its number among the case's runs, from 0.
    pub round: u32,
    /// Its figures.
    pub found: Found,
    /// The figure of the same run made once more while its packets were kept.
    pub traced: Option<f64>,
    /// The structure of its operations, of the same run made once more while they were followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<Structure>,
    /// Use of the CPUs by others meanwhile.
    pub disturbance: Disturbance,
}

/// The result of a case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// The case.
    pub case: Case,
    /// MTU of what it ran over, bytes.
    pub mtu_bytes: u32,
    /// The unit of its figures.
    pub unit: Unit,
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
    /// Median relative to the case that it is compared with.
    pub ratio: Option<f64>,
    /// Application data that the wire can carry, MB/s, for figures in MB/s.
    pub limit: Option<f64>,
    /// The observer's cost: the median over the runs of the share that is lost while packets are kept.
    pub observer_cost: Option<f64>,
    /// The structure of the operations of its last run that was followed.
    pub structure: Option<Structure>,
    /// What made it slow, by the analysis of its packets.
    pub verdicts: Vec<Verdict>,
    /// Two exchanges frame by frame, as the client's end of the wire saw them.
    pub frames: Vec<TraceFrame>,
    /// The file that they are from, below the directory of the experiment.
    pub trace: Option<String>,
}

/// The result of a plan.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExperimentResult {
    /// The plan.
    pub plan: Experiment,
    /// The machine; the server's host where there are two.
    pub machine: Machine,
    /// The client's machine, where it is another.
    pub client_machine: Option<Machine>,
    /// There was a wire.
    pub wire: bool,
    /// Rate of it, bits per second.
    pub bits_per_second: u64,
    /// CPUs of client and server.
    pub cpus: Sides<usize>,
    /// Limits of accuracy and disturbances.
    pub warnings: Vec<String>,
    /// The cases.
    pub cases: Vec<CaseResult>,
}

/// The middle value; the upper one of two.
pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = values.get(values.len() / 2)?;
    let lower = values.get((values.len() - 1) / 2)?;
    // Of an even number, half-way between the two in the middle.
    Some((lower + upper) / 2.0)
}

impl CaseResult {
    /// The result of these runs. The ratio is set when all cases are known.
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
            structure: runs.iter().rev().find_map(|run| run.structure.clone()),
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
