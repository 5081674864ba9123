//! Runs a study: from a plan to a result.

use std::cell::RefCell;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use analysis::predict::{AtDepthOne, Limit, calibrate_to};
use analysis::{
    Breakdown, Closure, CpuCost, Disturbances, PathCost, Prediction, Printed, Stanza, StanzaInput,
};
use policy::Sending;
use record::Op;
use record::wire::{ISCSI_HEADER_BYTES, Link, Wire};
use serde::{Deserialize, Serialize};

use crate::agreement::{Group, contradiction_in, repeatability};
use crate::error::StudyError;
use crate::machine::Machine;
use crate::place::{Place, Wanted, Where};
use crate::plan::Plan;
pub use crate::point::Point;
use crate::point::{PointKey, disturbances};
use crate::result::{StudyResult, setup_of};
use crate::sides::Sides;
use crate::unlimited::Unlimited;

/// Observes and ends a running study.
pub trait Watcher: Sync {
    /// Called before each point or case, and before the predictions of a study.
    fn point(&self, title: &str);
    /// Called before work that is in no plan: a point that is measured again, or a run for its service times.
    fn extra(&self, title: &str);
    /// Returns true to end the study. Called often and from several threads, also after it has returned true.
    fn stop(&self) -> bool;
}

/// A study to be run.
#[derive(Clone, Debug)]
pub struct Study {
    /// What to measure; must have passed [`Plan::complete`].
    pub plan: Plan,
    /// Where.
    pub at: Where,
}

/// A completed part of a study, as the journal keeps it for an interrupted one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum KeptPart {
    /// A point: its round, from 0, and what was measured.
    Point(u32, Box<Point>),
    /// What was measured without the wire's rate limit: block size in bytes, send policy, figures.
    Unlimited(u64, Sending, Box<Unlimited>),
}

/// The parts of an interrupted study, and the journal of this one.
pub struct KeepParts<'a> {
    /// Completed parts of an interrupted study: they are not measured again.
    pub earlier: &'a [KeptPart],
    /// Called with each part as soon as it completes. An error ends the study.
    pub keep: &'a mut dyn FnMut(&KeptPart) -> std::io::Result<()>,
    /// Called with the operations of each point's observed run.
    pub ops: Option<&'a mut TakeOps<'a>>,
}

/// Takes the operations of a point.
pub type TakeOps<'a> = dyn FnMut(&PointOps<'_>) -> std::io::Result<()> + 'a;

/// The operations of a point's observed run.
#[derive(Clone, Copy, Debug)]
pub struct PointOps<'a> {
    /// The point.
    pub point: &'a Point,
    /// Its round, from 0.
    pub round: u32,
    /// The operations of the measured time.
    pub operations: &'a [Op],
    /// Whether one clock stamped both sides.
    pub has_one_clock: bool,
}

impl KeepParts<'_> {
    fn keep(&mut self, part: &KeptPart) -> Result<(), StudyError> {
        (self.keep)(part).map_err(|source| StudyError::machine("keeping a part of the study", source))
    }
}

/// A server CPU busier than this is the bottleneck.
const CPU_BOUND_FROM: f64 = 0.93;

/// A run nearer than this to what the wire carries is limited by it.
const WIRE_BOUND_FROM: f64 = 0.9;

/// How often a point is measured again while the machine is disturbed or its observers contradict each other.
const REPEATS_OF_UNSOUND: u32 = 2;

/// How often a point that calibrates predictions is measured again while it contradicts its neighbours.
const REPEATS_OF_CONTRADICTED: u32 = 2;

/// How well the points repeat that calibrate a size and policy, as shares.
#[derive(Clone, Copy, Debug)]
struct Repeats {
    depth_one: f64,
    deepest: f64,
}

/// The service times of a size and policy.
#[derive(Default)]
struct Service {
    /// CPU work per operation.
    cost: CpuCost,
    /// The run without the wire's rate limit, if they come from one.
    unlimited: Option<Box<Unlimited>>,
}

/// Measures, and measures again while something is wrong with what was measured, [`REPEATS_OF_UNSOUND`] times at most.
fn sound<T>(
    watcher: &dyn Watcher,
    title: &dyn std::fmt::Display,
    measure: impl Fn() -> Result<T, StudyError>,
    wrong: impl Fn(&T) -> Vec<String>,
) -> Result<T, StudyError> {
    let mut measured = measure()?;
    for _ in 0..REPEATS_OF_UNSOUND {
        let found = wrong(&measured);
        let Some(first) = found.first() else { break };
        tracing::info!(%title, ?found, "measuring again");
        watcher.extra(&format!("{title}, again: {first}"));
        measured = measure()?;
    }
    Ok(measured)
}

