//! Workloads: the sequence of accesses.

use std::str::FromStr;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::pattern::Pattern;
use crate::result::Operation;
use crate::zipf::Zipf;

/// An operation to issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its kind.
    pub operation: Operation,
    /// First logical block.
    pub lba: u64,
    /// Logical blocks.
    pub blocks: u32,
}

/// The share of an operation size among all operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockShare {
    /// Bytes of an operation.
    pub block_bytes: u64,
    /// Percent of the operations.
    pub percent: u32,
}

/// Returns sizes with their shares as on the command line: `4k/60:64k/40`.
#[must_use]
pub fn block_split(shares: &[BlockShare]) -> String {
    let share =
        |share: &BlockShare| format!("{}/{}", record::units::format_size(share.block_bytes), share.percent);
    shares.iter().map(share).collect::<Vec<_>>().join(":")
}

/// How random addresses are distributed over the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Distribution {
    /// All places alike.
    #[default]
    Uniform,
    /// Zipf's law with this exponent: the n-th most frequent place is accessed 1 / n^exponent times as often as the most
    /// frequent one. The frequent places are spread over the disk.
    Zipf(f64),
}

impl Distribution {
    /// Returns the exponent of Zipf's law; `None` for uniform addresses.
    #[must_use]
    pub fn exponent(self) -> Option<f64> {
        match self {
            Self::Uniform => None,
            Self::Zipf(exponent) => Some(exponent),
        }
    }
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let exponent = |text: &str| text.parse::<f64>().ok().filter(|e| Zipf::new(1, *e).is_some());
        match text.split_once(':') {
            None if text == "uniform" || text == "random" => Ok(Self::Uniform),
            Some(("zipf", number)) => exponent(number).map(Self::Zipf).ok_or_else(|| {
                format!("'{number}': the exponent of zipf is a number above 0 up to 10, such as zipf:1.1")
            }),
            _ => Err(format!("'{text}' is not a distribution; use uniform or zipf:1.1")),
        }
    }
}

/// What a workload does and where.
#[derive(Clone, Debug)]
pub struct WorkloadSpec {
    /// The pattern.
    pub pattern: Pattern,
    /// Percent of reads in mixed patterns.
    pub read_percent: u32,
    /// Sizes in logical blocks, with the percentage of each.
    pub sizes: Vec<SizeShare>,
    /// The distribution of random addresses.
    pub distribution: Distribution,
    /// The first block of the region.
    pub first: u64,
    /// The size of the region, logical blocks.
    pub region_blocks: u64,
    /// The seed.
    pub seed: u64,
}

/// The share of a size, in logical blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeShare {
    /// Logical blocks.
    pub blocks: u32,
    /// Percent of the operations.
    pub percent: u32,
}

/// The operations of a session, deterministic for a seed. Random operations are aligned to their size.
#[derive(Clone, Debug)]
pub struct Workload {
    spec: WorkloadSpec,
    sizes: Vec<Size>,
    /// The next block of a sequential pattern, relative to the region.
    next: u64,
    rng: Rng,
}

/// An operation size with its places.
#[derive(Clone, Debug)]
struct Size {
    blocks: u32,
    percent: u32,
    /// The number of whole operations that fit in the region.
    places: u64,
    zipf: Option<Zipf>,
    /// Spreads ranks over the places: coprime to their number.
    stride: u64,
}

impl Workload {
    /// Creates a workload; `None` when an operation does not fit the region.
    #[must_use]
    pub fn new(spec: WorkloadSpec) -> Option<Self> {
        let sizes: Vec<Size> =
            spec.sizes.iter().map(|share| Size::new(*share, &spec)).collect::<Option<_>>()?;
        (!sizes.is_empty()).then(|| Self { rng: Rng::with_seed(spec.seed), spec, sizes, next: 0 })
    }

