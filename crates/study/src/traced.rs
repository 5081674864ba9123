//! The traced run of a point: a short load that all observers see at once, so that they can be compared. Its cost is in no figure of
//! the other runs.

use std::time::Duration;

use analysis::stages::{SideCpus, SideWork, TraceWindow, Traced};
use analysis::{CpuCost, Evidence, Segments, Shares};
use ftrace::{Devices, Recorder, TraceError};
use record::{Op, Side};
use serde::{Deserialize, Serialize};

use crate::error::StudyError;
use crate::place::Place;
use crate::plan::Plan;
use crate::point::{Observe, PointKey, Run, STEAL_MAX, run};

/// Measured time of a traced run.
const RUNTIME: Duration = Duration::from_millis(300);
/// Time before it.
const RAMP: Duration = Duration::from_millis(100);
/// Buffer of a CPU, bytes: half a second of the busiest ring on this program's developers' machines, twice.
const BUFFER_BYTES: usize = 48 << 20;
/// Share of the CPUs used by others above which a traced run is disturbed.
const OTHERS_MAX: f64 = 0.08;

/// The outcome of a point's traced run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum TracedRun {
    /// What was seen.
    Seen(Box<Seen>),
    /// Why the kernel's events are not available.
    NotVerified(String),
}

/// What was seen in a traced run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) evidence: Evidence,
    /// Operations per second, for the tracer's cost.
    pub(crate) iops: f64,
    /// Why the events are not complete or not those of the ring alone.
    pub(crate) disturbances: Vec<String>,
}

/// Where the kernel's events of a place are.
#[derive(Clone, Debug)]
pub(crate) struct Traceable {
    /// The network devices.
    pub(crate) devices: Devices,
    /// The client's CPUs.
    pub(crate) client: SideCpus,
    /// The server's CPUs.
    pub(crate) server: SideCpus,
}

impl Traceable {
    fn cpus(&self) -> Vec<usize> {
        let all = [self.client.thread, self.client.softirq, self.server.thread, self.server.softirq];
        let mut cpus: Vec<usize> = all.into_iter().map(usize::from).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    }

    fn has_own_cpus(&self) -> bool {
        self.client.thread == self.client.softirq
            && self.server.thread == self.server.softirq
            && self.client.thread != self.server.thread
    }
}

impl TracedRun {
    pub(crate) fn failed(error: TraceError) -> StudyError {
        StudyError::machine("tracing a run", std::io::Error::other(error))
    }

