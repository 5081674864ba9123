//! Repeats: results of the same thing measured several times, of which each gives one value of each figure. How much they scatter is the
//! noise, so that nothing has to be assumed about times within a run.

use std::collections::BTreeMap;

use serde::Deserialize;
use thiserror::Error;

use crate::comparison::{Comparison, Only, Row, carried_by, change};
use crate::noise::{Figure, Quantity};

/// Most points of a result.
const POINTS_MAX: usize = 4096;

/// The figures of points, each once for each repeat.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Repeats {
    /// Where they come from.
    pub source: String,
    points: BTreeMap<String, Point>,
}

/// A point: what was measured there.
#[derive(Clone, Debug, Default, PartialEq)]
struct Point {
    operations: u64,
    /// A stage without a value takes no time there.
    absent_is_zero: bool,
    quantities: BTreeMap<String, Vec<f64>>,
    parts: BTreeMap<String, Vec<f64>>,
}

/// A text has no points.
#[derive(Debug, Error)]
pub enum RepeatsError {
    /// It is no JSON of the kind.
    #[error("this is neither a study nor simulated runs: {0}")]
    Text(#[from] serde_json::Error),
    /// It has more points than can be compared.
    #[error("it has more than {POINTS_MAX} points")]
    Points,
}

/// What `simulate --json` writes.
#[derive(Deserialize)]
struct Simulated {
    runs: Vec<SimulatedRun>,
    #[serde(default)]
    swept: Vec<String>,
}

#[derive(Deserialize)]
struct SimulatedRun {
    queue_depth: u32,
    block_size_bytes: u64,
    policy: String,
    operations: u64,
    iops: f64,
    rtt_us: Times,
    #[serde(default)]
    request_us: BTreeMap<String, f64>,
    #[serde(default)]
    response_us: BTreeMap<String, f64>,
}

#[derive(Deserialize)]
struct Times {
    mean: f64,
    p50: f64,
    p99: f64,
}

/// What a study writes.
#[derive(Deserialize)]
struct Study {
    stanzas: Vec<Stanza>,
}

#[derive(Deserialize)]
struct Stanza {
    queue_depth: u32,
    block_size_bytes: u64,
    policy: String,
    completed: u64,
    iops: f64,
    rtt_us: f64,
    breakdown: Breakdown,
}

#[derive(Deserialize)]
struct Breakdown {
    terms: Vec<Term>,
}

#[derive(Deserialize)]
struct Term {
    terms: String,
    mean_us: f64,
}

impl Repeats {
    /// No results yet.
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self { source: source.to_owned(), ..Self::default() }
    }

    /// Whether there is no point.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Adds simulated runs; runs that differ in their seed alone are repeats.
    ///
    /// # Errors
    /// When the text is none.
    pub fn add_simulated(&mut self, text: &[u8]) -> Result<(), RepeatsError> {
        let Simulated { runs, swept } = serde_json::from_slice(text)?;
        for (index, run) in runs.into_iter().enumerate() {
            let swept: Vec<&str> = swept
                .get(index)
                .map(|label| {
                    label
                        .split([',', ' '])
                        .map(str::trim)
                        .filter(|one| !one.is_empty() && !one.starts_with("seed"))
                        .collect()
                })
                .unwrap_or_default();
            let mut name = name(run.block_size_bytes, &run.policy, run.queue_depth);
            for one in swept {
                name.push_str(&format!(", {one}"));
            }
            let quantities = [
                ("per second", run.iops),
                ("mean us", run.rtt_us.mean),
                ("p50 us", run.rtt_us.p50),
                ("p99 us", run.rtt_us.p99),
            ];
            let request = run.request_us.into_iter().map(|(stage, us)| (format!("request {stage}"), us));
            let response = run.response_us.into_iter().map(|(stage, us)| (format!("response {stage}"), us));
            self.add(name, run.operations, quantities, request.chain(response))?.absent_is_zero = true;
        }
        Ok(())
    }

