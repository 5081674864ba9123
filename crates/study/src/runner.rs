//! From a plan to a result.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use insight::predict::{Limit, calibrate_to};
use insight::{Breakdown, CpuCost, PathCost, Prediction, Stanza, StanzaInput};
use ring::CpuSharing;
use ring::wire::{ISCSI_HEADER_BYTES, Wire};

use crate::error::StudyError;
use crate::machine::Machine;
use crate::place::Place;
use crate::plan::Plan;
use crate::point::{Point, calibrate};
use crate::result::StudyResult;

/// Who looks on while a study runs.
pub trait Watcher: Sync {
    /// The next point begins.
    fn point(&self, title: &str);
    /// Whether to stop; asked often.
    fn stop(&self) -> bool;
}

/// A study to be run.
#[derive(Clone, Debug)]
pub struct Study {
    /// What to measure.
    pub plan: Plan,
    /// Use loopback even where a wire could be made.
    pub loopback: bool,
}

/// A server CPU busier than this is the bottleneck.
const CPU_BOUND_FROM: f64 = 0.93;

/// A run nearer than this to what the wire carries is limited by it.
const WIRE_BOUND_FROM: f64 = 0.9;

/// Share of the CPUs used by other programs above which a run counts as disturbed.
const OTHERS_MAX: f64 = 0.08;

/// Steal time above which a run counts as disturbed.
const STEAL_MAX: f64 = 0.02;

impl Study {
    /// Runs it.
    ///
    /// # Errors
    /// When the place cannot be made, a run fails, or the watcher stops it. Whatever was made is gone then.
    pub fn run(&self, watcher: &dyn Watcher) -> Result<StudyResult, StudyError> {
        let started = Instant::now();
        let began_unix_seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut warnings = Vec::new();
        let place = Place::choose(&self.plan, self.loopback, &mut warnings)?;
        let (mut stanzas, mut series) = (Vec::new(), Vec::new());
        for &policy in &self.plan.policies {
            for &block_bytes in &self.plan.block_bytes {
                let mut points = Vec::new();
                for &queue_depth in &self.plan.queue_depths {
                    watcher.point(&format!("{block_bytes} B, {policy}, queue depth {queue_depth}"));
                    let stop = || watcher.stop();
                    points.push(Point::measure(&place, &self.plan, block_bytes, policy, queue_depth, &stop)?);
                }
                let service = self.service(&place, &points, watcher)?;
                for point in &points {
                    warn(point, &mut warnings);
                    stanzas.push(self.stanza(&place, point, &points, service));
                }
                series.extend(points.into_iter().map(|p| p.series));
            }
        }
        for s in stanzas.iter().filter(|s| !s.breakdown.closure.holds) {
            let c = &s.breakdown.closure;
            warnings.push(format!(
                "{} B, {}, queue depth {}: sums do not come out (stages {:+.2} % of RTT, IOPS x RTT {:+.2} % of QD)",
                s.block_size_bytes,
                s.policy,
                s.queue_depth,
                c.stages_error * 100.0,
                c.queue_depth_error * 100.0
            ));
        }
        if place.has_wire() {
            warnings.push(
                "the wire's rate is kept by a token bucket in front of S2 and C1: frames wait there for their turn and then cross at \
                 once, so W1 and W2 are the spacing of frames (in TPTmin) but no part of an operation's way; at depth that \
                 wait is in SW and CW"
                    .to_owned(),
            );
        }
        Ok(StudyResult {
            format: 1,
            began_unix_seconds,
            seconds: started.elapsed().as_secs_f64(),
            machine: Machine::here(),
            plan: self.plan.clone(),
            wire: place.has_wire(),
            observation: place.observation,
            congestion: place.congestion.clone(),
            cpus: (place.client_cpu, place.server_cpu),
            warnings,
            stanzas,
            series,
        })
    }

