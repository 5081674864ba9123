//! One point of a study: a bare run for throughput and CPU time, an observed run for the capture points.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use capture::{Counters, Role};
use initiator::{Bench, BenchSpec, IscsiUrl, Pattern, Phase, SessionOptions};
use insight::{CpuCost, Segments};
use ring::{Op, OpKind, Sighting, sighting};
use target::{BusyCount, LunConfig, RunningTarget, SendPolicy, TargetConfig};

use crate::accounts::{CpuUse, Snapshot, per_operation};
use crate::error::StudyError;
use crate::place::{OPERATIONS_MAX, Place};
use crate::plan::Plan;
use crate::result::{Observation, Sample, Series};

/// The name of the study's target.
const IQN: &str = "iqn.2026-11.example.roundtrip:study";

/// How long the target may take to notice that a session has ended.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);

/// Operations in a chart's sample.
const SAMPLES: usize = 1500;

/// What one point measured.
pub(crate) struct Point {
    pub(crate) block_bytes: u64,
    pub(crate) policy: SendPolicy,
    pub(crate) queue_depth: u32,
    pub(crate) iops_bare: f64,
    pub(crate) iops: f64,
    pub(crate) rtt_us: f64,
    pub(crate) cpu: CpuCost,
    pub(crate) cpu_busy: (f64, f64),
    pub(crate) steal: f64,
    pub(crate) others: f64,
    pub(crate) segments: Segments,
    pub(crate) completed: u64,
    pub(crate) followed: u64,
    pub(crate) holes: Vec<ring::Hole>,
    pub(crate) response_bytes: u64,
    pub(crate) request_bytes: u64,
    pub(crate) busy_count: BusyCount,
    pub(crate) drops: u64,
    pub(crate) counters: Vec<Counters>,
    pub(crate) errors: Option<String>,
    pub(crate) series: Series,
}

