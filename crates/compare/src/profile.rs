//! Operations of services in blocks of time.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The version of the format.
const FORMAT: u32 = 1;

/// Length of a block at first, nanoseconds. It doubles when there are too many.
const BLOCK_NS: u64 = 1_000_000;

/// Most blocks in time.
const BLOCKS_MAX: u64 = 512;

/// Most series; what comes beyond is added up in one.
const SERIES_MAX: usize = 512;

/// And of one that is merged.
const MERGED_SERIES_MAX: usize = 1 << 16;

/// The name of that one.
pub const OTHERS: &str = "(others)";

/// Larger than any time of a measurement, nanoseconds since the epoch.
const TIME_NS_MAX: u64 = 1 << 63;

/// Larger than any count of a block, and than any sum of its times, nanoseconds: sums over all blocks stay far from overflow.
const COUNT_MAX: u64 = 1 << 41;
const SUM_NS_MAX: f64 = 1e21;
const BYTES_MAX: u64 = 1 << 61;

/// The parts of an operation's time, in their order. The client's is the time from an answer to the next request on its connection; where
/// one side alone was seen, the way to the other side and back is in `server` (seen at the client) or in `client` (seen at the server).
pub const PARTS: [&str; 6] = ["client", "request", "way there", "server", "way back", "response"];

/// Where an operation was seen: times at other places are others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// By the program that asked.
    #[default]
    Program,
    /// On the wire at the client.
    Client,
    /// On the wire at the server.
    Server,
    /// At both.
    Both,
}

/// An operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Operation {
    /// Where it was seen.
    pub place: Place,
    /// When it ended, nanoseconds since the epoch.
    pub ended_ns: u64,
    /// How long it took, nanoseconds.
    pub total_ns: Option<u64>,
    /// The parts of its time, nanoseconds.
    pub parts_ns: [Option<u64>; PARTS.len()],
    /// Bytes of application data.
    pub bytes: u64,
    /// It was answered with an error.
    pub failed: bool,
}

/// A sum and how many it has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sum(pub f64, pub u64);

impl Sum {
    pub(crate) fn add(&mut self, other: Self) {
        self.0 += other.0;
        self.1 = self.1.saturating_add(other.1);
    }

    pub(crate) fn mean(self) -> Option<f64> {
        (self.1 > 0).then(|| self.0 / self.1 as f64)
    }
}

/// The operations of a block of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Operations.
    pub operations: u64,
    /// Those that failed.
    pub failed: u64,
    /// Bytes of application data.
    pub bytes: u64,
    /// Time of the operations, nanoseconds.
    pub total: Sum,
    /// The parts of it.
    pub parts: [Sum; PARTS.len()],
    /// How many operations took how long, nanoseconds, to two digits.
    pub times: BTreeMap<u64, u64>,
}

impl Block {
    /// Whether it can be one: no more failed, and no more have a time, than there were.
    pub(crate) fn is_sound(&self) -> bool {
        let is_sum = |sum: &Sum| {
            sum.1 <= self.operations && (0.0..=SUM_NS_MAX).contains(&sum.0) && (sum.1 > 0 || sum.0 == 0.0)
        };
        let timed = self.times.values().fold(0_u64, |sum, &count| sum.saturating_add(count));
        self.operations <= COUNT_MAX
            && self.bytes <= BYTES_MAX
            && self.failed <= self.operations
            && timed <= self.operations
            && self.parts.iter().chain([&self.total]).all(is_sum)
    }

    /// The time that this share of the operations did not exceed, nanoseconds.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        quantile(self.times.iter().map(|(&ns, &count)| (ns, count)), share)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.operations = self.operations.saturating_add(other.operations);
        self.failed = self.failed.saturating_add(other.failed);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.total.add(other.total);
        std::iter::zip(&mut self.parts, other.parts).for_each(|(own, other)| own.add(other));
        for (&ns, &count) in &other.times {
            let sum = self.times.entry(ns).or_default();
            *sum = sum.saturating_add(count);
        }
    }
}

