//! Load generation: one thread per session; in a closed loop each completion issues the next operation, so that exactly
//! QD are in flight.

mod closed_loop;
mod spec;

use std::sync::{Barrier, Mutex, PoisonError};

use record::{Op, Stamp};
use serde::{Deserialize, Serialize};

use self::closed_loop::{Loop, Outcome};
pub use self::spec::{BLOCK_BYTES_MAX, BenchSpec, QUEUE_DEPTH_MAX};
use crate::initiator::error::InitiatorError;
use crate::initiator::session::{Session, SessionOptions};
use crate::initiator::url::IscsiUrl;
use crate::result::RunResult;
use record::latency::Latency;

/// Phases of a run that are reported to an observer, on the thread of the first session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The measured time begins.
    Begin,
    /// The measured time ends.
    End,
}

/// The result of a run with its records.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bench {
    /// The figures.
    pub result: RunResult,
    /// Every operation, ramp included, if recording was requested.
    pub ops: Vec<Op>,
    /// Operations that were not recorded because the record was full.
    pub ops_over_limit: u64,
    /// Begin and end of the measured time, on the clock of `ops`.
    pub window: (Stamp, Stamp),
    /// The operations as seen by the client's kernel timestamps, if requested.
    pub seen: Vec<Op>,
    /// Thread numbers of the sessions.
    pub threads: Vec<i32>,
}

impl Bench {
    /// Runs a workload against a disk.
    ///
    /// Calls `observe` when the measured time begins and ends, and `stop` between completions; true ends the run early.
    ///
    /// # Errors
    /// When the workload does not fit the disk, or a session fails.
    pub fn run(
        url: &IscsiUrl,
        options: &SessionOptions,
        spec: &BenchSpec,
        observe: &(dyn Fn(Phase) + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Self, InitiatorError> {
        spec::check(spec)?;
        let barrier = Barrier::new(spec.sessions as usize);
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..spec.sessions {
                let (barrier, outcomes) = (&barrier, &outcomes);
                scope.spawn(move || {
                    let outcome = run_session(url, options, spec, number, barrier, observe, stop);
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((number, outcome));
                });
            }
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|(number, _)| *number);
        let outcomes = outcomes.into_iter().map(|(_, o)| o).collect::<Result<Vec<_>, _>>()?;
        Ok(merge(spec, outcomes))
    }
}

fn merge(spec: &BenchSpec, outcomes: Vec<Outcome>) -> Bench {
    let mut latency = Latency::new();
    let (mut operations, mut errors, mut verified, mut mismatched, mut cpu_ns) = (0, 0, 0, 0, 0);
    let (mut ops, mut seen, mut ops_over_limit, mut first_error) = (Vec::new(), Vec::new(), 0, None);
    let mut behind = 0;
    let (mut iops, mut slowest, mut window_ns, mut threads) = (0.0, f64::INFINITY, (u64::MAX, 0), Vec::new());
    for o in outcomes {
        latency.add(&o.latency);
        operations += o.operations;
        errors += o.errors;
        verified += o.verified;
        mismatched += o.mismatched;
        cpu_ns += o.cpu_ns;
        let seconds = (o.window_ns.1 - o.window_ns.0) as f64 / 1e9;
        let own = o.operations as f64 / seconds.max(1e-9);
        (iops, slowest) = (iops + own, own.min(slowest));
        window_ns = (window_ns.0.min(o.window_ns.0), window_ns.1.max(o.window_ns.1));
        first_error = first_error.or(o.first_error);
        ops_over_limit += o.ops_over_limit;
        behind += o.behind;
        ops.extend(o.ops);
        seen.extend(o.seen);
        threads.push(o.thread);
    }
    let result = RunResult {
        rw: spec.pattern,
        block_size_bytes: spec.block_bytes,
        queue_depth: spec.queue_depth * spec.sessions,
        sessions: spec.sessions,
        submit: spec.submit,
        seconds: (window_ns.1 - window_ns.0) as f64 / 1e9,
        operations,
        iops,
        slowest_session_iops: slowest,
        rate: spec.rate,
        behind: spec.rate.map(|_| behind),
        bytes_per_second: iops * spec.block_bytes as f64,
        errors,
        first_error,
        verified_blocks: spec.verify.then_some(verified),
        mismatched_blocks: spec.verify.then_some(mismatched),
        client_cpu_us: cpu_ns as f64 / 1000.0 / operations.max(1) as f64,
        latency_us: latency.figures(),
        histogram: latency.bins(),
        ..RunResult::default()
    };
    Bench {
        result,
        ops,
        ops_over_limit,
        window: (Stamp::at(window_ns.0), Stamp::at(window_ns.1)),
        seen,
        threads,
    }
}

fn run_session(
    url: &IscsiUrl,
    options: &SessionOptions,
    spec: &BenchSpec,
    number: u32,
    barrier: &Barrier,
    observe: &(dyn Fn(Phase) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, InitiatorError> {
    let opened = (|| {
        if let Some(cpu) = spec.cpu {
            socket::cpu::pin(cpu).map_err(|e| InitiatorError::Spec(format!("CPU {cpu}: {e}")))?;
        }
        let options = SessionOptions { session_number: number as u16, ..options.clone() };
        let mut session = Session::open(url, &options)?;
        let capacity = session.capacity()?;
        let looped = Loop::new(spec, number, session.port.into(), session.lun, capacity)?;
        Ok((session, looped))
    })();
    // Every session must reach the barrier, even after a failure, or the others would block forever.
    barrier.wait();
    let (mut session, mut looped) = opened?;
    looped.run(&mut session, if number == 0 { Some(observe) } else { None }, stop)?;
    if spec.verify {
        looped.read_back(&mut session)?;
    }
    let seen = session.close()?;
    Ok(looped.outcome(seen))
}
