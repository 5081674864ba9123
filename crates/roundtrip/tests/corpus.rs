//! The captures in corpus/, made from real services: every planted cause is named, healthy captures stay silent, and gains are
//! those that removing the cause measured. What fails today is listed in corpus/known-misses.toml, which only shrinks:
//! a failure that is not listed fails the test, and so does an entry that no longer fails.
//!
//! `cargo test -p roundtrip --test corpus -- --nocapture` prints the whole table. `ROUNDTRIP_WRITE_KNOWN_MISSES=1` writes the
//! list anew. It grew once, when an interval had to have both ends near what was measured, which had been right when it reached
//! one. With `ROUNDTRIP_CORPUS_COMPLETE` set, the list must be short enough for a recall of 95 % without a false alarm.

#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "a test fails by panicking")]

#[path = "corpus/case.rs"]
mod case;
mod common;
#[path = "corpus/judge.rs"]
mod judge;
#[path = "corpus/known.rs"]
mod known;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use case::{Case, Measured};
use judge::{Outcome, judge};

/// Largest size of all captures together, bytes.
const CAPTURES_BYTES_MAX: u64 = 12_000_000;
/// Recall that the finished rules must have.
const RECALL: f64 = 0.95;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus")
}

/// Whether the rules must be finished.
fn is_complete() -> bool {
    std::env::var_os("ROUNDTRIP_CORPUS_COMPLETE").is_some()
}

/// Judges all cases, on all processors.
fn outcomes(cases: &[Case]) -> Vec<Outcome> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = judge(case, &corpus().join("captures"));
                    done.lock().unwrap().push(outcome);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by(|a, b| a.case.cmp(&b.case));
    done
}

/// Share of the planted causes that were named.
fn recall(cases: &[Case], faults: &BTreeSet<known::Fault>) -> f64 {
    let planted = cases.iter().filter(|case| !case.healthy).count();
    let missed = faults.iter().filter(|fault| fault.what == "missed").count();
    1.0 - missed as f64 / planted.max(1) as f64
}

#[test]
fn planted_causes_are_named_and_healthy_captures_are_silent() {
    let cases = case::all(&corpus());
    let outcomes = outcomes(&cases);
    let width = outcomes.iter().map(|outcome| outcome.case.len()).max().unwrap_or(0);
    for outcome in &outcomes {
        println!("{}", outcome.line(width));
    }
    let faults: BTreeSet<_> = outcomes.iter().flat_map(|outcome| outcome.faults.clone()).collect();
    let count = |what: &str| faults.iter().filter(|fault| fault.what == what).count();
    let planted = cases.iter().filter(|case| !case.healthy).count();
    println!(
        "{planted} planted causes, {} missed (recall {:.1} %), {} other verdicts beside them, {} gains off by more than {:.0} %, \
         {} intervals that are wider and {} without a prediction, {} causes still named when mended; {} healthy captures, {} false alarms",
        count("missed"),
        recall(&cases, &faults) * 100.0,
        count("besides"),
        count("gain"),
        judge::GAIN_TOLERANCE * 100.0,
        count("wide"),
        count("no gain"),
        count("mended"),
        cases.len() - planted,
        count("false alarm"),
    );
    let list = corpus().join("known-misses.toml");
    if std::env::var_os("ROUNDTRIP_WRITE_KNOWN_MISSES").is_some() {
        known::write(&list, &faults);
    }
    let known = known::read(&list);
    let new: Vec<_> = faults.difference(&known).map(ToString::to_string).collect();
    assert!(new.is_empty(), "not in corpus/known-misses.toml:\n{}", new.join("\n"));
    let mended: Vec<_> = known.difference(&faults).map(ToString::to_string).collect();
    assert!(
        mended.is_empty(),
        "no longer fail; remove them from corpus/known-misses.toml:\n{}",
        mended.join("\n")
    );
    if is_complete() {
        assert!(recall(&cases, &faults) >= RECALL && count("false alarm") == 0);
    }
}

#[test]
fn the_corpus_has_what_it_promises() {
    let cases = case::all(&corpus());
    let planted: Vec<_> = cases.iter().filter(|case| !case.healthy).collect();
    assert!(planted.len() >= 40, "{} planted causes", planted.len());
    assert!(cases.len() - planted.len() >= 100, "{} healthy captures", cases.len() - planted.len());
    let kinds: BTreeSet<_> = planted.iter().flat_map(|case| &case.expect).collect();
    assert!(kinds.len() >= 20, "{kinds:?}");
    if is_complete() {
        let schema = std::fs::read_to_string(corpus().join("../docs/schema/analyze.json")).unwrap();
        for kind in &kinds {
            assert!(schema.contains(&format!("\"{kind}\"")), "no verdict is called {kind}");
        }
    }
}

#[test]
fn every_capture_is_of_a_case_and_every_case_has_its_captures() {
    let cases = case::all(&corpus());
    let folder = corpus().join("captures");
    let mut expected: BTreeSet<String> = BTreeSet::new();
    for case in &cases {
        expected.insert(format!("{}.toml", case.name));
        expected.extend(case.files(false).into_iter().map(|(_, file)| file));
        if case.is_mended {
            expected.extend(case.files(true).into_iter().map(|(_, file)| file));
            assert!(
                Measured::read(&folder, case).gains(case).iter().any(|&gain| gain > 0.0),
                "{}: no gain",
                case.name
            );
        }
    }
    let (mut found, mut bytes) = (BTreeSet::new(), 0);
    for entry in std::fs::read_dir(&folder).unwrap() {
        let entry = entry.unwrap();
        bytes += entry.metadata().unwrap().len();
        found.insert(entry.file_name().into_string().unwrap());
    }
    let without: Vec<_> = expected.difference(&found).collect();
    assert!(without.is_empty(), "missing; run `make corpus`: {without:?}");
    let stale: Vec<_> = found.difference(&expected).collect();
    assert!(stale.is_empty(), "of no case: {stale:?}");
    assert!(bytes <= CAPTURES_BYTES_MAX, "{bytes} bytes of captures; {CAPTURES_BYTES_MAX} are the limit");
}