/// All rounds of a point.
struct Rounds {
    points: Vec<Point>,
}

impl Rounds {
    /// The round with the median throughput.
    fn median(&self) -> Option<&Point> {
        let mut order: Vec<&Point> = self.points.iter().collect();
        order.sort_by(|a, b| a.iops_bare.total_cmp(&b.iops_bare));
        order.get(order.len() / 2).copied()
    }

    /// How well the throughput repeats.
    fn repeatability(&self) -> Option<f64> {
        repeatability(&self.points.iter().map(|point| point.iops_bare).collect::<Vec<_>>())
    }
}

impl Study {
    /// Runs every point once, then every point again, without the parts that `keep` has.
    ///
    /// Blocks until the study ends. The wire, the target and the captures are made in here and are gone on return, also on
    /// an error. Only one study may measure on a machine at a time: another one would take part of its CPUs. `keep.keep` is
    /// called before the next part is measured, so that an interruption costs one part.
    ///
    /// # Errors
    /// When the place cannot be made, a run or `keep` fails, or the watcher ends the study.
    pub fn run(&self, watcher: &dyn Watcher, keep: &mut KeepParts<'_>) -> Result<StudyResult, StudyError> {
        let started = Instant::now();
        let began_unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut warnings = Vec::new();
        let plan = &self.plan;
        let at = Where { placement: self.at.placement.or(plan.placement), ..self.at.clone() };
        let wanted = Wanted {
            bits_per_second: plan.bits_per_second,
            mtu_bytes: plan.mtu_bytes,
            congestion: &plan.congestion,
        };
        let place = Place::choose(&wanted, &at, &mut warnings, &|| watcher.stop())?;
        let groups: Vec<(Sending, u64)> = plan
            .policies
            .iter()
            .flat_map(|policy| plan.block_bytes.iter().map(|size| (*policy, *size)))
            .collect();
        let mut rounds: Vec<Vec<Rounds>> = groups
            .iter()
            .map(|_| plan.queue_depths.iter().map(|_| Rounds { points: Vec::new() }).collect())
            .collect();
        for round in 0..plan.repeats {
            for (&(policy, block_bytes), depths) in groups.iter().zip(&mut rounds) {
                for (&queue_depth, rounds) in plan.queue_depths.iter().zip(depths) {
                    let key = PointKey { block_bytes, policy, queue_depth };
                    let again = if plan.repeats > 1 { format!(", run {}", round + 1) } else { String::new() };
                    watcher.point(&format!("{key}{again}"));
                    rounds.points.push(self.point(&place, key, round, watcher, keep)?);
                }
            }
        }
        self.agree(&place, &mut rounds, &mut warnings, watcher, keep)?;
        let mut stanzas = Vec::new();
        for depths in &rounds {
            let points: Vec<&Point> = depths.iter().filter_map(Rounds::median).collect();
            let service = self.service(&place, &points, watcher, keep)?;
            let first = stanzas.len();
            let repeats = |rounds: Option<&Rounds>| rounds.and_then(Rounds::repeatability).unwrap_or(0.0);
            let repeats = Repeats { depth_one: repeats(depths.first()), deepest: repeats(depths.last()) };
            for (point, rounds) in points.iter().zip(depths) {
                warn(point, &mut warnings);
                let mut stanza = self.stanza(&place, point, &points, repeats, &service);
                stanza.runs = rounds.points.iter().map(|p| (p.iops_bare, p.iops)).collect();
                stanza.repeatability = rounds.repeatability();
                stanzas.push(stanza);
            }
            // Service times come from the last point of a size and policy, or from a run like it.
            if let Some((last, others)) = stanzas[first..].split_last_mut() {
                let name = format!("queue depth {}", last.queue_depth);
                others
                    .iter_mut()
                    .for_each(|stanza: &mut Stanza| stanza.closure.depend_on(&last.closure, &name));
            }
        }
        if place.is_shaped() {
            warnings.push(
                "the wire's rate is kept by a token bucket in front of S2 and C1: frames wait there for their turn and then cross at \
                 once, so W1 and W2 are the spacing of frames (in TPTmin) but no part of an operation's way"
                    .to_owned(),
            );
        }
        let mut result = StudyResult {
            format: 1,
            began_unix_seconds,
            seconds: started.elapsed().as_secs_f64(),
            machine: Machine::here(),
            client_machine: place.client_machine.clone(),
            plan: Plan {
                bits_per_second: place.bits_per_second,
                mtu_bytes: if place.has_wire() { place.mtu_bytes } else { self.plan.mtu_bytes },
                ..self.plan.clone()
            },
            wire: place.has_wire(),
            observation: place.observation,
            congestion: place.congestion.clone(),
            cpus: Sides { client: place.client_cpu, server: place.server_cpu },
            warnings,
            stanzas,
        };
        watcher.point("predictions from other points");
        result.predict_from_elsewhere(&|| watcher.stop());
        result.seconds = started.elapsed().as_secs_f64();
        Ok(result)
    }