/// The time that this share of the operations did not exceed, nanoseconds; `times` ascend.
pub(crate) fn quantile(times: impl Iterator<Item = (u64, u64)> + Clone, share: f64) -> Option<u64> {
    let all = times.clone().fold(0_u64, |sum, (_, count)| sum.saturating_add(count));
    let wanted = ((all as f64 * share).ceil() as u64).max(1);
    let mut below = 0;
    times.into_iter().find_map(|(ns, count)| {
        below = count.saturating_add(below);
        (below >= wanted).then_some(ns)
    })
}

/// The operations of one kind of one service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The service: an address, or what was loaded.
    pub service: String,
    /// What was asked for.
    pub operation: String,
    /// Blocks of time with operations, by number.
    pub blocks: BTreeMap<u64, Block>,
    /// The distribution of all times, where the blocks have none.
    pub times: BTreeMap<u64, u64>,
    /// Its own number of blocks in time, where it is not the profile's.
    pub span: Option<u64>,
    /// Where how many of its operations were seen.
    pub places: BTreeMap<Place, u64>,
}

/// A cause that an analysis found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Its name.
    pub name: String,
    /// A sentence with the figures.
    pub text: String,
}

/// The operations of every service in blocks of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    format: u32,
    /// Where it comes from.
    pub source: String,
    /// When the first block begins, nanoseconds since the epoch.
    pub begin_ns: u64,
    /// When the last operation ended, nanoseconds since the epoch.
    pub end_ns: u64,
    /// The length of a block, nanoseconds.
    pub block_ns: u64,
    /// Blocks in time.
    pub blocks: u64,
    /// The operations.
    pub series: Vec<Series>,
    /// The causes that were found.
    pub causes: Vec<Cause>,
    /// How times are rounded.
    #[serde(skip, default = "scale")]
    scale: Histogram<u8>,
    /// Place of each series.
    #[serde(skip)]
    places: BTreeMap<(String, String), usize>,
    /// Most of them.
    #[serde(skip, default = "series_max")]
    series_max: usize,
}

fn series_max() -> usize {
    SERIES_MAX
}

/// The scale of times: two digits, up to any that can be.
fn scale() -> Histogram<u8> {
    Histogram::new_with_bounds(1, TIME_NS_MAX, 2).unwrap_or_else(|_| unreachable!())
}

/// The time that a profile covers, and the length of its blocks, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// When the first block begins.
    pub begin_ns: u64,
    /// When the last operation ended.
    pub end_ns: u64,
    /// The length of a block.
    pub block_ns: u64,
}