    /// Returns the next operation.
    #[inline]
    pub fn next_access(&mut self) -> Access {
        let index = self.size_index();
        let size = &self.sizes[index];
        let blocks = u64::from(size.blocks);
        let at = if self.spec.pattern.is_random() {
            size.place(&mut self.rng) * blocks
        } else {
            // An operation that does not fit behind the last one begins the region anew.
            let at = if self.next + blocks > self.spec.region_blocks { 0 } else { self.next };
            self.next = at + blocks;
            at
        };
        let blocks = size.blocks;
        Access { operation: self.operation(), lba: self.spec.first + at, blocks }
    }

    fn size_index(&mut self) -> usize {
        if self.sizes.len() == 1 {
            return 0;
        }
        let mut drawn = self.rng.u32(..100);
        for (index, size) in self.sizes.iter().enumerate() {
            if drawn < size.percent {
                return index;
            }
            drawn -= size.percent;
        }
        self.sizes.len() - 1
    }

    fn operation(&mut self) -> Operation {
        match self.spec.pattern {
            Pattern::Read | Pattern::RandRead => Operation::Read,
            Pattern::Write | Pattern::RandWrite => Operation::Write,
            Pattern::Trim | Pattern::RandTrim => Operation::Trim,
            Pattern::WriteZeroes | Pattern::RandWriteZeroes => Operation::WriteZeroes,
            Pattern::Rw | Pattern::RandRw => {
                if self.rng.u32(..100) < self.spec.read_percent {
                    Operation::Read
                } else {
                    Operation::Write
                }
            }
        }
    }
}

impl Size {
    fn new(share: SizeShare, spec: &WorkloadSpec) -> Option<Self> {
        let SizeShare { blocks, percent } = share;
        let places = spec.region_blocks / u64::from(blocks.max(1));
        if places == 0 || blocks == 0 {
            return None;
        }
        let zipf = match spec.distribution {
            Distribution::Uniform => None,
            Distribution::Zipf(exponent) => Some(Zipf::new(places, exponent)?),
        };
        Some(Self { blocks, percent, places, zipf, stride: stride(places) })
    }

    #[inline]
    fn place(&self, rng: &mut Rng) -> u64 {
        match &self.zipf {
            None => rng.u64(..self.places),
            Some(zipf) => {
                let rank = zipf.draw(rng) - 1;
                // A bijection, as the stride is coprime to the number of places.
                (u128::from(rank) * u128::from(self.stride) % u128::from(self.places)) as u64
            }
        }
    }
}

