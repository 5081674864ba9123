//! What differs between two profiles.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::noise::{Figure, OPERATIONS_MIN, Quantity, chance, figures, least};
use crate::profile::{PARTS, Place, Profile, Series};

/// The chance that a comparison of two equal runs tells any difference.
pub const CHANCE: f64 = 0.05;

/// A smaller relative change of a time is within its rounding.
const ROUNDING: f64 = 0.01;

/// The quantities of a row, in their order; behind them come those of the parts.
const QUANTITIES: [(&str, Quantity); 5] = [
    ("per second", Quantity::Rate),
    ("mean us", Quantity::Mean),
    ("p50 us", Quantity::Quantile(0.5)),
    ("p99 us", Quantity::Quantile(0.99)),
    ("failed", Quantity::Failed),
];

/// Before against after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// Where the first one comes from.
    pub before: String,
    /// Where the second one comes from.
    pub after: String,
    /// Operations of each service that are in both, those with the most time first.
    pub rows: Vec<Row>,
    /// Operations that are in the first one alone.
    pub gone: Vec<Only>,
    /// Operations that are in the second one alone.
    pub new: Vec<Only>,
    /// Causes that the first one has and the second one has not, a sentence each.
    pub causes_gone: Vec<String>,
    /// Causes that the second one has and the first one has not, a sentence each.
    pub causes_new: Vec<String>,
}

/// Operations of a service in one of the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Only {
    /// The service and the operation.
    pub name: String,
    /// How many.
    pub operations: u64,
}

impl Only {
    fn of(series: &Series) -> Self {
        Self { name: series.name(), operations: series.whole().operations }
    }

    /// Operations of a name.
    pub(crate) fn named(name: String, operations: u64) -> Self {
        Self { name, operations }
    }

    /// Whether there are so many that they are not missing in the other one by chance.
    #[must_use]
    pub fn is_many(&self) -> bool {
        self.operations >= OPERATIONS_MIN
    }
}

/// Operations of a service in both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The service and the operation.
    pub name: String,
    /// Operations in each.
    pub operations: [u64; 2],
    /// The quantities: rate, mean, percentiles, failures.
    pub quantities: Vec<Change>,
    /// The parts of the time.
    pub parts: Vec<Change>,
    /// Why times, or their parts, are not compared.
    pub note: Option<String>,
    /// The part that carries most of a change of the mean time, and how much of it, microseconds; the client's, where it explains a change
    /// of the rate alone.
    pub carried_by: Option<(String, f64)>,
}

/// A quantity before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Its name.
    pub name: String,
    /// Before.
    pub before: f64,
    /// After.
    pub after: f64,
    /// The chance of such a difference between equal runs; absent where there are too few operations or too little time.
    pub chance: Option<f64>,
    /// The least difference that would be told from noise.
    pub least: Option<f64>,
    /// It is more than noise.
    pub differs: bool,
}

impl Change {
    /// After less before.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }

    /// The change as a share of what was before; `None` where that was nothing.
    #[must_use]
    pub fn share(&self) -> Option<f64> {
        (self.before != 0.0).then(|| self.difference() / self.before)
    }
}

impl Row {
    /// A quantity of it.
    #[must_use]
    pub fn quantity(&self, name: &str) -> Option<&Change> {
        self.quantities.iter().find(|change| change.name == name)
    }

    /// Whether anything of it differs.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.quantities.iter().chain(&self.parts).any(|change| change.differs)
    }
}

