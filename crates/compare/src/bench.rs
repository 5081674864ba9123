//! Profiles of the results of `roundtrip bench --json`: a block for each second.

use std::fmt::Write as _;

use serde::Deserialize;
use serde::de::Error as _;
use thiserror::Error;

use crate::profile::{Block, Profile, Sum};

/// Most bins of a histogram: one of three digits has fewer.
const BINS_MAX: usize = 100_000;

/// Longest run, seconds.
const SECONDS_MAX: f64 = 1e9;

/// A text is no result of a load.
#[derive(Debug, Error)]
#[error("this is no result of roundtrip bench --json: {0}")]
pub struct BenchError(#[from] serde_json::Error);

#[derive(Deserialize)]
struct BenchResult {
    url: Option<String>,
    runs: Vec<Run>,
}

#[derive(Deserialize)]
struct Run {
    rw: Option<serde_json::Value>,
    block_size_bytes: Option<u64>,
    queue_depth: Option<u32>,
    sessions: Option<u32>,
    rate: Option<f64>,
    seconds: f64,
    #[serde(default)]
    histogram: Vec<Bin>,
    #[serde(default)]
    series: Vec<Second>,
}

#[derive(Deserialize)]
struct Bin {
    up_to_ns: u64,
    count: u64,
}

#[derive(Deserialize)]
struct Second {
    at_seconds: u64,
    operations: u64,
    errors: u64,
    mean_us: Option<f64>,
    transferred_bytes: u64,
}

impl Run {
    /// What was asked for. Of a service of messages the size is that of its answers.
    fn name(&self, has_sizes: bool) -> String {
        let mut words = Vec::new();
        words.extend(self.rw.as_ref().and_then(|rw| rw.as_str()).map(str::to_owned));
        words.extend(self.block_size_bytes.filter(|_| has_sizes).map(|bytes| format!("{bytes} B")));
        words.extend(self.queue_depth.map(|depth| format!("QD {depth}")));
        words.extend(
            self.sessions.filter(|&sessions| sessions > 1).map(|sessions| format!("{sessions} sessions")),
        );
        words.extend(self.rate.map(|rate| format!("{rate} per second")));
        words.join(" ")
    }
}

/// Reads the result of a load. Seconds that were not whole are left out.
///
/// # Errors
/// When it is none.
pub fn profile(text: &[u8], source: &str) -> Result<Profile, BenchError> {
    let result: BenchResult = serde_json::from_slice(text)?;
    let mut profile = Profile::new(source);
    profile.block_ns = 1_000_000_000;
    let mut names = std::collections::BTreeMap::new();
    let is_disk = !result.url.as_deref().is_some_and(|url| url.starts_with("http"));
    for run in &result.runs {
        // What ends just before a second is whole.
        let span = (run.seconds + 0.01).floor().clamp(0.0, SECONDS_MAX) as u64;
        // A run that was repeated is one of its own.
        let mut name = run.name(is_disk);
        let repeats = names.entry(name.clone()).or_insert(0_u32);
        *repeats += 1;
        if *repeats > 1 {
            let _ = write!(name, " (run {repeats})");
        }
        let place = profile.place(result.url.as_deref().unwrap_or_default(), &name);
        let series = &mut profile.series[place];
        series.span = Some(span);
        for second in run.series.iter().filter(|second| second.at_seconds < span) {
            let operations = second.operations.saturating_add(second.errors);
            let total = second.mean_us.filter(|us| us.is_finite() && *us >= 0.0);
            let block = Block {
                operations,
                failed: second.errors,
                bytes: second.transferred_bytes,
                total: total
                    .map_or(Sum::default(), |us| Sum(us * 1e3 * second.operations as f64, second.operations)),
                ..Block::default()
            };
            if !block.is_sound() {
                return Err(serde_json::Error::custom("a second with counts that cannot be").into());
            }
            series.blocks.entry(second.at_seconds).or_default().add(&block);
        }
        if run.histogram.len() > BINS_MAX {
            return Err(serde_json::Error::custom("a histogram of too many bins").into());
        }
        for bin in &run.histogram {
            let sum = series.times.entry(bin.up_to_ns).or_default();
            *sum = sum.saturating_add(bin.count);
        }
        profile.blocks = profile.blocks.max(span);
        profile.end_ns = profile.end_ns.max(span.saturating_mul(profile.block_ns));
    }
    Ok(profile)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Comparison;

    fn result(iops: u64, us: f64) -> String {
        let mut random = fastrand::Rng::with_seed(iops);
        let seconds: Vec<String> = (0..11)
            .map(|at| {
                let operations = if at == 10 { 3 } else { iops + random.u64(..iops / 50) };
                format!("{{\"at_seconds\":{at},\"operations\":{operations},\"errors\":0,\"max_us\":1,\"mean_us\":{us},\"transferred_bytes\":9}}")
            })
            .collect();
        format!(
            "{{\"url\":\"iscsi://a/b/0\",\"runs\":[{{\"rw\":\"randread\",\"block_size_bytes\":512,\"queue_depth\":4,\"sessions\":1,\
             \"seconds\":10.003,\"histogram\":[{{\"up_to_ns\":50000,\"count\":90}},{{\"up_to_ns\":90000,\"count\":10}}],\"series\":[{}]}}]}}",
            seconds.join(",")
        )
    }

    #[test]
    fn runs_are_compared_by_their_seconds() {
        let of = |iops, us| profile(result(iops, us).as_bytes(), "x").unwrap();
        let compared = Comparison::of(&of(10_000, 80.0), &of(9_000, 90.0));
        let row = &compared.rows[0];
        assert_eq!(row.name, "iscsi://a/b/0 randread 512 B QD 4");
        let rate = row.quantity("per second").unwrap();
        assert!(rate.differs && (rate.share().unwrap() + 0.1).abs() < 0.01, "{rate:?}");
        assert!((rate.before / 10_100.0 - 1.0).abs() < 0.01, "the broken second is left out: {rate:?}");
        let p99 = row.quantity("p99 us").unwrap();
        assert!((p99.before - 90.0).abs() < 0.1 && !p99.differs && p99.chance.is_none(), "{p99:?}");
        assert!(!Comparison::of(&of(10_000, 80.0), &of(10_010, 80.0)).differs());
    }

    #[test]
    fn repeated_runs_are_apart_and_huge_counts_do_no_harm() {
        let text = result(1000, 5.0);
        let run = text.split_once("\"runs\":[").unwrap().1.strip_suffix("]}").unwrap();
        let two = text.replace("]}]}", &format!("]}},{run}]}}"));
        let read = profile(two.as_bytes(), "x").unwrap();
        assert_eq!(read.series.len(), 2, "{two}");
        assert!(read.series[1].operation.ends_with("(run 2)"));
        let huge =
            text.replace("\"operations\":3,\"errors\":0", "\"operations\":18446744073709551615,\"errors\":9");
        let huge = huge
            .replace("\"at_seconds\":10", "\"at_seconds\":3")
            .replace("\"count\":90", "\"count\":18446744073709551615");
        assert!(profile(huge.as_bytes(), "x").unwrap_err().to_string().contains("cannot be"));
        let huge = text.replace("\"mean_us\":5", "\"mean_us\":1e305");
        assert!(profile(huge.as_bytes(), "x").is_err());
        let huge = text.replace("\"count\":90", "\"count\":18446744073709551615");
        let read = profile(huge.as_bytes(), "x").unwrap();
        assert!(!Comparison::of(&read, &read).differs());
    }

    #[test]
    fn answers_of_other_sizes_are_of_the_same_requests() {
        let of = |size: &str| {
            let text = result(1000, 5.0).replace("iscsi://a/b/0", "http://a/").replace(":512", size);
            profile(text.as_bytes(), "x").unwrap()
        };
        assert_eq!(Comparison::of(&of(":5"), &of(":0")).rows.len(), 1);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "{}", "[]", "{\"runs\":[{}]}"] {
            assert!(profile(text.as_bytes(), "x").is_err(), "{text}");
        }
    }
}
