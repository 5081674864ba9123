//! Parameters from measurements: finds the costs with which the simulated ring reproduces a few points of a real one.
//! A random search from a fixed seed, because throughput is not a smooth function of the costs.

use policy::Sending;

use crate::setup::{Host, Setup};
use crate::sweep::sweep;
use crate::{Ns, RunResult};

/// CPU time of an operation, us; transmit work counts as the threads'.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuTimes {
    /// The client's thread.
    pub client_thread: f64,
    /// The client's softirq.
    pub client_softirq: f64,
    /// The server's thread.
    pub server_thread: f64,
    /// The server's softirq.
    pub server_softirq: f64,
}

/// A point of a real ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// How both sides send.
    pub sending: Sending,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Operations per second.
    pub iops: f64,
    /// CPU time of an operation.
    pub cpu_us: Option<CpuTimes>,
}

/// The fitted costs: common to both sides except for the service times.
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
/// The place of `softirq` in [`NAMES`].
const SOFTIRQ: usize = 1;
/// The costs from which the search begins, us.
const BEGIN: [f64; NAMES.len()] = [6.0, 2.5, 18.0, 6.0, 0.8, 0.8, 0.5, 2.5, 0.8];
/// Delay of an interrupt after its packet, us: too small to be fitted.
const INTERRUPT_US: f64 = 1.0;
/// Softirq work of an acknowledgement relative to a data segment.
const ACK_SHARE: f64 = 0.7;
/// Weight of a CPU time relative to a throughput.
const CPU_WEIGHT: f64 = 0.1;
/// Operations of each simulated run.
const OPERATIONS: u64 = 20_000;
/// Candidates per round: twice the cores of a small machine.
const CANDIDATES: usize = 4;

/// A fitted cost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Its key in a setup; with a side in front of it, `server.` or `client.`, where both sides differ.
    pub name: &'static str,
    /// Its value, us.
    pub us: f64,
}

/// The result of a fit.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The setup with the fitted costs.
    pub setup: Setup,
    /// The fitted costs.
    pub costs: Vec<Cost>,
    /// Root mean square of the logarithms of simulated to measured throughput at the fitted points.
    pub deviation: f64,
}

