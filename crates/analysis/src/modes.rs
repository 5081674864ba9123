//! Structure in the operations of one stanza: modes, patterns in their order and in time, drifts, diverging
//! clocks.
//!
//! Each search reports a finding only if chance can be excluded; later searches do not report an explained
//! pattern again.

mod dip;
mod drift;
mod every_nth;
mod mixture;
mod period;
mod series;
mod skew;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use dip::dip;
pub use mixture::Mode;
pub use period::Shape;
use series::Series;

use crate::parts::Part;

/// One operation in the search for structure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When its request passed, nanoseconds since the epoch.
    pub time_ns: u64,
    /// Its round trip, microseconds.
    pub round_trip_us: f32,
    /// Its segments.
    pub parts: Parts,
}

/// The segments of an operation, microseconds; NaN where not observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    /// The client's time.
    pub client_us: f32,
    /// The server's time.
    pub server_us: f32,
    /// The network's time, both directions.
    pub network_us: f32,
    /// From the client to the server.
    pub request_path_us: f32,
    /// From the server to the client.
    pub response_path_us: f32,
}

impl Point {
    /// A part's value, microseconds; NaN where not observed.
    fn part(&self, part: Part) -> f64 {
        f64::from(match part {
            Part::RoundTrip => self.round_trip_us,
            Part::Client => self.parts.client_us,
            Part::Server => self.parts.server_us,
            Part::Network => self.parts.network_us,
            Part::RequestPath => self.parts.request_path_us,
            Part::ResponsePath => self.parts.response_path_us,
            Part::Sending | Part::FirstByte | Part::DataPhase | Part::Whole => f32::NAN,
        })
    }
}

/// A pattern.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FindingKind {
    /// More than one mode.
    Modes {
        /// From the fastest to the slowest.
        modes: Vec<Mode>,
    },
    /// Slow operations at even distances.
    EveryNth {
        /// Every n-th operation is slow.
        n: u32,
        /// Additional time of the slow ones, microseconds.
        longer_us: f64,
    },
    /// It repeats in time.
    PeriodInTime {
        /// Its period, milliseconds.
        period_ms: f64,
        /// Its shape.
        shape: Shape,
        /// From the lowest to the highest, microseconds.
        height_us: f64,
    },
    /// It grows or falls over the whole record.
    Ramp {
        /// From the beginning to the end, microseconds.
        change_us: f64,
    },
    /// It jumps and stays.
    ChangePoint {
        /// At which operation of the sample, and after how long, milliseconds.
        at_operation: u64,
        /// See `at_operation`.
        after_ms: f64,
        /// Before and behind it, microseconds.
        levels_us: (f64, f64),
    },
    /// Stamps of two drifting clocks.
    ClockSkew {
        /// Drift, microseconds per second.
        us_per_second: f64,
        /// Largest divergence, microseconds.
        height_us: f64,
        /// Period of the jumps back, milliseconds.
        period_ms: Option<f64>,
    },
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finding {
    /// The pattern.
    #[serde(flatten)]
    pub kind: FindingKind,
    /// The segment that contains it.
    pub segment: Part,
    /// Operations examined.
    pub operations: u64,
    /// A sentence for reports.
    pub text: String,
}

/// Fewest operations to search.
const POINTS_MIN: usize = 200;