    /// CPU work per operation of one size and policy: of the saturated run, or where the wire limited that, of
    /// a run without the rate limit: a thread that sleeps between operations pays for its wake-ups too.
    fn service(&self, place: &Place, group: &[Point], watcher: &dyn Watcher) -> Result<CpuCost, StudyError> {
        let Some(saturated) = group.last() else { return Ok(CpuCost::default()) };
        let nodelay = saturated.policy.is_nodelay();
        let wire_limit = 1e6 / self.path_cost(saturated, nodelay).w2_us;
        let wire_bound = place.has_wire() && saturated.iops_bare > WIRE_BOUND_FROM * wire_limit;
        if saturated.cpu_busy.1 >= CPU_BOUND_FROM || !wire_bound {
            return Ok(saturated.cpu);
        }
        let stop = || watcher.stop();
        let point = (saturated.block_bytes, saturated.policy, saturated.queue_depth);
        Ok(calibrate(place, &self.plan, point, &stop)?.at_most(1e6 / saturated.iops_bare))
    }

    fn stanza(&self, place: &Place, point: &Point, group: &[Point], service: CpuCost) -> Stanza {
        let depth_one = group.first().unwrap_or(point);
        let nodelay = point.policy.is_nodelay();
        let path = place.has_wire().then(|| self.path_cost(point, nodelay));
        let one_cpu = CpuSharing::Uniprocessor;
        let breakdown = Breakdown::of(&StanzaInput {
            block_bytes: point.block_bytes,
            nodelay,
            queue_depth: point.queue_depth,
            iops: point.iops,
            rtt_us: point.rtt_us,
            segments: point.segments,
            cpu: service,
            path,
            sharing: (one_cpu, one_cpu),
            depth_one: &depth_one.segments,
        });
        // Calibrated once for the size and policy, at the wire's cost with a full queue.
        let at_depth = place.has_wire().then(|| self.path_cost(group.last().unwrap_or(point), nodelay));
        let repeat = (depth_one.iops / depth_one.iops_bare - 1.0).abs();
        let last = group.last().unwrap_or(point);
        let limit = Limit { queue_depth: last.queue_depth, iops: last.iops_bare };
        let predicted = calibrate_to(&depth_one.segments, &service, at_depth.as_ref(), repeat, limit)
            .and_then(|c| Prediction::of(&c.ring, point.queue_depth, point.iops_bare))
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
            service,
            path,
            cpu_busy: point.cpu_busy,
            breakdown,
            predicted,
            completed: point.completed,
            followed: point.followed,
            holes: point.holes.clone(),
            busy_count_share: (1..=8).map(|n| point.busy_count.share(n)).collect(),
            avg_busy: point.busy_count.avg_busy(),
        }
    }

    fn path_cost(&self, point: &Point, nodelay: bool) -> PathCost {
        let wire = Wire::ethernet(self.plan.bits_per_second, self.plan.mtu_bytes);
        let request = if point.request_bytes > 0 { point.request_bytes } else { ISCSI_HEADER_BYTES.into() };
        let response = point.response_bytes.max(u64::from(ISCSI_HEADER_BYTES));
        // Without Nagle each response has packets of its own; with it, responses share full ones at depth.
        let shared = !nodelay && point.queue_depth > 1;
        PathCost {
            w1_us: wire.own_packets_us(request),
            w2_us: if shared { wire.packed_us(response) } else { wire.own_packets_us(response) },
            token_bucket: true,
        }
    }
}

/// What about a point the reader must know.
fn warn(point: &Point, warnings: &mut Vec<String>) {
    let name = format!("{} B, {}, queue depth {}", point.block_bytes, point.policy, point.queue_depth);
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
        .filter(|h| h.reason != ring::HoleReason::NotCompletedByClient)
        .map(|h| h.operations)
        .sum();
    if point.followed + missing < point.completed {
        let unrecorded = point.completed - point.followed - missing;
        warnings.push(format!("{name}: {unrecorded} operations came after the record was full"));
    }
    for hole in &point.holes {
        warnings.push(format!("{name}: {} operations {}", hole.operations, hole.reason.text()));
    }
    if point.others > OTHERS_MAX {
        warnings.push(format!(
            "{name}: other programs used {:.0} % of the CPUs; CPU work per operation is too high by that",
            point.others * 100.0
        ));
    }
    if point.steal > STEAL_MAX {
        warnings.push(format!(
            "{name}: other guests of the machine took {:.1} % of the CPUs",
            point.steal * 100.0
        ));
    }
}