impl Comparison {
    /// Compares two profiles.
    #[must_use]
    pub fn of(before: &Profile, after: &Profile) -> Self {
        let pairs = pairs(before, after);
        let quantities: Vec<(&str, Quantity)> = QUANTITIES
            .into_iter()
            .chain(PARTS.into_iter().enumerate().map(|(part, name)| (name, Quantity::Part(part))))
            .collect();
        let kinds: Vec<Quantity> = quantities.iter().map(|(_, quantity)| *quantity).collect();
        let of = |profile: &Profile, series: &Series| figures(profile, series, &kinds);
        let figures: Vec<_> = pairs.both.iter().map(|&(a, b)| (of(before, a), of(after, b))).collect();
        let tests = figures.iter().flat_map(|(a, b)| a.iter().zip(b));
        let tests = tests
            .filter(|(a, b)| (**a).zip(**b).is_some_and(|(a, b)| a.error.is_some() && b.error.is_some()));
        let tests = tests.count();
        let mut rows: Vec<(f64, Row)> = std::iter::zip(&pairs.both, &figures)
            .map(|(&(a, b), (of_a, of_b))| {
                let changes =
                    quantities.iter().zip(of_a.iter().zip(of_b)).filter_map(|(&(name, quantity), (a, b))| {
                        Some((quantity, change(name, quantity, (*a)?, (*b)?, tests)))
                    });
                let (parts, quantities): (Vec<_>, Vec<_>) =
                    changes.partition(|(quantity, _)| matches!(quantity, Quantity::Part(_)));
                let unnamed =
                    |all: Vec<(Quantity, Change)>| all.into_iter().map(|(_, change)| change).collect();
                let (whole_a, whole_b) = (a.whole(), b.whole());
                let mut row = Row {
                    name: b.name(),
                    operations: [whole_a.operations, whole_b.operations],
                    quantities: unnamed(quantities),
                    parts: unnamed(parts),
                    note: None,
                    carried_by: None,
                };
                leave_out(&mut row, a.seen(), b.seen());
                row.carried_by = carried_by(&row);
                (whole_a.total.0 + whole_b.total.0, row)
            })
            .collect();
        rows.sort_by(|(a, _), (b, _)| b.total_cmp(a));
        let only = |own: &Profile, others: &Profile| {
            let is_new = |name: &str| others.causes.iter().all(|other| other.name != name);
            let new = own.causes.iter().filter(|cause| is_new(&cause.name));
            new.map(|cause| format!("{}: {}", cause.name, cause.text)).collect()
        };
        Self {
            before: before.source.clone(),
            after: after.source.clone(),
            rows: rows.into_iter().map(|(_, row)| row).collect(),
            gone: pairs.gone,
            new: pairs.new,
            causes_gone: only(before, after),
            causes_new: only(after, before),
        }
    }

    /// Whether a figure differs by more than noise, or many operations are in one of the two alone. New and missing causes are no difference
    /// by themselves: what is rare is found in one measurement and not in the next.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.gone.iter().chain(&self.new).any(Only::is_many) || self.rows.iter().any(Row::differs)
    }
}

pub(crate) fn change(name: &str, quantity: Quantity, a: Figure, b: Figure, tests: usize) -> Change {
    let (chance, least) = (chance(&a, &b), least(&a, &b, tests, CHANCE));
    let is_time = !matches!(quantity, Quantity::Rate | Quantity::Failed);
    let is_rounding = is_time && (b.value - a.value).abs() <= a.value.abs() * ROUNDING;
    let differs = chance.is_some_and(|chance| chance * (tests.max(1) as f64) < CHANCE) && !is_rounding;
    Change { name: name.to_owned(), before: a.value, after: b.value, chance, least, differs }
}

/// Leaves out what was seen at different places: it is another thing.
fn leave_out(row: &mut Row, before: Place, after: Place) {
    if before == after {
        return;
    }
    row.parts.clear();
    // The client's side sees the same whole with and without the server's.
    let is_whole = |place: Place| matches!(place, Place::Client | Place::Both);
    row.note = Some(if is_whole(before) && is_whole(after) {
        "captured at one side and at both: the parts of the time are not comparable".to_owned()
    } else {
        row.quantities.retain(|change| matches!(change.name.as_str(), "per second" | "failed"));
        "measured at different places: times are not comparable".to_owned()
    });
}

/// The part that carries the change of a row.
pub(crate) fn carried_by(row: &Row) -> Option<(String, f64)> {
    let mean = row.quantity("mean us")?;
    let rate = row.quantity("per second");
    // The client's time is between operations: it is no part of theirs.
    let of_time = |part: &&Change| part.differs && part.name != PARTS[0];
    let along = |part: &&Change| part.difference() * mean.difference() > 0.0;
    let largest = |parts: &mut dyn Iterator<Item = &Change>| {
        parts
            .max_by(|a, b| a.difference().abs().total_cmp(&b.difference().abs()))
            .map(|part| (part.name.clone(), part.difference()))
    };
    if mean.differs {
        return largest(&mut row.parts.iter().filter(of_time).filter(along));
    }
    let client = || row.parts.iter().find(|part| part.name == PARTS[0] && part.differs);
    rate.filter(|rate| rate.differs).and_then(|_| client()).map(|part| (part.name.clone(), part.difference()))
}

