//! Load generation: one thread per session; in a closed loop each completion issues the next operation, so that exactly
//! QD are in flight.

mod closed_loop;
mod slot;
mod spec;
mod tally;

use std::sync::{Barrier, Mutex, OnceLock, PoisonError};

use record::{Op, Stamp};
use serde::{Deserialize, Serialize};

use self::closed_loop::{Loop, Outcome};
pub use self::spec::{BLOCK_BYTES_MAX, BenchSpec, OnLoss, QUEUE_DEPTH_MAX};
use self::tally::Tally;
use crate::initiator::error::InitiatorError;
use crate::initiator::session::{Session, SessionOptions};
use crate::initiator::url::IscsiUrl;
use crate::result::RunResult;

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
    /// When the workload does not fit the disk, or a session fails; with [`OnLoss::Count`] only before it has begun.
    pub fn run(
        url: &IscsiUrl,
        options: &SessionOptions,
        spec: &BenchSpec,
        observe: &(dyn Fn(Phase) + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Self, InitiatorError> {
        spec::check(spec)?;
        let (barrier, start) = (Barrier::new(spec.sessions as usize), OnceLock::new());
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..spec.sessions {
                let (barrier, start, outcomes) = (&barrier, &start, &outcomes);
                scope.spawn(move || {
                    let outcome = run_session(url, options, spec, number, (barrier, start), observe, stop);
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
    let mut tally = Tally::default();
    let (mut verified, mut mismatched, mut cpu_ns, mut behind) = (0, 0, 0, 0);
    let (mut ops, mut seen, mut ops_over_limit, mut first_error) = (Vec::new(), Vec::new(), 0, None);
    let seconds = measured_seconds(outcomes.iter().map(|o| o.window_ns));
    let (mut window_ns, mut threads, mut fewest) = ((u64::MAX, 0), Vec::new(), u64::MAX);
    for o in outcomes {
        fewest = fewest.min(o.tally.operations());
        tally.merge(&o.tally);
        verified += o.verified;
        mismatched += o.mismatched;
        cpu_ns += o.cpu_ns;
        window_ns = (window_ns.0.min(o.window_ns.0), window_ns.1.max(o.window_ns.1));
        first_error = first_error.or(o.first_error);
        ops_over_limit += o.ops_over_limit;
        behind += o.behind;
        ops.extend(o.ops);
        seen.extend(o.seen);
        threads.push(o.thread);
    }
    let operations = tally.operations();
    let latency = tally.latency();
    let result = RunResult {
        rw: spec.pattern,
        block_size_bytes: spec.block_bytes_max(),
        block_split: spec.block_split.clone(),
        read_percent: spec.pattern.is_mixed().then_some(spec.read_percent),
        zipf_exponent: spec.distribution.exponent(),
        queue_depth: spec.queue_depth * spec.sessions,
        sessions: spec.sessions,
        submit: spec.submit,
        seconds,
        operations,
        iops: operations as f64 / seconds,
        slowest_session_iops: fewest as f64 / seconds,
        rate: spec.rate,
        arrival: spec.rate.map(|_| spec.arrival),
        behind: spec.rate.map(|_| behind),
        transferred_bytes: tally.bytes(),
        bytes_per_second: tally.bytes() as f64 / seconds,
        errors: tally.failures.total(),
        unmeasured_errors: tally.unmeasured_errors,
        failures: tally.failures.list(),
        failed_mean_us: tally.failed_mean_us(),
        first_error,
        verified_blocks: spec.verify.then_some(verified),
        mismatched_blocks: spec.verify.then_some(mismatched),
        client_cpu_us: cpu_ns as f64 / 1000.0 / operations.max(1) as f64,
        latency_us: latency.figures(),
        histogram: latency.bins(),
        kinds: tally.kinds(seconds),
        series: tally.series(),
        connections: None,
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

/// The time in which the operations of all sessions were counted, seconds. A session whose thread did not run for a while, or that
/// waited for a stuck operation, begins or ends later than the others: rates of sessions in times of their own must not be summed.
/// One that ends late counts until then, so the last end is taken: the rate is never too high.
fn measured_seconds(windows: impl Iterator<Item = (u64, u64)>) -> f64 {
    // One that was lost before, or ran too late, has none.
    let (begins, ends): (Vec<u64>, Vec<u64>) = windows.filter(|window| window.1 > window.0).unzip();
    let begin = begins.iter().min().copied().unwrap_or(0);
    let end = ends.iter().max().copied().unwrap_or(0);
    (end.saturating_sub(begin) as f64 / 1e9).max(1e-9)
}

fn run_session(
    url: &IscsiUrl,
    options: &SessionOptions,
    spec: &BenchSpec,
    number: u32,
    (barrier, start): (&Barrier, &OnceLock<u64>),
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
    let ran = looped.run(&mut session, start, if number == 0 { Some(observe) } else { None }, stop);
    if let (Err(error), OnLoss::Count) = (&ran, spec.on_loss)
        && let Some(class) = error.loss()
    {
        looped.lose(class, error);
        return Ok(looped.outcome(Vec::new()));
    }
    ran?;
    if spec.verify {
        looped.read_back(&mut session)?;
    }
    let seen = session.close()?;
    Ok(looped.outcome(seen))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_measured_in_one_time() {
        const MS: u64 = 1_000_000;
        // The second session did not run for the first 90 ms, and the third saw the end late.
        let windows = [(5 * MS, 105 * MS), (95 * MS, 105 * MS), (5 * MS, 140 * MS), (6 * MS, 105 * MS)];
        assert_eq!(measured_seconds(windows.into_iter()), 0.135);
        assert_eq!(measured_seconds([(0, 2_000 * MS)].into_iter()), 2.0);
        assert_eq!(measured_seconds([(0, 0), (3 * MS, 103 * MS), (150 * MS, 150 * MS)].into_iter()), 0.1);
        // A session that is lost early makes the time no shorter.
        assert_eq!(measured_seconds([(0, MS), (0, 100 * MS)].into_iter()), 0.1);
    }
}