/// A text is no profile.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// It is no JSON of the kind.
    #[error("this is no profile of roundtrip: {0}")]
    Text(#[from] serde_json::Error),
    /// It has another format.
    #[error("the profile has format {0}; this version reads format {FORMAT}: make it again")]
    Format(u32),
    /// Its numbers contradict each other.
    #[error("the profile is damaged: {0}")]
    Damaged(&'static str),
}

impl Profile {
    /// An empty profile.
    #[must_use]
    pub fn new(source: &str) -> Self {
        Self {
            format: FORMAT,
            source: source.to_owned(),
            begin_ns: 0,
            end_ns: 0,
            block_ns: BLOCK_NS,
            blocks: 0,
            series: Vec::new(),
            causes: Vec::new(),
            scale: scale(),
            places: BTreeMap::new(),
            series_max: SERIES_MAX,
        }
    }

    /// Reads a profile that was kept.
    ///
    /// # Errors
    /// When the text is none.
    pub fn read(text: &[u8]) -> Result<Self, ProfileError> {
        #[derive(Deserialize)]
        struct Versioned {
            format: u32,
        }
        let Versioned { format } = serde_json::from_slice(text)?;
        if format != FORMAT {
            return Err(ProfileError::Format(format));
        }
        let profile: Self = serde_json::from_slice(text)?;
        if profile.block_ns == 0 || profile.blocks > BLOCKS_MAX {
            return Err(ProfileError::Damaged("its blocks"));
        }
        if profile.series.len() > SERIES_MAX + 1 {
            return Err(ProfileError::Damaged("more series than there can be"));
        }
        let within = |series: &Series| {
            let span = series.span.unwrap_or(profile.blocks);
            span <= profile.blocks && series.blocks.keys().all(|&number| number < span)
        };
        if !profile.series.iter().all(within) {
            return Err(ProfileError::Damaged("a block behind the last one"));
        }
        if !profile.series.iter().all(|series| series.blocks.values().all(Block::is_sound)) {
            return Err(ProfileError::Damaged("its counts and times contradict each other"));
        }
        let times = profile.series.iter().flat_map(|series| series.times.values());
        if times.chain([&profile.begin_ns, &profile.end_ns]).any(|&value| value > TIME_NS_MAX) {
            return Err(ProfileError::Damaged("a count or a time that cannot be"));
        }
        Ok(profile)
    }

    /// Returns the text of the profile, to be kept.
    #[must_use]
    pub fn text(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// An empty profile that has room for profiles of these times: when each begins and ends, and the length of its blocks, nanoseconds.
    #[must_use]
    pub fn spanning(source: &str, all: &[Span]) -> Self {
        let begin_ns = all.iter().map(|span| span.begin_ns).min().unwrap_or(0);
        let end_ns = all.iter().map(|span| span.end_ns).max().unwrap_or(0);
        let mut block_ns = all.iter().map(|span| span.block_ns).max().unwrap_or(BLOCK_NS).max(1);
        // A block begins within one of the whole: none may be behind the last.
        while end_ns.saturating_sub(begin_ns) / block_ns >= BLOCKS_MAX - 1 {
            block_ns = block_ns.saturating_mul(2);
        }
        let blocks = if all.is_empty() { 0 } else { end_ns.saturating_sub(begin_ns) / block_ns + 1 };
        Self { begin_ns, end_ns, block_ns, blocks, series_max: MERGED_SERIES_MAX, ..Self::new(source) }
    }

    /// The time that it covers.
    #[must_use]
    pub fn span(&self) -> Span {
        Span { begin_ns: self.begin_ns, end_ns: self.end_ns, block_ns: self.block_ns }
    }

    /// Adds the operations of another profile, whose time is within this one's. Counts, sums and distributions are added; of time, the
    /// blocks are as exact as this profile's.
    pub fn merge(&mut self, other: &Self) {
        for series in &other.series {
            let place = self.place(&series.service, &series.operation);
            let last = self.blocks.saturating_sub(1);
            let own = &mut self.series[place];
            for (&number, block) in &series.blocks {
                let begins_ns = other.begin_ns.saturating_add(number.saturating_mul(other.block_ns));
                let at = (begins_ns.saturating_sub(self.begin_ns) / self.block_ns).min(last);
                own.blocks.entry(at).or_default().add(block);
            }
            for (&ns, &count) in &series.times {
                let sum = own.times.entry(ns).or_default();
                *sum = sum.saturating_add(count);
            }
            for (&place, &count) in &series.places {
                let sum = own.places.entry(place).or_default();
                *sum = sum.saturating_add(count);
            }
        }
        for cause in &other.causes {
            match self.causes.iter_mut().find(|known| known.name == cause.name) {
                // Whichever comes first, the same one is kept.
                Some(known) if cause.text < known.text => known.text.clone_from(&cause.text),
                Some(_) => {}
                None => self.causes.push(cause.clone()),
            }
        }
        self.causes.sort_by(|a, b| a.name.cmp(&b.name));
    }

    /// Its length in time, seconds.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.end_ns.saturating_sub(self.begin_ns) as f64 / 1e9
    }

    /// Blocks that are whole: the last one ends with the measurement.
    #[must_use]
    pub fn whole_blocks(&self) -> u64 {
        (self.end_ns.saturating_sub(self.begin_ns) / self.block_ns.max(1)).min(self.blocks)
    }

    /// The length of a block, seconds.
    pub(crate) fn block_seconds(&self) -> f64 {
        self.block_ns as f64 / 1e9
    }

    /// Operations of all services.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.series.iter().flat_map(|series| series.blocks.values()).map(|block| block.operations).sum()
    }

    /// Adds an operation.
    pub fn add(&mut self, service: &str, operation: &str, one: &Operation) {
        let number = self.block_of(one.ended_ns);
        let place = self.place(service, operation);
        let rounded = |ns: u64| self.scale.median_equivalent(ns.clamp(1, self.scale.high()));
        let time = one.total_ns.map(rounded);
        let series = &mut self.series[place];
        *series.places.entry(one.place).or_default() += 1;
        let block = series.blocks.entry(number).or_default();
        block.operations += 1;
        block.failed += u64::from(one.failed);
        block.bytes = block.bytes.saturating_add(one.bytes);
        let sum = |ns: u64| Sum(ns as f64, 1);
        one.total_ns.into_iter().for_each(|ns| block.total.add(sum(ns)));
        time.into_iter().for_each(|time| *block.times.entry(time).or_default() += 1);
        for (part, ns) in block.parts.iter_mut().zip(one.parts_ns) {
            ns.into_iter().for_each(|ns| part.add(sum(ns)));
        }
    }

    /// Extends it to all of a measurement, also where no operation ended: a service that has died answers none.
    pub fn cover(&mut self, from_ns: u64, to_ns: u64) {
        if self.blocks == 0 || from_ns > self.end_ns || to_ns < self.begin_ns {
            return;
        }
        while to_ns.max(self.end_ns).saturating_sub(from_ns.min(self.begin_ns)) / self.block_ns
            >= BLOCKS_MAX - 1
        {
            self.halve();
        }
        let before = self.begin_ns.saturating_sub(from_ns).div_ceil(self.block_ns);
        for series in &mut self.series {
            let blocks = std::mem::take(&mut series.blocks);
            series.blocks = blocks.into_iter().map(|(number, block)| (number + before, block)).collect();
        }
        self.begin_ns = self.begin_ns.min(from_ns);
        self.end_ns = self.end_ns.max(to_ns);
        let all = (self.end_ns - self.begin_ns) / self.block_ns + 1;
        self.blocks = (self.blocks + before).max(all);
    }

    /// The place of a series.
    pub(crate) fn place(&mut self, service: &str, operation: &str) -> usize {
        let key = (service.to_owned(), operation.to_owned());
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        let (service, operation) = match self.series.len() < self.series_max {
            true => key,
            false => (OTHERS.to_owned(), String::new()),
        };
        let key = (service.clone(), operation.clone());
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        self.series.push(Series { service, operation, ..Series::default() });
        self.places.insert(key, self.series.len() - 1);
        self.series.len() - 1
    }

    /// The number of the block at a time.
    fn block_of(&mut self, at_ns: u64) -> u64 {
        if self.blocks == 0 {
            self.begin_ns = at_ns;
        }
        self.end_ns = self.end_ns.max(at_ns);
        // Operations end out of order by little: what is earlier belongs to the first block.
        let since = at_ns.saturating_sub(self.begin_ns);
        while since / self.block_ns >= BLOCKS_MAX {
            self.halve();
        }
        let number = since / self.block_ns;
        self.blocks = self.blocks.max(number + 1);
        number
    }

    /// Makes blocks twice as long.
    fn halve(&mut self) {
        for series in &mut self.series {
            let mut longer: BTreeMap<u64, Block> = BTreeMap::new();
            for (number, block) in std::mem::take(&mut series.blocks) {
                longer.entry(number / 2).or_default().add(&block);
            }
            series.blocks = longer;
        }
        self.block_ns = self.block_ns.saturating_mul(2);
        self.blocks = self.blocks.div_ceil(2);
    }
}