    /// Adds a study.
    ///
    /// # Errors
    /// When the text is none.
    pub fn add_study(&mut self, text: &[u8]) -> Result<(), RepeatsError> {
        let Study { stanzas } = serde_json::from_slice(text)?;
        for stanza in stanzas {
            let name = name(stanza.block_size_bytes, &stanza.policy, stanza.queue_depth);
            let quantities = [("per second", stanza.iops), ("mean us", stanza.rtt_us)];
            let terms = stanza.breakdown.terms.into_iter().map(|term| (term.terms, term.mean_us));
            self.add(name, stanza.completed, quantities, terms)?;
        }
        Ok(())
    }

    fn add(
        &mut self,
        name: String,
        operations: u64,
        quantities: impl IntoIterator<Item = (&'static str, f64)>,
        parts: impl IntoIterator<Item = (String, f64)>,
    ) -> Result<&mut Point, RepeatsError> {
        if self.points.len() >= POINTS_MAX && !self.points.contains_key(&name) {
            return Err(RepeatsError::Points);
        }
        let point = self.points.entry(name).or_default();
        point.operations = point.operations.saturating_add(operations);
        for (name, value) in quantities {
            point.quantities.entry(name.to_owned()).or_default().push(value);
        }
        for (name, value) in parts {
            point.parts.entry(name).or_default().push(value);
        }
        Ok(point)
    }
}

impl Point {
    /// The parts, with those of another point that take no time here.
    fn parts_beside(&self, other: &Self) -> BTreeMap<String, Vec<f64>> {
        let mut parts = self.parts.clone();
        if self.absent_is_zero && other.absent_is_zero {
            let repeats = self.quantities.values().map(Vec::len).max().unwrap_or(0);
            for name in other.parts.keys() {
                parts.entry(name.clone()).or_insert_with(|| vec![0.0; repeats]);
            }
        }
        parts
    }
}

fn name(bytes: u64, policy: &str, depth: u32) -> String {
    format!("{} {policy}, queue depth {depth}", record::units::format_size(bytes))
}

/// The mean of repeats, and its standard error where there are several.
fn figure(values: &[f64]) -> Option<Figure> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if !mean.is_finite() {
        return None;
    }
    let error = (values.len() > 1).then(|| {
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1.0);
        ((variance / count).sqrt(), count - 1.0)
    });
    Some(Figure { value: mean, error })
}

