//! `--ops` of all commands: one record and one set of columns for operations from any source.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::{Target, bench, roundtrip};

/// Runs a command, which may end with 1: a finding, or a breakdown that does not close.
fn run(arguments: &[&str]) {
    let output = roundtrip().args(arguments).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{arguments:?}: {stderr}");
}

/// The heading of a CSV file, its first record by column, and how many records there are.
fn read(path: &Path) -> (String, Vec<(String, String)>, usize) {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut lines = text.lines();
    let (heading, first) = (lines.next().unwrap(), lines.next().unwrap());
    let columns = heading.split(',').map(str::to_owned).zip(first.split(',').map(str::to_owned)).collect();
    (heading.to_owned(), columns, lines.count() + 1)
}

#[test]
fn bench_analyze_study_and_simulate_write_the_same_columns() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    run(&[
        "simulate",
        "--preset",
        "seed-512",
        "--operations",
        "50",
        "--ops",
        &text("simulate.csv"),
        "--pcapng",
        &text("packets.pcapng"),
    ]);
    run(&["analyze", &text("packets.pcapng"), "--ops", &text("analyze.csv")]);
    let target = Target::start(&["--lun", "0=zero:1T"]);
    let short = ["--runtime", "100ms", "--ramp", "0ms", "--ops"];
    for format in ["csv", "parquet", "pftrace"] {
        bench(&target.url(0), &[&short[..], &[&text(&format!("bench.{format}"))]].concat());
    }
    run(&[
        "study",
        "--quick",
        "--loopback",
        "--bs",
        "512",
        "--iodepth",
        "1",
        "--send",
        "nodelay",
        "--runtime",
        "200ms",
        "--ops",
        "csv",
        "-o",
        &text("study"),
    ]);
    let study = path("study/ops/512-nodelay-qd1-1.csv");
    let files = [path("simulate.csv"), path("analyze.csv"), path("bench.csv"), study];
    // The stamps that each observer has; missing ones are 0.
    let seen = [
        &["c1_ns", "s1_ns", "s2_ns", "c2_ns", "start_ns", "finish_ns"][..],
        &["c1_ns", "s1_ns", "s2_ns", "c2_ns"],
        &["start_ns", "finish_ns"],
        &["c1_ns", "s1_ns", "s2_ns", "c2_ns", "start_ns", "finish_ns"],
    ];
    let (heading, _, _) = read(&files[0]);
    for (file, seen) in files.iter().zip(seen) {
        let (own, first, records) = read(file);
        assert_eq!(own, heading, "{}", file.display());
        assert!(records >= 50, "{}: {records}", file.display());
        let stamps = ["c1_ns", "s1_ns", "s2_ns", "c2_ns", "start_ns", "finish_ns"];
        let known = first.iter().filter(|(name, value)| stamps.contains(&name.as_str()) && value != "0");
        let known: Vec<&str> = known.map(|(name, _)| name.as_str()).collect();
        assert_eq!(known, seen, "{}: {first:?}", file.display());
    }
    let parquet = std::fs::read(path("bench.parquet")).unwrap();
    assert!(parquet.starts_with(b"PAR1") && parquet.ends_with(b"PAR1"), "Parquet by its name");
}

#[test]
fn bench_records_the_command_and_outcome_of_each_operation() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ops.csv");
    let target = Target::start(&["--lun", "0=ram:8M", "--lun", "1=ram:8M,readonly"]);
    let cases = [
        (0, "randread", "read(10),read,good,2,4096"),
        (0, "randwrite", "write(10),write,good,2,4096"),
        (1, "randwrite", "write(10),write,failed,2,4096"),
    ];
    for (lun, rw, expected) in cases {
        let load = ["--rw", rw, "--bs", "4k", "--iodepth", "2", "--runtime", "50ms", "--ops"];
        let url = target.url(lun);
        let arguments = [&["bench", &url][..], &load, &[file.to_str().unwrap()]].concat();
        roundtrip().args(arguments).output().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.lines().count() > 10, "{rw} at LUN {lun}");
        for line in text.lines().skip(1) {
            // Behind the connection and the tag.
            let what = line.splitn(3, ',').nth(2).unwrap();
            assert!(what.starts_with(expected), "{rw} at LUN {lun}: {line}");
        }
    }
}

#[test]
fn an_analysis_does_not_overwrite_its_capture() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let text = |name: &str| path(name).display().to_string();
    run(&["simulate", "--preset", "two-sends", "--operations", "50", "--pcapng", &text("packets.pcapng")]);
    std::fs::copy(path("packets.pcapng"), path("packets.csv")).unwrap();
    std::fs::hard_link(path("packets.pcapng"), path("other.pcapng")).unwrap();
    let before = std::fs::read(path("packets.pcapng")).unwrap();
    for (capture, option, output) in [
        ("packets.pcapng", "--annotate", "packets.pcapng"),
        ("packets.pcapng", "--annotate", "other.pcapng"),
        ("packets.csv", "--ops", "packets.csv"),
    ] {
        let output = roundtrip().args(["analyze", &text(capture), option, &text(output)]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains("would overwrite the input"), "{error}");
        assert!(std::fs::read(path(capture)).unwrap() == before, "{capture} has changed");
    }
}