/// Searches consecutive operations, in the order of their requests, for structure.
#[must_use]
pub fn find(points: &[Point]) -> Vec<Finding> {
    if points.len() < POINTS_MIN {
        return Vec::new();
    }
    let of = |segment: Part| Series::of(points, segment);
    let Some(whole) = of(Part::RoundTrip) else { return Vec::new() };
    let mut findings = Vec::new();
    let mut say = |kind: FindingKind, segment: Part, text: String| {
        findings.push(Finding { kind, segment, operations: points.len() as u64, text });
    };

    // In the order of operations.
    let candidates = [Part::RoundTrip, Part::Client];
    let nth = candidates.into_iter().find_map(|segment| {
        let series = of(segment)?;
        every_nth::find(&series).map(|found| (segment, found))
    });
    if let Some((segment, found)) = &nth {
        let home = home_of(points, *segment, &found.is_slow);
        let (n, longer_us) = (found.n, found.longer_us);
        let text = format!(
            "every {} operation takes {longer_us:.0} us longer, evenly spaced, in the {}",
            ordinal(n),
            home.name()
        );
        say(FindingKind::EveryNth { n, longer_us }, home, text);
    }
    let without = |series: Series| match &nth {
        Some((_, found)) => found.explained(series),
        None => series,
    };

    // Clocks, and patterns that repeat in time.
    let paths = of(Part::RequestPath).zip(of(Part::ResponsePath));
    let skew = paths.as_ref().and_then(|(request, response)| skew::find(request, response));
    if let Some(found) = &skew {
        let again = found.period_ms.map_or(String::new(), |p| format!(", jumping back every {p:.0} ms"));
        let text = format!(
            "the request path moves by {:+.0} us per second and the response path by as much the other way, {:.0} us \
             apart at most{again}: the clocks of the stamps (of two hosts, or of two CPUs) drift against one another",
            found.us_per_second, found.height_us
        );
        let kind = FindingKind::ClockSkew {
            us_per_second: found.us_per_second,
            height_us: found.height_us,
            period_ms: found.period_ms,
        };
        say(kind, Part::RequestPath, text);
    }
    let leaves: &[Part] = match (&skew, &paths) {
        (None, Some(_)) => &[Part::RequestPath, Part::ResponsePath, Part::Server, Part::Client],
        _ => &[Part::Network, Part::Server, Part::Client],
    };
    // The parts first; the whole if no part shows it.
    let mut periods: Vec<(Part, period::Period)> =
        leaves.iter().filter_map(|&segment| Some((segment, period::find(&without(of(segment)?))?))).collect();
    if periods.is_empty() && skew.is_none() {
        periods.extend(period::find(&without(whole.clone())).map(|found| (Part::RoundTrip, found)));
    }
    for (segment, found) in &periods {
        let period_ms = found.period_ms;
        let text = format!(
            "the {} varies with a period of {} ms by {:.0} us: {}",
            segment.name(),
            milliseconds(period_ms),
            found.height_us,
            found.shape.text(period_ms)
        );
        let kind =
            FindingKind::PeriodInTime { period_ms, shape: found.shape.clone(), height_us: found.height_us };
        say(kind, *segment, text);
    }
    if !periods.is_empty() || skew.is_some() {
        return findings;
    }

    // Drifts and jumps.
    let mut has_moved = false;
    if let Some(drift) = drift::find(&without(whole.clone())) {
        has_moved = true;
        let home = drift_home(points, &drift);
        match drift {
            drift::Drift::Ramp { change_us } => {
                let text = format!("the {} changes by {change_us:+.0} us from beginning to end", home.name());
                say(FindingKind::Ramp { change_us }, home, text);
            }
            drift::Drift::Jumps(jumps) => {
                for jump in jumps {
                    let (before, behind) = jump.levels_us;
                    let after_ms = whole.times_ms[jump.at];
                    let text = format!(
                        "from operation {} on, after {} ms, the {} takes {behind:.0} us instead of {before:.0} us",
                        jump.at,
                        milliseconds(after_ms),
                        home.name()
                    );
                    let at_operation = jump.at as u64;
                    say(
                        FindingKind::ChangePoint { at_operation, after_ms, levels_us: jump.levels_us },
                        home,
                        text,
                    );
                }
            }
        }
    }
    if has_moved {
        return findings;
    }

    // Modes.
    let modes = candidates.into_iter().find_map(|segment| {
        let series = of(segment)?;
        mixture::find(&series).map(|found| (segment, found))
    });
    if let Some((segment, found)) = modes {
        let home = home_of(points, segment, &found.is_slow);
        let text = format!(
            "{} modes in the {}: {}; the difference is in the {}",
            found.modes.len(),
            segment.name(),
            found.modes.iter().map(Mode::text).collect::<Vec<_>>().join(", "),
            home.name()
        );
        say(FindingKind::Modes { modes: found.modes }, home, text);
    }
    findings
}