impl Point {
    /// Measures one point.
    pub(crate) fn measure(
        place: &Place,
        plan: &Plan,
        block_bytes: u64,
        policy: SendPolicy,
        queue_depth: u32,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Self, StudyError> {
        let bare = run(place, plan, (block_bytes, policy, queue_depth), false, stop)?;
        if stop() {
            return Err(StudyError::Interrupted);
        }
        let observed = run(place, plan, (block_bytes, policy, queue_depth), true, stop)?;
        if stop() {
            return Err(StudyError::Interrupted);
        }
        let joined = sighting::join(&observed.bench.laps, &observed.client, &observed.server);
        let (begin, end) = observed.bench.window;
        // The ramp and the drain are joined, so that nothing is missed, but not measured.
        let inside = |op: &&Op| op.finish >= begin && op.finish <= end;
        let measured: Vec<Op> = joined.ops.iter().filter(inside).copied().collect();
        let first = measured.first().copied().unwrap_or_default();
        let seconds = bare.seconds.max(1e-9);
        let result = &observed.bench.result;
        let title = format!("{block_bytes} B reads, {policy}, queue depth {queue_depth}");
        let mut holes = joined.holes;
        // Operations that the client had not finished when the capture ended are no loss.
        holes.retain(|h| h.operations > 0);
        Ok(Self {
            block_bytes,
            policy,
            queue_depth,
            iops_bare: bare.bench.result.iops,
            iops: result.iops,
            rtt_us: result.latency_us.mean,
            cpu: per_operation(bare.client_cpu, bare.server_cpu, bare.bench.result.operations),
            cpu_busy: (bare.client_cpu.busy / seconds, bare.server_cpu.busy / seconds),
            steal: (bare.client_cpu.steal + bare.server_cpu.steal) / (2.0 * seconds),
            others: bare.others,
            segments: Segments::of(&measured, true),
            completed: observed.bench.laps.len() as u64 + observed.bench.laps_over_limit,
            followed: joined.ops.len() as u64,
            holes,
            response_bytes: first.response_bytes.into(),
            request_bytes: first.request_bytes.into(),
            busy_count: bare.busy_count,
            drops: observed.drops,
            counters: observed.counters,
            errors: [&bare.bench.result, result].iter().find_map(|r| r.first_error.clone()),
            series: series(title, &measured),
        })
    }
}

/// CPU work per operation with the CPUs as the bottleneck: the paper's CPU-bound run. On a wire the rate limit
/// is lifted for it, or sizes that are network bound would never show it: a thread that sleeps between
/// operations pays for its wake-ups as well.
pub(crate) fn calibrate(
    place: &Place,
    plan: &Plan,
    point: (u64, SendPolicy, u32),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<CpuCost, StudyError> {
    let run = place.unlimited(plan.bits_per_second, || run(place, plan, point, false, stop))?;
    if stop() {
        return Err(StudyError::Interrupted);
    }
    Ok(per_operation(run.client_cpu, run.server_cpu, run.bench.result.operations))
}

/// One run's raw results.
struct Run {
    bench: Bench,
    client_cpu: CpuUse,
    server_cpu: CpuUse,
    seconds: f64,
    /// Share of the CPUs that other programs used.
    others: f64,
    client: Vec<Sighting>,
    server: Vec<Sighting>,
    busy_count: BusyCount,
    drops: u64,
    counters: Vec<Counters>,
}

fn run(
    place: &Place,
    plan: &Plan,
    (block_bytes, policy, queue_depth): (u64, SendPolicy, u32),
    observed: bool,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Run, StudyError> {
    let stamped = observed && place.observation == Observation::SocketStamps;
    let store = std::sync::Arc::new(store::Zero::new(plan.disk_bytes));
    let block = store::spec::BLOCK_BYTES_DEFAULT;
    let lun = LunConfig { block_bytes: block, physical_bytes: block, ..LunConfig::new(0, store) };
    let config = TargetConfig {
        send: policy,
        tcp: place.tcp(),
        stamp_operations: stamped.then_some(OPERATIONS_MAX),
        ..TargetConfig::new((place.server_address(), 0).into(), IQN, vec![lun])
    };
    let target = place.on_server(|| RunningTarget::start(config))??;
    let port = target.address().port();
    let watches = if observed { place.watch(port)? } else { Vec::new() };
    let url = IscsiUrl { host: target.address().ip().to_string(), port, iqn: IQN.to_owned(), lun: 0 };
    let options = SessionOptions {
        tcp: place.tcp(),
        stamp_operations: stamped.then_some(OPERATIONS_MAX),
        ..SessionOptions::default()
    };
    let spec = BenchSpec {
        pattern: Pattern::RandRead,
        block_bytes,
        queue_depth,
        runtime: plan.runtime,
        ramp: plan.ramp,
        record_laps: if observed { OPERATIONS_MAX } else { 0 },
        cpu: Some(place.client_cpu),
        ..BenchSpec::default()
    };
    let snapshots = Mutex::new(Vec::new());
    let observe = |_: Phase| {
        let snapshot = Snapshot::take(&[]);
        snapshots.lock().unwrap_or_else(PoisonError::into_inner).push(snapshot);
    };
    let bench = place.on_client(|| Bench::run(&url, &options, &spec, &observe, stop))??;
    // The session's last statistics and stamps are published when its thread ends.
    if !target.wait_until_idle(CLOSE_PATIENCE) {
        tracing::warn!("a session did not end in time; its statistics may be missing");
    }
    let mut busy_count = BusyCount::default();
    target.statistics().iter().for_each(|s| busy_count.add(&s.busy_count));
    let mut server = target.take_sightings();
    target.stop();
    let (mut client, mut drops, mut counters) = (bench.sightings.clone(), 0, Vec::new());
    for report in Place::stop_watching(watches)? {
        drops += report.drops;
        for role in report.roles {
            counters.push(role.counters);
            match role.role {
                Role::Client => client.extend(role.sightings),
                Role::Server => server.extend(role.sightings),
            }
        }
    }
    // Commands of the set-up are not the client's laps.
    client.retain(|s| s.kind != OpKind::Other);
    server.retain(|s| s.kind != OpKind::Other);
    let snapshots = snapshots
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| StudyError::Machine { what: "reading /proc/stat", source })?;
    let mut cpus = vec![place.client_cpu, place.server_cpu];
    cpus.dedup();
    let (client_cpu, server_cpu, seconds, others) = match snapshots.as_slice() {
        [first, .., last] => (
            last.cpu_since(first, place.client_cpu),
            last.cpu_since(first, place.server_cpu),
            last.seconds_since(first),
            last.others_since(first, &cpus),
        ),
        _ => (CpuUse::default(), CpuUse::default(), 0.0, 0.0),
    };
    Ok(Run { bench, client_cpu, server_cpu, seconds, others, client, server, busy_count, drops, counters })
}

/// The intervals of consecutive operations from the middle of a run.
fn series(title: String, ops: &[Op]) -> Series {
    let from = ops.len().saturating_sub(SAMPLES) / 2;
    let some = &ops[from..(from + SAMPLES).min(ops.len())];
    let us = |ns: i64| ns as f64 / 1000.0;
    let first = some.first().map(|op| op.start).unwrap_or_default();
    let samples = some
        .iter()
        .filter_map(|op| {
            let split = ring::Split::of(op, true)?;
            Some(Sample {
                at_ms: us(op.start.since(first)?) / 1000.0,
                outside_client_us: us(split.rtt_ns - split.client_ns),
                server_us: us(split.server_ns),
                network_us: us(split.network_ns),
                client_us: us(split.client_ns),
                request_us: split.request_path_ns.map(us),
                response_us: split.response_path_ns.map(us),
            })
        })
        .collect();
    Series { title, samples }
}