impl Fitted {
    /// The costs as a setup's text, without the settings of the measurement.
    #[must_use]
    pub fn text(&self) -> String {
        let of = |side: &str| {
            let own =
                self.costs.iter().filter(|cost| !cost.name.contains('.') || cost.name.starts_with(side));
            let lines: Vec<String> = own
                .map(|Cost { name, us }| {
                    format!("{} = \"{:.0}ns\"\n", name.rsplit('.').next().unwrap_or(name), us * 1e3)
                })
                .collect();
            let ack = self.costs[SOFTIRQ].us * ACK_SHARE * 1e3;
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

/// `base` with the given costs.
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

/// The setup that simulates a point.
#[must_use]
pub fn at(setup: &Setup, point: &Measured) -> Setup {
    Setup { queue_depth: point.queue_depth, ..setup.with_sending(point.sending) }
}

/// Squared distance of simulated runs from measured points, in logarithms.
#[derive(Clone, Copy, Debug)]
struct Distance {
    /// Of throughput and, with their weight, of CPU times: what the search minimizes.
    all: f64,
    /// Of throughput alone.
    throughput: f64,
}

impl Distance {
    const INFINITE: Self = Self { all: f64::INFINITY, throughput: f64::INFINITY };
}

/// The costs of a candidate, and its distance.
struct Candidate {
    costs: [f64; NAMES.len()],
    distance: Distance,
}

fn distance(runs: &[Option<RunResult>], points: &[Measured]) -> Distance {
    let square = |simulated: f64, measured: f64| (simulated.max(1e-3) / measured.max(1e-3)).ln().powi(2);
    let (mut all, mut throughput) = (0.0, 0.0);
    for (run, point) in runs.iter().zip(points) {
        let Some(run) = run else { return Distance::INFINITE };
        throughput += square(run.iops, point.iops);
        if let Some(measured) = point.cpu_us {
            let (c, s) = (run.client, run.server);
            let squares = [
                square(c.thread_us + c.transmit_us, measured.client_thread),
                square(c.softirq_us, measured.client_softirq),
                square(s.thread_us + s.transmit_us, measured.server_thread),
                square(s.softirq_us, measured.server_softirq),
            ];
            all += CPU_WEIGHT * squares.iter().sum::<f64>();
        }
    }
    Distance { all: all + throughput, throughput }
}

/// Searches for the costs with which `base` reproduces `points`, for at most `rounds` rounds. `progress` is called with the
/// number of each round before it begins, `stop` often; when it returns true the best costs so far are returned.
pub fn fit(
    base: &Setup,
    points: &[Measured],
    rounds: u32,
    progress: &(dyn Fn(u32) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Fitted {
    let base = Setup { operations: OPERATIONS, warm_up: 1000, ..base.clone() };
    let mut random = fastrand::Rng::with_seed(base.seed);
    let judge = |candidates: &[[f64; NAMES.len()]]| -> Vec<Distance> {
        let setups: Vec<Setup> = candidates
            .iter()
            .flat_map(|costs| points.iter().map(|point| at(&with(&base, costs), point)))
            .collect();
        let runs = sweep(&setups, &|_| (), stop);
        runs.chunks(points.len().max(1)).map(|runs| distance(runs, points)).collect()
    };
    let mut best =
        Candidate { costs: BEGIN, distance: judge(&[BEGIN]).first().copied().unwrap_or(Distance::INFINITE) };
    // Standard deviation of a changed cost's logarithm, about: grows after a success and shrinks after a failure.
    let mut step = 0.35_f64;
    for round in 0..rounds {
        if stop() {
            break;
        }
        progress(round);
        let candidates: Vec<[f64; NAMES.len()]> = (0..CANDIDATES)
            .map(|_| {
                best.costs.map(|cost| {
                    // Nearly normal: the sum of three uniform numbers.
                    let normal = (random.f64() + random.f64() + random.f64()) * 2.0 - 3.0;
                    if random.bool() { cost * (step * normal).exp() } else { cost }
                })
            })
            .collect();
        let found = judge(&candidates)
            .into_iter()
            .zip(candidates)
            .map(|(distance, costs)| Candidate { costs, distance })
            .min_by(|a, b| a.distance.all.total_cmp(&b.distance.all));
        match found {
            Some(candidate) if candidate.distance.all < best.distance.all => {
                best = candidate;
                step = (step * 1.2).min(0.5);
            }
            _ => step = (step * 0.93).max(0.05),
        }
    }
    Fitted {
        setup: with(&base, &best.costs),
        costs: NAMES.into_iter().zip(best.costs).map(|(name, us)| Cost { name, us }).collect(),
        deviation: (best.distance.throughput / points.len().max(1) as f64).sqrt(),
    }
}

#[cfg(test)]
mod tests {
    use policy::SendPolicy;

    use super::*;

    /// A fit to a simulated ring need not find every cost, but it predicts the depths that it was not fitted to.
    #[test]
    fn fit_reproduces_a_simulated_ring_at_other_depths() {
        let costs = [3.0, 1.5, 30.0, 10.0, 4.0, 2.0, 1.0, 2.0, 0.5];
        let base = Setup { jitter: 0.2, ..Setup::default() };
        let truth = Setup { operations: OPERATIONS, warm_up: 1000, ..with(&base, &costs) };
        let measure = |policy: SendPolicy, queue_depth| {
            let point = Measured { sending: policy.into(), queue_depth, iops: 0.0, cpu_us: None };
            let run = crate::simulate(&at(&truth, &point), &mut ());
            let cpu_us = Some(CpuTimes {
                client_thread: run.client.thread_us + run.client.transmit_us,
                client_softirq: run.client.softirq_us,
                server_thread: run.server.thread_us + run.server.transmit_us,
                server_softirq: run.server.softirq_us,
            });
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
        assert!(errors[errors.len() / 2] < 0.1, "{errors:.3?} {:?}", fitted.costs);
        let again = Setup::read(&fitted.text());
        assert!(again.is_ok(), "{again:?}: {}", fitted.text());
    }
}
