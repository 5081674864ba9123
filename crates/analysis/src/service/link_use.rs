//! Bytes of all messages over time, in each direction: how much of a link they use.

use record::{Passage, Side};

/// Stretches of time.
const BINS: usize = 1024;
/// Their shortest length, ns. Any burst leaves at the link's rate: a shorter stretch is full without a queue.
const BIN_NS: u64 = 10_000_000;

/// The bytes of one direction.
#[derive(Clone, Debug, Default)]
struct Direction {
    bins: Vec<f64>,
    bytes: u64,
    /// Squares of the messages' sizes, and the time that they took to pass, ns.
    squares: f64,
    passing_ns: u128,
}

impl Direction {
    /// The size of the message that the mean byte belongs to.
    fn typical_bytes(&self) -> f64 {
        self.squares / (self.bytes.max(1)) as f64
    }
}

/// A burst is as long as this many messages of the typical size, at least: one alone passes at the link's rate, too.
const BURST: f64 = 4.0;

/// The bytes of both directions over all connections.
#[derive(Clone, Debug)]
pub(crate) struct LinkUse {
    from_ns: u64,
    newest_ns: u64,
    bin_ns: u64,
    directions: [Direction; 2],
}

impl Default for LinkUse {
    fn default() -> Self {
        Self { from_ns: 0, newest_ns: 0, bin_ns: BIN_NS, directions: Default::default() }
    }
}

impl LinkUse {
    /// Adds a message of a side.
    #[inline]
    pub(crate) fn add(&mut self, sender: Side, bytes: u32, passage: &Passage) {
        let (Some(began), Some(ended)) = (passage.began.ns(), passage.ended.ns()) else { return };
        if self.from_ns == 0 {
            self.from_ns = began;
        }
        self.newest_ns = self.newest_ns.max(ended);
        let at = |ns: u64| ns.saturating_sub(self.from_ns);
        let (began, ended) = (at(began), at(ended).max(at(began)));
        while ended / self.bin_ns >= BINS as u64 {
            self.widen();
        }
        let bin_ns = self.bin_ns;
        let direction = &mut self.directions[sender as usize];
        direction.bytes += u64::from(bytes);
        direction.squares += f64::from(bytes) * f64::from(bytes);
        direction.passing_ns += u128::from(ended - began);
        let (first, last) = ((began / bin_ns) as usize, (ended / bin_ns) as usize);
        if direction.bins.len() <= last {
            direction.bins.resize(last + 1, 0.0);
        }
        if first == last {
            direction.bins[first] += f64::from(bytes);
            return;
        }
        let per_ns = f64::from(bytes) / (ended - began) as f64;
        for (bin, place) in direction.bins[first..=last].iter_mut().zip(first as u64..) {
            let (from, until) = ((place * bin_ns).max(began), ((place + 1) * bin_ns).min(ended));
            *bin += per_ns * (until - from) as f64;
        }
    }

    #[cold]
    fn widen(&mut self) {
        self.bin_ns *= 2;
        for direction in &mut self.directions {
            direction.bins = direction.bins.chunks(2).map(|pair| pair.iter().sum()).collect();
        }
    }

    /// A direction's use of a link that carries so many bytes of messages in a second: its mean share, and the share of
    /// its bytes that passed in stretches of time with at least `full` of the rate. A stretch holds several messages: one that
    /// is alone passes at the link's rate, and no other waits for it.
    pub(crate) fn shares(&self, sender: Side, bytes_per_second: f64, full: f64) -> (f64, f64) {
        let direction = &self.directions[sender as usize];
        let seconds = self.seconds();
        let mean = direction.bytes as f64 / bytes_per_second / seconds.max(f64::MIN_POSITIVE);
        let limit = full * bytes_per_second * self.bin_ns as f64 / 1e9;
        let least = BURST * direction.typical_bytes();
        let stretches = direction.bins.chunk_by(|a, b| (*a >= limit) == (*b >= limit));
        let full = stretches.filter(|bins| bins[0] >= limit).map(|bins| bins.iter().sum::<f64>());
        let in_full: f64 = full.filter(|bytes| *bytes >= least).sum();
        (mean, in_full / (direction.bytes.max(1)) as f64)
    }

    /// Messages of a direction that pass at once, on average.
    pub(crate) fn passing(&self, sender: Side) -> f64 {
        self.directions[sender as usize].passing_ns as f64 / 1e9 / self.seconds().max(f64::MIN_POSITIVE)
    }

    /// From the first message to the last, seconds.
    pub(crate) fn seconds(&self) -> f64 {
        self.newest_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }

    /// Bytes of a direction.
    pub(crate) fn bytes(&self, sender: Side) -> u64 {
        self.directions[sender as usize].bytes
    }
}

#[cfg(test)]
mod tests {
    use record::Stamp;

    use super::*;

    fn passage(began_ms: u64, ended_ms: u64) -> Passage {
        let at = |ms: u64| Stamp::at(1 + ms * 1_000_000);
        Passage { began: at(began_ms), ended: at(ended_ms), ..Passage::default() }
    }

    #[test]
    fn bytes_are_spread_over_the_time_in_which_they_passed_however_long() {
        let mut used = LinkUse::default();
        // A second at the full rate of 1 MB/s, then 99 s of silence, then a second at a tenth of it.
        for i in 0..10 {
            used.add(Side::Server, 100_000, &passage(i * 100, (i + 1) * 100));
        }
        used.add(Side::Server, 100_000, &passage(100_000, 101_000));
        assert_eq!(used.bytes(Side::Server), 1_100_000);
        let (mean, in_full) = used.shares(Side::Server, 1e6, 0.9);
        assert!((mean - 1.1 / 101.0).abs() < 1e-4, "{mean}");
        assert!((in_full - 10.0 / 11.0).abs() < 0.1, "{in_full}");
        assert_eq!(used.shares(Side::Client, 1e6, 0.9), (0.0, 0.0));
        let held: f64 = used.directions[1].bins.iter().sum();
        assert!((held - 1_100_000.0).abs() < 1.0 && used.directions[1].bins.len() <= BINS);
    }
}