    /// Runs a point once more with all observers.
    pub(crate) fn measure(
        place: &Place,
        plan: &Plan,
        key: PointKey,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Self, StudyError> {
        let at = match place.traceable() {
            Ok(at) => at,
            Err(why) => return Ok(Self::NotVerified(why.to_owned())),
        };
        let mut recorder = match Recorder::open(at.devices.clone(), &at.cpus(), BUFFER_BYTES) {
            Ok(recorder) => recorder,
            Err(error @ (TraceError::NotPermitted { .. } | TraceError::Missing { .. })) => {
                return Ok(Self::NotVerified(error.to_string()));
            }
            Err(error) => return Err(Self::failed(error)),
        };
        let plan = Plan { runtime: RUNTIME.min(plan.runtime), ramp: RAMP, ..plan.clone() };
        let run = run(place, &plan, key, Observe::Events(&recorder), stop)?;
        if stop() {
            return Err(StudyError::Interrupted);
        }
        let recorded = recorder.events().map_err(Self::failed)?;
        drop(recorder);
        let mut disturbances = Vec::new();
        if recorded.lost > 0 {
            disturbances.push(format!("{} events of the traced run did not fit its buffer", recorded.lost));
        }
        if run.drops > 0 {
            disturbances.push(format!("the capture lost {} packets of the traced run", run.drops));
        }
        let retransmitted: u64 = run.counters.iter().map(|counters| counters.retransmitted).sum();
        if retransmitted > 0 {
            disturbances.push(format!("{retransmitted} segments of the traced run were retransmitted"));
        }
        let steal = run.accounts.disturbance.steal;
        if steal > STEAL_MAX {
            disturbances.push(format!(
                "other guests of the machine took {:.1} % of the CPUs in the traced run",
                steal * 100.0
            ));
        }
        let joined = run.joined();
        let measured = run.measured(&joined.ops);
        let Some(window) = window(&run, &measured, key, &at, &recorded) else {
            return Ok(Self::NotVerified("the traced run completed no operation".to_owned()));
        };
        let traced = match Traced::of(&window) {
            Ok(traced) => traced,
            Err(error) => return Ok(Self::NotVerified(error.to_string())),
        };
        for (side, work) in [(Side::Client, traced.client), (Side::Server, traced.server)] {
            let others = work.others_us * traced.iops / 1e6;
            if others > OTHERS_MAX {
                let name = side.name();
                disturbances.push(format!(
                    "other programs took {:.0} % of the {name}'s CPU in the traced run",
                    others * 100.0
                ));
            }
        }
        let seconds = (window.measured_ns.1 - window.measured_ns.0) as f64 / 1e9;
        let operations = (traced.iops * seconds).max(1.0);
        let completed = run.measured(&run.bench.ops);
        let evidence = Evidence {
            queue_depth: key.queue_depth,
            issued: run.bench.ops.len() as u64 + run.bench.ops_over_limit,
            followed: joined.ops.len() as u64,
            segments: Segments::of(&measured, place.has_one_clock()),
            rtt_us: mean_rtt_us(&completed),
            accounts: run.accounts.cpu,
            accounts_within_us: 1e6 / crate::accounts::ticks_per_second() / operations,
            own_cpus: at.has_own_cpus(),
            traced,
        };
        Ok(Self::Seen(Box::new(Seen { evidence, iops: run.bench.result.iops, disturbances })))
    }

    /// What disturbed it.
    pub(crate) fn disturbances(&self) -> &[String] {
        match self {
            Self::Seen(seen) => &seen.disturbances,
            Self::NotVerified(_) => &[],
        }
    }

    /// Its operations per second.
    pub(crate) fn iops(&self) -> Option<f64> {
        match self {
            Self::Seen(seen) => Some(seen.iops),
            Self::NotVerified(_) => None,
        }
    }

    /// Its evidence, or why there is none.
    pub(crate) fn evidence(&self) -> Result<&Evidence, &str> {
        match self {
            Self::Seen(seen) => Ok(&seen.evidence),
            Self::NotVerified(why) => Err(why),
        }
    }

    /// How its observers contradict each other.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        self.evidence().map(Evidence::contradictions).unwrap_or_default()
    }

    /// How its events divide remainders.
    pub(crate) fn shares(&self) -> Option<Shares> {
        self.evidence().ok().map(|evidence| Shares::of(&evidence.traced))
    }

    /// CPU work, divided into thread and softirq as its events show.
    pub(crate) fn divide(&self, cost: CpuCost) -> CpuCost {
        let works =
            |evidence: &Evidence| -> [SideWork; 2] { [evidence.traced.client, evidence.traced.server] };
        self.evidence()
            .ok()
            .filter(|evidence| evidence.own_cpus)
            .map(works)
            .map_or(cost, |[client, server]| cost.divided(client, server))
    }
}

/// Mean round trip of operations, microseconds.
fn mean_rtt_us(ops: &[Op]) -> f64 {
    let sum: i64 = ops.iter().filter_map(|op| op.finish.since(op.start)).sum();
    sum as f64 / 1000.0 / ops.len().max(1) as f64
}

fn window<'a>(
    run: &'a Run,
    measured: &[Op],
    key: PointKey,
    at: &Traceable,
    recorded: &'a ftrace::Recorded,
) -> Option<TraceWindow<'a>> {
    let first = measured.first()?;
    Some(TraceWindow {
        events: &recorded.events,
        load_ns: (
            run.bench.ops.iter().filter_map(|op| op.start.ns()).min()?,
            run.bench.ops.iter().filter_map(|op| op.finish.ns()).max()?,
        ),
        measured_ns: (run.bench.window.0.ns()?, run.bench.window.1.ns()?),
        issued: run.bench.ops.len() as u64,
        queue_depth: key.queue_depth,
        request_bytes: first.request_bytes.into(),
        response_bytes: first.response_bytes.into(),
        client_thread: *run.bench.threads.first()?,
        observers: &run.threads,
        client_cpus: at.client,
        server_cpus: at.server,
        sees_interrupts: recorded.sees_interrupts,
    })
}
