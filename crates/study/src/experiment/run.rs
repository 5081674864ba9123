//! Runs the cases of an experiment, interleaved: every case once, then every case again.

use std::path::Path;

use record::Op;

use super::cases::Run;
use super::result::{CaseResult, ExperimentResult, KeptRun};
use super::{Case, Experiment, Unit};
use crate::error::StudyError;
use crate::machine::Machine;
use crate::place::{Disturbance, NO_CAPTURE, Place, Wanted, Where};
use crate::plan::CONGESTION;
use crate::runner::Watcher;
use crate::sides::Sides;
use crate::trace;

/// Share of the CPUs above which their use by others is a warning.
const DISTURBED_FROM: f64 = 0.05;

/// Takes the operations of a run, and a name for a file of them.
pub type TakeOps<'a> = dyn FnMut(&str, &[Op]) -> std::io::Result<()> + 'a;

/// The runs of an interrupted experiment, and the journal of this one.
pub struct Keep<'a> {
    /// Completed runs of an interrupted experiment: they are not made again.
    pub earlier: &'a [KeptRun],
    /// Called with each run as soon as it completes.
    pub keep: &'a mut dyn FnMut(&KeptRun) -> std::io::Result<()>,
    /// The directory that keeps the packets.
    pub directory: &'a Path,
    /// Called with the operations of each run that was followed.
    pub ops: Option<&'a mut TakeOps<'a>>,
}

impl Experiment {
    /// Runs every case once, then every case again, without the runs that `keep` has.
    ///
    /// The wire and the servers are made in here and are gone on return. `watcher.stop` is called between runs and during
    /// them. Only one experiment or study may measure on a machine at a time.
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
                        let (run, followed) =
                            self.once(case, place_of(&places, case), round, &file, watcher)?;
                        if let Some(take) = keep.ops.as_mut().filter(|_| !followed.is_empty()) {
                            let name = format!("{}-{}", file_name(number, case), round + 1);
                            take(&name, &followed)
                                .map_err(|source| StudyError::machine("keeping operations", source))?;
                        }
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
        let Some(MtuPlace { place: first, .. }) = places.first() else { return Err(StudyError::Interrupted) };
        let mut cases: Vec<CaseResult> = Vec::new();
        for (number, (case, runs)) in self.cases.iter().zip(runs).enumerate() {
            let place = place_of(&places, case);
            let wire = record::Wire::ethernet(place.bits_per_second.max(1), place.mtu_bytes);
            let limit = (place.has_wire() && case.work.unit() == Unit::MegabytesPerSecond)
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
            wire: places.iter().all(|own| own.place.has_wire()),
            bits_per_second: first.bits_per_second,
            cpus: Sides { client: first.client_cpu, server: first.server_cpu },
            warnings,
            cases,
        })
    }

    /// A place for each MTU. Between two hosts and on a persistent wire there is one, whose MTU is given.
    fn places(
        &self,
        at: &Where,
        watcher: &dyn Watcher,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<MtuPlace>, StudyError> {
        let at = Where { placement: at.placement.or(self.placement), ..at.clone() };
        let mut places: Vec<MtuPlace> = Vec::new();
        for case in &self.cases {
            if places.iter().any(|own| own.mtu_bytes == case.mtu || own.place.is_given()) {
                continue;
            }
            let wanted = Wanted { bits_per_second: self.rate, mtu_bytes: case.mtu, congestion: CONGESTION };
            let mut found = Vec::new();
            let place = Place::choose(&wanted, &at, &mut found, &|| watcher.stop())?;
            places.push(MtuPlace { mtu_bytes: case.mtu, place });
            // Experiments do not follow single operations.
            found.retain(|warning| !warnings.contains(warning) && warning != NO_CAPTURE);
            warnings.append(&mut found);
        }
        if let Some(MtuPlace { mtu_bytes, place }) = places.first()
            && place.is_given()
            && self.cases.iter().any(|case| case.mtu != *mtu_bytes)
        {
            warnings.push(format!(
                "cases of several MTUs ran over the one that there is, {}: look at one of them",
                place.mtu_bytes
            ));
        }
        Ok(places)
    }

    /// One run, the same once more with its packets kept, and once more with its operations followed, which are returned.
    fn once(
        &self,
        case: &Case,
        place: &Place,
        round: u32,
        file: &Path,
        watcher: &dyn Watcher,
    ) -> Result<(KeptRun, Vec<Op>), StudyError> {
        let stop = || watcher.stop();
        let mut run = Run { place, runtime: self.runtime, trace: None, stop: &stop };
        let (found, mut disturbance) =
            place.watched(|| run.make(case).map(|made| (made.found, made.client)))?;
        let is_others = matches!(case.work, super::Work::Url { .. });
        if is_others {
            // The target may run on these CPUs: its use is not a disturbance.
            disturbance.others = 0.0;
        }
        let mut traced = None;
        if self.traces && place.may_trace() && !is_others {
            run.trace = Some(file);
            traced = Some(run.make(case)?.found.figure);
        }
        run.trace = None;
        let mut followed = None;
        if case.structure && !watcher.stop() {
            let (own, others) = place.watched(|| run.followed(case).map(|followed| (followed, None)))?;
            disturbance = disturbance.max(others);
            followed = Some(own);
        }
        if watcher.stop() {
            return Err(StudyError::Interrupted);
        }
        let (structure, ops) = followed.map(|own| (own.structure, own.ops)).unzip();
        let run = KeptRun { case: case.label.clone(), round, found, traced, structure, disturbance };
        Ok((run, ops.unwrap_or_default()))
    }
}

/// A place for the cases of one MTU.
struct MtuPlace {
    /// The MTU that the plan gives them.
    mtu_bytes: u32,
    place: Place,
}

fn place_of<'a>(places: &'a [MtuPlace], case: &Case) -> &'a Place {
    let own = places.iter().find(|own| own.mtu_bytes == case.mtu).or(places.first());
    own.map_or_else(|| unreachable!("a plan has at least one case, and each case a place"), |own| &own.place)
}

/// The folder of traces, below the directory of an experiment.
const TRACES: &str = "traces";

/// The file of a case's packets.
fn trace_name(number: usize, case: &Case) -> String {
    format!("{}.pcapng", file_name(number, case))
}

/// The name of a case's files.
fn file_name(number: usize, case: &Case) -> String {
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
    format!("{:02}-{label}", number + 1)
}

/// Warnings about the use of the machine by others.
fn disturbed(found: Disturbance) -> Vec<String> {
    let takers = [(found.steal, "other guests of this machine"), (found.others, "other programs")];
    let mut warnings: Vec<String> = takers
        .into_iter()
        .filter(|(share, _)| *share > DISTURBED_FROM)
        .map(|(share, taker)| {
            format!("{taker} took up to {:.0} % of the CPUs during a run: look at the spread", share * 100.0)
        })
        .collect();
    if found.clock > DISTURBED_FROM {
        warnings.push(format!(
            "the CPUs' clock changed by up to {:.0} % during a run: choose the performance governor (cpupower), and look at the \
             spread",
            found.clock * 100.0
        ));
    }
    warnings
}
