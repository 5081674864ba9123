//! Regimes: what is between change points, and how each differs from the fastest.

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::patterns::{self, jump_text};
use super::place::place_of;
use super::words::milliseconds;
use super::{Finding, FindingKind, Point};
use crate::parts::Part;

/// A stretch of operations between two changes of their distribution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Regime {
    /// Its first operation among those of the stanza, which count from 0.
    pub from_operation: u64,
    /// The operation behind its last one.
    pub to_operation: u64,
    /// When its first request passed, milliseconds since the first of all.
    pub from_ms: f64,
    /// When the next regime's first request passed, or the last request of all.
    pub to_ms: f64,
    /// Its share of the operations.
    pub share: f64,
    /// Its share of the time.
    pub time_share: f64,
    /// Median of its round trips, microseconds.
    pub median_us: f64,
    /// Mean of its round trips, microseconds; the slowest 1.5 % count like the one before them, and so do the quickest.
    pub mean_us: f64,
    /// By how much the mean of client and round trip is longer than in the regime where it is shortest, microseconds.
    pub longer_us: f64,
    /// The segment with most of that difference.
    pub segment: Part,
    /// The patterns in its operations.
    pub patterns: Vec<Finding>,
}

/// Differences of a smaller share of the round trip are not mentioned.
const MENTIONED: f64 = 0.12;
/// Operations at each end of a distribution that count like the one before them.
const RARE: f64 = 0.015;

/// Neighbours without patterns whose levels differ by less than this share are one regime.
const JUMP: f64 = 0.12;

/// Describes the regimes between borders, and the jumps of the level at them.
pub(super) fn describe(points: &[Point], borders: &[usize], number: impl Fn(usize) -> u64) -> Vec<Finding> {
    let Some(stretches) = material(points, borders) else { return patterns::find(points) };
    let (ranges, levels): (Vec<_>, Vec<_>) = stretches.iter().map(|s| (&s.range, &s.levels)).unzip();
    let fastest = levels.iter().min_by(|a, b| a.cycle_us().total_cmp(&b.cycle_us()));
    let first_ns = points.first().map_or(0, |point| point.time_ns);
    let ms = |place: usize| {
        let point = points.get(place).or(points.last());
        point.map_or(0.0, |point| point.time_ns.saturating_sub(first_ns) as f64 / 1e6)
    };
    let (all, lasted_ms) = (number(points.len()).max(1) as f64, ms(points.len()));
    let regimes: Vec<Regime> = ranges
        .iter()
        .zip(&levels)
        .zip(&stretches)
        .map(|((range, level), stretch)| {
            let (from_operation, to_operation) = (number(range.start), number(range.end));
            let (from_ms, to_ms) = (ms(range.start), ms(range.end));
            let (longer_us, segment) =
                fastest.map_or((0.0, Part::RoundTrip), |fastest| level.beyond(fastest));
            Regime {
                from_operation,
                to_operation,
                from_ms,
                to_ms,
                share: (to_operation - from_operation) as f64 / all,
                time_share: if lasted_ms > 0.0 { (to_ms - from_ms) / lasted_ms } else { 0.0 },
                median_us: level.median_us,
                mean_us: level.us(Part::RoundTrip).unwrap_or(0.0),
                longer_us,
                segment,
                patterns: stretch.patterns.clone(),
            }
        })
        .collect();
    let operations = points.len() as u64;
    let jumps: Vec<Finding> = regimes
        .windows(2)
        .zip(levels.windows(2))
        .filter_map(|(regimes, levels)| {
            let levels_us = (levels[0].median_us, levels[1].median_us);
            let (at_operation, after_ms) = (regimes[1].from_operation, regimes[1].from_ms);
            let (_, segment) = levels[1].beyond(levels[0]);
            let is_one = (levels_us.1 - levels_us.0).abs() > JUMP * levels_us.0.min(levels_us.1).abs();
            let text = jump_text(after_ms, levels_us, segment);
            let kind = FindingKind::ChangePoint { at_operation, after_ms, levels_us };
            is_one.then_some(Finding { kind, segment, operations, text })
        })
        .collect();
    let most = regimes.iter().max_by(|a, b| a.longer_us.total_cmp(&b.longer_us));
    let segment = most.map_or(Part::RoundTrip, Regime::place);
    let lines: Vec<String> = regimes.iter().map(Regime::text).collect();
    let text = format!("{} regimes: {}", regimes.len(), lines.join("; "));
    let whole = Finding { kind: FindingKind::Regimes { regimes }, segment, operations, text };
    std::iter::once(whole).chain(jumps).collect()
}

/// The operations between two borders.
struct Stretch {
    range: Range<usize>,
    levels: Levels,
    patterns: Vec<Finding>,
}

impl Stretch {
    fn of(points: &[Point], range: Range<usize>) -> Self {
        let mut patterns = patterns::find(&points[range.clone()]);
        patterns.retain(|finding| !matches!(finding.kind, FindingKind::ChangePoint { .. }));
        Self { levels: Levels::of(&points[range.clone()]), patterns, range }
    }

    /// By how much two stretches differ, as a share of the shorter cycle; more than anything if their patterns differ.
    fn differs(&self, other: &Self) -> f64 {
        let pairs = || self.patterns.iter().zip(&other.patterns);
        let is_alike = self.patterns.len() == other.patterns.len()
            && pairs().all(|(a, b)| a.segment == b.segment && a.kind.is_alike(&b.kind));
        if !is_alike {
            return f64::INFINITY;
        }
        let (own, of) = (self.levels.cycle_us(), other.levels.cycle_us());
        let middle = self.levels.median_us - other.levels.median_us;
        (own - of).abs().max(middle.abs()) / own.min(of).max(1e-9)
    }
}

