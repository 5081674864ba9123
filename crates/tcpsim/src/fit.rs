//! Parameters from measurements: a few points of a real ring, and the costs with which the simulated one does the same.
//! Random search from a fixed seed: what a run costs is known in milliseconds, and what the costs do is not smooth.

use policy::SendPolicy;

use crate::setup::{Host, Setup};
use crate::sweep::sweep;
use crate::{Ns, RunResult};

/// A point of a real ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// When its server sent.
    pub policy: SendPolicy,
    /// Operations under way.
    pub queue_depth: u32,
    /// Operations per second.
    pub iops: f64,
    /// CPU time of an operation, us: client thread, client softirq, server thread, server softirq; transmit work is the
    /// threads'.
    pub cpu_us: Option<[f64; 4]>,
}

/// What is looked for, us: the same for both sides but for the work itself.
const NAMES: [&str; 9] = [
    "interrupt-work",
    "softirq",
    "idle-exit",
    "start",
    "server.service",
    "client.service",
    "send",
    "transmit",
    "receive",
];
const BEGIN: [f64; NAMES.len()] = [6.0, 2.5, 18.0, 6.0, 0.8, 0.8, 0.5, 2.5, 0.8];
/// Interrupts come so long after their packets, us: less than can be told apart.
const INTERRUPT_US: f64 = 1.0;
/// An acknowledgement's softirq work to a data segment's.
const ACK_SHARE: f64 = 0.7;
/// Weight of a CPU time beside a throughput.
const CPU_WEIGHT: f64 = 0.1;
const OPERATIONS: u64 = 20_000;
/// Tries at a time: one for each core of a small machine, twice.
const TRIES: usize = 4;

/// What was found.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The setup with the costs found.
    pub setup: Setup,
    /// The costs, us, by their names.
    pub costs_us: Vec<(&'static str, f64)>,
    /// Root of the mean square of the logarithms of simulated to measured throughput, of the points that it was made from.
    pub deviation: f64,
}

impl Fitted {
    /// The costs as a setup's text, without what the measurement itself had set.
    #[must_use]
    pub fn text(&self) -> String {
        let of = |side: &str| {
            let own = self.costs_us.iter().filter(|(name, _)| !name.contains('.') || name.starts_with(side));
            let lines: Vec<String> = own
                .map(|(name, us)| {
                    format!("{} = \"{:.0}ns\"\n", name.rsplit('.').next().unwrap_or(name), us * 1e3)
                })
                .collect();
            let ack = self.costs_us[1].1 * ACK_SHARE * 1e3;
            format!(
                "[{side}]\n{}softirq-ack = \"{ack:.0}ns\"\ninterrupt = \"{:.0}ns\"\nsoftirq-cpu = {}\n",
                lines.concat(),
                INTERRUPT_US * 1e3,
                self.setup.server.softirq_cpu
            )
        };
        format!("{}\n{}", of("server"), of("client"))
    }
}

fn ns(us: f64) -> Ns {
    (us * 1e3).round() as Ns
}

/// `base` with other costs.
fn with(base: &Setup, costs: &[f64; NAMES.len()]) -> Setup {
    let [work, softirq, idle_exit, start, server, client, send, transmit, receive] = costs.map(ns);
    let host = |own: &Host, service| Host {
        service,
        send,
        receive,
        start,
        softirq,
        softirq_ack: (softirq as f64 * ACK_SHARE) as Ns,
        transmit,
        interrupt: ns(INTERRUPT_US),
        idle_exit,
        interrupt_work: work,
        ..*own
    };
    Setup { server: host(&base.server, server), client: host(&base.client, client), ..base.clone() }
}

/// The setup of a point.
#[must_use]
pub fn at(setup: &Setup, point: &Measured) -> Setup {
    Setup { policy: point.policy, queue_depth: point.queue_depth, ..setup.clone() }
}

/// How far simulated runs are from what was measured: the sum of squares of the logarithms, and that of throughput alone.
fn distance(runs: &[Option<RunResult>], points: &[Measured]) -> (f64, f64) {
    let square = |simulated: f64, measured: f64| (simulated.max(1e-3) / measured.max(1e-3)).ln().powi(2);
    let (mut all, mut throughput) = (0.0, 0.0);
    for (run, point) in runs.iter().zip(points) {
        let Some(run) = run else { return (f64::INFINITY, f64::INFINITY) };
        throughput += square(run.iops, point.iops);
        if let Some(measured) = point.cpu_us {
            let (c, s) = (run.client, run.server);
            let own = [c.thread_us + c.transmit_us, c.softirq_us, s.thread_us + s.transmit_us, s.softirq_us];
            all +=
                CPU_WEIGHT * own.iter().zip(measured).map(|(own, theirs)| square(*own, theirs)).sum::<f64>();
        }
    }
    (all + throughput, throughput)
}