/// By what series are paired: service and operation.
type Key = (String, String);

/// Series of both, and the names of those of one alone.
struct Pairs<'a> {
    both: Vec<(&'a Series, &'a Series)>,
    gone: Vec<Only>,
    new: Vec<Only>,
}

/// Pairs the series: by service and operation; then, where a service has another address, by its port and the operation, and by the
/// operation, where one is left on each side.
fn pairs<'a>(before: &'a Profile, after: &'a Profile) -> Pairs<'a> {
    let port = |series: &Series| series.service.rsplit_once(':').map_or("", |(_, port)| port).to_owned();
    let keys: [&dyn Fn(&Series) -> Key; 3] = [
        &|series| (series.service.clone(), series.operation.clone()),
        &|series| (port(series), series.operation.clone()),
        &|series| (String::new(), series.operation.clone()),
    ];
    let mut both = Vec::new();
    let mut left: [Vec<&Series>; 2] = [before, after].map(|profile| profile.series.iter().collect());
    for key in keys {
        let mut sides: [BTreeMap<Key, Vec<&Series>>; 2] = Default::default();
        for (side, left) in sides.iter_mut().zip(&left) {
            left.iter().for_each(|series| side.entry(key(series)).or_default().push(series));
        }
        let [first, second] = &sides;
        let mut taken = Vec::new();
        for (key, of_first) in first {
            if let ([a], Some([b])) = (&of_first[..], second.get(key).map(Vec::as_slice)) {
                both.push((*a, *b));
                taken.push(key.clone());
            }
        }
        left.iter_mut().for_each(|left| left.retain(|series| !taken.contains(&key(series))));
    }
    let [gone, new] = left.map(|left| left.into_iter().map(Only::of).collect());
    Pairs { both, gone, new }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::profile::{Cause, Operation};

    /// A client that waits for each answer: the parts of its time vary by a fifth, and one of them is longer.
    pub(crate) fn ring(seed: u64, longer: Option<usize>, by_us: f64) -> Profile {
        ring_of(6000, seed, longer, by_us)
    }

    fn ring_of(operations: u64, seed: u64, longer: Option<usize>, by_us: f64) -> Profile {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut profile = Profile::new("ring");
        let mut now_us = 0.0;
        let usual = [20.0, 4.0, 10.0, 50.0, 12.0, 6.0];
        for _ in 0..operations {
            let mut parts = usual.map(|us: f64| us * (0.8 + 0.4 * random.f64()));
            if let Some(longer) = longer {
                parts[longer] += by_us;
            }
            let total: f64 = parts[1..].iter().sum();
            now_us += parts[0] + total;
            let ns = |us: f64| Some((us * 1e3) as u64);
            profile.add(
                "10.0.0.1:80",
                "GET",
                &Operation {
                    ended_ns: (now_us * 1e3) as u64,
                    total_ns: ns(total),
                    parts_ns: parts.map(ns),
                    ..Operation::default()
                },
            );
        }
        profile
    }

    #[test]
    fn the_part_that_became_longer_is_found() {
        for (part, name) in PARTS.into_iter().enumerate() {
            let found = (0..25).filter(|&seed| {
                let compared = Comparison::of(&ring(seed, None, 0.0), &ring(seed + 1000, Some(part), 15.0));
                let carried = compared.rows[0].carried_by.clone();
                compared.differs() && carried.is_some_and(|(by, us)| by == name && (us - 15.0).abs() < 1.0)
            });
            assert!(found.count() >= 24, "{name}");
        }
    }

    #[test]
    fn equal_runs_do_not_differ() {
        let differ = (0..25)
            .filter(|&seed| Comparison::of(&ring(seed, None, 0.0), &ring(seed + 500, None, 0.0)).differs());
        assert!(differ.count() <= 1);
        let one = ring(1, None, 0.0);
        assert!(!Comparison::of(&one, &one).differs());
    }

    /// Where the noise is larger than the rounding: the chance is that of all figures together.
    #[test]
    fn short_equal_runs_do_not_differ_either() {
        let pair =
            |seed: u64| Comparison::of(&ring_of(600, seed, None, 0.0), &ring_of(600, seed + 500, None, 0.0));
        let differ = (0..60).filter(|&seed| pair(seed).differs()).count();
        assert!(differ <= 4, "{differ} of 60");
    }

    #[test]
    fn series_are_paired_where_that_is_certain() {
        let with = |names: &[(&str, &str)]| {
            let mut profile = Profile::new("x");
            names
                .iter()
                .for_each(|(service, operation)| profile.add(service, operation, &Operation::default()));
            profile
        };
        let paired = |a: &[(&str, &str)], b: &[(&str, &str)]| {
            let compared = Comparison::of(&with(a), &with(b));
            let names = |only: Vec<Only>| only.into_iter().map(|one| one.name).collect::<Vec<String>>();
            (compared.rows.len(), names(compared.gone), names(compared.new))
        };
        let none: Vec<String> = Vec::new();
        assert_eq!(paired(&[("h:1", "GET")], &[("h:1", "GET")]), (1, none.clone(), none.clone()));
        assert_eq!(
            paired(&[("h:1", "GET")], &[("i:1", "GET")]),
            (1, none.clone(), none.clone()),
            "the same port"
        );
        assert_eq!(
            paired(&[("h:1", "GET")], &[("i:2", "GET")]),
            (1, none.clone(), none.clone()),
            "the only one"
        );
        assert_eq!(
            paired(&[("h:1", "GET"), ("h:2", "GET")], &[("i:3", "GET")]),
            (0, vec!["h:1 GET".into(), "h:2 GET".into()], vec!["i:3 GET".into()]),
            "which one is not known"
        );
        assert_eq!(
            paired(&[("h:1", "GET")], &[("h:1", "PUT")]),
            (0, vec!["h:1 GET".into()], vec!["h:1 PUT".into()])
        );
    }

    #[test]
    fn causes_come_and_go() {
        let cause = |name: &str| Cause { name: name.into(), text: "figures".into() };
        let (mut a, mut b) = (Profile::new("a"), Profile::new("b"));
        a.causes = vec![cause("packet loss"), cause("slow target")];
        b.causes = vec![cause("slow target"), cause("delayed ACK")];
        let compared = Comparison::of(&a, &b);
        assert_eq!(compared.causes_gone, ["packet loss: figures"]);
        assert_eq!(compared.causes_new, ["delayed ACK: figures"]);
        assert!(!compared.differs(), "no figure differs");
    }

    #[test]
    fn other_places_are_not_compared() {
        let at = |place: Place, us: u64| {
            let mut profile = Profile::new("x");
            for n in 0..2000_u64 {
                profile.add(
                    "a",
                    "GET",
                    &Operation {
                        place,
                        ended_ns: n * 1_000_000,
                        total_ns: Some(us * 1000 + n % 7),
                        parts_ns: [None, None, None, Some(us * 500 + n % 5), None, None],
                        ..Operation::default()
                    },
                );
            }
            profile
        };
        let of = |a, b| Comparison::of(&at(a, 100), &at(b, 60)).rows.remove(0);
        assert!(of(Place::Client, Place::Client).carried_by.is_some());
        let one_and_both = of(Place::Client, Place::Both);
        assert!(
            one_and_both.quantity("mean us").is_some_and(|mean| mean.differs)
                && one_and_both.parts.is_empty()
        );
        for (a, b) in
            [(Place::Client, Place::Server), (Place::Both, Place::Server), (Place::Program, Place::Client)]
        {
            let row = of(a, b);
            assert!(!row.differs() && row.note.is_some() && row.quantity("mean us").is_none(), "{row:?}");
        }
    }

    #[test]
    fn few_operations_tell_nothing() {
        let few = |us: u64| {
            let mut profile = Profile::new("x");
            for n in 0..10 {
                profile.add(
                    "a",
                    "GET",
                    &Operation {
                        ended_ns: n * 1_000_000_000,
                        total_ns: Some(us * 1000),
                        ..Operation::default()
                    },
                );
            }
            profile
        };
        let compared = Comparison::of(&few(100), &few(900));
        assert!(
            !compared.differs() && compared.rows[0].quantities.iter().all(|change| change.chance.is_none())
        );
    }
}
