//! One point of a study: a bare run for throughput and CPU time, an observed run for the capture points, and a short traced run
//! with all observers at once ([`crate::traced`]).

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use analysis::breakdown::Softirqs;
use analysis::{CpuCost, Segments};
use capture::Counters;
use ftrace::Recorder;
use iscsi_target::{BusyCount, LunConfig, RunningTarget, TargetConfig, Threads};
use load::Pattern;
use load::initiator::{Bench, BenchSpec, Phase};
use policy::Sending;
use record::{Joined, Op, OpKind, Side, Writes};
use serde::{Deserialize, Serialize};
use socket::options::TcpOptions;

use crate::accounts::{CpuUse, Snapshot, per_operation};
use crate::client::{BenchDone, IscsiJob, Job};
use crate::error::StudyError;
use crate::place::{Disturbance, Place};
use crate::plan::Plan;
use crate::remote::Account;
use crate::result::Observation;
use crate::sides::Sides;
use crate::traced::TracedRun;

/// The name of the study's target.
const IQN: &str = "iqn.2026-11.example.roundtrip:study";

/// Time limit for the target to notice that a session has ended.
const CLOSE_PATIENCE: Duration = Duration::from_secs(3);

/// Share of the CPUs used by other programs above which a run counts as disturbed.
const OTHERS_MAX: f64 = 0.08;

/// Steal time above which a run counts as disturbed.
pub(crate) const STEAL_MAX: f64 = 0.02;

/// A change of the CPUs' clock above which a run counts as disturbed.
const CLOCK_MAX: f64 = 0.05;

/// The parameters that differ between points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointKey {
    /// Bytes of a read.
    pub(crate) block_bytes: u64,
    /// How both sides send.
    pub(crate) policy: Sending,
    /// Operations in flight.
    pub(crate) queue_depth: u32,
}

impl fmt::Display for PointKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} B, {}, queue depth {}", self.block_bytes, self.policy, self.queue_depth)
    }
}

/// What a run records of its operations.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Observe<'a> {
    /// Nothing: throughput and CPU time are not changed by an observer.
    Nothing,
    /// The four capture points.
    CapturePoints,
    /// The four capture points and the kernel's events, of all its time.
    Events(&'a Recorder),
}

/// The measurements of one point.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Point {
    /// Bytes of a read.
    pub block_bytes: u64,
    /// How both sides send.
    pub policy: Sending,
    /// Operations in flight.
    pub queue_depth: u32,
    pub(crate) iops_bare: f64,
    pub(crate) iops: f64,
    pub(crate) rtt_us: f64,
    pub(crate) cpu: CpuCost,
    pub(crate) cpu_busy: Sides<f64>,
    /// Share of the threads' work in user mode.
    #[serde(default)]
    pub(crate) user_share: Sides<Option<f64>>,
    pub(crate) disturbance: Disturbance,
    pub(crate) segments: Segments,
    pub(crate) completed: u64,
    pub(crate) followed: u64,
    pub(crate) holes: Vec<record::Hole>,
    pub(crate) response_bytes: u64,
    pub(crate) request_bytes: u64,
    pub(crate) busy_count: BusyCount,
    pub(crate) drops: u64,
    pub(crate) counters: Vec<Counters>,
    pub(crate) errors: Option<String>,
    pub(crate) evidence: TracedRun,
    /// How the observers of earlier measurements, which were made again for it, contradicted each other.
    #[serde(default)]
    pub(crate) contradicted: Vec<String>,
}

impl Point {
    /// Its parameters.
    pub(crate) fn key(&self) -> PointKey {
        PointKey { block_bytes: self.block_bytes, policy: self.policy, queue_depth: self.queue_depth }
    }

    /// What disturbed its runs, so that its figures are not those of the ring alone; empty if nothing did.
    pub(crate) fn disturbances(&self) -> Vec<String> {
        let mut all = disturbances(self.disturbance);
        all.extend_from_slice(self.evidence.disturbances());
        all
    }

