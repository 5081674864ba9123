//! Offset and drift between the clocks of two capture points.
//!
//! For information only: no other figure is computed by subtracting one clock's stamp from the other's. The
//! offset follows from the shortest path in each direction, assumed to be equally long (as in NTP,
//! RFC 5905 8); its uncertainty is half of their sum.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Offset and drift of two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Clocks {
    /// The server's clock less the client's, microseconds, at the beginning.
    pub offset_us: f64,
    /// Uncertainty of the offset, microseconds.
    pub uncertainty_us: f64,
    /// Drift of the server's clock against the client's, parts per million; absent in a short capture.
    pub drift_ppm: Option<f64>,
}

/// The shortest paths within a stretch of time, nanoseconds.
#[derive(Clone, Copy, Debug)]
struct Window {
    from_ns: u64,
    to_ns: u64,
    there_ns: i64,
    back_ns: i64,
}

/// Gathers path times in bounded memory.
#[derive(Clone, Debug)]
pub struct ClockSums {
    windows: Vec<Window>,
    length_ns: u64,
}

/// Clocks do not drift faster, parts per million: quartzes differ by less than 200, and NTP slews by 500 at most. A slope beyond it is
/// that of queues on the path.
const DRIFT_MAX_PPM: f64 = 500.0;

/// Most stretches of time.
const WINDOWS_MAX: usize = 256;

impl Default for ClockSums {
    fn default() -> Self {
        Self { windows: Vec::new(), length_ns: 1_000_000_000 }
    }
}

impl ClockSums {
    /// Adds an exchange: the stamps of its request at the client and the server, and those of its response.
    pub fn add(&mut self, c1: u64, s1: u64, s2: u64, c2: u64) {
        let (there_ns, back_ns) = (s1.wrapping_sub(c1).cast_signed(), c2.wrapping_sub(s2).cast_signed());
        match self.windows.last_mut() {
            Some(window) if c1 < window.from_ns.saturating_add(self.length_ns) => {
                window.to_ns = window.to_ns.max(c1);
                window.there_ns = window.there_ns.min(there_ns);
                window.back_ns = window.back_ns.min(back_ns);
            }
            _ => self.windows.push(Window { from_ns: c1, to_ns: c1, there_ns, back_ns }),
        }
        if self.windows.len() > WINDOWS_MAX {
            // Merge pairs: half as many stretches, each twice as long.
            self.length_ns *= 2;
            let merged = self.windows.chunks(2).map(|pair| Window {
                from_ns: pair[0].from_ns,
                to_ns: pair.iter().map(|w| w.to_ns).max().unwrap_or(0),
                there_ns: pair.iter().map(|w| w.there_ns).min().unwrap_or(0),
                back_ns: pair.iter().map(|w| w.back_ns).min().unwrap_or(0),
            });
            self.windows = merged.collect();
        }
    }

    /// The result.
    #[must_use]
    pub fn clocks(&self) -> Option<Clocks> {
        let first = self.windows.first()?;
        let offset = |w: &Window| (w.there_ns as f64 - w.back_ns as f64) / 2000.0;
        let uncertain = |w: &Window| (w.there_ns as f64 + w.back_ns as f64).abs() / 2000.0;
        // With drifting clocks the shortest path in one direction is at the beginning of a stretch and in the other
        // at its end: the offset is that of its middle.
        let middle = |w: &Window| {
            let since = |ns: u64| ns.saturating_sub(first.from_ns) as f64 / 1e9;
            (since(w.from_ns) + since(w.to_ns)) / 2.0
        };
        let points: Vec<(f64, f64)> = self.windows.iter().map(|w| (middle(w), offset(w))).collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_t, mean_o) = (mean(|p| p.0), mean(|p| p.1));
        let variance: f64 = points.iter().map(|p| (p.0 - mean_t).powi(2)).sum();
        let covariance: f64 = points.iter().map(|p| (p.0 - mean_t) * (p.1 - mean_o)).sum();
        // Microseconds per second are parts per million.
        let drift_ppm =
            (points.len() >= 3).then(|| covariance / variance).filter(|ppm| ppm.abs() <= DRIFT_MAX_PPM);
        let offset_us = drift_ppm.map_or(offset(first), |drift| mean_o - drift * mean_t);
        let uncertainty_us = self.windows.iter().map(uncertain).fold(f64::INFINITY, f64::min);
        Some(Clocks { offset_us, uncertainty_us, drift_ppm })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offset_and_drift_are_found_behind_queues() {
        let mut sums = ClockSums::default();
        let mut noise = 7_u64;
        for i in 0..2_000_000_u64 {
            noise = noise.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let c1 = 1_000_000_000_000 + i * 1_000_000;
            // The server is 5 ms ahead and gains 20 ppm; the path takes 50 us and a queue up to 1 ms.
            let ahead = 5_000_000 + i * 20;
            let way = |shift: u32| 50_000 + (noise >> shift) % 1_000_000;
            let s1 = c1 + ahead + way(20);
            let s2 = s1 + 30_000;
            let c2 = s2 - ahead + way(40);
            sums.add(c1, s1, s2, c2);
        }
        let clocks = sums.clocks().unwrap();
        assert!((clocks.offset_us - 5000.0).abs() < 60.0, "{clocks:?}");
        assert!((clocks.drift_ppm.unwrap() - 20.0).abs() < 0.5, "{clocks:?}");
        assert!(clocks.uncertainty_us < 80.0);
        assert!(sums.windows.len() <= WINDOWS_MAX);
    }

    #[test]
    fn a_drift_has_its_sign_and_needs_three_seconds() {
        for (seconds, gain_ns, expected) in
            [(60, -35, Some(-35.0)), (60, 0, Some(0.0)), (60, 200, Some(200.0)), (1, -35, None)]
        {
            let mut sums = ClockSums::default();
            for i in 0..seconds * 1000_i64 {
                let c1 = 1_000_000_000_000 + i * 1_000_000;
                // The server is 7 ms behind and gains so many nanoseconds in each millisecond.
                let ahead = -7_000_000 + i * gain_ns;
                let s1 = c1 + ahead + 50_000;
                let [c1, s1, s2, c2] = [c1, s1, s1 + 30_000, s1 + 80_000 - ahead].map(i64::unsigned_abs);
                sums.add(c1, s1, s2, c2);
            }
            let clocks = sums.clocks().unwrap();
            assert!((clocks.offset_us + 7000.0).abs() < 20.0, "{clocks:?}");
            assert_eq!(clocks.drift_ppm.is_some(), expected.is_some(), "{clocks:?}");
            let error = clocks.drift_ppm.unwrap_or(0.0) - expected.unwrap_or(0.0);
            assert!(error.abs() < 0.1, "{expected:?}: {clocks:?}");
        }
    }
}
