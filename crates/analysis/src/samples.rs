//! Samples of operations for the search for structure: whole runs, of which long ones are thinned.
//!
//! Operations of a service and size are kept over all connections, in groups of consecutive ones, so that their order shows.
//! When all kinds together hold too many, the
//! longest gives up one of every two neighbouring groups, chosen by chance: an even choice would have gaps at the same
//! distance, and a pattern with that period would not show.

use std::num::NonZero;
use std::sync::{Mutex, PoisonError};

use record::Observed;

use crate::modes::{Finding, Parts, Point, find_numbered};

/// Operations that are kept of all kinds together, 16 MiB.
const KEPT_MAX: usize = 1 << 19;
/// Consecutive operations of a group.
const GROUP: usize = 1024;
/// Kinds of which operations are kept.
const STANZAS_MAX: usize = 32;
/// The first operations of a connection are left out: TCP acknowledges at once there.
const SKIPPED: u64 = 32;

/// Samples of all kinds.
#[derive(Debug, Default)]
pub struct Samples {
    wanted: bool,
    stanzas: Vec<Sample>,
    /// Operations that are kept.
    kept: usize,
}

/// The operations of a kind: of one service and size.
#[derive(Debug)]
struct Sample {
    /// All operations so far, kept or not.
    operations: u64,
    /// The operations of a group, of which one group is kept.
    spacing: u64,
    /// Where the group that is kept begins, of those of the current spacing.
    chosen: u64,
    groups: Vec<Group>,
    random: fastrand::Rng,
}

/// Consecutive operations.
#[derive(Debug)]
struct Group {
    /// The number of the first one.
    from: u64,
    points: Vec<Point>,
}

impl Default for Sample {
    fn default() -> Self {
        Self {
            operations: 0,
            spacing: GROUP as u64,
            chosen: 0,
            groups: Vec::new(),
            random: fastrand::Rng::with_seed(3),
        }
    }
}

impl Sample {
    /// Adds an operation. Returns the number of operations that this keeps.
    fn add(&mut self, observed: &Observed) -> usize {
        let number = self.operations;
        self.operations += 1;
        let group = GROUP as u64;
        if number.is_multiple_of(self.spacing) {
            self.chosen = number + group * self.random.u64(..self.spacing / group);
        }
        if number < SKIPPED || !(self.chosen..self.chosen + group).contains(&number) {
            return 0;
        }
        let Some(point) = point(observed) else { return 0 };
        match self.groups.last_mut() {
            Some(last) if number < last.from + group && last.from >= self.chosen => last.points.push(point),
            _ => self.groups.push(Group { from: number, points: vec![point] }),
        }
        1
    }

    /// Gives up one of every two neighbouring groups. Returns the number of operations left.
    fn thin(&mut self) -> usize {
        let random = &mut self.random;
        let mut place = 0;
        let mut keep = 0;
        self.groups.retain(|_| {
            if place % 2 == 0 {
                keep = place + random.usize(..2);
            }
            place += 1;
            place - 1 == keep
        });
        self.spacing *= 2;
        // Until the next spacing begins, nothing is kept.
        self.chosen = self.operations.next_multiple_of(self.spacing);
        self.points()
    }

    fn points(&self) -> usize {
        self.groups.iter().map(|group| group.points.len()).sum()
    }

    fn findings(self) -> Vec<Finding> {
        let mut places: Vec<(usize, u64)> = Vec::new();
        let mut points: Vec<Point> = Vec::with_capacity(self.points());
        for mut group in self.groups {
            // They are delivered when they are over, on several connections.
            group.points.sort_by_key(|point| point.time_ns);
            places.push((points.len(), group.from));
            points.extend(group.points);
        }
        let count = points.len();
        find_numbered(&points, |place| {
            let group = places.partition_point(|(first, _)| *first <= place).saturating_sub(1);
            match places.get(group) {
                _ if place == 0 => 0,
                Some((first, from)) if place < count => from + (place - first) as u64,
                _ => self.operations,
            }
        })
    }
}

impl Samples {
    /// Keeps operations if they are `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Adds an operation of a kind.
    #[inline]
    pub fn add(&mut self, stanza: usize, observed: &Observed) {
        if !self.wanted || stanza >= STANZAS_MAX {
            return;
        }
        if self.stanzas.len() <= stanza {
            self.stanzas.resize_with(stanza + 1, Default::default);
        }
        self.kept += self.stanzas[stanza].add(observed);
        if self.kept > KEPT_MAX {
            self.thin();
        }
    }

    /// Thins the longest sample.
    #[cold]
    fn thin(&mut self) {
        if let Some(longest) = self.stanzas.iter_mut().max_by_key(|sample| sample.points()) {
            longest.thin();
        }
        self.kept = self.stanzas.iter().map(Sample::points).sum();
    }

    /// The findings, by the number of the kind.
    #[must_use]
    pub fn findings(self) -> Vec<(usize, Finding)> {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = processors.min(self.stanzas.len());
        let mut found: Vec<(usize, Vec<Finding>)> = Vec::new();
        let waiting = Mutex::new(self.stanzas.into_iter().enumerate());
        let search = || {
            let mut found = Vec::new();
            loop {
                // The lock is not held during the search.
                let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((place, sample)) = next else { return found };
                found.push((place, sample.findings()));
            }
        };
        std::thread::scope(|scope| {
            // What a thread that cannot be started would have searched is searched here.
            let others: Vec<_> = (1..threads)
                .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, search).ok())
                .collect();
            found = search();
            for other in others {
                found.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        found.sort_by_key(|(place, _)| *place);
        found.into_iter().flat_map(|(place, found)| found.into_iter().map(move |f| (place, f))).collect()
    }
}

fn point(observed: &Observed) -> Option<Point> {
    let split = observed.split();
    let us = |ns: Option<i64>| ns.map_or(f32::NAN, |ns| (ns as f64 / 1000.0) as f32);
    Some(Point {
        time_ns: observed.detail.request.ended.ns()?,
        round_trip_us: us(split.outside_ns.or(split.server_ns)),
        parts: Parts {
            client_us: us(observed.detail.thought_ns.map(u64::cast_signed)),
            server_us: us(split.server_ns),
            network_us: us(split.network_ns),
            request_path_us: us(split.request_path_ns),
            response_path_us: us(split.response_path_ns),
        },
    })
}