    /// Measures the points that calibrate again where they contradict their runs or their neighbours.
    fn agree(
        &self,
        place: &Place,
        rounds: &mut [Vec<Rounds>],
        warnings: &mut Vec<String>,
        watcher: &dyn Watcher,
        keep: &mut KeepParts<'_>,
    ) -> Result<(), StudyError> {
        let mut ends = vec![0, self.plan.queue_depths.len().saturating_sub(1)];
        ends.dedup();
        for (index, end) in (0..rounds.len()).flat_map(|index| ends.iter().map(move |end| (index, *end))) {
            for more in 0..=REPEATS_OF_CONTRADICTED {
                let groups: Vec<Group> = rounds.iter().filter_map(|depths| group(depths)).collect();
                let Some(key) = rounds[index].get(end).and_then(|r| r.points.first()).map(Point::key) else {
                    break;
                };
                let Some(why) = contradiction_in(&groups, index, end) else { break };
                if more == REPEATS_OF_CONTRADICTED {
                    warnings.push(format!("{key}: {why}: predictions from it may be wrong"));
                    break;
                }
                tracing::info!(%key, %why, "measuring again");
                watcher.extra(&format!("{key}, again: {why}"));
                let round = u32::try_from(rounds[index][end].points.len()).unwrap_or(u32::MAX);
                let point = self.point(place, key, round, watcher, keep)?;
                rounds[index][end].points.push(point);
            }
        }
        Ok(())
    }

    /// The point of a round: an earlier one, or a new measurement.
    fn point(
        &self,
        place: &Place,
        key: PointKey,
        round: u32,
        watcher: &dyn Watcher,
        keep: &mut KeepParts<'_>,
    ) -> Result<Point, StudyError> {
        if let Some(point) = known(keep.earlier, round, key) {
            return Ok(point.clone());
        }
        let stop = || watcher.stop();
        let measure = || Point::measure(place, &self.plan, key, &stop);
        let contradicted = RefCell::new(Vec::new());
        let wrong = |(point, _): &(Point, _)| {
            let contradictions = point.evidence.contradictions();
            contradicted.borrow_mut().extend(contradictions.first().cloned());
            [point.disturbances(), contradictions].concat()
        };
        let (mut point, ops) = sound(watcher, &key, measure, wrong)?;
        point.contradicted = contradicted.into_inner();
        if let Some(take) = &mut keep.ops {
            let taken =
                PointOps { point: &point, round, operations: &ops, has_one_clock: place.has_one_clock() };
            take(&taken).map_err(|source| StudyError::machine("keeping operations", source))?;
        }
        keep.keep(&KeptPart::Point(round, Box::new(point.clone())))?;
        Ok(point)
    }

    /// CPU work per operation of one size and policy: of the saturated run; where the wire limited that one, for each side of it or
    /// of a run without the rate limit, whichever needed less.
    fn service(
        &self,
        place: &Place,
        group: &[&Point],
        watcher: &dyn Watcher,
        keep: &mut KeepParts<'_>,
    ) -> Result<Service, StudyError> {
        let Some(saturated) = group.last() else { return Ok(Service::default()) };
        let key @ PointKey { block_bytes, policy, .. } = saturated.key();
        let wire_limit = 1e6 / self.path_cost(place, saturated, policy.is_nodelay()).w2_us;
        let wire_bound = place.has_wire() && saturated.iops_bare > WIRE_BOUND_FROM * wire_limit;
        let limited = saturated.evidence.divide(saturated.cpu);
        if saturated.cpu_busy.server >= CPU_BOUND_FROM || !wire_bound {
            return Ok(Service { cost: limited, unlimited: None });
        }
        let known = keep.earlier.iter().find_map(|part| match part {
            KeptPart::Unlimited(size, of, run) if (*size, *of) == (block_bytes, policy) => Some(run),
            _ => None,
        });
        let unlimited = match known.filter(|run| run.disturbances().is_empty()) {
            Some(run) => run.clone(),
            None => {
                let title = format!("{block_bytes} B, {policy}, without the wire's rate limit");
                watcher.extra(&title);
                let measure = || Unlimited::measure(place, &self.plan, key, &|| watcher.stop());
                let run = Box::new(sound(watcher, &title, measure, Unlimited::disturbances)?);
                keep.keep(&KeptPart::Unlimited(block_bytes, policy, run.clone()))?;
                run
            }
        };
        // With the CPUs as the bottleneck one of them still waits for the other.
        let cost = unlimited.service().least(limited);
        Ok(Service { cost, unlimited: Some(unlimited) })
    }