/// Looks for the costs with which `base` does what was measured at `points`, for so many rounds. `progress` is told of each.
pub fn fit(
    base: &Setup,
    points: &[Measured],
    rounds: u32,
    progress: &(dyn Fn(u32) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Fitted {
    let base = Setup { operations: OPERATIONS, warm_up: 1000, ..base.clone() };
    let mut random = fastrand::Rng::with_seed(base.seed);
    let judge = |tries: &[[f64; NAMES.len()]]| -> Vec<(f64, f64)> {
        let setups: Vec<Setup> = tries
            .iter()
            .flat_map(|costs| points.iter().map(|point| at(&with(&base, costs), point)))
            .collect();
        let runs = sweep(&setups, &|_| (), stop);
        runs.chunks(points.len().max(1)).map(|runs| distance(runs, points)).collect()
    };
    let mut best = (BEGIN, judge(&[BEGIN]).first().copied().unwrap_or((f64::INFINITY, f64::INFINITY)));
    let mut step = 0.35_f64;
    for round in 0..rounds {
        if stop() {
            break;
        }
        progress(round);
        let tries: Vec<[f64; NAMES.len()]> = (0..TRIES)
            .map(|_| {
                best.0.map(|cost| {
                    // About normal: the sum of three.
                    let normal = (random.f64() + random.f64() + random.f64()) * 2.0 - 3.0;
                    if random.bool() { cost * (step * normal).exp() } else { cost }
                })
            })
            .collect();
        let found = judge(&tries).into_iter().zip(tries).min_by(|a, b| a.0.0.total_cmp(&b.0.0));
        match found {
            Some((distance, costs)) if distance.0 < best.1.0 => {
                best = (costs, distance);
                step = (step * 1.2).min(0.5);
            }
            _ => step = (step * 0.93).max(0.05),
        }
    }
    Fitted {
        setup: with(&base, &best.0),
        costs_us: NAMES.into_iter().zip(best.0).collect(),
        deviation: (best.1.1 / points.len().max(1) as f64).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring that was simulated is found again: not its every cost, but what it does at depths that were not shown.
    #[test]
    fn what_was_simulated_is_found_again() {
        let costs = [3.0, 1.5, 30.0, 10.0, 4.0, 2.0, 1.0, 2.0, 0.5];
        let base = Setup { jitter: 0.2, ..Setup::default() };
        let truth = Setup { operations: OPERATIONS, warm_up: 1000, ..with(&base, &costs) };
        let measure = |policy, queue_depth| {
            let point = Measured { policy, queue_depth, iops: 0.0, cpu_us: None };
            let run = crate::simulate(&at(&truth, &point), &mut ());
            let cpu_us = Some([
                run.client.thread_us + run.client.transmit_us,
                run.client.softirq_us,
                run.server.thread_us + run.server.transmit_us,
                run.server.softirq_us,
            ]);
            Measured { iops: run.iops, cpu_us, ..point }
        };
        let policies = [SendPolicy::Nodelay, SendPolicy::Nagle];
        let shown: Vec<Measured> = policies.iter().flat_map(|p| [1, 4, 64].map(|q| measure(*p, q))).collect();
        let fitted = fit(&base, &shown, 24, &|_| (), &|| false);
        assert!(fitted.deviation < 0.1, "{fitted:?}");
        let mut errors: Vec<f64> = policies
            .iter()
            .flat_map(|p| [2, 8, 16, 32].map(|q| measure(*p, q)))
            .map(|point| (crate::simulate(&at(&fitted.setup, &point), &mut ()).iops / point.iops - 1.0).abs())
            .collect();
        errors.sort_by(f64::total_cmp);
        assert!(errors[errors.len() / 2] < 0.1, "{errors:.3?} {:?}", fitted.costs_us);
        let again = Setup::read(&fitted.text());
        assert!(again.is_ok(), "{again:?}: {}", fitted.text());
    }
}