    /// Measures a point: a bare run, then an observed one. Returns the operations of the observed run's measured time too.
    pub(crate) fn measure(
        place: &Place,
        plan: &Plan,
        key: PointKey,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(Self, Vec<Op>), StudyError> {
        let PointKey { block_bytes, policy, queue_depth } = key;
        let bare = run(place, plan, key, Observe::Nothing, stop)?;
        if stop() {
            return Err(StudyError::Interrupted);
        }
        let observed = run(place, plan, key, Observe::CapturePoints, stop)?;
        if stop() {
            return Err(StudyError::Interrupted);
        }
        let evidence = TracedRun::measure(place, plan, key, stop)?;
        if stop() {
            return Err(StudyError::Interrupted);
        }
        let joined = observed.joined();
        let measured = observed.measured(&joined.ops);
        let first = measured.first().copied().unwrap_or_default();
        let result = &observed.bench.result;
        let mut holes = joined.holes;
        holes.retain(|h| h.operations > 0);
        let point = Self {
            block_bytes,
            policy,
            queue_depth,
            iops_bare: bare.bench.result.iops,
            iops: result.iops,
            rtt_us: result.latency_us.mean,
            cpu: bare.accounts.cpu,
            cpu_busy: bare.accounts.cpu_busy,
            user_share: bare.accounts.user_share,
            disturbance: bare.accounts.disturbance.max(observed.accounts.disturbance),
            segments: Segments::of(&measured, place.has_one_clock()),
            completed: observed.bench.ops.len() as u64 + observed.bench.ops_over_limit,
            followed: joined.ops.len() as u64,
            holes,
            response_bytes: first.response_bytes.into(),
            request_bytes: first.request_bytes.into(),
            busy_count: bare.busy_count,
            drops: observed.drops,
            counters: observed.counters,
            errors: [&bare.bench.result, result].iter().find_map(|r| r.first_error.clone()),
            evidence,
            contradicted: Vec::new(),
        };
        Ok((point, measured))
    }
}

/// What disturbed runs, one sentence each.
pub(crate) fn disturbances(found: Disturbance) -> Vec<String> {
    let mut all = Vec::new();
    if found.others > OTHERS_MAX {
        all.push(format!("other programs used {:.0} % of the CPUs", found.others * 100.0));
    }
    if found.steal > STEAL_MAX {
        all.push(format!("other guests of the machine took {:.1} % of the CPUs", found.steal * 100.0));
    }
    if found.clock > CLOCK_MAX {
        all.push(format!("the CPUs' clock changed by {:.0} %", found.clock * 100.0));
    }
    all
}

/// One run's raw results.
pub(crate) struct Run {
    pub(crate) bench: Bench,
    pub(crate) accounts: Accounts,
    pub(crate) client: Vec<Op>,
    pub(crate) server: Vec<Op>,
    pub(crate) busy_count: BusyCount,
    pub(crate) drops: u64,
    pub(crate) counters: Vec<Counters>,
    /// This process's threads at the end of the load: the target's, and the captures'.
    pub(crate) threads: Vec<i32>,
}

impl Run {
    /// The operations of all observers, joined.
    pub(crate) fn joined(&self) -> Joined {
        record::join(&self.bench.ops, &self.client, &self.server)
    }

    /// Those of the measured time. Operations of the ramp and the drain are joined, so that none is missing, but not measured.
    pub(crate) fn measured(&self, ops: &[Op]) -> Vec<Op> {
        let (begin, end) = self.bench.window;
        ops.iter().filter(|op| op.finish >= begin && op.finish <= end).copied().collect()
    }
}

pub(crate) fn run(
    place: &Place,
    plan: &Plan,
    PointKey { block_bytes, policy, queue_depth }: PointKey,
    observe: Observe<'_>,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Run, StudyError> {
    let observed = !matches!(observe, Observe::Nothing);
    let stamped =
        (observed && place.observation == Observation::SocketStamps).then(|| place.operations_max());
    let store = std::sync::Arc::new(store::Zero::new(plan.disk_bytes));
    let block = store::spec::BLOCK_BYTES_DEFAULT;
    let lun = LunConfig { block_bytes: block, physical_bytes: block, ..LunConfig::new(0, store) };
    let config = TargetConfig {
        threads: Threads::Loops(1),
        send: policy.policy,
        tcp: place.tcp(),
        stamp_operations: stamped,
        ..TargetConfig::new((place.server_address(), 0).into(), IQN, vec![lun])
    };
    let target = place.on_server(|| RunningTarget::start(config))??;
    let watches = if observed { place.watch(target.address().port())? } else { Vec::new() };
    let spec = BenchSpec {
        pattern: Pattern::RandRead,
        block_bytes,
        queue_depth,
        runtime: plan.runtime,
        ramp: plan.ramp,
        record_ops: if observed { place.operations_max() } else { 0 },
        ..BenchSpec::default()
    };
    let job = Job::Iscsi(Box::new(IscsiJob {
        url: format!("iscsi://{}/{IQN}/0", target.address()),
        tcp: TcpOptions { nodelay: !policy.client_nagle, ..place.tcp() },
        writes: Writes::One,
        login: load::initiator::Login::default(),
        spec,
        stamp_operations: stamped,
        watch: observed && place.is_remote() && place.may_trace(),
    }));
    let snapshots = Mutex::new(Vec::new());
    let on_phase = |_: Phase| {
        let snapshot = Snapshot::take(&[]);
        snapshots.lock().unwrap_or_else(PoisonError::into_inner).push(snapshot);
    };
    let performed = match observe {
        Observe::Events(recorder) => {
            recorder.begin().map_err(TracedRun::failed)?;
            let performed = place.perform(&job, &on_phase, stop);
            recorder.end().map_err(TracedRun::failed)?;
            performed?
        }
        Observe::Nothing | Observe::CapturePoints => place.perform(&job, &on_phase, stop)?,
    };
    let threads = threads();
    let account = performed.is_remote.then_some(performed.reply.account);
    let BenchDone { bench, watched } = performed.reply.done.bench()?;
    // The session's last statistics and stamps are published when its thread ends.
    if !target.wait_until_idle(CLOSE_PATIENCE) {
        tracing::warn!("a session did not end in time; its statistics may be missing");
    }
    let mut busy_count = BusyCount::default();
    target.statistics().iter().for_each(|s| busy_count.add(&s.busy_count));
    let mut server = target.take_ops();
    target.stop();
    let (mut client, mut drops, mut counters) = (bench.seen.clone(), 0, Vec::new());
    for report in Place::stop_watching(watches)? {
        drops += report.drops;
        for side in report.sides {
            counters.push(side.counters);
            match side.side {
                Side::Client => client.extend(side.ops),
                Side::Server => server.extend(side.ops),
            }
        }
    }
    if let Some(watched) = watched {
        drops += watched.drops;
        counters.push(watched.counters);
        client.extend(watched.seen);
    }
    // Commands of the login and the set-up are not operations of the load.
    client.retain(|s| s.kind != OpKind::Other);
    server.retain(|s| s.kind != OpKind::Other);
    let snapshots = snapshots
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|source| StudyError::machine("reading /proc/stat", source))?;
    let accounts = match snapshots.as_slice() {
        [first, .., last] => accounts(place, first, last, account, bench.result.operations),
        _ => Accounts::default(),
    };
    Ok(Run { bench, accounts, client, server, busy_count, drops, counters, threads })
}

