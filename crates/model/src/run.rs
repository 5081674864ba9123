//! What one run of a ring is measured by, however it is computed.

/// Laps until a ring has settled, and laps over which it is measured. The latter is a multiple of many small
/// numbers, so that most limit cycles fit it whole.
pub(super) const SETTLE_LAPS: usize = 240;
/// See [`SETTLE_LAPS`].
pub(super) const MEASURE_LAPS: usize = 720;

/// Round trips kept of one run.
const ROUND_TRIPS: usize = 4096;

/// What one run from one start phase found.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    pub(super) iops: f64,
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
}

impl Run {
    /// A run of about so many operations.
    pub(super) fn of(stages: usize, operations: usize) -> Self {
        Self {
            stages: vec![StageRun::default(); stages],
            stride: (operations / ROUND_TRIPS).max(1),
            ..Self::default()
        }
    }

    pub(super) fn round_trip(&mut self, us: f64) {
        // A prime-like shift keeps the sample from beating with a pattern in the operations.
        if (self.seen + self.seen / 7).is_multiple_of(self.stride) {
            self.round_trips.push(us);
        }
        self.longest = self.longest.max(us);
        self.seen += 1;
    }
}
