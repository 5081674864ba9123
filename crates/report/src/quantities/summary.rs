//! Sums over the operations of a panel: how values are distributed.

use super::run::{class_of, middle_of};
use super::{Quantity, Run, Timed};

/// The operations of a panel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    /// The columns of a whole run.
    Columns(&'a Run),
    /// Single operations in order of time.
    Operations(&'a [Timed]),
}

impl Source<'_> {
    /// Calls `take` with the time (nanoseconds since the epoch), value (microseconds) and number of all values of a quantity.
    pub(super) fn each(&self, quantity: Quantity, take: &mut dyn FnMut(u64, f32, u64)) {
        match self {
            Self::Columns(run) => {
                for (middle, column) in run.columns() {
                    for &(class, count) in column.classes(quantity) {
                        take(middle, middle_of(class), u64::from(count));
                    }
                }
            }
            Self::Operations(operations) => {
                for timed in *operations {
                    if let Some(us) = timed.us(quantity) {
                        take(timed.at_ns, us, 1);
                    }
                }
            }
        }
    }

    /// Number of operations that began in this span, both ends included, nanoseconds since the epoch.
    pub(super) fn operations_within(&self, from_ns: u64, to_ns: u64) -> u64 {
        match self {
            Self::Columns(run) => {
                let within = run.columns().filter(|(middle, _)| (from_ns..=to_ns).contains(middle));
                within.map(|(_, column)| column.operations).sum()
            }
            Self::Operations(operations) => {
                let within = operations.iter().filter(|timed| (from_ns..=to_ns).contains(&timed.at_ns));
                within.count() as u64
            }
        }
    }
}

/// How many values are in each class.
#[derive(Clone, Debug)]
pub(super) struct Distribution {
    counts: Vec<u64>,
    total: u64,
}

/// Classes below zero.
const OFFSET: usize = 1 << 15;

impl Distribution {
    /// That of a quantity.
    pub(super) fn of(source: &Source<'_>, quantity: Quantity) -> Self {
        let mut all = Self { counts: vec![0; 2 * OFFSET], total: 0 };
        source.each(quantity, &mut |_, us, count| {
            all.counts[(i32::from(class_of(us)) + OFFSET as i32) as usize] += count;
            all.total += count;
        });
        all
    }

    /// The quantile by the nearest rank, microseconds, within half a percent; `None` if there are no values.
    pub(super) fn quantile(&self, share: f64) -> Option<f32> {
        let rank = ((self.total as f64 * share).ceil() as u64).clamp(1, self.total.max(1));
        let mut passed = 0;
        let place = self.counts.iter().position(|count| {
            passed += count;
            passed >= rank
        })?;
        Some(middle_of((place as i32 - OFFSET as i32) as i16))
    }
}

/// The median of a quantity over a run, microseconds: exact where all operations are kept.
pub(super) fn median(run: &Run, stretches: &[Vec<Timed>], quantity: Quantity) -> Option<f32> {
    if !run.is_whole() {
        return Distribution::of(&Source::Columns(run), quantity).quantile(0.5);
    }
    let mut all: Vec<f32> = stretches.iter().flatten().filter_map(|timed| timed.us(quantity)).collect();
    let middle = all.len().checked_sub(1)? / 2;
    Some(*all.select_nth_unstable_by(middle, f32::total_cmp).1)
}
