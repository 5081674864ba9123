//! Setups that fooled the analysis, kept as cases (tests/fools.tsv). One that it has overcome must not fool it again.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write;

use opponent::cause::Cause;
use opponent::judge::judged;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fools.tsv");

/// `fooled`: it fools the analysis still. `overcome`: no more.
#[derive(Clone, Debug, PartialEq)]
struct Case {
    seed: u64,
    cause: Cause,
    sort: String,
    state: String,
    reason: String,
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(FILE).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let cells: Vec<&str> = line.split('\t').collect();
            assert_eq!(cells.len(), 5, "{line}");
            Case {
                seed: cells[0].parse().unwrap(),
                cause: Cause::named(cells[1]).unwrap(),
                sort: cells[2].to_owned(),
                state: cells[3].to_owned(),
                reason: cells[4].to_owned(),
            }
        })
        .collect()
}

#[test]
fn a_setup_that_was_overcome_does_not_fool_the_analysis_again() {
    let mut cases = cases();
    assert!(cases.len() >= 20);
    for case in &mut cases {
        let judged = judged(case.seed, None);
        let is_fooled = match case.sort.as_str() {
            "missed" => {
                assert_eq!(judged.has(case.cause), Some(true), "{case:?}: the cause is not there");
                !judged.is_found(case.cause)
            }
            "false alarm" => {
                assert_ne!(judged.has(case.cause), Some(true), "{case:?}: the cause is there");
                judged.false_alarm(case.cause).is_some()
            }
            other => panic!("{other:?}: `missed` or `false alarm`"),
        };
        assert!(
            !(is_fooled && case.state == "overcome"),
            "`cargo run --release -p opponent -- --one {}`: {} {} again: {}",
            case.seed,
            case.cause.name(),
            case.sort,
            case.reason
        );
        if !is_fooled {
            "overcome".clone_into(&mut case.state);
        }
    }
    if std::env::var_os("ROUNDTRIP_WRITE_ACCURACY").is_some() {
        let mut text = "# seed, cause, missed or false alarm, fooled or overcome, why it fools\n".to_owned();
        for Case { seed, cause, sort, state, reason } in cases {
            writeln!(text, "{seed}\t{}\t{sort}\t{state}\t{reason}", cause.name()).unwrap();
        }
        std::fs::write(FILE, text).unwrap();
    }
}