/// The numbers of this process's threads.
fn threads() -> Vec<i32> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok()).collect()
}

/// The use of the CPUs between two snapshots.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accounts {
    /// Work per operation.
    pub(crate) cpu: CpuCost,
    /// How busy the threads' CPUs were, 0 to 1.
    pub(crate) cpu_busy: Sides<f64>,
    /// Share of the threads' work in user mode, 0 to 1.
    pub(crate) user_share: Sides<Option<f64>>,
    /// Use by others.
    pub(crate) disturbance: Disturbance,
}

fn accounts(
    place: &Place,
    first: &Snapshot,
    last: &Snapshot,
    client: Option<Account>,
    operations: u64,
) -> Accounts {
    let seconds = last.seconds_since(first).max(1e-9);
    let placement = place.placement;
    let of = |cpu: Option<usize>| cpu.map_or(CpuUse::default(), |cpu| last.cpu_since(first, cpu));
    let server = apart(of(placement.server), of(placement.server_softirq));
    let mut disturbance = Disturbance { clock: last.frequency_change(first), ..Disturbance::default() };
    if let Some(there) = client {
        let there_seconds = there.seconds.max(1e-9);
        disturbance.steal = (there.cpu.steal / there_seconds).max(server.steal / seconds);
        disturbance.others = last.others_since(first, &[place.server_cpu]).max(there.others);
        let cpu_busy = Sides { client: there.cpu.busy / there_seconds, server: server.busy / seconds };
        let user_share = Sides { client: there.cpu.user_share(), server: server.user_share() };
        return Accounts {
            cpu: per_operation(there.cpu, server, operations),
            cpu_busy,
            user_share,
            disturbance,
        };
    }
    let mut client = apart(of(placement.client), of(placement.client_softirq));
    let mut server = server;
    if place.softirqs() == Softirqs::Common {
        // Accounting does not tell for which side a common softirq works: each gets half.
        for side in [&mut client, &mut server] {
            side.busy -= side.softirq / 2.0;
            side.softirq /= 2.0;
        }
    }
    let mut cpus = vec![place.client_cpu, place.server_cpu];
    cpus.dedup();
    disturbance.steal = (client.steal + server.steal) / (2.0 * seconds);
    disturbance.others = last.others_since(first, &cpus);
    let busy = |cpu: usize| last.cpu_since(first, cpu).busy / seconds;
    let cpu = per_operation(client, server, operations);
    let cpu_busy = Sides { client: busy(place.client_cpu), server: busy(place.server_cpu) };
    let user_share = Sides { client: client.user_share(), server: server.user_share() };
    Accounts { cpu, cpu_busy, user_share, disturbance }
}

/// The use of a side whose thread and softirq have these CPUs.
fn apart(thread: CpuUse, softirq: CpuUse) -> CpuUse {
    CpuUse {
        busy: thread.busy - thread.softirq + softirq.softirq,
        softirq: softirq.softirq,
        user: thread.user,
        steal: thread.steal,
    }
}
