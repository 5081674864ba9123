//! A run's operations in bounded memory: every operation counts in a column of time, and stretches of consecutive operations
//! are kept exactly.

use std::collections::BTreeMap;

use super::{Quantity, Timed};

/// Most columns of time. There are as many as needed for the run, and at least half of them once it is long enough.
const COLUMNS_MAX: usize = 4096;
/// Most chunks of consecutive operations that are kept.
const CHUNKS: usize = 16;
/// Bits of a value that tell its class apart within a power of two: values in a class differ by less than 0.8 %.
const CLASS_BITS: u32 = 7;

/// The class of a value: 0 for less than a nanosecond, negative for negative values.
pub(super) type Class = i16;

/// Returns the class of a value, microseconds.
#[inline]
pub(super) fn class_of(us: f32) -> Class {
    let ns = (f64::from(us) * 1000.0).round();
    let size = ns.abs() as u64;
    let Some(log) = size.checked_ilog2() else { return 0 };
    let within = (size << (63 - log) >> (63 - CLASS_BITS)) as u32 & ((1 << CLASS_BITS) - 1);
    let class = ((log << CLASS_BITS) | within) as Class + 1;
    if ns < 0.0 { -class } else { class }
}

/// The middle of a class, microseconds.
pub(super) fn middle_of(class: Class) -> f32 {
    if class == 0 {
        return 0.0;
    }
    let number = u32::from(class.unsigned_abs()) - 1;
    let (log, within) = (number >> CLASS_BITS, number & ((1 << CLASS_BITS) - 1));
    let parts = f64::from(1 << CLASS_BITS);
    let ns = (1.0 + (f64::from(within) + 0.5) / parts) * f64::from(log).exp2();
    (ns.copysign(f64::from(class)) / 1000.0) as f32
}

/// The operations that began in a span of time: how many, and how many values of each quantity are in each class.
#[derive(Clone, Debug, Default)]
pub(super) struct Column {
    pub(super) operations: u64,
    classes: [Vec<(Class, u32)>; Quantity::COUNT],
}

impl Column {
    fn add(&mut self, timed: &Timed) {
        self.operations += 1;
        for quantity in Quantity::ALL {
            if let Some(us) = timed.us(quantity) {
                self.count(quantity, class_of(us), 1);
            }
        }
    }

    fn count(&mut self, quantity: Quantity, class: Class, count: u32) {
        let classes = &mut self.classes[quantity as usize];
        match classes.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(place) => classes[place].1 = classes[place].1.saturating_add(count),
            Err(place) => classes.insert(place, (class, count)),
        }
    }

    fn merge(&mut self, other: &Column) {
        self.operations += other.operations;
        for quantity in Quantity::ALL {
            for &(class, count) in &other.classes[quantity as usize] {
                self.count(quantity, class, count);
            }
        }
    }

    /// The classes of a quantity with their counts.
    pub(super) fn classes(&self, quantity: Quantity) -> &[(Class, u32)] {
        &self.classes[quantity as usize]
    }
}

/// Consecutive operations, and their number among all chunks of the run.
#[derive(Debug)]
struct Chunk {
    number: u64,
    operations: Vec<Timed>,
}

/// The operations of a run.
///
/// Memory: 32 bytes for each operation that is kept, and the columns (a few megabytes for usual runs; at most 4 bytes times the
/// number of columns, quantities and classes, which no real run reaches).
#[derive(Debug)]
pub struct Run {
    /// By time shifted right by `shift`: a few operations far from all others cost a few columns.
    columns: BTreeMap<u64, Column>,
    shift: u32,
    chunks: Vec<Chunk>,
    /// The number of the next chunk, and of how many chunks one is kept.
    next_chunk: u64,
    stride: u64,
    chunk_operations: usize,
    operations: u64,
    first_ns: u64,
    last_ns: u64,
}

impl Run {
    /// A run of which up to `kept_max` operations are kept exactly: all of them, or stretches evenly spread over the run.
    #[must_use]
    pub fn new(kept_max: usize) -> Self {
        Self {
            columns: BTreeMap::new(),
            shift: 0,
            chunks: Vec::new(),
            next_chunk: 0,
            stride: 1,
            chunk_operations: (kept_max / CHUNKS).max(1),
            operations: 0,
            first_ns: u64::MAX,
            last_ns: 0,
        }
    }

    /// Adds an operation; they may come in any order, but close views need those that ran together to come together.
    pub fn add(&mut self, timed: &Timed) {
        self.operations += 1;
        self.first_ns = self.first_ns.min(timed.at_ns);
        self.last_ns = self.last_ns.max(timed.at_ns);
        self.columns.entry(timed.at_ns >> self.shift).or_default().add(timed);
        while self.columns.len() > COLUMNS_MAX {
            self.widen();
        }
        self.keep(timed);
    }

    /// Joins each two neighbouring columns.
    fn widen(&mut self) {
        self.shift += 1;
        let mut wider: BTreeMap<u64, Column> = BTreeMap::new();
        for (place, column) in std::mem::take(&mut self.columns) {
            wider.entry(place >> 1).or_default().merge(&column);
        }
        self.columns = wider;
    }

