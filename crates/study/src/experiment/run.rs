//! From cases to a result: every case once, then every case again.

use std::path::Path;

use super::cases::Run;
use super::result::{CaseResult, ExperimentResult, KeptRun};
use super::{Case, Experiment};
use crate::error::StudyError;
use crate::machine::Machine;
use crate::place::{Disturbance, Place, Wanted, Where};
use crate::plan::CONGESTION;
use crate::runner::Watcher;
use crate::trace;

/// More of the CPUs than this in other hands is worth a word.
const DISTURBED_FROM: f64 = 0.05;

/// What is known already, and where what is found goes.
pub struct Keep<'a> {
    /// Runs of an experiment that was interrupted: they are not made again.
    pub earlier: &'a [KeptRun],
    /// Told of each run as soon as it is over.
    pub keep: &'a mut dyn FnMut(&KeptRun) -> std::io::Result<()>,
    /// The directory that keeps the packets.
    pub directory: &'a Path,
}

impl Experiment {
    /// Runs it: every case once, then every case again, but for what was made earlier.
    ///
    /// # Errors
    /// When a run fails or cannot be kept, or the watcher stops it.
    pub fn run(
        &self,
        at: &Where,
        watcher: &dyn Watcher,
        keep: &mut Keep<'_>,
    ) -> Result<ExperimentResult, StudyError> {
        let mut warnings = Vec::new();
        let places = self.places(at, watcher, &mut warnings)?;
        let traces = keep.directory.join(TRACES);
        if self.traces {
            output::file::folder(&traces)
                .map_err(|source| StudyError::machine("making a directory", source))?;
        }
        let mut runs: Vec<Vec<KeptRun>> = vec![Vec::new(); self.cases.len()];
        for round in 0..self.repeats {
            for (number, case) in self.cases.iter().enumerate() {
                if watcher.stop() {
                    return Err(StudyError::Interrupted);
                }
                watcher.point(&format!("{}, run {}", case.label, round + 1));
                let known = keep.earlier.iter().find(|run| run.case == case.label && run.round == round);
                let run = match known {
                    Some(run) => run.clone(),
                    None => {
                        let file = traces.join(trace_name(number, case));
                        let run = self.once(case, place_of(&places, case), round, &file, watcher)?;
                        (keep.keep)(&run).map_err(|source| StudyError::machine("keeping a run", source))?;
                        run
                    }
                };
                runs[number].push(run);
            }
        }
        let all =
            runs.iter().flatten().map(|run| run.disturbance).fold(Disturbance::default(), Disturbance::max);
        warnings.extend(disturbed(all));
        let Some((_, first)) = places.first() else { return Err(StudyError::Interrupted) };
        let mut cases: Vec<CaseResult> = Vec::new();
        for (number, (case, runs)) in self.cases.iter().zip(runs).enumerate() {
            let place = place_of(&places, case);
            let wire = record::Wire::ethernet(place.bits_per_second.max(1), place.mtu_bytes);
            let limit = (place.has_wire() && case.work.unit() == "MB/s")
                .then(|| place.bits_per_second as f64 / 8e6 * wire.efficiency());
            let mut result = CaseResult::of(case, place.mtu_bytes, runs, limit);
            let name = trace_name(number, case);
            if self.traces && traces.join(&name).exists() {
                result.frames = trace::exchanges(&traces.join(&name));
                match trace::verdicts(&traces.join(&name), place.has_wire().then_some(wire)) {
                    Ok(verdicts) => result.verdicts = verdicts,
                    Err(why) => {
                        warnings.push(format!("{}: its packets were not analysed: {why}", case.label));
                    }
                }
                result.trace = Some(format!("{TRACES}/{name}"));
            }
            cases.push(result);
        }
        let medians: Vec<(String, f64)> = cases.iter().map(|c| (c.case.label.clone(), c.median)).collect();
        for result in &mut cases {
            let against = medians.iter().find(|(label, _)| Some(label) == result.case.against.as_ref());
            result.ratio = against.map(|(_, median)| result.median / median);
        }
        Ok(ExperimentResult {
            plan: self.clone(),
            machine: Machine::here(),
            client_machine: first.client_machine.clone(),
            wire: places.iter().all(|(_, place)| place.has_wire()),
            bits_per_second: first.bits_per_second,
            cpus: (first.client_cpu, first.server_cpu),
            warnings,
            cases,
        })
    }