    fn stanza(
        &self,
        place: &Place,
        point: &Point,
        group: &[&Point],
        repeats: Repeats,
        service: &Service,
    ) -> Stanza {
        let Service { cost: service, unlimited } = service;
        let depth_one = group.first().copied().unwrap_or(point);
        let nodelay = point.policy.is_nodelay();
        let path = place.has_wire().then(|| self.path_cost(place, point, nodelay));
        let breakdown = Breakdown::of(&StanzaInput {
            queue_depth: point.queue_depth,
            iops: point.iops,
            rtt_us: point.rtt_us,
            segments: point.segments,
            cpu: *service,
            path,
            sharing: place.placement.sharing().into(),
            depth_one: &depth_one.segments,
            shares: point.evidence.shares(),
            softirqs: place.softirqs(),
        });
        let printed = Printed {
            iops: point.iops_bare,
            cpu_busy: point.cpu_busy.into(),
            service,
            unlimited: unlimited.as_ref().and_then(|run| run.evidence()),
            segments: &point.segments,
            breakdown: &breakdown,
        };
        let mut disturbed = disturbances(point.disturbance);
        disturbed.extend(unlimited.iter().flat_map(|run| run.disturbances()));
        let disturbances = Disturbances { printed: &disturbed, traced: point.evidence.disturbances() };
        let closure = Closure::of(&printed, point.evidence.evidence(), &disturbances);
        // Calibrated once for the size and policy, at the wire's cost with a full queue.
        let at_depth =
            place.has_wire().then(|| self.path_cost(place, group.last().copied().unwrap_or(point), nodelay));
        let repeat = repeats.depth_one.max((depth_one.iops / depth_one.iops_bare - 1.0).abs());
        let last = group.last().copied().unwrap_or(point);
        let limit = Limit { queue_depth: last.queue_depth, iops: last.iops_bare, repeat: repeats.deepest };
        let one = AtDepthOne { segments: &depth_one.segments, iops: depth_one.iops_bare, repeat };
        let link = Link::ethernet(place.bits_per_second, place.mtu_bytes);
        let setup = |calibrated| setup_of(calibrated, link, point.block_bytes, point.policy);
        let predicted = calibrate_to(&one, service, at_depth.as_ref(), limit, &setup)
            .and_then(|fitted| Prediction::of(&fitted, point.queue_depth, point.iops_bare, limit))
            .inspect_err(|error| tracing::warn!(%error, "no prediction"))
            .ok();
        Stanza {
            block_size_bytes: point.block_bytes,
            policy: point.policy.to_string(),
            queue_depth: point.queue_depth,
            iops: point.iops_bare,
            iops_observed: point.iops,
            tpt_us: Stanza::tpt_of(point.iops),
            rtt_us: point.rtt_us,
            segments: point.segments,
            cpu: point.cpu,
            service: *service,
            path,
            cpu_busy: point.cpu_busy.into(),
            user_share: point.user_share.into(),
            breakdown,
            closure,
            evidence: point.evidence.evidence().ok().cloned(),
            iops_traced: point.evidence.iops(),
            predicted,
            model_iops: None,
            simulated_iops: None,
            completed: point.completed,
            followed: point.followed,
            holes: point.holes.clone(),
            busy_count_share: (1..=8).map(|n| point.busy_count.share(n)).collect(),
            avg_busy: point.busy_count.avg_busy(),
            runs: Vec::new(),
            repeatability: None,
        }
    }