/// The share of a difference that a segment must hold to be named as its place.
const HOLDS: f64 = 0.7;

/// The segment with the largest share of a difference: the finest one that holds most of it, else both ways of the network
/// together, else the whole.
fn place_of(points: &[Point], whole: Part, difference: impl Fn(&Series) -> f64) -> Part {
    let of = |segment: Part| Series::of(points, segment).map(|series| difference(&series));
    let Some(all) = of(whole).filter(|all| *all != 0.0) else { return whole };
    let share = |segment: Part| of(segment).map(|difference| (segment, difference / all));
    let leaves = [Part::RequestPath, Part::ResponsePath, Part::Server];
    let largest = leaves.into_iter().filter_map(share).max_by(|a, b| a.1.total_cmp(&b.1));
    let candidates = [largest, share(Part::Network)];
    let holder = candidates.into_iter().flatten().find(|(_, share)| *share >= HOLDS);
    holder.map_or(whole, |(segment, _)| segment)
}

/// The place of the difference between slow operations and the others.
fn home_of(points: &[Point], whole: Part, is_slow: &[bool]) -> Part {
    if whole != Part::RoundTrip {
        return whole;
    }
    place_of(points, whole, |series| {
        let mean = |slow: bool| {
            let values = series.values.iter().zip(is_slow).filter(|(_, s)| **s == slow).map(|(v, _)| *v);
            let (sum, count) = values.fold((0.0, 0.0), |(sum, count), v| (sum + v, count + 1.0));
            sum / f64::max(count, 1.0)
        };
        mean(true) - mean(false)
    })
}

/// The place of a drift of the whole: the segment that moved by about as much.
fn drift_home(points: &[Point], drift: &drift::Drift) -> Part {
    let count = points.len();
    // The largest jump, or the first and the last tenth of a ramp.
    let (before, behind) = match drift {
        drift::Drift::Ramp { .. } => (0..count / 10, count - count / 10..count),
        drift::Drift::Jumps(jumps) => {
            let height = |jump: &drift::Jump| (jump.levels_us.1 - jump.levels_us.0).abs();
            let place = (0..jumps.len()).max_by(|&a, &b| height(&jumps[a]).total_cmp(&height(&jumps[b])));
            let place = place.unwrap_or(0);
            let at = |place: usize| jumps.get(place).map_or(count, |jump| jump.at.min(count));
            let from = if place == 0 { 0 } else { at(place - 1) };
            (from..at(place), at(place)..at(place + 1))
        }
    };
    place_of(points, Part::RoundTrip, |series| {
        let level = |range: std::ops::Range<usize>| {
            series::median(series.values.get(range).map(<[f64]>::to_vec).unwrap_or_default())
        };
        level(behind.clone()) - level(before.clone())
    })
}

/// third, 21st.
fn ordinal(n: u32) -> String {
    match n {
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        4 => "fourth".to_owned(),
        5 => "fifth".to_owned(),
        n => match (n % 10, n % 100) {
            (1, r) if r != 11 => format!("{n}st"),
            (2, r) if r != 12 => format!("{n}nd"),
            (3, r) if r != 13 => format!("{n}rd"),
            _ => format!("{n}th"),
        },
    }
}

/// Milliseconds with three digits.
fn milliseconds(ms: f64) -> String {
    match ms.abs() {
        v if v >= 100.0 => format!("{ms:.0}"),
        v if v >= 10.0 => format!("{ms:.1}"),
        _ => format!("{ms:.2}"),
    }
}
