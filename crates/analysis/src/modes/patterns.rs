//! Patterns in the operations of one regime: in their order, in time, drifts, modes.

use super::place::{drift_home, home_of};
use super::series::Series;
use super::words::{milliseconds, ordinal};
use super::{Finding, FindingKind, Mode, Point, drift, every_nth, mixture, period, skew};
use crate::parts::Part;

/// Fewest operations to search.
pub(super) const POINTS_MIN: usize = 200;

/// Operations of which the order and the modes are searched: enough for both, whatever the length of the record.
const CONSECUTIVE_MAX: usize = 8192;

/// Searches consecutive operations of one regime, in the order of their requests.
pub(super) fn find(points: &[Point]) -> Vec<Finding> {
    let Some(whole) = Series::of(points, Part::RoundTrip).filter(|_| points.len() >= POINTS_MIN) else {
        return Vec::new();
    };
    let mut search = Search { points, whole, findings: Vec::new(), nth: None };
    search.order();
    if search.time() || search.drifts() {
        return search.findings;
    }
    search.modes();
    search.findings
}

/// The slow operations at even distances.
fn nth(points: &[Point]) -> Option<(Part, every_nth::EveryNth)> {
    // The parts last: noise of another part can hide a difference in the sum.
    [Part::RoundTrip, Part::Client, Part::RequestPath, Part::ResponsePath, Part::Server]
        .into_iter()
        .find_map(|part| Some((part, every_nth::find(&Series::of(points, part)?)?)))
}

/// The sentence for a jump of the round trip's level because of a segment.
pub(super) fn jump_text(after_ms: f64, levels_us: (f64, f64), segment: Part) -> String {
    let (before, behind) = levels_us;
    format!(
        "after {} ms the round trip takes {behind:.0} us instead of {before:.0} us; the difference is in the {}",
        milliseconds(after_ms),
        segment.name()
    )
}

/// A search and its findings.
struct Search<'a> {
    points: &'a [Point],
    whole: Series,
    findings: Vec<Finding>,
    /// The pattern in the order of operations.
    nth: Option<every_nth::EveryNth>,
}

impl Search<'_> {
    fn of(&self, part: Part) -> Option<Series> {
        Series::of(self.points, part)
    }

    fn say(&mut self, kind: FindingKind, segment: Part, text: String) {
        let operations = self.points.len() as u64;
        self.findings.push(Finding { kind, segment, operations, text });
    }

    /// The operations of which the order is searched.
    fn consecutive(&self) -> &[Point] {
        &self.points[..self.points.len().min(CONSECUTIVE_MAX)]
    }

    /// Patterns in the order of operations.
    fn order(&mut self) {
        let consecutive = self.consecutive();
        let Some((segment, found)) = nth(consecutive) else { return };
        let home = home_of(consecutive, segment, &found.is_slow);
        let (n, longer_us) = (found.n, found.longer_us);
        let text = format!(
            "every {} operation takes {longer_us:.0} us longer, evenly spaced, in the {}",
            ordinal(n),
            home.name()
        );
        self.say(FindingKind::EveryNth { n, longer_us }, home, text);
        self.nth = Some(found);
    }

    /// A series without the pattern in the order of operations.
    fn without_order(&self, series: Series) -> Series {
        self.nth.as_ref().map_or(series.clone(), |found| found.explained(series))
    }

    /// Clocks, and patterns that repeat in time. Returns whether there are any.
    fn time(&mut self) -> bool {
        let paths = self.of(Part::RequestPath).zip(self.of(Part::ResponsePath));
        let slopes = paths.as_ref().and_then(|(request, response)| {
            // Of a long record, few operations have the slopes between two jumps.
            let of = |part: Part| Series::of(self.consecutive(), part);
            skew::slope(request, response)
                .or_else(|| skew::slope(&of(Part::RequestPath)?, &of(Part::ResponsePath)?))
        });
        let skew =
            slopes.zip(paths.as_ref()).map(|(slope, (request, response))| slope.skew(request, response));
        let leaves: &[Part] = match (&skew, &paths) {
            (None, Some(_)) => &[Part::RequestPath, Part::ResponsePath, Part::Server, Part::Client],
            _ => &[Part::Network, Part::Server, Part::Client],
        };
        let is_skewed = skew.is_some();
        if let Some(found) = skew {
            self.say_skew(&found);
        }
        // The parts first; the whole if no part shows it.
        let mut periods: Vec<(Part, period::Period)> = leaves
            .iter()
            .filter_map(|&part| Some((part, period::find(&self.without_order(self.of(part)?))?)))
            .collect();
        if periods.is_empty() && !is_skewed {
            let whole = period::find(&self.without_order(self.whole.clone()));
            periods.extend(whole.map(|found| (Part::RoundTrip, found)));
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
            let kind = FindingKind::PeriodInTime {
                period_ms,
                shape: found.shape.clone(),
                height_us: found.height_us,
            };
            self.say(kind, *segment, text);
        }
        is_skewed || !periods.is_empty()
    }

    fn say_skew(&mut self, found: &skew::Skew) {
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
        self.say(kind, Part::RequestPath, text);
    }

    /// Drifts and jumps. Returns whether there are any.
    fn drifts(&mut self) -> bool {
        let Some(found) = drift::find(&self.without_order(self.whole.clone())) else { return false };
        let home = drift_home(self.points, &found);
        let jumps = match found {
            drift::Drift::Ramp { change_us } => {
                let text = format!("the {} changes by {change_us:+.0} us from beginning to end", home.name());
                self.say(FindingKind::Ramp { change_us }, home, text);
                return true;
            }
            drift::Drift::Jumps(jumps) => jumps,
        };
        for jump in jumps {
            let after_ms = self.whole.times_ms[jump.at];
            let text = jump_text(after_ms, jump.levels_us, home);
            let at_operation = jump.at as u64;
            self.say(
                FindingKind::ChangePoint { at_operation, after_ms, levels_us: jump.levels_us },
                home,
                text,
            );
        }
        true
    }

    /// Modes.
    fn modes(&mut self) {
        let consecutive = self.consecutive();
        let modes = [Part::RoundTrip, Part::Client]
            .into_iter()
            .find_map(|part| Some((part, mixture::find(&Series::of(consecutive, part)?)?)));
        let Some((segment, found)) = modes else { return };
        let home = home_of(consecutive, segment, &found.is_slow);
        let text = format!(
            "{} modes in the {}: {}; the difference is in the {}",
            found.modes.len(),
            segment.name(),
            found.modes.iter().map(Mode::text).collect::<Vec<_>>().join(", "),
            home.name()
        );
        self.say(FindingKind::Modes { modes: found.modes }, home, text);
    }
}