    /// A place for each MTU; between two hosts, and on a wire that stays, there is one, as it is.
    fn places(
        &self,
        at: &Where,
        watcher: &dyn Watcher,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<(u32, Place)>, StudyError> {
        let at = Where { placement: at.placement.or(self.placement), ..at.clone() };
        let mut places: Vec<(u32, Place)> = Vec::new();
        for case in &self.cases {
            if places.iter().any(|(mtu, place)| *mtu == case.mtu || place.is_given()) {
                continue;
            }
            let wanted = Wanted { bits_per_second: self.rate, mtu_bytes: case.mtu, congestion: CONGESTION };
            let mut said = Vec::new();
            places.push((case.mtu, Place::choose(&wanted, &at, &mut said, &|| watcher.stop())?));
            // How operations are followed does not concern an experiment.
            said.retain(|warning| !warnings.contains(warning) && !warning.contains("capture packets"));
            warnings.append(&mut said);
        }
        if let Some((mtu, place)) = places.first()
            && place.is_given()
            && self.cases.iter().any(|case| case.mtu != *mtu)
        {
            warnings.push(format!(
                "cases of several MTUs ran over the one that there is, {}: look at one of them",
                place.mtu_bytes
            ));
        }
        Ok(places)
    }

    /// One run, and the same with its packets kept.
    fn once(
        &self,
        case: &Case,
        place: &Place,
        round: u32,
        file: &Path,
        watcher: &dyn Watcher,
    ) -> Result<KeptRun, StudyError> {
        let stop = || watcher.stop();
        let mut run = Run { place, runtime: self.runtime, trace: None, stop: &stop };
        let (found, mut disturbance) = place.watched(|| run.make(case))?;
        let is_others = matches!(case.work, super::Work::Url { .. });
        if is_others {
            // The target may be on these CPUs: what it uses is no disturbance.
            disturbance.others = 0.0;
        }
        let mut traced = None;
        if self.traces && place.may_trace() && !is_others {
            run.trace = Some(file);
            traced = Some(run.make(case)?.0.figure);
        }
        if watcher.stop() {
            return Err(StudyError::Interrupted);
        }
        Ok(KeptRun { case: case.label.clone(), round, found, traced, disturbance })
    }
}

fn place_of<'a>(places: &'a [(u32, Place)], case: &Case) -> &'a Place {
    let own = places.iter().find(|(mtu, _)| *mtu == case.mtu).or(places.first());
    own.map_or_else(
        || unreachable!("a plan has at least one case, and each case a place"),
        |(_, place)| place,
    )
}

/// Where traces are, below the directory of an experiment.
const TRACES: &str = "traces";

/// The file of a case's packets.
fn trace_name(number: usize, case: &Case) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let words: Vec<String> = case
        .label
        .chars()
        .map(plain)
        .collect::<String>()
        .split('-')
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let label: String = words.join("-").chars().take(60).collect();
    format!("{:02}-{label}.pcapng", number + 1)
}

/// What to say of who else used the machine.
fn disturbed(found: Disturbance) -> Vec<String> {
    let takers = [(found.steal, "other guests of this machine"), (found.others, "other programs")];
    let mut said: Vec<String> = takers
        .into_iter()
        .filter(|(share, _)| *share > DISTURBED_FROM)
        .map(|(share, who)| {
            format!("{who} took up to {:.0} % of the CPUs during a run: look at the spread", share * 100.0)
        })
        .collect();
    if found.clock > DISTURBED_FROM {
        said.push(format!(
            "the CPUs' clock changed by up to {:.0} % during a run: choose the performance governor (cpupower), and look at the \
             spread",
            found.clock * 100.0
        ));
    }
    said
}
