//! A seeded sample of setups: recall and false alarms of each cause stay at least as good as tests/limits.tsv, which only tightens, and
//! docs/accuracy.md has the sample's table.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fmt::Write;

use opponent::cause::Cause;
use opponent::tally::Tally;
use opponent::tally::many;

const SETUPS: u64 = 400;
const SEED: u64 = 1;
const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/limits.tsv");
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/accuracy.md");
const BEGIN: &str = "<!-- sample begins -->\n";
const END: &str = "<!-- sample ends -->\n";

/// The least number of setups with a cause in which it is found, and the largest number of its false alarms.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Limit {
    found: u32,
    alarms: u32,
}

fn limits() -> BTreeMap<String, Limit> {
    let text = std::fs::read_to_string(LIMITS).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            (
                cells[0].to_owned(),
                Limit { found: cells[1].parse().unwrap(), alarms: cells[2].parse().unwrap() },
            )
        })
        .collect()
}

fn written(limits: &BTreeMap<String, Limit>) -> String {
    let mut text = "# cause, setups in which it must be found, false alarms allowed: of the sample in sample.rs. These numbers only improve.\n".to_owned();
    for (name, limit) in limits {
        writeln!(text, "{name}\t{}\t{}", limit.found, limit.alarms).unwrap();
    }
    text
}

/// The page with this table.
fn page_with(table: &str) -> String {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    format!("{before}{BEGIN}{table}{END}{after}")
}

#[test]
fn recall_and_false_alarms_are_within_their_limits() {
    let tally: Tally = many(SEED, SETUPS, None, 2);
    let is_writing = std::env::var_os("ROUNDTRIP_WRITE_ACCURACY").is_some();
    let old = limits();
    let rows = tally.rows.iter().zip(Cause::ALL.iter().copied());
    let now: BTreeMap<String, Limit> = rows
        .map(|(row, cause)| {
            (cause.name().to_owned(), Limit { found: row.recall.hits, alarms: row.false_alarms.hits })
        })
        .collect();
    let worse: Vec<String> = now
        .iter()
        .filter_map(|(name, now)| {
            let old = old.get(name)?;
            (now.found < old.found || now.alarms > old.alarms)
                .then(|| format!("{name}: was {old:?}, is {now:?}"))
        })
        .collect();
    assert!(
        worse.is_empty(),
        "`cargo run --release -p opponent -- --setups {SETUPS} --seed {SEED}` lists the setups:\n{}",
        worse.join("\n")
    );
    if is_writing {
        std::fs::write(LIMITS, written(&now)).unwrap();
        std::fs::write(PAGE, page_with(&tally.table())).unwrap();
        return;
    }
    let is_current = std::fs::read_to_string(PAGE).unwrap() == page_with(&tally.table());
    assert!(is_current, "ROUNDTRIP_WRITE_ACCURACY=1 cargo test -p opponent writes docs/accuracy.md");
}