/// The stretches between borders that matter: the patterns of both sides differ, or the means or medians. `None` if no border
/// does.
fn material(points: &[Point], borders: &[usize]) -> Option<Vec<Stretch>> {
    let edges: Vec<usize> = std::iter::once(0).chain(borders.iter().copied()).chain([points.len()]).collect();
    let mut all: Vec<Stretch> = edges.windows(2).map(|edge| Stretch::of(points, edge[0]..edge[1])).collect();
    loop {
        let differences = all.windows(2).map(|pair| pair[0].differs(&pair[1]));
        let (place, least) = differences.enumerate().min_by(|a, b| a.1.total_cmp(&b.1))?;
        if least >= JUMP {
            return Some(all);
        }
        let behind = all.remove(place + 1);
        let range = all[place].range.start..behind.range.end;
        all[place] = Stretch::of(points, range);
    }
}

impl Regime {
    /// A sentence for reports.
    #[must_use]
    pub fn text(&self) -> String {
        format!(
            "operations {} to {}, {} to {} ms ({:.0} % of the operations): {}",
            self.from_operation,
            self.to_operation.saturating_sub(1),
            milliseconds(self.from_ms),
            milliseconds(self.to_ms),
            self.share * 100.0,
            self.what()
        )
    }

    /// What distinguishes it.
    #[must_use]
    pub fn what(&self) -> String {
        let mut parts: Vec<String> = self.patterns.iter().map(|finding| finding.text.clone()).collect();
        let explained: f64 = self.patterns.iter().map(|finding| finding.kind.mean_us()).sum();
        if (self.longer_us - explained).abs() >= MENTIONED * self.median_us && self.longer_us > 0.0 {
            let (longer_us, place) = (self.longer_us, self.segment.name());
            parts.push(format!(
                "{longer_us:.1} us longer in the mean than the fastest regime, in the {place}"
            ));
        }
        if parts.is_empty() {
            parts.push(format!("{:.1} us a round trip, no pattern", self.median_us));
        }
        parts.join("; ")
    }

    /// The segment of its pattern, else that of its level.
    fn place(&self) -> Part {
        self.patterns.first().map_or(self.segment, |finding| finding.segment)
    }
}

/// Two patterns are alike if their figures differ by less than this share.
const ALIKE: f64 = 0.15;

impl FindingKind {
    /// Whether two patterns of neighbouring stretches are one.
    fn is_alike(&self, other: &Self) -> bool {
        let near = |a: f64, b: f64| (a - b).abs() <= ALIKE * a.abs().max(b.abs());
        match (self, other) {
            (Self::EveryNth { n, longer_us }, Self::EveryNth { n: m, longer_us: us }) => {
                n == m && near(*longer_us, *us)
            }
            (Self::Modes { modes }, Self::Modes { modes: others }) => {
                modes.len() == others.len()
                    && modes.iter().zip(others).all(|(a, b)| {
                        near(a.centre_us, b.centre_us) && (a.share - b.share).abs() <= ALIKE / 2.0
                    })
            }
            (
                Self::PeriodInTime { period_ms, height_us, .. },
                Self::PeriodInTime { period_ms: ms, height_us: us, .. },
            ) => near(*period_ms, *ms) && near(*height_us, *us),
            (Self::ClockSkew { us_per_second, .. }, Self::ClockSkew { us_per_second: us, .. }) => {
                near(*us_per_second, *us)
            }
            _ => false,
        }
    }

    /// What the pattern adds to the mean, microseconds, where that is known.
    fn mean_us(&self) -> f64 {
        match self {
            Self::EveryNth { n, longer_us } => longer_us / f64::from(*n),
            _ => 0.0,
        }
    }
}

/// Means of the parts of a regime.
struct Levels {
    median_us: f64,
    /// NaN where not observed.
    means_us: [f64; Part::ALL.len()],
}

impl Levels {
    fn of(points: &[Point]) -> Self {
        let mut median_us = 0.0;
        let means_us = Part::ALL.map(|part| {
            let mut values: Vec<f64> =
                points.iter().map(|p| p.part(part)).filter(|v| v.is_finite()).collect();
            if values.len() * 20 < points.len() * 19 || values.is_empty() {
                return f64::NAN;
            }
            values.sort_by(f64::total_cmp);
            let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
            if part == Part::RoundTrip {
                median_us = at(0.5);
            }
            let (low, high) = (at(RARE), at(1.0 - RARE));
            values.iter().map(|v| v.clamp(low, high)).sum::<f64>() / values.len() as f64
        });
        Self { median_us, means_us }
    }

    fn us(&self, part: Part) -> Option<f64> {
        let place = Part::ALL.iter().position(|own| *own == part)?;
        Some(self.means_us[place]).filter(|us| us.is_finite())
    }

    /// Client and round trip.
    fn cycle_us(&self) -> f64 {
        self.us(Part::RoundTrip).unwrap_or(0.0) + self.us(Part::Client).unwrap_or(0.0)
    }

    /// By how much it is longer than another, and in which segment.
    fn beyond(&self, other: &Self) -> (f64, Part) {
        let difference = |part: Part| Some(self.us(part)? - other.us(part)?);
        let all = self.cycle_us() - other.cycle_us();
        let client = difference(Part::Client).unwrap_or(0.0);
        let round_trip = difference(Part::RoundTrip).unwrap_or(0.0);
        let place = if client.abs() > round_trip.abs() {
            Part::Client
        } else {
            place_of((Part::RoundTrip, round_trip), difference)
        };
        (all, place)
    }
}
