//! The paper's table of busy cycles: published shares beside simulated ones, with the spread over several seeds, for each
//! explanation of its Nagle half.

use policy::{SendPolicy, Sending};
use schemars::JsonSchema;
use serde::Serialize;
use tcpsim::preset::Preset;
use tcpsim::{RunResult, Setup, SetupError};

use crate::plan::{Plan, Published};

/// The preset whose setup is simulated: the paper's 512 B reads.
pub const PRESET: &str = "seed-512";
/// Runs of each point, each with a seed of its own.
pub const SEEDS: u64 = 5;
/// Measured operations of each run: 10 s and more of simulated time.
pub const OPERATIONS: u64 = 40_000;

/// The ways to send of the NODELAY half.
const NODELAY_HALF: [Sending; 1] = [Sending { policy: SendPolicy::Nodelay, client_nagle: false }];
/// Explanations of the Nagle half: a server that does not flush; one that flushes, as the text says, and a client with Nagle; and
/// the flush alone, which does not fit.
const NAGLE_HALF: [Sending; 3] = [
    Sending { policy: SendPolicy::NAGLE_UNFLUSHED, client_nagle: false },
    Sending { policy: SendPolicy::Nagle, client_nagle: true },
    Sending { policy: SendPolicy::Nagle, client_nagle: false },
];

/// One point: a way to send at one depth.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// How both sides send.
    #[schemars(with = "String")]
    pub sending: Sending,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Published share of the cycles that served 1, 2, ... requests, percent.
    pub published_percent: Vec<f64>,
    /// Mean of the runs, percent.
    pub mean_percent: Vec<f64>,
    /// Least of the runs, percent.
    pub least_percent: Vec<f64>,
    /// Greatest of the runs, percent.
    pub greatest_percent: Vec<f64>,
    /// Cycles that the mean has in another class than the published table, percent: half the sum of the differences.
    pub misplaced_percent: f64,
    /// The same of the run nearest to the published table.
    pub misplaced_least_percent: f64,
    /// The same of the run farthest from it.
    pub misplaced_greatest_percent: f64,
}

/// How well a way to send explains its half of the table.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Explanation {
    /// How both sides send.
    #[schemars(with = "String")]
    pub sending: Sending,
    /// Mean of the misplaced cycles over the depths above 1, at which every way to send is the same, percent.
    pub misplaced_percent: f64,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct BusyCycles {
    /// Runs of each point.
    pub seeds: u64,
    /// Measured operations of each run.
    pub operations: u64,
    /// The points.
    pub rows: Vec<Row>,
    /// The ways to send, in the order of the rows.
    pub explanations: Vec<Explanation>,
}

/// The published shares with which a run is compared: those of its way to send, block size and depth.
#[must_use]
pub fn published<'a>(plan: &'a Plan, setup: &Setup) -> Option<&'a [f64]> {
    let (block_bytes, sending) = (setup.request.data.max(setup.response.data), setup.sending().to_string());
    let known = plan.published(block_bytes, &sending, setup.queue_depth)?;
    (!known.busy_percent.is_empty()).then_some(&known.busy_percent[..])
}

/// The published shares of a half, by depth.
fn half(plan: &Plan, sending: Sending) -> Vec<&Published> {
    let of_half = |known: &&Published| known.send.contains(&sending) && !known.busy_percent.is_empty();
    plan.published.iter().filter(of_half).collect()
}

/// Each way to send with its published half.
fn ways(plan: &Plan) -> Vec<(Sending, Vec<&Published>)> {
    let of = |half_sending: Sending| move |sending: Sending| (sending, half(plan, half_sending));
    let nodelay = NODELAY_HALF.into_iter().map(of(NODELAY_HALF[0]));
    nodelay.chain(NAGLE_HALF.into_iter().map(of(NAGLE_HALF[0]))).collect()
}

/// The setups of all runs, in the order in which [`BusyCycles::of`] takes their results. `set` changes the ring: `KEY=VALUE`.
///
/// # Errors
/// When the preset with these values is not a setup.
pub fn setups(plan: &Plan, operations: u64, set: &[String]) -> Result<Vec<Setup>, SetupError> {
    let base = Setup::read_with(Preset::named(PRESET).map_or("", |preset| preset.text), set)?;
    let point = |sending: Sending, queue_depth| {
        let setup = Setup { queue_depth, operations, ..base.with_sending(sending) };
        (1..=SEEDS).map(move |seed| Setup { seed, ..setup.clone() })
    };
    let all = ways(plan).into_iter().flat_map(|(sending, half)| {
        half.into_iter().flat_map(move |known| point(sending, known.depth)).collect::<Vec<_>>()
    });
    Ok(all.collect())
}

/// Half the sum of the differences of two tables of shares: what must move from one class to another.
fn misplaced(shares: &[f64], published: &[f64]) -> f64 {
    let beyond = (100.0 - shares.iter().sum::<f64>()).max(0.0);
    let apart: f64 = shares.iter().zip(published).map(|(own, theirs)| (own - theirs).abs()).sum();
    (apart + beyond) / 2.0
}

impl Row {
    fn of(sending: Sending, known: &Published, runs: &[RunResult]) -> Self {
        let classes = 1..=known.busy_percent.len() as u32;
        let shares: Vec<Vec<f64>> =
            runs.iter().map(|run| classes.clone().map(|count| run.busy_percent(count)).collect()).collect();
        let of = |fold: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64| -> Vec<f64> {
            classes.clone().map(|count| fold(&mut shares.iter().map(|run| run[count as usize - 1]))).collect()
        };
        let mean_percent = of(&|of_runs| of_runs.sum::<f64>() / runs.len().max(1) as f64);
        let misplaced_percent = misplaced(&mean_percent, &known.busy_percent);
        let of_runs = || shares.iter().map(|run| misplaced(run, &known.busy_percent));
        Self {
            sending,
            queue_depth: known.depth,
            published_percent: known.busy_percent.clone(),
            mean_percent,
            least_percent: of(&|of_runs| of_runs.fold(f64::INFINITY, f64::min)),
            greatest_percent: of(&|of_runs| of_runs.fold(0.0, f64::max)),
            misplaced_percent,
            misplaced_least_percent: of_runs().fold(f64::INFINITY, f64::min),
            misplaced_greatest_percent: of_runs().fold(0.0, f64::max),
        }
    }
}

impl BusyCycles {
    /// The table of the runs of [`setups`].
    #[must_use]
    pub fn of(plan: &Plan, operations: u64, runs: &[RunResult]) -> Self {
        let points = ways(plan).into_iter().flat_map(|(sending, half)| {
            half.into_iter().map(move |known| (sending, known)).collect::<Vec<_>>()
        });
        let rows: Vec<Row> = points
            .zip(runs.chunks(SEEDS as usize))
            .map(|((sending, known), runs)| Row::of(sending, known, runs))
            .collect();
        let explanations = ways(plan).into_iter().map(|(sending, _)| {
            let own = rows.iter().filter(|row| row.sending == sending && row.queue_depth > 1);
            let misplaced: Vec<f64> = own.map(|row| row.misplaced_percent).collect();
            let misplaced_percent = misplaced.iter().sum::<f64>() / misplaced.len().max(1) as f64;
            Explanation { sending, misplaced_percent }
        });
        Self { seeds: SEEDS, operations, explanations: explanations.collect(), rows }
    }

    /// How well a way to send explains its half.
    #[must_use]
    pub fn explanation(&self, sending: Sending) -> Option<Explanation> {
        self.explanations.iter().find(|explanation| explanation.sending == sending).copied()
    }
}