    fn path_cost(&self, place: &Place, point: &Point, nodelay: bool) -> PathCost {
        let wire = Wire::ethernet(place.bits_per_second, place.mtu_bytes);
        let request = if point.request_bytes > 0 { point.request_bytes } else { ISCSI_HEADER_BYTES.into() };
        let response = point.response_bytes.max(u64::from(ISCSI_HEADER_BYTES));
        // Responses share packets also without Nagle's algorithm, where TCP holds some back. If nothing counted the packets, each
        // response has its own without Nagle, and with it they fill packets at depth.
        let seen = point.evidence.evidence().ok().map(|evidence| evidence.traced.responses_per_packet);
        let shared = !nodelay && point.queue_depth > 1;
        PathCost {
            w1_us: wire.own_packets_us(request),
            w2_us: match seen {
                Some(responses) if responses > 0.0 => wire.in_packets_us(response, 1.0 / responses),
                _ if shared => wire.packed_us(response),
                _ => wire.own_packets_us(response),
            },
            token_bucket: place.is_shaped(),
        }
    }
}

/// The runs of a size and policy; `None` if it has no depth.
fn group(depths: &[Rounds]) -> Option<Group> {
    let block_bytes = depths.first()?.points.first()?.block_bytes;
    let runs = |rounds: &Rounds| {
        let iops = rounds.points.iter().map(|point| point.iops_bare).collect();
        Some((rounds.points.first()?.queue_depth, iops))
    };
    Some(Group { block_bytes, depths: depths.iter().filter_map(runs).collect() })
}

/// The reliable measurement of a point that an earlier study has kept; a disturbed one is measured again.
fn known(earlier: &[KeptPart], round: u32, key: PointKey) -> Option<&Point> {
    earlier.iter().find_map(|part| match part {
        KeptPart::Point(of, point)
            if *of == round && point.key() == key && point.disturbances().is_empty() =>
        {
            Some(&**point)
        }
        _ => None,
    })
}

/// Warnings about a point.
fn warn(point: &Point, warnings: &mut Vec<String>) {
    let name = point.key();
    for contradiction in &point.contradicted {
        warnings.push(format!(
            "{name}: measured again, because its observers contradicted each other: {contradiction}"
        ));
    }
    if let Some(error) = &point.errors {
        warnings.push(format!("{name}: operations failed; the first: {error}"));
    }
    if point.drops > 0 {
        warnings.push(format!("{name}: the capture lost {} packets", point.drops));
    }
    let sum = |of: fn(&capture::Counters) -> u64| point.counters.iter().map(of).sum::<u64>();
    if sum(|c| c.retransmitted) > 0 {
        warnings.push(format!("{name}: {} segments were retransmitted", sum(|c| c.retransmitted)));
    }
    if sum(|c| c.holes) + sum(|c| c.boundaries_lost) > 0 {
        warnings.push(format!(
            "{name}: the capture has {} holes and lost the boundary between PDUs {} times ({} bytes passed over)",
            sum(|c| c.holes),
            sum(|c| c.boundaries_lost),
            sum(|c| c.skipped_bytes)
        ));
    }
    let missing: u64 = point
        .holes
        .iter()
        .filter(|h| h.reason != record::HoleReason::NotCompletedByClient)
        .map(|h| h.operations)
        .sum();
    if point.followed + missing < point.completed {
        let unrecorded = point.completed - point.followed - missing;
        warnings.push(format!("{name}: {unrecorded} operations came after the record was full"));
    }
    for hole in &point.holes {
        warnings.push(format!("{name}: {} operations {}", hole.operations, hole.reason.text()));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Counting(std::sync::Mutex<Vec<String>>);

    impl Watcher for Counting {
        fn point(&self, _: &str) {}
        fn extra(&self, title: &str) {
            self.0.lock().unwrap().push(title.to_owned());
        }
        fn stop(&self) -> bool {
            false
        }
    }

    /// What the measurements number 1, 2, 3 ... are like, and which of them is returned.
    fn returned(are_sound: &[bool]) -> (usize, usize) {
        let watcher = Counting(std::sync::Mutex::default());
        let number = Cell::new(0);
        let measure = || {
            number.set(number.get() + 1);
            Ok(number.get())
        };
        let wrong = |n: &usize| if are_sound[n - 1] { Vec::new() } else { vec![format!("{n} is wrong")] };
        let taken = sound(&watcher, &"point", measure, wrong).unwrap();
        let extra = watcher.0.into_inner().unwrap();
        for (number, title) in extra.iter().enumerate() {
            assert_eq!(*title, format!("point, again: {} is wrong", number + 1));
        }
        (taken, extra.len())
    }

    /// An instrument that is wrong is wrong each time, and what it measured last is judged.
    #[test]
    fn what_is_wrong_is_measured_again_twice_at_most() {
        assert_eq!(returned(&[true]), (1, 0));
        assert_eq!(returned(&[false, true]), (2, 1));
        assert_eq!(returned(&[false, false, true]), (3, 2));
        assert_eq!(returned(&[false, false, false]), (3, 2));
    }
}