impl Series {
    /// Its blocks in at least this many groups of equal length, in their order, and that length; groups without operations are empty. What
    /// is behind the last whole group is left out.
    #[must_use]
    pub fn groups(&self, blocks: u64, groups: u64) -> (Vec<Block>, u64) {
        let length = (blocks / groups.max(1)).max(1);
        let mut all = vec![Block::default(); (blocks / length) as usize];
        for (number, block) in &self.blocks {
            if let Some(group) = all.get_mut((number / length) as usize) {
                group.add(block);
            }
        }
        (all, length)
    }

    /// All of it.
    pub(crate) fn whole(&self) -> Block {
        let mut whole = Block { times: self.times.clone(), ..Block::default() };
        self.blocks.values().for_each(|block| whole.add(block));
        whole
    }

    /// Where most of it was seen.
    pub(crate) fn seen(&self) -> Place {
        self.places.iter().max_by_key(|(_, count)| **count).map_or(Place::Program, |(place, _)| *place)
    }

    /// How many operations took how long, nanoseconds.
    #[must_use]
    pub fn times(&self) -> BTreeMap<u64, u64> {
        self.whole().times
    }

    /// Operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.blocks.values().fold(0, |sum, block| block.operations.saturating_add(sum))
    }

    /// The time of all of them, nanoseconds.
    #[must_use]
    pub fn total_ns(&self) -> f64 {
        self.blocks.values().map(|block| block.total.0).sum()
    }

    /// The time that this share of the operations did not exceed, nanoseconds.
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<u64> {
        self.whole().quantile(share)
    }

    /// Service and operation.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{} {}", self.service, self.operation).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Operation {
        Operation { ended_ns: ms * 1_000_000, total_ns: Some(1000), bytes: 7, ..Operation::default() }
    }

    /// Profiles of parts are, merged in any order, the profile of the whole, but for where blocks begin.
    #[test]
    fn merged_profiles_have_every_operation_whatever_the_order() {
        let mut whole = Profile::new("whole");
        let parts: Vec<Profile> = (0..7_u64)
            .map(|part| {
                let mut profile = Profile::new("part");
                for one in 0..1000 {
                    // Parts overlap, and are of very different lengths.
                    let ms = part * 900 + one * (1 + part * part * 40);
                    let operation = Operation {
                        total_ns: Some(1000 + one * part),
                        parts_ns: [Some(part), None, Some(one), None, None, None],
                        failed: one % 7 == 0,
                        ..at(ms)
                    };
                    let name = if one % 3 == 0 { "GET" } else { "PUT" };
                    profile.add("a", name, &operation);
                    whole.add("a", name, &operation);
                }
                profile.causes.push(Cause { name: "slow".to_owned(), text: format!("{}", 9 - part) });
                profile
            })
            .collect();
        let spans: Vec<Span> = parts.iter().map(Profile::span).collect();
        let merged = |order: &mut dyn Iterator<Item = &Profile>| {
            let mut merged = Profile::spanning("merged", &spans);
            order.for_each(|part| merged.merge(part));
            merged.series.sort_by(|a, b| a.operation.cmp(&b.operation));
            merged.text()
        };
        let forwards = merged(&mut parts.iter());
        assert_eq!(forwards, merged(&mut parts.iter().rev()));
        let read = Profile::read(&forwards).unwrap();
        assert!(read.blocks <= BLOCKS_MAX && read.operations() == 7000, "{}", read.blocks);
        assert_eq!((read.begin_ns, read.end_ns), (whole.begin_ns, whole.end_ns));
        assert_eq!(read.causes, [Cause { name: "slow".to_owned(), text: "3".to_owned() }]);
        for series in &read.series {
            let same = whole.series.iter().find(|own| own.operation == series.operation).unwrap();
            assert_eq!(series.whole(), same.whole());
            assert_eq!(series.places, same.places);
        }
        assert_eq!(Profile::spanning("none", &[]).text(), Profile::new("none").text());
    }

    #[test]
    fn blocks_grow_and_nothing_is_lost() {
        let mut profile = Profile::new("x");
        for ms in 0..100_000 {
            profile.add("a", "GET", &at(50_000 + ms));
        }
        assert!(profile.blocks <= BLOCKS_MAX && profile.blocks > BLOCKS_MAX / 4, "{}", profile.blocks);
        assert!((profile.seconds() - 100.0).abs() < 1.0, "{}", profile.seconds());
        assert_eq!(profile.operations(), 100_000);
        let whole = profile.series[0].whole();
        assert_eq!(
            (whole.bytes, whole.total, whole.times.values().sum()),
            (700_000, Sum(1e8, 100_000), 100_000)
        );
        let (groups, length) = profile.series[0].groups(profile.blocks, 7);
        let each = length * profile.block_ns / 1_000_000;
        let last = groups.len() - 1;
        assert!(
            groups.len() >= 7 && groups[..last].iter().all(|group| group.operations == each),
            "{groups:?}"
        );
    }

    #[test]
    fn quantiles_are_right_to_two_digits() {
        let mut profile = Profile::new("x");
        for us in 1..=1000 {
            profile.add("a", "GET", &Operation { total_ns: Some(us * 1000), ..at(0) });
        }
        let of = |profile: &Profile, share| {
            let whole = profile.series[0].whole();
            quantile(whole.times.iter().map(|(&ns, &count)| (ns, count)), share)
        };
        for (share, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            assert!((of(&profile, share).unwrap() as f64 / us / 1e3 - 1.0).abs() < 0.01, "{share}");
        }
        assert_eq!(quantile(std::iter::empty(), 0.5), None);
        // Beyond the scale, the longest is told.
        profile.add("a", "GET", &Operation { total_ns: Some(u64::MAX), ..at(0) });
        assert!(of(&profile, 1.0).unwrap() > 3_000_000_000_000);
    }

    #[test]
    fn a_profile_is_read_as_it_was_kept() {
        let mut profile = Profile::new("x");
        profile.add("a", "GET", &at(3));
        profile.causes.push(Cause { name: "delayed ACK".into(), text: "it waits".into() });
        let read = Profile::read(&profile.text()).unwrap();
        assert_eq!((&read.series, &read.causes, read.blocks), (&profile.series, &profile.causes, 1));
        for (wrong, why) in [
            ("{", "no profile"),
            ("{\"format\": 9}", "format 9"),
            (
                &*String::from_utf8(profile.text())
                    .unwrap()
                    .replace("\"block_ns\":1000000,", "\"block_ns\":0,"),
                "blocks",
            ),
            (
                &*String::from_utf8(profile.text()).unwrap().replace("\"blocks\":1,", "\"blocks\":0,"),
                "behind",
            ),
        ] {
            let error = Profile::read(wrong.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn what_cannot_be_is_damaged() {
        let mut profile = Profile::new("x");
        profile.add("a", "GET", &Operation { failed: true, ..at(3) });
        let text = String::from_utf8(profile.text()).unwrap();
        for (from, to) in [
            ("\"operations\":1,", "\"operations\":18446744073709551615,"),
            ("\"failed\":1,", "\"failed\":2,"),
            ("\"total\":[1000.0,1]", "\"total\":[1e308,1]"),
            ("\"total\":[1000.0,1]", "\"total\":[-1.0,1]"),
            ("\"total\":[1000.0,1]", "\"total\":[1000.0,2]"),
            ("\"times\":{\"1002\":1}", "\"times\":{\"1002\":18446744073709551615}"),
            ("\"times\":{},\"span\"", "\"times\":{\"7\":18446744073709551615},\"span\""),
            ("\"span\":null", "\"span\":7"),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let damaged = Profile::read(text.replace(from, to).as_bytes());
            assert!(matches!(damaged, Err(ProfileError::Damaged(_))), "{to}: {damaged:?}");
        }
        assert!(Profile::read(text.as_bytes()).is_ok());
    }

    #[test]
    fn silence_at_both_ends_counts() {
        let mut profile = Profile::new("x");
        for ms in 0..2000 {
            profile.add("a", "GET", &at(10_000 + ms));
        }
        profile.cover(9_000_000_000, 17_000_000_000);
        assert!((profile.seconds() - 8.0).abs() < 1e-6, "{}", profile.seconds());
        assert!(profile.blocks <= BLOCKS_MAX && profile.operations() == 2000);
        let first = *profile.series[0].blocks.keys().next().unwrap() * profile.block_ns;
        assert!((0.97e9..1.1e9).contains(&(first as f64)), "{first}");
        assert!(Profile::read(&profile.text()).is_ok());
        // What does not hold it changes nothing.
        let before = profile.text();
        profile.cover(20_000_000_000, 30_000_000_000);
        assert_eq!(profile.text(), before);
    }

    #[test]
    fn series_are_bounded() {
        let mut profile = Profile::new("x");
        for number in 0..2000 {
            profile.add(&format!("s{number}"), "GET", &at(0));
        }
        assert_eq!((profile.series.len(), profile.operations()), (SERIES_MAX + 1, 2000));
        assert_eq!(profile.series[SERIES_MAX].service, OTHERS);
    }
}