/// A number near the golden section of `places` and coprime to it: multiples of it modulo `places` are far apart.
fn stride(places: u64) -> u64 {
    let mut stride = ((places as f64 * 0.618_033_988_749_894_9) as u64).max(1);
    while common_divisor(stride, places) != 1 {
        stride += 1;
    }
    stride
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;

    fn of(pattern: Pattern, sizes: &[(u32, u32)], region_blocks: u64, seed: u64) -> WorkloadSpec {
        let sizes = sizes.iter().map(|&(blocks, percent)| SizeShare { blocks, percent }).collect();
        let distribution = Distribution::Uniform;
        WorkloadSpec { pattern, read_percent: 50, sizes, distribution, first: 100, region_blocks, seed }
    }

    fn accesses(spec: WorkloadSpec, count: usize) -> Vec<Access> {
        let mut workload = Workload::new(spec).unwrap();
        (0..count).map(|_| workload.next_access()).collect()
    }

    #[test]
    fn sequential_wraps_and_random_stays_in_range() {
        let sequential = accesses(of(Pattern::Write, &[(8, 100)], 30, 1), 4);
        let lbas: Vec<u64> = sequential.iter().map(|access| access.lba).collect();
        assert_eq!(lbas, [100, 108, 116, 100]);
        let all = accesses(of(Pattern::RandRw, &[(8, 100)], 30, 1), 200);
        assert!(all.iter().all(|a| [100, 108, 116].contains(&a.lba)));
        assert!(all.iter().any(|a| a.operation == Operation::Write));
        assert!(all.iter().any(|a| a.operation == Operation::Read));
        assert!(Workload::new(of(Pattern::Read, &[(8, 100)], 7, 1)).is_none());
    }

    #[test]
    fn same_seed_gives_the_same_stream() {
        let stream = |seed| accesses(of(Pattern::RandRead, &[(1, 100)], 1 << 40, seed), 50);
        assert_eq!(stream(7), stream(7));
        assert_ne!(stream(7), stream(8));
    }

    #[test]
    fn sizes_and_reads_have_the_requested_shares() {
        const COUNT: usize = 20_000;
        for pattern in [Pattern::RandRw, Pattern::Rw] {
            let spec = WorkloadSpec { read_percent: 70, ..of(pattern, &[(1, 60), (16, 40)], 1000, 3) };
            let all = accesses(spec, COUNT);
            let share = |is: &dyn Fn(&Access) -> bool| {
                all.iter().filter(|access| is(access)).count() as f64 / COUNT as f64
            };
            // Five standard deviations of a binomial share.
            let near = |share: f64, expected: f64| {
                (share - expected).abs() < 5.0 * (expected * (1.0 - expected) / COUNT as f64).sqrt()
            };
            assert!(near(share(&|a| a.operation == Operation::Read), 0.7), "{pattern:?}");
            assert!(near(share(&|a| a.blocks == 1), 0.6), "{pattern:?}");
            assert!(all.iter().all(|a| a.lba >= 100 && a.lba + u64::from(a.blocks) <= 1100), "{pattern:?}");
        }
        for (percent, only) in [(0, Operation::Write), (100, Operation::Read)] {
            let spec = WorkloadSpec { read_percent: percent, ..of(Pattern::RandRw, &[(1, 100)], 50, 3) };
            assert!(accesses(spec, 500).iter().all(|a| a.operation == only));
        }
    }

    /// Ranks keep their frequency, and neighbours in rank are not neighbours on the disk.
    #[test]
    fn zipf_places_have_analytic_frequencies_and_are_spread() {
        const COUNT: usize = 200_000;
        let places = 1000;
        let spec = WorkloadSpec {
            distribution: Distribution::Zipf(1.1),
            ..of(Pattern::RandRead, &[(8, 100)], places * 8, 5)
        };
        let mut seen: HashMap<u64, u64> = HashMap::new();
        for access in accesses(spec, COUNT) {
            *seen.entry((access.lba - 100) / 8).or_default() += 1;
        }
        let mut ranked: Vec<(u64, u64)> = seen.into_iter().map(|(place, count)| (count, place)).collect();
        ranked.sort_unstable_by(|a, b| b.cmp(a));
        let sum: f64 = (1..=places).map(|rank| (rank as f64).powf(-1.1)).sum();
        for (index, (count, _)) in ranked.iter().take(5).enumerate() {
            let expected = ((index + 1) as f64).powf(-1.1) / sum * COUNT as f64;
            assert!((*count as f64 - expected).abs() < 5.0 * expected.sqrt(), "{index}: {count} {expected}");
        }
        assert!(ranked[0].1.abs_diff(ranked[1].1) > 100, "{ranked:?}");
    }

    #[test]
    fn every_rank_has_a_place_of_its_own() {
        for places in [1, 2, 3, 10, 97, 1000, 4096] {
            let stride = stride(places);
            let all: HashSet<u64> = (0..places).map(|rank| rank * stride % places).collect();
            assert_eq!(all.len() as u64, places);
        }
    }

    #[test]
    fn distributions_are_read_and_errors_name_the_forms() {
        assert_eq!("uniform".parse(), Ok(Distribution::Uniform));
        assert_eq!("zipf:1.1".parse(), Ok(Distribution::Zipf(1.1)));
        for (wrong, part) in
            [("zipf", "zipf:1.1"), ("zipf:0", "above 0"), ("zipf:x", "above 0"), ("pareto:1", "uniform")]
        {
            let error = wrong.parse::<Distribution>().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