    fn keep(&mut self, timed: &Timed) {
        let is_full = |chunk: &Chunk| chunk.operations.len() >= self.chunk_operations;
        let begun = self.operations - 1;
        let number = begun / self.chunk_operations as u64;
        if number == self.next_chunk {
            self.next_chunk += 1;
            if self.chunks.len() == CHUNKS && self.chunks.last().is_some_and(is_full) {
                self.stride *= 2;
                let stride = self.stride;
                self.chunks.retain(|chunk| chunk.number.is_multiple_of(stride));
            }
            if number.is_multiple_of(self.stride) {
                self.chunks.push(Chunk { number, operations: Vec::new() });
            }
        }
        if let Some(chunk) = self.chunks.last_mut().filter(|chunk| chunk.number == number) {
            chunk.operations.push(*timed);
        }
    }

    /// Number of operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// The times of the first and the last operation, nanoseconds since the epoch.
    pub(super) fn span(&self) -> (u64, u64) {
        (self.first_ns.min(self.last_ns), self.last_ns)
    }

    /// Whether all operations are kept exactly.
    pub(super) fn is_whole(&self) -> bool {
        self.stride == 1
    }

    /// The columns, with the time of their middle, in order of time.
    pub(super) fn columns(&self) -> impl Iterator<Item = (u64, &Column)> {
        let (first, last) = self.span();
        self.columns.iter().map(move |(place, column)| {
            let middle = (place << self.shift) + ((1_u64 << self.shift) >> 1);
            (middle.clamp(first, last), column)
        })
    }

    /// The kept operations in stretches without a gap, each in order of time.
    pub(super) fn stretches(&self) -> Vec<Vec<Timed>> {
        let mut stretches: Vec<Vec<Timed>> = Vec::new();
        let mut expected = None;
        for chunk in &self.chunks {
            match stretches.last_mut().filter(|_| expected == Some(chunk.number)) {
                Some(stretch) => stretch.extend_from_slice(&chunk.operations),
                None => stretches.push(chunk.operations.clone()),
            }
            expected = Some(chunk.number + 1);
        }
        stretches.iter_mut().for_each(|stretch| stretch.sort_by_key(|timed| timed.at_ns));
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64, us: i64) -> Timed {
        Timed::new(1_000_000_000 + number * 10_000, [Some(us * 1000), None, None, None, None, None])
    }

    #[test]
    fn classes_are_narrow_and_in_order() {
        for ns in [1_i64, 2, 127, 128, 1000, 15_900, 243_400, 1_000_000, 44_000_000, 10_000_000_000] {
            for ns in [ns, -ns] {
                let us = microseconds(ns);
                let back = middle_of(class_of(us));
                assert!((back / us - 1.0).abs() < 0.0045, "{us}: {back}");
            }
        }
        let classes: Vec<Class> = (-3000..3000).map(|us| class_of(us as f32)).collect();
        assert!(classes.is_sorted());
        assert_eq!((class_of(0.0), middle_of(0)), (0, 0.0));
        assert!(middle_of(class_of(f32::MAX)).is_finite());
    }

    fn microseconds(ns: i64) -> f32 {
        ns as f32 / 1000.0
    }

    #[test]
    fn every_operation_counts_in_a_column_however_many_there_are() {
        let mut run = Run::new(1600);
        let count = 200_000;
        for number in 0..count {
            run.add(&at(number, if number == 77_777 { 10_000_000 } else { 20 }));
        }
        assert!(run.columns.len() <= COLUMNS_MAX && run.columns.len() > COLUMNS_MAX / 4);
        assert_eq!(run.columns().map(|(_, column)| column.operations).sum::<u64>(), count);
        let outlier = class_of(10_000_000.0);
        let with: Vec<u64> = run
            .columns()
            .filter(|(_, column)| column.classes(Quantity::OutsideClient).contains(&(outlier, 1)))
            .map(|(middle, _)| middle)
            .collect();
        assert_eq!(with.len(), 1);
        let off = with[0].abs_diff(at(77_777, 0).at_ns);
        assert!(off <= 2_000_000_000 / (COLUMNS_MAX as u64 / 4), "{off}");
    }

    #[test]
    fn kept_stretches_are_bounded_exact_and_spread_over_the_run() {
        let mut run = Run::new(1600);
        (0..1600).for_each(|number| run.add(&at(number, 20)));
        assert!(run.is_whole());
        assert_eq!(run.stretches().iter().map(Vec::len).collect::<Vec<_>>(), [1600]);
        (1600..100_000).for_each(|number| run.add(&at(number, 20)));
        let stretches = run.stretches();
        assert!(!run.is_whole() && stretches.len() > CHUNKS / 2 - 1 && stretches.len() <= CHUNKS);
        assert!(stretches.iter().map(Vec::len).sum::<usize>() <= 1600);
        let last = stretches.last().and_then(|stretch| stretch.last()).unwrap();
        assert!(last.at_ns > at(75_000, 0).at_ns, "the end is represented");
        for stretch in &stretches {
            assert!(stretch.windows(2).all(|pair| pair[1].at_ns - pair[0].at_ns == 10_000), "no gap");
        }
    }

    #[test]
    fn times_far_away_cost_a_column_each_and_no_resolution() {
        let mut run = Run::new(1600);
        (0..1000).for_each(|number| run.add(&at(number, 20)));
        run.add(&Timed::new(1, [None; Quantity::COUNT]));
        run.add(&Timed::new(u64::MAX, [Some(i64::MAX); Quantity::COUNT]));
        assert_eq!((run.shift, run.columns.len()), (0, 1002));
        assert_eq!(run.span(), (1, u64::MAX));
    }
}
