//! Samples of operations for the search for structure: the first ones of each stanza in a row.

use record::Observed;

use crate::modes::{Finding, Parts, Point, find};

/// Operations of a stanza that are kept.
const KEPT_MAX: usize = 8192;
/// Stanzas of which operations are kept.
const STANZAS_MAX: usize = 32;
/// The first operations of a connection are left out: TCP acknowledges at once there.
const SKIPPED: u32 = 32;

/// Samples of all stanzas.
#[derive(Debug, Default)]
pub struct Samples {
    wanted: bool,
    stanzas: Vec<(u32, Vec<Point>)>,
}

impl Samples {
    /// Keeps operations if they are `wanted`.
    #[must_use]
    pub fn new(wanted: bool) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Adds an operation of a stanza.
    #[inline]
    pub fn add(&mut self, stanza: usize, observed: &Observed) {
        if !self.wanted || stanza >= STANZAS_MAX {
            return;
        }
        if self.stanzas.len() <= stanza {
            self.stanzas.resize_with(stanza + 1, Default::default);
        }
        let (skipped, points) = &mut self.stanzas[stanza];
        if *skipped < SKIPPED {
            *skipped += 1;
        } else if points.len() < KEPT_MAX
            && let Some(point) = point(observed)
        {
            points.push(point);
        }
    }

    /// The findings, by the number of the stanza.
    #[must_use]
    pub fn findings(self) -> Vec<(usize, Finding)> {
        let all = self.stanzas.into_iter().enumerate();
        all.flat_map(|(place, (_, points))| find(&points).into_iter().map(move |f| (place, f))).collect()
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