impl Comparison {
    /// Compares repeats, point by point.
    #[must_use]
    pub fn of_repeats(before: &Repeats, after: &Repeats) -> Self {
        type Pair = (String, Figure, Figure);
        let pairs = |a: &BTreeMap<String, Vec<f64>>, b: &BTreeMap<String, Vec<f64>>| -> Vec<Pair> {
            let both = a.iter().filter_map(|(name, values)| Some((name, values, b.get(name)?)));
            both.filter_map(|(name, a, b)| Some((name.clone(), figure(a)?, figure(b)?))).collect()
        };
        let both: Vec<(&String, &Point, &Point)> =
            before.points.iter().filter_map(|(name, a)| Some((name, a, after.points.get(name)?))).collect();
        let figures: Vec<(Vec<Pair>, Vec<Pair>)> = both
            .iter()
            .map(|(_, a, b)| {
                (pairs(&a.quantities, &b.quantities), pairs(&a.parts_beside(b), &b.parts_beside(a)))
            })
            .collect();
        let is_test = |(_, a, b): &&Pair| a.error.is_some() && b.error.is_some();
        let tests = figures
            .iter()
            .flat_map(|(quantities, parts)| quantities.iter().chain(parts))
            .filter(is_test)
            .count();
        let rows = both.iter().zip(figures).map(|((name, a, b), (quantities, parts))| {
            let quantity = |name: &str| if name == "per second" { Quantity::Rate } else { Quantity::Mean };
            let changes = |all: Vec<Pair>| {
                all.into_iter().map(|(name, a, b)| change(&name, quantity(&name), a, b, tests)).collect::<Vec<_>>()
            };
            let (mut quantities, parts) = (changes(quantities), changes(parts));
            let order = ["per second", "mean us", "p50 us", "p99 us"];
            quantities.sort_by_key(|change| order.iter().position(|name| *name == change.name));
            let is_known = quantities.iter().any(|change| change.chance.is_some());
            let mut row = Row {
                name: (*name).clone(),
                operations: [a.operations, b.operations],
                quantities,
                parts,
                note: (!is_known).then(|| {
                    "measured once on a side: how much it varies is not known; give several results in a folder".to_owned()
                }),
                carried_by: None,
            };
            row.carried_by = carried_by(&row);
            row
        });
        let only = |own: &Repeats, other: &Repeats| -> Vec<Only> {
            let new = own.points.iter().filter(|(name, _)| !other.points.contains_key(*name));
            new.map(|(name, point)| Only::named(name.clone(), point.operations)).collect()
        };
        Self {
            before: before.source.clone(),
            after: after.source.clone(),
            rows: rows.collect(),
            gone: only(before, after),
            new: only(after, before),
            causes_gone: Vec::new(),
            causes_new: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(seed: u64, count: usize, longer_us: f64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        let runs: Vec<serde_json::Value> = (0..count)
            .map(|_| {
                let noise = |us: f64, random: &mut fastrand::Rng| us * (0.98 + 0.04 * random.f64());
                let (a, b) = (noise(20.0, &mut random), noise(10.0, &mut random) + longer_us);
                serde_json::json!({
                    "queue_depth": 1, "block_size_bytes": 512, "policy": "nodelay", "operations": 100,
                    "iops": 1e6 / (a + b), "rtt_us": {"mean": a + b, "p50": a + b, "p99": a + b},
                    "request_us": {"start": a}, "response_us": {"work": b},
                })
            })
            .collect();
        let swept: Vec<String> = (0..count).map(|seed| format!("seed={seed}")).collect();
        serde_json::json!({ "runs": runs, "swept": swept }).to_string().into_bytes()
    }

    fn repeats(seed: u64, count: usize, longer_us: f64) -> Repeats {
        let mut repeats = Repeats::new("x");
        repeats.add_simulated(&runs(seed, count, longer_us)).unwrap();
        repeats
    }

    #[test]
    fn the_scatter_of_repeats_is_the_noise() {
        let compared = Comparison::of_repeats(&repeats(1, 6, 0.0), &repeats(2, 6, 2.0));
        let row = &compared.rows[0];
        assert!(row.differs() && row.quantity("mean us").unwrap().differs, "{row:?}");
        assert_eq!(row.carried_by.as_ref().unwrap().0, "response work");
        let equal = (0..25).filter(|seed| {
            Comparison::of_repeats(&repeats(*seed, 5, 0.0), &repeats(seed + 99, 5, 0.0)).differs()
        });
        assert!(equal.count() <= 1);
    }

    #[test]
    fn one_result_of_each_tells_no_difference_and_says_why() {
        let compared = Comparison::of_repeats(&repeats(1, 1, 0.0), &repeats(2, 1, 50.0));
        assert!(!compared.differs(), "{compared:?}");
        assert!(compared.rows[0].note.as_ref().unwrap().contains("measured once"));
    }

    #[test]
    fn points_of_one_side_are_named() {
        let mut other = Repeats::new("y");
        other.add_study(br#"{"stanzas": [{"queue_depth": 8, "block_size_bytes": 512, "policy": "nagle", "completed": 5,
            "iops": 1.0, "rtt_us": 2.0, "breakdown": {"terms": [{"terms": "SP+SK", "mean_us": 1.0}]}}]}"#).unwrap();
        let compared = Comparison::of_repeats(&repeats(1, 2, 0.0), &other);
        assert!(compared.rows.is_empty() && compared.gone.len() == 1 && compared.new.len() == 1);
        assert!(Repeats::new("z").add_study(b"{}").is_err());
        assert!(Repeats::new("z").is_empty());
    }
}
