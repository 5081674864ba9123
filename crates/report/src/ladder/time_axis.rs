//! The time axis of a ladder diagram: a step for each event, or to scale.

/// Least and greatest distance of two events, pixels, where the axis is not to scale.
const GAP_MIN: f64 = 9.0;
const GAP_MAX: f64 = 64.0;
/// Pixels of a microsecond there.
const PER_US: f64 = 6.0;
/// Length of an axis to scale, pixels: as if it had a step for each event, within these limits.
const LENGTH_MIN: f64 = 700.0;
const LENGTH_MAX: f64 = 6000.0;

/// How long a distance a time has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeScale {
    /// Each event has a place of its own: long times are shortened, short ones are stretched.
    #[default]
    Events,
    /// Every microsecond has the same length.
    Time,
}

/// Where times are.
#[derive(Clone, Debug)]
pub(super) struct TimeAxis {
    /// Times, nanoseconds, each greater than the one before, and their places, pixels.
    places: Vec<(u64, f64)>,
}

impl TimeAxis {
    /// An axis from `top`, pixels, that has these moments, nanoseconds.
    pub(super) fn new(mut moments: Vec<u64>, scale: TimeScale, top: f64) -> Self {
        moments.sort_unstable();
        moments.dedup();
        let mut places: Vec<(u64, f64)> = Vec::with_capacity(moments.len());
        for moment in moments {
            let place = match places.last() {
                None => top,
                // Proportional within limits: a delayed acknowledgement takes a thousand times as long as a send.
                Some((last, place)) => {
                    place + ((moment - last) as f64 / 1e3 * PER_US).clamp(GAP_MIN, GAP_MAX)
                }
            };
            places.push((moment, place));
        }
        if let (TimeScale::Time, Some(&(first, _)), Some(&(last, bottom))) =
            (scale, places.first(), places.last())
        {
            let length = (bottom - top).clamp(LENGTH_MIN, LENGTH_MAX);
            let whole = (last - first).max(1) as f64;
            for (moment, place) in &mut places {
                *place = top + (*moment - first) as f64 / whole * length;
            }
        }
        Self { places }
    }

    /// The moments and their places.
    pub(super) fn places(&self) -> &[(u64, f64)] {
        &self.places
    }

    /// The place of the last moment.
    pub(super) fn bottom(&self) -> f64 {
        self.places.last().map_or(0.0, |(_, place)| *place)
    }

    /// The place of a time, also between moments.
    pub(super) fn place(&self, at: u64) -> f64 {
        let next = self.places.partition_point(|(moment, _)| *moment < at);
        match (next.checked_sub(1).and_then(|before| self.places.get(before)), self.places.get(next)) {
            (Some((from, low)), Some((to, high))) => {
                low + (at - from) as f64 / (to - from).max(1) as f64 * (high - low)
            }
            (None, Some((_, place))) | (Some((_, place)), None) => *place,
            (None, None) => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn to_scale_distances_are_in_proportion_and_by_event_they_are_not() {
        let moments = vec![0, 1_000, 2_000, 44_000_000, 44_001_000];
        let to_scale = TimeAxis::new(moments.clone(), TimeScale::Time, 56.0);
        let length = to_scale.bottom() - 56.0;
        assert!((LENGTH_MIN..=LENGTH_MAX).contains(&length));
        for at in [0, 1_000, 7_777_777, 43_999_999, 44_001_000] {
            let expected = 56.0 + at as f64 / 44_001_000.0 * length;
            assert!((to_scale.place(at) - expected).abs() < 1e-6, "{at}");
        }
        let by_event = TimeAxis::new(moments, TimeScale::Events, 56.0);
        let steps: Vec<f64> = by_event.places().windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        assert_eq!(steps, [GAP_MIN, GAP_MIN, GAP_MAX, GAP_MIN]);
        assert!((by_event.place(500) - 60.5).abs() < 1e-9, "between events");
    }

    #[test]
    fn an_axis_may_have_one_moment_or_none() {
        for scale in [TimeScale::Events, TimeScale::Time] {
            assert_eq!(TimeAxis::new(vec![5, 5], scale, 56.0).place(9), 56.0);
            assert_eq!(TimeAxis::new(Vec::new(), scale, 56.0).bottom(), 0.0);
        }
    }
}
