//! The measurements of one run of a ring, common to both computations.

/// Laps until a ring has settled.
pub(super) const SETTLE_LAPS: usize = 240;
/// Laps over which a settled ring is measured: a multiple of many small numbers, so that most limit cycles fit it
/// without a remainder.
pub(super) const MEASURE_LAPS: usize = 720;

/// Sampled round trips of one run, about.
const ROUND_TRIPS: usize = 4096;

/// The measurements of one run from one start phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) iops: f64,
    /// Time over which it was measured, microseconds.
    pub(super) lasted_us: f64,
    /// A sample of round trips, and the longest.
    pub(super) round_trips: Vec<f64>,
    pub(super) longest: f64,
    stride: usize,
    seen: usize,
    pub(super) stages: Vec<StageRun>,
}

/// One stage's counts in a run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StageRun {
    pub(super) served: u64,
    pub(super) wakes: u64,
    pub(super) idle_us: f64,
    pub(super) waited_us: f64,
    /// Time in service, microseconds.
    pub(super) busy_us: f64,
}

impl Run {
    /// An empty run of about `operations` operations.
    pub(super) fn of(stages: usize, operations: usize) -> Self {
        Self {
            stages: vec![StageRun::default(); stages],
            stride: (operations / ROUND_TRIPS).max(1),
            ..Self::default()
        }
    }

    /// Adds a measured round trip.
    pub(super) fn round_trip(&mut self, us: f64) {
        // The shift by one in seven keeps the stride from aliasing with a period of the operations.
        if (self.seen + self.seen / 7).is_multiple_of(self.stride) {
            self.round_trips.push(us);
        }
        self.longest = self.longest.max(us);
        self.seen += 1;
    }
}
